// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests transfers of blocks with simulated isolation whose truth is known.
//!
//! A window's worst latency is `exp(centre + spread·z)`, z normal, with a memory from window to
//! window, and sometimes a stall of heavy-tailed length. A block that crosses adds its part of the
//! block's length, minus the rest of the victim's period at its start.
#![expect(
    clippy::expect_used,
    reason = "a test may stop at what cannot be in a simulation"
)]

use rampart_model::{Nanos, VerdictOutcome};
use rampart_stats::{CROSSED, Look, Resampling, Risk, Transfer, transfer};
#[cfg(test)]
use rampart_stats::{FEWEST_WINDOWS, TRANSFER_RISK};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::simulation::normal;
#[cfg(not(test))]
use crate::simulation::percent;

/// Pairs of the simulated evaluations: five domains, each with blocks that are looked for in all others.
const PAIRS: u32 = 20;
/// Windows of each kind before the first look, and how many times as many a pair that is open has at each of four
/// looks: the evaluation takes two minutes, at the second look as at the first one, then four and six.
const WINDOWS: usize = 40;
const LOOKS: [usize; 4] = [1, 1, 2, 4];

/// A simulated pair of domains.
#[derive(Clone, Copy)]
struct Pair {
    /// The part of a block that the victim sees.
    transfer: f64,
    /// Probability that a block crosses.
    part: f64,
    /// Standard deviation of a window's logarithm.
    spread: f64,
    /// Correlation of a window with the one before.
    memory: f64,
    /// Probability of a stall in a window, independent of blocks.
    stalls: f64,
}

const QUIET: Pair = Pair {
    transfer: 0.0,
    part: 1.0,
    spread: 0.4,
    memory: 0.0,
    stalls: 0.0,
};
/// A machine that shares its host with others: stalls, and slow and fast seconds.
const NOISY: Pair = Pair {
    spread: 0.8,
    memory: 0.7,
    stalls: 0.05,
    ..QUIET
};
/// The processes of the truth table.
const PROCESSES: [(&str, Pair); 4] = [
    ("quiet", QUIET),
    (
        "guest with steal",
        Pair {
            spread: 0.5,
            memory: 0.6,
            stalls: 0.02,
            ..QUIET
        },
    ),
    ("restless", NOISY),
    (
        "rare stalls",
        Pair {
            stalls: 0.005,
            ..QUIET
        },
    ),
];

/// What is planted in all pairs of a row.
#[derive(Clone, Copy)]
struct Truth {
    name: &'static str,
    transfer: f64,
    part: f64,
    /// Whether "holds" is wrong, and whether "leaks" is.
    wrong: (bool, bool),
}

const TRUTHS: [Truth; 6] = [
    Truth {
        name: "nothing",
        transfer: 0.0,
        part: 1.0,
        wrong: (false, true),
    },
    // The median window with a block is a tenth of it worse: see `Pair::windows` for the rest.
    Truth {
        name: "a tenth of each block",
        transfer: 0.175,
        part: 1.0,
        wrong: (true, false),
    },
    Truth {
        name: "a third of each block",
        transfer: 0.3,
        part: 1.0,
        wrong: (true, false),
    },
    Truth {
        name: "each block",
        transfer: 1.0,
        part: 1.0,
        wrong: (true, false),
    },
    // What "holds" excludes, just.
    Truth {
        name: "one block in eight",
        transfer: 1.0,
        part: 0.126,
        wrong: (true, false),
    },
    Truth {
        name: "one block in three",
        transfer: 1.0,
        part: 0.33,
        wrong: (true, false),
    },
];

/// Counts of one row.
#[derive(Debug, Default)]
struct Rates {
    pairs: u32,
    holds: u32,
    leaks: u32,
    /// Evaluations with a leak that is wrong, and "holds" that are wrong.
    false_alarms: u32,
    false_holds: u32,
    /// Intervals of the transfer with the truth in them, and limits of the part that crosses.
    intervals: u32,
    bounds: u32,
}

