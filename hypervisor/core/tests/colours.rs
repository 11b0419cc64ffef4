// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests the pages of regions with colours against lists of single pages: guest addresses without gaps, each page
//! once, never a page of another colour, and one owner for each page of a range that cells divide.

use std::collections::BTreeMap;

use crate::support::{HYPERVISOR, MIB, Tables, cell, ram, read, region, system};
use rampart_hypervisor_core::configuration::Configuration;
use rampart_hypervisor_core::configuration::build::Blob;
use rampart_hypervisor_core::configuration::machine_checks::Cells;
use rampart_hypervisor_core::format::{COLOUR_BLOCK_BYTES, MemoryFlags, MemoryRegion};
use rampart_hypervisor_core::interface::{MAXIMUM_CELLS, PAGE_BYTES};
use rampart_hypervisor_core::memory_transfer::{
    map_regions, return_to_root, show_loadable, take_from_root,
};
use rampart_hypervisor_core::stage2::{AccessKind, Exhausted, Stage2};
use rampart_hypervisor_core::state::is_wiped;
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

/// Returns the pages of a region by its definition: ascending, those whose number has a bit in the mask.
fn listed(region: &MemoryRegion) -> Vec<u64> {
    let own =
        |page: &u64| region.colours == 0 || region.colours >> (page / PAGE_BYTES % 32) & 1 != 0;
    let all = (region.physical..region.physical + region.bytes).step_by(PAGE_BYTES as usize);
    all.filter(own).collect()
}

/// Masks of all kinds: random, dense, sparse, single, with both ends, all.
fn masks(generator: &mut Pcg64Mcg) -> Vec<u32> {
    let mut masks = vec![0, 1, 1 << 31, 0x8000_0001, u32::MAX, 0xff, 0xff00_0000, 0x5555_5555];
    for _ in 0..200 {
        let (one, two): (u32, u32) = (generator.random(), generator.random());
        masks.extend([one, one & two, one | two].into_iter().filter(|mask| *mask != 0));
    }
    masks
}

#[test]
fn guest_addresses_are_a_bijection_to_the_pages_of_the_mask() {
    let mut generator = Pcg64Mcg::seed_from_u64(18);
    for colours in masks(&mut generator) {
        let blocks = generator.random_range(1..20);
        let mut region = region(0x5000_0000, 0x12_3000, blocks * COLOUR_BLOCK_BYTES, ram());
        region.colours = colours;
        let expected = listed(&region);
        let mut mapped = BTreeMap::new();
        for part in region.all_parts() {
            assert!(part.bytes > 0 && part.bytes % PAGE_BYTES == 0, "{colours:#x}: {part:x?}");
            for offset in (0..part.bytes).step_by(PAGE_BYTES as usize) {
                let twice = mapped.insert(part.guest + offset, part.physical + offset);
                assert_eq!(twice, None, "{colours:#x}: a guest address twice");
            }
        }
        let guests: Vec<u64> = mapped.keys().copied().collect();
        let contiguous = (0..expected.len() as u64).map(|page| region.guest + page * PAGE_BYTES);
        assert_eq!(guests, contiguous.collect::<Vec<_>>(), "{colours:#x}: no gaps");
        let physical: Vec<u64> = mapped.values().copied().collect();
        assert_eq!(physical, expected, "{colours:#x}: ascending, each page of the mask once");
        assert_eq!(region.guest_bytes(), expected.len() as u64 * PAGE_BYTES);
    }
}

