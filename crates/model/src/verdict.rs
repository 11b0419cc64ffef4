// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Verdicts: answers with their figures and their exposure.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{
    BlockKind, Condition, Disturbance, Exposure, MeterKind, Nanos, SignedNanos, quantile_name,
};

/// The question of a verdict.
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
    /// Does the load of a co-located workload affect the domain?
    Interference,
    /// Does a block of another domain's CPUs, or of the CPUs under the domain, affect the domain?
    Transfer,
    /// Does it survive a crash of its host?
    Crash,
}

impl Question {
    /// Returns its name, with which the ids of its verdicts start.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Deadline => "deadline",
            Self::SameAsHost => "same-as-host",
            Self::Interference => "interference",
            Self::Transfer => "transfer",
            Self::Crash => "crash",
        }
    }

    /// Returns the id of the verdict on this question for a domain, a meter, and a condition or a
    /// disturbance.
    #[must_use]
    pub fn id(self, domain: &str, meter: MeterKind, under: &impl fmt::Display) -> String {
        format!("{}/{domain}/{meter}/{under}", self.word())
    }
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
    /// The deadline or the isolation holds as far as the exposure shows.
    Holds,
    /// A disturbance reaches the domain: it is not isolated.
    Leaks,
    /// The deadline was missed, or the latency is worse than on the host.
    Fails,
    /// There is not enough data.
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

/// The number of windows with and without a block that are late by a part of a block.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Crossed {
    /// The part of a block.
    pub level: f64,
    /// Number of windows with a block.
    pub with_block: u32,
    /// Number of windows without a block.
    pub without_block: u32,
    /// Upper bound of the part of all blocks that cross, one-sided, at the confidence of the
    /// transfer's interval (Clopper and Pearson 1934).
    pub at_most: f64,
}

/// The answer on one quantile of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct QuantileAnswer {
    /// The quantile (0 to 1).
    pub quantile: f64,
    /// The answer on this quantile alone.
    pub outcome: VerdictOutcome,
}

/// The answer on samples above a length: stalls, or gaps.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct StallAnswer {
    /// The length.
    pub over: Nanos,
    /// Samples above it, of the domain and of what it is compared with. A stall of many periods is
    /// one sample.
    pub events: (u64, u64),
    /// Observed time of both, summed over CPUs.
    pub observed: (Nanos, Nanos),
    /// The domain has at most this many more per second, one-sided.
    pub added_at_most: f64,
    /// So many more per second are tolerated, whatever the ratio.
    pub tolerated: f64,
    /// Whether the domain is shown to have fewer, by more than the tolerance of the comparison.
    pub fewer: bool,
    /// Confidence of that bound.
    pub confidence: f64,
    /// The answer on this length alone.
    pub outcome: VerdictOutcome,
}

/// The answer on the part of the time that disturbances took.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct StolenAnswer {
    /// The share of the time (0 to 1) of the domain and of what it is compared with.
    pub shares: (f64, f64),
    /// The share of the domain is larger by at most this, one-sided; `None` if it is unknown.
    pub added_at_most: Option<f64>,
    /// Confidence of that bound.
    pub confidence: f64,
    /// The answer on stolen time alone.
    pub outcome: VerdictOutcome,
}

/// The answers of a comparison, each on a question that was fixed before the measurement.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Answers {
    /// On quantiles; their ratios are in the figures of the verdict. Empty for meters whose samples
    /// are only the disturbances.
    pub quantiles: Vec<QuantileAnswer>,
    /// On stalls, by length.
    pub stalls: Vec<StallAnswer>,
    /// On stolen time, for meters that observe it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stolen: Option<StolenAnswer>,
    /// Visits of both sides on which the intervals rest.
    pub visits: (u32, u32),
    /// Measurements without the load that are not compared, because other programs used the CPUs; absent
    /// if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_out: Option<OtherPrograms>,
    /// Measurements without the load that are compared although other programs used the CPUs: the answers
    /// are on what the load adds to these programs. Absent if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beside: Option<OtherPrograms>,
}

/// Programs of others that used the CPUs during measurements without a load.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct OtherPrograms {
    /// Number of these measurements.
    pub measurements: u32,
    /// Number of valid measurements without the load.
    pub of: u32,
    /// The programs, and the CPU time that they used.
    pub programs: String,
}

impl Answers {
    /// Returns the subject of each answer, `p50`, `p99`, `stalls` or `stolen time`, and the answer.
    #[must_use]
    pub fn by_subject(&self) -> Vec<(String, VerdictOutcome)> {
        let quantiles = self.quantiles.iter();
        let quantiles = quantiles.map(|one| (quantile_name(one.quantile), one.outcome));
        let stalls = self.stalls.iter();
        let stalls = stalls.map(|one| ("stalls".to_owned(), one.outcome));
        let stolen = self.stolen.iter();
        let stolen = stolen.map(|one| ("stolen time".to_owned(), one.outcome));
        quantiles.chain(stalls).chain(stolen).collect()
    }

    /// Returns the answer on a quantile, if it was asked.
    #[must_use]
    pub fn on_quantile(&self, quantile: f64) -> Option<VerdictOutcome> {
        let asked = |one: &&QuantileAnswer| (one.quantile - quantile).abs() < 1e-9;
        self.quantiles.iter().find(asked).map(|one| one.outcome)
    }

