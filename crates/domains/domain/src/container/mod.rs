// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The domain `container`: the meter in an OCI container on shielded CPUs.
//!
//! The container gets only the privilege to lock its memory. Policy and affinity of its threads are
//! set from outside while it waits, so it needs neither `CAP_SYS_NICE` nor a limit of real-time
//! priorities.

mod bundle;
mod container_directories;
mod engine;
mod helper_program;
mod planned_container;
mod seccomp;

use rampart_host::{Shield, StateDirectory};
use rampart_model::{
    Availability, ContainerEngine, DomainKind, DomainSelection, EffectiveSettings, Finding,
    Machine, Nanos, Severity,
};

use rustix::process::Resource;

use self::bundle::Contents;
use self::engine::{Engine, MemoryGrant, RunOptions};
use crate::running_process::RunningProcess;
use crate::session::{Session, Tie};
use crate::shielded_process::{self, Environment, IsolationChoice, REAL_TIME_BUDGET};
use crate::{Domain, DomainError, Running, Start, task};

pub(crate) use self::container_directories::Container;
pub use self::container_directories::{ReleasedContainers, release_containers};
pub use self::planned_container::{ContainerOrder, PlannedContainer};

/// The domain `container`.
#[derive(Debug, Clone)]
pub(crate) struct ContainerDomain {
    pub(crate) engine: ContainerEngine,
    pub(crate) state: StateDirectory,
    pub(crate) isolation: IsolationChoice,
}

impl Domain for ContainerDomain {
    fn selection(&self) -> DomainSelection {
        DomainSelection {
            guest: None,
            cell: None,
            kind: DomainKind::Container,
            engine: Some(self.engine),
        }
    }

    fn availability(&self, machine: &Machine) -> Availability {
        let (engine, mut findings) = engine::availability(self.engine, machine);
        findings.extend(task::weaknesses(machine).into_iter().filter(|finding| {
            // Without root it is not available, which another finding reports.
            finding.location != "privilege"
        }));
        let program = match (&engine, self.engine) {
            (Some(engine), _) => engine.version.clone(),
            (None, ContainerEngine::Embedded) => "runc or crun".to_owned(),
            (None, ContainerEngine::Podman) => "podman".to_owned(),
            (None, ContainerEngine::Docker) => "docker".to_owned(),
        };
        Availability {
            domain: self.selection(),
            available: engine.is_some(),
            description: format!(
                "a container run by {program}, {}",
                task::expected_isolation(machine)
            ),
            findings,
        }
    }

    fn start(&self, start: &Start<'_>) -> Result<Box<dyn Running>, DomainError> {
        let plan = shielded_process::plan_inside(start.settings);
        // `rampart release` reports what cannot be removed; it does not affect this start.
        let _ = release_containers(&self.state);
        let control_groups = rampart_host::control_group_layout();
        let engine = Engine::find(self.engine, control_groups)
            .map_err(|finding| DomainError::Unavailable(*finding))?;
        let environment = Environment::raise(&self.state, self.isolation, start)?;
        let container = Container::create(&self.state, self.engine, &engine.program)?;
        let mut prepared = Prepared {
            options: run_options(&engine, &environment, &plan, start),
            engine,
            container,
            environment,
        };
        prepared.write(start)?;
        let session = Session::start(
            prepared.engine.run(&prepared.container, &prepared.options),
            &prepared.engine.version,
            Tie::InputEnds,
            "reinstall it",
        )?;
        // After an error, dropping removes the container, ends the runtime that waits for it, then
        // removes the shield.
        let mut running = RunningProcess {
            container: Some(prepared.container),
            session,
            environment: Some(prepared.environment),
            process: 0,
            effective_settings: EffectiveSettings::default(),
        };
        running.session.prepare(&plan)?;
        if let Some(container) = &running.container {
            running.process = prepared.engine.process(container)?;
        }
        if let (None, Some(environment)) = (&prepared.options.parent, &running.environment) {
            environment.admit(running.process)?;
        }
        running.place(&plan, &prepared.engine.version)?;
        note_grants(&mut running, &prepared.engine, prepared.options.memory);
        Ok(Box::new(running))
    }
}

/// Everything that is prepared before the container starts.
struct Prepared {
    engine: Engine,
    options: RunOptions,
    container: Container,
    environment: Environment,
}

impl Prepared {
    /// Writes the files that the engine reads.
    fn write(&mut self, start: &Start<'_>) -> Result<(), DomainError> {
        bundle::write_root(&self.container.directory, start.meter)?;
        if self.engine.kind == ContainerEngine::Embedded {
            let id = &self.container.record.id;
            let parent = self.options.parent.as_deref().unwrap_or("");
            let contents = Contents {
                control_group: format!("{parent}/{id}"),
                cpus: self.options.cpus.clone(),
                real_time: self.own_budget(start),
                memory: self.options.memory,
                seccomp: self.engine.seccomp,
                architecture: std::env::consts::ARCH.to_owned(),
            };
            bundle::write_configuration(&self.container.directory, &contents)?;
        }
        self.engine.prepare(&self.container)
    }
}

impl Prepared {
    /// Without a shield the container's group has no budget, so the container brings its own.
    fn own_budget(&self, start: &Start<'_>) -> Option<Nanos> {
        let alone = self.options.parent.is_none() && start.settings.policy.is_real_time();
        let free = rampart_host::free_real_time_budget().filter(|_| alone)?;
        Some(free.min(REAL_TIME_BUDGET))
    }
}

fn run_options(
    engine: &Engine,
    environment: &Environment,
    plan: &rampart_model::MeterSettings,
    start: &Start<'_>,
) -> RunOptions {
    let group = environment
        .shield()
        .and_then(Shield::control_group)
        .filter(|_| engine.takes_parent());
    RunOptions {
        cpus: group.map(|_| start.settings.cpus.clone()),
        parent: group.map(|group| group.path.clone()),
        memory: if plan.lock_memory {
            MemoryGrant::to_lock()
        } else {
            MemoryGrant::Nothing
        },
        open_files: engine::within_our_limit(Resource::Nofile, 1024),
        processes: engine::within_our_limit(Resource::Nproc, 4096),
    }
}

fn note_grants(running: &mut RunningProcess, engine: &Engine, memory: MemoryGrant) {
    let Some(environment) = &mut running.environment else {
        return;
    };
    if memory == MemoryGrant::Capability {
        environment.note(
            Finding::new(
                Severity::Note,
                "locked memory",
                "the container has CAP_IPC_LOCK, because this process may not raise limits and so cannot grant the weaker RLIMIT_MEMLOCK",
            )
            .values("no CAP_SYS_RESOURCE", "CAP_SYS_RESOURCE, or an unlimited hard limit")
            .fix("start rampart with `ulimit -l unlimited`"),
        );
    }
    if !running.effective_settings.seccomp {
        environment.note(
            Finding::new(
                Severity::Note,
                engine.version.clone(),
                "system calls of the container are not filtered",
            )
            .fix("install a runtime built with libseccomp"),
        );
    }
}
