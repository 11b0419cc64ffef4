// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The memory that stage-2 tables are in, and the TLBs that remember them.

use rampart_hypervisor_core::interface::PAGE_BYTES;
use rampart_hypervisor_core::stage2::{PagePool, TableMemory};

use crate::registers::{instruction, read_register, synchronise, write_register};

/// Pages for tables: 16 MiB of them, which is more than the driver leaves.
pub(crate) type Pool = PagePool<64>;

/// The tables of one cell.
#[derive(Debug)]
pub(crate) struct Tables<'a> {
    /// Where their pages come from.
    pub(crate) pool: &'a mut Pool,
    /// The cell's number, which is also its VMID.
    pub(crate) cell: u32,
}

/// VTTBR_EL2 (Arm ARM D24.2.186) for a root table and a cell.
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
        // SAFETY: a table's pages came from the pool, which is mapped and nobody else's; the index
        // is within them, as `Stage2` keeps it.
        unsafe { (table as *const u64).add(index).read_volatile() }
    }

    fn write(&mut self, table: u64, index: usize, entry: u64) {
        // SAFETY: as above. One store: a table walk sees the old entry or the new one.
        unsafe { (table as *mut u64).add(index).write_volatile(entry) }
    }

    fn invalidate_tlbs(&mut self) {
        // TLBI is for the VMID that VTTBR_EL2 holds (D8.14.5), so it holds the cell's for a moment;
        // at EL2 nothing else looks at it.
        let own = read_register!("vttbr_el2");
        instruction!("dsb ishst");
        write_register!("vttbr_el2", base(0, self.cell));
        synchronise();
        instruction!("tlbi vmalls12e1is", "dsb ish");
        write_register!("vttbr_el2", own);
        synchronise();
    }
}
