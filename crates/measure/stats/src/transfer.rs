// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests whether a block of one domain's CPUs reaches another domain: the worst latency in each
//! window with a block, compared with windows without one.
//!
//! Windows with and without blocks alternate at random times. If blocks have no effect, the labels
//! of the windows are therefore exchangeable, as the permutation test requires (E. J. G. Pitman,
//! "Significance tests which may be applied to samples from any populations", 1937); no
//! distribution of latencies is assumed. Slow changes of the machine affect both kinds of windows
//! alike.

use rampart_model::{Interval, Nanos, VerdictOutcome};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64Mcg;

use crate::median::median_interval_in_order;
use crate::{Resampling, Risk, clopper_pearson};

/// Largest transfer at which an isolation holds: a tenth of the time for which the other domain was
/// stopped. A domain that shares a CPU with the blocked one has a transfer of 1. Effects of shared
/// caches, buses and the hypervisor's clock stay far below a tenth if blocks are many times longer
/// than quiet latencies, as they are chosen to be.
pub const TRANSFER_TOLERANCE: f64 = 0.1;

/// Largest p-value of a leak: such an excess of the windows with blocks occurs by chance in fewer
/// than 1 of 100 evaluations.
pub const TRANSFER_RISK: f64 = 0.01;

/// Largest p-value of a leak that only a few blocks show, if half of [`Risk::alarm`] is not less. It is
/// stricter because this is a second test of the same windows.
pub const PARTIAL_RISK: f64 = 0.001;

/// Smallest part of a block that counts as crossing into a window, on a real machine.
pub const CROSSED: f64 = TRANSFER_TOLERANCE;

/// The same on an emulated machine. Its CPUs share real ones, so a stopped CPU, which spins, takes
/// time from all others; half a block is more than they lose by that.
pub const CROSSED_EMULATED: f64 = 0.5;

/// Largest part of the blocks that may cross for an isolation to hold, at [`Risk::hold`]: without a
/// late window it takes 35 windows with a block, at the last of several looks 37.
pub const PART_TOLERANCE: f64 = 0.125;

/// The same on an emulated machine, where rounds have half as many blocks: 17 windows.
pub const PART_TOLERANCE_EMULATED: f64 = 0.25;

/// Above this p-value the count of worse windows is no reason to doubt that an isolation holds.
const PARTIAL_DOUBT: f64 = 0.05;

/// A window that is late by this part of a block contains a block that crossed nearly whole, or a
/// stall as long. A single such window is a reason for doubt, unless windows without a block show
/// the same.
const CROSSED_WHOLE: f64 = 0.5;

/// The p-value required for these windows: they are few, and a small count proves little.
const WHOLE_DOUBT: f64 = 0.2;

/// Fewest windows of each kind for a decision. The range of eight windows contains their median
/// with a confidence of 99 %, and six windows in eight never agree by chance at [`TRANSFER_RISK`].
pub const FEWEST_WINDOWS: usize = 8;

/// Confidence of the two-sided interval of a transfer.
const CONFIDENCE: f64 = 0.95;
/// Quantile of the normal distribution at 97.5 %: half the width of that interval in standard errors.
const NORMAL: f64 = 1.960;
/// Sum of the quantiles of the normal distribution at 97.5 % and 80 %: a change of this many
/// standard errors is detected with a probability of 80 % (H. S. Bloom, "Minimum detectable
/// effects", Evaluation Review 19, 1995).
const DETECTABLE_ERRORS: f64 = NORMAL + 0.842;

/// The effect of blocks of one domain on another.
#[derive(Debug, Clone, PartialEq)]
pub struct Transfer {
    /// Median excess divided by the length of the blocks: 0 if nothing crosses, 1 if all does.
    pub transfer: Interval,
    /// Median of the windows with a block minus median of those without, in ns.
    pub excess: f64,
    /// Probability of an excess at least this large if blocks had no effect. Never 0: at least 1
    /// divided by the number of permutations plus one (B. Phipson and G. K. Smyth, "Permutation
    /// p-values should never be zero", 2010).
    pub p_value: f64,
    /// Smallest part of a block that counts as crossing into a window: [`CROSSED`] or
    /// [`CROSSED_EMULATED`].
    pub crossing: f64,
    /// Number of windows with a block, and without one, whose worst latency exceeds the median of
    /// the quiet windows by more than that.
    pub crossed: (usize, usize),
    /// The same for windows that are late by more than half a block.
    pub crossed_whole: (usize, usize),
    /// Probability of this many more among the windows with a block, if blocks had no effect
    /// (Fisher's exact test, one-sided).
    pub crossed_p_value: f64,
    /// Smallest transfer that is detected with a probability of 80 %.
    pub smallest_detectable: f64,
    /// Upper bound of the part of all blocks that cross, at a confidence of 1 − [`Risk::hold`]: of the
    /// part of late windows with a block, without those that are late anyway.
    pub part_at_most: f64,
    /// [`VerdictOutcome::Holds`], [`VerdictOutcome::Leaks`] or [`VerdictOutcome::Inconclusive`].
    pub outcome: VerdictOutcome,
}

