// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The MMU of a program that needs caches for a part of its memory: an identity mapping in which all other
//! memory is uncached, as with the MMU off. Section numbers are those of the Arm Architecture Reference Manual
//! (DDI 0487).

use core::arch::asm;
use core::cell::UnsafeCell;
use core::sync::atomic::AtomicU64;

use crate::{read_register, write_register};

/// The range of the second table: the gigabyte with programs and all their memory.
const START: u64 = 0x4000_0000;
const END: u64 = 0x8000_0000;
/// Size of a block of the second table, in bytes.
const BLOCK: u64 = 2 << 20;

/// MAIR_EL1 (D24.2.111): 0 Device-nGnRnE, 1 Normal non-cacheable, 2 Normal write-back.
const ATTRIBUTES: u64 = 0x00_ff_44_00;
const DEVICE: u64 = 0 << 2;
const UNCACHED: u64 = 1 << 2;
const CACHED: u64 = 2 << 2;
/// Descriptors (D8.3.1): a block, a table, the access flag, inner shareable, never executed.
const IS_BLOCK: u64 = 0b01;
const IS_TABLE: u64 = 0b11;
const ACCESSED: u64 = 1 << 10;
const SHAREABLE: u64 = 3 << 8;
const NEVER_EXECUTED: u64 = 3 << 53;
/// TCR_EL1 (D24.2.182): 39 address bits, only TTBR0 (T0SZ, EPD1), uncached tables of 4 KiB, and 40 bits of physical
/// addresses (IPS), or those that the CPU has. Boards have their interrupt controllers also above 4 GiB.
const CONTROL: u64 = 25 | 1 << 23 | 0b010 << 32;
/// SCTLR_EL1 (D24.2.175): M and C.
const MMU_AND_CACHES: u64 = 1 | 1 << 2;

#[repr(align(4096))]
struct Table(UnsafeCell<[u64; 512]>);

// SAFETY: written once by the only CPU, before the MMU reads it.
unsafe impl Sync for Table {}

static FIRST: Table = Table(UnsafeCell::new([0; 512]));
static SECOND: Table = Table(UnsafeCell::new([0; 512]));

/// Enables the MMU with caches for this range and returns the range. Returns `None` if it is not in whole
/// blocks of 2 MiB within the gigabyte. Must be called once, by the only CPU, with a range that the program
/// does not use otherwise.
pub fn cacheable(start: u64, bytes: u64) -> Option<&'static [AtomicU64]> {
    let end = start.checked_add(bytes)?;
    if start < START || end > END || !start.is_multiple_of(BLOCK) || !bytes.is_multiple_of(BLOCK) {
        return None;
    }
    // SAFETY: the MMU is off and there is one CPU, so the tables are not in use.
    let (first, second) = unsafe { (&mut *FIRST.0.get(), &mut *SECOND.0.get()) };
    for (entry, address) in first.iter_mut().zip((0..).step_by(1 << 30)) {
        *entry = address | IS_BLOCK | DEVICE | ACCESSED | NEVER_EXECUTED;
    }
    first[1] = SECOND.0.get() as u64 | IS_TABLE;
    for (entry, address) in second.iter_mut().zip((START..).step_by(BLOCK as usize)) {
        let is_cached = (start..end).contains(&address);
        let attribute = if is_cached { CACHED | NEVER_EXECUTED } else { UNCACHED };
        *entry = address | IS_BLOCK | ACCESSED | SHAREABLE | attribute;
    }
    write_register!("mair_el1", ATTRIBUTES);
    write_register!("tcr_el1", CONTROL);
    write_register!("ttbr0_el1", FIRST.0.get() as u64);
    // Invalidates the TLB (D8.16), and completes the writes of the tables.
    // SAFETY: this program has no earlier translations.
    unsafe { asm!("dsb sy", "tlbi vmalle1", "dsb sy", "isb", options(nostack)) }
    write_register!("sctlr_el1", read_register!("sctlr_el1") | MMU_AND_CACHES);
    // SAFETY: the cell's configuration has this memory, it is aligned, and the caller guarantees that the
    // program does not use it otherwise.
    Some(unsafe { core::slice::from_raw_parts(start as *const AtomicU64, (bytes / 8) as usize) })
}
