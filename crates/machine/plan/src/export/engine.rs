// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The command lines of podman and docker (podman-run(1), docker-run(1)).

use rampart_model::{
    ContainerEngine, DomainProgram, Finding, PlannedDomain, ResolvedDomain, Restart,
    SchedulingPolicy, Severity,
};

use super::field::{DomainField, MachineField};
use super::gaps::Answer::{self, Apart, Lost, Said};
use super::gaps::{Gaps, Part};
use super::systemd_unit::Refusal;
use super::{Exported, ExportedFile, Subject, interrupts, words};

/// Who runs a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    /// podman.
    Podman,
    /// docker.
    Docker,
}

/// Who waits for the container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Start {
    /// Nobody: the engine keeps it and starts it again.
    Detached,
    /// Who gave the command, and restarts it too.
    Foreground,
}

/// A command.
#[derive(Debug)]
pub(super) struct Command {
    /// Name of the container.
    pub(super) name: String,
    /// The program and its arguments.
    pub(super) words: Vec<String>,
    /// What the plan does not say and the command needs.
    pub(super) findings: Vec<Finding>,
}

impl Engine {
    /// Its program.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Podman => "podman",
            Self::Docker => "docker",
        }
    }

    /// The command that starts a container domain.
    pub(super) fn command(
        self,
        subject: &Subject<'_>,
        planned: &PlannedDomain,
        got: &ResolvedDomain,
        start: Start,
    ) -> Result<Command, Refusal> {
        let name = format!("rampart-{}", planned.name);
        let mut words: Vec<String> = vec![self.word().to_owned(), "run".to_owned()];
        let mut add = |option: &str, value: String| {
            words.push(option.to_owned());
            words.push(value);
        };
        add("--name", name.clone());
        add("--cpuset-cpus", got.cpus.to_string());
        if let Some(nodes) = subject.told_nodes(&got.cpus) {
            add("--cpuset-mems", nodes.to_string());
        }
        let mut findings = Vec::new();
        if let Some(policy) = got.policy.filter(|policy| policy.is_real_time()) {
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
                Budget::NotAsked => {}
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
                    .fix("--cpu-rt-runtime with microseconds of each second that are left"),
                ),
            }
        }
        // Where control groups keep the engine's own to the housekeeping CPUs, a container below
        // them could not have others.
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

    /// What the container runs from.
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

    #[deny(clippy::wildcard_enum_match_arm)]
    fn answer(self, planned: &PlannedDomain, field: DomainField) -> Answer {
        let named = planned.container.as_ref().and_then(|from| from.engine);
        match field {
            DomainField::Isolation => Lost(
                "the engine binds the container to its CPUs and does not isolate them",
                "rampart apply, or the slices of rampart export systemd",
            ),
            DomainField::Engine => match (self, named) {
                (Self::Podman, Some(ContainerEngine::Podman))
                | (Self::Docker, Some(ContainerEngine::Docker)) => Said,
                _ => Apart("the plan has another engine"),
            },
            DomainField::RootFileSystem if self == Self::Docker => Lost(
                "docker runs only images, not directories",
                "create an image with the command above",
            ),
            DomainField::Cpus
            | DomainField::Run
            | DomainField::Restart
            | DomainField::Image
            | DomainField::RootFileSystem => Said,
            DomainField::Priority => Lost(
                "the engine permits the policy (limits, SYS_NICE) and does not set it",
                "set it in the program, or with the command below",
            ),
            DomainField::Reservation => Lost(
                "the engine permits SCHED_DEADLINE (SYS_NICE) and does not set it",
                "set it in the program, on CPUs of a separate scheduling domain",
            ),
            DomainField::Deadline => Apart("only rampart evaluate judges by it"),
            DomainField::Service => Lost(
                "the engine does not support service threads outside the container",
                "taskset for them, or rampart up",
            ),
            DomainField::CacheWays
            | DomainField::CacheBytes
            | DomainField::CacheExclusive
            | DomainField::Bandwidth => Lost(
                "the engine's options do not divide caches and memory bandwidth",
                "rampart apply, or a group in /sys/fs/resctrl",
            ),
            DomainField::Threads => Lost(
                "the engine gives all threads the same CPUs",
                "place the threads in the program, or use rampart up",
            ),
            DomainField::Interrupts => Lost(
                "the engine does not place interrupts",
                "run the commands below each time that the driver requests its interrupts",
            ),
            // Fields of other kinds.
            DomainField::VirtualCpus
            | DomainField::Memory
            | DomainField::HugePages
            | DomainField::MemoryNode
            | DomainField::Kernel
            | DomainField::Initramfs
            | DomainField::Disk
            | DomainField::Emulator
            | DomainField::IdleKeepsCpu
            | DomainField::DedicatedHint
            | DomainField::Devices
            | DomainField::CellImage
            | DomainField::CellOptions => Said,
        }
    }
}

