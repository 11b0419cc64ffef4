// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compares two records: ratios of quantiles with their intervals, and the resulting verdicts.
//!
//! The logarithm of a ratio is a difference of two independent estimates, whose variances
//! ([`crate::spread`]) add. Its interval is Welch's (B. L. Welch, Biometrika 34, 1947) with
//! Satterthwaite's degrees of freedom. It is valid for as few as two runs on each side, unlike
//! percentiles of a bootstrap.

use rampart_model::{Distribution, Interval, SAMPLES_BEYOND, VerdictOutcome};

use crate::spread::{Resampling, Sampled, Spread};
use crate::student::student_quantile;

/// Largest ratio domain ÷ host at which two records count as the same. It is the upper limit for
/// equivalent medicines (ratios of 0.80 to 1.25); a deadline only needs the upper side.
pub const SAME_AS_HOST_TOLERANCE: f64 = 1.25;

/// Largest factor loaded ÷ idle at which an isolation holds. It is wider than
/// [`SAME_AS_HOST_TOLERANCE`], because a load also changes the clock frequency and idle states of
/// CPUs that share nothing else with it.
pub const INTERFERENCE_TOLERANCE: f64 = 1.5;

/// The default quantiles to compare: the median, and the tail as far as a few minutes at 1 kHz show
/// it.
pub const QUANTILES: [f64; 3] = [0.5, 0.99, 0.999];

/// A quantile is reported only if at least this many samples are expected on either side of it.
const FEWEST_BEYOND: f64 = SAMPLES_BEYOND as f64;
/// The verdict "holds" requires a quantile at least this high (or the highest requested one).
const TAIL: f64 = 0.99;
/// Probability that a verdict wrongly reports any quantile as worse, or that it misses one.
const FAMILY_ERROR: f64 = 0.05;
/// Probability of detecting the smallest detectable ratio.
pub(crate) const POWER: f64 = 0.8;
/// Ratios are limited to this and its inverse, so that they stay finite.
pub(crate) const LARGEST_LN_RATIO: f64 = 27.6;

/// The level of data on which intervals rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Basis {
    /// At least two runs on both sides: the intervals include how runs differ.
    Runs,
    /// A single run on at least one side: it is unknown how runs differ, so the outcome is always
    /// [`VerdictOutcome::Inconclusive`].
    SingleRun,
}

/// Ratios of several quantiles, before the outcome is derived.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Ratios {
    /// Each compared quantile (0 to 1, rising) with the ratio.
    pub ratios: Vec<(f64, Interval)>,
    /// The level of data on which the intervals rest.
    pub basis: Basis,
    /// The largest of the ratios that are each detected with a probability of 80 %: a change of any
    /// of the quantiles by this factor would probably have been detected.
    pub smallest_detectable: f64,
}

/// The result of a comparison of a domain with the host.
#[derive(Debug, Clone, PartialEq)]
pub struct SameAs {
    /// Each compared quantile (0 to 1, rising) with the ratio domain ÷ host.
    pub ratios: Vec<(f64, Interval)>,
    /// [`VerdictOutcome::Holds`], [`VerdictOutcome::Fails`] or [`VerdictOutcome::Inconclusive`].
    pub outcome: VerdictOutcome,
    /// The largest of the ratios that are each detected with a probability of 80 %.
    pub smallest_detectable: f64,
    /// The level of data on which the intervals rest.
    pub basis: Basis,
}

/// The interference factors of a load.
#[derive(Debug, Clone, PartialEq)]
pub struct Factors {
    /// Each compared quantile (0 to 1, rising) with the ratio loaded ÷ idle.
    pub factors: Vec<(f64, Interval)>,
    /// [`VerdictOutcome::Holds`], [`VerdictOutcome::Leaks`] or [`VerdictOutcome::Inconclusive`].
    pub outcome: VerdictOutcome,
    /// The largest of the ratios that are each detected with a probability of 80 %.
    pub smallest_detectable: f64,
    /// The level of data on which the intervals rest.
    pub basis: Basis,
}

