// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What `rampart check` found: each knob of the catalogue as it is on one machine.

use serde::{Deserialize, Serialize};

use crate::{CpuSet, KnobEffect, KnobGroup, KnobOpinion, PreemptionModel};

/// Version of [`Check`] as a document. Within it fields are only added.
pub const CHECK_SCHEMA_VERSION: u32 = 1;

/// How a knob stands.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum CheckState {
    /// It is not as wanted, and no latency is bounded until it is.
    Error,
    /// It is not as wanted; changing it makes latencies shorter or rarer.
    Warning,
    /// It is as wanted.
    Ok,
    /// It is told and not judged: no value is right for every machine.
    Informational,
    /// It could not be read; [`Check::not_read`] says why.
    NotRead,
    /// This machine or this kernel has it not, or it does not matter here.
    NotApplicable,
}

/// One place of a knob: a file, a thread, an interrupt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct CheckLocation {
    /// Where.
    pub location: String,
    /// What is there.
    pub found: String,
    /// What should be there.
    pub expected: String,
    /// Whether it is as wanted; none where it is told and not judged.
    pub satisfied: Option<bool>,
}

/// One knob on this machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct CheckFinding {
    /// Name of the knob, as `rampart knobs` lists it.
    pub rule: String,
    /// What it is.
    pub title: String,
    /// What it belongs to.
    pub group: KnobGroup,
    /// How it stands.
    pub state: CheckState,
    /// What is, over all places.
    pub found: String,
    /// What should be.
    pub expected: String,
    /// Each place that was looked at.
    pub locations: Vec<CheckLocation>,
    /// Why it should be so; where the knob does not apply, why not.
    pub reason: String,
    /// How to change it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
    /// When that works.
    pub effect: KnobEffect,
    /// How changing it disturbs what runs; none: it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disruptive: Option<String>,
    /// What it costs.
    pub cost: String,
    /// Where the rule comes from.
    pub source: String,
    /// Where sources differ, what each says.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub choices: Vec<KnobOpinion>,
}

/// What could not be read, told once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct NotRead {
    /// Why.
    pub why: String,
    /// The command that fixes it.
    pub fix: String,
    /// The knobs that are not judged for it.
    pub rules: Vec<String>,
}

/// The machine in short.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct CheckedMachine {
    /// Its name in the network.
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

/// How many knobs stand how.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema,
)]
pub struct CheckCounts {
    /// As wanted.
    pub ok: u32,
    /// Could be better.
    pub warnings: u32,
    /// Unfit.
    pub errors: u32,
    /// Told and not judged.
    pub informational: u32,
    /// Not to be read.
    pub not_read: u32,
    /// Not of this machine.
    pub not_applicable: u32,
}

/// Whether a machine is fit for real-time work, and what would make it so: what
/// `rampart check --json` prints.
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
    /// The CPUs for all else.
    pub housekeeping: CpuSet,
    /// Who named these CPUs, in a few words.
    pub chosen_by: String,
    /// Counts of [`Check::findings`].
    pub counts: CheckCounts,
    /// Every knob, problems first, then by group.
    pub findings: Vec<CheckFinding>,
    /// What could not be read.
    pub not_read: Vec<NotRead>,
}

impl Check {
    /// Whether a problem was found.
    #[must_use]
    pub fn is_unfit(&self) -> bool {
        self.counts.errors > 0
    }
}
