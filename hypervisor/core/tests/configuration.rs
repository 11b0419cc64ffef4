// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests each refusal of a configuration with one change to a valid one, and that random mutations cause no
//! panic and that accepted configurations are valid.

use crate::support::{
    Aligned, CLOCKS, DISTRIBUTOR, HYPERVISOR, MACHINE, MIB, bits, cell, device, press, ram, read,
    region, system,
};
use rampart_hypervisor_core::configuration::build::{Blob, append_text};
use rampart_hypervisor_core::configuration::machine_checks::{Cells, check_cell, check_system};
use rampart_hypervisor_core::configuration::{BlobBuffer, Configuration, Kind, Refused};
use rampart_hypervisor_core::format::{
    BlobHeader, COLOUR_BLOCK_BYTES, Doorbell, InterruptGrant, MAXIMUM_BLOB_BYTES, MemoryFlags,
    MemoryRegion, Refusal, RegisterFlags, SmcGrant,
};
use rampart_hypervisor_core::gic::SpiSet;
use rampart_hypervisor_core::interface::{MAXIMUM_CELLS, NO_CELL, ROOT};
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

type Change = fn(&mut Blob);

/// Gives a region these colours, and moves it.
fn colour(region: &mut MemoryRegion, colours: u32, offset: u64) {
    region.colours = colours;
    region.physical += offset;
}

pub(crate) fn refused(blob: &Blob) -> Option<Refusal> {
    blob.checked().err().map(|refused| refused.refusal)
}

#[test]
fn parses_valid_configurations() {
    let press = read(&press());
    assert_eq!(press.name(), "press");
    assert_eq!(press.cpus, [1, 2]);
    assert_eq!(press.memory.len(), 4);
    assert_eq!(press.registers[1].writable, 0xffff_0000);
    assert!(press.executes(0x1000) && press.executes(4 * MIB + 0x2ffc));
    assert!(!press.executes(4 * MIB + 0x3000) && !press.executes(0x80_0000));
    assert!(press.forwards(0xc200_0011) && !press.forwards(0xc200_0013));
    assert_eq!(read(&system()).platform.map(|platform| platform.distributor), Some(DISTRIBUTOR));
}

/// A standby: one region at its physical address, and nothing else.
fn standby() -> Blob {
    let mut blob = cell("standby", &[], 0x5000_0000);
    blob.memory.truncate(1);
    blob.memory[0].guest = 0x5000_0000;
    blob.memory[0].bytes = 4 * MIB;
    blob.entry = 0x5000_0000;
    blob
}

#[test]
fn a_cell_without_cpus_has_nothing_but_one_region() {
    assert_eq!(refused(&standby()), None);
    let more = cell("more", &[], 0x5000_0000).memory;
    let changes: &[Change] = &[
        |blob| blob.memory[0].guest = 0,
        |blob| blob.memory[0].flags &= !MemoryFlags::WRITE.bits(),
        |blob| blob.memory[0].colours = 1,
        |blob| blob.watchdog_milliseconds = 1,
        |blob| blob.interrupts = press().interrupts,
        |blob| blob.registers = press().registers,
        |blob| blob.smcs = press().smcs,
        |blob| blob.doorbells = press().doorbells,
        |blob| blob.memory.clear(),
    ];
    for (index, change) in changes.iter().enumerate() {
        let mut blob = standby();
        change(&mut blob);
        assert_eq!(refused(&blob), Some(Refusal::NoCpu), "change {index}");
    }
    let mut blob = standby();
    blob.memory.extend(more.into_iter().skip(1));
    assert_eq!(refused(&blob), Some(Refusal::NoCpu));
}

