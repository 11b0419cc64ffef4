// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Ratios of quantiles of two records whose visits are adjacent in time.
//!
//! The statistic is the difference of the logarithms of the quantile of all samples of either side.
//! Its variance is that of the jackknife (J. W. Tukey 1958; J. Shao and D. Tu, "The Jackknife and
//! Bootstrap", 1995, §2.3): one group of visits ([`groups`]) is left out at a time, on both sides, so
//! that what adjacent visits have in common cancels, and what visits of one side have in common
//! counts.

use std::collections::{BTreeMap, BTreeSet};

use rampart_model::{Bucket, Distribution, Interval, Nanos, SAMPLES_BEYOND, VerdictOutcome};

use crate::risk::Risk;
use crate::student::student_quantile;
use crate::visit::{Slice, Visit, by_number, groups};

/// An interval whose ends differ by more than this factor has no information and is not returned.
const WIDEST: f64 = 100.0;

/// Above this quantile a comparison is about a typical visit.
const TYPICAL_ABOVE: f64 = 0.9;

/// A compared quantile.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct QuantileRatio {
    /// The quantile (0 to 1).
    pub quantile: f64,
    /// The ratio with its interval; `None` if there are too few visits for one.
    pub ratio: Option<Interval>,
    /// The outcome of this question; an alarm is the outcome that was asked for.
    pub outcome: VerdictOutcome,
}

/// Both sides of a comparison, prepared for leaving out visits.
#[derive(Debug)]
pub(crate) struct Paired {
    sides: [Side; 2],
    /// The numbers of the visits of either side, in groups that are left out together.
    groups: Vec<Vec<u32>>,
}

#[derive(Debug)]
struct Side {
    /// The buckets of all visits, in ascending order.
    buckets: Vec<Nanos>,
    max: Nanos,
    samples: u64,
    /// For each number, the number of its samples in this bucket or a lower one.
    cumulative: BTreeMap<u32, Vec<u64>>,
    /// The sum over all numbers.
    whole: Vec<u64>,
}

impl Side {
    fn new(visits: &BTreeMap<u32, Slice>) -> Option<Self> {
        let samples = |slice: &Slice| -> Distribution { slice.corrected().clone() };
        let visits: BTreeMap<u32, Distribution> = visits
            .iter()
            .map(|(number, slice)| (*number, samples(slice)))
            .filter(|(_, of)| of.samples > 0)
            .collect();
        let buckets: BTreeSet<Nanos> = visits
            .values()
            .flat_map(|of| of.buckets.iter().map(|bucket| bucket.0))
            .collect();
        let buckets: Vec<Nanos> = buckets.into_iter().collect();
        let cumulative: BTreeMap<u32, Vec<u64>> = visits
            .iter()
            .map(|(number, of)| {
                let mut own = of.buckets.iter().peekable();
                let mut sum = 0;
                let sums = buckets.iter().map(|value| {
                    while let Some(bucket) = own.next_if(|bucket| bucket.0 <= *value) {
                        sum += bucket.1;
                    }
                    sum
                });
                (*number, sums.collect())
            })
            .collect();
        let whole = (0..buckets.len())
            .map(|index| cumulative.values().map(|sums| sums[index]).sum())
            .collect();
        Some(Self {
            max: visits.values().filter_map(|of| of.max).max()?,
            samples: visits.values().map(|of| of.samples).sum(),
            buckets,
            cumulative,
            whole,
        })
    }

