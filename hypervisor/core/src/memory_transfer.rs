// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Moves memory between the root and cells: memory of a new cell is unmapped from the root, and memory
//! of a destroyed cell is mapped for the root as before. All configurations are checked.
//!
//! These functions can run out of pages for tables. Calling [`return_to_root`] for the same cell then
//! restores the root; it needs no further page.

use crate::configuration::Configuration;
use crate::configuration::machine_checks::{Cells, live};
use crate::format::{MemoryFlags, MemoryRegion};
use crate::interface::PAGE_BYTES;
use crate::registers::pages;
use crate::stage2::{Attributes, Exhausted, Stage2, TableMemory, attributes};

/// Maps all regions of a configuration, for the root or for a cell. The interrupt controller and pages
/// of shared registers stay unmapped, so that accesses to them trap.
///
/// # Errors
/// [`Exhausted`]; the caller must release the tables then.
pub fn map_regions(
    stage2: &mut Stage2,
    configuration: &Configuration<'_>,
    memory: &mut impl TableMemory,
) -> Result<(), Exhausted> {
    configuration.memory.iter().try_for_each(|region| {
        let attributes = attributes(region.flags());
        region.all_parts().try_for_each(|part| {
            stage2.map(part.guest, part.physical, part.bytes, attributes, memory)
        })
    })
}

/// Unmaps the memory of a new cell from the root. The root keeps the rights to shared memory that the
/// configuration grants.
///
/// # Errors
/// [`Exhausted`].
pub fn take_from_root(
    cell: &Configuration<'_>,
    root: &mut Stage2,
    memory: &mut impl TableMemory,
) -> Result<(), Exhausted> {
    for region in cell.memory {
        root.unmap(ranges(region), memory)?;
        if let Some(rights) = rights_of_root(region) {
            map_identity(region, attributes(rights), root, memory)?;
        }
    }
    root.unmap(pages(cell.registers).map(|page| (page, PAGE_BYTES)), memory)
}

/// Maps the pages of a region for the root.
fn map_identity(
    region: &MemoryRegion,
    attributes: Attributes,
    root: &mut Stage2,
    memory: &mut impl TableMemory,
) -> Result<(), Exhausted> {
    ranges(region).try_for_each(|(start, bytes)| root.map(start, start, bytes, attributes, memory))
}

/// Returns the physical ranges (start, size) of a region's pages.
fn ranges(region: &MemoryRegion) -> impl Iterator<Item = (u64, u64)> {
    region.all_parts().map(|part| (part.physical, part.bytes))
}

/// Returns the root's rights to shared memory of a cell.
fn rights_of_root(region: &MemoryRegion) -> Option<MemoryFlags> {
    let flags = region.flags();
    let mut rights = flags & (MemoryFlags::DEVICE | MemoryFlags::UNCACHED);
    if flags.intersects(MemoryFlags::ROOT_READ | MemoryFlags::ROOT_WRITE) {
        rights |= MemoryFlags::READ;
    }
    if flags.contains(MemoryFlags::ROOT_WRITE) {
        rights |= MemoryFlags::WRITE;
    }
    rights.contains(MemoryFlags::READ).then_some(rights)
}

/// Maps for the root the memory of a destroyed cell that none of the `others` has. It must be wiped
/// before ([`crate::state::is_wiped`]), and no CPU of the cell may still reach it.
///
/// # Errors
/// [`Exhausted`], which cannot occur after [`take_from_root`].
pub fn return_to_root(
    cell: &Configuration<'_>,
    system: &Configuration<'_>,
    others: &Cells<'_>,
    root: &mut Stage2,
    memory: &mut impl TableMemory,
) -> Result<(), Exhausted> {
    let others = || live(others).map(|(_, other)| other);
    // As the system's configuration defines.
    let mut restore = |(start, bytes): (u64, u64)| {
        for region in system.memory.iter().filter(|region| region.overlaps(start, bytes)) {
            let from = region.physical.max(start);
            let to = (region.physical + region.bytes).min(start + bytes);
            root.map(from, from, to - from, attributes(region.flags()), memory)?;
        }
        Ok(())
    };
    for region in cell.memory {
        if !others().any(|other| other.memory.iter().any(|own| own.meets(region))) {
            ranges(region).try_for_each(&mut restore)?;
        }
    }
    let shared = |page: &u64| others().any(|other| pages(other.registers).any(|own| own == *page));
    let mut pages = pages(cell.registers).filter(|page| !shared(page));
    pages.try_for_each(|page| restore((page, PAGE_BYTES)))
}

/// Maps the loadable memory of a stopped cell for the root, readable and writable, or unmaps it. It is not cacheable
/// for the root, so that no line of the root is written back over the memory of the running cell.
///
/// # Errors
/// [`Exhausted`].
pub fn show_loadable(
    cell: &Configuration<'_>,
    shown: bool,
    root: &mut Stage2,
    memory: &mut impl TableMemory,
) -> Result<(), Exhausted> {
    let rights = attributes(MemoryFlags::READ | MemoryFlags::WRITE | MemoryFlags::UNCACHED);
    for region in cell.memory.iter().filter(|region| region.flags().contains(MemoryFlags::LOADABLE))
    {
        if shown {
            map_identity(region, rights, root, memory)?;
        } else {
            root.unmap(ranges(region), memory)?;
        }
    }
    Ok(())
}