#[test]
fn refuses_each_invalid_cell_configuration() {
    let cases: &[(Refusal, Change)] = &[
        (Refusal::BadName, |blob| blob.name.clear()),
        (Refusal::BadName, |blob| blob.name = "a b".into()),
        (Refusal::BadName, |blob| blob.name = "../x".into()),
        (Refusal::NoCpu, |blob| blob.cpus.clear()),
        (Refusal::CpuTwice, |blob| blob.cpus = vec![1, 2, 1]),
        (Refusal::CpuUnknown, |blob| blob.cpus[0] = 0x8000_0001), // MPIDR_EL1's RES1 bit
        (Refusal::TooManyEntries, |blob| blob.cpus = (0..33).collect()),
        (Refusal::MemoryUnaligned, |blob| blob.memory[1].physical += 0x800),
        (Refusal::MemoryUnaligned, |blob| blob.memory[1].guest += 1),
        (Refusal::MemoryUnaligned, |blob| blob.memory[1].bytes -= 1),
        (Refusal::MemoryRange, |blob| blob.memory[1].bytes = 0),
        (Refusal::MemoryRange, |blob| blob.memory[1].physical = !0xfff),
        (Refusal::MemoryRange, |blob| blob.memory[1].guest = 1 << 48),
        (Refusal::MemoryFlags, |blob| blob.memory[1].flags = 0),
        (Refusal::MemoryFlags, |blob| {
            blob.memory[1].flags = MemoryFlags::EXECUTE.bits();
        }),
        (Refusal::MemoryFlags, |blob| blob.memory[3].flags |= MemoryFlags::EXECUTE.bits()),
        (Refusal::MemoryFlags, |blob| blob.memory[2].flags |= MemoryFlags::LOADABLE.bits()),
        (Refusal::MemoryFlags, |blob| blob.memory[1].flags |= MemoryFlags::ROOT_READ.bits()),
        (Refusal::MemoryFlags, |blob| blob.memory[2].flags |= MemoryFlags::ROOT_WRITE.bits()),
        (Refusal::MemoryFlags, |blob| blob.memory[1].flags |= MemoryFlags::UNCACHED.bits()),
        (Refusal::ReservedNotZero, |blob| blob.memory[1].flags |= 1 << 31),
        (Refusal::MemoryUnaligned, |blob| colour(&mut blob.memory[1], 1, 0x1000)),
        (Refusal::MemoryUnaligned, |blob| {
            blob.memory[1].colours = 1;
            blob.memory[1].bytes -= 0x1000;
        }),
        (Refusal::MemoryFlags, |blob| {
            blob.memory[3].bytes = COLOUR_BLOCK_BYTES;
            colour(&mut blob.memory[3], 1, 0x1_0000);
        }),
        (Refusal::MemoryOverlapsPhysical, |blob| {
            blob.memory.push(MemoryRegion { guest: 0x200_0000, ..blob.memory[1] });
            colour(&mut blob.memory[1], 0b0110, 0);
            colour(&mut blob.memory[4], 0b0100, 0);
        }),
        (Refusal::MemoryOverlapsGuest, |blob| {
            blob.memory.push(MemoryRegion { guest: 0x8d_f000, ..blob.memory[1] });
            colour(&mut blob.memory[1], !0xf, 0);
            colour(&mut blob.memory[4], 0xf, 0);
        }),
        (Refusal::ReservedNotZero, |blob| blob.interrupts[0].flags = 2),
        (Refusal::ReservedNotZero, |blob| blob.registers[0].flags = 4),
        (Refusal::ReservedNotZero, |blob| blob.doorbells[0].reserved = 1),
        (Refusal::MemoryOverlapsGuest, |blob| blob.memory[1].guest = 4 * MIB + 0x2000),
        (Refusal::MemoryOverlapsPhysical, |blob| {
            blob.memory[1].physical = blob.memory[0].physical + 0x1000;
        }),
        (Refusal::EntryOutside, |blob| blob.entry = 0x80_0000),
        (Refusal::EntryOutside, |blob| blob.entry = 0x1002),
        (Refusal::EntryOutside, |blob| blob.memory[0].flags ^= MemoryFlags::LOADABLE.bits()),
        (Refusal::InterruptRange, |blob| blob.interrupts[0].number = 31),
        (Refusal::InterruptRange, |blob| blob.interrupts[0].number = 1020),
        (Refusal::InterruptTwice, |blob| blob.interrupts[1].number = 40),
        (Refusal::RegisterShape, |blob| blob.registers[0].width = 3),
        (Refusal::RegisterShape, |blob| blob.registers[0].width = 0),
        (Refusal::RegisterShape, |blob| blob.registers[0].width = u32::MAX),
        (Refusal::RegisterShape, |blob| blob.registers[1].address += 2),
        (Refusal::RegisterShape, |blob| blob.registers[0].writable = 1 << 32),
        (Refusal::RegisterShape, |blob| blob.registers[2].readable = 0),
        (Refusal::RegisterOrder, |blob| blob.registers.swap(0, 1)),
        (Refusal::RegisterOrder, |blob| blob.registers[0].width = 8),
        (Refusal::RegisterLocation, |blob| blob.registers[0].address = 0x0901_0000),
        (Refusal::SmcRange, |blob| blob.smcs[0].last = 0),
        (Refusal::SmcRange, |blob| blob.smcs[0] = SmcGrant { first: 0, last: u32::MAX }),
        (Refusal::SmcRange, |blob| {
            blob.smcs[0] = SmcGrant { first: 0x8400_0009, last: 0x8400_0009 };
        }),
        (Refusal::SmcRange, |blob| {
            blob.smcs[0] = SmcGrant { first: 0xc3ff_0000, last: 0xc400_0000 };
        }),
        // SDEI, PSCI with the hint about vector registers, and more than the random numbers.
        (Refusal::SmcRange, |blob| {
            blob.smcs[0] = SmcGrant { first: 0xc400_0021, last: 0xc400_0021 };
        }),
        (Refusal::SmcRange, |blob| {
            blob.smcs[0] = SmcGrant { first: 0x8401_0002, last: 0x8401_0003 };
        }),
        (Refusal::SmcRange, |blob| {
            blob.smcs[0] = SmcGrant { first: 0x8400_0050, last: 0x8400_0060 };
        }),
        (Refusal::DoorbellRange, |blob| blob.doorbells[0].interrupt = 15),
    ];
    for (number, (wanted, change)) in cases.iter().enumerate() {
        let mut blob = press();
        change(&mut blob);
        assert_eq!(refused(&blob), Some(*wanted), "case {number}");
    }
}