/// Returns the `candidates` for which `samples` are enough: at least ten samples are expected above
/// and below them. Ascending, without duplicates.
#[must_use]
pub fn reportable_quantiles(samples: u64, candidates: &[f64]) -> Vec<f64> {
    let mut quantiles: Vec<f64> = candidates
        .iter()
        .copied()
        .filter(|quantile| {
            // The tolerance of a millionth of a sample allows for the rounding of 1 − 0.999.
            samples as f64 * quantile.min(1.0 - quantile) >= FEWEST_BEYOND - 1e-6
        })
        .collect();
    quantiles.sort_by(f64::total_cmp);
    quantiles.dedup();
    quantiles
}

/// Returns the ratio of one quantile (0 to 1) of two records, with its two-sided interval.
///
/// Each record is a list of runs, each run a list of batches in chronological order. Returns `None`
/// if a side has neither two runs nor one run of four batches, or if `confidence` is not between 0
/// and 1. Quantiles shorter than 1 ns count as 1 ns.
#[must_use]
pub fn quantile_ratio(
    numerator: &[Vec<Distribution>],
    denominator: &[Vec<Distribution>],
    quantile: f64,
    confidence: f64,
    options: &Resampling,
) -> Option<Interval> {
    let in_range = (0.0..=1.0).contains(&quantile) && confidence > 0.0 && confidence < 1.0;
    let (numerator, denominator) = (Sampled::new(numerator)?, Sampled::new(denominator)?);
    in_range.then(|| ratio(&numerator, &denominator, quantile, confidence, options).0)
}

/// Returns the ratio with its interval, and the ln of the smallest detectable ratio.
fn ratio(
    numerator: &Sampled,
    denominator: &Sampled,
    quantile: f64,
    confidence: f64,
    options: &Resampling,
) -> (Interval, f64) {
    let (above, below) = (
        numerator.spread(quantile, options),
        denominator.spread(quantile, options),
    );
    let error = (above.ln_variance + below.ln_variance).sqrt();
    let freedom = welch_freedom(&above, &below);
    let rounding = above.ln_rounding + below.ln_rounding;
    let margin = student_quantile(0.5 + confidence / 2.0, freedom) * error + rounding;
    let middle = above.ln_value - below.ln_value;
    let number = |ln: f64| ln.clamp(-LARGEST_LN_RATIO, LARGEST_LN_RATIO).exp();
    let interval = Interval {
        estimate: number(middle),
        low: number(middle - margin),
        high: number(middle + margin),
        confidence,
    };
    (interval, margin + student_quantile(POWER, freedom) * error)
}

/// Returns Satterthwaite's degrees of freedom of a sum of two variances.
pub(crate) fn welch_freedom(a: &Spread, b: &Spread) -> f64 {
    let (va, vb) = (a.ln_variance, b.ln_variance);
    let sum = va + vb;
    // Divide by the larger one first, so that tiny variances do not underflow when squared.
    if sum > 0.0 {
        1.0 / ((va / sum).powi(2) / a.freedom + (vb / sum).powi(2) / b.freedom)
    } else {
        a.freedom + b.freedom
    }
}

/// Returns the ratios of all `quantiles` for which both sides have enough samples. The confidence
/// is chosen so that all intervals together are wrong upwards in at most 5 %, and downwards in at
/// most 5 % (Bonferroni), and is at least 95 %. Returns `None` if nothing can be compared.
fn ratios(
    numerator: &[Vec<Distribution>],
    denominator: &[Vec<Distribution>],
    quantiles: &[f64],
    options: &Resampling,
) -> Option<Ratios> {
    let samples = |runs: &[Vec<Distribution>]| -> u64 {
        runs.iter().flatten().map(|batch| batch.samples).sum()
    };
    let fewer = samples(numerator).min(samples(denominator));
    let quantiles = reportable_quantiles(fewer, quantiles);
    if quantiles.is_empty() {
        return None;
    }
    let (numerator, denominator) = (Sampled::new(numerator)?, Sampled::new(denominator)?);
    let confidence = (1.0 - 2.0 * FAMILY_ERROR / quantiles.len() as f64).max(0.95);
    let mut detectable: f64 = 0.0;
    let ratios = quantiles
        .into_iter()
        .map(|quantile| {
            let (interval, smallest) =
                ratio(&numerator, &denominator, quantile, confidence, options);
            detectable = detectable.max(smallest);
            (quantile, interval)
        })
        .collect();
    Some(Ratios {
        ratios,
        basis: if numerator.has_runs() && denominator.has_runs() {
            Basis::Runs
        } else {
            Basis::SingleRun
        },
        smallest_detectable: detectable.min(LARGEST_LN_RATIO).exp(),
    })
}