/// Returns the rates of one process and one truth over evaluations of [`PAIRS`] pairs.
fn rates((_, base): (&str, Pair), truth: Truth, evaluations: u32) -> Rates {
    let pair = Pair {
        transfer: truth.transfer,
        part: truth.part,
        ..base
    };
    let mut generator = Pcg64Mcg::seed_from_u64(7);
    let (true_transfer, true_part) = pair.truth(&mut generator);
    let mut rates = Rates::default();
    for _ in 0..evaluations {
        let mut leaks = false;
        for _ in 0..PAIRS {
            let found = pair.judged_over_looks(&mut generator);
            let holds = found.outcome == VerdictOutcome::Holds;
            let leaked = found.outcome == VerdictOutcome::Leaks;
            leaks |= leaked;
            rates.pairs += 1;
            rates.holds += u32::from(holds);
            rates.leaks += u32::from(leaked);
            rates.false_holds += u32::from(holds && truth.wrong.0);
            let interval = &found.transfer;
            let holds_truth = interval.low <= true_transfer && true_transfer <= interval.high;
            rates.intervals += u32::from(holds_truth);
            // Where all windows are about as late as what counts as crossing, no part is the true one.
            let about_the_limit = (true_transfer - CROSSED).abs() < 0.02;
            rates.bounds += u32::from(about_the_limit || found.part_at_most >= true_part);
        }
        rates.false_alarms += u32::from(leaks && truth.wrong.1);
    }
    rates
}

/// Returns the rows of the table in Markdown.
#[cfg(not(test))]
pub(crate) fn table(evaluations: u32) -> String {
    use std::fmt::Write as _;
    let mut text = String::from(
        "| process | what crosses in all twenty | evaluations with a false alarm | holds | leaks | false holds | intervals of τ | limits of the part |\n\
         | --- | --- | --- | --- | --- | --- | --- | --- |\n",
    );
    for process in PROCESSES {
        for truth in TRUTHS {
            let found = rates(process, truth, evaluations);
            let all = found.pairs;
            let if_wrong = |wrong: bool, of: u32| if wrong { of } else { 0 };
            let _ = writeln!(
                text,
                "| {} | {} | {} | {} | {} | {} | {} | {} |",
                process.0,
                truth.name,
                percent(found.false_alarms, if_wrong(truth.wrong.1, evaluations)),
                percent(found.holds, all),
                percent(found.leaks, all),
                percent(found.false_holds, if_wrong(truth.wrong.0, all)),
                percent(found.intervals, all),
                percent(found.bounds, all),
            );
        }
    }
    text
}

/// A part of the table; the whole is in `docs/verdicts.md`.
#[test]
fn transfers_of_whole_evaluations_are_right() {
    for process in PROCESSES {
        for truth in TRUTHS {
            let found = rates(process, truth, 10);
            let at_least =
                |count: u32, part: f64| f64::from(count) >= part * f64::from(found.pairs);
            let what = format!("{}, {}: {found:?}", process.0, truth.name);
            // Of 10 evaluations with an alarm in one of a hundred at most, two is more than chance.
            assert!(found.false_alarms <= 1, "{what}");
            // Of 200: one of a hundred, and three standard errors.
            assert!(found.false_holds <= 6, "{what}");
            assert!(at_least(found.intervals, 0.94), "{what}");
            assert!(at_least(found.bounds, 0.94), "{what}");
        }
    }
}

fn judge(windows: &(Vec<Nanos>, Vec<Nanos>), risk: &Risk, generator: &mut Pcg64Mcg) -> Transfer {
    let options = Resampling {
        resamples: 200,
        seed: generator.random(),
    };
    let length = Nanos(LENGTH as u64);
    transfer(&windows.0, &windows.1, length, CROSSED, risk, &options).expect("windows")
}

/// Median quiet latency in ns.
const CENTRE: f64 = 50_000.0;
/// Length of a block: five times the worst latency in a quiet round of such a pair.
const LENGTH: f64 = 1_000_000.0;

