// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Estimates the uncertainty of a quantile of one record: its logarithm, with the variance of that
//! logarithm by the bootstrap.
//!
//! Consecutive wakeups depend strongly on each other, and so do the seconds of one run, so neither
//! samples nor seconds may be drawn independently. The units drawn with replacement are:
//! - whole runs, if there are at least two: resampling only the highest level of nested data gives
//!   the right variance (Davison and Hinkley, "Bootstrap methods and their application", 1997,
//!   §3.8);
//! - series of adjacent batches, if there is one run: the circular block bootstrap (Künsch 1989;
//!   Politis and Romano 1992). It has no information on how runs differ.

use rampart_model::{Bucket, Distribution, Nanos};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// If a single run has more batches than this, adjacent ones are merged first: longer batches
/// depend less on each other, and the cost is bounded.
const MOST_BATCHES: usize = 200;
/// With fewer batches, a single run gives no estimate of its own spread.
const FEWEST_BATCHES: usize = 4;

/// Parameters of the bootstrap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resampling {
    /// Number of resamples; 1000 leave the standard error itself uncertain by about 2 %.
    pub resamples: u32,
    /// Seed of the generator. The same seed and samples give the same interval.
    pub seed: u64,
}

impl Default for Resampling {
    fn default() -> Self {
        Self {
            resamples: 1000,
            seed: 0x0052_414d_5041_5254,
        }
    }
}

/// A record prepared for resampling.
#[derive(Debug)]
pub(crate) struct Sampled {
    /// The buckets of all units, in ascending order.
    buckets: Vec<Nanos>,
    /// The exact maximum.
    max: Nanos,
    /// For each unit, the number of its samples in this bucket or a lower one.
    cumulative: Vec<Vec<u64>>,
    /// Units that are drawn together.
    stretch: usize,
    /// Whether the units are runs.
    runs: bool,
}

/// A quantile and its uncertainty.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Spread {
    /// ln of the quantile in nanoseconds, at least that of 1 ns.
    pub(crate) ln_value: f64,
    /// Variance of `ln_value`.
    pub(crate) ln_variance: f64,
    /// Half the width of its bucket, as a logarithm: the resolution limit of any bootstrap.
    pub(crate) ln_rounding: f64,
    /// Degrees of freedom of the variance.
    pub(crate) freedom: f64,
}

impl Sampled {
    /// Prepares the runs of a record, each a series of batches in chronological order. Returns
    /// `None` if there is too little data: one run of fewer than four batches.
    pub(crate) fn new(runs: &[Vec<Distribution>]) -> Option<Self> {
        let runs: Vec<Vec<&Distribution>> = runs
            .iter()
            .map(|run| run.iter().filter(|batch| batch.samples > 0).collect())
            .filter(|run: &Vec<_>| !run.is_empty())
            .collect();
        match runs.as_slice() {
            [] => None,
            [run] if run.len() < FEWEST_BATCHES => None,
            [run] => {
                let units: Vec<Distribution> = run
                    .chunks(run.len().div_ceil(MOST_BATCHES))
                    .map(merged)
                    .collect();
                // √n series of √n: long compared with the dependence observed within a run, but
                // with a wider interval than n^(1/3), which is best for weak dependence.
                let stretch = (units.len() as f64).sqrt().ceil() as usize;
                Self::of_units(&units, stretch, false)
            }
            runs => {
                let units: Vec<Distribution> = runs.iter().map(merged).collect();
                Self::of_units(&units, 1, true)
            }
        }
    }

    fn of_units(units: &[Distribution], stretch: usize, runs: bool) -> Option<Self> {
        let mut buckets: Vec<Nanos> = units
            .iter()
            .flat_map(|unit| unit.buckets.iter().map(|bucket| bucket.0))
            .collect();
        buckets.sort_unstable();
        buckets.dedup();
        let cumulative = units
            .iter()
            .map(|unit| {
                let mut own = unit.buckets.iter().peekable();
                let mut sum = 0;
                buckets
                    .iter()
                    .map(|value| {
                        while let Some(bucket) = own.next_if(|bucket| bucket.0 <= *value) {
                            sum += bucket.1;
                        }
                        sum
                    })
                    .collect()
            })
            .collect();
        (!buckets.is_empty()).then_some(Self {
            buckets,
            max: units.iter().filter_map(|unit| unit.max).max()?,
            cumulative,
            stretch,
            runs,
        })
    }

    /// Returns whether the units are at least two runs.
    pub(crate) fn has_runs(&self) -> bool {
        self.runs
    }

