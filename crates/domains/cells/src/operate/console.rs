// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Finds a cell's console: the shared region that begins with a ring of records
//! (`crates/domains/ring`).

use rampart_hypervisor_core::format::MemoryFlags;
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
    found.map(Console::new).ok_or_else(|| {
        OperateError::refused(
            Finding::new(
                Severity::Error,
                format!("cell {name}"),
                "it has no console: no shared region contains a ring of records",
            )
            .values("no ring", "a ring that its program writes")
            .fix(format!(
                "start it with rampart cell start {name}; rampart cell list shows its state"
            )),
        )
    })
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
