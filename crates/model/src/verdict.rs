// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Verdicts: answers with their figures and the exposure they rest on.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Condition, Exposure, MeterKind, Nanos};

/// What is asked.
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
pub enum Question {
    /// Does it meet the deadline?
    Deadline,
    /// Is it as good as the host?
    SameAsHost,
    /// Does a neighbour's load cross the wall?
    Interference,
}

/// The answer.
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
pub enum VerdictOutcome {
    /// The deadline, or the wall, holds as far as the exposure shows.
    Holds,
    /// A disturbance crosses the wall.
    Leaks,
    /// The deadline was missed, or it is worse than the host.
    Fails,
    /// The exposure does not decide it.
    Inconclusive,
}

impl fmt::Display for VerdictOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Holds => "holds",
            Self::Leaks => "leaks",
            Self::Fails => "fails",
            Self::Inconclusive => "inconclusive",
        })
    }
}

/// An estimate with its two-sided confidence interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Interval {
    /// The estimate.
    pub estimate: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Confidence, for example 0.95.
    pub confidence: f64,
}

/// The figures behind a verdict.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum VerdictFigures {
    /// Of [`Question::Deadline`].
    Deadline {
        /// The limit.
        deadline: Nanos,
        /// Cycles: samples and missed periods.
        cycles: u64,
        /// Samples over the deadline, and missed periods whose corrected lateness is over it
        /// (the latter by bucket, within a thousandth of the deadline).
        exceedances: u64,
        /// Exact upper bound of the chance of an exceedance in a cycle (Clopper and Pearson 1934).
        upper_bound: f64,
        /// Confidence of the bound, one-sided.
        confidence: f64,
        /// Without exceedances: the mean time between violations is at least this, at the same
        /// confidence (exposure ÷ −ln(1 − confidence)).
        time_between_violations: Option<Nanos>,
        /// The worst seen.
        max: Nanos,
    },
    /// Of [`Question::SameAsHost`].
    SameAsHost {
        /// The record of the host that it was compared with.
        host: String,
        /// Each compared quantile (0 to 1) with the ratio domain ÷ host.
        ratios: Vec<(f64, Interval)>,
        /// Up to this ratio two records count as the same.
        tolerance: f64,
        /// Blocks compared on each side.
        blocks: (u32, u32),
        /// The smallest ratio that this exposure could tell from 1.
        smallest_detectable: f64,
    },
    /// Of [`Question::Interference`].
    Interference {
        /// The idle record.
        idle: String,
        /// Each compared quantile (0 to 1) with the ratio loaded ÷ idle.
        factors: Vec<(f64, Interval)>,
        /// Up to this factor the wall counts as holding.
        tolerance: f64,
        /// Blocks compared on each side.
        blocks: (u32, u32),
    },
}

/// One answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Verdict {
    /// `QUESTION/DOMAIN/METER/CONDITION`, unique in its evaluation.
    pub id: String,
    /// What was asked.
    pub question: Question,
    /// Of which domain.
    pub domain: String,
    /// By which meter.
    pub meter: MeterKind,
    /// Under which condition.
    pub condition: Condition,
    /// The answer.
    pub outcome: VerdictOutcome,
    /// The answer in a sentence, with its figures.
    pub statement: String,
    /// The figures; none where nothing valid was measured.
    pub figures: Option<VerdictFigures>,
    /// What it rests on.
    pub exposure: Exposure,
    /// The records it was drawn from.
    pub records: Vec<String>,
}
