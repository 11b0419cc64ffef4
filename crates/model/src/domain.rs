// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Kinds of domains, their properties, their isolation and their effective settings.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::nearest_word::did_you_mean;
use crate::{CellPayload, CpuSet, Finding};

/// The kinds of domains, from the weakest isolation to the strongest.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum DomainKind {
    /// A plain real-time thread on the housekeeping CPUs.
    Host,
    /// A shielded process.
    Task,
    /// An OCI container on shielded CPUs.
    Container,
    /// A KVM guest.
    Vm,
    /// A thread of a Linux process on a core taken from Linux.
    Detached,
    /// A static partition enforced by Rampart's own hypervisor.
    Cell,
}

impl DomainKind {
    /// Every kind, the weakest isolation first.
    pub const ALL: [Self; 6] = [
        Self::Host,
        Self::Task,
        Self::Container,
        Self::Vm,
        Self::Detached,
        Self::Cell,
    ];

    /// Returns the properties by which this kind differs from the others.
    ///
    /// Code outside the domains' own crates asks this table instead of matching on kinds.
    #[must_use]
    pub const fn properties(self) -> KindProperties {
        const TASK: KindProperties = KindProperties {
            word: "task",
            cpus: DomainCpus::Shielded,
            kernel: DomainKernel::Host,
            program: DomainProgram::Process,
            boots: false,
            spins: false,
        };
        match self {
            Self::Host => KindProperties {
                word: "host",
                cpus: DomainCpus::Housekeeping,
                ..TASK
            },
            Self::Task => TASK,
            Self::Container => KindProperties {
                word: "container",
                program: DomainProgram::Container,
                ..TASK
            },
            Self::Vm => KindProperties {
                word: "vm",
                kernel: DomainKernel::AboveHost,
                program: DomainProgram::Guest,
                boots: true,
                ..TASK
            },
            Self::Detached => KindProperties {
                word: "detached",
                cpus: DomainCpus::TakenFromLinux,
                kernel: DomainKernel::Apart,
                spins: true,
                ..TASK
            },
            Self::Cell => KindProperties {
                word: "cell",
                cpus: DomainCpus::TakenFromLinux,
                kernel: DomainKernel::Apart,
                program: DomainProgram::Image,
                boots: true,
                spins: false,
            },
        }
    }

    /// Returns the kind's name in plans, records and arguments.
    #[must_use]
    pub const fn word(self) -> &'static str {
        self.properties().word
    }

    /// Returns whose kernel runs on the domain's CPUs.
    #[must_use]
    pub const fn kernel(self) -> DomainKernel {
        self.properties().kernel
    }

    /// Returns what runs in the domain.
    #[must_use]
    pub const fn program(self) -> DomainProgram {
        self.properties().program
    }

    /// Returns whether the domain shares the housekeeping CPUs instead of owning CPUs.
    #[must_use]
    pub const fn is_housekeeping(self) -> bool {
        matches!(self.properties().cpus, DomainCpus::Housekeeping)
    }

    /// Returns whether the domain's CPUs are offline in Linux while it runs.
    #[must_use]
    pub const fn leaves_linux(self) -> bool {
        matches!(self.properties().cpus, DomainCpus::TakenFromLinux)
    }

    /// Returns whether the domain starts before those that share Linux with others, and without them: it boots, or it
    /// changes which CPUs Linux has.
    #[must_use]
    pub const fn starts_first(self) -> bool {
        self.properties().boots || self.leaves_linux()
    }

    /// Returns whether the host's kernel runs below the domain's own kernel: the host can block
    /// the domain's virtual CPUs and trace what takes their time.
    #[must_use]
    pub const fn is_above_host(self) -> bool {
        matches!(self.properties().kernel, DomainKernel::AboveHost)
    }
}

/// The properties of a kind of domain that code outside the domains depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KindProperties {
    /// The kind's name in plans, records and arguments.
    pub word: &'static str,
    /// Where its CPUs come from.
    pub cpus: DomainCpus,
    /// Whose kernel runs on its CPUs. A domain whose kernel is [`DomainKernel::Apart`] can survive a
    /// crash of the host.
    pub kernel: DomainKernel,
    /// What runs in it.
    pub program: DomainProgram,
    /// Whether a system boots in it before its program starts, which takes seconds.
    pub boots: bool,
    /// Whether its CPUs are busy while its program waits.
    pub spins: bool,
}