impl Pair {
    /// Returns windows with and without a block, alternating in time.
    fn windows(self, generator: &mut Pcg64Mcg, count: usize) -> (Vec<Nanos>, Vec<Nanos>) {
        let (mut blocked, mut quiet) = (Vec::new(), Vec::new());
        let mut z = normal(generator);
        for index in 0..2 * count {
            z = self.memory * z + (1.0 - self.memory.powi(2)).sqrt() * normal(generator);
            let mut worst = (CENTRE.ln() + self.spread * z).exp();
            if generator.random::<f64>() < self.stalls {
                // Pareto with an exponent of 1, which has no mean.
                worst = worst.max(CENTRE / (1.0 - generator.random::<f64>()));
            }
            if index % 2 == 0 {
                if generator.random::<f64>() < self.part {
                    let seen = self.transfer * LENGTH - 0.05 * LENGTH * generator.random::<f64>();
                    worst = worst.max(seen);
                }
                blocked.push(Nanos(worst as u64));
            } else {
                quiet.push(Nanos(worst as u64));
            }
        }
        (blocked, quiet)
    }

    /// Returns the true transfer and the true part of the blocks that cross, without windows that are late
    /// anyway: those of very many windows.
    fn truth(self, generator: &mut Pcg64Mcg) -> (f64, f64) {
        let (mut blocked, mut quiet) = self.windows(generator, 200_000);
        let median = |windows: &mut Vec<Nanos>| {
            let middle = windows.len() / 2;
            windows.select_nth_unstable(middle).1.0 as f64
        };
        let (with, without) = (median(&mut blocked), median(&mut quiet));
        let late = |windows: &[Nanos]| {
            let limit = without + CROSSED * LENGTH;
            let late = windows.iter().filter(|worst| worst.0 as f64 > limit);
            late.count() as f64 / windows.len() as f64
        };
        let part = late(&blocked) - late(&quiet);
        ((with - without) / LENGTH, part.max(0.0))
    }

    /// Judges windows of this number that are there at once.
    #[cfg(test)]
    fn judged(self, generator: &mut Pcg64Mcg, count: usize) -> Transfer {
        let windows = self.windows(generator, count);
        judge(&windows, &Risk::SINGLE, generator)
    }

    /// Judges one of [`PAIRS`], which is measured on as long as it is open at one of the [`LOOKS`].
    fn judged_over_looks(self, generator: &mut Pcg64Mcg) -> Transfer {
        let of = LOOKS.len() as u32;
        let risk = |number| Risk::of(PAIRS, Look { number, of });
        let mut windows = (Vec::new(), Vec::new());
        for (number, times) in (1..).zip(LOOKS) {
            let more = self.windows(generator, times * WINDOWS - windows.0.len());
            if more.0.is_empty() {
                // The answer of the look before, which has the same part of the risk.
                continue;
            }
            windows.0.extend(more.0);
            windows.1.extend(more.1);
            let found = judge(&windows, &risk(number), generator);
            if found.outcome != VerdictOutcome::Inconclusive {
                break;
            }
        }
        judge(&windows, &risk(of), generator)
    }

    /// Returns the count of each outcome.
    #[cfg(test)]
    fn outcomes(self, seed: u64, trials: usize, count: usize) -> (usize, usize, usize) {
        let mut generator = Pcg64Mcg::seed_from_u64(seed);
        let mut found = (0, 0, 0);
        for _ in 0..trials {
            match self.judged(&mut generator, count).outcome {
                VerdictOutcome::Holds => found.0 += 1,
                VerdictOutcome::Leaks => found.1 += 1,
                _ => found.2 += 1,
            }
        }
        found
    }
}

/// Twenty of twenty quiet domains must not leak. In two thousand evaluations of each kind of
/// machine (quiet, restless and worse), at most 1 of 1000 may.
#[test]
fn quiet_domains_are_not_called_leaking() {
    for (seed, pair) in [(1, QUIET), (2, NOISY)] {
        let (_, leaks, _) = pair.outcomes(seed, 20, 30);
        assert_eq!(leaks, 0, "of 20");
        for count in [FEWEST_WINDOWS, 30] {
            let (holds, leaks, open) = pair.outcomes(seed + 10, 2000, count);
            assert!(
                leaks <= 2,
                "{leaks} of 2000 leak, {holds} hold, {open} open"
            );
        }
    }
}

