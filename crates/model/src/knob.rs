// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The catalogue of knobs as a document: the properties of a machine that matter for real-time
//! work, with expected values and reasons.

use serde::{Deserialize, Serialize};

use crate::Severity;

/// Version of [`KnobCatalogue`] as a document. Within it fields are only added.
pub const KNOB_CATALOGUE_SCHEMA_VERSION: u32 = 1;

/// The group of a knob.
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
pub enum KnobGroup {
    /// Processors, firmware, hypervisors.
    Hardware,
    /// The build of the kernel.
    Kernel,
    /// Isolation of CPUs.
    Isolation,
    /// The scheduler.
    Scheduler,
    /// Priorities and CPUs of the kernel's own threads.
    KernelThreads,
    /// Interrupts.
    Interrupts,
    /// Clocks, ticks and timers.
    Timers,
    /// RCU and its callbacks.
    ReadCopyUpdate,
    /// Workqueues.
    Workqueues,
    /// Memory.
    Memory,
    /// Idle states and frequencies.
    Power,
    /// Watchdogs and periodic checks.
    Watchdogs,
    /// Network interfaces.
    Network,
    /// Shared caches and memory bandwidth.
    Cache,
    /// Control groups.
    ControlGroups,
    /// Limits of processes.
    Limits,
    /// KVM on the host.
    Kvm,
    /// Settings of one guest.
    Guest,
    /// Tracing, printing, accounting.
    Observation,
    /// Other programs that configure the machine.
    OtherManagers,
}

impl KnobGroup {
    /// Every group, in the order in which they are shown.
    pub const ALL: [Self; 20] = [
        Self::Hardware,
        Self::Kernel,
        Self::Isolation,
        Self::Scheduler,
        Self::KernelThreads,
        Self::Interrupts,
        Self::Timers,
        Self::ReadCopyUpdate,
        Self::Workqueues,
        Self::Memory,
        Self::Power,
        Self::Watchdogs,
        Self::Network,
        Self::Cache,
        Self::ControlGroups,
        Self::Limits,
        Self::Kvm,
        Self::Guest,
        Self::Observation,
        Self::OtherManagers,
    ];

    /// Returns its heading.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Hardware => "Hardware and firmware",
            Self::Kernel => "Build of the kernel",
            Self::Isolation => "Isolation of CPUs",
            Self::Scheduler => "Scheduler",
            Self::KernelThreads => "Kernel threads",
            Self::Interrupts => "Interrupts",
            Self::Timers => "Clocks and timers",
            Self::ReadCopyUpdate => "Read-copy-update",
            Self::Workqueues => "Workqueues",
            Self::Memory => "Memory",
            Self::Power => "Idle states and frequencies",
            Self::Watchdogs => "Watchdogs",
            Self::Network => "Network",
            Self::Cache => "Shared caches",
            Self::ControlGroups => "Control groups",
            Self::Limits => "Limits of processes",
            Self::Kvm => "KVM",
            Self::Guest => "Settings of a guest",
            Self::Observation => "Tracing, printing, accounting",
            Self::OtherManagers => "Other managers",
        }
    }
}

/// When a change of a knob takes effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum KnobEffect {
    /// As soon as it is written.
    AtOnce,
    /// When the module that it belongs to is loaded again.
    AtReload,
    /// For what is started afterwards: a process, a guest.
    ForWhatStartsNext,
    /// After a restart of the machine.
    AtRestart,
    /// It is set manually in the firmware, with a restart.
    InFirmware,
    /// With another kernel.
    WithAnotherKernel,
}

impl KnobEffect {
    /// Returns whether the machine has to be restarted.
    #[must_use]
    pub const fn needs_restart(self) -> bool {
        matches!(
            self,
            Self::AtRestart | Self::InFirmware | Self::WithAnotherKernel
        )
    }

    /// Returns a short description.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::AtOnce => "works at once",
            Self::AtReload => "needs its module loaded again",
            Self::ForWhatStartsNext => "works for what is started afterwards",
            Self::AtRestart => "needs a restart",
            Self::InFirmware => "is set in the firmware, and needs a restart",
            Self::WithAnotherKernel => "needs another kernel, and a restart",
        }
    }
}

/// One of several choices for a knob. A plan chooses by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct KnobOpinion {
    /// Name by which a plan chooses it.
    pub name: String,
    /// The value that it expects.
    pub expected: String,
    /// The source of the choice.
    pub who: String,
    /// The reason.
    pub why: String,
}

/// The entry of one knob.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct KnobEntry {
    /// Its stable name.
    pub name: String,
    /// Its title.
    pub title: String,
    /// Its group.
    pub group: KnobGroup,
    /// Its locations. Names in braces match each CPU, interrupt, queue and so on.
    pub locations: Vec<String>,
    /// The expected value.
    pub expected: String,
    /// The conditions under which it matters; empty if always.
    pub applies: Vec<String>,
    /// The reason.
    pub reason: String,
    /// The cost and the risk of the expected value.
    pub cost: String,
    /// How a change disturbs running work; `None` if it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disruptive: Option<String>,
    /// When a change takes effect.
    pub effect: KnobEffect,
    /// The kernels that have it.
    pub kernels: String,
    /// How to verify it.
    pub verify: String,
    /// How to undo it.
    pub undo: String,
    /// Where the rule comes from.
    pub source: String,
    /// Severity of a deviation: an error makes the machine unfit for real-time work.
    pub severity: Severity,
    /// The choices, if sources differ; the first is the default.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub choices: Vec<KnobOpinion>,
}

/// The entry of a rule that is not a knob.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct RuleEntry {
    /// Its stable id.
    pub id: String,
    /// The heading of its book.
    pub book: String,
    /// The expectation, in a few words.
    pub title: String,
    /// The reason.
    pub reason: String,
    /// Where the rule comes from.
    pub source: String,
    /// Severity of a deviation.
    pub severity: Severity,
    /// Whether a plan may waive it.
    pub waivable: bool,
}

/// All knobs and rules: the output of `rampart knobs --json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct KnobCatalogue {
    /// [`KNOB_CATALOGUE_SCHEMA_VERSION`].
    pub schema_version: u32,
    /// Version of the tool that wrote it.
    pub tool_version: String,
    /// The knobs, by group.
    pub knobs: Vec<KnobEntry>,
    /// The rules of plans and of the state of an active plan.
    pub rules: Vec<RuleEntry>,
}
