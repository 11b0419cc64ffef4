// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The document of `rampart check`: each knob of the catalogue on one machine.

use serde::{Deserialize, Serialize};

use crate::{CpuSet, Finding, KnobEffect, KnobGroup, KnobOpinion, PreemptionModel};

/// Version of [`Check`] as a document. Within it fields are only added.
pub const CHECK_SCHEMA_VERSION: u32 = 1;

/// The state of a knob on a machine.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum CheckState {
    /// It is not as expected, and no latency is bounded until it is.
    Error,
    /// It is not as expected; changing it makes latencies shorter or rarer.
    Warning,
    /// It is as expected.
    Ok,
    /// It is not judged: no value is right for every machine.
    Informational,
    /// It could not be read; [`Check::not_read`] contains the reason.
    NotRead,
    /// This machine or kernel does not have it, or it does not matter here.
    NotApplicable,
}

/// One location of a knob: a file, a thread, an interrupt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct CheckLocation {
    /// The file, thread or interrupt.
    pub location: String,
    /// The value found.
    pub found: String,
    /// The value expected.
    pub expected: String,
    /// Whether it is as expected; `None` if it is not judged.
    pub satisfied: Option<bool>,
}

/// One knob on this machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct CheckFinding {
    /// Id of the rule, as `rampart knobs` lists it.
    pub rule: String,
    /// Title of the knob.
    pub title: String,
    /// Its group.
    pub group: KnobGroup,
    /// Its state.
    pub state: CheckState,
    /// The value found, over all locations.
    pub found: String,
    /// The value expected.
    pub expected: String,
    /// Each location that was read.
    pub locations: Vec<CheckLocation>,
    /// Why this is expected; for a knob that does not apply, why not.
    pub reason: String,
    /// How to change it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
    /// Whether it deviates and a plan for these CPUs sets it.
    #[serde(default)]
    pub by_plan: bool,
    /// When a change takes effect.
    pub effect: KnobEffect,
    /// How a change disturbs running work; `None` if it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disruptive: Option<String>,
    /// The cost of a change.
    pub cost: String,
    /// Where the rule comes from.
    pub source: String,
    /// The choices, if sources differ.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub choices: Vec<KnobOpinion>,
}

/// Something that could not be read, and the knobs that depend on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct NotRead {
    /// The reason.
    pub why: String,
    /// The command that fixes it.
    pub fix: String,
    /// Ids of the knobs that are not judged for this reason.
    pub rules: Vec<String>,
}

/// Summary of the machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct CheckedMachine {
    /// Its host name.
    pub host_name: String,
    /// Model of the processor.
    pub processor: String,
    /// Online CPUs.
    pub online: CpuSet,
    /// Architecture.
    pub architecture: String,
    /// The distribution.
    pub distribution: Option<String>,
    /// Release of the kernel.
    pub kernel_release: String,
    /// How the kernel can be preempted.
    pub preemption: PreemptionModel,
    /// The hypervisor under it, if it is a guest.
    pub hypervisor: Option<String>,
}

/// Number of knobs in each state.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema,
)]
pub struct CheckCounts {
    /// As expected.
    pub ok: u32,
    /// Warnings.
    pub warnings: u32,
    /// Errors.
    pub errors: u32,
    /// Not judged.
    pub informational: u32,
    /// Not readable.
    pub not_read: u32,
    /// Not applicable to this machine.
    pub not_applicable: u32,
}

/// Output of `rampart check --json`: whether a machine is fit for real-time work, and the
/// deviations.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Check {
    /// [`CHECK_SCHEMA_VERSION`].
    pub schema_version: u32,
    /// Version of the tool that wrote it.
    pub tool_version: String,
    /// The machine.
    pub machine: CheckedMachine,
    /// The CPUs for real-time work.
    pub real_time: CpuSet,
    /// The CPUs for all other work.
    pub housekeeping: CpuSet,
    /// How these CPUs were chosen, in a few words.
    pub chosen_by: String,
    /// Counts of [`Check::findings`].
    pub counts: CheckCounts,
    /// Every knob, errors first, then by group.
    pub findings: Vec<CheckFinding>,
    /// The rules of the deviations that matter most, the worst first; at most three.
    #[serde(default)]
    pub first: Vec<String>,
    /// Everything that could not be read.
    pub not_read: Vec<NotRead>,
    /// Why threads cannot be detached on this machine now; empty if they can.
    #[serde(default)]
    pub detached: Vec<Finding>,
}

impl Check {
    /// Returns whether an error was found.
    #[must_use]
    pub fn is_unfit(&self) -> bool {
        self.counts.errors > 0
    }
}
