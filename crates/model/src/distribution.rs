// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Distributions of times: log-linear buckets of three significant digits, and the exact extremes.

use serde::{Deserialize, Serialize};

use crate::Nanos;

/// Number of linear steps between a power of two and the next; with it no bucket is wider than
/// 1/1024 of its value. The layout is that of HdrHistogram at three significant digits
/// (hdrhistogram.org, "Recorded value distribution").
const STEPS: u64 = 1024;

/// The minimum number of expected samples beyond a quantile for it to be shown and compared.
pub const SAMPLES_BEYOND: u64 = 10;

/// One bucket: its lowest value and its number of samples. `[value, count]` in JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Bucket(pub Nanos, pub u64);

impl Bucket {
    /// Returns the width of the bucket of `value`.
    fn width(value: Nanos) -> u64 {
        1 << (63 - (value.0 | (STEPS * 2 - 1)).leading_zeros() as u64)
            .saturating_sub(STEPS.ilog2() as u64)
    }

    /// Returns the lowest value of the bucket of `value`.
    #[must_use]
    pub fn lowest(value: Nanos) -> Nanos {
        Nanos(value.0 & !(Self::width(value) - 1))
    }

    /// Returns the highest value of the bucket of `value`.
    #[must_use]
    pub fn highest(value: Nanos) -> Nanos {
        Nanos(Self::lowest(value).0 | (Self::width(value) - 1))
    }
}

/// The counts of measured times. Cannot overflow: any [`Nanos`] has a bucket.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Distribution {
    /// Number of samples.
    pub samples: u64,
    /// The exact smallest; `None` without samples.
    pub min: Option<Nanos>,
    /// The exact largest; `None` without samples.
    pub max: Option<Nanos>,
    /// The buckets with samples, in rising order.
    pub buckets: Vec<Bucket>,
}

impl Distribution {
    /// Returns the distribution of these values.
    #[must_use]
    pub fn from_values(values: impl IntoIterator<Item = Nanos>) -> Self {
        let mut counts = std::collections::BTreeMap::<Nanos, u64>::new();
        let (mut samples, mut min, mut max) = (0, None, None);
        for value in values {
            samples += 1;
            min = Some(min.map_or(value, |min: Nanos| min.min(value)));
            max = Some(max.map_or(value, |max: Nanos| max.max(value)));
            *counts.entry(Bucket::lowest(value)).or_default() += 1;
        }
        Self {
            samples,
            min,
            max,
            buckets: counts
                .into_iter()
                .map(|(value, count)| Bucket(value, count))
                .collect(),
        }
    }

    /// Adds every sample of `other`.
    pub fn merge(&mut self, other: &Self) {
        let mut merged = Vec::with_capacity(self.buckets.len().max(other.buckets.len()));
        let (mut left, mut right) = (
            self.buckets.iter().peekable(),
            other.buckets.iter().peekable(),
        );
        loop {
            match (left.peek(), right.peek()) {
                (Some(a), Some(b)) if a.0 == b.0 => {
                    merged.push(Bucket(a.0, a.1 + b.1));
                    left.next();
                    right.next();
                }
                (Some(a), Some(b)) if a.0 < b.0 => merged.extend(left.next().copied()),
                (_, Some(_)) => merged.extend(right.next().copied()),
                (Some(_), None) => merged.extend(left.next().copied()),
                (None, None) => break,
            }
        }
        self.buckets = merged;
        self.samples += other.samples;
        self.min = [self.min, other.min].into_iter().flatten().min();
        self.max = [self.max, other.max].into_iter().flatten().max();
    }

    /// Returns the smallest time that at least the part `quantile` (0 to 1) of the samples does not
    /// exceed: the upper edge of its bucket, at most the exact maximum; `None` without samples.
    #[must_use]
    pub fn quantile(&self, quantile: f64) -> Option<Nanos> {
        let max = self.max?;
        let rank = ((quantile * self.samples as f64).ceil() as u64).clamp(1, self.samples.max(1));
        let mut seen = 0;
        for bucket in &self.buckets {
            seen += bucket.1;
            if seen >= rank {
                return Some(Bucket::highest(bucket.0).min(max));
            }
        }
        Some(max)
    }

