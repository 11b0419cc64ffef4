// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The median of a few values with its interval.

use rampart_model::Interval;

use crate::student::student_quantile;

/// Returns the median of `values` with an interval between two of the values: the k-th smallest and
/// the k-th largest, with k as large as the confidence allows (order statistics; the probability
/// that the true median is outside is twice that of fewer than k heads in n coin tosses).
///
/// The only assumption is that the values are independent. If there are too few values for the
/// confidence, the interval spans all of them, and [`Interval::confidence`] is the confidence
/// reached. Returns `None` without values or with a NaN.
#[must_use]
pub fn median_interval(values: &[f64], confidence: f64) -> Option<Interval> {
    spread_median_interval(values, confidence, 1.0)
}

/// Returns the same for values that depend on those before them, in the order in which they were measured.
///
/// How often the values are above the median in a row shows how much less they say than as many independent
/// ones: the variance of the number above it grows by this factor (M. S. Bartlett, "On the theoretical
/// specification and sampling properties of autocorrelated time-series", 1946), and the distance of the
/// interval's ranks from the middle by its root. If there are too few values for that, the interval spans all
/// of them, and its confidence is 0.
#[must_use]
pub(crate) fn median_interval_in_order(values: &[f64], confidence: f64) -> Option<Interval> {
    /// The influence of a value on the fifth after it, and on later ones, is neglected.
    const FURTHEST: usize = 4;
    let median = spread_median_interval(values, confidence, 1.0)?.estimate;
    let side = |value: &f64| if *value > median { 1.0 } else { -1.0 };
    let sides: Vec<f64> = values.iter().map(side).collect();
    let correlation = |distance: usize| {
        let pairs = sides.iter().zip(sides.iter().skip(distance));
        // An estimate from few values is too small by about one in their number.
        (pairs.map(|(one, other)| one * other).sum::<f64>() + 1.0) / sides.len() as f64
    };
    let together: f64 = (1..=FURTHEST).map(correlation).sum();
    // That variance is an estimate from so many separate stretches.
    let freedom = sides.len() as f64 / (FURTHEST + 1) as f64;
    let quantile = |freedom| student_quantile(0.5 + confidence / 2.0, freedom);
    let spread =
        (1.0 + 2.0 * together.max(0.0)).sqrt() * quantile(freedom) / quantile(f64::INFINITY);
    spread_median_interval(values, confidence, spread)
}

/// Returns the interval with its ranks `spread` times as far from the middle.
fn spread_median_interval(values: &[f64], confidence: f64, spread: f64) -> Option<Interval> {
    if values.is_empty() || values.iter().any(|value| value.is_nan()) {
        return None;
    }
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let count = sorted.len();
    let upper = sorted[count / 2];
    let estimate = if count % 2 == 1 {
        upper
    } else {
        0.5 * (sorted[count / 2 - 1] + upper)
    };
    // Probability of exactly `heads` heads, and of fewer than `rank`. As logarithms, because 2^-n
    // underflows a double beyond n = 1074.
    let mut ln_chance = -(count as f64) * std::f64::consts::LN_2;
    let mut outside = ln_chance.exp();
    let mut rank = 0;
    for next in 1..count.div_ceil(2) {
        ln_chance += ((count - next + 1) as f64 / next as f64).ln();
        if 2.0 * (outside + ln_chance.exp()) > 1.0 - confidence {
            break;
        }
        outside += ln_chance.exp();
        rank = next;
    }
    let middle = (count - 1) as f64 / 2.0;
    let spread_rank = middle - (middle - rank as f64) * spread;
    let (rank, confidence) = if spread_rank < 0.0 {
        (0, 0.0)
    } else {
        (spread_rank as usize, 1.0 - 2.0 * outside)
    };
    Some(Interval {
        estimate,
        low: sorted[rank],
        high: sorted[count - 1 - rank],
        confidence,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Ranks and confidences as tabled for the sign test.
    #[test]
    fn takes_the_tabled_ranks() {
        let values: Vec<f64> = (1..=10).map(f64::from).collect();
        let interval = median_interval(&values, 0.95).expect("an interval");
        assert_eq!(
            (interval.estimate, interval.low, interval.high),
            (5.5, 2.0, 9.0)
        );
        assert!((interval.confidence - 0.9785).abs() < 1e-4);
        let values: Vec<f64> = (1..=25).map(f64::from).collect();
        let interval = median_interval(&values, 0.95).expect("an interval");
        assert_eq!(
            (interval.estimate, interval.low, interval.high),
            (13.0, 8.0, 18.0)
        );
        assert!((interval.confidence - 0.9567).abs() < 1e-4);
    }

    #[test]
    fn reports_the_confidence_that_few_values_reach() {
        let interval = median_interval(&[3.0, 1.0], 0.95).expect("an interval");
        assert_eq!((interval.low, interval.high), (1.0, 3.0));
        assert!((interval.confidence - 0.5).abs() < 1e-12);
        assert_eq!(
            median_interval(&[1.0], 0.95).map(|i| i.confidence),
            Some(0.0)
        );
        assert_eq!(median_interval(&[], 0.95), None);
        assert_eq!(median_interval(&[f64::NAN], 0.95), None);
    }

    /// Values that come in runs widen the interval; those that alternate do not.
    #[test]
    fn values_in_runs_say_less() {
        let values = |run: usize| -> Vec<f64> {
            let side = |index: usize| {
                if (index / run).is_multiple_of(2) {
                    -1.0
                } else {
                    1.0
                }
            };
            (0..60)
                .map(|index| side(index) * (1.0 + index as f64))
                .collect()
        };
        let width = |run: usize| {
            let found = median_interval_in_order(&values(run), 0.95).expect("an interval");
            found.high - found.low
        };
        let independent = median_interval(&values(1), 0.95).expect("an interval");
        assert!(width(1) < 1.6 * (independent.high - independent.low));
        assert!(width(15) > 1.3 * width(1), "{} {}", width(15), width(1));
        let short = median_interval_in_order(&[1.0, 1.0, 9.0, 9.0], 0.95).expect("an interval");
        assert_eq!((short.low, short.high), (1.0, 9.0));
    }

    proptest! {
        #[test]
        fn interval_contains_the_median(values in proptest::collection::vec(-1e9f64..1e9, 1..3000)) {
            let interval = median_interval(&values, 0.95).expect("an interval");
            prop_assert!(interval.low <= interval.estimate && interval.estimate <= interval.high);
            if values.len() >= 6 {
                prop_assert!(interval.confidence >= 0.95);
            }
        }
    }
}
