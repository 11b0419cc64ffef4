// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Starting the root again from a *standby*: a kernel that is kept in memory which the root cannot write. It is a cell
//! without CPUs: created, loaded and destroyed as cells are, and kept while its state is [`CellState::Running`].

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

use crate::configuration::Configuration;
use crate::format::{MemoryFlags, MemoryRegion};
use crate::interface::{CellState, CellStatus, Condition, ROOT, Status, StopReason};

/// Returns whether a configuration without CPUs is that of a standby: one region at its physical address, and nothing
/// else.
pub(crate) fn is_standby(configuration: &Configuration<'_>) -> bool {
    let header = configuration.header;
    let others = [
        header.interrupt_count,
        header.register_count,
        header.smc_count,
        header.doorbell_count,
        header.stream_count,
        header.watchdog_milliseconds,
    ];
    let all = MemoryFlags::READ | MemoryFlags::WRITE | MemoryFlags::EXECUTE | MemoryFlags::LOADABLE;
    let own = |region: &MemoryRegion| {
        region.flags == all.bits() && region.guest == region.physical && region.colours == 0
    };
    configuration.memory.len() == 1 && configuration.memory.iter().all(own) && others == [0; 6]
}

impl Status {
    /// Returns the first standby that is kept, and whether there are cells besides standbys.
    pub fn standby(&self) -> (Option<u32>, bool) {
        let is_cell = |cell: &CellStatus| cell.cpus.load(Acquire) != 0;
        let kept =
            |cell: &CellStatus| cell.condition().state == CellState::Running && !is_cell(cell);
        let other = |cell: &CellStatus| cell.condition().state != CellState::Free && is_cell(cell);
        let found = self.cells.iter().position(kept).map(|number| number as u32);
        (found, self.cells.iter().any(other))
    }

    /// Records that the root is started again, at time `now` (CNTPCT_EL0), after its last kernel has made this call.
    pub fn restart(&self, stop_reason: StopReason, now: u64) {
        let root = &self.cells[ROOT as usize];
        root.starts.fetch_add(1, Relaxed);
        root.changed.store(now, Relaxed);
        let condition = Condition { state: CellState::Free, stop_reason, failure: 0 };
        root.condition.store(condition.word(), SeqCst);
        self.changes.fetch_add(1, Release);
    }

    /// Returns whether the root has been started again: Linux's stub at EL2 is then that of a kernel that is gone.
    pub fn is_restarted(&self) -> bool {
        self.cells[ROOT as usize].starts.load(Relaxed) != 0
    }
}
