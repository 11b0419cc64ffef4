// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The changes of a plan to a machine, and the active plan.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{CpuSet, DomainKind, Finding, IsolationMechanism, Nanos, PlanChange, ResolvedPlan};

/// Version of [`ChangeList`] and [`ActivePlan`] as documents. Within it fields are only added.
pub const APPLICATION_SCHEMA_VERSION: u32 = 1;

/// Subject of a step.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum StepKind {
    /// The isolation of a domain's CPUs: control groups, interrupts, workqueues.
    Isolation,
    /// A domain's share of a cache and of memory bandwidth.
    Cache,
    /// A knob of the catalogue.
    Knob,
    /// The kernel command line.
    KernelCommandLine,
}

/// Action of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum StepAction {
    /// Rampart makes the change.
    Apply,
    /// It already has the expected value.
    AsWanted,
    /// The plan skips it.
    Skip,
    /// The plan expects other software to make the change, and it is not made.
    Expect,
    /// It waits for the restart that `rampart apply --boot` prepares.
    AtRestart,
    /// Rampart does not make changes of this kind; [`ChangeStep::fix`] has the manual step.
    ByHand,
}

/// Target of a written value.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum ChangeTarget {
    /// A file with a text or a number.
    File(String),
    /// A file with CPUs as a list.
    CpuListFile(String),
    /// A file with CPUs as a mask.
    CpuMaskFile(String),
    /// Policy of a thread, by its number.
    ThreadPolicy(u32),
    /// The CPUs of a thread, by its number.
    ThreadAffinity(u32),
    /// A service that is stopped through systemd.
    Service(String),
    /// A file with a group's cache ways and memory bandwidth. Its other resources are not changed.
    Schemata(String),
}

/// One location that gets another value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ChangeLocation {
    /// The target.
    pub target: ChangeTarget,
    /// Description of the target.
    pub location: String,
    /// The present value.
    pub present: String,
    /// The written value: a text, CPUs as a list, or a policy such as `fifo:11`.
    pub value: String,
}

/// One step of applying a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ChangeStep {
    /// Its subject.
    pub kind: StepKind,
    /// Name of the domain, the knob or the boot parameter.
    pub name: String,
    /// Title of the change.
    pub title: String,
    /// Its action.
    pub action: StepAction,
    /// Reason for the action.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// The present value, summarised over all locations.
    pub present: String,
    /// The expected value.
    pub wanted: String,
    /// Each location that gets another value; if all are as expected, each with its present value.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub locations: Vec<ChangeLocation>,
    /// How the change disrupts running work; `None` if it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disruptive: Option<String>,
    /// The manual step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
    /// Where the rule comes from.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub source: String,
}

/// All steps of applying a plan, in order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ChangeList {
    /// [`APPLICATION_SCHEMA_VERSION`].
    pub schema_version: u32,
    /// Version of the tool that wrote it.
    pub tool_version: String,
    /// The steps.
    pub steps: Vec<ChangeStep>,
    /// Kernel arguments that the plan needs, including those that are already set.
    pub boot_arguments: Vec<String>,
}

impl ChangeList {
    /// Returns the steps that make a change now.
    pub fn to_apply(&self) -> impl Iterator<Item = &ChangeStep> {
        self.steps
            .iter()
            .filter(|step| step.action == StepAction::Apply)
    }

    /// Marks the steps of these changes as skipped, to measure their effect.
    pub fn leave_out(&mut self, changes: &[PlanChange]) {
        for step in &mut self.steps {
            let named = |change: &PlanChange| change.kind == step.kind && change.name == step.name;
            if changes.iter().any(named) {
                step.action = StepAction::Skip;
                "left out to measure its effect".clone_into(&mut step.why);
            }
        }
    }
}

/// A domain of the active plan, with the isolation in effect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ActiveDomain {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: DomainKind,
    /// Its CPUs.
    pub cpus: CpuSet,
    /// The isolation in effect.
    pub isolation: IsolationMechanism,
    /// For cgroup v2: the kernel's state of the partition, for example `isolated`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<String>,
    /// Absolute path of its control group; `None` if the isolation is affinity alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Absolute path of the group that its processes enter: its own, or one below it if a v2 group could
    /// not be made threaded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub members: Option<String>,
    /// Whether that group is of cgroup v2.
    #[serde(default)]
    pub unified: bool,
}

/// Progress of applying a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ActivePlanState {
    /// It was started; if no process continues it, it was interrupted, and `release` undoes it.
    Begun,
    /// The kernel command line is written, and the machine has to be restarted before `apply` continues.
    AwaitsRestart,
    /// It is applied completely.
    Active,
}

impl ActivePlanState {
    /// Returns the state's name in documents.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Begun => "begun",
            Self::AwaitsRestart => "awaits-restart",
            Self::Active => "active",
        }
    }
}

/// Formats the state as the predicate of a sentence about the plan.
impl fmt::Display for ActivePlanState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Begun => "is incomplete",
            Self::AwaitsRestart => "waits for a restart",
            Self::Active => "is active",
        })
    }
}

/// The active plan: the contents of `plan.json` in the state directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ActivePlan {
    /// [`APPLICATION_SCHEMA_VERSION`].
    pub schema_version: u32,
    /// Version of the tool that wrote it.
    pub tool_version: String,
    /// Progress of its application.
    pub state: ActivePlanState,
    /// When it was applied, as time since the epoch.
    pub applied_at: Nanos,
    /// `/proc/sys/kernel/random/boot_id` at that time.
    pub boot: String,
    /// The absolute path of the plan's file, `HOST:PATH` on another machine.
    pub file: String,
    /// The text of the plan at that time.
    pub text: String,
    /// The plan resolved on this machine.
    pub resolved: ResolvedPlan,
    /// Its domains with the isolation in effect, in the order of the plan.
    pub domains: Vec<ActiveDomain>,
    /// The steps.
    pub changes: ChangeList,
    /// Settings that differ from the plan.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<Finding>,
    /// Interrupts that the kernel refused to move off the domains' CPUs; each has a finding too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept_interrupts: Vec<u32>,
}

impl ActivePlan {
    /// Returns the domain with this name.
    #[must_use]
    pub fn domain(&self, name: &str) -> Option<&ActiveDomain> {
        self.domains.iter().find(|domain| domain.name == name)
    }
}
