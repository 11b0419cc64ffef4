// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Carries out orders to load the CPU or the memory. A cell without an operating system has one
//! CPU, so a load uses the time that measuring leaves: it runs instead of the wait for the timer,
//! until the timer's interrupt. It adds at most one slice to a sample.

use core::sync::atomic::AtomicU64;

use rampart_model::Nanos;

use super::memory::{CellOutput, Word};
use super::orders::{LoadOrder, Orders};
use crate::engine::Clock;
use crate::engine::load::{CACHE_BYTES, LoadForm, LoadLoop};

/// Slices between two checks of the clock and the orders.
const SLICES: u32 = 4;

/// The state of the load.
#[derive(Debug)]
pub struct Loads<'a> {
    output: CellOutput<'a>,
    orders: Orders<'a>,
    memory: &'a [AtomicU64],
    /// Number of the present or last order.
    number: u64,
    load: Option<(LoadLoop<'a>, Nanos)>,
    slices: u64,
    time: Nanos,
}

impl<'a> Loads<'a> {
    /// Creates the state; the next order is the first. Loads use `memory`.
    #[must_use]
    pub fn new(output: CellOutput<'a>, orders: Orders<'a>, memory: &'a [AtomicU64]) -> Self {
        Self {
            output,
            orders,
            memory,
            number: orders.load_number(),
            load: None,
            slices: 0,
            time: Nanos::ZERO,
        }
    }

    /// Takes a new order and runs a piece of the load. Returns `false` if there is no load to run.
    pub fn step(&mut self, clock: &impl Clock) -> bool {
        let number = self.orders.load_number();
        let begin = clock.now();
        if number != self.number {
            self.end();
            self.begin(number);
        }
        let Some((load, until)) = &mut self.load else {
            return false;
        };
        if begin >= *until {
            self.end();
            return false;
        }
        for _ in 0..SLICES {
            load.slice();
        }
        self.slices += u64::from(SLICES);
        // The time includes interrupts; handlers are short compared with the time of a load.
        self.time += clock.now().saturating_sub(begin);
        self.output.write(Word::LoadTime, self.time.0);
        self.output.write(Word::LoadSlices, self.slices);
        true
    }

    fn begin(&mut self, number: u64) {
        self.number = number;
        (self.slices, self.time) = (0, Nanos::ZERO);
        let Some(LoadOrder { form, until }) = self.orders.load() else {
            // An unknown load ends at once, without a slice.
            self.output.write(Word::LoadTime, 0);
            self.output.write(Word::LoadSlices, 0);
            self.output.write(Word::LoadBegun, number);
            self.output.write(Word::LoadEnded, number);
            return;
        };
        let words = match form {
            LoadForm::Cache => self.memory.len().min(CACHE_BYTES / size_of::<u64>()),
            LoadForm::Cpu | LoadForm::Memory => self.memory.len(),
        };
        self.load = Some((LoadLoop::new(form, &self.memory[..words]), until));
        self.output.write(Word::LoadBegun, number);
    }

    fn end(&mut self) {
        if self.load.take().is_some() {
            self.output.write(Word::LoadEnded, self.number);
        }
    }
}
