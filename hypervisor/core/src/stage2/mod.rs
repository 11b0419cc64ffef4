// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Stage-2 translation of a cell. Three levels of 4 KiB tables from level 1 (Arm ARM, D8.2 and D8.3); the
//! root table is one page for 39 address bits and up to 16 contiguous pages for 43.
//!
//! Each CPU of a cell has a root table of its own, a copy of the cell's; the lower tables are common to the
//! cell. So one CPU can be taken by clearing its root table ([`Stage2::zap`]) while the others continue,
//! and the lower tables are not copied.
//!
//! The attributes are those of `aarch64-paging`. Its tables are not used: they panic when no page is left,
//! refuse to split a live block, and support only one root.
//!
//! **Break before make** (Arm ARM, D8.17): a valid entry is first made invalid and the TLBs are
//! invalidated, then the new entry is written. A CPU of the same cell that accesses it meanwhile takes an
//! abort; the handler checks [`Stage2::permits`] under the lock and lets the guest retry.

mod mapping;
mod page_pool;

pub use aarch64_paging::descriptor::Stage2Attributes as Attributes;
pub use page_pool::PagePool;

use crate::format::MemoryFlags;
use crate::interface::{MAXIMUM_CPUS, PAGE_BYTES};

/// Number of entries of one table.
pub const ENTRIES: usize = 512;
/// Mask of the output address of an entry.
const ADDRESS: u64 = 0x0000_ffff_ffff_f000;
/// Minimum number of guest address bits: those of one level 1 table.
pub const MINIMUM_ADDRESS_BITS: u32 = 39;
/// Maximum number of guest address bits: sixteen concatenated tables (Arm ARM, D8.2.6).
pub const MAXIMUM_ADDRESS_BITS: u32 = 43;

/// Memory for tables, and the TLBs that cache them.
pub trait TableMemory {
    /// Allocates contiguous zeroed pages, aligned to their total size (a power of two). Returns the
    /// physical address, or `None` if no pages are left.
    fn allocate(&mut self, pages: usize) -> Option<u64>;
    /// Frees pages.
    fn free(&mut self, table: u64, pages: usize);
    /// Reads an entry of a table; an index of [`ENTRIES`] or more is in a further page of a root table.
    fn read(&self, table: u64, index: usize) -> u64;
    /// Writes an entry with a single store.
    fn write(&mut self, table: u64, index: usize, entry: u64);
    /// Makes all earlier writes visible to table walks and invalidates this cell's entries in the TLBs of
    /// all CPUs (DSB ISHST, TLBI VMALLS12E1IS under the cell's VMID, DSB ISH).
    fn invalidate_tlbs(&mut self);
}

/// No page for a table is free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exhausted;

/// The kind of an access to memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessKind {
    /// A data read.
    Read,
    /// A data write.
    Write,
    /// An instruction fetch.
    Execute,
}

/// The translation of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Translation {
    /// Physical address of the page or block.
    pub physical: u64,
    /// Size of the page or block.
    pub bytes: u64,
    /// Its attributes.
    pub attributes: Attributes,
}

/// The translation of one cell.
#[derive(Debug)]
pub struct Stage2 {
    /// The cell's root table, which no CPU uses.
    root: u64,
    /// The root table of each CPU by its index in the header, or 0.
    roots: [u64; MAXIMUM_CPUS],
    /// CPUs whose root table is cleared, one bit each.
    zapped: u32,
    /// VTCR_EL2.T0SZ is 64 minus this, VTCR_EL2.SL0 is 1.
    address_bits: u32,
}

/// Returns the attributes for the flags of a region. Devices are never executable.
pub fn attributes(flags: MemoryFlags) -> Attributes {
    let has = |flag| flags.contains(flag);
    let mut attributes = Attributes::VALID | Attributes::ACCESS_FLAG;
    if has(MemoryFlags::DEVICE) {
        attributes |= Attributes::MEMATTR_DEVICE_nGnRE | Attributes::SH_OUTER;
    } else if has(MemoryFlags::UNCACHED) {
        attributes |= Attributes::MEMATTR_NORMAL_INNER_NC
            | Attributes::MEMATTR_NORMAL_OUTER_NC
            | Attributes::SH_INNER;
    } else {
        attributes |= Attributes::MEMATTR_NORMAL_INNER_WB
            | Attributes::MEMATTR_NORMAL_OUTER_WB
            | Attributes::SH_INNER;
    }
    if has(MemoryFlags::READ) {
        attributes |= Attributes::S2AP_ACCESS_RO;
    }
    if has(MemoryFlags::WRITE) {
        attributes |= Attributes::S2AP_ACCESS_WO;
    }
    if !has(MemoryFlags::EXECUTE) || has(MemoryFlags::DEVICE) {
        attributes |= Attributes::XN;
    }
    attributes
}