#[test]
fn refuses_each_invalid_system_configuration() {
    let cases: &[(Refusal, Change)] = &[
        (Refusal::ReservedNotZero, |blob| blob.entry = 4),
        (Refusal::ReservedNotZero, |blob| blob.watchdog_milliseconds = 4),
        (Refusal::TooManyEntries, |blob| blob.registers = vec![bits(0, 1, 1)]),
        (Refusal::MemoryFlags, |blob| blob.memory[1].guest += MIB),
        (Refusal::MemoryFlags, |blob| blob.memory[1].flags |= MemoryFlags::LOADABLE.bits()),
        (Refusal::MemoryFlags, |blob| blob.memory[1].colours = 1),
        (Refusal::PlatformShape, |blob| platform(blob).distributor += 0x1000),
        (Refusal::PlatformShape, |blob| platform(blob).cpu_frames = DISTRIBUTOR - 0x1_0000),
        (Refusal::PlatformShape, |blob| platform(blob).cpu_frame_bytes = 0),
        (Refusal::PlatformShape, |blob| platform(blob).cpu_frame_bytes = !0x1_ffff),
        (Refusal::PlatformShape, |blob| platform(blob).event_interrupt = 31),
        (Refusal::PlatformShape, |blob| platform(blob).version = 4),
        // The frames of a GICv2 are smaller.
        (Refusal::PlatformShape, |blob| platform(blob).version = 2),
    ];
    fn platform(blob: &mut Blob) -> &mut rampart_hypervisor_core::format::Platform {
        blob.platform.as_mut().expect("a system")
    }
    for (number, (wanted, change)) in cases.iter().enumerate() {
        let mut blob = system();
        change(&mut blob);
        assert_eq!(refused(&blob), Some(*wanted), "case {number}");
    }
}

