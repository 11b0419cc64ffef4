// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `wakeup`: the latency of waking from an absolute sleep.
//!
//! One sleep and one clock reading per turn. The sample is the moment of waking minus the planned
//! moment, in nanoseconds without truncation.

use rampart_model::Nanos;

use super::{Clock, Grid, Processor, ProcessorWatch, Sample, Sink, Sleep, Stop};

/// The loop. Its grid continues from one [`Wakeup::run`] to the next.
#[derive(Debug, Clone)]
pub struct Wakeup {
    grid: Grid,
}

impl Wakeup {
    /// Creates a loop whose first wake is planned at `first`.
    #[must_use]
    pub const fn new(first: Nanos, interval: Nanos) -> Self {
        Self {
            grid: Grid::new(first, interval),
        }
    }

    /// Takes the samples of all planned moments before `until`, or until a stop is requested.
    pub fn run<E>(&mut self, environment: &mut E, watch: &mut ProcessorWatch, until: Nanos)
    where
        E: Clock + Sleep + Processor + Stop + Sink,
    {
        while self.grid.next() < until && !environment.stop_requested() {
            let planned = self.grid.next();
            if !environment.sleep_until(planned) {
                break;
            }
            let now = environment.now();
            watch.note(environment.processor());
            let lateness = now.saturating_sub(planned);
            let missed = self.grid.advance(lateness, until);
            environment.push(Sample {
                at: now.0,
                value: lateness.0,
                missed,
                start: 0,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::simulation::Simulation;

    #[test]
    fn samples_are_latenesses_with_the_moments_of_waking() {
        let mut machine = Simulation::new(1_000);
        machine.stall(3_500, 250); // 3 500..3 750 contains no planned moment.
        machine.stall(4_950, 300); // 4 950..5 250 delays the wake of 5 000 by 250.
        let mut watch = ProcessorWatch::default();
        Wakeup::new(Nanos(2_000), Nanos(1_000)).run(&mut machine, &mut watch, Nanos(7_000));
        let seen: Vec<_> = machine
            .samples()
            .iter()
            .map(|sample| (sample.at, sample.value, sample.missed))
            .collect();
        assert_eq!(
            seen,
            [
                (2_000, 0, 0),
                (3_000, 0, 0),
                (4_000, 0, 0),
                (5_250, 250, 0),
                (6_000, 0, 0)
            ]
        );
        assert_eq!((watch.migrations(), watch.seen().collect()), (0, vec![0]));
    }

    #[test]
    fn stall_over_periods_gives_one_sample_and_counts_missed_periods() {
        let mut machine = Simulation::new(0);
        machine.stall(10_000, 1_000_000);
        let mut wakeup = Wakeup::new(Nanos(1_000), Nanos(1_000));
        wakeup.run(
            &mut machine,
            &mut ProcessorWatch::default(),
            Nanos(2_000_000),
        );
        let late: Vec<_> = machine
            .samples()
            .iter()
            .filter(|sample| sample.value > 0)
            .collect();
        assert_eq!(late.len(), 1);
        assert_eq!(
            (late[0].at, late[0].value, late[0].missed),
            (1_010_000, 1_000_000, 1_000)
        );
        let missed: u64 = machine.samples().iter().map(|sample| sample.missed).sum();
        assert_eq!(machine.samples().len() as u64 + missed, 1_999);
    }

    #[test]
    fn stall_over_the_end_of_a_run_appears_in_both_runs() {
        let mut machine = Simulation::new(0);
        machine.stall(2_500, 3_000); // until 5 500; the first run ends at 4 000
        let mut watch = ProcessorWatch::default();
        let mut wakeup = Wakeup::new(Nanos(1_000), Nanos(1_000));
        wakeup.run(&mut machine, &mut watch, Nanos(4_000));
        let first = machine.take_samples();
        wakeup.run(&mut machine, &mut watch, Nanos(8_000));
        let second = machine.take_samples();
        let summary = |samples: &[Sample]| -> Vec<_> {
            samples
                .iter()
                .map(|sample| (sample.value, sample.missed))
                .collect()
        };
        assert_eq!(summary(&first), [(0, 0), (0, 0), (2_500, 0)]);
        assert_eq!(summary(&second), [(1_500, 1), (0, 0), (0, 0)]);
    }

    #[test]
    fn ends_on_a_stop_request_without_a_sample_for_the_interrupted_sleep() {
        let mut machine = Simulation::new(0);
        machine.stop_at(3_500);
        let mut wakeup = Wakeup::new(Nanos(1_000), Nanos(1_000));
        wakeup.run(&mut machine, &mut ProcessorWatch::default(), Nanos(9_000));
        assert_eq!(machine.samples().len(), 3);
    }

    #[test]
    fn counts_a_change_of_cpu() {
        let mut machine = Simulation::new(0);
        machine.move_at(2_500, 3);
        machine.move_at(3_500, 0);
        let mut watch = ProcessorWatch::default();
        Wakeup::new(Nanos(1_000), Nanos(1_000)).run(&mut machine, &mut watch, Nanos(6_000));
        assert_eq!(
            (watch.migrations(), watch.seen().collect()),
            (2, vec![0, 3])
        );
        watch.restart();
        assert_eq!((watch.migrations(), watch.seen().collect()), (0, vec![0]));
    }
}
