// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests the decoding of trapped accesses, and registers shared bit by bit.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::support::{CLOCKS, Registers, bits, cell, press, read};
use rampart_hypervisor_core::bus::{Access, Bus, Forbidden, Width};
use rampart_hypervisor_core::format::{RegisterFlags, RegisterGrant};
use rampart_hypervisor_core::gic::ControlRegister;
use rampart_hypervisor_core::registers::{Locks, RootRegisters, access_shared, pages};
use rampart_hypervisor_core::syndrome::{
    Abort, SystemRegister, Transfer, abort, class, guest_address, is_maintenance,
    is_permission_fault, is_transfer, is_write, skip_of_aarch32, system as system_access, transfer,
};

const DATA_ABORT: u64 = 0x24 << 26 | 1 << 25;

fn syndrome(iss: u64) -> Transfer {
    assert!(is_transfer(0x24 << 26 | 1 << 25 | iss), "{iss:#x}");
    assert!(!is_transfer(0x20 << 26 | 1 << 25 | iss), "an instruction abort");
    transfer(iss)
}

#[test]
fn decodes_loads_and_stores() {
    // str w5, [..]: ISV, 32 bits, register 5, WnR, translation fault of level 3.
    let store = DATA_ABORT | 1 << 24 | 0b10 << 22 | 5 << 16 | 1 << 6 | 0b000111;
    assert!(is_write(store) && !is_maintenance(store) && abort(store) == Abort::Translation);
    let store = syndrome(1 << 24 | 0b10 << 22 | 5 << 16 | 1 << 6 | 0b000111);
    assert_eq!(
        store,
        Transfer { width: Width::Word, register: 5, signed: false, wide: false, write: true }
    );
    assert_eq!(
        store.access(0x1004, 0x1234_5678),
        Some(Access { address: 0x1004, width: Width::Word, write: Some(0x1234_5678) })
    );
    assert_eq!(store.access(0x1002, 0), None, "unaligned");
    // ldrsb x30, [..]
    let load = syndrome(1 << 24 | 1 << 21 | 30 << 16 | 1 << 15 | 0b000101);
    assert_eq!((load.write, load.register), (false, 30));
    assert_eq!(load.access(0x1001, 7).expect("bytes are aligned").write, None);
    assert_eq!(load.loaded(0x80), 0xffff_ffff_ffff_ff80);
    assert_eq!(load.loaded(0x7f), 0x7f);
    // ldrsh w1: the upper half is zero. ldr x2.
    let half = syndrome(1 << 24 | 1 << 22 | 1 << 21 | 1 << 16 | 7);
    assert_eq!(half.loaded(0x8000), 0xffff_8000);
    let double = syndrome(1 << 24 | 3 << 22 | 2 << 16 | 1 << 15 | 7);
    assert_eq!(double.loaded(u64::MAX), u64::MAX);
    // Not decoded by hardware (ldp), maintenance, a table walk, a permission fault, an external abort.
    for other in [
        0b000111,
        1 << 24 | 1 << 8 | 0b000111,
        1 << 24 | 1 << 7 | 0b000110,
        1 << 24 | 0b001111,
        1 << 24 | 0b010000,
    ] {
        assert!(!is_transfer(0x24 << 26 | 1 << 25 | other), "{other:#x}");
    }
    assert!(is_maintenance(DATA_ABORT | 1 << 8 | 0b000111) && !is_write(DATA_ABORT | 0b000111));
    assert_eq!(abort(DATA_ABORT | 1 << 7 | 0b000110), Abort::TableWalk);
    assert_eq!(abort(DATA_ABORT | 0b010000), Abort::External);
    assert_eq!(abort(0x8200_0005), Abort::Translation, "a CPU whose root table is cleared");
    for (permission, iss) in [(true, 0b001111), (false, 0b000111), (false, 1 << 7 | 0b001111)] {
        for class in [0x20, 0x24] {
            assert_eq!(is_permission_fault(class << 26 | iss), permission, "{class:#x} {iss:#b}");
        }
        assert!(!is_permission_fault(0x18 << 26 | iss), "no abort");
    }
    assert_eq!(guest_address(0x0908_0000 >> 12 << 4, 0xffff_0000_1234_5678), 0x0908_0678);
}

