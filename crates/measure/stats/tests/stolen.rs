// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The truth table of `noise` and `fwq` in `docs/verdicts.md`: stolen time and rates of gaps, with a
//! part of it as a test.

#[cfg(not(test))]
use std::fmt::Write as _;

use rampart_model::{Distribution, Nanos, VerdictOutcome};
#[cfg(test)]
use rampart_stats::ADDED_STOLEN;
use rampart_stats::{
    LONGEST_UNSEEN, Look, Questions, Risk, SAME_AS_HOST_TOLERANCE, Slice, StallLength, Visit,
    compare,
};
use rand::SeedableRng as _;
use rand_pcg::Pcg64Mcg;

#[cfg(not(test))]
use crate::simulation::percent;
use crate::simulation::{exponential, normal};

/// Questions of an evaluation with twelve comparisons and the negative control.
const QUESTIONS: u32 = 13 * 4;
const LOOK: Look = Look { number: 2, of: 2 };
const VISITS: u32 = 14;
/// Seconds of a visit.
const VISIT: f64 = 0.5;

/// Gaps of a machine without what is planted.
#[derive(Clone, Copy)]
struct Machine {
    #[cfg_attr(test, expect(dead_code, reason = "only the table has names"))]
    name: &'static str,
    /// Gaps per second, and their median length in seconds.
    rate: f64,
    length: f64,
    /// Standard deviation of a visit's level, in logarithms.
    visit: f64,
}

const MACHINES: [Machine; 2] = [
    Machine {
        name: "no tick",
        rate: 2.0,
        length: 3e-6,
        visit: 0.1,
    },
    Machine {
        name: "tick of 250 Hz",
        rate: 250.0,
        length: 4e-6,
        visit: 0.1,
    },
];

/// Gaps that the first side has beyond those of the second.
#[derive(Clone, Copy)]
struct Planted {
    #[cfg_attr(test, expect(dead_code, reason = "only the table has names"))]
    name: &'static str,
    /// Gaps per second, and their length in seconds.
    rate: f64,
    length: f64,
}

const PLANTED: [Planted; 7] = [
    Planted {
        name: "nothing",
        rate: 0.0,
        length: 0.0,
    },
    Planted {
        name: "8 µs, 500 a second (0.4 %)",
        rate: 500.0,
        length: 8e-6,
    },
    Planted {
        name: "100 µs, 11 a second (0.11 %)",
        rate: 11.0,
        length: 1e-4,
    },
    Planted {
        name: "0.9 ms, 1.2 a second (0.11 %)",
        rate: 1.2,
        length: 9e-4,
    },
    Planted {
        name: "0.9 ms, 2.2 a second (0.2 %)",
        rate: 2.2,
        length: 9e-4,
    },
    Planted {
        name: "20 ms, 0.1 a second (0.2 %)",
        rate: 0.1,
        length: 2e-2,
    },
    Planted {
        name: "20 ms, once a second (2 %)",
        rate: 1.0,
        length: 2e-2,
    },
];

impl Planted {
    /// Returns the added share of the time by gaps, each counted up to [`LONGEST_UNSEEN`].
    fn claimed(self) -> f64 {
        self.rate * self.length.min(LONGEST_UNSEEN.as_secs_f64())
    }
}

/// Returns the gaps of one side.
fn measure(generator: &mut Pcg64Mcg, machine: Machine, planted: Option<Planted>) -> Vec<Visit> {
    (0..VISITS)
        .map(|number| {
            let level = machine.length.ln() + machine.visit * normal(generator);
            let mut gaps = Vec::new();
            let mut time = exponential(generator) / machine.rate;
            while time < VISIT {
                gaps.push((level + 0.3 * normal(generator)).exp());
                time += exponential(generator) / machine.rate;
            }
            if let Some(planted) = planted.filter(|planted| planted.rate > 0.0) {
                let mut time = exponential(generator) / planted.rate;
                while time < VISIT {
                    gaps.push(planted.length);
                    time += exponential(generator) / planted.rate;
                }
            }
            let nanos = |seconds: f64| Nanos((seconds * 1e9) as u64);
            Visit {
                number,
                started: Nanos::from_secs(u64::from(number)),
                slices: vec![Slice {
                    seen: Distribution::from_values(gaps.into_iter().map(nanos)),
                    corrected: None,
                    observed: nanos(VISIT),
                }],
            }
        })
        .collect()
}

