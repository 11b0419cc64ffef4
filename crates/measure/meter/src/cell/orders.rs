// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Orders of the root. Each kind of order has its own words. The first is the number of the order,
//! which grows with each order, is written last and is repeated in the answer. The root writes the
//! next order after the answer or after a timeout.

use core::sync::atomic::{AtomicU64, Ordering};

use rampart_model::Nanos;

use super::memory::ORDERS_BYTES;
use crate::engine::load::LoadForm;
use crate::engine::schedule::Spacing;

/// First word of orders to measure.
const MEASURE: usize = 0;
/// All measurements up to the number in this word are to end.
const STOP: usize = 32;
/// First word of orders to block the CPU.
const BLOCK: usize = 64;
/// First word of orders to load the CPU or the memory.
const LOAD: usize = 96;
/// Words of an order, including its number.
const WORDS: usize = 16;

/// The loop to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meter {
    /// [`crate::engine::wakeup`]: from the timer to the program that waits for it.
    Wakeup = 1,
    /// [`crate::engine::noise`].
    Noise = 2,
    /// [`crate::engine::fwq`].
    Fwq = 3,
    /// [`crate::engine::control_loop`].
    Loop = 4,
    /// [`crate::engine::irq`].
    Irq = 5,
    /// [`crate::engine::mmio`].
    Mmio = 6,
}

impl Meter {
    const ALL: [Self; 6] = [
        Self::Wakeup,
        Self::Noise,
        Self::Fwq,
        Self::Loop,
        Self::Irq,
        Self::Mmio,
    ];
}

/// An order to measure, in two steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    /// Calibrates and answers with [`super::records::CellRecord::Ready`].
    Prepare {
        /// The loop.
        meter: Meter,
        /// Period of the loops that have one.
        interval: Nanos,
        /// Length of the work of `fwq` and `loop`.
        work: Nanos,
        /// The shortest gap that `noise` records. Zero selects three times its own period, at least
        /// 200 ns.
        threshold: Nanos,
    },
    /// Measures as prepared, between these moments of the cell's clock.
    Go {
        /// Start of the warm-up.
        start: Nanos,
        /// End of the warm-up and start of the measurement.
        measured: Nanos,
        /// End of the measurement.
        end: Nanos,
    },
}

/// An order to block the CPU repeatedly. A count of 0 ends the previous order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    /// Distribution of the blocks in time.
    pub spacing: Spacing,
    /// Number of blocks.
    pub count: u64,
    /// The first block begins one pause after this moment of the cell's clock.
    pub base: Nanos,
}

/// An order to load the CPU or the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoadOrder {
    /// Kind of load.
    pub form: LoadForm,
    /// End of the load on the cell's clock.
    pub until: Nanos,
}

/// The region that the root writes.
#[derive(Debug, Clone, Copy)]
pub struct Orders<'a>(&'a [AtomicU64]);

impl<'a> Orders<'a> {
    /// Creates the region in this memory. Returns `None` if the memory is too small.
    #[must_use]
    pub fn new(words: &'a [AtomicU64]) -> Option<Self> {
        Some(Self(words.get(..ORDERS_BYTES / 8)?))
    }

    fn number(&self, location: usize) -> u64 {
        self.0[location].load(Ordering::Acquire)
    }

    /// Returns the words of the order at this location, without its number.
    fn words(&self, location: usize) -> [u64; WORDS - 1] {
        core::array::from_fn(|index| self.0[location + 1 + index].load(Ordering::Relaxed))
    }

    fn give(&self, location: usize, words: &[u64]) -> u64 {
        for (to, word) in self.0[location + 1..location + WORDS].iter().zip(words) {
            to.store(*word, Ordering::Relaxed);
        }
        let number = self.number(location).wrapping_add(1);
        self.0[location].store(number, Ordering::Release);
        number
    }

    /// Returns the number of the latest order to measure.
    #[must_use]
    pub fn measure_number(&self) -> u64 {
        self.number(MEASURE)
    }

    /// Returns the latest order to measure, or `None` if it is invalid.
    #[must_use]
    pub fn measure(&self) -> Option<Measure> {
        let [step, first, second, third, fourth, ..] = self.words(MEASURE);
        match step {
            1 => Some(Measure::Prepare {
                meter: Meter::ALL
                    .into_iter()
                    .find(|meter| *meter as u64 == first)?,
                interval: Nanos(second),
                work: Nanos(third),
                threshold: Nanos(fourth),
            }),
            2 => Some(Measure::Go {
                start: Nanos(first),
                measured: Nanos(second),
                end: Nanos(third),
            }),
            _ => None,
        }
    }

    /// Writes an order to measure and returns its number.
    pub fn give_measure(&self, order: &Measure) -> u64 {
        match *order {
            Measure::Prepare {
                meter,
                interval,
                work,
                threshold,
            } => self.give(MEASURE, &[1, meter as u64, interval.0, work.0, threshold.0]),
            Measure::Go {
                start,
                measured,
                end,
            } => self.give(MEASURE, &[2, start.0, measured.0, end.0]),
        }
    }

    /// Returns whether the measurement with this number is to end.
    #[inline(always)]
    #[must_use]
    pub fn ends(&self, number: u64) -> bool {
        self.0[STOP].load(Ordering::Relaxed) >= number
    }

    /// Ends all measurements up to this number.
    pub fn end(&self, number: u64) {
        self.0[STOP].store(number, Ordering::Release);
    }

    /// Returns the number of the latest order to block the CPU.
    #[inline(always)]
    #[must_use]
    pub fn block_number(&self) -> u64 {
        self.number(BLOCK)
    }

    /// Returns the latest order to block the CPU.
    #[must_use]
    pub fn block(&self) -> Block {
        let [length, pause, random, seed, count, base, ..] = self.words(BLOCK);
        Block {
            spacing: Spacing {
                length: Nanos(length),
                pause: Nanos(pause),
                random: random != 0,
                seed,
            },
            count,
            base: Nanos(base),
        }
    }

    /// Writes an order to block the CPU and returns its number.
    pub fn give_block(&self, order: &Block) -> u64 {
        let Spacing {
            length,
            pause,
            random,
            seed,
        } = order.spacing;
        let words = [
            length.0,
            pause.0,
            u64::from(random),
            seed,
            order.count,
            order.base.0,
        ];
        self.give(BLOCK, &words)
    }

    /// Returns the number of the latest order to load.
    #[inline(always)]
    #[must_use]
    pub fn load_number(&self) -> u64 {
        self.number(LOAD)
    }

    /// Returns the latest order to load, or `None` if it is invalid.
    #[must_use]
    pub fn load(&self) -> Option<LoadOrder> {
        let [form, until, ..] = self.words(LOAD);
        Some(LoadOrder {
            form: LoadForm::from_number(form)?,
            until: Nanos(until),
        })
    }

    /// Writes an order to load, which replaces the previous one, and returns its number.
    pub fn give_load(&self, order: &LoadOrder) -> u64 {
        self.give(LOAD, &[order.form as u64, order.until.0])
    }
}
