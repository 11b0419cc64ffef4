// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is true of a machine now, against the active plan applied: what `rampart status` says.

use serde::{Deserialize, Serialize};

use crate::{
    ActivePlanState, CpuId, CpuRole, CpuSet, DomainKind, Finding, IsolationMechanism, Nanos,
    ObservedIsolation, SchedulingPolicy,
};

/// Version of [`Status`] as a document. Within it fields are only added.
pub const STATUS_SCHEMA_VERSION: u32 = 1;

/// A machine over one interval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Status {
    /// [`STATUS_SCHEMA_VERSION`].
    pub schema_version: u32,
    /// Version of the tool that wrote it.
    pub tool_version: String,
    /// The machine's name.
    pub host_name: String,
    /// How long it was watched.
    pub interval: Nanos,
    /// The active plan; none where none does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<StatusPlan>,
    /// What keeps CPUs apart, plan or none.
    pub isolation: ObservedIsolation,
    /// Each CPU of the plan, or of the machine.
    pub cpus: Vec<CpuStatus>,
    /// Each domain of the plan.
    #[serde(default)]
    pub domains: Vec<DomainStatus>,
    /// What is not as it should be, the gravest first.
    pub findings: Vec<StatusFinding>,
}

impl Status {
    /// Whether something of the plan does not hold any more.
    #[must_use]
    pub fn has_drift(&self) -> bool {
        self.of(StatusSubject::Drift).next().is_some()
    }

    /// The findings of one subject.
    pub fn of(&self, subject: StatusSubject) -> impl Iterator<Item = &StatusFinding> {
        self.findings
            .iter()
            .filter(move |finding| finding.kind.subject() == subject)
    }
}

/// The active plan, in short.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct StatusPlan {
    /// Its file.
    pub file: String,
    /// How far its application is.
    pub state: ActivePlanState,
    /// When it was applied, since the epoch.
    pub applied_at: Nanos,
    /// The topology that it was resolved on.
    pub fingerprint: String,
    /// CPUs for ordinary work.
    pub housekeeping: CpuSet,
    /// CPUs that domains own.
    pub real_time: CpuSet,
    /// What was not granted as asked when it was applied.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_granted: Vec<Finding>,
}

/// One CPU over the interval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct CpuStatus {
    /// The CPU.
    pub cpu: CpuId,
    /// Whether it is online.
    pub online: bool,
    /// Its domain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// What it is for; none without a plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<CpuRole>,
    /// Part of the time that it was not idle, 0 to 1.
    pub busy: f64,
    /// Interrupts a second, those of the CPU itself among them.
    pub interrupts_per_second: f64,
    /// Softirqs a second.
    pub softirqs_per_second: f64,
    /// Threads that used CPU time and ran here last, the busiest first.
    pub threads: Vec<ThreadStatus>,
    /// Interrupts that came, the most frequent first.
    pub interrupts: Vec<CountStatus>,
    /// Softirqs that ran, the most frequent first.
    pub softirqs: Vec<CountStatus>,
    /// What ran on a real-time CPU and is not of its domain.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub noise_sources: Vec<NoiseSource>,
}

/// One thread over the interval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ThreadStatus {
    /// Its process.
    pub process: u32,
    /// Its own number.
    pub thread: u32,
    /// Its name.
    pub name: String,
    /// Whether it belongs to the kernel.
    pub kernel: bool,
    /// Its policy, where it is told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<SchedulingPolicy>,
    /// CPU time that it used in the interval.
    pub cpu_time: Nanos,
    /// Its domain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
}

/// A count over the interval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct CountStatus {
    /// Number or word of the interrupt, name of the softirq.
    pub name: String,
    /// Who asked for the interrupt.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub action: String,
    /// How many.
    pub count: u64,
}

/// What sort of thing came to a real-time CPU.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum NoiseSourceKind {
    /// A thread of a process.
    Process,
    /// An interrupt of a device that belongs elsewhere.
    Interrupt,
    /// A thread of the kernel that could run elsewhere.
    KernelThread,
    /// A thread of the kernel that belongs to the CPU.
    CpuThread,
    /// A softirq of devices: network, blocks, tasklets.
    Softirq,
    /// A call of another CPU: the kernel made this one do something.
    CrossCall,
}

impl NoiseSourceKind {
    /// The word for it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Process => "process",
            Self::Interrupt => "interrupt",
            Self::KernelThread => "kernel-thread",
            Self::CpuThread => "cpu-thread",
            Self::Softirq => "softirq",
            Self::CrossCall => "cross-call",
        }
    }
}

/// What came to a real-time CPU and is not of its domain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct NoiseSource {
    /// What sort of thing.
    pub kind: NoiseSourceKind,
    /// Its name, with its number.
    pub name: String,
    /// How often it came; 1 for a thread that used CPU time.
    pub count: u64,
    /// CPU time that it took, where it is a thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_time: Option<Nanos>,
}

/// What becomes of a domain's program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ProgramState {
    /// It runs.
    Running,
    /// It ended and is to be started again.
    Restarting,
    /// It does not run.
    Stopped,
}

/// A domain's program as its supervisor tells of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ProgramStatus {
    /// What becomes of it.
    pub state: ProgramState,
    /// Its process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<u32>,
    /// How often it was started again.
    pub restarts: u64,
    /// How it ended last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_exit: Option<String>,
}