/// Counts of one row.
#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    comparisons: u32,
    /// All questions together.
    holds: u32,
    alarms: u32,
    /// Stolen time alone.
    stolen_holds: u32,
    bounds: u32,
}

fn counts(machine: Machine, planted: Planted, comparisons: u32) -> Counts {
    let mut generator = Pcg64Mcg::seed_from_u64(u64::from(comparisons));
    let asked = Questions {
        quantiles: false,
        stolen: true,
        lengths: [
            Nanos::from_micros(10),
            Nanos::from_micros(100),
            Nanos::from_millis(1),
        ]
        .map(StallLength::over)
        .to_vec(),
        tolerance: SAME_AS_HOST_TOLERANCE,
        alarm: VerdictOutcome::Fails,
        risk: Risk::of(QUESTIONS, LOOK),
    };
    let mut counts = Counts::default();
    for _ in 0..comparisons {
        let above = measure(&mut generator, machine, Some(planted));
        let below = measure(&mut generator, machine, None);
        let found = compare(&above, &below, &asked).expect("samples");
        let stolen = found.stolen.expect("the answer on stolen time");
        counts.comparisons += 1;
        counts.holds += u32::from(found.outcome == VerdictOutcome::Holds);
        counts.alarms += u32::from(found.outcome == VerdictOutcome::Fails);
        counts.stolen_holds += u32::from(stolen.outcome == VerdictOutcome::Holds);
        counts.bounds += u32::from(stolen.added_at_most >= planted.claimed());
    }
    counts
}

/// Returns the rows of the table in Markdown.
#[cfg(not(test))]
pub(crate) fn table(comparisons: u32) -> String {
    let mut text = String::from(
        "| machine | gaps added | holds | fails | stolen time holds | bound on stolen time |\n\
         | --- | --- | --- | --- | --- | --- |\n",
    );
    for machine in MACHINES {
        for planted in PLANTED {
            let found = counts(machine, planted, comparisons);
            let percent = |part: u32| percent(part, comparisons);
            let _ = writeln!(
                text,
                "| {} | {} | {} | {} | {} | {} |",
                machine.name,
                planted.name,
                percent(found.holds),
                percent(found.alarms),
                percent(found.stolen_holds),
                percent(found.bounds),
            );
        }
    }
    text
}

/// Stolen time that grows by more than `ADDED_STOLEN` does not hold, however rare the gaps are, and
/// the bound is valid if they were not seen. It mostly holds on equal machines.
#[test]
fn stolen_time_is_bounded_although_gaps_are_rare() {
    let comparisons = 400;
    for machine in MACHINES {
        for planted in PLANTED {
            let found = counts(machine, planted, comparisons);
            // 1 of 200 and of 100, and three standard errors.
            assert!(found.bounds >= comparisons - 8, "{found:?}");
            if planted.claimed() > ADDED_STOLEN {
                assert!(found.stolen_holds <= 10, "{found:?}");
            }
            if planted.rate == 0.0 {
                assert_eq!(found.alarms, 0, "{found:?}");
                assert!(found.stolen_holds >= comparisons * 8 / 10, "{found:?}");
            }
        }
    }
    let found = counts(MACHINES[1], PLANTED[1], 40);
    assert_eq!(found.alarms, 40, "{found:?}");
}

/// Without a single gap the bound is that of the gaps that were not seen.
#[test]
fn stolen_time_without_gaps_has_a_bound() {
    let mut generator = Pcg64Mcg::seed_from_u64(1);
    let none = Machine {
        rate: 1e-9,
        ..MACHINES[0]
    };
    let visits = measure(&mut generator, none, None);
    let asked = Questions {
        quantiles: false,
        stolen: true,
        lengths: Vec::new(),
        tolerance: SAME_AS_HOST_TOLERANCE,
        alarm: VerdictOutcome::Fails,
        risk: Risk::of(1, Look::ONLY),
    };
    let found = compare(&visits, &visits, &asked).and_then(|found| found.stolen);
    let found = found.expect("an answer");
    // 4.6 events in seven seconds, each of a millisecond.
    assert!(
        (found.added_at_most - 4.605e-3 / 7.0).abs() < 1e-6,
        "{found:?}"
    );
    assert_eq!(found.outcome, VerdictOutcome::Holds);
    let short: Vec<Visit> = visits.into_iter().take(8).collect();
    let found = compare(&short, &short, &asked).and_then(|found| found.stolen);
    assert!(found.is_some_and(|found| found.outcome == VerdictOutcome::Inconclusive));
}
