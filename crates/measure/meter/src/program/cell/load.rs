// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A load in the cell, in the time that measuring leaves.

use rampart_model::{Nanos, Refusal};

use super::clock::CellClock;
use super::memory::{CellMemory, CellMemoryLocation};
use crate::cell::memory::Word;
use crate::cell::orders::LoadOrder;
use crate::engine::load::LoadForm;
use crate::linux::clock;

/// An order to load that was given.
#[derive(Debug)]
pub(in crate::program) struct CellLoad {
    memory: CellMemory,
    number: u64,
    ended: bool,
}

impl CellLoad {
    /// Orders a load of this length from now on.
    pub(in crate::program) fn give(
        location: &CellMemoryLocation,
        form: LoadForm,
        duration: Nanos,
    ) -> Result<Self, Refusal> {
        let memory = CellMemory::open(location)?;
        let mut cell = CellClock::new(memory.scale()?);
        cell.update();
        let until = cell.cell_time(clock::monotonic() + duration);
        let number = memory.orders()?.give_load(&LoadOrder { form, until });
        Ok(Self {
            memory,
            number,
            ended: false,
        })
    }

    fn read(&self, word: Word) -> u64 {
        self.memory.output().map_or(0, |output| output.read(word))
    }

    /// Returns whether the load runs.
    pub(in crate::program) fn has_begun(&self) -> bool {
        self.read(Word::LoadBegun) >= self.number
            && (self.read(Word::LoadSlices) > 0 || self.has_ended())
    }

    /// Returns whether the load is over.
    pub(in crate::program) fn has_ended(&self) -> bool {
        self.read(Word::LoadEnded) >= self.number
    }

    /// Ends the load early.
    pub(in crate::program) fn end(&mut self) -> Result<(), Refusal> {
        if !self.ended {
            self.ended = true;
            let orders = self.memory.orders()?;
            // An order whose end has passed replaces this one; the reported time of this one stays.
            let over = LoadOrder {
                form: LoadForm::Cpu,
                until: Nanos::ZERO,
            };
            orders.give_load(&over);
        }
        Ok(())
    }

    /// Returns the CPU time that the load used.
    pub(in crate::program) fn time(&self) -> Nanos {
        Nanos(self.read(Word::LoadTime))
    }
}
