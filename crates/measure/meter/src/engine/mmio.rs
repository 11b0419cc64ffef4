// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `mmio`: how long one read of a device's register takes, on a page that traps to the hypervisor and
//! on one that is mapped.
//!
//! At each planned moment a batch of either is read between two readings of the counter, after a
//! batch of nothing, whose time is taken away. A sample is the mean of a batch, rounded down to
//! nanoseconds: a counter's tick is longer than a mapped access on many processors.

use rampart_model::Nanos;

use super::{Clock, Grid, Page, Processor, ProcessorWatch, Registers, Sample, Sink, Sleep, Stop};

/// Accesses of a batch.
pub const ACCESSES: u64 = 64;

/// The mean of one access, of a batch that took `batch` where an empty one takes `empty`. In the unit
/// of both.
#[must_use]
pub const fn each(batch: u64, empty: u64) -> u64 {
    batch.saturating_sub(empty) / ACCESSES
}

/// The loop; its grid goes on from one [`Mmio::run`] to the next.
#[derive(Debug, Clone)]
pub struct Mmio {
    grid: Grid,
}

impl Mmio {
    /// A loop whose first batches are at `first`.
    #[must_use]
    pub const fn new(first: Nanos, interval: Nanos) -> Self {
        Self {
            grid: Grid::new(first, interval),
        }
    }

    /// Takes the samples of all planned moments before `until`, or until it is told to stop. The value
    /// of a sample is a trapped access, its start a mapped one.
    pub fn run<E>(&mut self, environment: &mut E, watch: &mut ProcessorWatch, until: Nanos)
    where
        E: Clock + Sleep + Registers + Processor + Stop + Sink,
    {
        while self.grid.next() < until && !environment.stop_requested() {
            let planned = self.grid.next();
            if !environment.sleep_until(planned) {
                break;
            }
            let empty = environment.accesses(None);
            let mapped = environment.accesses(Some(Page::Mapped));
            let trapped = environment.accesses(Some(Page::Trapped));
            let now = environment.now();
            watch.note(environment.processor());
            let missed = self.grid.advance(now.saturating_sub(planned), until);
            environment.push(Sample {
                at: now.0,
                value: each(trapped.0, empty.0),
                missed,
                start: each(mapped.0, empty.0),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::simulation::Simulation;

    #[test]
    fn a_sample_is_one_access_of_either_page_without_the_counters_own_cost() {
        let mut machine = Simulation::new(0);
        (machine.read_cost, machine.access_costs) = (20, (3, 150));
        // In the third moment's batch of trapped accesses: 640 more, 10 for each.
        machine.stall(51_000, 640);
        let mut mmio = Mmio::new(Nanos(10_000), Nanos(20_000));
        mmio.run(&mut machine, &mut ProcessorWatch::default(), Nanos(90_000));
        let seen: Vec<_> = machine
            .samples()
            .iter()
            .map(|sample| (sample.at, sample.value, sample.start, sample.missed))
            .collect();
        let batches = 6 * 20 + 64 * 153;
        assert_eq!(
            seen,
            [
                (10_000 + batches, 150, 3, 0),
                (30_000 + batches, 150, 3, 0),
                (50_000 + batches + 640, 160, 3, 0),
                (70_000 + batches, 150, 3, 0),
            ]
        );
    }

    #[test]
    fn batches_that_take_longer_than_a_period_cost_the_next_ones() {
        let mut machine = Simulation::new(0);
        machine.access_costs = (1, 1_000);
        let mut mmio = Mmio::new(Nanos(0), Nanos(50_000));
        mmio.run(&mut machine, &mut ProcessorWatch::default(), Nanos(200_000));
        let missed: Vec<_> = machine
            .samples()
            .iter()
            .map(|sample| (sample.value, sample.missed))
            .collect();
        assert_eq!(missed, [(1_000, 1), (1_000, 1)]);
    }

    #[test]
    fn an_empty_batch_that_took_longer_leaves_nothing() {
        assert_eq!(each(10, 20), 0);
        assert_eq!(each(64 * 5 + 70, 6), 6);
    }
}