    /// Returns the quantile if at least [`SAMPLES_BEYOND`] samples are expected beyond it; fewer
    /// samples are noise.
    #[must_use]
    pub fn backed_quantile(&self, quantile: f64) -> Option<Nanos> {
        // 10 000 × (1 − 0.999) is slightly less than ten in floating point.
        let beyond = self.samples as f64 * (1.0 - quantile) + 1e-6;
        (beyond >= SAMPLES_BEYOND as f64)
            .then(|| self.quantile(quantile))
            .flatten()
    }

    /// Returns the number of samples in buckets entirely above `limit`.
    #[must_use]
    pub fn count_above(&self, limit: Nanos) -> u64 {
        self.buckets
            .iter()
            .filter(|bucket| bucket.0 > limit)
            .map(|bucket| bucket.1)
            .sum()
    }

    /// Returns the mean of the bucket middles, for rates and sums, not for verdicts; `None` without
    /// samples.
    #[must_use]
    pub fn mean(&self) -> Option<Nanos> {
        let sum: f64 = self
            .buckets
            .iter()
            .map(|bucket| {
                let middle = (bucket.0.0 as f64 + Bucket::highest(bucket.0).0 as f64) / 2.0;
                middle * bucket.1 as f64
            })
            .sum();
        (self.samples > 0).then(|| Nanos((sum / self.samples as f64).round() as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn buckets_are_exact_below_2048_and_within_a_thousandth_above() {
        for value in [0, 1, 1023, 2047] {
            assert_eq!(Bucket::lowest(Nanos(value)), Nanos(value));
            assert_eq!(Bucket::highest(Nanos(value)), Nanos(value));
        }
        assert_eq!(
            (Bucket::lowest(Nanos(2049)), Bucket::highest(Nanos(2049))),
            (Nanos(2048), Nanos(2049))
        );
        assert_eq!(Bucket::highest(Nanos(u64::MAX)), Nanos(u64::MAX));
    }

    #[test]
    fn a_quantile_needs_ten_samples_above_it() {
        let of = |samples: u64| Distribution::from_values((0..samples).map(Nanos));
        assert_eq!(of(9_999).backed_quantile(0.999), None);
        assert!(of(10_000).backed_quantile(0.999).is_some());
        assert!(of(20).backed_quantile(0.5).is_some());
        assert_eq!(of(0).backed_quantile(0.5), None);
    }

    proptest! {
        #[test]
        fn a_bucket_contains_its_value_and_is_narrow(value: u64) {
            let (low, high) = (Bucket::lowest(Nanos(value)).0, Bucket::highest(Nanos(value)).0);
            prop_assert!(low <= value && value <= high);
            prop_assert!((high - low) as f64 <= value as f64 / 1023.0);
        }

        #[test]
        fn merging_equals_counting_all_values(a in proptest::collection::vec(0u64..1_000_000, 0..50), b in proptest::collection::vec(0u64..1_000_000, 0..50)) {
            let mut merged = Distribution::from_values(a.iter().copied().map(Nanos));
            merged.merge(&Distribution::from_values(b.iter().copied().map(Nanos)));
            prop_assert_eq!(merged, Distribution::from_values(a.into_iter().chain(b).map(Nanos)));
        }

        #[test]
        fn a_quantile_is_within_its_bucket_of_the_exact_one(mut values in proptest::collection::vec(0u64..10_000_000, 1..200), quantile in 0.0f64..=1.0) {
            let distribution = Distribution::from_values(values.iter().copied().map(Nanos));
            values.sort_unstable();
            let rank = ((quantile * values.len() as f64).ceil() as usize).clamp(1, values.len());
            let exact = Nanos(values[rank - 1]);
            let found = distribution.quantile(quantile).expect("not empty");
            prop_assert!(found >= exact && found <= Bucket::highest(exact), "{found:?} {exact:?}");
        }
    }
}
