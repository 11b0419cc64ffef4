// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The effect of a change that is repeatedly made and reverted: ratios of quantiles with and
//! without it, each with a p-value, and a correction for many comparisons.

use rampart_model::{Distribution, Interval, SAMPLES_BEYOND};

use crate::spread::{Resampling, Sampled, Spread};
use crate::student::{student_quantile, student_two_sided};

/// Largest adjusted p-value of a difference: in at most this part of evaluations, any comparison of
/// a family is wrongly reported as a difference.
pub const EFFECT_RISK: f64 = 0.05;

/// A quantile counts as the same within this ratio and its inverse: the limits for equivalent
/// medicines.
pub const EFFECT_TOLERANCE: f64 = 1.25;

/// The value that represents the worst of a run among quantiles.
pub const WORST_OF_RUN: f64 = 1.0;

/// The quantiles to compare: the median, and the tail as far as a few minutes at 1 kHz show it.
pub const EFFECT_QUANTILES: [f64; 3] = [0.5, 0.99, 0.999];

/// Confidence of a single interval.
const CONFIDENCE: f64 = 0.95;
/// A quantile is reported only if at least this many samples are expected on either side of it.
const FEWEST_BEYOND: f64 = SAMPLES_BEYOND as f64;
/// Probability of detecting the smallest detectable ratio.
const POWER: f64 = 0.8;
/// Ratios are limited to this and its inverse, so that they stay finite.
const LARGEST_LN_RATIO: f64 = 27.6;

/// The level of data on which intervals rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Basis {
    /// At least two runs on both sides: the intervals include how runs differ.
    Runs,
    /// A single run on at least one side: it is unknown how runs differ, so the outcome is always
    /// inconclusive.
    SingleRun,
}

/// One ratio with ÷ without.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RatioWith {
    /// The quantile, or [`WORST_OF_RUN`].
    pub quantile: f64,
    /// The ratio with its two-sided 95 % interval, for this ratio alone.
    pub ratio: Interval,
    /// Probability of a difference at least this large without an effect: two-sided, unadjusted.
    pub p_value: f64,
}

/// The comparison of two records.
#[derive(Debug, Clone, PartialEq)]
pub struct Effect {
    /// Ratios by ascending quantile. The worst of a run is last, if there are two runs on each
    /// side.
    pub ratios: Vec<RatioWith>,
    /// The level of data on which the intervals rest.
    pub basis: Basis,
    /// The largest ratio, over quantiles below 1, that is detected with a probability of 80 %.
    pub smallest_detectable: f64,
}

/// Returns the effect on the `quantiles` for which both sides have enough samples, and on the worst
/// of a run. Each side is a list of runs, each run a list of batches in chronological order.
/// Returns `None` if nothing can be compared.
#[must_use]
pub fn effect(
    with: &[Vec<Distribution>],
    without: &[Vec<Distribution>],
    quantiles: &[f64],
    options: &Resampling,
) -> Option<Effect> {
    let samples = |runs: &[Vec<Distribution>]| -> u64 {
        runs.iter().flatten().map(|batch| batch.samples).sum()
    };
    let quantiles = reportable_quantiles(samples(with).min(samples(without)), quantiles);
    if quantiles.is_empty() {
        return None;
    }
    let (sampled_with, sampled_without) = (Sampled::new(with)?, Sampled::new(without)?);
    let mut detectable: f64 = 0.0;
    let mut ratios: Vec<RatioWith> = quantiles
        .into_iter()
        .map(|quantile| {
            let above = sampled_with.spread(quantile, options);
            let below = sampled_without.spread(quantile, options);
            let (ratio, smallest) = ratio(quantile, &above, &below);
            detectable = detectable.max(smallest);
            ratio
        })
        .collect();
    let basis = if sampled_with.has_runs() && sampled_without.has_runs() {
        Basis::Runs
    } else {
        Basis::SingleRun
    };
    if let (Some(above), Some(below)) = (worst_of_run(with), worst_of_run(without)) {
        ratios.push(ratio(WORST_OF_RUN, &above, &below).0);
    }
    Some(Effect {
        ratios,
        basis,
        smallest_detectable: detectable.min(LARGEST_LN_RATIO).exp(),
    })
}

