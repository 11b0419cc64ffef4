// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Counts samples in the buckets of HdrHistogram at three significant digits.
//!
//! Every 64-bit value has a bucket, so nothing overflows. One bit per bucket marks whether it is in
//! use. Iterating over and clearing a batch of some hundred different values therefore costs in
//! proportion to these, not to the tens of thousands of buckets.

use rampart_model::{Bucket, Nanos};

/// Log2 of the linear steps between two powers of two. With the exact range below 2048 this is the
/// layout of HdrHistogram with three significant digits and a lowest value of 1.
const STEPS_BITS: u32 = 10;

fn index(value: u64) -> usize {
    let shift = (63 - (value | ((2 << STEPS_BITS) - 1)).leading_zeros()) - STEPS_BITS;
    ((shift as usize) << STEPS_BITS) + (value >> shift) as usize
}

fn lowest(index: usize) -> u64 {
    let shift = (index >> STEPS_BITS).saturating_sub(1);
    ((index - (shift << STEPS_BITS)) as u64) << shift
}

/// Counts of values, with the exact minimum and maximum.
#[derive(Debug, Clone)]
pub struct Histogram {
    counts: Vec<u64>,
    /// One bit per entry of `counts`, set if the count is not 0.
    used: Vec<u64>,
    /// Number of entries of `counts` that are not 0.
    buckets: usize,
    min: u64,
    max: u64,
}

impl Histogram {
    /// Creates an empty histogram with buckets for values up to `highest`. Greater values make it
    /// grow.
    #[must_use]
    pub fn with_room_for(highest: Nanos) -> Self {
        let buckets = (index(highest.0) | 63) + 1;
        Self {
            counts: vec![0; buckets],
            used: vec![0; buckets / 64],
            buckets: 0,
            min: u64::MAX,
            max: 0,
        }
    }

    /// Counts one sample of `value`.
    #[inline(always)]
    pub fn record(&mut self, value: Nanos) {
        self.record_many(value, 1);
    }

    /// Counts one sample of each of `values` and returns how many it counted. Stops at the first
    /// value without a bucket; every value up to [`Histogram::max`] has one.
    ///
    /// Does not update the maximum: no value may be above it.
    #[inline(always)]
    pub fn record_run(&mut self, values: impl Iterator<Item = u64>) -> usize {
        let counts = self.counts.as_mut_slice();
        let mut min = self.min;
        let mut recorded = 0;
        for value in values {
            debug_assert!(value <= self.max);
            let index = index(value);
            let Some(slot) = counts.get_mut(index) else {
                break;
            };
            let before = *slot;
            *slot = before + 1;
            if before == 0 {
                self.used[index / 64] |= 1 << (index % 64);
                self.buckets += 1;
            }
            min = min.min(value);
            recorded += 1;
        }
        self.min = min;
        recorded
    }

    /// Counts `count` samples of `value`; `count` must be at least 1.
    #[inline(always)]
    pub fn record_many(&mut self, value: Nanos, count: u64) {
        self.count(value.0, count);
        if value.0 < self.min {
            self.min = value.0;
        }
        if value.0 > self.max {
            self.max = value.0;
        }
    }

    #[inline(always)]
    fn count(&mut self, value: u64, count: u64) {
        let index = index(value);
        if index >= self.counts.len() {
            self.grow(index);
        }
        let slot = &mut self.counts[index];
        let before = *slot;
        *slot = before + count;
        if before == 0 {
            self.used[index / 64] |= 1 << (index % 64);
            self.buckets += 1;
        }
    }

    #[cold]
    fn grow(&mut self, index: usize) {
        // Grows to the end of the power of two, so that a rising maximum rarely causes growth.
        let buckets = (index | ((1 << STEPS_BITS) - 1)) + 1;
        self.counts.resize(buckets, 0);
        self.used.resize(buckets / 64, 0);
    }

