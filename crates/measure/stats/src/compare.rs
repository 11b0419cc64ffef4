// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compares two records by questions that are fixed before anything is measured. Each question has
//! its own outcome, and more data never add a question to those that decide.

use std::collections::BTreeMap;

use rampart_model::{Nanos, VerdictOutcome};

use crate::paired::{Estimate, Paired, QuantileRatio, groups_of, jackknife_error};
use crate::rates::{self, Events, RateRatio, StallLength};
use crate::risk::Risk;
use crate::student::student_quantile;
use crate::visit::{Slice, Visit, by_number, groups, neighbours};

/// Largest ratio domain ÷ host at which two records count as the same. It is the upper limit for
/// equivalent medicines (ratios of 0.80 to 1.25); a deadline only needs the upper side.
pub const SAME_AS_HOST_TOLERANCE: f64 = 1.25;

/// Largest factor loaded ÷ idle at which an isolation holds. It is wider than
/// [`SAME_AS_HOST_TOLERANCE`], because a load also changes the clock frequency and idle states of
/// CPUs that share nothing else with it.
pub const INTERFERENCE_TOLERANCE: f64 = 1.5;

/// The compared quantiles: the typical latency and the tail. What is rarer is a question of stalls.
pub const QUANTILES: [f64; 2] = [0.5, 0.99];

/// Stolen time that grows by at most this part of the time counts as unchanged.
pub const ADDED_STOLEN: f64 = 1e-3;

/// The bound on stolen time covers bursts that were not seen if each takes at most this time.
/// Longer ones are a question of rates above lengths.
pub const LONGEST_UNSEEN: Nanos = Nanos::from_millis(1);

/// Probability of detecting the smallest detectable ratio.
const POWER: f64 = 0.8;

/// The questions of a comparison, fixed before the measurement.
#[derive(Debug, Clone, PartialEq)]
pub struct Questions {
    /// Whether to compare quantiles: not for meters whose samples are only the disturbances.
    pub quantiles: bool,
    /// Whether to compare the sum of all samples with the time.
    pub stolen: bool,
    /// Lengths above which a sample counts as a stall, ascending.
    pub lengths: Vec<StallLength>,
    /// The largest ratio that counts as the same.
    pub tolerance: f64,
    /// The outcome of a larger ratio.
    pub alarm: VerdictOutcome,
    /// The probabilities of error.
    pub risk: Risk,
}

impl Questions {
    /// Returns the number of questions.
    #[must_use]
    pub fn count(quantiles: bool, stolen: bool, lengths: usize) -> u32 {
        let quantiles = if quantiles { QUANTILES.len() } else { 0 };
        u32::try_from(quantiles + usize::from(stolen) + lengths).unwrap_or(u32::MAX)
    }
}

/// The part of the time that disturbances took.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StolenShare {
    /// The shares of both sides (0 to 1).
    pub shares: (f64, f64),
    /// The first share exceeds the second by at most this, one-sided. Bursts that were not seen
    /// are included up to [`Self::unseen_up_to`] each.
    pub added_at_most: f64,
    /// The longest burst that was not seen for which the bound is valid: [`LONGEST_UNSEEN`].
    pub unseen_up_to: Nanos,
    /// The outcome of this question.
    pub outcome: VerdictOutcome,
}

/// The answers of a comparison.
#[derive(Debug, Clone, PartialEq)]
pub struct Compared {
    /// The answers on [`QUANTILES`].
    pub quantiles: Vec<QuantileRatio>,
    /// The answers on stalls, by length.
    pub stalls: Vec<(StallLength, RateRatio)>,
    /// The answer on stolen time, if it was asked.
    pub stolen: Option<StolenShare>,
    /// An alarm if any deciding answer is one, "holds" if all hold, otherwise inconclusive.
    pub outcome: VerdictOutcome,
    /// The number of visits on each side.
    pub visits: (u32, u32),
    /// The largest of the ratios of deciding quantiles that are each detected with a probability of
    /// 80 %; `None` if it is unknown.
    pub smallest_detectable: Option<f64>,
}

