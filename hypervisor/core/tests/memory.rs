// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests stage 2: exactly the requested ranges are mapped, through splits and merges of blocks; each change
//! follows break-before-make (checked by the tables in `support`); memory that returns from a cell is mapped for
//! the root as before, with the same number of table pages.

use std::collections::BTreeMap;

use crate::support::{CLOCKS, HYPERVISOR, MIB, POOL, Tables, cell, left, press, ram, read, system};
use rampart_hypervisor_core::configuration::Configuration;
use rampart_hypervisor_core::configuration::machine_checks::Cells;
use rampart_hypervisor_core::format::MemoryFlags;
use rampart_hypervisor_core::interface::{MAXIMUM_CELLS, MAXIMUM_CPUS};
use rampart_hypervisor_core::memory_transfer::{
    map_regions, return_to_root, show_loadable, take_from_root,
};
use rampart_hypervisor_core::stage2::{
    AccessKind, Attributes, Exhausted, PagePool, Stage2, TableMemory, attributes,
};
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

const GIB: u64 = 1 << 30;

/// Returns everything mapped below 2 GiB as contiguous ranges: (guest, physical, bytes, attributes).
fn mapped(stage2: &Stage2, tables: &Tables) -> Vec<(u64, u64, u64, Attributes)> {
    let mut ranges: Vec<(u64, u64, u64, Attributes)> = Vec::new();
    let mut guest = 0;
    while guest < 2 * GIB {
        let Some(found) = stage2.translate(guest, tables) else {
            // One page: the size of an unmapped range is unknown.
            guest += 4096;
            continue;
        };
        match ranges.last_mut() {
            Some((start, physical, bytes, attributes))
                if *start + *bytes == guest
                    && *physical + *bytes == found.physical
                    && *attributes == found.attributes =>
            {
                *bytes += found.bytes;
            }
            _ => ranges.push((guest, found.physical, found.bytes, found.attributes)),
        }
        guest += found.bytes;
    }
    ranges
}

fn expected(configuration: &Configuration<'_>) -> Vec<(u64, u64, u64, Attributes)> {
    let region = |region: &rampart_hypervisor_core::format::MemoryRegion| {
        (region.guest, region.physical, region.bytes, attributes(region.flags()))
    };
    let mut ranges: Vec<_> = configuration.memory.iter().map(region).collect();
    ranges.sort_by_key(|range| range.0);
    ranges
}

#[test]
fn a_cell_maps_exactly_its_regions() {
    for blob in [press(), cell("other", &[1], 0x5000_1000), system()] {
        let configuration = read(&blob);
        let mut tables = Tables::new(1024);
        let mut stage2 = Stage2::new(40, &mut tables).expect("pages");
        map_regions(&mut stage2, &configuration, &mut tables).expect("pages");
        assert_eq!(mapped(&stage2, &tables), expected(&configuration), "{}", blob.name);
        assert_eq!(stage2.translate(1 << 40, &tables), None);
        assert_eq!(stage2.translate(u64::MAX, &tables), None);
        stage2.release(&mut tables);
        assert_eq!(tables.left(), 1024, "every page is freed");
    }
}

