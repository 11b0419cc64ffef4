// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Simulated evaluations whose truth is known: four processes, and what a load may add.

use std::ops::Range;

use rampart_model::{Distribution, Nanos};
use rampart_stats::{Slice, Visit};
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

/// Period of the simulated meter.
pub(crate) const PERIOD: Nanos = Nanos::from_micros(500);

/// How latencies of a machine come about.
#[derive(Clone, Copy)]
pub(crate) struct Process {
    pub(crate) name: &'static str,
    /// Median latency in ns.
    centre: f64,
    /// Standard deviation of a sample's logarithm, and its correlation with the next.
    spread: f64,
    memory: f64,
    /// Standard deviation of a visit's level, in the same logarithm.
    visit: f64,
    /// The same of what all domains have in common at a time, and its correlation after ten seconds.
    drift: f64,
    drift_memory: f64,
    /// Probability that a slice has a burst of samples ten times as slow, a fiftieth of it.
    bursts: f64,
    /// Stalls: bursts of them per second, their mean number in a burst, and their mean length in
    /// ns, exponentially distributed.
    stalls: f64,
    burst: f64,
    stall: f64,
}

/// The processes of the truth table.
pub(crate) const PROCESSES: [Process; 4] = [
    Process {
        name: "quiet",
        centre: 3_000.0,
        spread: 0.15,
        memory: 0.6,
        visit: 0.03,
        drift: 0.03,
        drift_memory: 0.5,
        bursts: 0.0,
        stalls: 0.0,
        burst: 1.0,
        stall: 0.0,
    },
    Process {
        name: "guest with steal",
        centre: 60_000.0,
        spread: 0.35,
        memory: 0.6,
        visit: 0.08,
        drift: 0.15,
        drift_memory: 0.7,
        bursts: 0.05,
        stalls: 0.3,
        burst: 1.5,
        stall: 2e6,
    },
    Process {
        name: "restless",
        centre: 30_000.0,
        spread: 0.8,
        memory: 0.7,
        visit: 0.2,
        drift: 0.2,
        drift_memory: 0.7,
        bursts: 0.2,
        stalls: 0.1,
        burst: 4.0,
        stall: 2e6,
    },
    Process {
        name: "rare stalls",
        centre: 5_000.0,
        spread: 0.2,
        memory: 0.6,
        visit: 0.04,
        drift: 0.03,
        drift_memory: 0.5,
        bursts: 0.0,
        stalls: 0.05,
        burst: 1.2,
        stall: 15e6,
    },
];

impl Process {
    /// A deadline that only stalls exceed.
    pub(crate) fn deadline(self) -> Nanos {
        PERIOD
    }

    /// Returns the true number of bursts of stalls over the deadline per second; `None` without
    /// stalls.
    pub(crate) fn bursts_per_second(self) -> Option<f64> {
        // e^(−deadline ÷ mean) of the stalls are over the deadline. A burst counts if one of its
        // stalls is, 1 + k of them with the probability that (burst − 1) x rounds to k.
        let under = 1.0 - (-(self.deadline().0 as f64) / self.stall.max(1.0)).exp();
        let beyond = |number: f64| (-number.max(0.0) / (self.burst - 1.0)).exp();
        let counts: f64 = (0..60)
            .map(|more| {
                let more = f64::from(more);
                let probability = beyond(more - 0.5) - beyond(more + 0.5);
                probability * (1.0 - under.powf(1.0 + more))
            })
            .sum();
        (self.stalls > 0.0).then_some(self.stalls * counts)
    }
}

/// What differs from the process itself.
#[derive(Clone, Copy)]
pub(crate) struct Planted {
    /// All latencies are multiplied by this.
    pub(crate) factor: f64,
    /// Stalls of [`Planted::LENGTH`] that are added per second.
    pub(crate) stalls: f64,
    /// Latencies of every second slice of a visit are multiplied by this.
    pub(crate) within: f64,
}

impl Planted {
    /// Nothing.
    pub(crate) const NONE: Self = Self {
        factor: 1.0,
        stalls: 0.0,
        within: 1.0,
    };
    /// Length of an added stall.
    pub(crate) const LENGTH: Nanos = Nanos::from_millis(3);
}

/// How much is measured.
#[derive(Clone, Copy)]
pub(crate) struct Exposure {
    pub(crate) visits: u32,
    pub(crate) slices: u32,
    pub(crate) cycles: u32,
    /// Visits of every domain under one condition, before the next condition.
    pub(crate) phase: u32,
}

/// Two minutes of nine entries: 22 visits of each, of two slices of 135 ms.
pub(crate) const TWO_MINUTES: Exposure = Exposure {
    visits: 22,
    slices: 2,
    cycles: 270,
    phase: 1,
};