    /// Returns the bucket of the quantile without the visits of these numbers; `None` if no sample is
    /// left.
    fn bucket(&self, quantile: f64, without: &[u32]) -> Option<Nanos> {
        let left_out: Vec<&Vec<u64>> = without
            .iter()
            .filter_map(|number| self.cumulative.get(number))
            .collect();
        let up_to = |index: usize| {
            let left_out: u64 = left_out.iter().map(|sums| sums[index]).sum();
            self.whole[index] - left_out
        };
        let total = up_to(self.buckets.len() - 1);
        if total == 0 {
            return None;
        }
        let rank = ((quantile * total as f64).ceil() as u64).clamp(1, total);
        let (mut low, mut high) = (0, self.buckets.len() - 1);
        while low < high {
            let middle = (low + high) / 2;
            if up_to(middle) >= rank {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        Some(self.buckets[low])
    }

    /// Returns the ln of the quantile of the visits of this number.
    fn ln_of_visit(&self, quantile: f64, number: u32) -> Option<f64> {
        let sums = self.cumulative.get(&number)?;
        let total = *sums.last()?;
        let rank = ((quantile * total as f64).ceil() as u64).clamp(1, total.max(1));
        let index = sums.partition_point(|sum| *sum < rank);
        self.buckets.get(index).map(|bucket| self.ln_value(*bucket))
    }

    /// Returns the ln of a bucket's value, defined like [`Distribution::quantile`]; times shorter
    /// than 1 ns count as 1 ns.
    fn ln_value(&self, bucket: Nanos) -> f64 {
        (Bucket::highest(bucket).min(self.max).0.max(1) as f64).ln()
    }
}

impl Paired {
    /// Prepares both sides. Returns `None` if a side has no sample.
    pub(crate) fn new(numerator: &[Visit], denominator: &[Visit]) -> Option<Self> {
        let (above, below) = (by_number(numerator), by_number(denominator));
        let sides = [Side::new(&above)?, Side::new(&below)?];
        Some(Self {
            sides,
            groups: groups(numerator, denominator),
        })
    }

    /// Returns whether at least ten samples are expected beyond the quantile on both sides.
    pub(crate) fn carries(&self, quantile: f64) -> bool {
        self.sides.iter().all(|side| {
            // The tolerance of a millionth of a sample allows for the rounding of 1 − 0.999.
            side.samples as f64 * quantile.min(1.0 - quantile) >= SAMPLES_BEYOND as f64 - 1e-6
        })
    }

    fn ln_ratio(&self, quantile: f64, without: &[u32]) -> Option<f64> {
        let [above, below] = &self.sides;
        Some(
            above.ln_value(above.bucket(quantile, without)?)
                - below.ln_value(below.bucket(quantile, without)?),
        )
    }

    /// Returns the ln of the ratio, its standard error, its degrees of freedom, and the ln of what
    /// the rounding to buckets may add. `None` with fewer than two groups on a side.
    pub(crate) fn estimate(&self, quantile: f64) -> Option<Estimate> {
        let ln_ratio = self.ln_ratio(quantile, &[])?;
        let fewest = self
            .sides
            .iter()
            .map(|side| groups_of(&self.groups, &side.cumulative))
            .min()?;
        if fewest < 2 {
            return None;
        }
        let left: Option<Vec<f64>> = self
            .groups
            .iter()
            .map(|group| self.ln_ratio(quantile, group))
            .collect();
        let left = left?;
        let error = jackknife_error(&left);
        let rounding = self
            .sides
            .iter()
            .filter_map(|side| side.bucket(quantile, &[]))
            .map(|bucket| {
                let (low, high) = (
                    bucket.0.max(1) as f64,
                    Bucket::highest(bucket).0 as f64 + 1.0,
                );
                0.5 * (high / low).ln().max(0.0)
            })
            .sum();
        Some(Estimate {
            ln_ratio,
            error,
            freedom: fewest as f64 - 1.0,
            rounding,
        })
    }

    /// Returns the ratio of the quantile in a typical visit, the median over the groups of visits, with
    /// both one-sided bounds at `risk`; `None` if there are too few pairs for bounds.
    ///
    /// A quantile of the tail depends on a few visits of all; a median does not. Its bounds are those
    /// of the sign test, exact for every distribution (M. Hollander and D. A. Wolfe, "Nonparametric
    /// Statistical Methods", 1973, §3.6). What happens in a few visits alone is a question of stalls.
    fn typical(&self, quantile: f64, risk: f64, rounding: f64) -> Option<(f64, f64, f64)> {
        let [above, below] = &self.sides;
        let of_visit = |number: &u32| {
            Some(above.ln_of_visit(quantile, *number)? - below.ln_of_visit(quantile, *number)?)
        };
        let mut pairs: Vec<f64> = self
            .groups
            .iter()
            .filter_map(|group| {
                let own: Vec<f64> = group.iter().filter_map(of_visit).collect();
                (!own.is_empty()).then(|| own.iter().sum::<f64>() / own.len() as f64)
            })
            .collect();
        pairs.sort_unstable_by(f64::total_cmp);
        let rank = bound_of_median(pairs.len(), risk)?;
        let last = pairs.len() - 1;
        let median = (pairs[last / 2] + pairs[last - last / 2]) / 2.0;
        Some((
            median.exp(),
            (pairs[rank] - rounding).exp(),
            (pairs[last - rank] + rounding).exp(),
        ))
    }

    /// Answers whether the ratio of a quantile is at most `tolerance`: "holds", `alarm` or
    /// inconclusive.
    pub(crate) fn judge(
        &self,
        quantile: f64,
        tolerance: f64,
        alarm: VerdictOutcome,
        risk: &Risk,
    ) -> QuantileRatio {
        let found = self
            .carries(quantile)
            .then(|| self.estimate(quantile))
            .flatten();
        let Some(found) = found else {
            return QuantileRatio {
                quantile,
                ratio: None,
                outcome: VerdictOutcome::Inconclusive,
            };
        };
        let typical = (quantile > TYPICAL_ABOVE)
            .then(|| self.typical(quantile, risk.hold, found.rounding))
            .flatten();
        let (estimate, low, high) = typical.unwrap_or((
            found.ln_ratio.exp(),
            found.lower(risk.hold),
            found.upper(risk.hold),
        ));
        let outcome = if found.lower(risk.alarm) > tolerance {
            alarm
        } else if high <= tolerance {
            VerdictOutcome::Holds
        } else {
            VerdictOutcome::Inconclusive
        };
        let ratio = Interval {
            estimate,
            low,
            high,
            confidence: risk.confidence(),
        };
        QuantileRatio {
            quantile,
            ratio: (ratio.high <= ratio.low * WIDEST).then_some(ratio),
            outcome,
        }
    }
}

/// Returns the index, from 0, of the ordered value of `count` that is a one-sided bound of their
/// median at `risk`: at most so many are on one side with this probability. `None` if there are too
/// few.
fn bound_of_median(count: usize, risk: f64) -> Option<usize> {
    let mut probability = 0.5_f64.powi(i32::try_from(count).ok()?);
    let mut sum = 0.0;
    let mut bound = None;
    for index in 0..count {
        sum += probability;
        if sum > risk {
            break;
        }
        bound = Some(index);
        probability *= (count - index) as f64 / (index + 1) as f64;
    }
    bound
}

/// A ratio and its uncertainty, as logarithms.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Estimate {
    pub(crate) ln_ratio: f64,
    pub(crate) error: f64,
    pub(crate) freedom: f64,
    pub(crate) rounding: f64,
}

impl Estimate {
    fn margin(&self, risk: f64) -> f64 {
        student_quantile(1.0 - risk, self.freedom) * self.error + self.rounding
    }

