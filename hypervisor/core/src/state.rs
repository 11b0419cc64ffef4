// SPDX-License-Identifier: Apache-2.0 OR MIT
//! States of cells and CPUs. They exist only in the status pages, which the hypervisor writes and the
//! root reads.
//!
//! Every failure ends in [`Status::fail`]: it writes the record, then the state, then the root is notified.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

use crate::bounded_lock::HolderLock;
use crate::configuration::Configuration;
use crate::format::{MemoryFlags, MemoryRegion, NAME_BYTES};
use crate::interface::{
    CellState, CellStatus, Condition, CpuPower, CpuStatus, Exit, FAILURE_SLOTS, LOG_BYTES,
    MAXIMUM_CPUS, NO_CELL, Outcome, REVISION, STATUS_MAGIC, Status, StopReason,
};
use crate::protocol::{CpuState, CpuStep, Refusal};

/// An event in the life of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The root creates the cell.
    Create,
    /// The root maps the cell's loadable memory.
    Loadable,
    /// The root starts the cell.
    Start,
    /// The root stops the cell.
    Stop,
    /// The cell stops itself.
    End(StopReason),
    /// The cell makes a forbidden access, or its watchdog expires.
    Fail(StopReason),
    /// The root destroys the cell.
    Destroy,
}

/// The state after an event.
type Reached = Result<CellState, Outcome>;

/// Returns the state after an event.
///
/// # Errors
/// [`Outcome::WrongState`] if the event is invalid in this state; [`Outcome::NoSuchCell`] for a free
/// number.
pub const fn next(state: CellState, event: Event) -> Reached {
    use CellState::{Created, Failed, Free, Loadable, Running, Stopped};
    match (state, event) {
        (Free, Event::Create) => Ok(Created),
        (Free, _) => Err(Outcome::NoSuchCell),
        (Created | Loadable | Stopped | Failed, Event::Loadable) => Ok(Loadable),
        // A cell must have been loaded once before it can start.
        (Loadable | Stopped | Failed, Event::Start) => Ok(Running),
        (Running, Event::Stop | Event::End(_)) => Ok(Stopped),
        // The loadable memory keeps its contents.
        (Loadable, Event::Stop) => Ok(Stopped),
        (Created | Stopped | Failed, Event::Stop) => Ok(state),
        (Running, Event::Fail(_)) => Ok(Failed),
        // One of its CPUs did not park.
        (Stopped, Event::Fail(StopReason::Unreachable)) => Ok(Failed),
        (_, Event::Destroy) => Ok(Free),
        _ => Err(Outcome::WrongState),
    }
}

/// Returns whether a region is zeroed when it is assigned to a cell, and again when it is returned: all
/// regions except devices and memory that one of the `others` shares.
pub fn is_wiped<'c, 'a: 'c>(
    region: &MemoryRegion,
    mut others: impl Iterator<Item = &'c Configuration<'a>>,
) -> bool {
    !region.flags().contains(MemoryFlags::DEVICE)
        && !others.any(|cell| cell.memory.iter().any(|other| region.meets(other)))
}

/// The registers of a failing CPU.
#[derive(Debug, Clone, Copy, Default)]
pub struct Snapshot {
    /// ESR_EL2.
    pub syndrome: u64,
    /// FAR_EL2.
    pub virtual_address: u64,
    /// From HPFAR_EL2 and FAR_EL2.
    pub guest_address: u64,
    /// ELR_EL2.
    pub program_counter: u64,
    /// SPSR_EL2.
    pub processor_state: u64,
    /// x0 to x30.
    pub registers: [u64; 31],
}

/// Serialises writers of the ring of failures and of the log. It is held for a few stores. The holder of
/// the former is one more than the CPU's index.
pub static WRITING: HolderLock = HolderLock::new();

impl Status {
    /// Initialises the zeroed status pages: no cell, all CPUs with these affinities in the root.
    pub fn initialize(&self, mpidrs: &[u64]) {
        for (cpu, mpidr) in self.cpus.iter().zip(mpidrs) {
            cpu.mpidr.store(*mpidr, Relaxed);
        }
        self.cpu_count.store(mpidrs.len().min(MAXIMUM_CPUS) as u32, Relaxed);
        self.revision.store(REVISION, Relaxed);
        self.magic.store(STATUS_MAGIC, Release);
    }

