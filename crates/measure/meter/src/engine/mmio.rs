// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `mmio`: the time of one read of a device register, on a page that traps to the hypervisor and on
//! one that is mapped.
//!
//! At each planned moment the loop times an empty batch and one batch of reads of each page, and
//! subtracts the time of the empty batch. A sample is the mean of a batch, rounded down to
//! nanoseconds, because on many processors a tick of the counter is longer than a mapped access.

use rampart_model::Nanos;

use super::{Clock, Grid, Page, Processor, ProcessorWatch, Registers, Sample, Sink, Sleep, Stop};

/// Accesses per batch.
pub const ACCESSES: u64 = 64;

/// Returns the mean time of one access for a batch that took `batch` if an empty one takes `empty`,
/// in the unit of both.
#[must_use]
pub const fn each(batch: u64, empty: u64) -> u64 {
    batch.saturating_sub(empty) / ACCESSES
}

/// The loop. Its grid continues from one [`Mmio::run`] to the next.
#[derive(Debug, Clone)]
pub struct Mmio {
    grid: Grid,
}

impl Mmio {
    /// Creates a loop whose first batches are planned at `first`.
    #[must_use]
    pub const fn new(first: Nanos, interval: Nanos) -> Self {
        Self {
            grid: Grid::new(first, interval),
        }
    }

    /// Takes the samples of all planned moments before `until`, or until a stop is requested. The
    /// value of a sample is the trapped access, its start the mapped access.
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
    fn sample_is_one_access_of_each_page_without_the_cost_of_the_counter() {
        let mut machine = Simulation::new(0);
        (machine.read_cost, machine.access_costs) = (20, (3, 150));
        // Stalls the third batch of trapped accesses by 640 ns: 10 ns per access.
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
    fn batches_longer_than_a_period_skip_moments() {
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
    fn longer_empty_batch_gives_zero() {
        assert_eq!(each(10, 20), 0);
        assert_eq!(each(64 * 5 + 70, 6), 6);
    }
}
