// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Counting samples in the buckets of HdrHistogram at three significant digits.
//!
//! Any 64-bit value has a bucket, so nothing overflows. One bit for each bucket says whether it is
//! in use, so that going through a batch of some hundred different values and emptying it costs in proportion to those, not to the tens of thousands of buckets there are.

use rampart_model::{Bucket, Nanos};

/// Linear steps between two powers of two; with the exact range below 2048 this is the layout of
/// HdrHistogram with three significant digits and a lowest value of 1.
const STEPS_BITS: u32 = 10;

fn index(value: u64) -> usize {
    let shift = (63 - (value | ((2 << STEPS_BITS) - 1)).leading_zeros()) - STEPS_BITS;
    ((shift as usize) << STEPS_BITS) + (value >> shift) as usize
}

fn lowest(index: usize) -> u64 {
    let shift = (index >> STEPS_BITS).saturating_sub(1);
    ((index - (shift << STEPS_BITS)) as u64) << shift
}

/// Counts of values, with the exact extremes.
#[derive(Debug, Clone)]
pub struct Histogram {
    counts: Vec<u64>,
    /// A bit for each of `counts` that is not 0.
    used: Vec<u64>,
    /// How many of `counts` are not 0.
    buckets: usize,
    min: u64,
    max: u64,
}

impl Histogram {
    /// An empty histogram with room for values up to `highest`; greater ones make it grow.
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

    /// Counts one sample of each of `values` and returns how many it counted. It ends early at a
    /// value that it has no room for; there is room for any up to [`Histogram::max`].
    ///
    /// The maximum is not kept: none of the values may be above it.
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

    /// Counts `count` samples of `value`; at least one.
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
        // To the end of its power of two, so that a rising maximum grows it seldom.
        let buckets = (index | ((1 << STEPS_BITS) - 1)) + 1;
        self.counts.resize(buckets, 0);
        self.used.resize(buckets / 64, 0);
    }

    /// Counts the samples that missed periods would have been: for a sample `seen`, `seen` −
    /// k × `interval` for each k from 1 to `missed`, as a wake at each planned moment would have
    /// found it (Gil Tene's correction for coordinated omission, HdrHistogram
    /// `recordValueWithExpectedInterval`). However many there are, this takes no longer than
    /// going through the buckets once.
    pub fn record_missed(&mut self, seen: Nanos, missed: u64, interval: Nanos) {
        let interval = interval.0.max(1);
        let mut k = 1;
        while k <= missed {
            let value = seen.0.saturating_sub(k.saturating_mul(interval));
            // All further ones down to the bucket's lower edge are in the same bucket.
            let edge = Bucket::lowest(Nanos(value)).0;
            let same = ((value - edge) / interval + 1).min(missed - k + 1);
            let same = if value == 0 { missed - k + 1 } else { same };
            self.record_many(Nanos(value), same);
            let last = value.saturating_sub((same - 1).saturating_mul(interval));
            self.min = self.min.min(last);
            k += same;
        }
    }

    /// Whether it holds no samples.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        // The first sample lowers the minimum, unless it is the greatest value there is.
        self.min == u64::MAX && self.max == 0
    }

    /// The exact smallest; none without samples.
    #[must_use]
    pub fn min(&self) -> Option<Nanos> {
        (!self.is_empty()).then_some(Nanos(self.min))
    }

    /// The exact largest; none without samples.
    #[must_use]
    pub fn max(&self) -> Option<Nanos> {
        (!self.is_empty()).then_some(Nanos(self.max))
    }

    /// How many buckets hold samples.
    #[must_use]
    pub const fn buckets(&self) -> usize {
        self.buckets
    }

    /// Hands the lowest value and the count of every bucket that holds samples to `take`,
    /// highest first.
    #[inline]
    pub fn each_falling(&self, mut take: impl FnMut(u64, u64)) {
        let groups = self.counts.as_chunks::<64>().0;
        for ((group, word), counts) in self.used.iter().enumerate().zip(groups).rev() {
            each_bit_falling(*word, |bit| {
                take(lowest(group * 64 + bit), counts[bit]);
            });
        }
    }

    /// The same for all samples of both.
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

    /// Forgets all samples.
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
        fn counts_as_the_model_counts(values in proptest::collection::vec(any::<u64>().prop_flat_map(|value| (0u32..64).prop_map(move |shift| value >> shift)), 0..100)) {
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
        fn both_are_counted_together(ours in proptest::collection::vec(0u64..5_000, 0..50), theirs in proptest::collection::vec(0u64..500_000, 0..50)) {
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

        /// The layout is HdrHistogram's own, bucket by bucket.
        #[test]
        fn the_buckets_are_those_of_hdr_histogram(value in any::<u64>().prop_flat_map(|value| (2u32..64).prop_map(move |shift| value >> shift))) {
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

        /// The same as HdrHistogram's own correction, which stops above one interval.
        #[test]
        fn correction_is_hdr_histograms(seen in 1_000u64..10_000_000, interval in 100u64..100_000) {
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
    fn a_day_of_missed_periods_is_corrected_at_once() {
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