#[test]
fn decodes_exception_classes() {
    for (esr, expected) in [
        (0x01 << 26, 0x01),
        (0x16 << 26 | 0x4a, 0x16),
        (0x8200_0005, 0x20),
        (DATA_ABORT, 0x24),
        (u64::MAX, 0x3f),
    ] {
        assert_eq!(class(esr), expected, "{esr:#x}");
    }
    // (op0, op1, CRn, CRm, op2) of MSR and SYS in the layout of the syndrome.
    let system = |op0: u64, op1: u64, crn: u64, crm: u64, op2: u64, rest: u64| {
        let iss = op0 << 20 | op2 << 17 | op1 << 14 | crn << 10 | crm << 1 | rest;
        system_access((0x18 << 26 | 1 << 25 | iss) as u32)
    };
    let named = |op0, op1, crn, crm, op2| system(op0, op1, crn, crm, op2, 0).register;
    assert_eq!(named(3, 0, 12, 11, 5), SystemRegister::SendGroup1);
    assert_eq!(named(3, 0, 12, 11, 6), SystemRegister::SendOther);
    assert_eq!(named(3, 0, 12, 11, 7), SystemRegister::SendOther);
    assert_eq!(named(3, 0, 4, 6, 0), SystemRegister::Control(ControlRegister::PriorityMask));
    assert_eq!(named(3, 0, 12, 12, 4), SystemRegister::Control(ControlRegister::Control));
    assert_eq!(named(3, 0, 12, 11, 1), SystemRegister::Control(ControlRegister::Deactivate));
    assert_eq!(named(3, 0, 12, 11, 3), SystemRegister::Control(ControlRegister::RunningPriority));
    for crm in [6, 10, 14] {
        assert_eq!(named(1, 0, 7, crm, 2), SystemRegister::SetWay);
    }
    // OSLAR_EL1, OSLSR_EL1, OSDLR_EL1, DBGPRCR_EL1; MDSCR_EL1 is none of them.
    for crm in [0, 1, 3, 4] {
        assert_eq!(named(2, 0, 1, crm, 4), SystemRegister::DebugLock);
    }
    assert!(matches!(named(2, 0, 0, 2, 2), SystemRegister::Unknown(_)));
    // ICC_IAR0_EL1 and ICC_HPPIR0_EL1 read "no interrupt"; ICC_EOIR0_EL1, ICC_BPR0_EL1, ICC_AP0Rn_EL1 and
    // ICC_IGRPEN0_EL1 read 0.
    for (crm, op2, value) in
        [(8, 0, 1023), (8, 2, 1023), (8, 1, 0), (8, 3, 0), (8, 4, 0), (8, 7, 0), (12, 6, 0)]
    {
        assert_eq!(named(3, 0, 12, crm, op2), SystemRegister::Group0(value), "{crm} {op2}");
    }
    assert!(matches!(named(3, 0, 1, 0, 1), SystemRegister::Unknown(_)));
    let read = system(3, 0, 4, 6, 0, 17 << 5 | 1);
    assert_eq!((read.general, read.read), (17, true));
}

fn word(address: u64, write: Option<u64>) -> Access {
    Access { address, width: Width::Word, write }
}

fn of_root(result: Option<Result<u64, Forbidden>>) -> Result<u64, Forbidden> {
    result.expect("a page of shared registers")
}

fn dispatch(
    access: &Access,
    registers: &[RegisterGrant],
    locks: &Locks,
    bus: &impl Bus,
) -> Result<u64, Forbidden> {
    of_root(access_shared(access, registers, locks, bus))
}

