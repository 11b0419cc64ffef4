// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Maps and unmaps ranges: descriptors of 4 KiB tables (Arm ARM, D8.3).

use super::{ADDRESS, Attributes, ENTRIES, Exhausted, Stage2, TableMemory};

const VALID: u64 = Attributes::VALID.bits() as u64;
/// A table at levels 1 and 2, a page at level 3.
const TABLE_OR_PAGE: u64 = Attributes::TABLE_OR_PAGE.bits() as u64;
const LAST_LEVEL: u32 = 3;

/// A change of the mapping of a range of guest addresses.
#[derive(Debug, Clone, Copy)]
struct MapChange {
    guest: u64,
    bytes: u64,
    /// Physical address and attributes; `None` to unmap.
    to: Option<(u64, Attributes)>,
}

impl MapChange {
    /// Returns the entry at this level for the block that starts at `guest`.
    fn entry(&self, guest: u64, level: u32) -> u64 {
        let Some((physical, attributes)) = self.to else { return 0 };
        // `guest` is always inside the change.
        (physical + (guest - self.guest)) | attributes.bits() as u64 | leaf(level)
    }

    /// Returns whether an existing block already maps the addresses from `guest` on as requested.
    fn is_mapped(&self, entry: u64, guest: u64, level: u32) -> bool {
        let offset = guest % covered(level);
        self.to.is_some_and(|(physical, attributes)| {
            entry & VALID != 0
                && !is_table(entry, level)
                && (entry & ADDRESS) + offset == physical + (guest - self.guest)
                && attributes_of(entry) == attributes
        })
    }

    /// Returns whether one entry can map a block that is entirely inside the change.
    fn fits(&self, guest: u64, level: u32) -> bool {
        self.to.is_none_or(|(physical, attributes)| {
            (physical + (guest - self.guest)).is_multiple_of(covered(level))
                && permits_block(attributes.bits() as u64, level)
        })
    }
}

/// Returns whether one entry of this level may map what these attributes describe.
const fn permits_block(attributes: u64, level: u32) -> bool {
    /// The upper bits of MemAttr, which are 0 for devices (Arm ARM, D8.6.5).
    const MEMORY: u64 = 3 << 4;
    !cfg!(feature = "small-blocks") || level > 1 || attributes & MEMORY == 0
}

/// The location of an entry: in the root tables (`None`) or in a table of a lower level.
#[derive(Debug, Clone, Copy)]
struct Slot {
    table: Option<u64>,
    level: u32,
    index: usize,
}

/// Returns the bit that distinguishes a page's entry from a block's.
const fn leaf(level: u32) -> u64 {
    if level == LAST_LEVEL { TABLE_OR_PAGE } else { 0 }
}

/// Returns the number of bytes that one entry maps.
pub(super) const fn covered(level: u32) -> u64 {
    4096 << (9 * (LAST_LEVEL - level))
}

/// Returns the index of the entry for an address. At level 1 it can exceed 511: it is then in a further
/// page of the root table.
pub(super) const fn index(guest: u64, level: u32) -> usize {
    let index = (guest / covered(level)) as usize;
    if level == 1 { index } else { index % ENTRIES }
}

pub(super) const fn is_table(entry: u64, level: u32) -> bool {
    level < LAST_LEVEL && entry & (VALID | TABLE_OR_PAGE) == VALID | TABLE_OR_PAGE
}

pub(super) const fn attributes_of(entry: u64) -> Attributes {
    Attributes::from_bits_truncate((entry & !ADDRESS & !TABLE_OR_PAGE) as usize)
}

/// Frees the table that an entry points to, and all tables below it.
pub(super) fn free_below(entry: u64, level: u32, memory: &mut impl TableMemory) {
    if !is_table(entry, level) {
        return;
    }
    let table = entry & ADDRESS;
    for index in 0..ENTRIES {
        free_below(memory.read(table, index), level + 1, memory);
    }
    memory.free(table, 1);
}

impl Stage2 {
    /// Maps `bytes` of memory from `physical` at `guest`, replacing earlier mappings. All must be
    /// multiples of the page size and within the address bits, as in a checked configuration.
    ///
    /// # Errors
    /// [`Exhausted`]: a part may be mapped then; [`Stage2::unmap`] of the same range removes it.
    pub fn map(
        &mut self,
        guest: u64,
        physical: u64,
        bytes: u64,
        attributes: Attributes,
        memory: &mut impl TableMemory,
    ) -> Result<(), Exhausted> {
        self.change(MapChange { guest, bytes, to: Some((physical, attributes)) }, memory)
    }

