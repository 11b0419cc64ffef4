// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory for stage-2 tables, and the TLBs that cache them.

use rampart_hypervisor_core::interface::PAGE_BYTES;
use rampart_hypervisor_core::stage2::{PagePool, TableMemory};

use crate::registers::{instruction, read_register, synchronise, write_register};

/// Pages for tables: up to 16 MiB, which is more than the driver provides.
pub(crate) type Pool = PagePool<64>;

/// The tables of one cell.
#[derive(Debug)]
pub(crate) struct Tables<'a> {
    /// The pool of their pages.
    pub(crate) pool: &'a mut Pool,
    /// The cell's number, which is also its VMID.
    pub(crate) cell: u32,
}

/// Returns VTTBR_EL2 (Arm ARM D24.2.186) for a root table and a cell.
pub(crate) fn base(root: u64, cell: u32) -> u64 {
    root | u64::from(cell) << 48
}

impl TableMemory for Tables<'_> {
    fn allocate(&mut self, pages: usize) -> Option<u64> {
        let start = self.pool.allocate(pages)?;
        for index in 0..pages * (PAGE_BYTES as usize / 8) {
            self.write(start, index, 0);
        }
        Some(start)
    }

    fn free(&mut self, table: u64, pages: usize) {
        self.pool.free(table, pages);
    }

    fn read(&self, table: u64, index: usize) -> u64 {
        // SAFETY: a table's pages are from the pool, which is mapped and used only for tables; `Stage2`
        // keeps the index within them.
        unsafe { (table as *const u64).add(index).read_volatile() }
    }

    fn write(&mut self, table: u64, index: usize, entry: u64) {
        // SAFETY: as above. With a single store a table walk sees the old entry or the new one.
        unsafe { (table as *mut u64).add(index).write_volatile(entry) }
    }

    fn invalidate_tlbs(&mut self) {
        // TLBI uses the VMID in VTTBR_EL2 (D8.14.5), so it temporarily holds the cell's; EL2 does not use it
        // otherwise.
        let own = read_register!("vttbr_el2");
        instruction!("dsb ishst");
        write_register!("vttbr_el2", base(0, self.cell));
        synchronise();
        instruction!("tlbi vmalls12e1is", "dsb ish");
        write_register!("vttbr_el2", own);
        synchronise();
    }
}