#[test]
fn refuses_incomplete_blobs_and_other_kinds() {
    let refusal_of = |bytes: &[u8], kind| {
        let bytes = Aligned::new(bytes);
        Configuration::read(bytes.bytes(), kind).err().map(|refused| refused.refusal)
    };
    let good = press().bytes();
    for length in 0..good.len() {
        assert_eq!(
            refusal_of(&good[..length], Kind::Cell),
            Some(Refusal::Truncated),
            "{length} bytes"
        );
    }
    let mut long = good.clone();
    long.push(0);
    assert_eq!(refusal_of(&long, Kind::Cell), Some(Refusal::TooLong));
    assert_eq!(refusal_of(&vec![0; MAXIMUM_BLOB_BYTES + 8], Kind::Cell), Some(Refusal::WrongMagic));
    assert_eq!(refusal_of(&good, Kind::System), Some(Refusal::WrongMagic));
    let mut other = good.clone();
    other[8] ^= 2;
    assert_eq!(refusal_of(&other, Kind::Cell), Some(Refusal::WrongRevision));
    // The header states less than the size of its tables.
    let mut short = good.clone();
    short[std::mem::offset_of!(BlobHeader, bytes)] -= 8;
    assert_eq!(refusal_of(&short, Kind::Cell), Some(Refusal::TooLong));
    // Text is no part of a table, up to the limit.
    for bytes in [1, 8, MAXIMUM_BLOB_BYTES - good.len()] {
        let mut named = good.clone();
        append_text(&mut named, &vec![0xff; bytes]);
        let named = Aligned::new(&named);
        let read = Configuration::read(named.bytes(), Kind::Cell).expect("a configuration");
        assert_eq!(read.bytes_before_text(), good.len());
    }
    let mut long = good.clone();
    append_text(&mut long, &vec![0; MAXIMUM_BLOB_BYTES - good.len() + 1]);
    assert_eq!(refusal_of(&long, Kind::Cell), Some(Refusal::TooLong));
    // A stream that the tables do not have.
    let mut streams = good;
    streams[std::mem::offset_of!(BlobHeader, stream_count)] = 1;
    assert_eq!(refusal_of(&streams, Kind::Cell), Some(Refusal::Truncated));
}

#[test]
fn copies_a_blob_once_and_never_beyond_the_buffer() {
    let good = press().bytes();
    let mut buffer = BlobBuffer::EMPTY;
    let mut copies = 0;
    let copied = buffer.fill(good.len() as u64, |target| {
        copies += 1;
        target.copy_from_slice(&good);
    });
    assert_eq!(copied, Ok(&good[..]));
    assert!(Configuration::read(copied.expect("copied"), Kind::Cell).is_ok());
    for bytes in [MAXIMUM_BLOB_BYTES as u64 + 1, u64::MAX] {
        let refused = buffer.fill(bytes, |_| copies += 1).map(<[u8]>::len);
        assert_eq!(refused.map_err(|refused| refused.refusal), Err(Refusal::TooLong));
    }
    assert_eq!(copies, 1);
}

fn against(change: Change) -> Result<(), Refused> {
    let mut cells: Cells<'_> = [None; MAXIMUM_CELLS];
    cells[3] = Some(read(&press()));
    let mut new = cell("second", &[0x100], 0x5800_0000);
    change(&mut new);
    check_cell(&read(&new), &read(&system()), &MACHINE, &cells)
}

#[test]
fn a_cell_never_calls_the_roots_functions_of_the_firmware() {
    let smcs = [(0x8000_0001, 0x8000_ffff), (0xc200_0000, 0xc200_0fff)];
    let mut root = system();
    root.smcs = smcs.map(|(first, last)| SmcGrant { first, last }).to_vec();
    let check = |first, last| {
        let mut new = cell("second", &[0x100], 0x5800_0000);
        new.smcs = vec![SmcGrant { first, last }];
        check_cell(&read(&new), &read(&root), &MACHINE, &[None; MAXIMUM_CELLS])
    };
    let refused = check(0xc200_0fff, 0xc200_1000).expect_err("the first is the root's");
    assert_eq!((refused.refusal, refused.other), (Refusal::SmcRange, ROOT));
    assert_eq!(check(0x0, 0x7fff_ffff), Ok(()));
    assert_eq!(check(0xc200_1000, 0xc200_1000), Ok(()));
    assert_eq!(check(0x8000_8000, 0x8000_8000), Ok(()), "a workaround for the CPU");
    assert_eq!(check(0xc400_0050, 0xc400_005f), Ok(()), "random numbers");
}