/// The p-value is below 5 % in 5 % of evaluations and below 1 % in 1 % if the windows are
/// independent; never more often if they are not.
#[test]
fn p_value_has_its_nominal_level() {
    let trials = 2000;
    for (seed, pair, dependent) in [(21, QUIET, false), (22, NOISY, true)] {
        let mut generator = Pcg64Mcg::seed_from_u64(seed);
        let (mut five, mut one) = (0, 0);
        for _ in 0..trials {
            let p_value = pair.judged(&mut generator, 20).p_value;
            five += usize::from(p_value < 0.05);
            one += usize::from(p_value < TRANSFER_RISK);
        }
        // Three standard errors: 29 for 5 %, 13 for 1 %.
        assert!(five <= 129 && one <= 33, "{five} and {one} of {trials}");
        if !dependent {
            assert!(five >= 70 && one >= 7, "{five} and {one} of {trials}");
        }
    }
}

/// Tests a shared CPU, and an isolation that passes a third of each block.
#[test]
fn finds_leaks_with_their_size() {
    for (seed, part) in [(31, 1.0), (32, 0.3)] {
        for base in [QUIET, NOISY] {
            let pair = Pair {
                transfer: part,
                ..base
            };
            let mut generator = Pcg64Mcg::seed_from_u64(seed);
            let (true_transfer, _) = pair.truth(&mut generator);
            let (mut leaks, mut held) = (0, 0);
            for _ in 0..200 {
                let found = pair.judged(&mut generator, 30);
                leaks += usize::from(found.outcome == VerdictOutcome::Leaks);
                let truth = found.transfer.low..=found.transfer.high;
                held += usize::from(truth.contains(&true_transfer));
            }
            assert!(leaks >= 198, "{leaks} of 200 at {part}");
            assert!(held >= 188, "{held} of 200 intervals hold {true_transfer}");
        }
    }
}

/// The median does not show an isolation that passes one block in three; the count does.
#[test]
fn isolation_with_a_gap_does_not_hold() {
    let pair = Pair {
        transfer: 1.0,
        part: 0.33,
        ..QUIET
    };
    let (holds, leaks, _) = pair.outcomes(41, 200, 40);
    assert!(holds <= 2 && leaks >= 160, "{holds} hold, {leaks} leak");
    let mut generator = Pcg64Mcg::seed_from_u64(42);
    let found = std::iter::repeat_with(|| pair.judged(&mut generator, 40))
        .find(|found| found.outcome == VerdictOutcome::Leaks)
        .expect("one that leaks");
    assert!(
        found.is_partial() && found.transfer.estimate < 0.1,
        "{found:?}"
    );
}

/// Isolation that some blocks cross holds only if the claim is true: that at most one block in eight
/// crosses. Of 40 blocks, of which one in ten crosses, none does in 1 of 68 evaluations.
#[test]
fn isolation_with_a_small_gap_rarely_holds() {
    let trials = 200;
    for (seed, base, transfer, part, count, most) in [
        // The claim is false or at its limit: 1 of 100, and three standard errors.
        (43, QUIET, 1.0, 0.125, 40, 6),
        (44, QUIET, 0.3, 0.125, 40, 6),
        (45, QUIET, 1.0, 0.125, 80, 6),
        (46, NOISY, 1.0, 0.125, 80, 6),
        (47, NOISY, 0.3, 0.2, 80, 6),
        // It is true.
        (48, QUIET, 1.0, 0.1, 40, 8),
        (49, QUIET, 0.3, 0.1, 40, 8),
        // Too few windows for the claim.
        (50, QUIET, 1.0, 0.1, 30, 0),
    ] {
        let pair = Pair {
            transfer,
            part,
            ..base
        };
        let mut generator = Pcg64Mcg::seed_from_u64(seed);
        let (mut holds, mut bounded) = (0, 0);
        for _ in 0..trials {
            let found = pair.judged(&mut generator, count);
            // Of the blocks that cross, windows that are late anyway hide some.
            let shown = if base.stalls > 0.0 { 0.85 * part } else { part };
            bounded += usize::from(found.part_at_most >= shown);
            holds += usize::from(found.outcome == VerdictOutcome::Holds);
        }
        assert!(holds <= most, "{holds} of {trials} hold at {part}");
        assert!(bounded >= 194, "{bounded} of {trials} bounds hold {part}");
    }
}

