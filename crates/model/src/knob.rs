// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The catalogue of knobs as a document: everything about a machine that is known to matter for
//! real-time work, what it should be, and why.

use serde::{Deserialize, Serialize};

use crate::Severity;

/// Version of [`KnobCatalogue`] as a document. Within it fields are only added.
pub const KNOB_CATALOGUE_SCHEMA_VERSION: u32 = 1;

/// What a knob belongs to.
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
    /// Processors, firmware, what is under the kernel.
    Hardware,
    /// How the kernel was built.
    Kernel,
    /// Which CPUs are kept for what.
    Isolation,
    /// The scheduler.
    Scheduler,
    /// Priorities and CPUs of the kernel's own threads.
    KernelThreads,
    /// Interrupts.
    Interrupts,
    /// Clocks, ticks and timers.
    Timers,
    /// Read-copy-update and its callbacks.
    ReadCopyUpdate,
    /// Workqueues.
    Workqueues,
    /// Memory.
    Memory,
    /// Idle states and frequencies.
    Power,
    /// Watchdogs and checks that run by themselves.
    Watchdogs,
    /// Network interfaces.
    Network,
    /// Shared caches and memory bandwidth.
    Cache,
    /// Control groups.
    ControlGroups,
    /// What a process may ask for.
    Limits,
    /// KVM on the host.
    Kvm,
    /// Settings of one guest.
    Guest,
    /// Tracing, printing, accounting.
    Observation,
    /// Other programs that tune the machine.
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

    /// Its heading.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Hardware => "Hardware and firmware",
            Self::Kernel => "How the kernel was built",
            Self::Isolation => "Which CPUs do what",
            Self::Scheduler => "Scheduler",
            Self::KernelThreads => "Threads of the kernel",
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

/// When a change of a knob works.
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
    /// It is set in the firmware, which needs a restart and a person.
    InFirmware,
    /// With another kernel.
    WithAnotherKernel,
}

impl KnobEffect {
    /// Whether the machine has to be restarted.
    #[must_use]
    pub const fn needs_restart(self) -> bool {
        matches!(
            self,
            Self::AtRestart | Self::InFirmware | Self::WithAnotherKernel
        )
    }

    /// In a few words.
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

/// One of several opinions about a knob. A plan chooses among them by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct KnobOpinion {
    /// Name by which a plan chooses it.
    pub name: String,
    /// What it wants.
    pub expected: String,
    /// Whose opinion it is.
    pub who: String,
    /// Why.
    pub why: String,
}

/// One knob as it is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct KnobEntry {
    /// Its stable name.
    pub name: String,
    /// What it is, in a few words.
    pub title: String,
    /// What it belongs to.
    pub group: KnobGroup,
    /// Where it is. Names in braces stand for each CPU, interrupt, queue and so on.
    pub locations: Vec<String>,
    /// What it should be.
    pub expected: String,
    /// When it matters; empty: always.
    pub applies: Vec<String>,
    /// Why.
    pub reason: String,
    /// What it costs, and what may go wrong.
    pub cost: String,
    /// How changing it disturbs what runs; none: it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disruptive: Option<String>,
    /// When a change works.
    pub effect: KnobEffect,
    /// The kernels that have it.
    pub kernels: String,
    /// How to see that it is set.
    pub verify: String,
    /// How to take it back.
    pub undo: String,
    /// Where the rule comes from.
    pub source: String,
    /// Severity of a deviation: an error makes the machine unfit for real-time work.
    pub severity: Severity,
    /// The opinions, where sources differ; the first is taken unless the plan chooses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub choices: Vec<KnobOpinion>,
}

/// One rule that is no knob.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct RuleEntry {
    /// Its stable id.
    pub id: String,
    /// What it judges, as a heading.
    pub book: String,
    /// What is expected, in a few words.
    pub title: String,
    /// Why.
    pub reason: String,
    /// Where the rule comes from.
    pub source: String,
    /// Severity of a deviation.
    pub severity: Severity,
    /// Whether a plan may waive it.
    pub waivable: bool,
}

/// All knobs and rules: what `rampart knobs --json` prints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct KnobCatalogue {
    /// [`KNOB_CATALOGUE_SCHEMA_VERSION`].
    pub schema_version: u32,
    /// Version of the tool that wrote it.
    pub tool_version: String,
    /// The knobs, by group.
    pub knobs: Vec<KnobEntry>,
    /// The rules of plans and of the state of an active plan, which are no knobs.
    pub rules: Vec<RuleEntry>,
}