#[test]
fn accepts_a_second_cell() {
    assert_eq!(against(|_| ()), Ok(()));
    // Bits of the same registers that the first cell neither reads nor writes.
    assert_eq!(against(|new| new.registers = vec![bits(0, 0xf00, 0xf00)]), Ok(()));
    assert_eq!(against(|new| new.memory[2].flags &= !MemoryFlags::WRITE.bits()), Ok(()));
    // Both the cell and the root write a page of messages, without caches.
    let add = |new: &mut Blob| {
        let root = MemoryFlags::ROOT_READ | MemoryFlags::ROOT_WRITE;
        let cell = MemoryFlags::READ | MemoryFlags::WRITE;
        let flags = MemoryFlags::SHARED | MemoryFlags::UNCACHED | root | cell;
        new.memory.push(region(0x5900_0000, 0x90_0000, 0x1000, flags));
    };
    assert_eq!(against(add), Ok(()));
}

#[test]
fn refuses_resources_of_another_cell_and_returns_its_number() {
    let cases: &[(Refusal, u32, u32, Change)] = &[
        (Refusal::BadName, 0, 3, |new| new.name = "press".into()),
        (Refusal::BadName, 0, ROOT, |new| new.name = "virt".into()),
        (Refusal::CpuUnknown, 0, NO_CELL, |new| new.cpus = vec![3]),
        (Refusal::CpuOwned, 1, 3, |new| new.cpus = vec![0x100, 2]),
        (Refusal::CpuOwned, 1, ROOT, |new| new.cpus = vec![0, 0x100]),
        (Refusal::MemoryOwned, 0, 3, |new| new.memory[0].physical = 0x5000_0000 + 4 * MIB),
        (Refusal::MemoryOwned, 2, 3, |new| new.memory[2].bytes += 0x1000),
        (Refusal::MemoryFlags, 2, 3, |new| {
            new.memory[2].flags &= !MemoryFlags::ROOT_READ.bits();
        }),
        (Refusal::MemoryFlags, 2, 3, |new| new.memory[2].flags |= MemoryFlags::UNCACHED.bits()),
        (Refusal::MemoryTwoWriters, 2, 3, |new| {
            new.memory[2].flags |= MemoryFlags::WRITE.bits();
        }),
        (Refusal::MemoryOwned, 3, 3, |new| {
            new.memory.push(region(CLOCKS, CLOCKS, 0x1000, device()));
        }),
        (Refusal::MemoryOwned, 3, 3, |new| {
            new.memory.push(region(0x0901_0000, 0x0901_0000, 0x1000, device()));
        }),
        // The hypervisor's memory, a page of it, and guest addresses of the controller.
        (Refusal::MemoryReserved, 1, NO_CELL, |new| new.memory[1].physical = HYPERVISOR.start),
        (Refusal::MemoryReserved, 1, NO_CELL, |new| {
            new.memory[1].physical = HYPERVISOR.end - 0x1000;
        }),
        (Refusal::MemoryReserved, 1, NO_CELL, |new| new.memory[1].guest = DISTRIBUTOR),
        (Refusal::MemoryReserved, 1, NO_CELL, |new| {
            new.memory[1] = region(DISTRIBUTOR, 0x80_0000, 0x1000, device());
        }),
        // Memory that the system's configuration does not list: it may be an alias.
        (Refusal::MemoryNotRoot, 1, NO_CELL, |new| new.memory[1].physical = 0x8000_0000),
        (Refusal::MemoryNotRoot, 1, NO_CELL, |new| new.memory[1].physical = 0x7ff8_0000),
        (Refusal::MemoryRange, 1, NO_CELL, |new| new.memory[1].guest = 1 << 40),
        (Refusal::MemoryFlags, 1, NO_CELL, |new| new.memory[1].physical = 0x0900_0000),
        (Refusal::InterruptRange, 0, NO_CELL, |new| {
            new.interrupts = vec![InterruptGrant { number: 288, flags: 0 }];
        }),
        (Refusal::InterruptOwned, 0, ROOT, |new| {
            new.interrupts = vec![InterruptGrant { number: 60, flags: 0 }];
        }),
        (Refusal::InterruptOwned, 0, ROOT, |new| {
            new.interrupts = vec![InterruptGrant { number: 61, flags: 0 }];
        }),
        (Refusal::InterruptOwned, 0, 3, |new| {
            new.interrupts = vec![InterruptGrant { number: 40, flags: 0 }];
        }),
        (Refusal::RegisterBitsOwned, 0, 3, |new| {
            new.registers = vec![bits(4, 0, 1 << 20)] // neither cell reads it
        }),
        (Refusal::RegisterBitsOwned, 0, 3, |new| new.registers = vec![bits(0, 0, 0x8)]),
        (Refusal::RegisterBitsOwned, 0, 3, |new| new.registers = vec![bits(0, 0x80, 0)]),
        (Refusal::RegisterBitsOwned, 0, 3, |new| new.registers = vec![bits(4, 1 << 20, 0)]),
        (Refusal::RegisterDiffers, 0, 3, |new| {
            new.registers = vec![bits(0, 0x100, 0)];
            new.registers[0].flags = RegisterFlags::WRITE_ACTS.bits();
        }),
        (Refusal::RegisterDiffers, 0, 3, |new| {
            new.registers = vec![bits(2, 0x100, 0)];
            new.registers[0].width = 2;
        }),
        (Refusal::RegisterLocation, 0, 3, |new| {
            new.registers = vec![bits(0, 1, 0)];
            new.registers[0].address = 0x0901_0000;
        }),
        (Refusal::RegisterLocation, 0, NO_CELL, |new| {
            new.registers = vec![bits(0, 1, 0)];
            new.registers[0].address = 0x5c00_0000;
        }),
    ];
    for (number, (refusal, index, other, change)) in cases.iter().enumerate() {
        let wanted = Refused { refusal: *refusal, index: *index, other: *other };
        assert_eq!(against(*change), Err(wanted), "case {number}");
    }
}

