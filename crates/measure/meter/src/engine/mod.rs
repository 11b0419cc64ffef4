// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The measuring loops and what they need from the place where they run.
//!
//! Each loop is generic over the traits of this module, so that the same code runs on Linux, in
//! a test on a simulated clock, and on bare metal.

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

/// The clock that samples are stamped with.
pub trait Clock {
    /// The present moment. On Linux `CLOCK_MONOTONIC`.
    fn now(&self) -> Nanos;
}

/// Sleeping.
pub trait Sleep {
    /// Sleeps until the clock shows `at`. False if the sleep was ended by a request to stop.
    fn sleep_until(&self, at: Nanos) -> bool;
}

/// The fastest thing that counts at a constant rate.
pub trait Counter {
    /// Its present value, in ticks.
    fn read(&self) -> u64;
}

/// Where the loop runs.
pub trait Processor {
    /// The CPU that this thread is on, numbered as the operating system does.
    fn processor(&self) -> u32;
}

/// The request to end early.
pub trait Stop {
    /// Whether to end now. Read in every turn, so it must cost no more than a load.
    fn stop_requested(&self) -> bool;
}

/// The fixed piece of work of `fwq` and `loop`.
pub trait Work {
    /// Does `turns` turns of it.
    fn work(&self, turns: u64);
}

/// The interrupt of a timer, handled by the program itself.
pub trait Interrupt {
    /// Lets the timer's interrupt come at `at`, at once if that has passed, and waits awake until its
    /// handler has run: when the handler first read the counter. None if the wait was ended by a
    /// request to stop.
    fn interrupt_at(&self, at: Nanos) -> Option<Nanos>;
}

/// Which page a register is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Page {
    /// The cell's stage 2 has it: an access needs nobody.
    Mapped,
    /// It has not: the hypervisor makes the access.
    Trapped,
}

/// Registers of devices.
pub trait Registers {
    /// Reads the register on this page so often as [`mmio::ACCESSES`] says, one after the other with
    /// nothing between; without a page nothing at all. The time between the counter's readings
    /// before and after.
    fn accesses(&self, page: Option<Page>) -> Nanos;
}

/// Where samples go.
pub trait Sink {
    /// Takes a sample, or counts it as lost. Must not block.
    fn push(&mut self, sample: Sample);
}

/// One sample of any meter. Moments are on the engine's clock, in nanoseconds; those of `noise`
/// are counter ticks and are turned into nanoseconds on the other side of the sink.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct Sample {
    /// When it ended.
    pub at: u64,
    /// The primary quantity: lateness, gap, excess, response, delivery or trapped access.
    pub value: u64,
    /// Planned moments that passed without a sample because of this one.
    pub missed: u64,
    /// `loop`: start minus planned start. `mmio`: the mapped access.
    pub start: u64,
}

/// CPUs that samples were taken on.
#[derive(Debug, Clone)]
pub struct ProcessorWatch {
    last: u32,
    migrations: u64,
    // As many as the kernel can be configured for (CONFIG_NR_CPUS is at most 8192).
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
    /// Takes down that a sample was taken on `processor`.
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

    /// Samples that were taken on another CPU than the one before.
    #[must_use]
    pub const fn migrations(&self) -> u64 {
        self.migrations
    }

    /// The CPUs in rising order.
    pub fn seen(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.seen.len() as u32 * 64)
            .filter(|cpu| self.seen[*cpu as usize / 64] & (1 << (cpu % 64)) != 0)
    }

    /// Forgets what was seen, but not where the thread is.
    pub fn restart(&mut self) {
        let last = self.last;
        *self = Self::default();
        if last != u32::MAX {
            self.change(last);
        }
    }
}
