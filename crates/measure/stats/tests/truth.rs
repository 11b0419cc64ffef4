// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The truth table of `docs/verdicts.md`: how often the verdicts of whole evaluations are right, with
//! a small part of it as a test.
//!
//! An evaluation has three domains under three conditions: six comparisons with the host and six of
//! loads. What is planted is planted in every domain but the host, and again under every load, so
//! that it is the truth of all twelve.

#[cfg(not(test))]
use std::{
    fmt::Write as _,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use std::collections::{BTreeMap, BTreeSet};

use rampart_model::{Nanos, VerdictOutcome};
use rampart_stats::{
    Compared, DEADLINE_CONFIDENCE, INTERFERENCE_TOLERANCE, Look, Questions, Risk,
    SAME_AS_HOST_TOLERANCE, StallLength, Visit, compare, time_between_bursts,
};
use rand::SeedableRng as _;
use rand::seq::SliceRandom as _;
use rand_pcg::Pcg64Mcg;

#[cfg(not(test))]
use crate::simulation::percent;
use crate::simulation::{Exposure, Machine, PERIOD, PROCESSES, Planted, Process, TWO_MINUTES};

const DOMAINS: u32 = 3;
const CONDITIONS: u32 = 3;
/// Questions of twelve comparisons and the negative control.
const QUESTIONS: u32 = 13 * 4;
/// The last of the two looks of an evaluation that is not continued.
const LAST_LOOK: Look = Look { number: 2, of: 2 };
/// The looks of an evaluation of two minutes that measures open comparisons on for six: after the planned
/// runs, and after two, four and six minutes.
const LOOKS: u32 = 4;

/// What is planted in a row of the table.
#[derive(Clone, Copy, PartialEq)]
enum Truth {
    /// Nothing: all twelve are equal.
    Equal,
    /// Latencies longer by the tolerance itself, the hardest case for "holds".
    Tolerance,
    /// Latencies twice as long again as the tolerance allows.
    Twice,
    /// One stall of 3 ms a second.
    RareStall,
    /// Five stalls of 3 ms a second.
    Stalls,
    /// The second slice of every visit is twice as slow, everywhere: all twelve are equal, and the
    /// slices of a visit are not.
    Within,
}

impl Truth {
    #[cfg(not(test))]
    const ALL: [Self; 6] = [
        Self::Equal,
        Self::Tolerance,
        Self::Twice,
        Self::RareStall,
        Self::Stalls,
        Self::Within,
    ];

    #[cfg(not(test))]
    const fn name(self) -> &'static str {
        match self {
            Self::Equal => "nothing",
            Self::Tolerance => "latencies × the tolerance",
            Self::Twice => "latencies × twice the tolerance",
            Self::RareStall => "a stall of 3 ms a second",
            Self::Stalls => "5 stalls of 3 ms a second",
            Self::Within => "nothing; every second slice × 2",
        }
    }

    /// Returns what is planted in an entry.
    fn planted(self, domain: u32, condition: u32) -> Planted {
        let (other, loaded) = (domain > 0, condition > 0);
        let factor = |times: f64| {
            let same = if other {
                SAME_AS_HOST_TOLERANCE * times
            } else {
                1.0
            };
            let load = if loaded {
                INTERFERENCE_TOLERANCE * times
            } else {
                1.0
            };
            Planted {
                factor: same * load,
                ..Planted::NONE
            }
        };
        let stalls = |rate: f64| Planted {
            stalls: rate * f64::from(u8::from(other) + u8::from(loaded)),
            ..Planted::NONE
        };
        match self {
            Self::Equal => Planted::NONE,
            Self::Tolerance => factor(1.0),
            Self::Twice => factor(2.0),
            Self::RareStall => stalls(1.0),
            Self::Stalls => stalls(5.0),
            Self::Within => Planted {
                within: 2.0,
                ..Planted::NONE
            },
        }
    }

    /// Returns the true ratio of quantiles of a comparison, and the stalls added per second; `None`
    /// for what is not planted directly.
    fn ratio(self, tolerance: f64) -> Option<f64> {
        match self {
            Self::Equal | Self::Within => Some(1.0),
            Self::Tolerance => Some(tolerance),
            // Latencies longer than a period skip periods, which changes the ratio.
            Self::Twice | Self::RareStall | Self::Stalls => None,
        }
    }

    fn added(self) -> f64 {
        match self {
            Self::RareStall => 1.0,
            Self::Stalls => 5.0,
            Self::Equal | Self::Tolerance | Self::Twice | Self::Within => 0.0,
        }
    }

    /// Whether "holds" is wrong, and whether an alarm is. At the tolerance neither is right.
    const fn wrong(self) -> (bool, bool) {
        match self {
            Self::Equal | Self::Within => (false, true),
            Self::Tolerance => (true, true),
            Self::Twice | Self::RareStall | Self::Stalls => (true, false),
        }
    }
}

