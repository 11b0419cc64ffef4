// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Ratios of quantiles of two records whose visits are adjacent in time.
//!
//! The statistic is the difference of the logarithms of the quantile of all samples of either side.
//! The variance of a median is that of the jackknife (J. W. Tukey 1958; J. Shao and D. Tu, "The Jackknife
//! and Bootstrap", 1995, §2.3): one group of visits ([`groups`]) is left out at a time, on both sides, so
//! that what adjacent visits have in common cancels, and what visits of one side have in common
//! counts. A quantile of the tail has the bounds of [`Side::bounds`] and those of a typical visit.

use std::collections::{BTreeMap, BTreeSet};

use rampart_model::{Bucket, Distribution, Interval, Nanos, SAMPLES_BEYOND, VerdictOutcome};

use crate::risk::Risk;
use crate::student::student_quantile;
use crate::visit::{Slice, Visit, by_number, groups};

/// An interval whose ends differ by more than this factor has no information and is not returned.
const WIDEST: f64 = 100.0;

/// Above this quantile a comparison is of the tail.
const TAIL_ABOVE: f64 = 0.9;

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

    /// Returns the ln of the quantile of all samples with both bounds, each one-sided at `risk`; `None` with
    /// fewer than two groups of visits, or if the samples beyond the quantile are too few for bounds.
    ///
    /// The bounds are the values that the limits of the part of slower samples have in the distribution (R. S.
    /// Woodruff, "Confidence intervals for medians and other position measures", JASA 47, 1952). The variance
    /// of this part is that between groups of visits, as of clusters. A part that a few visits determine has a
    /// skewed distribution: its upper limit is that of its logarithm, its lower limit is not.
    fn bounds(&self, quantile: f64, groups: &[Vec<u32>], risk: f64) -> Option<(f64, f64, f64)> {
        let bucket = self.bucket(quantile, &[])?;
        let index = self.buckets.partition_point(|other| *other < bucket);
        let counts: Vec<(f64, f64)> = groups
            .iter()
            .filter_map(|group| {
                let of_group = group
                    .iter()
                    .filter_map(|number| self.cumulative.get(number));
                of_group.fold(None, |sum: Option<(f64, f64)>, sums| {
                    let (slower, all) = sum.unwrap_or_default();
                    let total = *sums.last()?;
                    Some((slower + (total - sums[index]) as f64, all + total as f64))
                })
            })
            .collect();
        if counts.len() < 2 {
            return None;
        }
        let number = counts.len() as f64;
        let all: f64 = counts.iter().map(|of| of.1).sum();
        // The part that is beyond the whole bucket of the quantile.
        let beyond = counts.iter().map(|of| of.0).sum::<f64>() / all;
        let squares: f64 = counts.iter().map(|of| (of.0 - beyond * of.1).powi(2)).sum();
        let slower = 1.0 - quantile;
        let error = (squares * number / (number - 1.0)).sqrt() / all;
        let margin = student_quantile(1.0 - risk, number - 1.0) * error;
        let (fewer, more) = (slower - margin, slower * (margin / slower).exp());
        let value = |slower: f64| Some(self.ln_value(self.bucket(1.0 - slower, &[])?));
        let within = |slower: f64| slower * all >= 1.0 && slower < 1.0;
        (within(fewer) && within(more)).then_some(())?;
        Some((self.ln_value(bucket), value(more)?, value(fewer)?))
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

    /// Returns the ratio of the quantile in a typical visit, the pseudomedian over the groups of visits, with
    /// both one-sided bounds at `risk`; `None` if there are too few pairs for bounds.
    ///
    /// A quantile of the tail depends on a few visits of all; a median does not. Estimate and bounds are those
    /// of Wilcoxon's signed ranks (M. Hollander and D. A. Wolfe, "Nonparametric Statistical Methods", 1973,
    /// §3.2 and 3.3), exact if visits of both sides differ by a factor only. What happens in a few visits
    /// alone is a question of stalls.
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
        let rank = rank_of_bound(pairs.len(), risk)?;
        let all = pairs.len() * (pairs.len() + 1) / 2;
        let middle = (walsh(&pairs, all.div_ceil(2)) + walsh(&pairs, all / 2 + 1)) / 2.0;
        Some((
            middle.exp(),
            (walsh(&pairs, rank) - rounding).exp(),
            (walsh(&pairs, all + 1 - rank) + rounding).exp(),
        ))
    }

    /// Returns the ratio of the quantile of all samples, with both one-sided bounds at `risk`; `None` if there
    /// are too few samples or visits for bounds. The limits of both sides are added in square (G. Y. Zou and A.
    /// Donner, Statistics in Medicine 27, 2008), as of independent sides.
    fn of_all_samples(&self, quantile: f64, risk: f64, rounding: f64) -> Option<(f64, f64, f64)> {
        let [above, below] = &self.sides;
        let of = |side: &Side| side.bounds(quantile, &self.groups, risk);
        let ((above, above_low, above_high), (below, below_low, below_high)) =
            (of(above)?, of(below)?);
        let ratio = above - below;
        let less = (above - above_low).hypot(below_high - below) + rounding;
        let more = (above_high - above).hypot(below - below_low) + rounding;
        Some((ratio.exp(), (ratio - less).exp(), (ratio + more).exp()))
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
        let (typical, of_all) = (
            |risk| self.typical(quantile, risk, found.rounding),
            |risk| self.of_all_samples(quantile, risk, found.rounding),
        );
        // The jackknife does not see that a quantile of all samples may lie between two modes, so a typical
        // visit has to differ too.
        let differs = |risk| typical(risk).is_none_or(|(_, low, _)| low > tolerance);
        let by_jackknife = (
            found.ln_ratio.exp(),
            found.lower(risk.hold),
            found.upper(risk.hold),
        );
        let (estimate, low, high);
        let is_alarm;
        if quantile > TAIL_ABOVE {
            // Whichever bound is lower, at half the risk each: where a few visits have most of the slow samples
            // it is that of a typical visit, elsewhere that of all samples.
            let half = risk.hold / 2.0;
            let either = [typical(half), of_all(half)].into_iter().flatten();
            let lowest = either.min_by(|one, other| one.2.total_cmp(&other.2));
            (estimate, low, high) = lowest.unwrap_or(by_jackknife);
            let lower = of_all(risk.alarm).map_or(found.lower(risk.alarm), |(_, low, _)| low);
            is_alarm = lower > tolerance && differs(risk.alarm) && differs(risk.hold);
        } else {
            (estimate, low, high) = by_jackknife;
            is_alarm = found.lower(risk.alarm) > tolerance && differs(risk.hold);
        }
        let outcome = if is_alarm {
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

/// Returns the rank, from 1, of the Walsh average of `count` values that is a one-sided bound of their
/// pseudomedian at `risk`: the sum of the signed ranks is below it with at most this probability. `None` if
/// there are too few values.
fn rank_of_bound(count: usize, risk: f64) -> Option<usize> {
    /// Up to this number the distribution is computed. Above, the normal one is taken, whose tails are longer.
    const EXACT: usize = 60;
    let all = count * (count + 1) / 2;
    if count > EXACT {
        let number = count as f64;
        let error = (number * (number + 1.0) * (2.0 * number + 1.0) / 24.0).sqrt();
        let normal = student_quantile(1.0 - risk, f64::INFINITY);
        return Some(((all as f64 / 2.0 - normal * error + 0.5).floor() as usize).max(1));
    }
    // The probability of each sum: every rank is in it or not.
    let mut chances = vec![0.0; all + 1];
    chances[0] = 1.0;
    for rank in 1..=count {
        for sum in (0..=all).rev() {
            let with = sum.checked_sub(rank).map_or(0.0, |rest| chances[rest]);
            chances[sum] = 0.5 * (chances[sum] + with);
        }
    }
    let mut below = 0.0;
    let within = chances.iter().take_while(|chance| {
        below += **chance;
        below <= risk
    });
    Some(within.count()).filter(|rank| *rank > 0)
}

/// Returns the Walsh average, the mean of two of the sorted values or of one with itself, that has this
/// rank, from 1.
fn walsh(sorted: &[f64], rank: usize) -> f64 {
    let up_to = |limit: f64| -> usize {
        let mut partner = sorted.len();
        let of_each = sorted.iter().enumerate().map(|(index, value)| {
            while partner > 0 && 0.5 * (value + sorted[partner - 1]) > limit {
                partner -= 1;
            }
            partner.saturating_sub(index)
        });
        of_each.sum()
    };
    let (Some(mut low), Some(mut high)) = (sorted.first().copied(), sorted.last().copied()) else {
        return f64::NAN;
    };
    if up_to(low) >= rank {
        return low;
    }
    // The values are logarithms of ratios: this is exact to far less than their rounding.
    for _ in 0..60 {
        let middle = 0.5 * (low + high);
        if up_to(middle) >= rank {
            high = middle;
        } else {
            low = middle;
        }
    }
    high
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

    /// Printed tables of the signed ranks: the largest sums that 0.5 % and 2.5 % of all have at most.
    #[test]
    fn ranks_of_bounds_are_those_of_the_tables() {
        assert_eq!(rank_of_bound(7, 0.005), None);
        for (count, at_half_a_percent, at_two_and_a_half) in [
            (8, 0, 3),
            (10, 3, 8),
            (20, 37, 52),
            (25, 68, 89),
            (50, 373, 434),
        ] {
            assert_eq!(rank_of_bound(count, 0.005), Some(at_half_a_percent + 1));
            assert_eq!(rank_of_bound(count, 0.025), Some(at_two_and_a_half + 1));
        }
        // Where the normal approximation begins, the bound becomes wider by little.
        let ranks: Vec<usize> = (58..64)
            .filter_map(|count| rank_of_bound(count, 0.001))
            .collect();
        let steps: Vec<usize> = ranks.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(
            steps.iter().all(|step| (10..=24).contains(step)),
            "{steps:?}"
        );
    }

    #[test]
    fn walsh_averages_have_their_ranks() {
        let values = [-3.0, -1.0, 0.5, 2.0, 10.0];
        let mut averages: Vec<f64> = (0..values.len())
            .flat_map(|one| (one..values.len()).map(move |other| (one, other)))
            .map(|(one, other)| 0.5 * (values[one] + values[other]))
            .collect();
        averages.sort_unstable_by(f64::total_cmp);
        for (index, average) in averages.iter().enumerate() {
            let found = walsh(&values, index + 1);
            assert!((found - average).abs() < 1e-9, "{index}: {found} {average}");
        }
        assert_eq!(walsh(&[1.5], 1), 1.5);
    }

    /// A few visits with another tail do not change the typical one.
    #[test]
    fn a_typical_visit_ignores_a_few_others() {
        let visits = |factor: u64, slow: &[u32]| -> Vec<Visit> {
            (0..30)
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

    /// Every second visit has 0.8 % of slow samples and the others 2.4 %: the p99 of a visit is one of the slow
    /// samples or none, and that of all samples is one.
    #[test]
    fn even_tails_are_compared_by_all_samples() {
        let visits = |many: fn(u32) -> bool| -> Vec<Visit> {
            (0..60)
                .map(|number| {
                    let slow = if many(number) { 24 } else { 8 };
                    let values =
                        (0..1000).map(|sample| if sample < slow { 40 + sample } else { 5 });
                    let values = values.map(|micros: u64| Nanos::from_micros(micros));
                    Visit::of(number, vec![Distribution::from_values(values)])
                })
                .collect()
        };
        let one = visits(|number| number.is_multiple_of(2));
        let other = visits(|number| (number / 2).is_multiple_of(2));
        let both = Paired::new(&one, &other).expect("samples");
        let risk = Risk::of(50, Look { number: 2, of: 2 });
        let (_, _, of_visit) = both.typical(0.99, risk.hold / 2.0, 0.0).expect("bounds");
        assert!(of_visit > 2.0, "{of_visit}");
        let found = both.judge(0.99, 1.5, VerdictOutcome::Leaks, &risk);
        assert_eq!(found.outcome, VerdictOutcome::Holds, "{found:?}");
    }

    /// Half of the visits have 0.2 % of slow samples, the others 1.7 % or more: the quantile of all samples lies
    /// between both modes, and a few samples more on one side move it to the other mode.
    #[test]
    fn a_quantile_between_two_modes_is_no_alarm() {
        let visits = |more: u64| -> Vec<Visit> {
            (0..32)
                .map(|number| {
                    let slow = if number % 2 == 0 { 2 } else { 17 + more };
                    let values = (0..1000).map(|sample| if sample < slow { 300 } else { 100 });
                    let values = values.map(|micros: u64| Nanos::from_micros(micros));
                    Visit::of(number, vec![Distribution::from_values(values)])
                })
                .collect()
        };
        let judged = |more: u64, other: u64| {
            let both = Paired::new(&visits(more), &visits(other)).expect("samples");
            let risk = Risk::of(50, Look { number: 2, of: 2 });
            let found = both.estimate(0.99).expect("an estimate");
            let alarm = found.lower(risk.alarm) > 1.5;
            (alarm, both.judge(0.99, 1.5, VerdictOutcome::Leaks, &risk))
        };
        let (of_all, found) = judged(9, 0);
        assert!(of_all, "the jackknife alone");
        assert_ne!(found.outcome, VerdictOutcome::Leaks);
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