#[test]
fn rights_follow_from_flags_and_devices_are_not_executable() {
    let mut tables = Tables::new(16);
    let mut stage2 = Stage2::new(39, &mut tables).expect("pages");
    let flags = [
        MemoryFlags::READ,
        MemoryFlags::READ | MemoryFlags::WRITE,
        MemoryFlags::READ | MemoryFlags::EXECUTE,
        ram(),
        MemoryFlags::READ | MemoryFlags::WRITE | MemoryFlags::DEVICE,
        ram() | MemoryFlags::DEVICE,
        MemoryFlags::WRITE,
    ];
    for (index, flags) in flags.into_iter().enumerate() {
        let guest = index as u64 * 4096;
        stage2.map(guest, GIB + guest, 4096, attributes(flags), &mut tables).expect("pages");
        let may = |kind| stage2.permits(guest + 8, kind, &tables);
        assert_eq!(may(AccessKind::Read), flags.contains(MemoryFlags::READ), "{flags:?}");
        assert_eq!(may(AccessKind::Write), flags.contains(MemoryFlags::WRITE), "{flags:?}");
        let executed = flags.contains(MemoryFlags::EXECUTE) && !flags.contains(MemoryFlags::DEVICE);
        assert_eq!(may(AccessKind::Execute), executed, "{flags:?}");
    }
    assert!(!stage2.permits(flags.len() as u64 * 4096, AccessKind::Read, &tables));
    // The bits of the architecture: MemAttr, S2AP, SH, AF, XN.
    assert_eq!(attributes(ram()).bits(), 1 | 0b1111 << 2 | 0b11 << 6 | 0b11 << 8 | 1 << 10);
    // Normal, non-cacheable (D8.6.6): no cached alias of the guest's own tables is possible.
    let uncached = attributes(ram() | MemoryFlags::UNCACHED);
    assert_eq!(uncached.bits(), 1 | 0b0101 << 2 | 0b11 << 6 | 0b11 << 8 | 1 << 10);
    let device = MemoryFlags::READ | MemoryFlags::DEVICE;
    assert_eq!(
        attributes(device).bits(),
        1 | 0b0001 << 2 | 0b01 << 6 | 0b10 << 8 | 1 << 10 | 1 << 54
    );
}

#[test]
fn blocks_are_as_large_as_possible_and_are_split_and_merged() {
    let mut tables = Tables::new(64);
    let mut stage2 = Stage2::new(39, &mut tables).expect("pages");
    let own = attributes(ram());
    stage2.map(GIB, GIB, GIB, own, &mut tables).expect("pages");
    assert_eq!(stage2.translate(GIB, &tables).map(|found| found.bytes), Some(GIB));
    assert_eq!(tables.left(), 63);
    stage2.unmap([(GIB + 5 * MIB, 4096)], &mut tables).expect("pages");
    assert_eq!(tables.left(), 61, "one table of each further level");
    let size = |at| stage2.translate(at, &tables).map(|found| found.bytes);
    assert_eq!(size(GIB), Some(2 * MIB));
    assert_eq!(size(GIB + 5 * MIB), None);
    assert_eq!(size(GIB + 5 * MIB + 4096), Some(4096));
    stage2.map(GIB + 5 * MIB, GIB + 5 * MIB, 4096, own, &mut tables).expect("pages");
    assert_eq!(stage2.translate(GIB, &tables).map(|found| found.bytes), Some(GIB));
    assert_eq!(tables.left(), 63, "the tables are freed");
    // The same page at another physical address: no block can map both.
    stage2.map(GIB + 5 * MIB, 4096, 4096, own, &mut tables).expect("pages");
    assert_eq!(stage2.translate(GIB + 5 * MIB, &tables).map(|found| found.physical), Some(4096));
}

/// Compares the tables with a model of single pages, through random changes.
#[test]
fn random_changes_match_a_list_of_pages() {
    let mut generator = Pcg64Mcg::seed_from_u64(8);
    for _ in 0..30 {
        let mut tables = Tables::new(4000);
        let mut stage2 = Stage2::new(39, &mut tables).expect("pages");
        stage2.add_cpu(1, &mut tables).expect("pages");
        let mut pages: BTreeMap<u64, (u64, Attributes)> = BTreeMap::new();
        let rights = [attributes(ram()), attributes(MemoryFlags::READ)];
        for _ in 0..40 {
            let guest = generator.random_range(0..1200_u64) * 4096 + GIB - 2 * MIB;
            let bytes = match generator.random_range(0..3) {
                0 => 4096,
                1 => generator.random_range(1..600) * 4096,
                _ => (guest.next_multiple_of(2 * MIB) - guest) + 2 * MIB,
            };
            let map = generator.random_range(0..3) != 0;
            let offset = [0, 0, 2 * MIB, 4096][generator.random_range(0..4)];
            let rights = rights[generator.random_range(0..2)];
            if map {
                stage2.map(guest, guest + offset, bytes, rights, &mut tables).expect("pages");
            } else {
                stage2.unmap([(guest, bytes)], &mut tables).expect("pages");
            }
            for page in (guest..guest + bytes).step_by(4096) {
                if map {
                    pages.insert(page, (page + offset, rights));
                } else {
                    pages.remove(&page);
                }
            }
        }
        for page in (GIB - 4 * MIB..GIB + 16 * MIB).step_by(4096) {
            let found = stage2
                .translate(page, &tables)
                .map(|found| (found.physical + page % found.bytes, found.attributes));
            assert_eq!(found, pages.get(&page).copied(), "{page:#x}");
        }
        stage2.release(&mut tables);
        assert_eq!(tables.left(), 4000);
    }
}