    /// Unmaps ranges (start, size), then invalidates the TLBs once.
    ///
    /// # Errors
    /// [`Exhausted`] if a block must be split: a part may be unmapped then; restoring the earlier mapping
    /// needs no further page.
    pub fn unmap(
        &mut self,
        ranges: impl IntoIterator<Item = (u64, u64)>,
        memory: &mut impl TableMemory,
    ) -> Result<(), Exhausted> {
        let change = |(guest, bytes)| self.change(MapChange { guest, bytes, to: None }, memory);
        let result = ranges.into_iter().try_for_each(change);
        memory.invalidate_tlbs();
        result
    }

    fn change(&self, change: MapChange, memory: &mut impl TableMemory) -> Result<(), Exhausted> {
        let end = change.guest.saturating_add(change.bytes).min(1 << self.address_bits);
        self.change_table(None, 1, change.guest..end, &change, memory)
    }

    /// Applies the part `range` of the change to one table: the root tables, or the `table` of a lower
    /// level.
    fn change_table(
        &self,
        table: Option<u64>,
        level: u32,
        range: core::ops::Range<u64>,
        change: &MapChange,
        memory: &mut impl TableMemory,
    ) -> Result<(), Exhausted> {
        let size = covered(level);
        let mut guest = range.start;
        while guest < range.end {
            let block = guest & !(size - 1);
            let next = block + size;
            let slot = Slot { table, level, index: index(guest, level) };
            let old = self.entry(slot, memory);
            let whole = guest == block && next <= range.end;
            if change.is_mapped(old, guest, level) {
                // Also when undoing a change that could not split this block.
            } else if level == LAST_LEVEL || (whole && change.fits(block, level)) {
                self.replace(slot, change.entry(block, level), memory);
            } else if is_table(old, level) || old & VALID != 0 || change.to.is_some() {
                let below = self.table_at(slot, memory)?;
                let part = guest..next.min(range.end);
                self.change_table(Some(below), level + 1, part, change, memory)?;
                self.merge(slot, below, memory);
            }
            guest = next;
        }
        Ok(())
    }

    fn entry(&self, slot: Slot, memory: &impl TableMemory) -> u64 {
        memory.read(slot.table.unwrap_or(self.root), slot.index)
    }

    /// Returns the table that an entry points to. If there is none, creates one that maps the same as the
    /// block.
    fn table_at(&self, slot: Slot, memory: &mut impl TableMemory) -> Result<u64, Exhausted> {
        let (old, below_level) = (self.entry(slot, memory), slot.level + 1);
        if is_table(old, slot.level) {
            return Ok(old & ADDRESS);
        }
        let below = memory.allocate(1).ok_or(Exhausted)?;
        if old & VALID != 0 {
            for part in 0..ENTRIES {
                let offset = part as u64 * covered(below_level);
                memory.write(below, part, (old + offset) | leaf(below_level));
            }
        }
        self.replace(slot, below | TABLE_OR_PAGE | VALID, memory);
        Ok(below)
    }

    /// Replaces a table by a block if the table is empty or one block can map the same, so that undoing a
    /// change restores the original tables.
    fn merge(&self, slot: Slot, below: u64, memory: &mut impl TableMemory) {
        let (first, below_level) = (memory.read(below, 0), slot.level + 1);
        let step = if first == 0 { 0 } else { covered(below_level) };
        let block = first & !leaf(below_level);
        let alike = |part: usize| memory.read(below, part) == first + part as u64 * step;
        if !is_table(first, below_level)
            && permits_block(first, slot.level)
            && (block & ADDRESS).is_multiple_of(covered(slot.level))
            // From the end: changes ascend, so that the last entry differs until the table is complete.
            && (1..ENTRIES).rev().all(alike)
        {
            self.replace(slot, block, memory);
        }
    }

    /// Replaces an entry and frees the tables below the old one.
    fn replace(&self, slot: Slot, entry: u64, memory: &mut impl TableMemory) {
        let old = self.entry(slot, memory);
        if old == entry {
            return;
        }
        if old & VALID != 0 {
            self.put(slot, 0, memory);
            // Only the removal of a page or block can be invalidated at the end of the change.
            if entry != 0 || is_table(old, slot.level) {
                memory.invalidate_tlbs();
            }
            free_below(old, slot.level, memory);
        }
        if entry != 0 {
            self.put(slot, entry, memory);
        }
    }

    fn put(&self, slot: Slot, entry: u64, memory: &mut impl TableMemory) {
        match slot.table {
            Some(table) => memory.write(table, slot.index, entry),
            None => self.followers().for_each(|root| memory.write(root, slot.index, entry)),
        }
    }
}