/// One domain over the interval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct DomainStatus {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: DomainKind,
    /// Its CPUs.
    pub cpus: CpuSet,
    /// The wall that it got.
    pub isolation: IsolationMechanism,
    /// Whether the wall is as it was when the plan was applied.
    pub isolation_valid: bool,
    /// Its threads.
    pub threads: u32,
    /// Its program; none where `rampart up` did not start it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<ProgramStatus>,
}

impl DomainStatus {
    /// Whether something of it runs.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.program.as_ref().map_or(self.threads > 0, |program| {
            program.state == ProgramState::Running
        })
    }
}

/// What a finding is about.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum StatusSubject {
    /// Something is not any more as the plan made it.
    Drift,
    /// All is as planned, and it hurts.
    Colocation,
    /// Something came to a real-time CPU.
    UnwantedActivity,
}

/// What sort of finding.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum StatusFindingKind {
    /// The plan was not applied to its end.
    NotWhole,
    /// The kernel was started anew since.
    KernelRestarted,
    /// The file of the plan has another text.
    PlanEdited,
    /// A CPU of the plan is offline.
    CpuOffline,
    /// The control group of a domain is gone.
    GroupGone,
    /// The control group of a domain has other CPUs.
    GroupCpus,
    /// The kernel calls a partition invalid.
    PartitionInvalid,
    /// An interrupt may come to CPUs that were taken from it.
    InterruptMoved,
    /// A setting is not what was written.
    ValueChanged,
    /// Another group may use ways of a cache that are a domain's own.
    CacheShared,
    /// A thread of a domain is on another CPU.
    ThreadCpu,
    /// A thread of a domain has another policy.
    ThreadPolicy,
    /// The program of a domain is gone, and nobody starts it again.
    ProgramGone,
    /// A real-time thread of one domain is on a CPU of another.
    ForeignRealTime,
    /// Two threads of one core are busy, and one does real-time work.
    BusySiblings,
    /// A thread that spins keeps the kernel's own from a CPU.
    KernelThreadStarved,
    /// The housekeeping CPUs are busy all the time.
    HousekeepingOverloaded,
    /// Work that could be elsewhere is on a real-time CPU.
    UnboundWork,
    /// A process ran on a real-time CPU.
    UnwantedProcess,
    /// A thread of the kernel ran on a real-time CPU.
    UnwantedKernelWork,
    /// An interrupt came to a real-time CPU.
    UnwantedInterrupt,
}

impl StatusFindingKind {
    /// Every kind.
    pub const ALL: [Self; 21] = [
        Self::NotWhole,
        Self::KernelRestarted,
        Self::PlanEdited,
        Self::CpuOffline,
        Self::GroupGone,
        Self::GroupCpus,
        Self::PartitionInvalid,
        Self::InterruptMoved,
        Self::ValueChanged,
        Self::CacheShared,
        Self::ThreadCpu,
        Self::ThreadPolicy,
        Self::ProgramGone,
        Self::ForeignRealTime,
        Self::BusySiblings,
        Self::KernelThreadStarved,
        Self::HousekeepingOverloaded,
        Self::UnboundWork,
        Self::UnwantedProcess,
        Self::UnwantedKernelWork,
        Self::UnwantedInterrupt,
    ];

    /// The word for it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::NotWhole => "not-whole",
            Self::KernelRestarted => "kernel-restarted",
            Self::PlanEdited => "plan-edited",
            Self::CpuOffline => "cpu-offline",
            Self::GroupGone => "group-gone",
            Self::GroupCpus => "group-cpus",
            Self::PartitionInvalid => "partition-invalid",
            Self::InterruptMoved => "interrupt-moved",
            Self::ValueChanged => "value-changed",
            Self::CacheShared => "cache-shared",
            Self::ThreadCpu => "thread-cpu",
            Self::ThreadPolicy => "thread-policy",
            Self::ProgramGone => "program-gone",
            Self::ForeignRealTime => "foreign-real-time",
            Self::BusySiblings => "busy-siblings",
            Self::KernelThreadStarved => "kernel-thread-starved",
            Self::HousekeepingOverloaded => "housekeeping-overloaded",
            Self::UnboundWork => "unbound-work",
            Self::UnwantedProcess => "process-intruded",
            Self::UnwantedKernelWork => "kernel-intruded",
            Self::UnwantedInterrupt => "interrupt-intruded",
        }
    }

    /// What it is about.
    #[must_use]
    pub const fn subject(self) -> StatusSubject {
        match self {
            Self::ForeignRealTime
            | Self::BusySiblings
            | Self::KernelThreadStarved
            | Self::HousekeepingOverloaded
            | Self::UnboundWork => StatusSubject::Colocation,
            Self::UnwantedProcess | Self::UnwantedKernelWork | Self::UnwantedInterrupt => {
                StatusSubject::UnwantedActivity
            }
            _ => StatusSubject::Drift,
        }
    }
}

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct StatusFinding {
    /// What sort.
    pub kind: StatusFindingKind,
    /// The domain that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// Place, present value, wanted one, fix.
    #[serde(flatten)]
    pub finding: Finding,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_are_those_of_the_document() {
        for kind in StatusFindingKind::ALL {
            let written = serde_json::to_value(kind).expect("JSON");
            assert_eq!(written, kind.word());
        }
    }
}