    /// Returns whether no cell exists.
    pub fn has_no_cells(&self) -> bool {
        self.cells.iter().all(|cell| cell.condition().state == CellState::Free)
    }

    /// Returns the index of a CPU by its affinity.
    pub fn cpu(&self, mpidr: u64) -> Option<usize> {
        let count = (self.cpu_count.load(Relaxed) as usize).min(MAXIMUM_CPUS);
        self.cpus[..count].iter().position(|cpu| cpu.mpidr.load(Relaxed) == mpidr)
    }

    fn cell(&self, cell: u32) -> Result<&CellStatus, Outcome> {
        self.cells.get(cell as usize).ok_or(Outcome::NoSuchCell)
    }

    /// Moves a cell to its next state, at time `now` (CNTPCT_EL0). Only one of several concurrent calls succeeds.
    ///
    /// # Errors
    /// As for [`next`].
    pub fn advance(&self, cell: u32, event: Event, now: u64) -> Reached {
        self.change(cell, event, None, now)
    }

    fn change(&self, cell: u32, event: Event, failure: Option<u64>, now: u64) -> Reached {
        let cell = self.cell(cell)?;
        if matches!(event, Event::Start) && next(cell.condition().state, event).is_ok() {
            // Before others see that the cell runs: its watchdog would be overdue at once.
            cell.kicked.store(now, Relaxed);
        }
        let mut found = cell.condition.load(SeqCst);
        let reached = loop {
            let before = Condition::from_word(found);
            let state = next(before.state, event)?;
            let after = before.after(state, event, failure).word();
            match cell.condition.compare_exchange(found, after, SeqCst, SeqCst) {
                Ok(_) => break state,
                Err(other) => found = other,
            }
        };
        match event {
            Event::Start => {
                cell.starts.fetch_add(1, Relaxed);
            }
            Event::Create | Event::Destroy => cell.clear(),
            Event::Stop | Event::End(_) | Event::Fail(_) | Event::Loadable => {}
        }
        cell.changed.store(now, Relaxed);
        // A reader that sees the new number also sees all of the above.
        self.changes.fetch_add(1, Release);
        Ok(reached)
    }

    /// Sets name, CPUs (one bit per index) and watchdog timeout of a created cell.
    pub fn describe(&self, cell: u32, name: &[u8; NAME_BYTES], cpus: u64, watchdog_ticks: u64) {
        let Ok(cell) = self.cell(cell) else { return };
        for (word, bytes) in cell.name.iter().zip(name.as_chunks::<8>().0) {
            word.store(u64::from_le_bytes(*bytes), Relaxed);
        }
        cell.watchdog_ticks.store(watchdog_ticks, Relaxed);
        cell.cpus.store(cpus, Release);
    }

    /// Records a failure of a CPU and fails its cell. The monitor parks the cell's CPUs: this one at once,
    /// the others as when the root stops a cell.
    ///
    /// Returns whether this failure changed the state; only the first one does.
    pub fn fail(
        &self,
        cell: u32,
        cpu: usize,
        reason: StopReason,
        snapshot: &Snapshot,
        now: u64,
    ) -> bool {
        let record = |_held| {
            let number = self.failures.load(Relaxed);
            let slot = &self.failure[(number % FAILURE_SLOTS as u64) as usize];
            slot.sequence.store(0, Relaxed);
            // A reader that sees any store below also sees this 0.
            core::sync::atomic::fence(Release);
            slot.time.store(now, Relaxed);
            slot.cell.store(cell, Relaxed);
            slot.cpu.store(cpu as u32, Relaxed);
            slot.reason.store(reason.into(), Relaxed);
            slot.syndrome.store(snapshot.syndrome, Relaxed);
            slot.virtual_address.store(snapshot.virtual_address, Relaxed);
            slot.guest_address.store(snapshot.guest_address, Relaxed);
            slot.program_counter.store(snapshot.program_counter, Relaxed);
            slot.processor_state.store(snapshot.processor_state, Relaxed);
            for (kept, value) in slot.registers.iter().zip(snapshot.registers) {
                kept.store(value, Relaxed);
            }
            slot.sequence.store(number + 1, Release);
            self.failures.store(number + 1, Release);
            number
        };
        let number = WRITING.take(cpu as u32 + 1).map(record);
        self.change(cell, Event::Fail(reason), number, now).is_ok()
    }

