// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who sees which memory while cells come and go: what a cell gets, the root loses, and what goes
//! back is for the root as it was. Only checked configurations come here.
//!
//! All of these can run out of pages for tables. Then [`return_to_root`] of the same cell fixes the root:
//! it needs no further page.

use crate::configuration::machine_checks::{Cells, live};
use crate::configuration::{Configuration, overlap};
use crate::format::{MemoryFlags, MemoryRegion};
use crate::interface::PAGE_BYTES;
use crate::registers::pages;
use crate::stage2::{Exhausted, Stage2, TableMemory, attributes};

/// Maps everything of the system's configuration for the root, and what a cell has for a cell. Not
/// the interrupt controller and not pages of shared registers: these trap.
///
/// # Errors
/// [`Exhausted`]; the tables are then to be released.
pub fn map_regions(
    stage2: &mut Stage2,
    configuration: &Configuration<'_>,
    memory: &mut impl TableMemory,
) -> Result<(), Exhausted> {
    configuration.memory.iter().try_for_each(|region| {
        let attributes = attributes(region.flags());
        stage2.map(region.guest, region.physical, region.bytes, attributes, memory)
    })
}

/// Takes from the root what a new cell gets. Of shared memory the root keeps what the configuration
/// lets it.
///
/// # Errors
/// [`Exhausted`].
pub fn take_from_root(
    cell: &Configuration<'_>,
    root: &mut Stage2,
    memory: &mut impl TableMemory,
) -> Result<(), Exhausted> {
    for region in cell.memory {
        root.unmap(region.physical, region.bytes, memory)?;
        if let Some(rights) = rights_of_root(region) {
            let (location, bytes) = (region.physical, region.bytes);
            root.map(location, location, bytes, attributes(rights), memory)?;
        }
    }
    pages(cell.registers).try_for_each(|page| root.unmap(page, PAGE_BYTES, memory))
}

/// What the root may do with shared memory while a cell has it.
fn rights_of_root(region: &MemoryRegion) -> Option<MemoryFlags> {
    let flags = region.flags();
    let mut rights = flags & MemoryFlags::DEVICE;
    if flags.intersects(MemoryFlags::ROOT_READ | MemoryFlags::ROOT_WRITE) {
        rights |= MemoryFlags::READ;
    }
    if flags.contains(MemoryFlags::ROOT_WRITE) {
        rights |= MemoryFlags::WRITE;
    }
    rights.contains(MemoryFlags::READ).then_some(rights)
}

/// Gives the root what a cell had and none of the `others` has: wiped before, where it is to be
/// ([`crate::state::is_wiped`]), and with no CPU of the cell able to reach it.
///
/// # Errors
/// None where [`take_from_root`] came before; [`Exhausted`] is the tables' own answer.
pub fn return_to_root(
    cell: &Configuration<'_>,
    system: &Configuration<'_>,
    others: &Cells<'_>,
    root: &mut Stage2,
    memory: &mut impl TableMemory,
) -> Result<(), Exhausted> {
    for range in ranges(cell) {
        let shared = |other: &Configuration<'_>| ranges(other).any(|own| overlap(own, range));
        if !live(others).any(|(_, other)| shared(other)) {
            restore_root_mapping(range.0, range.1, system, root, memory)?;
        }
    }
    Ok(())
}

/// All that the root cannot reach as before while a cell has it: start and size, physically.
fn ranges(cell: &Configuration<'_>) -> impl Iterator<Item = (u64, u64)> {
    let pages = pages(cell.registers).map(|page| (page, PAGE_BYTES));
    cell.memory.iter().map(MemoryRegion::physical_range).chain(pages)
}

/// Shows the root the loadable memory of a stopped cell, for the root to read and write, or hides it
/// again.
///
/// # Errors
/// [`Exhausted`].
pub fn show_loadable(
    cell: &Configuration<'_>,
    shown: bool,
    root: &mut Stage2,
    memory: &mut impl TableMemory,
) -> Result<(), Exhausted> {
    let rights = attributes(MemoryFlags::READ | MemoryFlags::WRITE);
    for region in cell.memory.iter().filter(|region| region.flags().contains(MemoryFlags::LOADABLE))
    {
        let (location, bytes) = (region.physical, region.bytes);
        if shown {
            root.map(location, location, bytes, rights, memory)?;
        } else {
            root.unmap(location, bytes, memory)?;
        }
    }
    Ok(())
}

/// What the system's configuration says of these addresses.
fn restore_root_mapping(
    start: u64,
    bytes: u64,
    system: &Configuration<'_>,
    root: &mut Stage2,
    memory: &mut impl TableMemory,
) -> Result<(), Exhausted> {
    for region in system.memory.iter().filter(|region| region.overlaps(start, bytes)) {
        let from = region.physical.max(start);
        let to = (region.physical + region.bytes).min(start + bytes);
        root.map(from, from, to - from, attributes(region.flags()), memory)?;
    }
    Ok(())
}
