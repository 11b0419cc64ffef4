// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the protocol calls, on a state of the model instead of a machine.

use super::*;

/// The state while a step changes it.
pub(super) struct Stepped<'a> {
    pub(super) state: &'a mut State,
    pub(super) words: Vec<Cell<u64>>,
    pub(super) wanted: &'a [u64],
}

impl Stepped<'_> {
    fn cell(&mut self, cell: u32) -> &mut Partition {
        &mut self.state.cells[cell as usize - 1]
    }

    fn expect(&mut self, holds: bool, otherwise: &'static str) {
        if !holds {
            self.state.broken = Some(otherwise);
        }
    }

    /// None of the CPUs of a cell can access its memory.
    fn is_quiet(&self, cell: u32) -> bool {
        let runs = |at: &At| matches!(at, At::Guest { cell: of, .. } if *of == cell);
        !self.state.at.iter().any(runs)
    }
}

impl World for Stepped<'_> {
    fn cpu_count(&self) -> usize {
        self.words.len()
    }

    fn cpu(&self, cpu: usize) -> CpuState {
        CpuState::from_word(self.words[cpu].get())
    }

    fn step_cpu(&self, cpu: usize, step: &CpuStep<'_>) -> Result<CpuState, Refusal> {
        let before = self.cpu(cpu);
        self.words[cpu].set(step(before)?.word());
        Ok(before)
    }

    fn state(&self, cell: u32) -> CellState {
        self.state.cells[cell as usize - 1].state
    }

    fn advance(&mut self, cell: u32, event: Event) -> Result<CellState, Outcome> {
        let after = next(World::state(self, cell), event)?;
        let has_cpus = self.wanted(cell) != 0;
        let partition = self.cell(cell);
        partition.state = after;
        if event == Event::Start && has_cpus {
            partition.life = partition.life % 2 + 1;
        }
        Ok(after)
    }

    fn wanted(&self, cell: u32) -> u64 {
        self.wanted[cell as usize - 1]
    }

    fn work(&self, cell: u32) -> Work {
        self.state.cells[cell as usize - 1].work
    }

    fn set_work(&mut self, cell: u32, work: Work) {
        self.cell(cell).work = work;
    }

    fn zap(&mut self, _cell: u32, cpu: usize) {
        self.state.zapped[cpu] = true;
    }

    fn kick(&self, _cpu: usize) {}

    fn take(&mut self, cell: u32) -> Result<(), Outcome> {
        self.cell(cell).root_maps = false;
        self.cell(cell).shown = false;
        Ok(())
    }

    fn wipe(&mut self, cell: u32, position: u64) -> Option<u64> {
        let cleared = matches!(World::work(self, cell), Work::Clearing(_));
        let quiet = self.is_quiet(cell) && (cleared || !self.cell(cell).cell_maps);
        self.expect(quiet, "memory is wiped while its cell can write it");
        if position == 0 {
            return Some(1);
        }
        self.cell(cell).content = Content::Zero;
        None
    }

    fn grant(&mut self, cell: u32) -> Result<(), Outcome> {
        let found = *self.cell(cell);
        self.expect(found.content == Content::Zero, "a cell gets memory that is not wiped");
        self.expect(!found.root_maps, "a cell gets memory of the root");
        self.cell(cell).cell_maps = true;
        Ok(())
    }

    fn withdraw(&mut self, cell: u32) {
        let quiet = self.is_quiet(cell);
        self.expect(quiet, "tables are freed while a CPU uses them");
        self.cell(cell).cell_maps = false;
        self.cell(cell).root_maps = false;
    }

    fn end_dma(&mut self) -> Result<(), Outcome> {
        let runs = |cpu: &usize| self.cpu(*cpu).cell == ROOT && self.cpu(*cpu).has_to_park();
        let one = (0..self.cpu_count()).filter(runs).count() == 1;
        self.expect(one, "DMA is ended while another CPU of the root can order it");
        Ok(())
    }

    fn give_back(&mut self, cell: u32) {
        self.cell(cell).root_maps = true;
    }

    fn show(&mut self, cell: u32, shown: bool) -> Result<(), Outcome> {
        let quiet = self.is_quiet(cell);
        self.expect(quiet, "the root gets memory that a cell can write");
        let left = self.cell(cell).content == Content::Cell;
        self.expect(!shown || !left, "the root sees what a cell has computed");
        self.cell(cell).shown = shown;
        Ok(())
    }

    fn prepare_start(&mut self, cell: u32) {
        let quiet = self.is_quiet(cell);
        self.expect(quiet, "a cell starts while a CPU of its last life runs");
        for cpu in 0..self.cpu_count() {
            if self.cpu(cpu).cell == cell {
                self.state.zapped[cpu] = false;
            }
        }
    }

    fn set_entry(&self, _cell: u32, _cpu: usize) {}
}