/// Where a domain's CPUs come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DomainCpus {
    /// It shares the housekeeping CPUs with ordinary work.
    Housekeeping,
    /// It owns CPUs that Linux keeps free of ordinary work.
    Shielded,
    /// It owns CPUs that are offline in Linux while it runs.
    TakenFromLinux,
}

/// What runs in a domain, and with it the fields of a plan that describe it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DomainProgram {
    /// A process of the host: `run`.
    Process,
    /// A container: `container` and `run`.
    Container,
    /// A guest: `vcpus`, `memory` and `kernel` or `disk`.
    Guest,
    /// A cell's image: `image`.
    Image,
}

/// Whose kernel runs on the CPUs of a domain. What stops that kernel stops the domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DomainKernel {
    /// The host's.
    Host,
    /// Its own, on virtual CPUs that are threads of the host's kernel.
    AboveHost,
    /// Its own or none, on CPUs that were taken from the host's kernel.
    Apart,
}

impl fmt::Display for DomainKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// The program that runs a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ContainerEngine {
    /// `runc` or `crun` on a bundle that Rampart writes, whichever works on this machine.
    Embedded,
    /// `podman`.
    Podman,
    /// `docker`.
    Docker,
}

/// The role of a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum GuestRole {
    /// A KVM guest whose virtual CPUs are bound and real-time.
    RealTime,
    /// A noisy neighbour: a KVM guest on the housekeeping CPUs, under the time-sharing policy and loaded
    /// all the time. It is not measured.
    Noisy,
    /// A real-time guest by software emulation, for machines whose KVM runs no guest.
    Emulated,
}

/// A domain that the user names: `host`, `task`, `container`, `container:podman`, `vm`,
/// `vm:noisy`, `vm:tcg`, `cell`, `cell:linux`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
pub struct DomainSelection {
    /// The kind.
    pub kind: DomainKind,
    /// The engine of a container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<ContainerEngine>,
    /// The role of a guest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guest: Option<GuestRole>,
    /// The payload of a cell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cell: Option<CellPayload>,
}

impl DomainSelection {
    /// Returns the domain that the kind's word alone selects.
    #[must_use]
    pub const fn of(kind: DomainKind) -> Self {
        Self {
            kind,
            engine: match kind {
                DomainKind::Container => Some(ContainerEngine::Embedded),
                _ => None,
            },
            guest: match kind {
                DomainKind::Vm => Some(GuestRole::RealTime),
                _ => None,
            },
            cell: match kind {
                DomainKind::Cell => Some(CellPayload::BareMetal),
                _ => None,
            },
        }
    }

    /// Returns the guest that only disturbs the others.
    #[must_use]
    pub const fn noisy_guest() -> Self {
        Self {
            guest: Some(GuestRole::Noisy),
            ..Self::of(DomainKind::Vm)
        }
    }

    /// Returns whether it only disturbs the others, and is not measured.
    #[must_use]
    pub fn is_noisy(&self) -> bool {
        self.guest == Some(GuestRole::Noisy)
    }

    /// Returns whether its processor is emulated on every machine.
    #[must_use]
    pub fn is_emulated(&self) -> bool {
        self.guest == Some(GuestRole::Emulated)
    }

    /// Returns whether it is measured on one CPU, however many it could own: a detached thread has one, and
    /// a cell without an operating system starts no other.
    #[must_use]
    pub fn is_measured_on_one_cpu(&self) -> bool {
        self.kind == DomainKind::Detached || self.cell == Some(CellPayload::BareMetal)
    }

    /// Returns whether an evaluation measures it without being asked: the usual variant of a kind,
    /// and both payloads of a cell, since they answer different questions.
    #[must_use]
    pub fn is_measured_by_default(&self) -> bool {
        self.cell.is_some() || *self == Self::of(self.kind)
    }
}

const DOMAINS: [&str; 11] = [
    "host",
    "task",
    "container",
    "container:podman",
    "container:docker",
    "vm",
    "vm:noisy",
    "vm:tcg",
    "detached",
    "cell",
    "cell:linux",
];

/// The error of a text that names no domain.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown domain `{0}`{near}; fix: write host, task, container, container:podman, container:docker, vm, vm:noisy, vm:tcg, detached, cell or cell:linux",
    near = did_you_mean(.0, DOMAINS)
)]
pub struct ParseDomainError(pub String);

impl fmt::Display for DomainSelection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.cell == Some(CellPayload::Linux) {
            return f.pad("cell:linux");
        }
        f.pad(match (self.engine, self.guest) {
            (Some(ContainerEngine::Podman), _) => "container:podman",
            (Some(ContainerEngine::Docker), _) => "container:docker",
            (_, Some(GuestRole::Noisy)) => "vm:noisy",
            (_, Some(GuestRole::Emulated)) => "vm:tcg",
            _ => self.kind.word(),
        })
    }
}