#[test]
fn cells_of_different_colours_are_in_one_range() {
    let colour_both = |one, other| {
        let (mut first, mut second) = (press(), cell("second", &[0x100], 0x5000_0000));
        for (blob, colours) in [(&mut first, one), (&mut second, other)] {
            blob.memory.iter_mut().for_each(|region| region.bytes = 4 * MIB);
            blob.memory.truncate(2);
            blob.registers.clear();
            blob.memory.iter_mut().for_each(|region| region.colours = colours);
        }
        let mut cells: Cells<'_> = [None; MAXIMUM_CELLS];
        cells[3] = Some(read(&first));
        check_cell(&read(&second), &read(&system()), &MACHINE, &cells)
    };
    assert_eq!(colour_both(0x00ff, 0xff00), Ok(()));
    let owned = Refused { refusal: Refusal::MemoryOwned, index: 0, other: 3 };
    for (one, other) in [(0x00ff, 0x0180), (0x00ff, 0), (0, 0xff00), (1 << 31, 1 << 31)] {
        assert_eq!(colour_both(one, other), Err(owned), "{one:#x} and {other:#x}");
    }
}

#[test]
fn refuses_too_many_shared_registers() {
    let many = |first: u64| -> Change {
        if first == 0 {
            |new| new.registers = (0..250).map(|index| bits(0x100 + 4 * index, 1, 1)).collect()
        } else {
            |new| new.registers = (0..254).map(|index| bits(0x500 + 4 * index, 1, 1)).collect()
        }
    };
    assert_eq!(against(many(0)), Ok(()));
    assert_eq!(against(many(1)).map_err(|refused| refused.refusal), Err(Refusal::TooManyShared));
}

