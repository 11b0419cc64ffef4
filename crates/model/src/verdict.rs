// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Verdicts: answers with their figures and the exposure they rest on.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{BlockKind, Condition, Disturbance, Exposure, MeterKind, Nanos, SignedNanos};

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
    /// Does a block of another domain's CPUs, or of the CPUs under a domain, cross the wall?
    Transfer,
    /// Does it outlive a crash of its host?
    Crash,
}

impl Question {
    /// The word for it, with which the ids of its verdicts begin.
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

    /// The id of the verdict on this question: about which domain, by which meter, and under what,
    /// a condition or a disturbance.
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
    /// At most this part of all blocks crosses so far, one-sided, at the confidence of the
    /// transfer's interval (Clopper and Pearson 1934).
    pub at_most: f64,
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
        /// Batches compared on each side.
        batches: (u32, u32),
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
        /// Batches compared on each side.
        batches: (u32, u32),
    },
    /// Of [`Question::Transfer`].
    Transfer {
        /// Median excess divided by the length of the block: 0 if nothing crosses, 1 if all does.
        transfer: Interval,
        /// Chance of so large a difference if blocks made none (one-sided permutation test).
        p_value: f64,
        /// Median of the worst latencies of windows with a block minus that of windows without.
        excess: SignedNanos,
        /// What made the blocks.
        kind: BlockKind,
        /// Median length of the blocks as they were made.
        length: Nanos,
        /// Number of windows with a block.
        with_block: u32,
        /// Number of windows without a block.
        without_block: u32,
        /// Up to this transfer the wall counts as holding.
        tolerance: f64,
        /// How many of the blocks crossed, by a count.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        crossed: Option<Crossed>,
    },
    /// Of [`Question::Crash`].
    Crash {
        /// How long it went on measuring after the crash; negative is before it.
        lived: SignedNanos,
        /// How far from the truth that may be.
        uncertainty: Nanos,
        /// For how long signs of life were waited for.
        observed: Nanos,
    },
}

/// One answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Verdict {
    /// `QUESTION/DOMAIN/METER/CONDITION`, or `QUESTION/DOMAIN/METER/DISTURBANCE`, unique in its evaluation.
    pub id: String,
    /// What was asked.
    pub question: Question,
    /// Of which domain.
    pub domain: String,
    /// By which meter.
    pub meter: MeterKind,
    /// Under which condition.
    pub condition: Condition,
    /// What was done to which domain meanwhile; none outside of transfers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disturbance: Option<Disturbance>,
    /// The answer.
    pub outcome: VerdictOutcome,
    /// The answer in a sentence, with its figures.
    pub statement: String,
    /// The figures; none where nothing valid was measured.
    pub figures: Option<VerdictFigures>,
    /// What it rests on.
    pub exposure: Exposure,
    /// The records, or transfer records, it was drawn from.
    pub records: Vec<String>,
}