/// Real-time time for a control group of version 1.
enum Budget {
    /// The kernel asks for none.
    NotAsked,
    /// In each second.
    Microseconds(u64),
    /// It asks for one, and none is left.
    NoneLeft,
    /// It asks for one, and what is left is not known.
    Unknown,
}

/// What each container with a real-time policy gets of what is left, where budgets belong to
/// groups (Linux Documentation/scheduler/sched-rt-group.rst). Engines know it for cgroup v1 alone.
fn budget(subject: &Subject<'_>) -> Budget {
    let throttling = &subject.machine.throttling;
    // Without a limit the kernel asks no group for a budget (kernel/sched/core.c).
    let asked = throttling.group_scheduling == Some(true)
        && throttling.runtime.is_some()
        && matches!(subject.machine.control_groups.as_str(), "v1" | "hybrid");
    if !asked {
        return Budget::NotAsked;
    }
    let sharers = subject
        .domains()
        .filter(|(planned, got)| {
            planned.kind.program() == DomainProgram::Container
                && got.policy.is_some_and(SchedulingPolicy::is_real_time)
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

#[deny(clippy::wildcard_enum_match_arm)]
fn of_machine(field: MachineField) -> Answer {
    match field {
        MachineField::Enforcement | MachineField::Waivers | MachineField::Fingerprint => {
            Apart("only Rampart judges by it")
        }
        MachineField::Housekeeping
        | MachineField::SiblingsOffline
        | MachineField::Siblings
        | MachineField::ExpectedSettings
        | MachineField::Settings
        | MachineField::BootArguments
        | MachineField::Reboot
        | MachineField::OtherInterrupts => Lost(
            "a container engine does not change the machine",
            "rampart apply, or rampart export systemd and tuned",
        ),
    }
}

/// Writes the commands that start the container domains of a plan: one shell script, its comments
/// what is to be done besides.
#[must_use]
pub fn containers(subject: &Subject<'_>, engine: Engine) -> Exported {
    let mut gaps = Gaps::default();
    gaps.of_machine(subject, of_machine);
    let mut parts = Vec::new();
    for (planned, got) in subject.domains() {
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
            .command(subject, planned, got, Start::Detached)
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
        gaps.of_domain(planned, |field| engine.answer(planned, field));
        for finding in &command.findings {
            gaps.add(Some(&planned.name), finding.clone());
        }
        let mut text = format!("\n# Domain {}\n", planned.name);
        text.push_str(&besides(before(engine, planned, &command.name)));
        text.push_str(&format!("{line}\n"));
        text.push_str(&besides(after(subject, engine, planned, &command.name)));
        parts.push(text);
    }
    let mut files = Vec::new();
    if !parts.is_empty() {
        let mut head = gaps.head(engine.word(), subject, Part::All);
        head.extend(words::broken(
            "The control group above each container is a slice of systemd. Where the engine makes \
             its groups without systemd (cgroupfs), name a group by its path there, as `rampart \
             status` tells it.",
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

/// Commands as comments.
fn besides(commands: Vec<String>) -> String {
    commands
        .into_iter()
        .map(|command| format!("#   {}\n", command.replace(char::is_control, " ")))
        .collect()
}

/// What comes before the container starts.
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

/// What comes when it runs.
fn after(
    subject: &Subject<'_>,
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