fn root_with(address_bits: u32, tables: &mut Tables) -> Stage2 {
    let mut root = Stage2::new(address_bits, tables).expect("pages");
    map_regions(&mut root, &read(&system()), tables).expect("pages");
    for cpu in 0..4 {
        root.add_cpu(cpu, tables).expect("pages");
    }
    root
}

#[test]
fn returned_memory_is_mapped_as_before() {
    let system = read(&system());
    let cells = [read(&press()), read(&cell("second", &[0x100], 0x5800_0000))];
    let no_cells: Cells<'_> = [None; MAXIMUM_CELLS];
    let mut tables = Tables::new(512);
    let mut root = root_with(40, &mut tables);
    let (before, left) = (mapped(&root, &tables), tables.left());
    assert_eq!(before, expected(&system));
    for _ in 0..3 {
        let mut cells_now = no_cells;
        for (number, cell) in cells.iter().enumerate() {
            take_from_root(cell, &mut root, &mut tables).expect("pages");
            cells_now[number + 1] = Some(*cell);
        }
        for cell in &cells {
            for region in cell.memory {
                let reads = root.permits(region.physical, AccessKind::Read, &tables);
                assert_eq!(reads, region.flags().contains(MemoryFlags::ROOT_READ));
                for kind in [AccessKind::Write, AccessKind::Execute] {
                    assert!(!root.permits(region.physical, kind, &tables));
                    assert!(!root.permits(region.physical + region.bytes - 4, kind, &tables));
                }
            }
        }
        assert!(root.translate(CLOCKS, &tables).is_none(), "the page of shared bits traps");
        assert!(root.translate(HYPERVISOR.start, &tables).is_none());
        // Only the shared memory stays unmapped, because the second cell has it too.
        cells_now[1] = None;
        return_to_root(&cells[0], &system, &cells_now, &mut root, &mut tables)
            .expect("needs no page");
        assert!(
            !root.permits(0x6000_0000, AccessKind::Write, &tables),
            "the second cell has it too"
        );
        assert!(root.permits(0x5000_0000, AccessKind::Write, &tables));
        assert!(root.permits(CLOCKS, AccessKind::Write, &tables));
        return_to_root(&cells[1], &system, &no_cells, &mut root, &mut tables)
            .expect("needs no page");
        assert_eq!(mapped(&root, &tables), before);
        assert_eq!(tables.left(), left, "as many tables as before");
    }
}

#[test]
fn the_root_can_access_only_mapped_loadable_memory() {
    let system = read(&system());
    let cell = read(&press());
    let mut tables = Tables::new(512);
    let mut root = root_with(40, &mut tables);
    take_from_root(&cell, &mut root, &mut tables).expect("pages");
    let taken = mapped(&root, &tables);
    show_loadable(&cell, true, &mut root, &mut tables).expect("pages");
    assert!(root.permits(0x5000_0000, AccessKind::Write, &tables));
    assert!(!root.permits(0x5000_0000, AccessKind::Execute, &tables));
    assert!(!root.permits(0x5080_0000, AccessKind::Read, &tables), "not loadable");
    let shown = root.translate(0x5000_0000, &tables).expect("mapped").attributes;
    let cached = Attributes::MEMATTR_NORMAL_INNER_WB | Attributes::MEMATTR_NORMAL_OUTER_WB;
    let uncached = Attributes::MEMATTR_NORMAL_INNER_NC | Attributes::MEMATTR_NORMAL_OUTER_NC;
    assert_eq!(shown & cached, uncached, "a line of the root could be written back later");
    show_loadable(&cell, false, &mut root, &mut tables).expect("pages");
    assert_eq!(mapped(&root, &tables), taken);
    let no_cells = [None; MAXIMUM_CELLS];
    show_loadable(&cell, true, &mut root, &mut tables).expect("pages");
    return_to_root(&cell, &system, &no_cells, &mut root, &mut tables).expect("needs no page");
    assert_eq!(mapped(&root, &tables), expected(&system));
}