/// Counts of one row.
#[derive(Debug, Clone, Copy, Default)]
struct Rates {
    comparisons: u32,
    holds: u32,
    alarms: u32,
    /// Evaluations with any alarm that is wrong, and "holds" that are wrong.
    false_alarms: u32,
    false_holds: u32,
    /// Intervals of quantiles, and those that have the truth in them.
    intervals: (u32, u32),
    /// Bounds on added stalls, and those that hold.
    bounds: (u32, u32),
    /// Bounds on the time between bursts, and those that hold.
    deadlines: (u32, u32),
    /// Negative controls with an alarm: dealt at random, and by the position in a visit.
    controls: (u32, u32),
}

#[cfg(test)]
impl Rates {
    fn add(&mut self, other: &Self) {
        self.comparisons += other.comparisons;
        self.holds += other.holds;
        self.alarms += other.alarms;
        self.false_alarms += other.false_alarms;
        self.false_holds += other.false_holds;
        for (own, more) in [
            (&mut self.intervals, other.intervals),
            (&mut self.bounds, other.bounds),
            (&mut self.deadlines, other.deadlines),
        ] {
            *own = (own.0 + more.0, own.1 + more.1);
        }
        self.controls.0 += other.controls.0;
        self.controls.1 += other.controls.1;
    }

    fn part_of_comparisons(&self, count: u32) -> f64 {
        f64::from(count) / f64::from(self.comparisons.max(1))
    }
}

fn questions(tolerance: f64, look: Look) -> Questions {
    Questions {
        quantiles: true,
        stolen: false,
        lengths: StallLength::of_period(PERIOD).to_vec(),
        tolerance,
        alarm: VerdictOutcome::Leaks,
        risk: Risk::of(QUESTIONS, look),
    }
}

/// A domain and a condition.
type Entry = (u32, u32);

/// The twelve comparisons: each of a domain under a condition with another, and the tolerance.
fn comparisons() -> Vec<(Entry, Entry, f64)> {
    let others = (0..CONDITIONS).flat_map(|condition| {
        (1..DOMAINS)
            .map(move |domain| ((domain, condition), (0, condition), SAME_AS_HOST_TOLERANCE))
    });
    let loads = (0..DOMAINS).flat_map(|domain| {
        (1..CONDITIONS).map(move |load| ((domain, load), (domain, 0), INTERFERENCE_TOLERANCE))
    });
    others.chain(loads).collect()
}

/// A simulated evaluation: the visits of each entry.
struct Measured {
    machine: Machine,
    truth: Truth,
    entries: BTreeMap<Entry, Vec<Visit>>,
}

impl Measured {
    fn new(process: Process, truth: Truth, exposure: Exposure, seed: u64) -> Self {
        let all = (0..DOMAINS).flat_map(|domain| (0..CONDITIONS).map(move |load| (domain, load)));
        let mut measured = Self {
            machine: Machine::new(process, exposure, (DOMAINS, CONDITIONS), seed),
            truth,
            entries: all.map(|entry| (entry, Vec::new())).collect(),
        };
        let all = measured.entries.keys().copied().collect();
        measured.measure(&all, exposure.visits);
        measured
    }

    /// Measures these entries on, for a number of visits each.
    fn measure(&mut self, entries: &BTreeSet<Entry>, visits: u32) {
        let next = |visits: &Vec<Visit>| visits.last().map_or(0, |last| last.number + 1);
        let first = self.entries.values().map(next).max().unwrap_or_default();
        for entry in entries {
            let planted = self.truth.planted(entry.0, entry.1);
            let more = self.machine.measure(*entry, planted, first..first + visits);
            self.entries.entry(*entry).or_default().extend(more);
        }
    }

    /// Returns what is found in each of the twelve comparisons, with its tolerance.
    fn judged(&self, look: Look) -> Vec<(Compared, f64)> {
        let judge = |(one, other, tolerance)| {
            let (one, other) = (&self.entries[&one], &self.entries[&other]);
            let found = compare(one, other, &questions(tolerance, look)).expect("samples");
            (found, tolerance)
        };
        comparisons().into_iter().map(judge).collect()
    }

