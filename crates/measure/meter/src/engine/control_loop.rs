// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `loop`: a periodic control loop with work and a deadline.
//!
//! If a period's planned start has passed when the previous period ends, the loop skips and counts
//! it, because a controller uses fresh inputs instead of catching up.

use rampart_model::{Nanos, SignedNanos};

use super::{Clock, Grid, Processor, ProcessorWatch, Sample, Sink, Sleep, Stop, Work};

/// The loop. Its grid continues from one [`ControlLoop::run`] to the next.
#[derive(Debug, Clone)]
pub struct ControlLoop {
    grid: Grid,
    turns: u64,
}

impl ControlLoop {
    /// Creates a loop whose first period begins at `first` and that does `turns` turns of work in
    /// each period.
    #[must_use]
    pub const fn new(first: Nanos, interval: Nanos, turns: u64) -> Self {
        Self {
            grid: Grid::new(first, interval),
            turns,
        }
    }

    /// Returns the turns of work per period.
    #[must_use]
    pub const fn turns(&self) -> u64 {
        self.turns
    }

    /// Runs all periods planned before `until`, or until a stop is requested.
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

/// Derives the lengths of periods from the samples of a [`ControlLoop`], in order.
#[derive(Debug, Clone, Copy)]
pub struct Periods {
    interval: Nanos,
    previous_start: Option<u64>,
}

impl Periods {
    /// Creates the state for a loop with this interval.
    #[must_use]
    pub const fn new(interval: Nanos) -> Self {
        Self {
            interval,
            previous_start: None,
        }
    }

    /// Returns the deviation of the period that ended with this sample's start: its length from
    /// start to start minus the interval. Skipped starts lengthen the period, because the plant
    /// received no output in that time. Returns `None` for the first sample.
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
    fn late_start_gives_a_long_and_then_a_short_period() {
        let mut machine = Simulation::new(0);
        machine.stall(2_950, 150); // The start planned at 3 000 happens at 3 100.
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
    fn delayed_work_skips_the_start_that_passed() {
        let mut machine = Simulation::new(0);
        machine.stall(2_100, 1_400); // The work of 2 000 ends at 3 600, after the start of 3 000.
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
    fn ends_on_a_stop_request() {
        let mut machine = Simulation::new(0);
        machine.stop_at(3_500);
        assert_eq!(run(&mut machine).len(), 3);
    }
}
