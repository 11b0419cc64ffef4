// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Carries out orders to load the CPU or the memory. A cell without an operating system has one CPU for
//! all, so a load has the time that measuring leaves: it runs where the program would wait, and the
//! timer's interrupt takes it away. What it adds to a sample is a slice at the most.

use core::sync::atomic::AtomicU64;

use rampart_model::Nanos;

use super::memory::{CellOutput, Word};
use super::orders::{LoadOrder, Orders};
use crate::engine::Clock;
use crate::engine::load::Load;

/// Slices between two looks at the clock and the orders.
const SLICES: u32 = 4;

/// What makes loads.
#[derive(Debug)]
pub struct Loads<'a> {
    output: CellOutput<'a>,
    orders: Orders<'a>,
    memory: &'a [AtomicU64],
    /// Of the order that is carried out, or was.
    number: u64,
    load: Option<(Load<'a>, Nanos)>,
    slices: u64,
    time: Nanos,
}

impl<'a> Loads<'a> {
    /// Ready for the first order that comes from now on; loads are made in this memory.
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

    /// Takes a new order, and does a piece of what was ordered; false where there is nothing to do.
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
        // What interrupted it is in this too: handlers are short beside a load's whole time.
        self.time += clock.now().saturating_sub(begin);
        self.output.write(Word::LoadTime, self.time.0);
        self.output.write(Word::LoadSlices, self.slices);
        true
    }

    fn begin(&mut self, number: u64) {
        self.number = number;
        (self.slices, self.time) = (0, Nanos::ZERO);
        let Some(LoadOrder { form, until }) = self.orders.load() else {
            // Nothing that this program knows: it is over at once, without a slice.
            self.output.write(Word::LoadTime, 0);
            self.output.write(Word::LoadSlices, 0);
            self.output.write(Word::LoadBegun, number);
            self.output.write(Word::LoadEnded, number);
            return;
        };
        self.load = Some((Load::new(form, self.memory), until));
        self.output.write(Word::LoadBegun, number);
    }

    fn end(&mut self) {
        if self.load.take().is_some() {
            self.output.write(Word::LoadEnded, self.number);
        }
    }
}
