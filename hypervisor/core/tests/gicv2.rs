// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests accesses of a cell to a GICv2: they affect only its own interrupts and CPUs.

use crate::configuration::refused;
use crate::support::{DISTRIBUTOR, Registers, system, zeroed_status};
use rampart_hypervisor_core::bus::{Access, Width};
use rampart_hypervisor_core::format::Refusal;
use rampart_hypervisor_core::gic::{PrivateMask, SpiSet};
use rampart_hypervisor_core::gicv2::{
    Interfaces, Owned, change_owner, deactivate, distributor, keep_targets, send,
};
use rampart_hypervisor_core::interface::CpuPower;

/// All except the management interrupt and the maintenance interrupt.
const PRIVATE: PrivateMask = PrivateMask(!(1 << 7 | 1 << 25));
/// The interfaces of the cell's CPUs: the second and the fourth.
const OWN: u8 = 0b1010;

/// The interrupts 40 and 63.
fn own() -> SpiSet {
    let own = SpiSet::none();
    [40, 63].into_iter().for_each(|number| own.insert(number));
    own
}

fn access(offset: u64, width: Width, write: Option<u64>, bus: &Registers) -> u64 {
    let access = Access { address: DISTRIBUTOR + offset, width, write };
    let owned = Owned { private: PRIVATE, shared: &own() };
    distributor(offset, &access, &owned, || OWN, bus)
}

#[test]
fn the_first_word_has_the_private_interrupts() {
    let bus = Registers::default();
    access(0x100, Width::Word, Some(0xffff_ffff), &bus);
    access(0x104, Width::Word, Some(0xffff_ffff), &bus);
    access(0x108, Width::Word, Some(0xffff_ffff), &bus);
    let private = u64::from(PRIVATE.0);
    let expected = [
        (DISTRIBUTOR + 0x100, Width::Word, Some(private)),
        (DISTRIBUTOR + 0x104, Width::Word, Some(1 << 8 | 1 << 31)),
    ];
    assert_eq!(bus.taken(), expected);
    // The triggers may be those of all CPUs.
    access(0xc04, Width::Word, Some(0xffff_ffff), &bus);
    assert_eq!(bus.taken(), []);
    // The priority of the management interrupt.
    access(0x404, Width::Word, Some(0x9090_9090), &bus);
    access(0x407, Width::Byte, Some(0x90), &bus);
    assert!(bus.taken().iter().all(|(address, ..)| *address != DISTRIBUTOR + 0x407));
}

#[test]
fn interrupts_are_sent_only_to_own_cpus() {
    let bus = Registers::default();
    access(0x828, Width::Word, Some(0xffff_ffff), &bus);
    access(0x83f, Width::Byte, Some(0x07), &bus);
    // Of others, and private ones.
    access(0x82c, Width::Word, Some(0xffff_ffff), &bus);
    access(0x829, Width::Byte, Some(0xff), &bus);
    access(0x800, Width::Word, Some(0xffff_ffff), &bus);
    let expected = [
        (DISTRIBUTOR + 0x828, Width::Byte, Some(u64::from(OWN))),
        (DISTRIBUTOR + 0x83f, Width::Byte, Some(0b0010)),
    ];
    assert_eq!(bus.taken(), expected);
    bus.set(DISTRIBUTOR + 0x828, Width::Word, 0xffff_ffff);
    bus.set(DISTRIBUTOR + 0x800, Width::Word, 0x0202_0202);
    assert_eq!(access(0x828, Width::Word, None, &bus), 0xff);
    assert_eq!(access(0x800, Width::Word, None, &bus), 0x0202_0202, "this CPU's own bit");
}

#[test]
fn control_groups_and_pending_states_of_senders_cannot_be_written() {
    let bus = Registers::default();
    for register in [0x000, 0x004, 0x080, 0x084, 0xe00, 0xf00, 0xf10, 0xf14, 0xf20, 0xf24, 0xfe0] {
        for width in [Width::Byte, Width::Word] {
            access(register, width, Some(0xffff_ffff), &bus);
        }
    }
    assert_eq!(bus.taken(), []);
    bus.set(DISTRIBUTOR, Width::Word, 1);
    bus.set(DISTRIBUTOR + 0xf10, Width::Word, 0xff);
    assert_eq!(access(0, Width::Word, None, &bus), 1);
    assert_eq!(access(0xf10, Width::Word, None, &bus), 0);
}