impl Transfer {
    /// Returns whether it is a leak that only some of the blocks show, so that the median does not.
    #[must_use]
    pub fn is_partial(&self) -> bool {
        self.outcome == VerdictOutcome::Leaks && self.transfer.low <= TRANSFER_TOLERANCE
    }
}

/// Compares the worst latencies of windows with a block of `length` (the median of the actual
/// lengths) with those of equally long windows without one.
///
/// `risk` is that of one of all pairs of domains that the evaluation compares: [`Risk::of`].
///
/// - [`VerdictOutcome::Leaks`] if the transfer is above [`TRANSFER_TOLERANCE`] at that risk of an alarm
///   and the p-value is below [`TRANSFER_RISK`], or if the number of windows
///   with a block that are late by more than `crossing` of it is significant by itself
///   ([`PARTIAL_RISK`]): an isolation that passes some blocks leaks, although the median holds.
/// - [`VerdictOutcome::Holds`] if the transfer is below the tolerance at [`Risk::hold`], at most
///   [`PART_TOLERANCE`] of the blocks cross ([`PART_TOLERANCE_EMULATED`] if `crossing` is that of an
///   emulated machine), the count of worse windows would be as high by chance in 5 of 100
///   evaluations, and no window with a block is late by half a block unless some without a block
///   are too.
/// - [`VerdictOutcome::Inconclusive`] otherwise, and with fewer than [`FEWEST_WINDOWS`] on either
///   side.
///
/// Returns `None` if a side has no window, or if `length` is zero.
#[must_use]
pub fn transfer(
    with_block: &[Nanos],
    without_block: &[Nanos],
    length: Nanos,
    crossing: f64,
    risk: &Risk,
    options: &Resampling,
) -> Option<Transfer> {
    if with_block.is_empty() || without_block.is_empty() || length == Nanos::ZERO {
        return None;
    }
    let values =
        |windows: &[Nanos]| -> Vec<f64> { windows.iter().map(|worst| worst.0 as f64).collect() };
    let (blocked, quiet) = (values(with_block), values(without_block));
    let length = length.0 as f64;
    let mut generator = Pcg64Mcg::seed_from_u64(options.seed);
    let quiet_median = median(&mut quiet.clone());
    let excess = median(&mut blocked.clone()) - quiet_median;
    let p_value = permutation(&blocked, &quiet, excess, options.resamples, &mut generator);
    let at = |confidence| difference(&blocked, &quiet, length, confidence);
    let transfer = at(CONFIDENCE)?;
    let sure = |risk: f64| at(1.0 - 2.0 * risk).filter(|at| at.confidence >= 1.0 - 2.0 * risk);
    let above = sure(risk.alarm / 2.0).is_some_and(|at| at.low > TRANSFER_TOLERANCE);
    let below = sure(risk.hold).is_some_and(|at| at.high < TRANSFER_TOLERANCE);

    let over = |part: f64| {
        let limit = quiet_median + part * length;
        let count = |windows: &[f64]| windows.iter().filter(|worst| **worst > limit).count();
        (count(&blocked), count(&quiet))
    };
    let (crossed, crossed_whole) = (over(crossing), over(CROSSED_WHOLE));
    let counts = (blocked.len(), quiet.len());
    let crossed_p_value = fisher(crossed, counts);
    let none_whole = crossed_whole.0 == 0
        || (crossed_whole.1 > 0 && fisher(crossed_whole, counts) >= WHOLE_DOUBT);
    let part_at_most = part_at_most(crossed, counts, risk.hold);
    let tolerance = if crossing < CROSSED_EMULATED {
        PART_TOLERANCE
    } else {
        PART_TOLERANCE_EMULATED
    };
    let enough = blocked.len().min(quiet.len()) >= FEWEST_WINDOWS;
    let outcome = if !enough {
        VerdictOutcome::Inconclusive
    } else if (above && p_value < TRANSFER_RISK)
        || crossed_p_value < PARTIAL_RISK.min(risk.alarm / 2.0)
    {
        VerdictOutcome::Leaks
    } else if below && part_at_most <= tolerance && crossed_p_value >= PARTIAL_DOUBT && none_whole {
        VerdictOutcome::Holds
    } else {
        VerdictOutcome::Inconclusive
    };
    Some(Transfer {
        transfer,
        excess,
        p_value,
        crossing,
        crossed,
        crossed_whole,
        crossed_p_value,
        smallest_detectable: DETECTABLE_ERRORS * (transfer.high - transfer.low) / (2.0 * NORMAL),
        part_at_most,
        outcome,
    })
}