    /// Kicks the watchdog of a cell.
    pub fn kick(&self, cell: u32, now: u64) {
        if let Ok(cell) = self.cell(cell) {
            cell.kicked.store(now, Relaxed);
        }
    }

    /// Returns whether the watchdog of a running cell has expired.
    pub fn is_overdue(&self, cell: u32, now: u64) -> bool {
        self.cell(cell).is_ok_and(|cell| {
            let watchdog_ticks = cell.watchdog_ticks.load(Relaxed);
            cell.condition().state == CellState::Running
                && watchdog_ticks != 0
                && now.saturating_sub(cell.kicked.load(Relaxed)) > watchdog_ticks
        })
    }

    /// Appends to the log, overwriting the oldest bytes. `holder` is the number of this CPU for locks.
    #[inline(never)]
    pub fn log(&self, holder: u32, text: &[u8]) {
        let Some(_held) = WRITING.take(holder) else { return };
        let mut at = self.logged.load(Relaxed);
        for byte in text {
            self.log[(at % LOG_BYTES as u64) as usize].store(*byte, Relaxed);
            at += 1;
            self.logged.store(at, Release);
        }
    }
}

impl CellStatus {
    fn clear(&self) {
        let words = [&self.starts, &self.cpus, &self.kicked, &self.watchdog_ticks];
        words.into_iter().chain(&self.name).for_each(|word| word.store(0, Relaxed));
    }
}

impl Condition {
    fn after(self, state: CellState, event: Event, failure: Option<u64>) -> Self {
        let stop_reason = match event {
            Event::Stop => StopReason::ByRoot,
            Event::End(reason) | Event::Fail(reason) => reason,
            Event::Loadable => self.stop_reason,
            Event::Start | Event::Create | Event::Destroy => StopReason::None,
        };
        let failure = match event {
            Event::Create | Event::Destroy => 0,
            _ => failure.map_or(self.failure, |number| (number + 1) as u32),
        };
        Self { state, stop_reason, failure }
    }
}

impl CpuStatus {
    /// Counts an exit. Only the CPU itself may call this function.
    #[inline]
    pub fn count(&self, exit: Exit) {
        let counter = &self.exits[exit as usize];
        counter.store(counter.load(Relaxed).wrapping_add(1), Relaxed);
    }

    /// Returns the number of all exits.
    pub fn all_exits(&self) -> u64 {
        self.exits.iter().fold(0, |sum, counter| sum.wrapping_add(counter.load(Relaxed)))
    }

    /// Returns the cell that owns the CPU.
    #[inline]
    pub fn cell(&self) -> u32 {
        self.state.load(Acquire) as u32
    }

    /// Returns the owner and what the CPU does.
    #[inline]
    pub fn cpu_state(&self) -> CpuState {
        CpuState::from_word(self.state.load(SeqCst))
    }

    /// Makes one step of the ownership protocol. Returns the state before it. A CPU that changes its owner
    /// starts with new exit counters.
    ///
    /// # Errors
    /// That of the step.
    #[inline(never)]
    pub fn step(&self, step: &CpuStep<'_>) -> Result<CpuState, Refusal> {
        let mut found = self.state.load(SeqCst);
        loop {
            let (before, after) = (CpuState::from_word(found), step(CpuState::from_word(found))?);
            match self.state.compare_exchange(found, after.word(), SeqCst, SeqCst) {
                Ok(_) => {
                    if before.cell != after.cell {
                        self.exits.iter().for_each(|counter| counter.store(0, Relaxed));
                    }
                    return Ok(before);
                }
                Err(other) => found = other,
            }
        }
    }

    /// Sets the state at the launch, before others use it.
    pub fn set_state(&self, cell: u32, power: CpuPower) {
        self.state.store(CpuState { cell, power }.word(), SeqCst);
    }
}

const _: () = assert!(NO_CELL as usize >= crate::interface::MAXIMUM_CELLS);
