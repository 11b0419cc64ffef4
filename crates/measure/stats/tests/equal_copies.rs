// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests the real `wakeup` engine on a simulated clock: two copies of one domain must compare as
//! equal, and a worse one as worse.
//!
//! The simulated machine is as difficult for statistics as real ones: latencies depend on earlier
//! ones and come from a mixture, and each run has its own level.

use rampart_meter::engine::wakeup::Wakeup;
use rampart_meter::engine::{Clock, Processor, ProcessorWatch, Sample, Sink, Sleep, Stop};
use rampart_model::{Distribution, Nanos, VerdictOutcome};
use rampart_stats::{Look, Questions, Risk, SAME_AS_HOST_TOLERANCE, Visit, compare};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

const INTERVAL: Nanos = Nanos::from_millis(1);

/// A machine whose wakeups are late at random, multiplied by `factor`.
struct NoisyMachine {
    now: Nanos,
    generator: Pcg64Mcg,
    /// The slowly changing part of the lateness.
    drift: f64,
    character: f64,
    factor: f64,
    samples: Vec<Sample>,
}

impl NoisyMachine {
    fn new(seed: u64, factor: f64) -> Self {
        let mut generator = Pcg64Mcg::seed_from_u64(seed);
        let character = 0.97 + 0.06 * generator.random::<f64>();
        Self {
            now: Nanos::SECOND,
            generator,
            drift: 0.0,
            character,
            factor,
            samples: Vec::new(),
        }
    }

    fn lateness(&mut self) -> Nanos {
        // An autoregressive part with a lag-1 correlation of 0.6, as found on a small guest.
        self.drift = 0.6 * self.drift + 0.4 * (self.generator.random::<f64>() - 0.5);
        let usual = 8_000.0 * (1.0 + self.drift);
        let burst = match self.generator.random_range(0..1000) {
            0..20 => 15_000.0 * (1.0 + self.generator.random::<f64>()),
            20..22 => 60_000.0 * (1.0 + self.generator.random::<f64>()),
            _ => 0.0,
        };
        Nanos(((usual + burst) * self.character * self.factor) as u64)
    }
}

/// Interior mutability, because the engine's traits take `&self`.
struct Shared(std::cell::RefCell<NoisyMachine>);

impl Clock for Shared {
    fn now(&self) -> Nanos {
        self.0.borrow().now
    }
}

impl Sleep for Shared {
    fn sleep_until(&self, at: Nanos) -> bool {
        let mut machine = self.0.borrow_mut();
        let lateness = machine.lateness();
        machine.now = machine.now.max(at) + lateness;
        true
    }
}

impl Processor for Shared {
    fn processor(&self) -> u32 {
        1
    }
}

impl Stop for Shared {
    fn stop_requested(&self) -> bool {
        false
    }
}

impl Sink for Shared {
    fn push(&mut self, sample: Sample) {
        self.0.get_mut().samples.push(sample);
    }
}

/// Returns a run of ten seconds in batches of one second.
fn run(seed: u64, factor: f64) -> Vec<Distribution> {
    let mut machine = Shared(NoisyMachine::new(seed, factor).into());
    let mut engine = Wakeup::new(Nanos::SECOND + INTERVAL, INTERVAL);
    let mut watch = ProcessorWatch::default();
    (2..12)
        .map(|second| {
            engine.run(&mut machine, &mut watch, Nanos::from_secs(second));
            let samples = std::mem::take(&mut machine.0.get_mut().samples);
            Distribution::from_values(samples.iter().map(|sample| Nanos(sample.value)))
        })
        .collect()
}

/// Returns the outcomes of twenty comparisons, each of ten interleaved runs of ten seconds per
/// side.
fn outcomes(factor: f64) -> Vec<VerdictOutcome> {
    (0..20u64)
        .map(|trial| {
            let side = |copy: u64, factor: f64| -> Vec<Visit> {
                (0..10)
                    .map(|number: u32| {
                        let seed = trial * 1000 + u64::from(number) * 2 + copy;
                        Visit::of(number, run(seed, factor))
                    })
                    .collect()
            };
            let (domain, host) = (side(1, factor), side(0, 1.0));
            let questions = Questions {
                quantiles: true,
                stolen: false,
                lengths: Vec::new(),
                tolerance: SAME_AS_HOST_TOLERANCE,
                alarm: VerdictOutcome::Fails,
                risk: Risk::of(48, Look::ONLY),
            };
            compare(&domain, &host, &questions)
                .expect("enough to compare")
                .outcome
        })
        .collect()
}

fn count(outcomes: &[VerdictOutcome], outcome: VerdictOutcome) -> usize {
    outcomes.iter().filter(|found| **found == outcome).count()
}

#[test]
fn two_copies_of_a_domain_compare_as_equal() {
    let outcomes = outcomes(1.0);
    assert!(
        count(&outcomes, VerdictOutcome::Holds) >= 19,
        "{outcomes:?}"
    );
}

#[test]
fn a_worse_copy_compares_as_worse() {
    let outcomes = outcomes(1.6);
    assert!(
        count(&outcomes, VerdictOutcome::Fails) >= 19,
        "{outcomes:?}"
    );
}
