// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The effect of applying a plan on latencies, in total and of each change.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{
    Condition, Exposure, Interval, MeterKind, NotMeasured, Record, StepKind, UnwantedActivity,
};

/// One change of a plan, identified as a step of its application.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
)]
pub struct PlanChange {
    /// Its kind.
    pub kind: StepKind,
    /// The domain whose isolation or cache share it changes, or the knob.
    pub name: String,
    /// Its title.
    pub title: String,
}

impl fmt::Display for PlanChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            StepKind::Isolation => "isolation of ",
            StepKind::Cache => "cache of ",
            StepKind::Knob => "",
            StepKind::KernelCommandLine => "kernel command line ",
        };
        f.pad(&format!("{kind}{}", self.name))
    }
}

/// The part of the plan in effect during runs.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum PlanVariant {
    /// The whole plan.
    After,
    /// No change of the plan: the same CPUs and policies, with affinity alone.
    Before,
    /// The plan without this change.
    Without(PlanChange),
}

impl PlanVariant {
    /// Returns the prefix of the ids of this variant's records; empty for [`Self::After`], whose
    /// records are those of the evaluation.
    #[must_use]
    pub fn prefix(&self) -> String {
        match self {
            Self::After => String::new(),
            Self::Before => "before/".to_owned(),
            Self::Without(change) => {
                format!("without {}/", change.to_string().replace('/', "-"))
            }
        }
    }
}

impl fmt::Display for PlanVariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::After => f.pad("with the plan"),
            Self::Before => f.pad("without the plan"),
            Self::Without(change) => f.pad(&format!("without {change}")),
        }
    }
}

/// A record of a variant other than [`PlanVariant::After`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct VariantRecord {
    /// The variant.
    pub variant: PlanVariant,
    /// The record.
    pub record: Record,
}

/// The effect of the plan or one of its changes on a domain under a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum EffectOutcome {
    /// Latencies are shorter with it; if several quantiles differ, the highest decides.
    Better,
    /// They are longer.
    Worse,
    /// No quantile differs, and each interval lies within the tolerance.
    NoDifferenceShown,
    /// There is not enough data.
    Inconclusive,
}

impl fmt::Display for EffectOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Better => "better",
            Self::Worse => "worse",
            Self::NoDifferenceShown => "no difference shown",
            Self::Inconclusive => "inconclusive",
        })
    }
}

/// A ratio of latencies: with ÷ without.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct EffectRatio {
    /// The quantile, 0 to 1; 1 is the worst of a run, as geometric mean over runs.
    pub quantile: f64,
    /// The ratio; below 1 latencies are shorter with it. Its confidence is for this ratio alone.
    pub ratio: Interval,
    /// Probability of at least this difference without an effect, two-sided, adjusted for all
    /// comparisons (Holm 1979).
    pub p_value: f64,
    /// Whether it counts as a difference: the adjusted probability is at most 5 %.
    pub differs: bool,
}

/// One comparison: a domain, a condition and a meter, with the plan and without it or a part of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct PlanEffect {
    /// The variant that the whole plan is compared with.
    pub variant: PlanVariant,
    /// The domain.
    pub domain: String,
    /// The meter.
    pub meter: MeterKind,
    /// The condition.
    pub condition: Condition,
    /// The answer.
    pub outcome: EffectOutcome,
    /// The answer in a sentence, with its figures.
    pub statement: String,
    /// The ratios with ÷ without, by rising quantile; empty if no comparison is possible.
    pub ratios: Vec<EffectRatio>,
    /// The smallest detectable ratio of quantiles below 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub smallest_detectable: Option<f64>,
    /// Unwanted activity on the domain's CPUs in the valid runs: with it, and without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unwanted_activity: Option<(UnwantedActivity, UnwantedActivity)>,
    /// The exposure: with it, and without.
    pub exposure: (Exposure, Exposure),
    /// The records: with it, and without.
    pub records: (String, String),
}

/// The overall effect of a change of the plan.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum ChangeOutcome {
    /// At least one comparison is better, none worse.
    Mattered,
    /// At least one comparison is worse, none better.
    Backfired,
    /// Some comparisons are better and others worse.
    Mixed,
    /// No comparison differs, and each could have shown a difference.
    NoDifferenceShown,
    /// There is not enough data.
    Inconclusive,
}

impl fmt::Display for ChangeOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Mattered => "mattered",
            Self::Backfired => "backfired",
            Self::Mixed => "better and worse",
            Self::NoDifferenceShown => "no difference shown",
            Self::Inconclusive => "inconclusive",
        })
    }
}

/// The effect of one change of the plan, over all comparisons.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ChangeEffect {
    /// The change.
    pub change: PlanChange,
    /// The answer.
    pub outcome: ChangeOutcome,
    /// The answer in a sentence, with its figures.
    pub statement: String,
}

/// The effects of the plan.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, schemars::JsonSchema)]
pub struct PlanEffects {
    /// If all intervals lie between this and its inverse, no difference is shown.
    pub tolerance: f64,
    /// The changes that applying the plan makes, in its order.
    pub changes: Vec<PlanChange>,
    /// Parts of the plan that were in effect in all variants or in none, with the reason.
    pub not_compared: Vec<NotMeasured>,
    /// Records of the variants without the plan or without a part of it.
    pub records: Vec<VariantRecord>,
    /// Comparisons of the plan with each other variant.
    pub effects: Vec<PlanEffect>,
    /// The effect of each change: those with an effect first, the largest first.
    pub ablation: Vec<ChangeEffect>,
}