/// Compares two records. Returns `None` if a side has no sample and no time.
#[must_use]
pub fn compare(above: &[Visit], below: &[Visit], questions: &Questions) -> Option<Compared> {
    let Questions {
        tolerance,
        alarm,
        risk,
        ..
    } = questions;
    let (above, below) = neighbours(above, below);
    let (above, below) = (&*above, &*below);
    let (one, other) = (by_number(above), by_number(below));
    if one.is_empty() || other.is_empty() {
        return None;
    }
    let paired = questions
        .quantiles
        .then(|| Paired::new(above, below))
        .flatten();
    let mut quantiles = Vec::new();
    let mut detectable: Option<f64> = None;
    if questions.quantiles {
        let paired = paired.as_ref()?;
        for quantile in QUANTILES {
            quantiles.push(paired.judge(quantile, *tolerance, *alarm, risk));
            let smallest = paired.estimate(quantile).map(|of| smallest(&of, risk));
            detectable = [detectable, smallest]
                .into_iter()
                .flatten()
                .reduce(f64::max);
        }
    }
    let stalls: Vec<(StallLength, RateRatio)> = questions
        .lengths
        .iter()
        .map(|length| {
            let events = |side: &BTreeMap<u32, Slice>| {
                Events::new(
                    side.values()
                        .map(|slice| (slice.seen.count_above(length.over), slice.observed)),
                )
            };
            let tolerated = (*tolerance, length.tolerated);
            let found = rates::compare(&events(&one), &events(&other), tolerated, *alarm, risk);
            (*length, found)
        })
        .collect();
    let stolen = questions
        .stolen
        .then(|| stolen(&one, &other, &groups(above, below), questions));
    let answers: Vec<VerdictOutcome> = quantiles
        .iter()
        .map(|answer| answer.outcome)
        .chain(stalls.iter().map(|(_, answer)| answer.outcome))
        .chain(stolen.iter().map(|answer| answer.outcome))
        .collect();
    let outcome = if answers.contains(alarm) {
        *alarm
    } else if answers
        .iter()
        .all(|answer| *answer == VerdictOutcome::Holds)
    {
        VerdictOutcome::Holds
    } else {
        VerdictOutcome::Inconclusive
    };
    let count = |side: &BTreeMap<u32, Slice>| u32::try_from(side.len()).unwrap_or(u32::MAX);
    Some(Compared {
        quantiles,
        stalls,
        stolen,
        outcome,
        visits: (count(&one), count(&other)),
        smallest_detectable: detectable.filter(|ratio| *ratio < 100.0),
    })
}

/// Returns the ratio that is detected with a probability of 80 %.
fn smallest(of: &Estimate, risk: &Risk) -> f64 {
    let beyond =
        student_quantile(1.0 - risk.hold, of.freedom) + student_quantile(POWER, of.freedom);
    (beyond * of.error + of.rounding).exp()
}

/// Returns the sum of all samples of a slice.
fn sum(slice: &Slice) -> f64 {
    let mean = slice.seen.mean().unwrap_or_default();
    mean.0 as f64 * slice.seen.samples as f64
}

/// Returns the share of the time that all samples took, without the visits of these numbers.
fn share(side: &BTreeMap<u32, Slice>, without: &[u32]) -> f64 {
    let left = || {
        side.iter()
            .filter(|(own, _)| !without.contains(own))
            .map(|(_, slice)| slice)
    };
    let time: f64 = left().map(|slice| slice.observed.0 as f64).sum();
    left().map(sum).sum::<f64>() / time.max(1.0)
}

fn stolen(
    one: &BTreeMap<u32, Slice>,
    other: &BTreeMap<u32, Slice>,
    groups: &[Vec<u32>],
    questions: &Questions,
) -> StolenShare {
    let Questions {
        tolerance,
        alarm,
        risk,
        ..
    } = questions;
    let shares = (share(one, &[]), share(other, &[]));
    let fewest = groups_of(groups, one).min(groups_of(groups, other));
    // The excess over what the tolerance allows; negative if the share is within it.
    let excess = |tolerance: f64| {
        let of = |without: &[u32]| share(one, without) - tolerance * share(other, without);
        let left: Vec<f64> = groups.iter().map(|group| of(group)).collect();
        (of(&[]), jackknife_error(&left))
    };
    let margin = |risk: f64, error: f64| {
        if fewest < 2 {
            f64::INFINITY
        } else {
            student_quantile(1.0 - risk, fewest as f64 - 1.0) * error
        }
    };
    // The spread between visits shows nothing of bursts that no visit has. At least one was seen
    // with a probability of 1 − `risk.hold` if they come at this rate or more often.
    let time: f64 = one.values().map(|slice| slice.observed.as_secs_f64()).sum();
    let unseen =
        rates::poisson_upper(0.0, risk.hold) / time.max(1e-12) * LONGEST_UNSEEN.as_secs_f64();
    let (added, added_error) = excess(1.0);
    let (beyond, beyond_error) = excess(*tolerance);
    let added_at_most = added + margin(risk.hold, added_error) + unseen;
    let outcome = if beyond - margin(risk.alarm, beyond_error) > 0.0
        && added - margin(risk.alarm, added_error) > ADDED_STOLEN
    {
        *alarm
    } else if added_at_most <= ADDED_STOLEN
        || beyond + margin(risk.hold, beyond_error) + unseen <= 0.0
    {
        VerdictOutcome::Holds
    } else {
        VerdictOutcome::Inconclusive
    };
    StolenShare {
        shares,
        added_at_most,
        unseen_up_to: LONGEST_UNSEEN,
        outcome,
    }
}