#[test]
fn the_parts_of_a_range_are_those_of_the_whole_in_it() {
    let mut generator = Pcg64Mcg::seed_from_u64(19);
    for colours in masks(&mut generator) {
        let pages = if colours == 0 { 1001 } else { 32 * 31 };
        let mut region = region(0x5000_0000, 0, pages * PAGE_BYTES, ram());
        region.colours = colours;
        let start = generator.random_range(0..=pages) * PAGE_BYTES;
        let end = generator.random_range(0..=pages) * PAGE_BYTES;
        let single = |part: rampart_hypervisor_core::configuration::Part| {
            (0..part.bytes / PAGE_BYTES).map(move |page| {
                (part.guest + page * PAGE_BYTES, part.physical + page * PAGE_BYTES)
            })
        };
        let within =
            |page: &(u64, u64)| region.physical + start <= page.1 && page.1 < region.physical + end;
        let expected: Vec<_> = region.all_parts().flat_map(single).filter(within).collect();
        let found: Vec<_> = region.parts(start..end).flat_map(single).collect();
        assert_eq!(found, expected, "{colours:#x}, {start:#x} to {end:#x}");
    }
}

#[test]
fn regions_meet_exactly_if_they_have_a_page_in_common() {
    let mut generator = Pcg64Mcg::seed_from_u64(20);
    let masks = masks(&mut generator);
    let (mut met, mut apart) = (0, 0);
    for _ in 0..20_000 {
        let mut any = || {
            let start = 0x5000_0000 + generator.random_range(0..6) * COLOUR_BLOCK_BYTES;
            let bytes = generator.random_range(1..4) * COLOUR_BLOCK_BYTES;
            let mut region = region(start, 0, bytes, ram());
            region.colours = masks[generator.random_range(0..masks.len())];
            region
        };
        let (one, other) = (any(), any());
        let common = listed(&one).iter().any(|page| listed(&other).contains(page));
        assert_eq!(one.meets(&other), common, "{one:x?} and {other:x?}");
        assert_eq!(other.meets(&one), common);
        (met, apart) = (met + u32::from(common), apart + u32::from(!common));
    }
    assert!(met > 1000 && apart > 1000, "{met} met, {apart} did not");
}

/// Three cells that divide one range of 8 MiB, with a private and a shared region each.
fn neighbours() -> [Configuration<'static>; 3] {
    [(1, 0x0000_00ff), (2, 0x00ff_ff00), (0x100, 0x5500_0000)].map(|(cpu, colours)| {
        let mut blob: Blob = cell(&format!("cell-{cpu}"), &[cpu], 0x5000_0000);
        blob.memory.truncate(1);
        blob.memory[0].bytes = 6 * MIB;
        let shared = MemoryFlags::SHARED | MemoryFlags::ROOT_READ;
        let flags = MemoryFlags::READ | MemoryFlags::WRITE | shared;
        blob.memory.push(region(0x5060_0000, 0x5060_0000, 2 * MIB, flags));
        blob.memory.iter_mut().for_each(|region| region.colours = colours);
        read(&blob)
    })
}

