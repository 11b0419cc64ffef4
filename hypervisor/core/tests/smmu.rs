// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Entries, commands and events of an SMMUv3, its suitability, the configuration space, and the checks of streams.

use std::cell::RefCell;

use rampart_hypervisor_core::bus::{Access, Bus, Width};
use rampart_hypervisor_core::configuration::build::Blob;
use rampart_hypervisor_core::format::{Iommu, Refusal, StreamGrant};
use rampart_hypervisor_core::pci::{Filtered, disable_messages, filter, quiet};
use rampart_hypervisor_core::smmu::{
    Event, Identification, Obstacle, forget_entry, forget_translations_of, index, next,
    stream_bits, translated,
};

use crate::support::{press, system};

/// The registers of QEMU 10's model.
const QEMU: Identification =
    Identification { idr0: 0x0d44_101b, idr1: 0x0273_0010, idr5: 0x74, control: 0 };

#[test]
fn an_entry_has_the_bits_of_the_specification() {
    let entry = translated(&QEMU, 0x7000_1000, 3, 43);
    assert_eq!(entry[0], 0b1101);
    assert_eq!(entry[1], 1 << 44);
    // VMID, T0SZ, SL0, IR0, OR0, SH0, PS of 44 bits, AA64, AFFD, R.
    let shape =
        [0..16, 32..38, 38..40, 40..42, 42..44, 44..46, 46..48, 48..51, 51..52, 53..54, 58..59];
    let found = shape.map(|bits| entry[2] >> bits.start & ((1 << (bits.end - bits.start)) - 1));
    assert_eq!(found, [3, 21, 1, 1, 1, 3, 0, 4, 1, 1, 1]);
    // S2S: a fault never stalls the device.
    assert_eq!(entry[2] >> 57 & 1, 0);
    assert_eq!(entry[3], 0x7000_1000);
    assert_eq!(entry[4..], [0; 4]);
}

#[test]
fn an_unsuitable_smmu_is_refused_with_the_reason() {
    assert_eq!(QEMU.check(16, 43), Ok(()));
    let with = |change: &dyn Fn(&mut Identification)| {
        let mut changed = QEMU;
        change(&mut changed);
        changed.check(16, 43)
    };
    for (obstacle, found) in [
        (Obstacle::InUse, with(&|it| it.control = 1)),
        (Obstacle::InUse, with(&|it| it.control = 8)),
        (Obstacle::NoStage2, with(&|it| it.idr0 &= !1)),
        (Obstacle::NoStage2, with(&|it| it.idr0 = it.idr0 & !0xc | 1 << 2)),
        (Obstacle::NotCoherent, with(&|it| it.idr0 &= !(1 << 4))),
        (Obstacle::BigEndian, with(&|it| it.idr0 |= 3 << 21)),
        (Obstacle::FixedAddresses, with(&|it| it.idr1 |= 1 << 29)),
        (Obstacle::FixedAddresses, with(&|it| it.idr1 |= 1 << 30)),
        (Obstacle::TooFewStreams, with(&|it| it.idr1 -= 1)),
        (Obstacle::TooFewStreams, with(&|it| it.idr1 &= !(0x1f << 16))),
        (Obstacle::NoGranule, with(&|it| it.idr5 &= !(1 << 4))),
        (Obstacle::TooFewAddressBits, with(&|it| it.idr5 -= 2)),
    ] {
        assert_eq!(found, Err(obstacle));
    }
}

#[test]
fn a_device_is_checked_when_it_claims_to_have_translated() {
    assert_eq!(QEMU.control_when_enabled(), 0b1101);
    let with_ats = Identification { idr0: QEMU.idr0 | 1 << 10, ..QEMU };
    assert_eq!(with_ats.control_when_enabled(), 0b1_1101);
}

#[test]
fn commands_and_events_are_those_of_the_specification() {
    assert_eq!(forget_entry(0x1_2345), [0x0001_2345_0000_0003, 1]);
    assert_eq!(forget_translations_of(5), [0x0000_0005_0000_0028, 0]);
    let words = [0x0000_0018_0000_0010, 1 << 35 | 1 << 39, 0x5200_0040, 0x5200_0000];
    let event = Event { number: 0x10, stream: 0x18, address: 0x5200_0040, read: true };
    assert_eq!(Event::read(&words), event);
    let without = Event::read(&[0x0000_0018_0000_0004, 1 << 35, 0x5200_0040, 0]);
    assert_eq!(without, Event { number: 4, stream: 0x18, address: 0, read: false });
}

#[test]
fn a_position_of_a_queue_changes_its_last_bit_with_each_round() {
    let mut position = 0;
    for number in 0..1024_u32 {
        assert_eq!(index(position, 8), (number % 256) as usize);
        assert_eq!(position >> 8, number / 256 % 2);
        position = next(position, 8);
    }
}

