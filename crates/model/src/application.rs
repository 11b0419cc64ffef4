// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What applying a plan does to a machine, and what stands applied.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{CpuSet, DomainKind, Finding, IsolationMechanism, Nanos, ResolvedPlan};

/// Version of [`ChangeList`] and [`ActivePlan`] as documents. Within it fields are only added.
pub const APPLICATION_SCHEMA_VERSION: u32 = 1;

/// What a step changes.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum StepKind {
    /// The wall around a domain's CPUs: control groups, interrupts, workqueues.
    Isolation,
    /// A domain's share of a cache and of memory bandwidth.
    Cache,
    /// A knob of the catalogue.
    Knob,
    /// The kernel command line.
    KernelCommandLine,
}

/// What is done about a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum StepAction {
    /// Rampart makes the change.
    Apply,
    /// It is as wanted already.
    AsWanted,
    /// The plan leaves it alone.
    Skip,
    /// The plan expects somebody else to have made it, and nobody has.
    Expect,
    /// It waits for the restart that `rampart apply --boot` prepares.
    AtRestart,
    /// Rampart does not make changes of this kind; [`ChangeStep::fix`] says how.
    ByHand,
}

/// Where a value is written.
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
    /// A service that is stopped, by systemd's own means.
    Service(String),
    /// A file that says which ways of caches and how much memory bandwidth a group may use. Other
    /// resources that it names are not meant.
    Schemata(String),
}

/// One place that gets another value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ChangeLocation {
    /// What is written to.
    pub target: ChangeTarget,
    /// It in words, with its name where the path does not tell.
    pub location: String,
    /// What is there.
    pub present: String,
    /// What is written: a text, CPUs as a list, or a policy such as `fifo:11`.
    pub value: String,
}

/// One thing that applying a plan is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ChangeStep {
    /// What it changes.
    pub kind: StepKind,
    /// Name of the domain whose wall or share it is, of the knob, or of the boot parameter.
    pub name: String,
    /// What it is, in a few words.
    pub title: String,
    /// What is done about it.
    pub action: StepAction,
    /// Why that is done, where the action alone does not tell.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// What is, over all places.
    pub present: String,
    /// What shall be.
    pub wanted: String,
    /// Each place that gets another value; where all is as wanted, each with what it has.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub locations: Vec<ChangeLocation>,
    /// How the change disturbs what runs; none: it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disruptive: Option<String>,
    /// How a person does it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
    /// Where the rule comes from.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub source: String,
}

/// Everything that applying a plan is about, in the order in which it is done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ChangeList {
    /// [`APPLICATION_SCHEMA_VERSION`].
    pub schema_version: u32,
    /// Version of the tool that wrote it.
    pub tool_version: String,
    /// The steps.
    pub steps: Vec<ChangeStep>,
    /// Arguments that the kernel has to be started with, those that it has already among them;
    /// empty where the plan needs none.
    pub boot_arguments: Vec<String>,
}

impl ChangeList {
    /// The steps that change something now.
    pub fn to_apply(&self) -> impl Iterator<Item = &ChangeStep> {
        self.steps
            .iter()
            .filter(|step| step.action == StepAction::Apply)
    }
}

/// A domain of an applied plan, with the wall that it really got.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ActiveDomain {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: DomainKind,
    /// Its CPUs.
    pub cpus: CpuSet,
    /// The wall around them.
    pub isolation: IsolationMechanism,
    /// For a wall of cgroup v2: what the kernel calls the partition, for example `isolated`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<String>,
    /// Absolute path of its control group; none where the wall is affinity alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Absolute path of the group that its processes enter: its own, or one below it where a v2
    /// group could not be made threaded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub members: Option<String>,
    /// Whether that group is of cgroup v2.
    #[serde(default)]
    pub unified: bool,
}

/// How far the application of a plan is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ActivePlanState {
    /// It was begun; where nobody is at it any more, it was broken off, and `release` undoes it.
    Begun,
    /// The kernel command line is written, and the machine has to be restarted; `apply` goes on then.
    AwaitsRestart,
    /// All of it stands.
    Active,
}

impl ActivePlanState {
    /// The word for it, as documents have it.
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

/// A plan that is applied to this machine: what `plan.json` in the state directory holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ActivePlan {
    /// [`APPLICATION_SCHEMA_VERSION`].
    pub schema_version: u32,
    /// Version of the tool that wrote it.
    pub tool_version: String,
    /// How far it is.
    pub state: ActivePlanState,
    /// When it was applied, since the epoch.
    pub applied_at: Nanos,
    /// `/proc/sys/kernel/random/boot_id` then.
    pub boot: String,
    /// The plan's file.
    pub file: String,
    /// The text of the plan as it was.
    pub text: String,
    /// The plan resolved on this machine.
    pub resolved: ResolvedPlan,
    /// Its domains with the walls that they got, in the order of the plan.
    pub domains: Vec<ActiveDomain>,
    /// What was done.
    pub changes: ChangeList,
    /// What was not granted as asked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<Finding>,
    /// Numbers of the interrupts that the kernel did not let be moved off the domains' CPUs; each is
    /// among the findings too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept_interrupts: Vec<u32>,
}

impl ActivePlan {
    /// The domain of this name.
    #[must_use]
    pub fn domain(&self, name: &str) -> Option<&ActiveDomain> {
        self.domains.iter().find(|domain| domain.name == name)
    }
}