impl Stage2 {
    /// Creates an empty translation. `address_bits` is clamped to the supported range.
    ///
    /// # Errors
    /// [`Exhausted`].
    pub fn new(address_bits: u32, memory: &mut impl TableMemory) -> Result<Self, Exhausted> {
        let address_bits = address_bits.clamp(MINIMUM_ADDRESS_BITS, MAXIMUM_ADDRESS_BITS);
        let mut new = Self { root: 0, roots: [0; MAXIMUM_CPUS], zapped: 0, address_bits };
        new.root = memory.allocate(new.root_pages()).ok_or(Exhausted)?;
        Ok(new)
    }

    fn root_pages(&self) -> usize {
        1 << (self.address_bits - MINIMUM_ADDRESS_BITS)
    }

    /// Creates the root table of a CPU, a copy of the cell's.
    ///
    /// # Errors
    /// [`Exhausted`].
    pub fn add_cpu(&mut self, cpu: usize, memory: &mut impl TableMemory) -> Result<(), Exhausted> {
        let Some(0) = self.roots.get(cpu) else { return Ok(()) };
        self.roots[cpu] = memory.allocate(self.root_pages()).ok_or(Exhausted)?;
        self.restore(cpu, memory);
        Ok(())
    }

    /// Returns the physical address of the cell's root table, for its devices. It is never cleared.
    #[cfg(feature = "smmu")]
    pub fn root_of_devices(&self) -> u64 {
        self.root
    }

    /// Returns the physical address of a CPU's root table, for VTTBR_EL2.BADDR.
    pub fn root_of(&self, cpu: usize) -> Option<u64> {
        self.roots.get(cpu).copied().filter(|root| *root != 0)
    }

    /// Clears the root table of one CPU: its next instruction aborts. Later changes of the mapping do not
    /// apply to this CPU.
    pub fn zap(&mut self, cpu: usize, memory: &mut impl TableMemory) {
        let Some(root) = self.root_of(cpu) else { return };
        self.zapped |= 1 << cpu;
        for index in 0..self.root_pages() * ENTRIES {
            memory.write(root, index, 0);
        }
        memory.invalidate_tlbs();
    }

    /// Restores the root table of a CPU from the cell's.
    pub fn restore(&mut self, cpu: usize, memory: &mut impl TableMemory) {
        let Some(root) = self.root_of(cpu) else { return };
        self.zapped &= !(1 << cpu);
        for index in 0..self.root_pages() * ENTRIES {
            memory.write(root, index, memory.read(self.root, index));
        }
        memory.invalidate_tlbs();
    }

    /// Returns the root tables to update: the cell's, and those of CPUs that are not zapped.
    fn followers(&self) -> impl Iterator<Item = u64> + use<> {
        let (root, roots, zapped) = (self.root, self.roots, self.zapped);
        let current = move |(cpu, table): (usize, u64)| {
            (table != 0 && zapped & 1 << cpu == 0).then_some(table)
        };
        core::iter::once(root).chain(roots.into_iter().enumerate().filter_map(current))
    }

    /// Translates a guest address. Returns `None` if it is not mapped.
    pub fn translate(&self, guest: u64, memory: &impl TableMemory) -> Option<Translation> {
        if guest >> self.address_bits != 0 {
            return None;
        }
        let mut table = self.root;
        let mut level = 1;
        loop {
            let entry = memory.read(table, mapping::index(guest, level));
            if entry & Attributes::VALID.bits() as u64 == 0 {
                return None;
            }
            if mapping::is_table(entry, level) {
                table = entry & ADDRESS;
                level += 1;
                continue;
            }
            return Some(Translation {
                physical: entry & ADDRESS,
                bytes: mapping::covered(level),
                attributes: mapping::attributes_of(entry),
            });
        }
    }

    /// Returns whether the cell may make this access, even if its CPU's root table is cleared.
    pub fn permits(&self, guest: u64, kind: AccessKind, memory: &impl TableMemory) -> bool {
        self.translate(guest, memory).is_some_and(|found| match kind {
            AccessKind::Read => found.attributes.contains(Attributes::S2AP_ACCESS_RO),
            AccessKind::Write => found.attributes.contains(Attributes::S2AP_ACCESS_WO),
            AccessKind::Execute => {
                found.attributes.contains(Attributes::S2AP_ACCESS_RO)
                    && !found.attributes.contains(Attributes::XN)
            }
        })
    }

    /// Frees all tables. No CPU may still use them.
    pub fn release(self, memory: &mut impl TableMemory) {
        memory.invalidate_tlbs();
        for index in 0..self.root_pages() * ENTRIES {
            mapping::free_below(memory.read(self.root, index), 1, memory);
        }
        for root in core::iter::once(self.root).chain(self.roots).filter(|root| *root != 0) {
            memory.free(root, self.root_pages());
        }
    }
}

const _: () = assert!(PAGE_BYTES == 8 * ENTRIES as u64);
const _: () = assert!(MAXIMUM_CPUS <= u32::BITS as usize);