    /// Makes the answers with this outcome inconclusive.
    pub fn withdraw(&mut self, outcome: VerdictOutcome) {
        let quantiles = self.quantiles.iter_mut().map(|answer| &mut answer.outcome);
        let stalls = self.stalls.iter_mut().map(|answer| &mut answer.outcome);
        let stolen = self.stolen.iter_mut().map(|answer| &mut answer.outcome);
        for answer in quantiles.chain(stalls).chain(stolen) {
            if *answer == outcome {
                *answer = VerdictOutcome::Inconclusive;
            }
        }
    }
}

/// The figures behind a verdict.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum VerdictFigures {
    /// Figures of [`Question::Deadline`].
    Deadline {
        /// The limit.
        deadline: Nanos,
        /// Cycles: samples and missed periods.
        cycles: u64,
        /// Samples over the deadline, and missed periods whose corrected lateness is over it
        /// (the latter by bucket, within a thousandth of the deadline).
        exceedances: u64,
        /// Visits with an exceedance, and all visits; `None` in documents of older versions.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        visits: Option<(u32, u32)>,
        /// Exact upper bound of the probability that a visit has an exceedance (Clopper and Pearson
        /// 1934); without `visits`, that a cycle is one.
        upper_bound: f64,
        /// Confidence of the bounds, one-sided.
        confidence: f64,
        /// Bursts of exceedances are at least this far apart on average, at the same confidence;
        /// `None` if every visit may have one.
        time_between_violations: Option<Nanos>,
        /// The worst sample.
        max: Nanos,
    },
    /// Figures of [`Question::SameAsHost`].
    SameAsHost {
        /// The record of the host that it was compared with.
        host: String,
        /// Each compared quantile (0 to 1) with the ratio domain ÷ host, if it has an interval.
        ratios: Vec<(f64, Interval)>,
        /// Maximum ratio at which two records count as the same.
        tolerance: f64,
        /// Batches compared on each side.
        batches: (u32, u32),
        /// The smallest ratio that this exposure can distinguish from 1; `None` if it is unknown.
        smallest_detectable: Option<f64>,
        /// The answer on each question; `None` in documents of older versions.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        answers: Option<Answers>,
    },
    /// Figures of [`Question::Interference`].
    Interference {
        /// The idle record.
        idle: String,
        /// Each compared quantile (0 to 1) with the ratio loaded ÷ idle, if it has an interval.
        factors: Vec<(f64, Interval)>,
        /// Maximum factor at which the domain counts as isolated.
        tolerance: f64,
        /// Batches compared on each side.
        batches: (u32, u32),
        /// The answer on each question; `None` in documents of older versions.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        answers: Option<Answers>,
    },
    /// Figures of [`Question::Transfer`].
    Transfer {
        /// Median excess divided by the length of the block: 0 if nothing crosses, 1 if all does.
        transfer: Interval,
        /// Probability of at least this difference if blocks have no effect (one-sided permutation
        /// test).
        p_value: f64,
        /// Median of the worst latencies of windows with a block minus that of windows without.
        excess: SignedNanos,
        /// The kind of the blocks.
        kind: BlockKind,
        /// Median length of the blocks that were made.
        length: Nanos,
        /// Number of windows with a block.
        with_block: u32,
        /// Number of windows without a block.
        without_block: u32,
        /// Maximum transfer at which the domain counts as isolated.
        tolerance: f64,
        /// Number of windows with crossing blocks.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        crossed: Option<Crossed>,
    },
    /// Figures of [`Question::Crash`].
    Crash {
        /// Time that it continued to measure after the crash; negative is before it.
        lived: SignedNanos,
        /// Uncertainty of that time.
        uncertainty: Nanos,
        /// Time that signs of life were observed.
        observed: Nanos,
    },
}

impl VerdictFigures {
    /// Returns the answers of a comparison.
    #[must_use]
    pub const fn answers(&self) -> Option<&Answers> {
        match self {
            Self::SameAsHost { answers, .. } | Self::Interference { answers, .. } => {
                answers.as_ref()
            }
            _ => None,
        }
    }

    /// Returns the answers of a comparison.
    pub const fn answers_mut(&mut self) -> Option<&mut Answers> {
        match self {
            Self::SameAsHost { answers, .. } | Self::Interference { answers, .. } => {
                answers.as_mut()
            }
            _ => None,
        }
    }
}

/// One answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Verdict {
    /// `QUESTION/DOMAIN/METER/CONDITION`, or `QUESTION/DOMAIN/METER/DISTURBANCE`, unique in its evaluation.
    pub id: String,
    /// The question.
    pub question: Question,
    /// The domain.
    pub domain: String,
    /// The meter.
    pub meter: MeterKind,
    /// The condition.
    pub condition: Condition,
    /// The disturbance; `None` except for transfers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disturbance: Option<Disturbance>,
    /// The answer.
    pub outcome: VerdictOutcome,
    /// The answer in a sentence, with its figures.
    pub statement: String,
    /// The figures; `None` without valid measurements.
    pub figures: Option<VerdictFigures>,
    /// Its exposure.
    pub exposure: Exposure,
    /// The records, or transfer records, behind it.
    pub records: Vec<String>,
}

impl Verdict {
    /// Returns the programs of others that used the CPUs with and without the load, if the verdict is on
    /// what the load adds to them.
    #[must_use]
    pub fn beside(&self) -> Option<&OtherPrograms> {
        let answers = self.figures.as_ref().and_then(VerdictFigures::answers);
        answers?.beside.as_ref()
    }
}
