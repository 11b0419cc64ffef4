// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What applying a plan changed about latencies, and which of its changes mattered.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{
    Condition, Exposure, Interval, MeterKind, NotMeasured, Record, StepKind, UnwantedActivity,
};

/// One change of a plan, by what applying it calls the step.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
)]
pub struct PlanChange {
    /// What it changes.
    pub kind: StepKind,
    /// The domain whose wall or share of a cache it is, or the knob.
    pub name: String,
    /// What it is, in a few words.
    pub title: String,
}

impl fmt::Display for PlanChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            StepKind::Isolation => "wall of ",
            StepKind::Cache => "cache of ",
            StepKind::Knob => "",
            StepKind::KernelCommandLine => "kernel command line ",
        };
        f.pad(&format!("{kind}{}", self.name))
    }
}

/// What stood of the plan while runs were made.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum PlanVariant {
    /// All of it.
    After,
    /// Nothing: the same CPUs and policies, bound by affinity alone.
    Before,
    /// All but this.
    Without(PlanChange),
}

impl PlanVariant {
    /// What the records of this leg have before their ids; nothing for [`Self::After`], whose
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

/// A record of another leg than [`PlanVariant::After`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct VariantRecord {
    /// What stood meanwhile.
    pub variant: PlanVariant,
    /// What was measured.
    pub record: Record,
}

/// What the plan, or one of its changes, did to a domain under a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum EffectOutcome {
    /// Latencies are shorter with it; of several quantiles that differ the highest decides.
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

/// A ratio with ÷ without.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct EffectRatio {
    /// The quantile, 0 to 1; 1 is the worst of a run, of which the geometric mean over runs counts.
    pub quantile: f64,
    /// The ratio; under 1 is shorter with it. Its confidence is for this ratio alone.
    pub ratio: Interval,
    /// Chance of so large a difference where there is none, two-sided, adjusted for all that were
    /// compared (Holm 1979).
    pub p_value: f64,
    /// Whether it counts as a difference: the adjusted chance is at most 5 %.
    pub differs: bool,
}

/// One comparison: a domain under a condition by a meter, with the plan and without it or a part.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct PlanEffect {
    /// What the whole plan is compared with.
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
    /// The ratios with ÷ without, by rising quantile; empty where nothing can be compared.
    pub ratios: Vec<EffectRatio>,
    /// The smallest ratio that would probably have been told from 1, of quantiles under 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub smallest_detectable: Option<f64>,
    /// What came to the domain's CPUs in the valid runs: with it, and without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unwanted_activity: Option<(UnwantedActivity, UnwantedActivity)>,
    /// What it rests on: with it, and without.
    pub exposure: (Exposure, Exposure),
    /// The records: with it, and without.
    pub records: (String, String),
}

/// Whether a change of the plan mattered.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum ChangeOutcome {
    /// With it something is better, and nothing worse.
    Mattered,
    /// With it something is worse, and nothing better.
    Backfired,
    /// With it something is better and something else worse.
    Mixed,
    /// Nothing differs, and every comparison could have shown it.
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

/// One change of the plan, over all that was compared.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ChangeEffect {
    /// The change.
    pub change: PlanChange,
    /// The answer.
    pub outcome: ChangeOutcome,
    /// The answer in a sentence, with its figures.
    pub statement: String,
}

/// What the plan changed.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, schemars::JsonSchema)]
pub struct PlanEffects {
    /// Where all intervals lie within this and its inverse, no difference is said to be shown.
    pub tolerance: f64,
    /// The changes that applying the plan makes, in its order.
    pub changes: Vec<PlanChange>,
    /// Parts of the plan that stood in all legs or in none, and why.
    pub not_compared: Vec<NotMeasured>,
    /// Records of the legs without the plan or without a part of it.
    pub records: Vec<VariantRecord>,
    /// With the plan against without it, and against without each change.
    pub effects: Vec<PlanEffect>,
    /// Which changes mattered: what backfired and what mattered first, the largest effect first.
    pub ablation: Vec<ChangeEffect>,
}