/// Returns the upper bound of the difference of the parts of late windows with and without a block,
/// from the exact limits of both parts (C. J. Clopper and E. S. Pearson 1934), together in the worse
/// direction (G. Y. Zou and A. Donner, Statistics in Medicine 27, 2008). If no window with a block is
/// late it is their exact limit.
fn part_at_most(late: (usize, usize), windows: (usize, usize), risk: f64) -> f64 {
    let exact = |late: usize, windows: usize| {
        // Each limit of a two-sided interval is one-sided at half the risk.
        clopper_pearson(late as u64, windows as u64, 1.0 - 2.0 * risk)
    };
    let (Some(with), Some(without)) = (exact(late.0, windows.0), exact(late.1, windows.1)) else {
        return 1.0;
    };
    // More late windows without a block than with one prove nothing about blocks.
    let late_anyway = without.estimate.min(with.estimate);
    let added = with.estimate - late_anyway;
    let margin = (with.high - with.estimate).hypot(late_anyway - without.low.min(late_anyway));
    (added + margin).clamp(0.0, 1.0)
}

/// Returns the median of `values`, which must not be empty; reorders them.
fn median(values: &mut [f64]) -> f64 {
    let middle = values.len() / 2;
    let even = values.len().is_multiple_of(2);
    let (below, upper, _) = values.select_nth_unstable_by(middle, f64::total_cmp);
    let upper = *upper;
    if even {
        let lower = below.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        0.5 * (lower + upper)
    } else {
        upper
    }
}

/// Returns the probability of an excess at least as large after permuting the windows; the observed
/// order counts as one permutation.
fn permutation(
    blocked: &[f64],
    quiet: &[f64],
    excess: f64,
    permutations: u32,
    generator: &mut Pcg64Mcg,
) -> f64 {
    let mut all = [blocked, quiet].concat();
    let mut at_least = 0;
    for _ in 0..permutations {
        all.shuffle(generator);
        let (one, other) = all.split_at_mut(blocked.len());
        at_least += u32::from(median(one) - median(other) >= excess);
    }
    f64::from(at_least + 1) / f64::from(permutations + 1)
}

/// Returns the interval of the transfer, from an interval of each median, which assumes no distribution,
/// added in square as for [`part_at_most`] (G. Y. Zou and A. Donner, Statistics in Medicine 27, 2008).
fn difference(blocked: &[f64], quiet: &[f64], length: f64, confidence: f64) -> Option<Interval> {
    let with = median_interval_in_order(blocked, confidence)?;
    let without = median_interval_in_order(quiet, confidence)?;
    let part = |nanos: f64| nanos / length;
    let estimate = part(with.estimate - without.estimate);
    Some(Interval {
        estimate,
        low: estimate - part(with.estimate - with.low).hypot(part(without.high - without.estimate)),
        high: estimate
            + part(with.high - with.estimate).hypot(part(without.estimate - without.low)),
        confidence: with.confidence.min(without.confidence).min(confidence),
    })
}

