// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `loop`: a periodic control loop with work and a deadline.
//!
//! A period whose start has passed when the one before ends is skipped and counted, as a
//! controller would rather use fresh inputs than make up for old ones.

use rampart_model::{Nanos, SignedNanos};

use super::{Clock, Grid, Processor, ProcessorWatch, Sample, Sink, Sleep, Stop, Work};

/// The loop; its grid goes on from one [`ControlLoop::run`] to the next.
#[derive(Debug, Clone)]
pub struct ControlLoop {
    grid: Grid,
    turns: u64,
}

impl ControlLoop {
    /// A loop whose first period begins at `first` and that does `turns` turns of work in each.
    #[must_use]
    pub const fn new(first: Nanos, interval: Nanos, turns: u64) -> Self {
        Self {
            grid: Grid::new(first, interval),
            turns,
        }
    }

    /// Turns of one piece of work.
    #[must_use]
    pub const fn turns(&self) -> u64 {
        self.turns
    }

    /// Runs all periods planned before `until`, or until it is told to stop.
    pub fn run<E>(&mut self, environment: &mut E, watch: &mut ProcessorWatch, until: Nanos)
    where
        E: Clock + Sleep + Work + Processor + Stop + Sink,
    {
        while self.grid.next() < until && !environment.stop_requested() {
            let planned = self.grid.next();
            if !environment.sleep_until(planned) {
                break;
            }
            let start = environment.now();
            watch.note(environment.processor());
            environment.work(self.turns);
            let end = environment.now();
            let response = end.saturating_sub(planned);
            let missed = self.grid.advance(response, until);
            environment.push(Sample {
                at: end.0,
                value: response.0,
                missed,
                start: start.saturating_sub(planned).0,
            });
        }
    }
}

/// Derives the lengths of periods from the samples of a [`ControlLoop`], in their order.
#[derive(Debug, Clone, Copy)]
pub struct Periods {
    interval: Nanos,
    previous_start: Option<u64>,
}

impl Periods {
    /// Of a loop with this interval.
    #[must_use]
    pub const fn new(interval: Nanos) -> Self {
        Self {
            interval,
            previous_start: None,
        }
    }

    /// The deviation of the period that this sample's start ended: its length from start to
    /// start minus the interval, also where planned starts were skipped on the way, because the
    /// plant saw no output for that long. None for the first sample.
    pub fn deviation(&mut self, sample: &Sample) -> Option<SignedNanos> {
        let planned = sample.at.saturating_sub(sample.value);
        let start = planned.saturating_add(sample.start);
        let previous = self.previous_start.replace(start)?;
        let length = Nanos(start.saturating_sub(previous));
        Some(length.signed_since(self.interval))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::simulation::Simulation;

    fn run(machine: &mut Simulation) -> Vec<(u64, u64, u64, Option<i64>, u64)> {
        // Work of 200 ns in periods of 1000 ns.
        ControlLoop::new(Nanos(1_000), Nanos(1_000), 100).run(
            machine,
            &mut ProcessorWatch::default(),
            Nanos(6_000),
        );
        let mut periods = Periods::new(Nanos(1_000));
        machine
            .samples()
            .iter()
            .map(|sample| {
                let deviation = periods.deviation(sample).map(|deviation| deviation.0);
                (
                    sample.at,
                    sample.start,
                    sample.value,
                    deviation,
                    sample.missed,
                )
            })
            .collect()
    }

    #[test]
    fn a_late_start_is_a_late_period_and_then_an_early_one() {
        let mut machine = Simulation::new(0);
        machine.stall(2_950, 150); // The start of 3 000 comes at 3 100.
        assert_eq!(
            run(&mut machine),
            [
                (1_200, 0, 200, None, 0),
                (2_200, 0, 200, Some(0), 0),
                (3_300, 100, 300, Some(100), 0),
                (4_200, 0, 200, Some(-100), 0),
                (5_200, 0, 200, Some(0), 0)
            ]
        );
    }

    #[test]
    fn work_that_is_held_up_over_a_start_skips_that_period() {
        let mut machine = Simulation::new(0);
        machine.stall(2_100, 1_400); // Work of 2 000 ends at 3 600; the start of 3 000 is gone.
        assert_eq!(
            run(&mut machine),
            [
                (1_200, 0, 200, None, 0),
                (3_600, 0, 1_600, Some(0), 1),
                (4_200, 0, 200, Some(1_000), 0),
                (5_200, 0, 200, Some(0), 0)
            ]
        );
    }

    #[test]
    fn ends_when_told_to() {
        let mut machine = Simulation::new(0);
        machine.stop_at(3_500);
        assert_eq!(run(&mut machine).len(), 3);
    }
}
