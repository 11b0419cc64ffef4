// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The state of a machine compared with its active plan, as `rampart status` reports it.

use serde::{Deserialize, Serialize};

use crate::{
    ActivePlanState, CpuId, CpuRole, CpuSet, DomainKind, Finding, IsolationMechanism, Nanos,
    ObservedIsolation, SchedulingPolicy, Severity,
};

/// Version of [`Status`] as a document. Within it fields are only added.
pub const STATUS_SCHEMA_VERSION: u32 = 1;

/// The state of a machine over one interval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Status {
    /// [`STATUS_SCHEMA_VERSION`].
    pub schema_version: u32,
    /// Version of the tool that wrote it.
    pub tool_version: String,
    /// The machine's name.
    pub host_name: String,
    /// Length of the interval.
    pub interval: Nanos,
    /// The active plan; `None` if no plan is applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<StatusPlan>,
    /// The isolation in effect, with or without a plan.
    pub isolation: ObservedIsolation,
    /// The real-time CPUs of a machine without a plan; `None` if a plan is active, or no setting keeps
    /// CPUs for real-time work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub division: Option<StatusDivision>,
    /// Each CPU of the plan and of the machine.
    pub cpus: Vec<CpuStatus>,
    /// Each domain of the plan.
    #[serde(default)]
    pub domains: Vec<DomainStatus>,
    /// Findings, the most severe first.
    pub findings: Vec<StatusFinding>,
}

impl Status {
    /// Returns whether a part of the plan is not in effect any more.
    #[must_use]
    pub fn has_drift(&self) -> bool {
        self.of(StatusSubject::Drift).next().is_some()
    }

    /// Returns whether the machine is as it should be: the plan is in effect; without a plan, no
    /// finding is an error or a warning.
    #[must_use]
    pub fn is_as_expected(&self) -> bool {
        match self.plan {
            Some(_) => !self.has_drift(),
            None => self.problems() == 0,
        }
    }

    /// Returns the number of errors and warnings.
    #[must_use]
    pub fn problems(&self) -> usize {
        let findings = self.findings.iter();
        findings
            .filter(|finding| finding.finding.severity != Severity::Note)
            .count()
    }

    /// Returns the findings of one subject.
    pub fn of(&self, subject: StatusSubject) -> impl Iterator<Item = &StatusFinding> {
        self.findings
            .iter()
            .filter(move |finding| finding.subject == subject)
    }
}

/// The division of a machine without a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct StatusDivision {
    /// CPUs that settings of the machine keep for real-time work.
    pub real_time: CpuSet,
    /// All other online CPUs.
    pub housekeeping: CpuSet,
    /// The settings, for example `from isolcpus=, nohz_full=`.
    pub chosen_by: String,
}

/// Summary of the active plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct StatusPlan {
    /// Its file.
    pub file: String,
    /// Progress of its application.
    pub state: ActivePlanState,
    /// When it was applied, as time since the epoch.
    pub applied_at: Nanos,
    /// Fingerprint of the topology that it was resolved on.
    pub fingerprint: String,
    /// CPUs for ordinary work.
    pub housekeeping: CpuSet,
    /// CPUs of domains.
    pub real_time: CpuSet,
    /// Findings of its application: settings that differ from the plan.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_effective: Vec<Finding>,
}

/// The state of one CPU over the interval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct CpuStatus {
    /// The CPU.
    pub cpu: CpuId,
    /// Whether it is online.
    pub online: bool,
    /// Its domain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Its role; `None` without a plan if no setting of the machine gives it one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<CpuRole>,
    /// Part of the interval that it was not idle, 0 to 1.
    pub busy: f64,
    /// Interrupts per second, including those of the CPU itself.
    pub interrupts_per_second: f64,
    /// Softirqs per second.
    pub softirqs_per_second: f64,
    /// Threads that used CPU time and ran here last, the busiest first.
    pub threads: Vec<ThreadStatus>,
    /// Interrupts that arrived, the most frequent first.
    pub interrupts: Vec<CountStatus>,
    /// Softirqs that ran, the most frequent first.
    pub softirqs: Vec<CountStatus>,
    /// Activity on a real-time CPU that does not belong to its domain.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub noise_sources: Vec<NoiseSource>,
}