/// Effective isolation must hold: on a quiet machine mostly after one round of 40 blocks and nearly
/// always after two, and on a restless one, where one window in ten is late anyway, after several.
#[test]
fn effective_isolation_holds() {
    // One window in 300 is late by a tenth of a block anyway, and one of 40 prevents "holds".
    let (holds, ..) = QUIET.outcomes(51, 200, 40);
    assert!(holds >= 165, "{holds} of 200");
    let (holds, ..) = QUIET.outcomes(51, 200, 80);
    assert!(holds >= 196, "{holds} of 200");
    let (holds, ..) = NOISY.outcomes(52, 200, 160);
    assert!(holds >= 150, "{holds} of 200");
}

#[test]
fn few_windows_decide_nothing() {
    for pair in [
        QUIET,
        Pair {
            transfer: 1.0,
            ..QUIET
        },
    ] {
        let (holds, leaks, open) = pair.outcomes(61, 50, FEWEST_WINDOWS - 1);
        assert_eq!((holds, leaks, open), (0, 0, 50));
    }
    let sharp = Pair {
        transfer: 1.0,
        ..QUIET
    };
    let (_, leaks, _) = sharp.outcomes(62, 50, FEWEST_WINDOWS);
    assert_eq!(
        leaks, 50,
        "as few as are needed decide where all blocks cross"
    );
}

/// Blocks no longer than the noise are inconclusive.
#[test]
fn blocks_within_the_noise_decide_nothing() {
    let mut generator = Pcg64Mcg::seed_from_u64(71);
    let options = Resampling::default();
    let mut open = 0;
    for _ in 0..100 {
        let pair = Pair {
            spread: 1.5,
            ..NOISY
        };
        let (blocked, quiet) = pair.windows(&mut generator, 20);
        let found = transfer(
            &blocked,
            &quiet,
            Nanos(CENTRE as u64),
            CROSSED,
            &Risk::SINGLE,
            &options,
        )
        .expect("windows");
        open += usize::from(found.outcome == VerdictOutcome::Inconclusive);
        assert!(found.smallest_detectable > 0.1, "{found:?}");
    }
    assert!(open >= 97, "{open} of 100");
}

/// A transfer of the smallest detectable size is detected.
#[test]
fn detects_the_smallest_detectable_transfer() {
    let mut generator = Pcg64Mcg::seed_from_u64(81);
    let options = Resampling {
        resamples: 300,
        seed: 3,
    };
    let mut detected = 0;
    for _ in 0..200 {
        let (mut blocked, quiet) = NOISY.windows(&mut generator, 30);
        let length = Nanos(LENGTH as u64);
        let found =
            transfer(&blocked, &quiet, length, CROSSED, &Risk::SINGLE, &options).expect("windows");
        for worst in &mut blocked {
            *worst += Nanos((found.smallest_detectable * LENGTH) as u64);
        }
        let found =
            transfer(&blocked, &quiet, length, CROSSED, &Risk::SINGLE, &options).expect("windows");
        detected += usize::from(found.p_value < 0.05);
    }
    assert!(detected >= 140, "{detected} of 200");
}

#[test]
fn result_depends_only_on_the_seed() {
    let mut generator = Pcg64Mcg::seed_from_u64(91);
    let (blocked, quiet) = NOISY.windows(&mut generator, 20);
    let judged = |seed| {
        let options = Resampling {
            resamples: 200,
            seed,
        };
        transfer(
            &blocked,
            &quiet,
            Nanos(LENGTH as u64),
            CROSSED,
            &Risk::SINGLE,
            &options,
        )
    };
    assert_eq!(judged(1), judged(1));
    assert_ne!(judged(1), judged(2));
}
