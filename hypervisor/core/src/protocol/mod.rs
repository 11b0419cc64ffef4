// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The ownership protocol: who owns each CPU and each page, which step changes that, and who may take it.
//! docs/hypervisor.md, "Ownership", describes the whole. The monitor executes these steps, and
//! `tests/protocol` checks all their interleavings, with a root and cells that call anything at any time.
//!
//! - [`CpuState`]: the owner of a CPU and what it does, in one word that is only changed by
//!   compare-and-exchange. So of two steps that exclude each other one succeeds and the other is refused.
//! - [`Management`]: a call of the root that changes a cell, step by step, under the [`HolderLock`] of the
//!   managers. Cells never wait for that lock, and neither do their calls.
//! - [`Leaving`]: the return of EL2 to Linux: all CPUs of the root, or none.
//!
//! A step waits for another CPU only where it returns `Wait`; the monitor limits each such wait.
//!
//! [`HolderLock`]: crate::bounded_lock::HolderLock

mod cpu_state;
mod leaving;
mod management;

pub use cpu_state::{CpuState, CpuStep, Refusal};
pub use leaving::{Leaving, LeavingStep};
pub use management::{Kind, Management, Phase, Progress, Work};

use crate::interface::{CellState, Outcome};
use crate::state::Event;

/// The state that the steps change, and their effects on the machine. The monitor accesses the real ones.
pub trait World {
    /// Returns the number of CPUs.
    fn cpu_count(&self) -> usize;

    /// Returns the state of a CPU.
    fn cpu(&self, cpu: usize) -> CpuState;

    /// Makes one step of a CPU's state, as a single atomic change, and returns the state before it.
    ///
    /// # Errors
    /// That of the step.
    fn step_cpu(&self, cpu: usize, step: &CpuStep<'_>) -> Result<CpuState, Refusal>;

    /// Returns the state of a cell.
    fn state(&self, cell: u32) -> CellState;

    /// Changes the state of a cell (`Status::advance` of `state.rs`).
    ///
    /// # Errors
    /// As for [`crate::state::next`].
    fn advance(&mut self, cell: u32, event: Event) -> Result<CellState, Outcome>;

    /// Returns the CPUs of the cell's configuration, one bit each.
    fn wanted(&self, cell: u32) -> u64;

    /// Returns the work that is left to do for a cell.
    fn work(&self, cell: u32) -> Work;

    /// Sets the work that is left to do for a cell.
    fn set_work(&mut self, cell: u32, work: Work);

    /// Clears the root table of a CPU, so that its next instruction aborts.
    fn zap(&mut self, cell: u32, cpu: usize);

    /// Sends the management interrupt to a CPU.
    fn kick(&self, cpu: usize);

    /// Removes the cell's interrupts and memory from the root. The root can no longer access the memory.
    ///
    /// # Errors
    /// [`Outcome::Exhausted`], [`Outcome::TimedOut`]: a part may be removed.
    fn take(&mut self, cell: u32) -> Result<(), Outcome>;

    /// Zeroes a part of the cell's memory, which no CPU can access, from this position on: with [`Work::Clearing`]
    /// only private memory. Returns the next position, or `None` at the end.
    fn wipe(&mut self, cell: u32, position: u64) -> Option<u64>;

    /// Maps the memory for the cell, on its CPUs.
    ///
    /// # Errors
    /// [`Outcome::Exhausted`].
    fn grant(&mut self, cell: u32) -> Result<(), Outcome>;

    /// Unmaps the memory from the cell, whose CPUs are all off, and from the root if it is still mapped there.
    fn withdraw(&mut self, cell: u32);

    /// Ends the DMA that the last kernel of the root has ordered, before the root is started again.
    ///
    /// # Errors
    /// [`Outcome::TimedOut`]: it may continue.
    fn end_dma(&mut self) -> Result<(), Outcome>;

    /// Returns interrupts and memory, which are wiped, to the root.
    fn give_back(&mut self, cell: u32);

    /// Maps the cell's loadable memory for the root, or unmaps it.
    ///
    /// # Errors
    /// [`Outcome::Exhausted`].
    fn show(&mut self, cell: u32, shown: bool) -> Result<(), Outcome>;

    /// Resets the cell's interrupts and restores the root tables of its CPUs, which are all off.
    fn prepare_start(&mut self, cell: u32);

    /// Sets the entry of a CPU to that of this cell: it is being turned on, or starts the root again.
    fn set_entry(&self, cell: u32, cpu: usize);
}