/// Returns the outcome: `worse` if one interval is above the tolerance; "holds" if all are at most
/// the tolerance and include a tail quantile.
fn outcome(
    ratios: &Ratios,
    asked: &[f64],
    tolerance: f64,
    worse: VerdictOutcome,
) -> VerdictOutcome {
    let highest_asked = asked.iter().copied().fold(0.0, f64::max);
    let reaches_tail = ratios
        .ratios
        .iter()
        .any(|(quantile, _)| *quantile >= TAIL.min(highest_asked));
    let mut intervals = ratios.ratios.iter().map(|(_, interval)| interval);
    if ratios.basis == Basis::SingleRun {
        VerdictOutcome::Inconclusive
    } else if intervals.clone().any(|interval| interval.low > tolerance) {
        worse
    } else if reaches_tail && intervals.all(|interval| interval.high <= tolerance) {
        VerdictOutcome::Holds
    } else {
        VerdictOutcome::Inconclusive
    }
}

/// Judges whether the domain is as good as the host, that is not worse, by the ratios domain ÷ host
/// of the `quantiles` for which both sides have enough samples ([`reportable_quantiles`]).
///
/// The outcome is [`VerdictOutcome::Holds`] if every interval ends at or below `tolerance` (a ratio
/// such as [`SAME_AS_HOST_TOLERANCE`]), and [`VerdictOutcome::Fails`] if one begins above it. It is
/// [`VerdictOutcome::Inconclusive`] otherwise, with a single run on either side, and if a quantile
/// of 0.99 or more was requested but none could be compared. Returns `None` if nothing can be
/// compared.
#[must_use]
pub fn same_as(
    domain: &[Vec<Distribution>],
    host: &[Vec<Distribution>],
    quantiles: &[f64],
    tolerance: f64,
    options: &Resampling,
) -> Option<SameAs> {
    let found = ratios(domain, host, quantiles, options)?;
    Some(SameAs {
        outcome: outcome(&found, quantiles, tolerance, VerdictOutcome::Fails),
        ratios: found.ratios,
        smallest_detectable: found.smallest_detectable,
        basis: found.basis,
    })
}

/// Judges the interference factor of a load like [`same_as`], by the ratio loaded ÷ idle of one
/// domain. The outcome is [`VerdictOutcome::Leaks`] if a factor is above `tolerance` (such as
/// [`INTERFERENCE_TOLERANCE`]).
#[must_use]
pub fn interference(
    loaded: &[Vec<Distribution>],
    idle: &[Vec<Distribution>],
    quantiles: &[f64],
    tolerance: f64,
    options: &Resampling,
) -> Option<Factors> {
    let found = ratios(loaded, idle, quantiles, options)?;
    Some(Factors {
        outcome: outcome(&found, quantiles, tolerance, VerdictOutcome::Leaks),
        factors: found.ratios,
        smallest_detectable: found.smallest_detectable,
        basis: found.basis,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_need_ten_samples_beyond_them() {
        assert_eq!(reportable_quantiles(9_999, &QUANTILES), [0.5, 0.99]);
        assert_eq!(reportable_quantiles(10_000, &QUANTILES), QUANTILES);
        assert!(reportable_quantiles(19, &QUANTILES).is_empty());
        assert_eq!(
            reportable_quantiles(1_000, &[0.99, 0.5, 0.5, 1.0, 0.0, f64::NAN, -1.0]),
            [0.5, 0.99]
        );
    }

    #[test]
    fn only_equal_variances_add_their_degrees_of_freedom() {
        let spread = |ln_variance, freedom| Spread {
            ln_value: 0.0,
            ln_variance,
            ln_rounding: 0.0,
            freedom,
        };
        assert!((welch_freedom(&spread(1e-200, 3.0), &spread(1e-200, 3.0)) - 6.0).abs() < 1e-12);
        assert!((welch_freedom(&spread(1.0, 3.0), &spread(0.0, 5.0)) - 3.0).abs() < 1e-12);
        assert_eq!(welch_freedom(&spread(0.0, 3.0), &spread(0.0, 5.0)), 8.0);
    }
}