impl FromStr for DomainSelection {
    type Err = ParseDomainError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let engine = |engine| Self {
            engine: Some(engine),
            ..Self::of(DomainKind::Container)
        };
        let guest = |role| Self {
            guest: Some(role),
            ..Self::of(DomainKind::Vm)
        };
        match text {
            "container:podman" => Ok(engine(ContainerEngine::Podman)),
            "container:docker" => Ok(engine(ContainerEngine::Docker)),
            "vm:noisy" => Ok(guest(GuestRole::Noisy)),
            "vm:tcg" => Ok(guest(GuestRole::Emulated)),
            "cell:linux" => Ok(Self {
                cell: Some(CellPayload::Linux),
                ..Self::of(DomainKind::Cell)
            }),
            _ => DomainKind::ALL
                .into_iter()
                .find(|kind| kind.word() == text)
                .map(Self::of)
                .ok_or_else(|| ParseDomainError(text.to_owned())),
        }
    }
}

/// Whether this machine can host a domain, with the reasons against it and their fixes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Availability {
    /// The domain.
    pub domain: DomainSelection,
    /// Whether it can be measured on this machine now.
    pub available: bool,
    /// A summary: its isolation and the program that runs it.
    pub description: String,
    /// The reasons against it, or its weaknesses.
    pub findings: Vec<Finding>,
}

/// The mechanism that keeps ordinary work off a domain's CPUs, as the kernel confirmed it.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum IsolationMechanism {
    /// None: ordinary work may use the CPUs.
    None,
    /// The domain's threads are bound to the CPUs, which other threads may use too.
    AffinityOnly,
    /// An own cpuset (cgroup v1). Ordinary tasks were moved to another.
    CpusetV1,
    /// A cgroup v2 partition of type `isolated` that the kernel reports as valid.
    IsolatedPartition,
    /// A cell under Rampart's hypervisor. Its CPUs are offline in Linux while the cell is up.
    Cell,
    /// A CPU for detached threads. It is offline in Linux while a program holds it.
    Detached,
}

impl fmt::Display for IsolationMechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::None => "no isolation",
            Self::AffinityOnly => "affinity alone",
            Self::CpusetV1 => "cpuset (cgroup v1)",
            Self::IsolatedPartition => "isolated partition (cgroup v2)",
            Self::Cell => "cell (hypervisor)",
            Self::Detached => "detached (taken from Linux)",
        })
    }
}

/// An interrupt that was moved off the shielded CPUs, or could not be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct InterruptMove {
    /// Its number.
    pub interrupt: u32,
    /// The name of its handler in `/proc/interrupts`.
    pub name: String,
    /// Whether it no longer comes to the shielded CPUs.
    pub moved: bool,
    /// The reason if it could not be moved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The state of a shield, read back from the kernel.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ShieldReport {
    /// The shielded CPUs.
    pub cpus: CpuSet,
    /// The isolation that is in effect.
    pub isolation: IsolationMechanism,
    /// The content of `cpuset.cpus.partition`, if the file exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<String>,
    /// Interrupts that could have come to the shielded CPUs.
    pub interrupts: Vec<InterruptMove>,
    /// The mask of unbound workqueues after the change, or `None` if it could not be changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workqueues: Option<CpuSet>,
    /// The limit on the wakeup latency of the shielded CPUs in microseconds, `n/a` for no idle state; `None` if there is
    /// none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume_latency: Option<String>,
    /// Number of tasks that were moved away.
    pub tasks_moved: u32,
    /// Number of per-CPU kernel threads that stay.
    pub tasks_left: u32,
    /// The weaknesses of the shield.
    pub findings: Vec<Finding>,
}

/// The effective settings of a domain.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema)]
pub struct EffectiveSettings {
    /// The program that ran it with its version, for example `runc 1.1.5`. Empty for a process.
    pub runtime: String,
    /// Capabilities in the program's permitted set, as the kernel names them.
    pub capabilities: Vec<String>,
    /// The raised resource limits: name and value.
    pub limits: Vec<String>,
    /// The setter of policy and affinity: `itself` or `outside`.
    pub placed_by: String,
    /// The program's control groups, one `controller:path` each.
    pub control_groups: Vec<String>,
    /// Namespaces that it does not share with the host.
    pub namespaces: Vec<String>,
    /// Whether a seccomp filter was active.
    pub seccomp: bool,
}
