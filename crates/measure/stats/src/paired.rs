// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Ratios of quantiles of two records whose visits are neighbours in time.
//!
//! The statistic is the difference of the logarithms of the quantile of all samples of either side.
//! Its variance is that of the jackknife (J. W. Tukey 1958; J. Shao and D. Tu, "The Jackknife and
//! Bootstrap", 1995, §2.3): one group of visits ([`groups`]) is left out at a time, on both sides, so
//! that what neighbours in time have in common cancels, and what visits of one side have in common
//! counts.

use std::collections::{BTreeMap, BTreeSet};

use rampart_model::{Bucket, Distribution, Interval, Nanos, SAMPLES_BEYOND, VerdictOutcome};

use crate::risk::Risk;
use crate::student::student_quantile;
use crate::visit::{Slice, Visit, by_number, groups};

/// An interval whose ends differ by more than this factor has no information and is not returned.
const WIDEST: f64 = 100.0;

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
        let outcome = if found.upper(risk.hold) <= tolerance {
            VerdictOutcome::Holds
        } else if found.lower(risk.alarm) > tolerance {
            alarm
        } else {
            VerdictOutcome::Inconclusive
        };
        let ratio = Interval {
            estimate: found.ln_ratio.exp(),
            low: found.lower(risk.hold),
            high: found.upper(risk.hold),
            confidence: risk.confidence(),
        };
        QuantileRatio {
            quantile,
            ratio: (ratio.high <= ratio.low * WIDEST).then_some(ratio),
            outcome,
        }
    }
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