/// Returns a sample of the standard normal distribution (Box-Muller transform).
pub(crate) fn normal(generator: &mut Pcg64Mcg) -> f64 {
    let (radius, angle): (f64, f64) = (generator.random(), generator.random());
    (-2.0 * (1.0 - radius).ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
}

pub(crate) fn exponential(generator: &mut Pcg64Mcg) -> f64 {
    -(1.0 - generator.random::<f64>()).ln()
}

/// Returns a part of all in percent, for the truth table.
#[cfg(not(test))]
pub(crate) fn percent(part: u32, all: u32) -> String {
    if all == 0 {
        "–".to_owned()
    } else {
        format!("{:.1} %", 100.0 * f64::from(part) / f64::from(all))
    }
}

/// A simulated machine: what all its domains have in common.
pub(crate) struct Machine {
    process: Process,
    generator: Pcg64Mcg,
    conditions: u32,
    exposure: Exposure,
    /// Seconds of a turn: one visit of every domain.
    turn: f64,
    /// The common level now, and at each turn so far.
    level: f64,
    drift: Vec<f64>,
    drift_generator: Pcg64Mcg,
}

impl Machine {
    /// `domains` are visited in turn under one of the `conditions` at a time, for a phase of
    /// visits each.
    pub(crate) fn new(
        process: Process,
        exposure: Exposure,
        (domains, conditions): (u32, u32),
        seed: u64,
    ) -> Self {
        let mut generator = Pcg64Mcg::seed_from_u64(seed);
        let turn = f64::from(domains * exposure.slices * exposure.cycles) * PERIOD.as_secs_f64();
        let level = normal(&mut generator);
        Self {
            process,
            drift_generator: Pcg64Mcg::from_rng(&mut generator),
            generator,
            conditions,
            exposure,
            turn,
            level,
            drift: Vec::new(),
        }
    }

    /// Returns the common level at a turn.
    fn drift(&mut self, turn: usize) -> f64 {
        let memory = self.process.drift_memory.powf(self.turn / 10.0);
        let rest = (1.0 - memory.powi(2)).sqrt();
        while self.drift.len() <= turn {
            self.level = memory * self.level + rest * normal(&mut self.drift_generator);
            self.drift.push(self.process.drift * self.level);
        }
        self.drift[turn]
    }

    /// Returns the turn of a visit. Every second round of phases has the opposite order.
    fn turn(&self, condition: u32, number: u32) -> usize {
        let phase = self.exposure.phase;
        let round = number / phase;
        let place = if round.is_multiple_of(2) {
            condition
        } else {
            self.conditions - 1 - condition
        };
        ((round * self.conditions + place) * phase + number % phase) as usize
    }

    /// Measures a domain under a condition, in the visits of these numbers.
    pub(crate) fn measure(
        &mut self,
        (domain, condition): (u32, u32),
        planted: Planted,
        visits: Range<u32>,
    ) -> Vec<Visit> {
        let exposure = self.exposure;
        visits
            .map(|number| {
                let process = self.process;
                let turn = self.turn(condition, number);
                let level = (process.centre * planted.factor).ln()
                    + self.drift(turn)
                    + process.visit * normal(&mut self.generator);
                let visit = f64::from(exposure.slices * exposure.cycles) * PERIOD.as_secs_f64();
                let started = turn as f64 * self.turn + f64::from(domain) * visit;
                Visit {
                    number,
                    started: Nanos((started * 1e9) as u64),
                    slices: self.slices(exposure, planted, level),
                }
            })
            .collect()
    }

    fn slices(&mut self, exposure: Exposure, planted: Planted, level: f64) -> Vec<Slice> {
        let process = self.process;
        let generator = &mut self.generator;
        let rest = (1.0 - process.memory.powi(2)).sqrt();
        let mut z = normal(generator);
        // Stalls that are left of a burst.
        let mut left = 0.0;
        let per_cycle = PERIOD.as_secs_f64();
        let slices = (0..exposure.slices).map(|slice| {
            let level = if slice % 2 == 1 {
                level + planted.within.ln()
            } else {
                level
            };
            let burst = generator.random::<f64>() < process.bursts;
            let (mut seen, mut missing) = (Vec::new(), Vec::new());
            let mut cycle = 0;
            while cycle < exposure.cycles {
                z = process.memory * z + rest * normal(generator);
                let slow = burst && cycle < exposure.cycles / 50;
                let mut value = (level + process.spread * z).exp() * if slow { 10.0 } else { 1.0 };
                if generator.random::<f64>() < process.stalls * per_cycle {
                    left = 1.0 + ((process.burst - 1.0) * exponential(generator)).round();
                }
                if left >= 1.0 && generator.random::<f64>() < 0.2 {
                    left -= 1.0;
                    value += process.stall * exponential(generator);
                }
                if generator.random::<f64>() < planted.stalls * per_cycle {
                    value += Planted::LENGTH.0 as f64;
                }
                let value = Nanos(value as u64);
                seen.push(value);
                cycle += 1;
                let mut rest_of = value;
                while rest_of >= PERIOD && cycle < exposure.cycles {
                    rest_of = rest_of.saturating_sub(PERIOD);
                    missing.push(rest_of);
                    cycle += 1;
                }
            }
            let corrected = (!missing.is_empty())
                .then(|| Distribution::from_values(seen.iter().chain(&missing).copied()));
            Slice {
                seen: Distribution::from_values(seen),
                corrected,
                observed: Nanos(PERIOD.0 * u64::from(exposure.cycles)),
            }
        });
        slices.collect()
    }
}