    /// Counts the samples that missed periods would have given: for a sample `seen`, the values
    /// `seen` − k × `interval` for each k from 1 to `missed`, as a wake at each planned moment
    /// would have measured (Gil Tene's correction for coordinated omission, HdrHistogram
    /// `recordValueWithExpectedInterval`). The time is bounded by the number of buckets, whatever
    /// `missed` is.
    pub fn record_missed(&mut self, seen: Nanos, missed: u64, interval: Nanos) {
        let interval = interval.0.max(1);
        let mut k = 1;
        while k <= missed {
            let value = seen.0.saturating_sub(k.saturating_mul(interval));
            // All following values down to the bucket's lower edge are in the same bucket.
            let edge = Bucket::lowest(Nanos(value)).0;
            let same = ((value - edge) / interval + 1).min(missed - k + 1);
            let same = if value == 0 { missed - k + 1 } else { same };
            self.record_many(Nanos(value), same);
            let last = value.saturating_sub((same - 1).saturating_mul(interval));
            self.min = self.min.min(last);
            k += same;
        }
    }

    /// Returns whether the histogram holds no samples.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        // The first sample lowers the minimum, unless it is `u64::MAX`.
        self.min == u64::MAX && self.max == 0
    }

    /// Returns the exact minimum, or `None` without samples.
    #[must_use]
    pub fn min(&self) -> Option<Nanos> {
        (!self.is_empty()).then_some(Nanos(self.min))
    }

    /// Returns the exact maximum, or `None` without samples.
    #[must_use]
    pub fn max(&self) -> Option<Nanos> {
        (!self.is_empty()).then_some(Nanos(self.max))
    }

    /// Returns the number of buckets that hold samples.
    #[must_use]
    pub const fn buckets(&self) -> usize {
        self.buckets
    }

    /// Passes the lowest value and the count of every bucket that holds samples to `take`, highest
    /// value first.
    #[inline]
    pub fn each_falling(&self, mut take: impl FnMut(u64, u64)) {
        let groups = self.counts.as_chunks::<64>().0;
        for ((group, word), counts) in self.used.iter().enumerate().zip(groups).rev() {
            each_bit_falling(*word, |bit| {
                take(lowest(group * 64 + bit), counts[bit]);
            });
        }
    }

    /// Does the same for the sum of two histograms.
    #[inline]
    pub fn each_of_both_falling(&mut self, other: &mut Self, mut take: impl FnMut(u64, u64)) {
        let longer = self.counts.len().max(other.counts.len());
        for histogram in [&mut *self, &mut *other] {
            if histogram.counts.len() < longer {
                histogram.grow(longer - 1);
            }
        }
        let words = self.used.iter().zip(&other.used).enumerate();
        let ours = self.counts.as_chunks::<64>().0;
        let theirs = other.counts.as_chunks::<64>().0;
        for (((group, words), ours), theirs) in words.zip(ours).zip(theirs).rev() {
            each_bit_falling(words.0 | words.1, |bit| {
                take(lowest(group * 64 + bit), ours[bit] + theirs[bit]);
            });
        }
    }

    /// Removes all samples.
    pub fn clear(&mut self) {
        let groups = self.counts.as_chunks_mut::<64>().0;
        for (word, counts) in self.used.iter_mut().zip(groups) {
            each_bit_falling(std::mem::take(word), |bit| counts[bit] = 0);
        }
        (self.buckets, self.min, self.max) = (0, u64::MAX, 0);
    }
}

