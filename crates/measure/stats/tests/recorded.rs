// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How often comparisons are right on recorded visits of a real machine, a virtual machine with two
//! CPUs: one evaluation while it was quiet and one while compilers ran.
//!
//! Adjacent visits of one domain under one condition are dealt to two sides at random. Both sides are
//! the same domain, so the truth is known, and also after latencies or stalls are planted in one.

use std::collections::BTreeMap;
#[cfg(not(test))]
use std::fmt::Write as _;
use std::io::Read as _;

use rampart_model::{Distribution, Nanos, VerdictOutcome};
use rampart_stats::{
    INTERFERENCE_TOLERANCE, Look, Questions, Risk, Slice, StallLength, Visit, compare,
};
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

#[cfg(not(test))]
use crate::simulation::percent;
use crate::simulation::{PERIOD, exponential};

/// For each slice a line: evaluation, record, number of the visit, whether corrected for missed
/// periods, milliseconds, and values in tenths of a microsecond with their number.
const VISITS: &[u8] = include_bytes!("recorded/visits.gz");

/// Comparisons of an evaluation.
const COMPARISONS: u32 = 12;

/// The visits of one domain, adjacent ones of one condition next to each other.
type Domain = Vec<Vec<Slice>>;

/// Reads the recorded visits: for each evaluation its domains.
fn recorded() -> BTreeMap<String, Vec<Domain>> {
    let mut text = String::new();
    flate2::read::GzDecoder::new(VISITS)
        .read_to_string(&mut text)
        .expect("text");
    // By evaluation, domain, condition and number.
    let mut visits = BTreeMap::<(&str, &str, &str, u32), Vec<Slice>>::new();
    for line in text.lines() {
        let mut words = line.split(' ');
        let mut word = || words.next().expect("a word");
        let (evaluation, record, number) = (word(), word(), word());
        let (kind, millis) = (word(), word());
        let (domain, condition) = record.split_once('/').expect("a record");
        let values = words.flat_map(|word| {
            let (value, count) = word.split_once('*').unwrap_or((word, "1"));
            let value: u64 = value.parse().expect("a value");
            std::iter::repeat_n(Nanos(value * 100), count.parse().expect("a count"))
        });
        let values = Distribution::from_values(values);
        let number = number.parse().expect("a number");
        let slices = visits
            .entry((evaluation, domain, condition, number))
            .or_default();
        if kind == "corrected" {
            slices.last_mut().expect("its slice").corrected = Some(values);
        } else {
            slices.push(Slice {
                seen: values,
                corrected: None,
                observed: Nanos::from_millis(millis.parse().expect("milliseconds")),
            });
        }
    }
    let mut domains = BTreeMap::<(&str, &str), Domain>::new();
    for ((evaluation, domain, ..), slices) in visits {
        domains
            .entry((evaluation, domain))
            .or_default()
            .push(slices);
    }
    let mut evaluations = BTreeMap::<String, Vec<Domain>>::new();
    for ((evaluation, _), visits) in domains {
        evaluations
            .entry(evaluation.to_owned())
            .or_default()
            .push(visits);
    }
    evaluations
}

/// A change of one side.
#[derive(Debug, Clone, Copy)]
struct Planted {
    name: &'static str,
    /// Latencies are longer by this factor.
    factor: f64,
    /// Stalls of 3 ms a second.
    stalls: f64,
    /// Whether "holds" is right, and whether an alarm is.
    right: (bool, bool),
}

const PLANTED: [Planted; 4] = [
    Planted {
        name: "nothing",
        factor: 1.0,
        stalls: 0.0,
        right: (true, false),
    },
    Planted {
        name: "latencies × the tolerance",
        factor: INTERFERENCE_TOLERANCE,
        stalls: 0.0,
        right: (false, true),
    },
    Planted {
        name: "latencies × twice the tolerance",
        factor: INTERFERENCE_TOLERANCE * 2.0,
        stalls: 0.0,
        right: (false, true),
    },
    Planted {
        name: "a stall of 3 ms a second",
        factor: 1.0,
        stalls: 1.0,
        right: (false, true),
    },
];

/// Returns the slice with the planted change.
fn plant(slice: &Slice, planted: Planted, generator: &mut Pcg64Mcg) -> Slice {
    let scaled = |of: &Distribution| {
        let values = of.buckets.iter().flat_map(|bucket| {
            let value = Nanos((bucket.0.0 as f64 * planted.factor) as u64);
            std::iter::repeat_n(value, usize::try_from(bucket.1).expect("few"))
        });
        Distribution::from_values(values)
    };
    let mut slice = Slice {
        seen: scaled(&slice.seen),
        corrected: slice.corrected.as_ref().map(scaled),
        observed: slice.observed,
    };
    let mut at = exponential(generator) / planted.stalls.max(1e-12);
    while at < slice.observed.as_secs_f64() {
        let stall = Nanos::from_millis(3);
        let corrected = slice.corrected.get_or_insert_with(|| slice.seen.clone());
        let missed = (0..stall.0 / PERIOD.0).map(|periods| Nanos(stall.0 - periods * PERIOD.0));
        corrected.merge(&Distribution::from_values(missed));
        slice.seen.merge(&Distribution::from_values([stall]));
        at += exponential(generator) / planted.stalls;
    }
    slice
}

