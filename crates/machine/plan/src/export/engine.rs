// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The command lines of podman and docker (podman-run(1), docker-run(1)).

use rampart_model::{
    ContainerEngine, DomainProgram, Finding, PlannedDomain, ResolvedDomain, Restart,
    SchedulingPolicy, Severity,
};

use super::answers::Answer::{NotConcerned, Supported, Unsupported};
use super::answers::{DomainAnswers, MachineAnswers};
use super::gaps::{Gaps, Part};
use super::systemd_unit::Refusal;
use super::{ExportSubject, Exported, ExportedFile, interrupts, words};

/// A container engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    /// podman.
    Podman,
    /// docker.
    Docker,
}

/// How the command starts the container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Start {
    /// In the background; the engine restarts it.
    Detached,
    /// In the foreground; the caller restarts it.
    Foreground,
}

/// The command that starts a container.
#[derive(Debug)]
pub(super) struct Command {
    /// Name of the container.
    pub(super) name: String,
    /// The program and its arguments.
    pub(super) words: Vec<String>,
    /// Settings that the command needs and the plan does not have.
    pub(super) findings: Vec<Finding>,
}

impl Engine {
    /// Returns the name of its program.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Podman => "podman",
            Self::Docker => "docker",
        }
    }

    /// Returns the command that starts a container domain.
    pub(super) fn command(
        self,
        subject: &ExportSubject<'_>,
        planned: &PlannedDomain,
        resolved: &ResolvedDomain,
        start: Start,
    ) -> Result<Command, Refusal> {
        let name = format!("rampart-{}", planned.name);
        let mut words: Vec<String> = vec![self.word().to_owned(), "run".to_owned()];
        let mut add = |option: &str, value: String| {
            words.push(option.to_owned());
            words.push(value);
        };
        add("--name", name.clone());
        add("--cpuset-cpus", resolved.cpus.to_string());
        if let Some(nodes) = subject.several_nodes(&resolved.cpus) {
            add("--cpuset-mems", nodes.to_string());
        }
        let mut findings = Vec::new();
        if let Some(policy) = resolved.policy.filter(|policy| policy.is_real_time()) {
            let priority = match policy {
                SchedulingPolicy::Fifo(priority) | SchedulingPolicy::RoundRobin(priority) => {
                    Some(priority)
                }
                SchedulingPolicy::Other | SchedulingPolicy::Deadline { .. } => None,
            };
            if let Some(priority) = priority {
                add("--ulimit", format!("rtprio={priority}:{priority}"));
            }
            add("--ulimit", "memlock=-1:-1".to_owned());
            add("--cap-add", "SYS_NICE".to_owned());
            match budget(subject) {
                Budget::NotRequired => {}
                Budget::Microseconds(share) => {
                    add("--cpu-rt-period", "1000000".to_owned());
                    add("--cpu-rt-runtime", share.to_string());
                }
                Budget::NoneLeft => findings.push(
                    Finding::new(
                        Severity::Warning,
                        format!("domain `{}`, policy", planned.name),
                        "this kernel permits real-time policies only to groups with a budget \
                         (CONFIG_RT_GROUP_SCHED), and none is left",
                    )
                    .values("no real-time budget left", "a budget in cpu.rt_runtime_us")
                    .fix("lower cpu.rt_runtime_us of other groups, or sysctl kernel.sched_rt_runtime_us=-1"),
                ),
                Budget::Unknown => findings.push(
                    Finding::new(
                        Severity::Warning,
                        format!("domain `{}`, policy", planned.name),
                        "this kernel permits real-time policies only to groups with a budget \
                         (CONFIG_RT_GROUP_SCHED), and the budget left cannot be read",
                    )
                    .fix("add --cpu-rt-runtime with the microseconds that are left of each second"),
                ),
            }
        }
        // If the engine's own control group is limited to the housekeeping CPUs, a container below
        // it cannot have other CPUs.
        add("--cgroup-parent", words::slice(&planned.name));
        match start {
            Start::Detached => {
                let word = match planned.restart {
                    Restart::Never => "no",
                    Restart::OnFailure => "on-failure",
                    Restart::Always => "always",
                };
                add("--restart", word.to_owned());
                words.push("--detach".to_owned());
            }
            Start::Foreground => words.push("--rm".to_owned()),
        }
        self.source(planned, &name, &mut words)?;
        words.extend(planned.run.iter().cloned());
        Ok(Command {
            name,
            words,
            findings,
        })
    }

    /// Adds the image or the root directory.
    fn source(
        self,
        planned: &PlannedDomain,
        name: &str,
        words: &mut Vec<String>,
    ) -> Result<(), Refusal> {
        let from = planned.container.clone().unwrap_or_default();
        match (from.image, from.rootfs) {
            (Some(image), _) if image.starts_with('-') => Err((
                format!("`{}` is not the name of an image", image.escape_debug()),
                "name the image as in `podman images`",
            )),
            (Some(image), _) => {
                words.push(image);
                Ok(())
            }
            (None, Some(directory)) => {
                match self {
                    Self::Podman => words.extend(["--rootfs".to_owned(), directory]),
                    Self::Docker => words.push(name.to_lowercase()),
                }
                Ok(())
            }
            (None, None) => Err((
                "the plan has neither an image nor a root directory for it".to_owned(),
                "write container = { engine = \"podman\", image = \"NAME\" } in the plan",
            )),
        }
    }

    fn domain_answers(self, planned: &PlannedDomain) -> DomainAnswers {
        let named = planned.container.as_ref().and_then(|from| from.engine);
        DomainAnswers {
            isolation: Unsupported(
                "the engine binds the container to its CPUs and does not isolate them",
                "rampart apply, or the slices of rampart export systemd",
            ),
            engine: match (self, named) {
                (Self::Podman, Some(ContainerEngine::Podman))
                | (Self::Docker, Some(ContainerEngine::Docker)) => Supported,
                _ => NotConcerned("the plan has another engine"),
            },
            root_file_system: match self {
                Self::Podman => Supported,
                Self::Docker => Unsupported(
                    "docker runs only images, not directories",
                    "create an image with the command above",
                ),
            },
            cpus: Supported,
            run: Supported,
            restart: Supported,
            image: Supported,
            priority: Unsupported(
                "the engine permits the policy (limits, SYS_NICE) and does not set it",
                "set it in the program, or with the command below",
            ),
            reservation: Unsupported(
                "the engine permits SCHED_DEADLINE (SYS_NICE) and does not set it",
                "set it in the program, on CPUs of a separate scheduling domain",
            ),
            service: Unsupported(
                "the engine does not support service threads outside the container",
                "taskset for them, or rampart up",
            ),
            caches: Unsupported(
                "the engine's options do not divide caches and memory bandwidth",
                "rampart apply, or a group in /sys/fs/resctrl",
            ),
            threads: Unsupported(
                "the engine gives all threads the same CPUs",
                "place the threads in the program, or use rampart up",
            ),
            interrupts: Unsupported(
                "the engine does not place interrupts",
                "run the commands below each time that the driver requests its interrupts",
            ),
            guest: Supported,
            cell: Supported,
        }
    }
}