    /// Measures the open comparisons on until the last look, and returns what is found then.
    fn continued(&mut self, looks: u32) -> Vec<(Compared, f64)> {
        let two_minutes = DOMAINS * CONDITIONS * TWO_MINUTES.visits;
        for number in 1..=looks {
            let found = self.judged(Look { number, of: looks });
            let open: BTreeSet<Entry> = comparisons()
                .into_iter()
                .zip(&found)
                .filter(|(_, (found, _))| found.outcome == VerdictOutcome::Inconclusive)
                .flat_map(|((one, other, _), _)| [one, other])
                .collect();
            if open.is_empty() || number == looks {
                return found;
            }
            // The first look is shortly before the end of the two minutes.
            let time = if number == 1 {
                two_minutes / 10
            } else {
                two_minutes
            };
            let visits = (time / u32::try_from(open.len()).expect("few entries")).max(1);
            self.measure(&open, visits);
        }
        Vec::new()
    }
}

/// Returns the rates of one process and one truth over many evaluations.
fn rates(process: Process, truth: Truth, exposure: Exposure, evaluations: u32) -> Rates {
    let mut rates = Rates::default();
    for seed in 0..u64::from(evaluations) {
        let measured = Measured::new(process, truth, exposure, seed);
        count_evaluation(&mut rates, truth, &measured.judged(LAST_LOOK));
        let first = &measured.entries[&(0, 0)];
        for (by_position, count) in [
            (false, &mut rates.controls.0),
            (true, &mut rates.controls.1),
        ] {
            let (one, other) = deal(first, by_position, seed);
            let asked = questions(SAME_AS_HOST_TOLERANCE, LAST_LOOK);
            let alarms = |one, other| {
                compare(one, other, &asked).is_some_and(|of| of.outcome == VerdictOutcome::Leaks)
            };
            *count += u32::from(alarms(&one, &other) || alarms(&other, &one));
        }
        if let Some(bursts) = process
            .bursts_per_second()
            .filter(|_| truth == Truth::Equal)
        {
            deadline(&mut rates, first, bursts, process);
        }
    }
    rates
}

/// Returns the rates of evaluations that measure open comparisons on until their last look.
fn rates_with_looks(process: Process, truth: Truth, evaluations: u32) -> Rates {
    let mut rates = Rates::default();
    for seed in 0..u64::from(evaluations) {
        let mut measured = Measured::new(process, truth, TWO_MINUTES, seed);
        let found = measured.continued(LOOKS);
        count_evaluation(&mut rates, truth, &found);
    }
    rates
}

fn count_evaluation(rates: &mut Rates, truth: Truth, found: &[(Compared, f64)]) {
    let mut alarm = false;
    for (found, tolerance) in found {
        count(rates, found, truth, *tolerance);
        // Latencies longer by a factor cross a length more often than by that factor, so that at
        // the tolerance an alarm about stalls may be right.
        let mut quantiles = found.quantiles.iter();
        alarm |= match truth {
            Truth::Tolerance => quantiles.any(|of| of.outcome == VerdictOutcome::Leaks),
            _ => found.outcome == VerdictOutcome::Leaks,
        };
    }
    rates.false_alarms += u32::from(alarm && truth.wrong().1);
}

/// Deals the slices of every visit to two sides: at random as the negative control does, or the
/// first ones to one side and the second ones to the other.
fn deal(visits: &[Visit], by_position: bool, seed: u64) -> (Vec<Visit>, Vec<Visit>) {
    let mut generator = Pcg64Mcg::seed_from_u64(seed ^ 0x6465_616c);
    let dealt = visits.iter().map(|visit| {
        let mut slices = visit.slices.clone();
        if !by_position {
            slices.shuffle(&mut generator);
        }
        let rest = slices.split_off(slices.len() / 2);
        let side = |slices| Visit { slices, ..*visit };
        (side(slices), side(rest))
    });
    dealt.unzip()
}