#[test]
fn the_table_has_all_streams() {
    let grant = |first, count| StreamGrant { first, count, function: 0 };
    assert_eq!(stream_bits(&[grant(0, 1)]), 0);
    assert_eq!(stream_bits(&[grant(0, 0x1_0000)]), 16);
    assert_eq!(stream_bits(&[grant(0x1_0000, 1), grant(0, 2)]), 17);
}

#[test]
fn a_write_of_the_root_changes_no_address_of_a_function() {
    let access =
        |offset: u64, width, write| Access { address: 0x40_1001_0000 + offset, width, write };
    let made = |offset, width| filter(&access(offset, width, Some(0)), false) == Filtered::Made;
    for (offset, width, expected) in [
        (4, Width::Half, true),
        (0xc, Width::Word, true),
        (0xc, Width::Double, false),
        (0x10, Width::Word, false),
        (0x19, Width::Byte, false),
        (0x3e, Width::Half, false),
        (0x40, Width::Word, true),
        (0xfc, Width::Word, true),
        (0xfc, Width::Double, false),
        (0x100, Width::Word, false),
        (0xffc, Width::Word, false),
    ] {
        assert_eq!(made(offset, width), expected, "{offset:#x}");
        assert_eq!(filter(&access(offset, width, None), false), Filtered::Made);
        assert_eq!(filter(&access(offset, width, None), true), Filtered::Absent);
        assert_eq!(filter(&access(offset, width, Some(0)), true), Filtered::Ignored);
    }
}

/// A page of configuration space.
struct Space(RefCell<[u8; 256]>);

impl Bus for Space {
    fn read(&self, address: u64, width: Width) -> u64 {
        let at = address as usize;
        let mut bytes = [0; 8];
        let count = width.bytes() as usize;
        bytes[..count].copy_from_slice(&self.0.borrow()[at..at + count]);
        u64::from_le_bytes(bytes)
    }

    fn write(&self, address: u64, width: Width, value: u64) {
        let (at, count) = (address as usize, width.bytes() as usize);
        self.0.borrow_mut()[at..at + count].copy_from_slice(&value.to_le_bytes()[..count]);
    }

    fn holder(&self) -> u32 {
        1
    }
}

#[test]
fn messages_are_disabled_in_any_list_of_capabilities() {
    let mut bytes = [0; 256];
    bytes[6] = 0x10;
    bytes[0x34] = 0x43;
    bytes[0x40..0x44].copy_from_slice(&[0x05, 0x50, 0x81, 0x00]);
    bytes[0x50..0x54].copy_from_slice(&[0x11, 0x40, 0x07, 0xc0]);
    // The list is a loop.
    let space = Space(RefCell::new(bytes));
    disable_messages(0, &space);
    let after = space.0.into_inner();
    assert_eq!(after[0x42], 0x80);
    assert_eq!(after[0x52..0x54], [0x07, 0x40]);
    let mut expected = bytes;
    expected[0x42] = 0x80;
    expected[0x53] = 0x40;
    assert_eq!(after, expected);
}

#[test]
fn a_quiet_function_sends_nothing_and_an_absent_one_is_left_alone() {
    let mut bytes = [0; 256];
    bytes[4] = 0x07;
    bytes[6] = 0x10;
    bytes[0x34] = 0x40;
    bytes[0x40..0x44].copy_from_slice(&[0x05, 0x00, 0x81, 0x00]);
    let space = Space(RefCell::new(bytes));
    quiet(0, &space);
    let after = space.0.into_inner();
    let mut expected = bytes;
    expected[4] = 0x03;
    expected[0x42] = 0x80;
    assert_eq!(after, expected);
    let absent = Space(RefCell::new([0xff; 256]));
    quiet(0, &absent);
    assert_eq!(absent.0.into_inner(), [0xff; 256]);
}

#[test]
fn a_blob_with_invalid_streams_is_refused() {
    let iommu =
        Iommu { registers: 0x905_0000, configuration_space: 0, configuration_space_bytes: 0 };
    let grant = |first, count, function| StreamGrant { first, count, function };
    let refused = |mut blob: Blob, streams: &[StreamGrant]| {
        blob.iommu = blob.platform.map(|_| iommu);
        blob.streams = streams.to_vec();
        blob.checked().err().map(|refused| (refused.refusal, refused.index))
    };
    assert_eq!(refused(system(), &[grant(0, 0x1_0000, 0)]), None);
    assert_eq!(refused(press(), &[grant(0x10, 1, 0x1000), grant(0x18, 1, 0)]), None);
    let wrong = Some((Refusal::StreamRange, 1));
    for second in [
        grant(0x10, 1, 0),
        grant(0x11, 0, 0),
        grant(0x11, 9, 0),
        grant(0x11, u32::MAX, 0),
        grant(0x2_0000, 1, 0),
        grant(0x11, 1, 0x1001),
    ] {
        assert_eq!(refused(press(), &[grant(0x10, 1, 0), second]), wrong, "{second:?}");
    }
    assert_eq!(refused(system(), &[grant(0, 1, 0), grant(1, 1, 0x1000)]), wrong);
}