#[test]
fn a_cell_reads_and_writes_only_its_bits() {
    let press = press();
    let (locks, bus) = (Locks::none(), Registers::default());
    let access =
        |offset, write| dispatch(&word(CLOCKS + offset, write), &press.registers, &locks, &bus);
    bus.set(CLOCKS, Width::Word, 0xabcd_ef12);
    assert_eq!(access(0, None), Ok(0x12));
    assert_eq!(access(0, Some(0xffff_ff07)), Ok(0));
    assert_eq!(bus.get(CLOCKS, Width::Word), 0xabcd_ef17, "four bits are writable");
    bus.set(CLOCKS + 4, Width::Word, 0x1234_5678);
    bus.taken();
    assert_eq!(access(4, None), Ok(0));
    assert_eq!(bus.taken(), [], "no readable bit: no access");
    assert_eq!(access(4, Some(0xaaaa_aaaa)), Ok(0));
    assert_eq!(bus.get(CLOCKS + 4, Width::Word), 0xaaaa_5678);
    bus.taken();
    assert_eq!(access(0x10, Some(1)), Ok(0));
    assert_eq!(bus.taken(), [], "no writable bit: no access");
    for offset in [8, 0xc, 0x14, 0xffc] {
        assert_eq!(access(offset, None), Err(Forbidden), "{offset:#x}");
    }
    let half = Access { address: CLOCKS, width: Width::Half, write: None };
    assert_eq!(dispatch(&half, &press.registers, &locks, &bus), Err(Forbidden));
    let inside = Access { address: CLOCKS + 2, width: Width::Half, write: None };
    assert_eq!(dispatch(&inside, &press.registers, &locks, &bus), Err(Forbidden));
    assert_eq!(access_shared(&word(CLOCKS, None), &[], &locks, &bus), None);
    for beyond in [CLOCKS - 4, CLOCKS + 0x1000] {
        let result = access_shared(&word(beyond, None), &press.registers, &locks, &bus);
        assert_eq!(result, None, "another page");
    }
    assert_eq!(bus.taken(), []);
}

#[test]
fn set_and_clear_registers_are_written_without_a_read() {
    let mut register = bits(0, 0xf, 0xf);
    register.flags = RegisterFlags::WRITE_ACTS.bits();
    let (locks, bus) = (Locks::none(), Registers::default());
    assert_eq!(dispatch(&word(CLOCKS, Some(0xf3)), &[register], &locks, &bus), Ok(0));
    assert_eq!(dispatch(&word(CLOCKS, Some(0xf0)), &[register], &locks, &bus), Ok(0));
    assert_eq!(bus.taken(), [(CLOCKS, Width::Word, Some(3))]);
}

#[test]
fn the_root_has_the_bits_that_no_cell_has() {
    let mut other = cell("other", &[0x100], 0x5800_0000);
    let shared = RegisterFlags::SHARED_READ.bits();
    other.registers =
        vec![bits(0, 0xf000, 0xf000), RegisterGrant { flags: shared, ..bits(8, 3, 1) }];
    let (press, other) = (read(&press()), read(&other));
    let mut root = RootRegisters::none();
    root.set([press, other].iter());
    let (locks, bus) = (Locks::none(), Registers::default());
    let access =
        |offset, write| of_root(root.access_shared(&word(CLOCKS + offset, write), &locks, &bus));
    bus.set(CLOCKS, Width::Word, 0xffff_ffff);
    assert_eq!(access(0, None), Ok(0xffff_0f00));
    assert_eq!(access(0, Some(0)), Ok(0));
    // The root may write bits that the cell only reads: a bit has one writer.
    assert_eq!(bus.get(CLOCKS, Width::Word), 0xf00f);
    bus.set(CLOCKS + 8, Width::Word, 3);
    assert_eq!(access(8, None), Ok(3), "shared for reading");
    assert_eq!(access(8, Some(0)), Ok(0));
    assert_eq!(bus.get(CLOCKS + 8, Width::Word), 1, "but not for writing");
    // A register without bits of any cell, in the same page.
    assert_eq!(access(0x20, Some(0x1234_5678)), Ok(0));
    assert_eq!(access(0x20, None), Ok(0x1234_5678));
    let wide = |offset, write| Access { address: CLOCKS + offset, width: Width::Double, write };
    assert_eq!(of_root(root.access_shared(&wide(0, Some(0)), &locks, &bus)), Err(Forbidden));
    assert_eq!(of_root(root.access_shared(&wide(0x10, None), &locks, &bus)), Err(Forbidden));
    assert_eq!(of_root(root.access_shared(&wide(0x18, Some(7)), &locks, &bus)), Ok(0));
    let byte = Access { address: CLOCKS + 3, width: Width::Byte, write: None };
    assert_eq!(of_root(root.access_shared(&byte, &locks, &bus)), Err(Forbidden));
    for other in [CLOCKS - 4, CLOCKS + 4096] {
        assert_eq!(root.access_shared(&word(other, None), &locks, &bus), None);
    }
    root.set([].iter());
    assert_eq!(root.access_shared(&word(CLOCKS, None), &locks, &bus), None);
    assert_eq!(pages(press.registers).collect::<Vec<_>>(), [CLOCKS]);
    assert_eq!(pages(&[]).count(), 0);
}