    /// Returns the bucket of `quantile` with these weights of the units.
    fn bucket(&self, quantile: f64, weights: &[u64]) -> Nanos {
        let up_to = |index: usize| -> u64 {
            weights
                .iter()
                .zip(&self.cumulative)
                .map(|(weight, unit)| weight * unit[index])
                .sum()
        };
        let last = self.buckets.len() - 1;
        let total = up_to(last);
        let rank = ((quantile * total as f64).ceil() as u64).clamp(1, total.max(1));
        let (mut low, mut high) = (0, last);
        while low < high {
            let middle = (low + high) / 2;
            if up_to(middle) >= rank {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        self.buckets[low]
    }

    /// Returns the ln of a bucket's value, defined like [`Distribution::quantile`]: the upper edge,
    /// at most the maximum.
    fn ln_value(&self, bucket: Nanos) -> f64 {
        (Bucket::highest(bucket).min(self.max).0.max(1) as f64).ln()
    }

    /// Returns the quantile and its uncertainty.
    pub(crate) fn spread(&self, quantile: f64, options: &Resampling) -> Spread {
        let units = self.cumulative.len();
        let whole = self.bucket(quantile, &vec![1; units]);
        let mut generator = Pcg64Mcg::seed_from_u64(options.seed ^ quantile.to_bits());
        let mut weights = vec![0; units];
        // Welford's running mean and sum of squares.
        let (mut mean, mut squares) = (0.0, 0.0);
        let resamples = options.resamples.max(2);
        for turn in 1..=resamples {
            weights.fill(0);
            let mut left = units;
            while left > 0 {
                let start = generator.random_range(0..units);
                let length = self.stretch.min(left);
                for offset in 0..length {
                    weights[(start + offset) % units] += 1;
                }
                left -= length;
            }
            let value = self.ln_value(self.bucket(quantile, &weights));
            let off = value - mean;
            mean += off / f64::from(turn);
            squares += off * (value - mean);
        }
        // Drawing from m units instead of the underlying process makes the variance too small by
        // (m−1)/m (T. Hesterberg, "What teachers should know about the bootstrap", 2015, §4.1).
        let independent = units as f64 / self.stretch as f64;
        let freedom = (independent - 1.0).max(1.0);
        let variance = squares / f64::from(resamples - 1);
        let (low, high) = (whole.0.max(1) as f64, Bucket::highest(whole).0 as f64 + 1.0);
        Spread {
            ln_value: self.ln_value(whole),
            ln_variance: variance * (freedom + 1.0) / freedom,
            ln_rounding: 0.5 * (high / low).ln().max(0.0),
            freedom,
        }
    }
}

/// Returns all samples of these batches together.
fn merged<'a>(batches: impl AsRef<[&'a Distribution]>) -> Distribution {
    let mut whole = Distribution::default();
    for batch in batches.as_ref() {
        whole.merge(batch);
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn batch(values: &[u64]) -> Distribution {
        Distribution::from_values(values.iter().copied().map(Nanos))
    }

    #[test]
    fn too_little_data_has_no_spread() {
        assert!(Sampled::new(&[]).is_none());
        assert!(Sampled::new(&[vec![], vec![Distribution::default()]]).is_none());
        assert!(Sampled::new(&[vec![batch(&[1]); 3]]).is_none());
        assert!(Sampled::new(&[vec![batch(&[1]); 4]]).is_some_and(|side| !side.has_runs()));
        assert!(
            Sampled::new(&[vec![batch(&[1])], vec![batch(&[1])]]).is_some_and(|s| s.has_runs())
        );
    }

    #[test]
    fn two_runs_have_the_variance_of_two_values() {
        // ln of the medians differs by d; the variance of their mean is d²/4.
        let runs: Vec<Vec<Distribution>> = [1_000.0f64, 1_100.0]
            .iter()
            .map(|centre| {
                let values: Vec<u64> = (0..2001)
                    .map(|step| (centre * (1.0 + (step as f64 - 1000.0) / 2_000.0)) as u64)
                    .collect();
                vec![batch(&values)]
            })
            .collect();
        let spread = Sampled::new(&runs).expect("two runs").spread(
            0.5,
            &Resampling {
                resamples: 20_000,
                seed: 1,
            },
        );
        let expected = 1.1f64.ln().powi(2) / 4.0;
        assert!(
            (spread.ln_variance / expected - 1.0).abs() < 0.1,
            "{spread:?}"
        );
        assert_eq!(spread.freedom, 1.0);
    }

    #[test]
    fn zero_counts_as_a_nanosecond() {
        let side = Sampled::new(&[vec![batch(&[0, 0])], vec![batch(&[0])]]).expect("two runs");
        let spread = side.spread(0.5, &Resampling::default());
        assert_eq!((spread.ln_value, spread.ln_variance), (0.0, 0.0));
        assert!(spread.ln_rounding.is_finite());
    }

    proptest! {
        #[test]
        fn equal_weights_give_the_quantile_of_all_samples(runs in proptest::collection::vec(proptest::collection::vec(0u64..1_000_000, 1..40), 2..6), quantile in 0.0f64..=1.0) {
            let batches: Vec<Vec<Distribution>> = runs.iter().map(|run| vec![batch(run)]).collect();
            let side = Sampled::new(&batches).expect("two runs");
            let found = side.spread(quantile, &Resampling { resamples: 2, seed: 0 }).ln_value;
            let whole = batch(&runs.concat()).quantile(quantile).expect("not empty");
            prop_assert_eq!(found, (whole.0.max(1) as f64).ln());
        }
    }
}
