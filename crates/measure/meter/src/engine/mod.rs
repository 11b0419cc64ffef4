// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The measuring loops and the traits of the environment that they run in.
//!
//! Each loop is generic over the traits of this module, so that the same code runs on Linux, on
//! bare metal, and in a test on a simulated clock.

pub mod control_loop;
pub mod fwq;
mod grid;
pub mod irq;
pub mod load;
pub mod mmio;
pub mod noise;
pub mod schedule;
pub mod wakeup;
pub mod work;

#[cfg(test)]
mod simulation;

use rampart_model::Nanos;

pub use grid::Grid;

/// The clock for the timestamps of samples.
pub trait Clock {
    /// Returns the present moment. On Linux, `CLOCK_MONOTONIC`.
    fn now(&self) -> Nanos;
}

/// Sleeping until an absolute moment.
pub trait Sleep {
    /// Sleeps until the clock shows `at`. Returns `false` if a stop request ended the sleep.
    fn sleep_until(&self, at: Nanos) -> bool;
}

/// The fastest counter with a constant rate.
pub trait Counter {
    /// Returns the present value, in ticks.
    fn read(&self) -> u64;
}

/// The CPU that the loop runs on.
pub trait Processor {
    /// Returns the number of the present CPU, as the operating system numbers it.
    fn processor(&self) -> u32;
}

/// The request to end early.
pub trait Stop {
    /// Returns whether to end now. Called in every turn, so it must cost no more than a load.
    fn stop_requested(&self) -> bool;
}

/// The fixed piece of work of `fwq` and `loop`.
pub trait Work {
    /// Does `turns` turns of the work.
    fn work(&self, turns: u64);
}

/// The interrupt of a timer, handled by this program.
pub trait InterruptSource {
    /// Sets the timer to `at` (immediately if `at` has passed), busy-waits until the handler has
    /// run, and returns when the handler first read the counter. Returns `None` if a stop request
    /// ended the wait.
    fn interrupt_at(&self, at: Nanos) -> Option<Nanos>;
}

/// The kind of page that a register is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Page {
    /// Mapped in the cell's stage-2 tables: an access does not exit to the hypervisor.
    Mapped,
    /// Not mapped: the access traps and the hypervisor performs it.
    Trapped,
}

/// Access to device registers.
pub trait Registers {
    /// Reads the register on this page [`mmio::ACCESSES`] times in a row, or not at all if `page`
    /// is `None`. Returns the time between counter readings before and after.
    fn accesses(&self, page: Option<Page>) -> Nanos;
}

/// The consumer of samples.
pub trait Sink {
    /// Takes a sample or counts it as lost. Must not block.
    fn push(&mut self, sample: Sample);
}

/// One sample of any meter. Times are on the engine's clock, in nanoseconds. The times of `noise`
/// are counter ticks and are converted to nanoseconds by the consumer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct Sample {
    /// End of the sample.
    pub at: u64,
    /// The primary quantity: lateness, gap, excess, response, delivery or trapped access.
    pub value: u64,
    /// Planned moments that passed without a sample because of this one.
    pub missed: u64,
    /// `loop`: start minus planned start. `mmio`: the mapped access.
    pub start: u64,
}

/// Records the CPUs that samples were taken on.
#[derive(Debug, Clone)]
pub struct ProcessorWatch {
    last: u32,
    migrations: u64,
    // The largest number of CPUs that a kernel supports (CONFIG_NR_CPUS is at most 8192).
    seen: [u64; 128],
}

impl Default for ProcessorWatch {
    fn default() -> Self {
        Self {
            last: u32::MAX,
            migrations: 0,
            seen: [0; 128],
        }
    }
}

impl ProcessorWatch {
    /// Records that a sample was taken on `processor`.
    #[inline(always)]
    pub fn note(&mut self, processor: u32) {
        if processor != self.last {
            self.change(processor);
        }
    }

    #[cold]
    fn change(&mut self, processor: u32) {
        if self.last != u32::MAX {
            self.migrations += 1;
        }
        self.last = processor;
        if let Some(word) = self.seen.get_mut(processor as usize / 64) {
            *word |= 1 << (processor % 64);
        }
    }

    /// Returns the number of samples taken on another CPU than the sample before.
    #[must_use]
    pub const fn migrations(&self) -> u64 {
        self.migrations
    }

    /// Returns the CPUs in rising order.
    pub fn seen(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.seen.len() as u32 * 64)
            .filter(|cpu| self.seen[*cpu as usize / 64] & (1 << (cpu % 64)) != 0)
    }

    /// Removes the recorded CPUs, but keeps the present one.
    pub fn restart(&mut self) {
        let last = self.last;
        *self = Self::default();
        if last != u32::MAX {
            self.change(last);
        }
    }
}