#[inline(always)]
fn each_bit_falling(mut bits: u64, mut take: impl FnMut(usize)) {
    while bits != 0 {
        let bit = 63 - bits.leading_zeros() as usize;
        bits ^= 1 << bit;
        take(bit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rampart_model::Distribution;

    fn of(values: &[u64]) -> Distribution {
        Distribution::from_values(values.iter().copied().map(Nanos))
    }

    fn taken(histogram: &mut Histogram) -> Distribution {
        let mut distribution = Distribution {
            min: histogram.min(),
            max: histogram.max(),
            ..Distribution::default()
        };
        histogram.each_falling(|lowest, count| {
            distribution.samples += count;
            distribution.buckets.push(Bucket(Nanos(lowest), count));
        });
        assert_eq!(histogram.buckets(), distribution.buckets.len());
        distribution.buckets.reverse();
        histogram.clear();
        distribution
    }

    proptest! {
        #[test]
        fn counts_like_the_distribution_of_the_model(values in proptest::collection::vec(any::<u64>().prop_flat_map(|value| (0u32..64).prop_map(move |shift| value >> shift)), 0..100)) {
            let mut histogram = Histogram::with_room_for(Nanos(100));
            for _ in 0..2 {
                for value in &values {
                    histogram.record(Nanos(*value));
                }
                prop_assert_eq!(taken(&mut histogram), of(&values));
                prop_assert_eq!(taken(&mut histogram), Distribution::default());
            }
        }

        #[test]
        fn iterates_over_the_sum_of_two_histograms(ours in proptest::collection::vec(0u64..5_000, 0..50), theirs in proptest::collection::vec(0u64..500_000, 0..50)) {
            let (mut a, mut b) = (Histogram::with_room_for(Nanos(100)), Histogram::with_room_for(Nanos(5)));
            for value in &ours { a.record(Nanos(*value)); }
            for value in &theirs { b.record(Nanos(*value)); }
            let mut buckets = Vec::new();
            a.each_of_both_falling(&mut b, |lowest, count| buckets.push(Bucket(Nanos(lowest), count)));
            buckets.reverse();
            let all: Vec<u64> = ours.iter().chain(&theirs).copied().collect();
            prop_assert_eq!(buckets, of(&all).buckets);
            prop_assert_eq!((taken(&mut a), taken(&mut b)), (of(&ours), of(&theirs)));
        }

        /// The layout equals that of HdrHistogram, bucket by bucket.
        #[test]
        fn buckets_equal_those_of_hdr_histogram(value in any::<u64>().prop_flat_map(|value| (2u32..64).prop_map(move |shift| value >> shift))) {
            let theirs = hdrhistogram::Histogram::<u64>::new_with_bounds(1, u64::MAX / 2, 3).expect("bounds");
            prop_assert_eq!(lowest(index(value)), theirs.lowest_equivalent(value));
            prop_assert_eq!(Bucket::lowest(Nanos(value)).0, theirs.lowest_equivalent(value));
            prop_assert_eq!(Bucket::highest(Nanos(value)).0, theirs.highest_equivalent(value));
        }

        #[test]
        fn correction_adds_one_sample_for_each_missed_period(seen in 0u64..10_000_000, interval in 1u64..100_000, clipped in 0u64..5) {
            let missed = (seen / interval).saturating_sub(clipped).min(20_000);
            let mut histogram = Histogram::with_room_for(Nanos(100));
            histogram.record_missed(Nanos(seen), missed, Nanos(interval));
            let expected: Vec<u64> = (1..=missed).map(|k| seen - k * interval).collect();
            prop_assert_eq!(taken(&mut histogram), of(&expected));
        }

        /// The result equals the correction of HdrHistogram, which stops above one interval.
        #[test]
        fn correction_equals_that_of_hdr_histogram(seen in 1_000u64..10_000_000, interval in 100u64..100_000) {
            let mut theirs = hdrhistogram::Histogram::<u64>::new_with_bounds(1, 1 << 40, 3).expect("bounds");
            theirs.record_correct(seen, interval).expect("in bounds");
            let mut histogram = Histogram::with_room_for(Nanos(100));
            histogram.record(Nanos(seen));
            histogram.record_missed(Nanos(seen), seen / interval - u64::from(seen >= interval), Nanos(interval));
            let ours = taken(&mut histogram);
            prop_assert_eq!(ours.samples, theirs.len());
            for bucket in ours.buckets {
                prop_assert_eq!(theirs.count_at(bucket.0.0), bucket.1);
            }
        }
    }

    #[test]
    fn corrects_a_day_of_missed_periods_at_once() {
        let (day, interval) = (Nanos::from_secs(86_400), Nanos::from_micros(20));
        let missed = day.0 / interval.0;
        let mut histogram = Histogram::with_room_for(Nanos::SECOND);
        histogram.record_missed(day, missed, interval);
        let distribution = taken(&mut histogram);
        assert_eq!(distribution.samples, missed);
        assert_eq!(
            (distribution.min, distribution.max),
            (Some(Nanos(0)), Some(Nanos(day.0 - interval.0)))
        );
    }
}
