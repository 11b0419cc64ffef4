// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The effect of a change that is made and taken back in turn: ratios of quantiles with against
//! without it, each with the chance that it is none, and a correction for many comparisons.

use rampart_model::{Distribution, Interval};

use crate::compare::{Basis, LARGEST_LN_RATIO, POWER, reportable_quantiles, welch_freedom};
use crate::spread::{Resampling, Sampled, Spread};
use crate::student::{student_quantile, student_two_sided};

/// An adjusted chance up to this counts as a difference: of all comparisons of a family together,
/// any at all is named a difference by mistake in at most this part of evaluations.
pub const EFFECT_RISK: f64 = 0.05;

/// A quantile counts as the same within this ratio and its inverse: the limits by which medicines
/// count as equivalent.
pub const EFFECT_TOLERANCE: f64 = 1.25;

/// What stands for the worst of a run among quantiles.
pub const WORST_OF_RUN: f64 = 1.0;

/// Confidence of an interval alone.
const CONFIDENCE: f64 = 0.95;

/// One ratio with ÷ without.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RatioWith {
    /// The quantile, or [`WORST_OF_RUN`].
    pub quantile: f64,
    /// The ratio with its two-sided 95 % interval, for this ratio alone.
    pub ratio: Interval,
    /// Chance of so large a difference where there is none: two-sided, unadjusted.
    pub p_value: f64,
}

/// All that was compared of two records.
#[derive(Debug, Clone, PartialEq)]
pub struct Effect {
    /// By rising quantile; the worst of a run last, where there are two runs a side.
    pub ratios: Vec<RatioWith>,
    /// What the intervals rest on.
    pub basis: Basis,
    /// The worst, over quantiles under 1, of the ratios that a chance of 80 % would have told from 1.
    pub smallest_detectable: f64,
}

/// The effect on those of `quantiles` that both sides can carry, and on the worst of a run. Each
/// side is its runs, each run its blocks in the order of time. None where nothing can be compared.
#[must_use]
pub fn effect(
    with: &[Vec<Distribution>],
    without: &[Vec<Distribution>],
    quantiles: &[f64],
    options: &Resampling,
) -> Option<Effect> {
    let samples = |runs: &[Vec<Distribution>]| -> u64 {
        runs.iter().flatten().map(|block| block.samples).sum()
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

/// Welch's interval and test of a difference of logarithms, and the smallest one to be detected.
fn ratio(quantile: f64, above: &Spread, below: &Spread) -> (RatioWith, f64) {
    let error = (above.ln_variance + below.ln_variance).sqrt();
    let freedom = welch_freedom(above, below);
    let rounding = above.ln_rounding + below.ln_rounding;
    let margin = student_quantile(0.5 + CONFIDENCE / 2.0, freedom) * error + rounding;
    let middle = above.ln_value - below.ln_value;
    let number = |ln: f64| ln.clamp(-LARGEST_LN_RATIO, LARGEST_LN_RATIO).exp();
    // What rounding to buckets alone can make is no difference.
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

/// The standard error and its degrees of freedom where both sides are taken to spread alike, as
/// Student's own test does. A few runs of one side that happen to agree make Welch's error far too
/// small; a difference has to stand against both.
fn pooled(above: &Spread, below: &Spread) -> (f64, f64) {
    let freedom = above.freedom + below.freedom;
    let squares = |side: &Spread| side.freedom * side.ln_variance * (side.freedom + 1.0);
    let each = (squares(above) + squares(below)) / freedom;
    let error = each * (1.0 / (above.freedom + 1.0) + 1.0 / (below.freedom + 1.0));
    (error.sqrt(), freedom)
}

/// The geometric mean of the runs' maxima. The bootstrap fails for a maximum (P. J. Bickel and
/// D. A. Freedman, "Some asymptotic theory for the bootstrap", 1981, §6), but the maxima of several
/// runs of one length are as many independent values, and their mean has an ordinary spread. None
/// for fewer than two runs.
fn worst_of_run(runs: &[Vec<Distribution>]) -> Option<Spread> {
    let maxima: Vec<f64> = runs
        .iter()
        .filter_map(|run| run.iter().filter_map(|block| block.max).max())
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

/// Chances adjusted for being several (S. Holm, "A simple sequentially rejective multiple test
/// procedure", Scandinavian Journal of Statistics 6, 1979): rejecting those that are at most α keeps
/// the chance of any wrong rejection at most α, however they depend on each other.
#[must_use]
pub fn holm(p_values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p_values.len()).collect();
    order.sort_by(|a, b| p_values[*a].total_cmp(&p_values[*b]));
    let mut adjusted = vec![1.0; p_values.len()];
    let mut highest: f64 = 0.0;
    for (rank, location) in order.into_iter().enumerate() {
        let left = (p_values.len() - rank) as f64;
        highest = highest.max((p_values[location] * left).min(1.0));
        adjusted[location] = highest;
    }
    adjusted
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Worked by hand: 4 × 0.0005, 3 × 0.010, then 2 × 0.015 and 0.024 held at what came before.
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
}