/// Returns the probability of `crossed.0` or more on the first side, given the sums: the upper tail
/// of the hypergeometric distribution (R. A. Fisher, "The logic of inductive inference", 1935).
fn fisher(crossed: (usize, usize), windows: (usize, usize)) -> f64 {
    let total = windows.0 + windows.1;
    let marked = crossed.0 + crossed.1;
    let mut ln_factorial = vec![0.0; total + 1];
    for number in 1..=total {
        ln_factorial[number] = ln_factorial[number - 1] + (number as f64).ln();
    }
    let ln_choose = |from: usize, take: usize| {
        ln_factorial[from] - ln_factorial[take] - ln_factorial[from - take]
    };
    let highest = marked.min(windows.0);
    (crossed.0..=highest)
        .filter(|here| marked - here <= windows.1)
        .map(|here| {
            (ln_choose(windows.0, here) + ln_choose(windows.1, marked - here)
                - ln_choose(total, marked))
            .exp()
        })
        .sum::<f64>()
        .min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Fisher's tea test: eight cups, four of each kind, with all or three of four identified
    /// correctly.
    #[test]
    fn exact_test_agrees_with_the_textbook() {
        assert!((fisher((4, 0), (4, 4)) - 1.0 / 70.0).abs() < 1e-12);
        assert!((fisher((3, 1), (4, 4)) - 17.0 / 70.0).abs() < 1e-12);
        assert!((fisher((0, 0), (4, 4)) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn returns_the_median() {
        assert_eq!(median(&mut [3.0]), 3.0);
        assert_eq!(median(&mut [9.0, 1.0]), 5.0);
        assert_eq!(median(&mut [5.0, 1.0, 9.0]), 5.0);
        assert_eq!(median(&mut [4.0, 1.0, 9.0, 6.0]), 5.0);
    }

    #[test]
    fn returns_none_without_data() {
        let options = Resampling::default();
        let (some, length) = ([Nanos(5); 10], Nanos(100));
        assert_eq!(
            transfer(&[], &some, length, CROSSED, &Risk::SINGLE, &options),
            None
        );
        assert_eq!(
            transfer(&some, &[], length, CROSSED, &Risk::SINGLE, &options),
            None
        );
        assert_eq!(
            transfer(&some, &some, Nanos::ZERO, CROSSED, &Risk::SINGLE, &options),
            None
        );
    }

    /// The bound is that of the late windows with a block, less those that are late anyway. A single
    /// block that crosses prevents "holds", unless windows without a block show the same.
    #[test]
    fn counts_crossing_blocks() {
        let options = Resampling::default();
        let windows = |late: usize, by: u64| -> Vec<Nanos> {
            (0..40)
                .map(|index| {
                    Nanos(if index < late {
                        by
                    } else {
                        5 + index as u64 % 3
                    })
                })
                .collect()
        };
        let judged = |with: usize, without: usize, by: u64| {
            transfer(
                &windows(with, by),
                &windows(without, by),
                Nanos(1000),
                CROSSED,
                &Risk::SINGLE,
                &options,
            )
            .expect("windows")
        };
        for (with, without, by, outcome, at_most) in [
            (0, 0, 900, VerdictOutcome::Holds, 0.109),
            (1, 0, 900, VerdictOutcome::Inconclusive, 0.155),
            (1, 0, 200, VerdictOutcome::Inconclusive, 0.155),
            (3, 0, 900, VerdictOutcome::Inconclusive, 0.230),
            (3, 0, 200, VerdictOutcome::Inconclusive, 0.230),
            (3, 3, 900, VerdictOutcome::Inconclusive, 0.168),
            (1, 3, 900, VerdictOutcome::Inconclusive, 0.131),
            (0, 3, 900, VerdictOutcome::Holds, 0.109),
            (12, 0, 200, VerdictOutcome::Leaks, 0.496),
        ] {
            let found = judged(with, without, by);
            assert_eq!(found.crossed, (with, without));
            assert_eq!(found.outcome, outcome, "{found:?}");
            assert!((found.part_at_most - at_most).abs() < 2e-3, "{found:?}");
        }
    }

    proptest! {
        #[test]
        fn figures_are_within_their_ranges(
            blocked in proptest::collection::vec(0u64..u64::MAX, 1..40),
            quiet in proptest::collection::vec(0u64..u64::MAX, 1..40),
            length in 1u64..u64::MAX,
        ) {
            let nanos = |values: Vec<u64>| values.into_iter().map(Nanos).collect::<Vec<_>>();
            let options = Resampling { resamples: 50, seed: 1 };
            let found = transfer(&nanos(blocked), &nanos(quiet), Nanos(length), CROSSED, &Risk::SINGLE, &options)
                .expect("windows on both sides");
            prop_assert!(found.p_value > 0.0 && found.p_value <= 1.0);
            prop_assert!((0.0..=1.0).contains(&found.crossed_p_value));
            prop_assert!((0.0..=1.0).contains(&found.part_at_most));
            prop_assert!(found.transfer.low <= found.transfer.estimate);
            prop_assert!(found.transfer.estimate <= found.transfer.high);
            prop_assert!(found.transfer.low.is_finite() && found.transfer.high.is_finite());
            prop_assert!(found.smallest_detectable.is_finite());
        }
    }
}
