// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `fwq`: the time of a fixed piece of work, repeated (fixed work quantum, Sottile and Minnich,
//! "Analysis of microbenchmarks for performance tuning of clusters").
//!
//! The loop reads the clock once per quantum: the end of one quantum is the start of the next, so
//! it observes all time.

use rampart_model::Nanos;

use super::{Clock, Processor, ProcessorWatch, Sample, Sink, Stop, Work};

/// The loop. It keeps the shortest quantum from one [`FixedWork::run`] to the next.
#[derive(Debug, Clone)]
pub struct FixedWork {
    turns: u64,
    shortest: u64,
    lowered: u64,
}

impl FixedWork {
    /// Creates a loop with a quantum of `turns` turns.
    #[must_use]
    pub const fn new(turns: u64) -> Self {
        Self {
            turns,
            shortest: u64::MAX,
            lowered: 0,
        }
    }

    /// Returns the turns of one quantum.
    #[must_use]
    pub const fn turns(&self) -> u64 {
        self.turns
    }

    /// Returns the shortest quantum, or `None` before the first.
    #[must_use]
    pub fn shortest(&self) -> Option<Nanos> {
        (self.shortest < u64::MAX).then_some(Nanos(self.shortest))
    }

    /// Returns by how much the shortest quantum fell since [`FixedWork::restart`].
    #[must_use]
    pub const fn lowered(&self) -> Nanos {
        Nanos(self.lowered)
    }

    /// Resets [`FixedWork::lowered`].
    pub const fn restart(&mut self) {
        self.lowered = 0;
    }

    /// Works until `until`, or until a stop is requested. A sample is the time of a quantum minus
    /// the shortest so far.
    pub fn run<E>(&mut self, environment: &mut E, watch: &mut ProcessorWatch, until: Nanos)
    where
        E: Clock + Work + Processor + Stop + Sink,
    {
        let mut previous = environment.now();
        while previous < until && !environment.stop_requested() {
            environment.work(self.turns);
            let now = environment.now();
            watch.note(environment.processor());
            let length = now.saturating_sub(previous).0;
            previous = now;
            if length < self.shortest {
                if self.shortest < u64::MAX {
                    self.lowered += self.shortest - length;
                }
                self.shortest = length;
            }
            environment.push(Sample {
                at: now.0,
                value: length - self.shortest,
                ..Sample::default()
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::simulation::Simulation;

    #[test]
    fn stall_is_the_excess_of_its_quantum() {
        let mut machine = Simulation::new(0);
        machine.stall(3_500, 700);
        let mut quanta = FixedWork::new(500);
        quanta.run(&mut machine, &mut ProcessorWatch::default(), Nanos(8_000));
        let seen: Vec<_> = machine
            .samples()
            .iter()
            .map(|sample| (sample.at, sample.value))
            .collect();
        assert_eq!(
            seen,
            [
                (1_000, 0),
                (2_000, 0),
                (3_000, 0),
                (4_700, 700),
                (5_700, 0),
                (6_700, 0),
                (7_700, 0),
                (8_700, 0)
            ]
        );
        assert_eq!(quanta.shortest(), Some(Nanos(1_000)));
        assert_eq!(quanta.lowered(), Nanos(0));
    }

    #[test]
    fn returns_by_how_much_the_shortest_fell() {
        let mut machine = Simulation::new(0);
        machine.stall(10, 400); // The first quantum is the longest.
        let mut quanta = FixedWork::new(500);
        quanta.run(&mut machine, &mut ProcessorWatch::default(), Nanos(4_000));
        assert_eq!(quanta.lowered(), Nanos(400));
        quanta.restart();
        quanta.run(&mut machine, &mut ProcessorWatch::default(), Nanos(8_000));
        assert_eq!(quanta.lowered(), Nanos(0));
        assert!(machine.samples().iter().all(|sample| sample.value == 0));
    }
}