#[test]
fn software_interrupts_stay_in_the_cell() {
    let sent = |value| send(value, 0b0010, OWN, PRIVATE);
    assert_eq!(sent(0xff_0003), Some(u64::from(OWN) << 16 | 3), "to all by the list");
    assert_eq!(sent(0x05_0003), None, "to others");
    assert_eq!(sent(1 << 24 | 3), Some(0b1000 << 16 | 3), "to all but the sender");
    assert_eq!(sent(2 << 24 | 3), Some(0b0010 << 16 | 3), "to the sender");
    assert_eq!(sent(3 << 24 | 0xff_0003), None, "reserved");
    assert_eq!(sent(0xff_0007), None, "the management interrupt");
    assert_eq!(sent(0xff_8003), Some(u64::from(OWN) << 16 | 3), "of the secure group");
}

#[test]
fn only_own_interrupts_are_deactivated() {
    let shared = own();
    let owned = Owned { private: PRIVATE, shared: &shared };
    assert_eq!(deactivate(40, &owned), Some(40));
    assert_eq!(deactivate(3 << 10 | 2, &owned), Some(3 << 10 | 2), "with its sender");
    for other in [7, 25, 41, 71, 1020, 1023, 3 << 10 | 7] {
        assert_eq!(deactivate(other, &owned), None, "{other}");
    }
}

#[test]
fn interrupts_of_the_root_leave_the_cpus_of_a_cell() {
    let bus = Registers::default();
    let target = |number: u64| DISTRIBUTOR + 0x800 + number;
    for (number, cpus) in [(32, 0b0001), (33, 0b0111), (34, 0b1010), (35, 0)] {
        bus.set(target(number), Width::Byte, cpus);
    }
    keep_targets(DISTRIBUTOR, 32..36, 0b0101, &bus);
    let expected =
        [(target(33), Width::Byte, Some(0b0101)), (target(34), Width::Byte, Some(0b0001))];
    let written: Vec<_> =
        bus.taken().into_iter().filter(|(.., written)| written.is_some()).collect();
    assert_eq!(written, expected);
}

#[test]
fn an_interrupt_is_reset_and_stays_in_its_group() {
    let bus = Registers::default();
    change_owner(DISTRIBUTOR, 40, false, 0b0100, &bus);
    let taken = bus.taken();
    let has =
        |offset: u64, width, value| taken.contains(&(DISTRIBUTOR + offset, width, Some(value)));
    for register in [0x184, 0x284, 0x384] {
        assert!(has(register, Width::Word, 1 << 8), "{register:#x}: {taken:x?}");
    }
    assert!(has(0x428, Width::Byte, 0xa0) && has(0x828, Width::Byte, 0b0100), "{taken:x?}");
    let groups = taken.iter().any(|(address, ..)| *address == DISTRIBUTOR + 0x84);
    assert!(!groups, "{taken:x?}");
}

#[test]
fn each_cpu_has_one_interface() {
    let interfaces = Interfaces::none();
    assert!(interfaces.set(0, 0b0001) && interfaces.set(1, 0b0100));
    assert!(interfaces.set(1, 0b0100), "again, after a launch that failed");
    assert!(!interfaces.set(2, 0b0100), "that of another CPU");
    assert!(!interfaces.set(2, 0) && !interfaces.set(2, 0b1010));
    assert!(interfaces.set(2, 0b1000));
    let status = zeroed_status();
    status.cpus[0].set_state(0, CpuPower::On);
    status.cpus[1].set_state(5, CpuPower::On);
    status.cpus[2].set_state(5, CpuPower::Off);
    assert_eq!(interfaces.of_cell(&status, 5), 0b1100);
    assert_eq!(interfaces.of_cell(&status, 0), 0b0001);
}

#[test]
fn frames_of_a_gicv2_are_pages() {
    let mut blob = system();
    let platform = blob.platform.as_mut().expect("a system");
    platform.version = 2;
    platform.cpu_frames = DISTRIBUTOR + 0x1000;
    platform.cpu_frame_bytes = 0x2000;
    let valid = blob.clone();
    assert_eq!(refused(&valid), None);
    let changes: [fn(&mut rampart_hypervisor_core::format::Platform); 4] = [
        |platform| platform.cpu_frames = platform.distributor,
        |platform| platform.cpu_frames += 0x100,
        |platform| platform.cpu_frame_bytes = 0x1000,
        |platform| platform.cpu_frame_bytes = 0x1_0000,
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let mut blob = valid.clone();
        change(blob.platform.as_mut().expect("a system"));
        assert_eq!(refused(&blob), Some(Refusal::PlatformShape), "case {number}");
    }
}