#[test]
fn refuses_the_system_of_another_machine() {
    let check = |change: Change| {
        let mut blob = system();
        change(&mut blob);
        let refused = check_system(&read(&blob), &MACHINE).err();
        refused.map(|refused| (refused.refusal, refused.index))
    };
    assert_eq!(check(|_| ()), None);
    assert_eq!(check(|blob| blob.cpus.swap(1, 2)), Some((Refusal::CpuUnknown, 1)));
    assert_eq!(check(|blob| blob.cpus.truncate(3)), Some((Refusal::CpuUnknown, 3)));
    assert_eq!(check(|blob| blob.memory[1].bytes += 0x1000), Some((Refusal::MemoryReserved, 1)));
    assert_eq!(
        check(|blob| {
            blob.memory[0] = region(DISTRIBUTOR, DISTRIBUTOR, 0x1000, device());
        }),
        Some((Refusal::MemoryReserved, 0))
    );
    assert_eq!(
        check(|blob| blob.memory.push(region(1 << 40, 1 << 40, 0x1000, ram()))),
        Some((Refusal::MemoryRange, 3))
    );
    assert_eq!(check(|blob| blob.interrupts[0].number = 300), Some((Refusal::InterruptRange, 0)));
}

#[test]
fn refuses_what_the_monitor_cannot_map() {
    // Memory that it would have to wipe, and registers that it would have to access.
    const BEYOND: u64 = 1 << 39;
    let mut blob = system();
    blob.memory.push(region(BEYOND, BEYOND, MIB, ram()));
    blob.memory.push(region(BEYOND + MIB, BEYOND + MIB, MIB, device()));
    let (system, cells) = (read(&blob), [None; MAXIMUM_CELLS]);
    let check = |change: Change| {
        let mut new = cell("new", &[1], 0x5000_0000);
        change(&mut new);
        let refused = check_cell(&read(&new), &system, &MACHINE, &cells);
        refused.err().map(|refused| refused.refusal)
    };
    assert_eq!(check(|_| {}), None);
    let beyond: Change = |new| new.memory[1].physical = BEYOND;
    assert_eq!(check(beyond), Some(Refusal::MemoryRange));
    // A device is only mapped for the cell.
    let device: Change =
        |new| new.memory.push(region(BEYOND + MIB, BEYOND + MIB, 0x1000, device()));
    assert_eq!(check(device), None);
    let register: Change = |new| {
        new.registers = vec![bits(0, 1, 1)];
        new.registers[0].address = BEYOND + MIB;
    };
    assert_eq!(check(register), Some(Refusal::RegisterLocation));
}

#[test]
fn a_doorbell_rings_only_if_its_owner_declares_it() {
    // As the monitor does for each owner.
    let declared = SpiSet::none();
    for owner in [read(&system()), read(&press())] {
        let doorbells = owner.interrupts.iter().filter(|grant| grant.is_doorbell());
        doorbells.for_each(|grant| declared.insert(grant.number));
    }
    let mut caller = cell("caller", &[0x100], 0x5800_0000);
    caller.doorbells =
        [61, 71, 40, 90].map(|interrupt| Doorbell { interrupt, reserved: 0 }).to_vec();
    let caller = read(&caller);
    let rings = |index| caller.doorbell(index, &declared);
    assert_eq!(rings(0), Some(61), "the root's");
    assert_eq!(rings(1), Some(71), "the cell's");
    assert_eq!(rings(2), None, "an ordinary interrupt of the cell");
    assert_eq!(rings(3), None, "an ordinary interrupt of the root");
    assert_eq!((rings(4), rings(u64::MAX)), (None, None));
}

/// Verifies an accepted configuration, implemented differently from the checks.
fn assert_valid(new: &Configuration<'_>, other: &Configuration<'_>) {
    // The pages of a region, one by one.
    let owns = |region: &MemoryRegion, page: u64| {
        let colour = region.colours == 0 || region.colours >> (page / 4096 % 32) & 1 != 0;
        colour && region.physical <= page && page < region.physical + region.bytes
    };
    for region in new.memory {
        let (start, bytes, flags) = (region.physical, region.bytes, region.flags());
        assert!(bytes > 0 && start % 4096 == 0 && bytes % 4096 == 0);
        assert!(start >= HYPERVISOR.end || start + bytes <= HYPERVISOR.start);
        let ram = (0x4000_0000..0x8000_0000).contains(&start) && start + bytes <= 0x8000_0000;
        let devices = (0x0900_0000..0x0910_0000).contains(&start) && start + bytes <= 0x0910_0000;
        assert!(ram || devices, "{start:#x} is not memory of the root");
        for theirs in other.memory {
            let both = flags & theirs.flags();
            let mut pages = (start..start + bytes).step_by(4096);
            let meet = pages.any(|page| owns(region, page) && owns(theirs, page));
            assert!(!meet || both.contains(MemoryFlags::SHARED));
            assert!(!meet || !both.contains(MemoryFlags::WRITE));
        }
    }
    assert!(new.cpus.iter().all(|cpu| !other.cpus.contains(cpu)));
    for grant in new.interrupts {
        assert!(grant.number >= 32 && grant.number < 288);
        assert!(other.interrupts.iter().all(|theirs| theirs.number != grant.number));
    }
    for register in new.registers {
        for theirs in other.registers.iter().filter(|it| it.address == register.address) {
            assert_eq!(register.writable & theirs.writable, 0);
        }
    }
}