/// Deals the visits of a domain to two sides, and plants a change in the first.
fn deal(domain: &Domain, planted: Planted, generator: &mut Pcg64Mcg) -> [Vec<Visit>; 2] {
    let mut sides = [Vec::new(), Vec::new()];
    for (number, pair) in (0u32..).zip(domain.chunks_exact(2)) {
        let first = usize::from(generator.random::<bool>());
        for (side, slices) in [(first, &pair[0]), (1 - first, &pair[1])] {
            let slices = slices.iter().map(|slice| match side {
                0 => plant(slice, planted, generator),
                _ => slice.clone(),
            });
            sides[side].push(Visit {
                number,
                started: Nanos::from_secs(number.into()),
                slices: slices.collect(),
            });
        }
    }
    sides
}

/// Counts over evaluations with one truth.
#[derive(Debug, Default)]
struct Rates {
    comparisons: u32,
    holds: u32,
    alarms: u32,
    /// Evaluations with an alarm.
    alarmed: u32,
    /// Intervals of quantiles, and those with the truth in them.
    intervals: (u32, u32),
}

fn rates(domains: &[Domain], planted: Planted, evaluations: u32) -> Rates {
    let asked = Questions {
        quantiles: true,
        stolen: false,
        lengths: StallLength::of_period(PERIOD).to_vec(),
        tolerance: INTERFERENCE_TOLERANCE,
        alarm: VerdictOutcome::Leaks,
        risk: Risk::of((COMPARISONS + 1) * 4, Look { number: 2, of: 2 }),
    };
    let mut rates = Rates::default();
    for seed in 0..evaluations {
        let mut generator = Pcg64Mcg::seed_from_u64(seed.into());
        let before = rates.alarms;
        for number in 0..COMPARISONS as usize {
            let domain = &domains[number % domains.len()];
            let [one, other] = deal(domain, planted, &mut generator);
            let found = compare(&one, &other, &asked).expect("samples");
            rates.comparisons += 1;
            rates.holds += u32::from(found.outcome == VerdictOutcome::Holds);
            rates.alarms += u32::from(found.outcome == VerdictOutcome::Leaks);
            if planted.stalls == 0.0 {
                for interval in found.quantiles.iter().filter_map(|answer| answer.ratio) {
                    let inside = interval.low <= planted.factor && planted.factor <= interval.high;
                    rates.intervals.0 += 1;
                    rates.intervals.1 += u32::from(inside);
                }
            }
        }
        rates.alarmed += u32::from(rates.alarms > before);
    }
    rates
}

/// Returns the rows of the table in Markdown.
#[cfg(not(test))]
pub(crate) fn table(evaluations: u32) -> String {
    let mut text = String::from(
        "| recorded | planted in one side | evaluations with a false alarm | holds | false holds | intervals |\n\
         | --- | --- | --- | --- | --- | --- |\n",
    );
    for (name, domains) in recorded() {
        for planted in PLANTED {
            let rates = rates(&domains, planted, evaluations);
            let holds = percent(rates.holds, rates.comparisons);
            let or_none = |shown: bool, text: String| if shown { text } else { "–".to_owned() };
            let _ = writeln!(
                text,
                "| {name} | {} | {} | {holds} | {} | {} |",
                planted.name,
                or_none(!planted.right.1, percent(rates.alarmed, evaluations)),
                or_none(!planted.right.0, holds.clone()),
                or_none(
                    rates.intervals.0 > 0,
                    percent(rates.intervals.1, rates.intervals.0)
                ),
            );
        }
    }
    text
}

#[test]
fn comparisons_of_recorded_visits_are_right() {
    for (name, domains) in recorded() {
        assert_eq!(domains.len(), 3, "{name}");
        for planted in PLANTED {
            let rates = rates(&domains, planted, 20);
            let shown = format!("{name}, {}: {rates:?}", planted.name);
            assert!(planted.right.1 || rates.alarmed == 0, "{shown}");
            assert!(
                planted.right.0 || rates.holds * 100 <= rates.comparisons,
                "{shown}"
            );
            let (all, inside) = rates.intervals;
            assert!(inside * 100 >= all * 94, "{shown}");
        }
    }
}
