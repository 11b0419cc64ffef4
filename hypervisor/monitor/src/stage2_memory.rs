// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory for stage-2 tables, and the TLBs that cache them.

use core::sync::atomic::AtomicU64;

use rampart_hypervisor_core::interface::PAGE_BYTES;
use rampart_hypervisor_core::stage2::{PagePool, TableMemory};

use crate::registers::{instruction, read_register, synchronise, write_register};
use crate::smmu;

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

/// Root tables without an entry, never written, as many as a guest can have: speculative walks find nothing.
#[repr(C, align(65536))]
struct NoTables([AtomicU64; 1 << 13]);

static NO_TABLES: NoTables = NoTables([const { AtomicU64::new(0) }; 1 << 13]);

/// Returns root tables for a CPU without a guest, and while VTTBR_EL2 selects only a VMID.
pub(crate) fn no_tables() -> u64 {
    (&raw const NO_TABLES.0) as u64
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
        // A walk that finds a valid entry must also find what it points to.
        if entry & 1 != 0 {
            instruction!("dsb ishst");
        }
        // SAFETY: as above. With a single store a table walk sees the old entry or the new one.
        unsafe { (table as *mut u64).add(index).write_volatile(entry) }
    }

    fn invalidate_tlbs(&mut self) {
        // TLBI uses the VMID in VTTBR_EL2 (D8.14.5), so it temporarily holds the cell's; EL2 does not use it
        // otherwise.
        let own = read_register!("vttbr_el2");
        instruction!("dsb ishst");
        write_register!("vttbr_el2", base(no_tables(), self.cell));
        synchronise();
        // Twice: on some CPUs the first one misses an entry that is used at the same time (Arm erratum 1286807).
        instruction!("tlbi vmalls12e1is", "dsb ish", "tlbi vmalls12e1is", "dsb ish");
        write_register!("vttbr_el2", own);
        synchronise();
        smmu::forget_translations(self.cell);
    }
}