/// The real-time budget of a control group of version 1.
enum Budget {
    /// The kernel requires none.
    NotRequired,
    /// Microseconds of each second.
    Microseconds(u64),
    /// The kernel requires one, and none is left.
    NoneLeft,
    /// The kernel requires one, and the budget left is unknown.
    Unknown,
}

/// Returns the part of the remaining budget for each container with a real-time policy (Linux
/// Documentation/scheduler/sched-rt-group.rst). Engines support budgets for cgroup v1 only.
fn budget(subject: &ExportSubject<'_>) -> Budget {
    let throttling = &subject.machine.throttling;
    // Without a limit the kernel requires no budget of groups (kernel/sched/core.c).
    let required = throttling.group_scheduling == Some(true)
        && throttling.runtime.is_some()
        && matches!(subject.machine.control_groups.as_str(), "v1" | "hybrid");
    if !required {
        return Budget::NotRequired;
    }
    let sharers = subject
        .domains()
        .filter(|(planned, resolved)| {
            planned.kind.program() == DomainProgram::Container
                && resolved.policy.is_some_and(SchedulingPolicy::is_real_time)
        })
        .count()
        .max(1);
    match (subject.environment.group_budget, u64::try_from(sharers)) {
        (Some(left), Ok(sharers)) if left.0 / 1_000 / sharers > 0 => {
            Budget::Microseconds(left.0 / 1_000 / sharers)
        }
        (Some(_), _) => Budget::NoneLeft,
        (None, _) => Budget::Unknown,
    }
}

