// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Stage-2 translation: what a cell sees where. Three levels of 4 KiB tables from level 1
//! (Arm ARM, D8.2 and D8.3); the root table is one page for 39 address bits and up to 16 pages in a
//! row for 43.
//!
//! Each CPU of a cell has a root table of its own, a copy of the cell's; the tables below are the
//! cell's. So one CPU can be taken by clearing its root table ([`Stage2::zap`]) while the others run
//! on, and Linux's tables are not copied for each CPU.
//!
//! The attributes are those of `aarch64-paging`. Its tables are not used: they panic when no page is
//! left, refuse to split a live block instead of breaking it before making it anew, and know one root
//! only.
//!
//! **Break before make** (Arm ARM, D8.17): an entry that is valid is first made invalid and invalidations
//! by the TLBs, then made. A CPU of the same cell that uses it meanwhile gets an abort; whoever
//! handles one asks [`Stage2::permits`] under the lock and lets it try again.

mod mapping;
mod page_pool;

pub use aarch64_paging::descriptor::Stage2Attributes as Attributes;
pub use page_pool::PagePool;

use crate::format::MemoryFlags;
use crate::interface::{MAXIMUM_CPUS, PAGE_BYTES};

/// The entries of one table.
pub const ENTRIES: usize = 512;
/// Where the output address of an entry is.
const ADDRESS: u64 = 0x0000_ffff_ffff_f000;
/// Guest addresses have at least so many bits: those that one level 1 table reaches.
pub const LEAST_ADDRESS_BITS: u32 = 39;
/// And at most so many: sixteen tables in a row (Arm ARM, D8.2.6, concatenated translation tables).
pub const MOST_ADDRESS_BITS: u32 = 43;

/// The memory that tables are in, and the TLBs that remember them.
pub trait TableMemory {
    /// So many zeroed pages in a row, aligned to their size (a power of two); `None` if there are no
    /// more. The address is the physical one.
    fn allocate(&mut self, pages: usize) -> Option<u64>;
    /// Takes them back.
    fn free(&mut self, table: u64, pages: usize);
    /// An entry of a table; an index beyond [`ENTRIES`] is in the next page of a root table.
    fn read(&self, table: u64, index: usize) -> u64;
    /// Writes one, as a single store that a table walk sees in whole.
    fn write(&mut self, table: u64, index: usize, entry: u64);
    /// All that was written before this is seen by table walks, and no TLB of any CPU holds anything
    /// of this cell any more (DSB ISHST, TLBI VMALLS12E1IS under the cell's VMID, DSB ISH).
    fn invalidate_tlbs(&mut self);
}

/// No page for a table is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exhausted;

/// What an access does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessKind {
    /// Reading data.
    Read,
    /// Writing data.
    Write,
    /// Fetching an instruction.
    Execute,
}

/// What an address is translated to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Translation {
    /// Of the first byte of the page or block.
    pub physical: u64,
    /// Size of the page or block.
    pub bytes: u64,
    /// With it.
    pub attributes: Attributes,
}

/// The translation of one cell.
#[derive(Debug)]
pub struct Stage2 {
    /// The cell's root table, which no CPU uses.
    root: u64,
    /// By the CPU's index in the header: its own root table, or 0.
    roots: [u64; MAXIMUM_CPUS],
    /// Whose root table is cleared, a bit for each CPU.
    zapped: u32,
    address_bits: u32,
}

