// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A simulated machine for tests: time passes only when the engine spends it, and stalls begin
//! exactly at their planned moments.

use std::cell::{Cell, RefCell};

use rampart_model::Nanos;

use super::mmio::ACCESSES;
use super::{
    Clock, Counter, InterruptSource, Page, Processor, Registers, Sample, Sink, Sleep, Stop, Work,
};

#[derive(Debug, Default)]
pub(crate) struct Simulation {
    now: Cell<u64>,
    /// Nanoseconds that one reading of the counter takes.
    pub(crate) read_cost: u64,
    /// Nanoseconds that one turn of work takes.
    pub(crate) turn_cost: u64,
    /// Nanoseconds from a timer to its handler.
    pub(crate) delivery_cost: u64,
    /// Nanoseconds that an access of a mapped and of a trapped page takes.
    pub(crate) access_costs: (u64, u64),
    /// Start and length, in rising order. Each stall happens once.
    stalls: RefCell<Vec<(u64, u64)>>,
    moves: Vec<(u64, u32)>,
    stop: Option<u64>,
    samples: Vec<Sample>,
}

impl Simulation {
    pub(crate) fn new(now: u64) -> Self {
        Self {
            now: Cell::new(now),
            read_cost: 20,
            turn_cost: 2,
            ..Self::default()
        }
    }

    /// Stalls the thread from `at` for `length`.
    pub(crate) fn stall(&mut self, at: u64, length: u64) {
        self.stalls.borrow_mut().push((at, length));
    }

    pub(crate) fn move_at(&mut self, at: u64, cpu: u32) {
        self.moves.push((at, cpu));
    }

    pub(crate) fn stop_at(&mut self, at: u64) {
        self.stop = Some(at);
    }

    pub(crate) fn samples(&self) -> &[Sample] {
        &self.samples
    }

    pub(crate) fn take_samples(&mut self) -> Vec<Sample> {
        std::mem::take(&mut self.samples)
    }

    /// Advances the time to `to`. A stall that begins before, or that began during a sleep, adds
    /// the part by which it exceeds `to`.
    fn pass(&self, to: u64, asleep: bool) {
        let mut now = to.max(self.now.get());
        self.stalls.borrow_mut().retain(|&(start, length)| {
            if start > now {
                return true;
            }
            now = if asleep {
                // Sleep and stall overlap.
                now.max(start + length)
            } else {
                now + length
            };
            false
        });
        self.now.set(now);
    }

    fn spend(&self, cost: u64) {
        self.pass(self.now.get() + cost, false);
    }
}

impl Clock for Simulation {
    fn now(&self) -> Nanos {
        Nanos(self.now.get())
    }
}

impl Sleep for Simulation {
    fn sleep_until(&self, at: Nanos) -> bool {
        if let Some(stop) = self.stop
            && at.0 > stop
        {
            self.pass(stop, true);
            return false;
        }
        self.pass(at.0, true);
        true
    }
}

impl Counter for Simulation {
    fn read(&self) -> u64 {
        self.spend(self.read_cost);
        self.now.get()
    }
}

impl Processor for Simulation {
    fn processor(&self) -> u32 {
        self.moves
            .iter()
            .rev()
            .find(|(at, _)| *at <= self.now.get())
            .map_or(0, |(_, cpu)| *cpu)
    }
}

impl Stop for Simulation {
    fn stop_requested(&self) -> bool {
        self.stop.is_some_and(|stop| stop <= self.now.get())
    }
}

impl Work for Simulation {
    fn work(&self, turns: u64) {
        self.spend(turns * self.turn_cost);
    }
}

impl InterruptSource for Simulation {
    fn interrupt_at(&self, at: Nanos) -> Option<Nanos> {
        if !self.sleep_until(at) {
            return None;
        }
        self.spend(self.delivery_cost);
        Some(self.now())
    }
}

impl Registers for Simulation {
    fn accesses(&self, page: Option<Page>) -> Nanos {
        let cost = match page {
            None => 0,
            Some(Page::Mapped) => self.access_costs.0,
            Some(Page::Trapped) => self.access_costs.1,
        };
        let before = self.read();
        self.spend(ACCESSES * cost);
        Nanos(self.read() - before)
    }
}

impl Sink for Simulation {
    fn push(&mut self, sample: Sample) {
        self.samples.push(sample);
    }
}