    /// Returns the one-sided lower bound of the ratio.
    pub(crate) fn lower(&self, risk: f64) -> f64 {
        (self.ln_ratio - self.margin(risk)).exp()
    }

    /// Returns the one-sided upper bound of the ratio.
    pub(crate) fn upper(&self, risk: f64) -> f64 {
        (self.ln_ratio + self.margin(risk)).exp()
    }
}

/// Returns the number of groups of which a side has a visit.
pub(crate) fn groups_of<T>(groups: &[Vec<u32>], side: &BTreeMap<u32, T>) -> usize {
    let has = |group: &&Vec<u32>| group.iter().any(|number| side.contains_key(number));
    groups.iter().filter(has).count()
}

/// Returns the standard error of a statistic from its values with one unit left out.
pub(crate) fn jackknife_error(left: &[f64]) -> f64 {
    let count = left.len() as f64;
    let mean = left.iter().sum::<f64>() / count;
    let squares: f64 = left.iter().map(|value| (value - mean).powi(2)).sum();
    ((count - 1.0) / count * squares).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::risk::Look;

    /// Sums of the binomial distribution with p = ½.
    #[test]
    fn bounds_of_a_median_are_exact() {
        // None of 7 values is on one side: 1 of 128.
        assert_eq!(bound_of_median(7, 0.005), None);
        assert_eq!(bound_of_median(7, 0.01), Some(0));
        // At most 1 of 12: 13 of 4096. At most 3 of 20: 1351 of 1048576.
        assert_eq!(bound_of_median(12, 0.005), Some(1));
        assert_eq!(bound_of_median(12, 0.003), Some(0));
        assert_eq!(bound_of_median(20, 0.005), Some(3));
        assert_eq!(bound_of_median(900, 0.005), Some(410));
    }

    /// A few visits with another tail do not change the typical one.
    #[test]
    fn a_typical_visit_ignores_a_few_others() {
        let visits = |factor: u64, slow: &[u32]| -> Vec<Visit> {
            (0..14)
                .map(|number| {
                    let times = if slow.contains(&number) { 9 } else { factor };
                    let values = (1..=1000u64).map(|value| Nanos(1000 * value * times));
                    Visit::of(number, vec![Distribution::from_values(values)])
                })
                .collect()
        };
        let judged = |factor: u64| {
            let both = Paired::new(&visits(factor, &[3]), &visits(1, &[7]));
            let risk = Risk::of(50, Look { number: 2, of: 2 });
            both.expect("samples")
                .judge(0.99, 1.5, VerdictOutcome::Leaks, &risk)
        };
        let same = judged(1);
        assert_eq!(same.outcome, VerdictOutcome::Holds);
        assert!((same.ratio.expect("an interval").estimate - 1.0).abs() < 0.01);
        let slower = judged(2);
        assert_ne!(slower.outcome, VerdictOutcome::Holds);
        assert!((slower.ratio.expect("an interval").estimate - 2.0).abs() < 0.02);
    }

    /// With four visits the limits are those of Student's t with three degrees of freedom: 4.541 at
    /// 99 % and 10.215 at 99.9 %, where the normal distribution has 2.326 and 3.090.
    #[test]
    fn few_visits_widen_an_interval() {
        let few = Estimate {
            ln_ratio: 0.2,
            error: 0.1,
            freedom: 3.0,
            rounding: 0.01,
        };
        for (risk, quantile) in [(0.01, 4.541), (0.001, 10.215)] {
            let margin = 0.1 * quantile + 0.01;
            assert!((few.upper(risk).ln() - 0.2 - margin).abs() < 1e-4);
            assert!((few.lower(risk).ln() - 0.2 + margin).abs() < 1e-4);
        }
    }

    #[test]
    fn the_jackknife_of_a_mean_is_its_standard_error() {
        // Means without one of 1, 2, 3, 4: the variance of the mean is (5 ÷ 3) ÷ 4.
        let left = [3.0, 8.0 / 3.0, 7.0 / 3.0, 2.0];
        assert!((jackknife_error(&left) - (5.0f64 / 12.0).sqrt()).abs() < 1e-12);
    }
}
