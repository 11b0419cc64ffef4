// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The monitor's own translation (stage 1 of EL2, Arm ARM D8.2 and D8.3), an identity mapping. Created once,
//! before any CPU uses it, and never changed.
// `entry.s` uses these names.
#![allow(non_upper_case_globals)]

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use rampart_hypervisor_core::interface::{Outcome, PAGE_BYTES};

use crate::registers::{ADDRESS_BITS, instruction, publish_stores, synchronise, write_register};

const ENTRIES: usize = 512;
const BLOCK_BYTES: u64 = 2 << 20;
const LEVEL_1_BYTES: u64 = 1 << 30;
/// Enough for 16 GiB of uniform 2 MiB blocks, and for some blocks of mixed pages.
const TABLES: usize = 24;

/// Descriptors (D8.3.1, D8.4.6, D8.5.2): table, page, block, access flag, read-only, never executed.
const TABLE: u64 = 0b11;
const PAGE: u64 = 0b11;
const BLOCK: u64 = 0b01;
const ACCESSED: u64 = 1 << 10;
const INNER_SHAREABLE: u64 = 3 << 8;
const READ_ONLY: u64 = 1 << 7;
const NEVER_EXECUTED: u64 = 1 << 54;
/// AP\[1\] is 1 in a translation regime with one privilege level (D8.4.1).
const ONE_LEVEL: u64 = 1 << 6;
const DEVICE: u64 = 1 << 2;
const NEXT_TABLE: u64 = 0x0000_ffff_ffff_f000;

/// The access rights of the monitor to a range.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Usage(u64);

impl Usage {
    const COMMON: u64 = ACCESSED | ONE_LEVEL;
    /// Execute and read.
    pub(crate) const CODE: Self = Self(Self::COMMON | INNER_SHAREABLE | READ_ONLY);
    /// Read.
    pub(crate) const CONSTANTS: Self = Self(Self::CODE.0 | NEVER_EXECUTED);
    /// Read and write.
    pub(crate) const DATA: Self = Self(Self::COMMON | INNER_SHAREABLE | NEVER_EXECUTED);
    /// Read and write, in order and uncached.
    pub(crate) const DEVICE: Self = Self(Self::COMMON | DEVICE | NEVER_EXECUTED);
}

/// One page of entries. They are atomic, because table walks read them concurrently.
#[repr(C, align(4096))]
struct Table([AtomicU64; ENTRIES]);

impl Table {
    const fn empty() -> Self {
        Self([const { AtomicU64::new(0) }; ENTRIES])
    }

    fn read(&self, index: usize) -> u64 {
        self.0[index % ENTRIES].load(Relaxed)
    }

    fn write(&self, index: usize, value: u64) {
        self.0[index % ENTRIES].store(value, Relaxed);
    }

    fn address(&self) -> u64 {
        core::ptr::from_ref(self) as u64
    }
}

/// Tables for the first step, filled by `entry.s` with the MMU off.
#[unsafe(no_mangle)]
static early_level_1: Table = Table::empty();
#[unsafe(no_mangle)]
static early_level_2: Table = Table::empty();
/// The table of all CPUs from the second step on.
#[unsafe(no_mangle)]
static final_level_1: Table = Table::empty();
static POOL: [Table; TABLES] = [const { Table::empty() }; TABLES];

/// The final tables under construction.
#[derive(Debug, Default)]
pub(crate) struct Mapping {
    taken: usize,
}

impl Mapping {
    /// Identity-maps whole pages. Existing mappings stay.
    ///
    /// # Errors
    /// [`Outcome::Exhausted`] if there are too many tables or the address is too large.
    pub(crate) fn add(&mut self, start: u64, bytes: u64, usage: Usage) -> Result<(), Outcome> {
        let end = start.checked_add(bytes).ok_or(Outcome::Exhausted)?;
        if end > 1 << ADDRESS_BITS || !start.is_multiple_of(PAGE_BYTES) {
            return Err(Outcome::Exhausted);
        }
        let mut at = start;
        while at < end {
            at += self.add_one(at, end, usage)?;
        }
        publish_stores();
        Ok(())
    }

    /// Maps the largest possible block or page at `at`, unless it is mapped. Returns its remaining size.
    fn add_one(&mut self, at: u64, end: u64, usage: Usage) -> Result<u64, Outcome> {
        let mut table = &final_level_1;
        for size in [LEVEL_1_BYTES, BLOCK_BYTES] {
            let index = (at / size) as usize;
            let entry = table.read(index);
            if entry & TABLE == BLOCK {
                return Ok(size - at % size);
            }
            if entry == 0 && at.is_multiple_of(size) && end - at >= size {
                table.write(index, at | usage.0 | BLOCK);
                return Ok(size);
            }
            table = self.below(table, index)?;
        }
        let page = (at / PAGE_BYTES) as usize;
        if table.read(page) == 0 {
            table.write(page, at | usage.0 | PAGE);
        }
        Ok(PAGE_BYTES)
    }

    /// Returns the table of an entry, and creates it if there is none.
    fn below(&mut self, table: &Table, index: usize) -> Result<&'static Table, Outcome> {
        let entry = table.read(index);
        if entry != 0 {
            let address = entry & NEXT_TABLE;
            return POOL.iter().find(|table| table.address() == address).ok_or(Outcome::Exhausted);
        }
        let new = POOL.get(self.taken).ok_or(Outcome::Exhausted)?;
        self.taken += 1;
        table.write(index, new.address() | TABLE);
        Ok(new)
    }
}

/// Switches the CPU that prepares the launch from the early to the final tables.
pub(crate) fn use_final() {
    publish_stores();
    write_register!("ttbr0_el2", final_level_1.address());
    synchronise();
    instruction!("tlbi alle2", "dsb nsh", "isb");
}