#[test]
fn the_root_is_restored_without_pages_after_exhaustion() {
    let system = read(&system());
    let cell = read(&press());
    let no_cells = [None; MAXIMUM_CELLS];
    let needed = {
        let mut tables = Tables::new(512);
        let root = root_with(39, &mut tables);
        let used = 512 - tables.left();
        root.release(&mut tables);
        used
    };
    let mut failures = 0;
    for spare in 0..12 {
        let mut tables = Tables::new(needed + spare);
        let mut root = root_with(39, &mut tables);
        let before = mapped(&root, &tables);
        failures += usize::from(take_from_root(&cell, &mut root, &mut tables) == Err(Exhausted));
        return_to_root(&cell, &system, &no_cells, &mut root, &mut tables).expect("needs no page");
        assert_eq!(mapped(&root, &tables), before, "with {spare} pages to spare");
        assert_eq!(tables.left(), spare);
    }
    assert!((1..12).contains(&failures), "{failures} of 12 ran out of pages");
}

/// Returns the entries of a CPU's own root table.
fn entries_of(stage2: &Stage2, cpu: usize, tables: &Tables) -> Vec<u64> {
    let root = stage2.root_of(cpu).expect("a root table");
    (0..1024).map(|index| tables.read(root, index)).collect()
}

#[test]
fn zaps_and_restores_a_single_cpu() {
    let mut tables = Tables::new(64);
    let mut stage2 = Stage2::new(40, &mut tables).expect("pages");
    stage2.map(0, GIB, 2 * GIB, attributes(ram()), &mut tables).expect("pages");
    for cpu in [0, 3] {
        stage2.add_cpu(cpu, &mut tables).expect("pages");
        assert_eq!(stage2.root_of(cpu).map(|root| root % 8192), Some(0), "two pages, aligned");
    }
    let full = entries_of(&stage2, 0, &tables);
    let invalidations = tables.invalidations;
    stage2.zap(3, &mut tables);
    assert!(tables.invalidations > invalidations, "the TLBs are invalidated");
    assert!(entries_of(&stage2, 3, &tables).iter().all(|entry| *entry == 0));
    assert_eq!(entries_of(&stage2, 0, &tables), full, "the other CPU is not affected");
    assert!(stage2.permits(0, AccessKind::Write, &tables), "the cell still has its memory");
    stage2.unmap([(GIB, GIB)], &mut tables).expect("pages");
    stage2.map(5 * GIB, GIB, GIB, attributes(ram()), &mut tables).expect("pages");
    assert!(entries_of(&stage2, 3, &tables).iter().all(|entry| *entry == 0));
    stage2.restore(3, &mut tables);
    assert_eq!(entries_of(&stage2, 3, &tables), entries_of(&stage2, 0, &tables));
    assert_ne!(entries_of(&stage2, 0, &tables), full);
    // Invalid CPU numbers.
    stage2.zap(7, &mut tables);
    stage2.restore(MAXIMUM_CPUS, &mut tables);
    assert_eq!(stage2.root_of(MAXIMUM_CPUS), None);
}

#[test]
fn the_pool_allocates_aligned_ranges_and_each_page_once() {
    let mut pool = PagePool::<2>::new(POOL + 4096, 200);
    assert_eq!(left(&pool), 128, "at most its capacity");
    assert_eq!(pool.allocate(1), Some(POOL + 4096));
    assert_eq!(pool.allocate(4), Some(POOL + 4 * 4096));
    assert_eq!(pool.allocate(2), Some(POOL + 2 * 4096));
    assert_eq!(pool.allocate(3), None);
    let mut seen = std::collections::BTreeSet::new();
    while let Some(page) = pool.allocate(1) {
        assert!(seen.insert(page));
    }
    assert_eq!((seen.len(), left(&pool)), (128 - 7, 0));
    pool.free(POOL + 4 * 4096, 4);
    pool.free(0, 1);
    pool.free(u64::MAX, usize::MAX);
    assert_eq!(pool.allocate(4), Some(POOL + 4 * 4096));
}