/// 100,000 mutations of valid blobs: bits, bytes, words, lengths, and copied ranges.
#[test]
fn mutated_blobs_cause_no_panic_and_accepted_ones_are_valid() {
    let mut generator = Pcg64Mcg::seed_from_u64(5);
    let system_read = read(&system());
    let first = read(&press());
    let mut cells: Cells<'_> = [None; MAXIMUM_CELLS];
    cells[1] = Some(first);
    let mut full = cell("second", &[0x100], 0x5800_0000);
    full.registers = vec![bits(0, 0xf00, 0xf00), bits(8, 0xf, 0xf)];
    full.interrupts = vec![InterruptGrant { number: 90, flags: 0 }];
    full.smcs = press().smcs;
    full.doorbells = press().doorbells;
    let mut coloured = full.clone();
    coloured.memory[0].bytes = 4 * MIB;
    coloured.memory[0].colours = 0xf0f0;
    coloured.memory[1].colours = 0x3333_3333;
    let mut named = full.bytes();
    append_text(&mut named, b"58000000 records\n");
    let good = [full.bytes(), named, system().bytes(), press().bytes(), coloured.bytes()];
    let words: [u64; 12] = [
        0,
        1,
        0xfff,
        0x1000,
        31,
        32,
        0x7fff_ffff,
        0xffff_ffff,
        1 << 48,
        !0xfff,
        u64::MAX,
        0x5000_0000,
    ];
    let (mut passed, mut refusals) = (0, std::collections::BTreeSet::new());
    for _ in 0..100_000 {
        let mut bytes = good[generator.random_range(0..good.len())].clone();
        for _ in 0..generator.random_range(1..4) {
            let at = generator.random_range(0..bytes.len());
            match generator.random_range(0..6) {
                0 => bytes[at] ^= 1 << generator.random_range(0..8),
                1 => bytes[at] = generator.random(),
                2 | 3 => {
                    let word = words[generator.random_range(0..words.len())].to_le_bytes();
                    let at = at / 4 * 4;
                    let length = word.len().min(bytes.len() - at);
                    bytes[at..at + length].copy_from_slice(&word[..length]);
                }
                4 => {
                    let length = generator.random_range(0..=(bytes.len() - at).min(32));
                    let to = generator.random_range(0..=bytes.len() - length);
                    bytes.copy_within(at..at + length, to);
                }
                _ => bytes.resize(generator.random_range(0..bytes.len() + 16), 0),
            }
            if bytes.is_empty() {
                break;
            }
        }
        let bytes = Aligned::new(&bytes);
        let result = match Configuration::read(bytes.bytes(), Kind::Cell) {
            Ok(new) => {
                let checked = check_cell(&new, &system_read, &MACHINE, &cells);
                if checked.is_ok() {
                    assert_valid(&new, &first);
                    passed += 1;
                }
                checked
            }
            Err(refused) if refused.refusal == Refusal::WrongMagic => {
                Configuration::read(bytes.bytes(), Kind::System)
                    .and_then(|system| check_system(&system, &MACHINE))
            }
            Err(refused) => Err(refused),
        };
        if let Err(refused) = result {
            refusals.insert(refused.refusal as u32);
            assert!(!refused.to_string().is_empty());
        }
    }
    // The mutations must reach the checks, and must be refused for many reasons.
    assert!(passed > 1000, "{passed} passed");
    assert!(refusals.len() > 20, "only {refusals:?}");
}
