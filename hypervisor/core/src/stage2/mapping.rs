// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Mapping and unmapping: descriptors of 4 KiB tables (Arm ARM, D8.3).

use super::{ADDRESS, Attributes, ENTRIES, Exhausted, Stage2, TableMemory};

const VALID: u64 = Attributes::VALID.bits() as u64;
/// At levels 1 and 2 a table, at level 3 a page.
const TABLE_OR_PAGE: u64 = Attributes::TABLE_OR_PAGE.bits() as u64;
const LAST_LEVEL: u32 = 3;

/// Guest addresses that are to show physical ones, or nothing.
#[derive(Debug, Clone, Copy)]
struct MapChange {
    guest: u64,
    bytes: u64,
    /// `None`: nothing.
    to: Option<(u64, Attributes)>,
}

impl MapChange {
    /// The entry at this level for the block that begins at `guest`.
    fn entry(&self, guest: u64, level: u32) -> u64 {
        let Some((physical, attributes)) = self.to else {
            return 0;
        };
        // Only blocks that begin inside the change are asked for.
        (physical + (guest - self.guest)) | attributes.bits() as u64 | leaf(level)
    }

    /// Whether a block that is there shows these addresses as they are to be, from `guest` on.
    fn is_there(&self, entry: u64, guest: u64, level: u32) -> bool {
        let offset = guest % covered(level);
        self.to.is_some_and(|(physical, attributes)| {
            entry & VALID != 0
                && !is_table(entry, level)
                && (entry & ADDRESS) + offset == physical + (guest - self.guest)
                && attributes_of(entry) == attributes
        })
    }

    /// Whether one entry can do for a block that lies in the change in whole.
    fn fits(&self, guest: u64, level: u32) -> bool {
        self.to.is_none_or(|(physical, _)| {
            (physical + (guest - self.guest)).is_multiple_of(covered(level))
        })
    }
}

/// Where an entry is: in the root tables, or in the table of a further level.
#[derive(Debug, Clone, Copy)]
struct Slot {
    table: Option<u64>,
    level: u32,
    index: usize,
}

/// What a page's entry has that a block's has not.
const fn leaf(level: u32) -> u64 {
    if level == LAST_LEVEL { TABLE_OR_PAGE } else { 0 }
}

/// The bytes that one entry stands for.
pub(super) const fn covered(level: u32) -> u64 {
    4096 << (9 * (LAST_LEVEL - level))
}

/// The entry for an address. At level 1 it can be beyond 512: in a further page of the root table.
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

/// Frees the table that an entry points to, and all below.
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
    /// Shows `bytes` of memory from `physical` at `guest`, in place of what was there. All are
    /// multiples of the page and within the address bits: a checked configuration's are.
    ///
    /// # Errors
    /// [`Exhausted`]: part of it may be mapped, and [`Stage2::unmap`] of the same takes it away.
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

    /// Shows nothing there any more.
    ///
    /// # Errors
    /// [`Exhausted`], where only a part of a block is to go: then part of it may be unmapped, and
    /// mapping as it was needs no further page.
    pub fn unmap(
        &mut self,
        guest: u64,
        bytes: u64,
        memory: &mut impl TableMemory,
    ) -> Result<(), Exhausted> {
        let result = self.change(MapChange { guest, bytes, to: None }, memory);
        memory.invalidate_tlbs();
        result
    }

    fn change(&self, change: MapChange, memory: &mut impl TableMemory) -> Result<(), Exhausted> {
        let end = change.guest.saturating_add(change.bytes).min(1 << self.address_bits());
        self.change_table(None, 1, change.guest..end, &change, memory)
    }

    /// Applies the change to the part `range` of it that one table stands for: the root tables, or
    /// the `table` of a further level.
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
            if change.is_there(old, guest, level) {
                // Also what is to be undone because no page was left to split it.
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

    /// The table that an entry points to, made where it is not there yet: it then shows what the
    /// block showed.
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

    /// Where a whole table shows nothing, or what one block can show, the block takes its place: so
    /// what comes back leaves no trace.
    fn merge(&self, slot: Slot, below: u64, memory: &mut impl TableMemory) {
        let (first, below_level) = (memory.read(below, 0), slot.level + 1);
        let step = if first == 0 { 0 } else { covered(below_level) };
        let block = first & !leaf(below_level);
        let alike = |part: usize| memory.read(below, part) == first + part as u64 * step;
        if !is_table(first, below_level)
            && (block & ADDRESS).is_multiple_of(covered(slot.level))
            && (1..ENTRIES).all(alike)
        {
            self.replace(slot, block, memory);
        }
    }

    /// Puts an entry in the place of another, and frees the tables below the other.
    fn replace(&self, slot: Slot, entry: u64, memory: &mut impl TableMemory) {
        let old = self.entry(slot, memory);
        if old == entry {
            return;
        }
        if old & VALID != 0 {
            self.put(slot, 0, memory);
            // Only taking a page or block away can wait for the end of the change.
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