/// A register whose read blocks until it is released.
struct Stuck(std::sync::Barrier, std::sync::Barrier);

impl Bus for Stuck {
    fn read(&self, _: u64, _: Width) -> u64 {
        self.0.wait();
        self.1.wait();
        0
    }

    fn write(&self, _: u64, _: Width, _: u64) {}

    fn holder(&self) -> u32 {
        2
    }
}

#[test]
fn waits_for_a_stuck_lock_holder_are_bounded() {
    let stuck = Stuck(std::sync::Barrier::new(2), std::sync::Barrier::new(2));
    let (locks, own) = (Locks::none(), [bits(0, 1, 1)]);
    std::thread::scope(|scope| {
        let holder = scope.spawn(|| dispatch(&word(CLOCKS, Some(1)), &own, &locks, &stuck));
        stuck.0.wait();
        let bus = Registers::default();
        assert_eq!(dispatch(&word(CLOCKS, Some(1)), &own, &locks, &bus), Err(Forbidden));
        assert_eq!(bus.taken(), []);
        // The lock of another holder is not released. That of a CPU that faulted is.
        locks.release(1);
        assert_eq!(dispatch(&word(CLOCKS, Some(1)), &own, &locks, &bus), Err(Forbidden));
        locks.release(2);
        assert_eq!(dispatch(&word(CLOCKS, Some(1)), &own, &locks, &bus), Ok(0));
        stuck.1.wait();
        assert_eq!(holder.join().expect("no panic"), Ok(0));
        assert_eq!(dispatch(&word(CLOCKS, Some(1)), &own, &locks, &bus), Ok(0));
    });
}

/// A register that delays its first reader between the read and the write.
struct Slow {
    value: AtomicU64,
    reads: AtomicU64,
    held: std::sync::Barrier,
}

impl Bus for Slow {
    fn read(&self, _: u64, _: Width) -> u64 {
        let value = self.value.load(Ordering::SeqCst);
        if self.reads.fetch_add(1, Ordering::SeqCst) == 0 {
            self.held.wait();
            // Enough time for the other thread to change the register, if the lock did not prevent it.
            let limit = std::time::Instant::now() + std::time::Duration::from_millis(2);
            while self.value.load(Ordering::SeqCst) == value && std::time::Instant::now() < limit {
                std::hint::spin_loop();
            }
        }
        value
    }

    fn write(&self, _: u64, _: Width, value: u64) {
        self.value.store(value, Ordering::SeqCst);
    }

    fn holder(&self) -> u32 {
        3
    }
}

#[test]
fn concurrent_changes_of_different_bits_lose_no_update() {
    for _ in 0..10 {
        let locks = Locks::none();
        let (value, reads) = (AtomicU64::new(0), AtomicU64::new(0));
        let held = std::sync::Barrier::new(2);
        let bus = Slow { value, reads, held };
        let set =
            |value, of: u64| dispatch(&word(CLOCKS, Some(value)), &[bits(0, of, of)], &locks, &bus);
        std::thread::scope(|scope| {
            let first = scope.spawn(|| set(0x55, 0xff));
            bus.held.wait();
            // The first thread may be descheduled for longer than the bounded wait.
            while set(0x6600, 0xff00).is_err() {}
            assert_eq!(first.join().expect("no panic"), Ok(0));
        });
        assert_eq!(bus.value.load(Ordering::SeqCst), 0x6655);
    }
}

#[test]
fn an_instruction_of_aarch32_is_skipped_by_its_size_and_in_its_block() {
    // Thumb at EL0, without an IT block: 16 and 32 bits.
    assert_eq!(skip_of_aarch32(0, 0x30), (2, 0x30));
    assert_eq!(skip_of_aarch32(1 << 25, 0x30), (4, 0x30));
    // The states of ITETT EQ, 0x05 after three instructions of which the last is left, then none.
    let state = |block: u64| 0x30 | (block & 0xfc) << 8 | (block & 3) << 25;
    for (block, next) in [(0x05, 0x0a), (0x0a, 0x14), (0x14, 0x08), (0x08, 0), (0xe9, 0xf2), (0, 0)]
    {
        assert_eq!(skip_of_aarch32(0, state(block)), (2, state(next)), "{block:#x}");
    }
}