const MACHINE_ANSWERS: MachineAnswers = MachineAnswers::without(
    "a container engine does not change the machine",
    "rampart apply, or rampart export systemd and tuned",
);

/// Writes one shell script with the commands that start the container domains of a plan, and the
/// manual steps as comments.
#[must_use]
pub fn containers(subject: &ExportSubject<'_>, engine: Engine) -> Exported {
    let mut gaps = Gaps::default();
    gaps.of_machine(subject, &MACHINE_ANSWERS);
    let mut parts = Vec::new();
    for (planned, resolved) in subject.domains() {
        if planned.kind.program() != DomainProgram::Container {
            let why = format!("it is of kind {}, not a container", planned.kind);
            gaps.not_written(
                planned,
                why,
                "rampart export systemd, or libvirt for guests",
            );
            continue;
        }
        let written = engine
            .command(subject, planned, resolved, Start::Detached)
            .and_then(|command| match words::shell(&command.words) {
                Some(line) => Ok((command, line)),
                None => Err((
                    "its command line has a character that no shell accepts".to_owned(),
                    "remove it from `run`",
                )),
            });
        let (command, line) = match written {
            Ok(written) => written,
            Err((why, fix)) => {
                gaps.not_written(planned, why, fix);
                continue;
            }
        };
        gaps.of_domain(planned, &engine.domain_answers(planned));
        for finding in &command.findings {
            gaps.add(Some(&planned.name), finding.clone());
        }
        let mut text = format!("\n# Domain {}\n", planned.name);
        text.push_str(&as_comments(before(engine, planned, &command.name)));
        text.push_str(&format!("{line}\n"));
        text.push_str(&as_comments(after(subject, engine, planned, &command.name)));
        parts.push(text);
    }
    let mut files = Vec::new();
    if !parts.is_empty() {
        let mut head = gaps.head(engine.word(), subject, Part::All);
        head.extend(words::broken(
            "The control group above each container is a slice of systemd. If the engine creates \
             its groups without systemd (cgroupfs), use the path of the group that `rampart \
             status` prints.",
        ));
        files.push(ExportedFile {
            path: format!("{}.sh", engine.word()),
            text: format!(
                "#!/bin/sh\n{}set -eu\n{}",
                words::hash(&head),
                parts.concat()
            ),
        });
    }
    Exported {
        files,
        findings: gaps.into_findings(),
    }
}

/// Formats commands as comments.
fn as_comments(commands: Vec<String>) -> String {
    commands
        .into_iter()
        .map(|command| format!("#   {}\n", command.replace(char::is_control, " ")))
        .collect()
}

/// Returns the commands to run before the container starts.
fn before(engine: Engine, planned: &PlannedDomain, name: &str) -> Vec<String> {
    let directory = planned
        .container
        .as_ref()
        .and_then(|from| from.rootfs.as_ref());
    let quoted = directory.and_then(|directory| words::shell(std::slice::from_ref(directory)));
    match quoted {
        Some(directory) if engine == Engine::Docker => vec![format!(
            "tar -C {directory} -c . | docker import - {}",
            name.to_lowercase()
        )],
        _ => Vec::new(),
    }
}

/// Returns the commands to run when the container runs.
fn after(
    subject: &ExportSubject<'_>,
    engine: Engine,
    planned: &PlannedDomain,
    name: &str,
) -> Vec<String> {
    let policy = match planned.policy.map(|policy| policy.0) {
        Some(SchedulingPolicy::Fifo(priority)) => Some(("--fifo", priority)),
        Some(SchedulingPolicy::RoundRobin(priority)) => Some(("--rr", priority)),
        _ => None,
    };
    let mut commands: Vec<String> = policy
        .into_iter()
        .map(|(class, priority)| {
            format!(
                "chrt {class} --all-tasks --pid {priority} \
                 \"$({} inspect --format '{{{{.State.Pid}}}}' {name})\"",
                engine.word()
            )
        })
        .collect();
    commands.extend(interrupts::commands(subject, &planned.name));
    commands
}