/// Returns who may access each page of the range: cells by number, and the root as 0.
fn owners(
    root: &Stage2,
    cells: &[(u32, &Stage2, &Configuration<'_>)],
    kind: AccessKind,
    tables: &Tables,
) -> BTreeMap<u64, Vec<u32>> {
    let mut owners: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
    for page in (0x5000_0000..0x5080_0000).step_by(PAGE_BYTES as usize) {
        let own = root.permits(page, kind, tables).then_some(0);
        owners.insert(page, own.into_iter().collect());
    }
    for (number, stage2, configuration) in cells {
        // Every guest address, also those beyond the regions.
        for guest in (0..0x5100_0000_u64).step_by(PAGE_BYTES as usize) {
            let Some(found) = stage2.translate(guest, tables) else { continue };
            let physical = found.physical + guest % found.bytes;
            let listed =
                configuration.memory.iter().any(|region| listed(region).contains(&physical));
            assert!(listed, "cell {number} reaches {physical:#x}, a page of another colour");
            if stage2.permits(guest, kind, tables) {
                owners.get_mut(&physical).expect("in the range").push(*number);
            }
        }
    }
    owners
}

#[test]
fn each_page_of_a_divided_range_has_one_owner_and_returns_to_the_root() {
    let system = read(&system());
    let cells = neighbours();
    let mut tables = Tables::new(512);
    let mut root = Stage2::new(40, &mut tables).expect("pages");
    map_regions(&mut root, &system, &mut tables).expect("pages");
    let left = tables.left();
    let mut now: Cells<'_> = [None; MAXIMUM_CELLS];
    let mut translations = Vec::new();
    for (number, cell) in cells.iter().enumerate() {
        let invalidations = tables.invalidations;
        take_from_root(cell, &mut root, &mut tables).expect("pages");
        assert!(tables.invalidations < invalidations + 16, "not for each page");
        let mut stage2 = Stage2::new(40, &mut tables).expect("pages");
        map_regions(&mut stage2, cell, &mut tables).expect("pages");
        now[number + 1] = Some(*cell);
        translations.push(stage2);
    }
    let living = |translations: &[Stage2], destroyed: usize, root: &Stage2, tables: &Tables| {
        let all = translations.iter().zip(&cells).enumerate().skip(destroyed);
        let all: Vec<_> = all.map(|(at, (own, cell))| (at as u32 + 1, own, cell)).collect();
        owners(root, &all, AccessKind::Write, tables)
    };
    let owners = living(&translations, 0, &root, &tables);
    for (page, owners) in &owners {
        assert_eq!(owners.len(), 1, "{page:#x}: {owners:?}");
    }
    // A quarter, a half, an eighth, and the rest, which no cell has.
    let count = |number| owners.values().filter(|owners| **owners == [number]).count();
    assert_eq!([count(1), count(2), count(3), count(0)], [512, 1024, 256, 256]);
    // The pages of stopped cells are shown only with their own colours.
    show_loadable(&cells[1], true, &mut root, &mut tables).expect("pages");
    for page in (0x5000_0000..0x5060_0000).step_by(PAGE_BYTES as usize) {
        let shown = listed(&cells[1].memory[0]).contains(&page) || owners[&page] == [0];
        assert_eq!(root.permits(page, AccessKind::Write, &tables), shown, "{page:#x}");
    }
    show_loadable(&cells[1], false, &mut root, &mut tables).expect("pages");
    for destroyed in 0..cells.len() {
        now[destroyed + 1] = None;
        let others = || now.iter().flatten();
        assert!(cells[destroyed].memory.iter().all(|region| is_wiped(region, others())));
        return_to_root(&cells[destroyed], &system, &now, &mut root, &mut tables)
            .expect("needs no page");
        let owners = living(&translations, destroyed + 1, &root, &tables);
        for (page, owners) in &owners {
            assert_eq!(owners.len(), 1, "{page:#x} after cell {}: {owners:?}", destroyed + 1);
        }
    }
    translations.into_iter().for_each(|own| own.release(&mut tables));
    assert_eq!(tables.left(), left, "as many tables as before");
    assert!(root.translate(HYPERVISOR.start, &tables).is_none());
}

#[test]
fn tables_that_run_out_leave_the_root_as_it_was() {
    let (system, [first, ..]) = (read(&system()), neighbours());
    let mut failures = 0;
    for spare in 0..8 {
        let mut tables = Tables::new(512);
        let mut root = Stage2::new(40, &mut tables).expect("pages");
        map_regions(&mut root, &system, &mut tables).expect("pages");
        while tables.left() > spare {
            rampart_hypervisor_core::stage2::TableMemory::allocate(&mut tables, 1).expect("a page");
        }
        failures += usize::from(take_from_root(&first, &mut root, &mut tables) == Err(Exhausted));
        let no_cells = [None; MAXIMUM_CELLS];
        return_to_root(&first, &system, &no_cells, &mut root, &mut tables).expect("needs no page");
        assert_eq!(tables.left(), spare);
        for page in (0x5000_0000..0x5080_0000).step_by(PAGE_BYTES as usize) {
            assert!(root.permits(page, AccessKind::Execute, &tables), "{page:#x}");
        }
    }
    assert!((1..8).contains(&failures), "{failures} of 8 ran out of pages");
}