/// Returns the `candidates` for which `samples` are enough: at least ten samples are expected above
/// and below them. Ascending, without duplicates.
fn reportable_quantiles(samples: u64, candidates: &[f64]) -> Vec<f64> {
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

/// Returns Satterthwaite's degrees of freedom of a sum of two variances.
fn welch_freedom(a: &Spread, b: &Spread) -> f64 {
    let (va, vb) = (a.ln_variance, b.ln_variance);
    let sum = va + vb;
    // Divide by the larger one first, so that tiny variances do not underflow when squared.
    if sum > 0.0 {
        1.0 / ((va / sum).powi(2) / a.freedom + (vb / sum).powi(2) / b.freedom)
    } else {
        a.freedom + b.freedom
    }
}

/// Returns Welch's interval and test of a difference of logarithms, and the smallest detectable
/// difference.
fn ratio(quantile: f64, above: &Spread, below: &Spread) -> (RatioWith, f64) {
    let error = (above.ln_variance + below.ln_variance).sqrt();
    let freedom = welch_freedom(above, below);
    let rounding = above.ln_rounding + below.ln_rounding;
    let margin = student_quantile(0.5 + CONFIDENCE / 2.0, freedom) * error + rounding;
    let middle = above.ln_value - below.ln_value;
    let number = |ln: f64| ln.clamp(-LARGEST_LN_RATIO, LARGEST_LN_RATIO).exp();
    // A difference that rounding to buckets can cause does not count.
    let beyond = (middle.abs() - rounding).max(0.0);
    let p_value = if beyond == 0.0 {
        1.0
    } else {
        let (pooled_error, pooled_freedom) = pooled(above, below);
        student_two_sided(beyond / error, freedom)
            .max(student_two_sided(beyond / pooled_error, pooled_freedom))
    };
    let ratio = RatioWith {
        quantile,
        ratio: Interval {
            estimate: number(middle),
            low: number(middle - margin),
            high: number(middle + margin),
            confidence: CONFIDENCE,
        },
        p_value,
    };
    (ratio, margin + student_quantile(POWER, freedom) * error)
}

/// Returns the standard error and its degrees of freedom for equal variances on both sides, as in
/// Student's test. If a few runs of one side happen to agree, Welch's error is far too small; a
/// difference must be significant by both.
fn pooled(above: &Spread, below: &Spread) -> (f64, f64) {
    let freedom = above.freedom + below.freedom;
    let squares = |side: &Spread| side.freedom * side.ln_variance * (side.freedom + 1.0);
    let each = (squares(above) + squares(below)) / freedom;
    let error = each * (1.0 / (above.freedom + 1.0) + 1.0 / (below.freedom + 1.0));
    (error.sqrt(), freedom)
}

/// Returns the geometric mean of the runs' maxima. The bootstrap fails for a maximum (P. J. Bickel
/// and D. A. Freedman, "Some asymptotic theory for the bootstrap", 1981, §6), but the maxima of
/// several runs of one length are independent values, whose mean has an ordinary spread. Returns
/// `None` for fewer than two runs.
fn worst_of_run(runs: &[Vec<Distribution>]) -> Option<Spread> {
    let maxima: Vec<f64> = runs
        .iter()
        .filter_map(|run| run.iter().filter_map(|batch| batch.max).max())
        .map(|max| (max.0.max(1) as f64).ln())
        .collect();
    let count = maxima.len() as f64;
    if maxima.len() < 2 {
        return None;
    }
    let mean = maxima.iter().sum::<f64>() / count;
    let squares: f64 = maxima.iter().map(|value| (value - mean).powi(2)).sum();
    Some(Spread {
        ln_value: mean,
        ln_variance: squares / (count - 1.0) / count,
        ln_rounding: 0.0,
        freedom: count - 1.0,
    })
}

/// Returns p-values adjusted for multiple comparisons (S. Holm, "A simple sequentially rejective
/// multiple test procedure", Scandinavian Journal of Statistics 6, 1979): rejecting those of at
/// most α keeps the probability of any wrong rejection at most α, whatever their dependence.
#[must_use]
pub fn holm(p_values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p_values.len()).collect();
    order.sort_by(|a, b| p_values[*a].total_cmp(&p_values[*b]));
    let mut adjusted = vec![1.0; p_values.len()];
    let mut highest: f64 = 0.0;
    for (rank, index) in order.into_iter().enumerate() {
        let left = (p_values.len() - rank) as f64;
        highest = highest.max((p_values[index] * left).min(1.0));
        adjusted[index] = highest;
    }
    adjusted
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calculated manually: 4 × 0.0005, 3 × 0.010, then 2 × 0.015 and 0.024 raised to the preceding
    /// value.
    #[test]
    fn holm_steps_down() {
        let adjusted = holm(&[0.015, 0.000_5, 0.024, 0.010]);
        let expected = [0.030, 0.002, 0.030, 0.030];
        for (found, expected) in adjusted.iter().zip(expected) {
            assert!((found - expected).abs() < 1e-12, "{adjusted:?}");
        }
        assert!(holm(&[]).is_empty());
        assert_eq!(holm(&[0.6, 0.9]), [1.0, 1.0]);
    }

    #[test]
    fn quantiles_need_ten_samples_beyond_them() {
        assert_eq!(reportable_quantiles(9_999, &EFFECT_QUANTILES), [0.5, 0.99]);
        assert_eq!(
            reportable_quantiles(10_000, &EFFECT_QUANTILES),
            EFFECT_QUANTILES
        );
        assert!(reportable_quantiles(19, &EFFECT_QUANTILES).is_empty());
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