fn count(rates: &mut Rates, found: &Compared, truth: Truth, tolerance: f64) {
    rates.comparisons += 1;
    rates.holds += u32::from(found.outcome == VerdictOutcome::Holds);
    rates.alarms += u32::from(found.outcome == VerdictOutcome::Leaks);
    rates.false_holds += u32::from(found.outcome == VerdictOutcome::Holds && truth.wrong().0);
    if let Some(ratio) = truth.ratio(tolerance) {
        for interval in found.quantiles.iter().filter_map(|answer| answer.ratio) {
            rates.intervals.0 += 1;
            rates.intervals.1 += u32::from(interval.low <= ratio && ratio <= interval.high);
        }
    }
    if let Some((_, stalls)) = found.stalls.first()
        && truth.ratio(tolerance).is_none_or(|ratio| ratio == 1.0)
    {
        rates.bounds.0 += 1;
        rates.bounds.1 += u32::from(stalls.added_at_most >= truth.added());
    }
}

/// Counts the bound on the time between bursts of stalls over a period.
fn deadline(rates: &mut Rates, visits: &[Visit], bursts: f64, process: Process) {
    let deadline = process.deadline();
    let with = visits
        .iter()
        .filter(|visit| {
            let mut slices = visit.slices.iter();
            slices.any(|slice| slice.seen.count_above(deadline) > 0)
        })
        .count();
    let exposure: u64 = visits
        .iter()
        .flat_map(|visit| &visit.slices)
        .map(|slice| slice.observed.0)
        .sum();
    let count = |number: usize| u32::try_from(number).expect("few visits");
    let between = time_between_bursts(
        count(with),
        count(visits.len()),
        Nanos(exposure),
        DEADLINE_CONFIDENCE,
    );
    rates.deadlines.0 += 1;
    rates.deadlines.1 +=
        u32::from(between.is_none_or(|between| between.as_secs_f64() <= 1.0 / bursts));
}

/// Returns the rows of the table of evaluations that are measured on, in Markdown.
#[cfg(not(test))]
pub(crate) fn table_with_looks(evaluations: u32) -> String {
    let mut text = String::from(
        "| process | planted in all twelve | evaluations with a false alarm | holds | not isolated or worse | false holds | intervals | bounds on stalls |\n\
         | --- | --- | --- | --- | --- | --- | --- | --- |\n",
    );
    let truths = [
        Truth::Equal,
        Truth::Tolerance,
        Truth::Twice,
        Truth::RareStall,
        Truth::Stalls,
    ];
    let rows: Vec<(Process, Truth)> = PROCESSES
        .into_iter()
        .flat_map(|process| truths.map(|truth| (process, truth)))
        .collect();
    let of_row = |process, truth| rates_with_looks(process, truth, evaluations);
    for ((process, truth), found) in rows.iter().zip(all_rates(&rows, of_row)) {
        let (wrong_hold, wrong_alarm) = truth.wrong();
        let all = found.comparisons;
        let if_wrong = |wrong: bool, of: u32| if wrong { of } else { 0 };
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} | {} |",
            process.name,
            truth.name(),
            percent(found.false_alarms, if_wrong(wrong_alarm, evaluations)),
            percent(found.holds, all),
            percent(found.alarms, all),
            percent(found.false_holds, if_wrong(wrong_hold, all)),
            percent(found.intervals.1, found.intervals.0),
            percent(found.bounds.1, found.bounds.0),
        );
    }
    text
}

/// Returns the rows of the table in Markdown.
#[cfg(not(test))]
pub(crate) fn table(evaluations: u32) -> String {
    let mut text = String::from(
        "| process | planted in all twelve | evaluations with a false alarm | holds | not isolated or worse | false holds | intervals | bounds on stalls | bounds on bursts | control alarms |\n\
         | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n",
    );
    let rows: Vec<(Process, Truth)> = PROCESSES
        .into_iter()
        .flat_map(|process| Truth::ALL.map(|truth| (process, truth)))
        .collect();
    let of_row = |process, truth| rates(process, truth, TWO_MINUTES, evaluations);
    for ((process, truth), found) in rows.iter().zip(all_rates(&rows, of_row)) {
        let (wrong_hold, wrong_alarm) = truth.wrong();
        let all = found.comparisons;
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} ({}) |",
            process.name,
            truth.name(),
            percent(
                found.false_alarms,
                if wrong_alarm { evaluations } else { 0 }
            ),
            percent(found.holds, all),
            percent(found.alarms, all),
            percent(found.false_holds, if wrong_hold { all } else { 0 }),
            percent(found.intervals.1, found.intervals.0),
            percent(found.bounds.1, found.bounds.0),
            percent(found.deadlines.1, found.deadlines.0),
            percent(found.controls.0, evaluations),
            percent(found.controls.1, evaluations),
        );
    }
    text
}