/// The attributes of a region, from its flags. Nothing is executed that is not meant to be, and
/// nothing of a device ever.
pub fn attributes(flags: MemoryFlags) -> Attributes {
    let has = |flag| flags.contains(flag);
    let mut attributes = Attributes::VALID | Attributes::ACCESS_FLAG;
    if has(MemoryFlags::DEVICE) {
        attributes |= Attributes::MEMATTR_DEVICE_nGnRE | Attributes::SH_OUTER;
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
    /// Nothing is mapped. `address_bits` is brought to what the tables can reach.
    ///
    /// # Errors
    /// [`Exhausted`].
    pub fn new(address_bits: u32, memory: &mut impl TableMemory) -> Result<Self, Exhausted> {
        let address_bits = address_bits.clamp(LEAST_ADDRESS_BITS, MOST_ADDRESS_BITS);
        let mut new = Self { root: 0, roots: [0; MAXIMUM_CPUS], zapped: 0, address_bits };
        new.root = memory.allocate(new.root_pages()).ok_or(Exhausted)?;
        Ok(new)
    }

    fn root_pages(&self) -> usize {
        1 << (self.address_bits - LEAST_ADDRESS_BITS)
    }

    /// VTCR_EL2.T0SZ is 64 minus this, VTCR_EL2.SL0 is 1.
    pub fn address_bits(&self) -> u32 {
        self.address_bits
    }

    /// Gives a CPU a root table with what the cell has.
    ///
    /// # Errors
    /// [`Exhausted`].
    pub fn add_cpu(&mut self, cpu: usize, memory: &mut impl TableMemory) -> Result<(), Exhausted> {
        let Some(0) = self.roots.get(cpu) else {
            return Ok(());
        };
        self.roots[cpu] = memory.allocate(self.root_pages()).ok_or(Exhausted)?;
        self.restore(cpu, memory);
        Ok(())
    }

    /// The physical address of a CPU's root table, for VTTBR_EL2.BADDR.
    pub fn root_of(&self, cpu: usize) -> Option<u64> {
        self.roots.get(cpu).copied().filter(|root| *root != 0)
    }

    /// Takes away all memory from one CPU: its next instruction aborts. What is mapped or unmapped
    /// from now on does not reach it either.
    pub fn zap(&mut self, cpu: usize, memory: &mut impl TableMemory) {
        let Some(root) = self.root_of(cpu) else {
            return;
        };
        self.zapped |= 1 << cpu;
        for index in 0..self.root_pages() * ENTRIES {
            memory.write(root, index, 0);
        }
        memory.invalidate_tlbs();
    }

    /// Gives the CPU what the cell has.
    pub fn restore(&mut self, cpu: usize, memory: &mut impl TableMemory) {
        let Some(root) = self.root_of(cpu) else {
            return;
        };
        self.zapped &= !(1 << cpu);
        for index in 0..self.root_pages() * ENTRIES {
            memory.write(root, index, memory.read(self.root, index));
        }
        memory.invalidate_tlbs();
    }

    /// Whether this CPU was zapped.
    pub fn is_zapped(&self, cpu: usize) -> bool {
        cpu < MAXIMUM_CPUS && self.zapped & 1 << cpu != 0
    }

    /// The root tables that follow the cell's: its own, and those of CPUs that are not zapped.
    fn followers(&self) -> impl Iterator<Item = u64> + use<> {
        let (root, roots, zapped) = (self.root, self.roots, self.zapped);
        let current = move |(cpu, table): (usize, u64)| {
            (table != 0 && zapped & 1 << cpu == 0).then_some(table)
        };
        core::iter::once(root).chain(roots.into_iter().enumerate().filter_map(current))
    }

    /// What this address is translated to, if to anything.
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

    /// Whether the cell may do this at this address, whatever its CPU's tables say at the moment.
    pub fn permits(&self, guest: u64, kind: AccessKind, memory: &impl TableMemory) -> bool {
        self.translate(guest, memory).is_some_and(|there| match kind {
            AccessKind::Read => there.attributes.contains(Attributes::S2AP_ACCESS_RO),
            AccessKind::Write => there.attributes.contains(Attributes::S2AP_ACCESS_WO),
            AccessKind::Execute => {
                there.attributes.contains(Attributes::S2AP_ACCESS_RO)
                    && !there.attributes.contains(Attributes::XN)
            }
        })
    }

    /// Gives all tables back. No CPU may use them any more.
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