/// The state of one thread over the interval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ThreadStatus {
    /// Its process id.
    pub process: u32,
    /// Its thread id.
    pub thread: u32,
    /// Its name.
    pub name: String,
    /// Whether it belongs to the kernel.
    pub kernel: bool,
    /// Its policy, if it is known.
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
    /// Number or abbreviation of the interrupt, or name of the softirq.
    pub name: String,
    /// Driver or device of the interrupt.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub action: String,
    /// The count.
    pub count: u64,
}

/// Kind of activity on a real-time CPU.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum NoiseSourceKind {
    /// A thread of a process.
    Process,
    /// An interrupt of a device that the domain does not own.
    Interrupt,
    /// A kernel thread that can run elsewhere.
    KernelThread,
    /// A kernel thread that is bound to the CPU.
    CpuThread,
    /// A softirq of devices: network, block, tasklets.
    Softirq,
    /// A function that another CPU made this CPU run.
    CrossCall,
}

impl NoiseSourceKind {
    /// Returns the kind's name in documents.
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

/// Activity on a real-time CPU that does not belong to its domain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct NoiseSource {
    /// Its kind.
    pub kind: NoiseSourceKind,
    /// Its name, with its number.
    pub name: String,
    /// Its number as a thread or an interrupt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<u32>,
    /// How often it occurred; 1 for a thread.
    pub count: u64,
    /// CPU time that it used, if it is a thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_time: Option<Nanos>,
}

/// State of a domain's program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ProgramState {
    /// It runs.
    Running,
    /// It ended, and its supervisor starts it again.
    Restarting,
    /// It does not run.
    Stopped,
}

/// A domain's program, from the record of its supervisor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ProgramStatus {
    /// Its state.
    pub state: ProgramState,
    /// Its process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<u32>,
    /// How often it was started again.
    pub restarts: u64,
    /// How it last ended.
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
    /// The isolation in effect.
    pub isolation: IsolationMechanism,
    /// Whether the isolation is as it was when the plan was applied.
    pub isolation_valid: bool,
    /// Number of its threads.
    pub threads: u32,
    /// Its program; `None` if `rampart up` did not start it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<ProgramStatus>,
}

impl DomainStatus {
    /// Returns whether its program or any of its threads runs.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.program.as_ref().map_or(self.threads > 0, |program| {
            program.state == ProgramState::Running
        })
    }
}

/// Subject of a finding.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum StatusSubject {
    /// A part of the plan is not in effect any more.
    Drift,
    /// All is as planned, and causes latency.
    Colocation,
    /// Activity on a real-time CPU that does not belong to its domain.
    UnwantedActivity,
}

/// A finding of a rule about the state of a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct StatusFinding {
    /// What it is about.
    pub subject: StatusSubject,
    /// The domain that it is about; `None` if it is about the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// The finding, with the id of its rule.
    #[serde(flatten)]
    pub finding: Finding,
}

impl StatusFinding {
    /// Returns the id of the rule.
    #[must_use]
    pub fn rule(&self) -> &str {
        self.finding.rule.as_deref().unwrap_or_default()
    }

    /// Adds the value found and the value expected.
    #[must_use]
    pub fn values(mut self, found: impl Into<String>, expected: impl Into<String>) -> Self {
        self.finding = self.finding.values(found, expected);
        self
    }

    /// Adds the command or change that fixes it.
    #[must_use]
    pub fn fix(mut self, fix: impl Into<String>) -> Self {
        self.finding = self.finding.fix(fix);
        self
    }
}