/// Returns the rates of each row, on all CPUs.
#[cfg(not(test))]
fn all_rates(
    rows: &[(Process, Truth)],
    of_row: impl Fn(Process, Truth) -> Rates + Sync,
) -> Vec<Rates> {
    let next = AtomicUsize::new(0);
    let found = Mutex::new(vec![Rates::default(); rows.len()]);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some((process, truth)) = rows.get(index) else {
                        break;
                    };
                    let row = of_row(*process, *truth);
                    found.lock().expect("no thread panics")[index] = row;
                }
            });
        }
    });
    found.into_inner().expect("no thread panics")
}

/// A part of the table; the whole is in `docs/verdicts.md`.
#[test]
fn whole_evaluations_are_right() {
    let (mut equal, mut all, mut wrong) = (Rates::default(), Rates::default(), Rates::default());
    for process in PROCESSES {
        for (truth, evaluations) in [
            (Truth::Equal, 20),
            (Truth::Tolerance, 20),
            (Truth::RareStall, 10),
        ] {
            let found = rates(process, truth, TWO_MINUTES, evaluations);
            all.add(&found);
            if truth == Truth::Equal {
                equal.add(&found);
            } else {
                wrong.add(&found);
            }
        }
    }
    // Of 160 evaluations without a difference beyond the tolerance, at most one has an alarm, and so
    // have the controls of all 200. One "holds" in a hundred is false.
    assert!(all.false_alarms <= 1 && all.controls.0 <= 1, "{all:?}");
    assert!(wrong.false_holds * 100 <= wrong.comparisons, "{wrong:?}");
    assert!(equal.part_of_comparisons(equal.holds) > 0.4, "{equal:?}");
    for (intervals, held, least) in [
        (all.intervals.0, all.intervals.1, 0.98),
        (all.bounds.0, all.bounds.1, 0.98),
        (equal.deadlines.0, equal.deadlines.1, 0.94),
    ] {
        let part = f64::from(held) / f64::from(intervals);
        assert!(part >= least, "{part} of {all:?}");
    }
    // Every comparison of equal domains holds where nothing disturbs them.
    let quiet = rates(PROCESSES[0], Truth::Equal, TWO_MINUTES, 4);
    assert_eq!(quiet.holds, quiet.comparisons, "{quiet:?}");
    for truth in [Truth::Twice, Truth::Stalls] {
        let planted = rates(PROCESSES[0], truth, TWO_MINUTES, 8);
        assert!(
            planted.part_of_comparisons(planted.alarms) > 0.25,
            "{planted:?}"
        );
    }
}

/// The risks that are divided among the looks of an evaluation that measures open comparisons on.
#[test]
fn evaluations_that_are_measured_on_are_right() {
    for (truth, evaluations) in [(Truth::Equal, 4), (Truth::Tolerance, 4)] {
        let found = rates_with_looks(PROCESSES[1], truth, evaluations);
        assert_eq!((found.false_alarms, found.false_holds), (0, 0), "{found:?}");
        if truth == Truth::Equal {
            // More is decided than without measuring on.
            let once = rates(PROCESSES[1], truth, TWO_MINUTES, evaluations);
            assert!(found.holds > once.holds, "{found:?} {once:?}");
        }
    }
}

/// Slices that differ by their position in a visit raise an alarm if they are dealt by it, and hardly
/// if they are dealt at random: either side has as many of both, up to chance.
#[test]
fn a_control_by_position_finds_what_changes_within_visits() {
    let found = rates(PROCESSES[0], Truth::Within, TWO_MINUTES, 10);
    assert!(found.controls.0 <= 2, "{found:?}");
    assert_eq!(found.controls.1, 10, "{found:?}");
    let none = rates(PROCESSES[0], Truth::Equal, TWO_MINUTES, 10);
    assert_eq!(none.controls, (0, 0), "{none:?}");
}

/// A domain equal to the host is found the same at least as often with four times the time.
#[test]
fn more_data_do_not_decide_less() {
    let longer = Exposure {
        visits: 4 * TWO_MINUTES.visits,
        slices: 1,
        ..TWO_MINUTES
    };
    let shorter = Exposure {
        slices: 1,
        ..TWO_MINUTES
    };
    for process in &PROCESSES[1..3] {
        let decided = |exposure| {
            let found = rates(*process, Truth::Equal, exposure, 6);
            found.part_of_comparisons(found.holds)
        };
        let (short, long) = (decided(shorter), decided(longer));
        assert!(
            long >= short && long > 0.1,
            "{}: {short} {long}",
            process.name
        );
    }
}
