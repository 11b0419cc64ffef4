// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Finds a cell's console: the shared region that begins with a ring of records
//! (`crates/domains/ring`).

use rampart_hypervisor_core::format::MemoryFlags;
use rampart_hypervisor_core::interface::CellState;
use rampart_model::{Finding, Severity};
use rampart_ring::records::MAGIC;

use super::{OperateError, Operator};
use crate::device::Device;
use crate::linux::Console;
use crate::resolve::CellInUse;
use crate::shared_memory::SharedMemory;

/// Opens the console of a cell at its oldest complete line.
///
/// # Errors
/// Returns an error if there is no such cell, or it has not written a console.
pub fn console(operator: &Operator, name: &str) -> Result<Console, OperateError> {
    let cell = operator.cell(name)?;
    let found = regions(operator.device(), &cell)
        .into_iter()
        .find(|memory| memory.load(0) == Some(MAGIC));
    match found {
        Some(memory) => Ok(Console::new(memory)),
        None => {
            let (state, _) = operator.state(cell.number)?;
            let has_region = cell.shared().next().is_some();
            Err(OperateError::refused(no_console(name, state, has_region)))
        }
    }
}

/// Returns why a cell in this state has no console, and what gives it one.
fn no_console(name: &str, state: CellState, has_region: bool) -> Finding {
    let (found, fix) = match state {
        _ if !has_region => (
            "no shared region",
            format!(
                "rampart cell destroy {name}, then create it with --shared 64KiB and a program that writes there"
            ),
        ),
        CellState::Running => (
            "a running program that has written none",
            format!(
                "use a program that writes its console to a shared region; rampart cell stats {name} shows whether it runs"
            ),
        ),
        CellState::Stopped | CellState::Failed => (
            "a program that ended before it wrote one",
            format!(
                "rampart cell list --verbose shows why; rampart cell start {name} starts it again"
            ),
        ),
        CellState::Free | CellState::Created | CellState::Loadable => (
            "a program that was not started",
            format!("rampart cell start {name}"),
        ),
    };
    let what = "it has no console: no shared region contains a ring of records";
    Finding::new(Severity::Error, format!("cell {name}"), what)
        .values(found, "a program that writes a ring of records")
        .fix(fix)
}

/// Returns the shared regions that the root may read.
fn regions(device: &Device, cell: &CellInUse) -> Vec<SharedMemory> {
    let shared = cell.shared();
    let readable = shared.filter(|region| region.flags().contains(MemoryFlags::ROOT_READ));
    readable
        .filter_map(|region| {
            device
                .map_shared(region.physical, region.bytes as usize, false)
                .ok()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only a cell that does not run is to be started.
    #[test]
    fn the_fix_fits_the_state_of_the_cell() {
        let starts = |state, has_region| {
            let finding = no_console("press", state, has_region);
            let fix = finding.fix.expect("a fix");
            fix.contains("rampart cell start press")
        };
        assert!(starts(CellState::Created, true));
        assert!(starts(CellState::Loadable, true));
        assert!(starts(CellState::Failed, true));
        assert!(!starts(CellState::Running, true));
        for state in [CellState::Created, CellState::Running, CellState::Stopped] {
            assert!(!starts(state, false));
        }
    }
}
