// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests accesses of a cell to the interrupt controller, register by register: they affect only its own bits,
//! and never those of the management interrupt.

use crate::support::{DISTRIBUTOR, MPIDRS, REDISTRIBUTORS, Registers, zeroed_status};
use rampart_hypervisor_core::bus::{Access, Width};
use rampart_hypervisor_core::gic::{
    BEST_PRIORITY, ControlRegister, PrivateMask, SpiSet, change_owner, control_write, distributor,
    is_edge_triggered, is_extended_private_enabled, is_extended_shared_enabled, is_route,
    keep_routes, lowest_mask, redistributor, redistributor_owner, route, send_sgi,
};
use rampart_hypervisor_core::interface::CpuPower;
use rampart_hypervisor_core::psci::Caller;

/// The management interrupt and the maintenance interrupt of the virtual CPU interface.
const PRIVATE: PrivateMask = PrivateMask(!(1 << 15 | 1 << 25));
const CPUS: [u64; 2] = [1, 0x100];

/// The interrupts 40, 63 and 71.
fn own() -> SpiSet {
    let own = SpiSet::none();
    [40, 63, 71].into_iter().for_each(|number| own.insert(number));
    own
}

/// All shared interrupts.
fn all_interrupts() -> SpiSet {
    let all = SpiSet::none();
    (32..1020).for_each(|number| all.insert(number));
    all
}

fn is_own(cpu: u64) -> bool {
    CPUS.contains(&cpu)
}

/// Makes an access to a register of the distributor, including GICD_IROUTER.
fn in_distributor(
    access: &Access,
    interrupts: &SpiSet,
    is_own: impl FnOnce(u64) -> bool,
    bus: &Registers,
) -> u64 {
    let offset = access.address - DISTRIBUTOR;
    if is_route(offset) {
        route(offset, access, interrupts, is_own, bus)
    } else {
        distributor(offset, access, interrupts, bus)
    }
}

fn access(offset: u64, width: Width, write: Option<u64>, bus: &Registers) -> u64 {
    let access = Access { address: DISTRIBUTOR + offset, width, write };
    in_distributor(&access, &own(), is_own, bus)
}

fn read(offset: u64, bus: &Registers) -> u64 {
    access(offset, Width::Word, None, bus)
}

fn write(offset: u64, value: u64, bus: &Registers) {
    access(offset, Width::Word, Some(value), bus);
}

#[test]
fn a_set_of_interrupts_contains_only_spis() {
    let set = own();
    assert!(set.contains(40) && !set.contains(41));
    [0, 15, 31, 1020, 1023, u32::MAX].into_iter().for_each(|number| {
        set.insert(number);
        assert!(!set.contains(number), "{number}");
    });
    set.remove(40);
    assert!(!set.contains(40) && set.contains(63));
    let all = all_interrupts();
    assert!(all.contains(32) && all.contains(1019) && !all.contains(31));
}

#[test]
fn only_bits_of_owned_interrupts_are_written() {
    // ISENABLER, ICENABLER, ISPENDR, ICPENDR, ISACTIVER, ICACTIVER: a written 1 has an effect.
    for register in [0x100, 0x180, 0x200, 0x280, 0x300, 0x380] {
        let bus = Registers::default();
        write(register + 4, 0xffff_ffff, &bus);
        let mask = 1 << (40 - 32) | 1 << (63 - 32);
        assert_eq!(bus.taken(), [(DISTRIBUTOR + register + 4, Width::Word, Some(mask))]);
        write(register + 8, 0xffff_ffff & !(1 << 7), &bus);
        write(register, 0xffff_ffff, &bus);
        write(register + 12, 0xffff_ffff, &bus);
        assert_eq!(bus.taken(), [], "no bit of these registers is owned");
        bus.set(DISTRIBUTOR + register + 4, Width::Word, 0x1ff);
        assert_eq!(read(register + 4, &bus), 0x100);
        assert_eq!(read(register, &bus), 0);
    }
}

#[test]
fn groups_cannot_be_changed_and_reserved_registers_read_as_zero() {
    let bus = Registers::default();
    bus.set(DISTRIBUTOR + 0x84, Width::Word, 0xffff_ffff);
    // IGROUPR, IGRPMODR, NSACR, ITARGETSR, SGIR, CTLR, and ranges beyond GICv3.0.
    for register in [0x84, 0xd04, 0xe08, 0x820, 0xf00, 0x000, 0x1084, 0x3000, 0xc000] {
        write(register, 0xffff_ffff, &bus);
    }
    assert_eq!(bus.taken(), []);
    assert_eq!(read(0x84, &bus), 1 << 8 | 1 << 31);
    for register in [0xd04, 0xe08, 0x820, 0xf00, 0x1084] {
        bus.set(DISTRIBUTOR + register, Width::Word, 0xffff_ffff);
        assert_eq!(read(register, &bus), 0, "{register:#x}");
    }
}

#[test]
fn the_type_register_hides_messages() {
    let bus = Registers::default();
    bus.set(DISTRIBUTOR, Width::Word, 0x53);
    bus.set(DISTRIBUTOR + 4, Width::Word, 0x037f_0008);
    bus.set(DISTRIBUTOR + 0xffe8, Width::Word, 0x3b);
    assert_eq!((read(0, &bus), read(0xffe8, &bus)), (0x53, 0x3b));
    assert_eq!(read(4, &bus), 0x0378_0008, "MBIS, LPIS, DVIS");
}

#[test]
fn priorities_are_bytes_and_the_highest_are_reserved() {
    let bus = Registers::default();
    bus.set(DISTRIBUTOR + 0x428, Width::Word, 0x1122_3344);
    assert_eq!(read(0x428, &bus), 0x44, "interrupt 40 is the first of its word");
    bus.taken();
    write(0x428, 0xa0a0_a0a0, &bus);
    assert_eq!(bus.taken(), [(DISTRIBUTOR + 0x428, Width::Byte, Some(0xa0))]);
    write(0x43c, 0x0000_0000, &bus);
    let best = Some(u64::from(BEST_PRIORITY));
    assert_eq!(
        bus.taken(),
        [(DISTRIBUTOR + 0x43f, Width::Byte, best)],
        "63, limited to the best priority"
    );
    access(0x43f, Width::Byte, Some(0x80), &bus);
    access(0x43e, Width::Byte, Some(0x80), &bus);
    access(0x43e, Width::Half, Some(0x8080), &bus);
    access(0x438, Width::Double, Some(u64::MAX), &bus);
    assert_eq!(bus.taken(), [(DISTRIBUTOR + 0x43f, Width::Byte, Some(0x80))]);
    assert_eq!(access(0x43f, Width::Byte, None, &bus), 0x80);
    // The owner of all four bytes writes them at once.
    let all = Access { address: DISTRIBUTOR + 0x424, width: Width::Word, write: Some(0x7fa0_10ff) };
    bus.taken();
    in_distributor(&all, &all_interrupts(), is_own, &bus);
    assert_eq!(bus.taken(), [(DISTRIBUTOR + 0x424, Width::Word, Some(0x80a0_80ff))]);
}

/// The cell chooses which bits of a priority are compared, by ICC_BPR1_EL1 (Arm IHI 0069, 4.8.3).
#[test]
fn the_management_interrupt_preempts_every_interrupt_of_a_cell() {
    for binary_point in 1..=7 {
        let running = u32::from(BEST_PRIORITY) >> binary_point << binary_point;
        assert!(running > 0, "ICC_BPR1_EL1 = {binary_point}");
    }
}

#[test]
fn the_trigger_is_changed_only_for_own_interrupts() {
    let bus = Registers::default();
    // ICFGR2 has the interrupts 32 to 47, ICFGR3 those from 48 to 63.
    bus.set(DISTRIBUTOR + 0xc08, Width::Word, 0x5555_5555);
    write(0xc08, 0xaaaa_aaaa, &bus);
    assert_eq!(bus.get(DISTRIBUTOR + 0xc08, Width::Word), 0x5556_5555);
    assert_eq!(read(0xc08, &bus), 0x0002_0000);
    write(0xc0c, 0xffff_ffff, &bus);
    assert_eq!(bus.get(DISTRIBUTOR + 0xc0c, Width::Word), 0xc000_0000);
    bus.taken();
    write(0xc00, 0xffff_ffff, &bus);
    assert_eq!(bus.taken(), []);
}

#[test]
fn interrupts_are_routed_only_to_own_cpus() {
    let bus = Registers::default();
    let register = 0x6000 + 8 * 40;
    let at = DISTRIBUTOR + register;
    bus.set(at, Width::Double, 1);
    access(register, Width::Double, Some(0x100), &bus);
    assert_eq!(bus.get(at, Width::Double), 0x100);
    // A foreign CPU, any CPU, an own CPU with further bits.
    for wanted in [0, 2, 1 << 31, 1 << 31 | 1, 1 << 32 | 1, 1 << 24 | 1, u64::MAX] {
        access(register, Width::Double, Some(wanted), &bus);
        assert_eq!(bus.get(at, Width::Double), 0x100, "{wanted:#x}");
    }
    // The caller's CPUs from the status pages.
    let status = zeroed_status();
    status.initialize(&MPIDRS);
    status.cpus[2].set_state(5, CpuPower::Off);
    let caller = Caller { status: &status, cell: 5 };
    for (wanted, routed) in [(1, 0x100), (2, 2), (0x100, 2)] {
        let access = Access { address: at, width: Width::Double, write: Some(wanted) };
        assert_eq!(in_distributor(&access, &own(), |cpu| caller.cpu(cpu).is_some(), &bus), 0);
        assert_eq!(bus.get(at, Width::Double), routed);
    }
    // By 32-bit halves.
    access(register, Width::Word, Some(1), &bus);
    assert_eq!(bus.get(at, Width::Double), 1);
    access(register + 4, Width::Word, Some(7), &bus);
    access(register, Width::Byte, Some(0), &bus);
    assert_eq!(bus.get(at, Width::Double), 1);
    assert_eq!(access(register + 4, Width::Word, None, &bus), 0);
    // Not owned: neither written nor read.
    let foreign = 0x6000 + 8 * 41;
    bus.set(DISTRIBUTOR + foreign, Width::Double, 2);
    access(foreign, Width::Double, Some(1), &bus);
    assert_eq!(bus.get(DISTRIBUTOR + foreign, Width::Double), 2);
    assert_eq!(access(foreign, Width::Double, None, &bus), 0);
}

#[test]
fn only_owned_interrupts_are_set_pending_by_message() {
    let bus = Registers::default();
    write(0x40, 40, &bus);
    write(0x48, 71, &bus);
    write(0x40, 41, &bus);
    write(0x40, 8, &bus);
    assert_eq!(
        bus.taken(),
        [(DISTRIBUTOR + 0x40, Width::Word, Some(40)), (DISTRIBUTOR + 0x48, Width::Word, Some(71)),]
    );
}

/// Writes all ones to every word of the frame and reads it, for a cell without interrupts.
#[test]
fn a_cell_without_interrupts_changes_nothing_and_reads_only_the_identification() {
    let bus = Registers::default();
    for offset in (0..0x1_0000).step_by(4) {
        bus.set(DISTRIBUTOR + offset, Width::Word, 0xffff_ffff);
    }
    let none = SpiSet::none();
    for offset in (0..0x1_0000_u64).step_by(4) {
        for width in [Width::Byte, Width::Half, Width::Word, Width::Double] {
            if !offset.is_multiple_of(width.bytes().into()) {
                continue;
            }
            let access = |write| {
                let access = Access { address: DISTRIBUTOR + offset, width, write };
                in_distributor(&access, &none, is_own, &bus)
            };
            bus.taken();
            access(Some(u64::MAX));
            assert_eq!(bus.taken(), [], "{offset:#x} {width:?}");
            if access(None) != 0 {
                assert!(offset <= 0x10 || offset >= 0xffd0, "{offset:#x} is readable");
            }
        }
    }
}

fn private(offset: u64, write: Option<u64>, own: bool, bus: &Registers) -> u64 {
    let access = Access { address: REDISTRIBUTORS + offset, width: Width::Word, write };
    redistributor(offset, &access, own, PRIVATE, bus)
}

#[test]
fn a_cell_cannot_change_the_management_interrupt() {
    let bus = Registers::default();
    let second = 0x1_0000;
    for register in [0x100, 0x180, 0x200, 0x280, 0x300, 0x380] {
        private(second + register, Some(0xffff_ffff), true, &bus);
        let address = REDISTRIBUTORS + second + register;
        assert_eq!(bus.taken(), [(address, Width::Word, Some(PRIVATE.0.into()))]);
    }
    // Its group, its priority and that of the maintenance interrupt.
    private(second + 0x80, Some(0xffff_ffff), true, &bus);
    private(second + 0x80, Some(0), true, &bus);
    assert_eq!(bus.taken(), []);
    private(second + 0x40c, Some(0xf0f0_f0f0), true, &bus);
    private(second + 0x418, Some(0xf0f0_f0f0), true, &bus);
    let written: Vec<u64> = bus.taken().iter().map(|access| access.0 - REDISTRIBUTORS).collect();
    assert_eq!(written, [0x1_040c, 0x1_040d, 0x1_040e, 0x1_0418, 0x1_041a, 0x1_041b]);
    bus.set(REDISTRIBUTORS + second + 0xc04, Width::Word, 0);
    private(second + 0xc04, Some(0xffff_ffff), true, &bus);
    assert_eq!(bus.get(REDISTRIBUTORS + second + 0xc04, Width::Word), 0xfff3_ffff);
}

#[test]
fn a_cell_cannot_write_waker_or_lpi_tables() {
    let bus = Registers::default();
    // CTLR, WAKER, SETLPIR, PROPBASER, PENDBASER, INVLPIR.
    for register in [0x0, 0x14, 0x40, 0x70, 0x74, 0x78, 0x7c, 0xa0] {
        private(register, Some(0xffff_ffff), true, &bus);
        let access = Access {
            address: REDISTRIBUTORS + (register & !7),
            width: Width::Double,
            write: Some(u64::MAX),
        };
        assert_eq!(redistributor(register & !7, &access, true, PRIVATE, &bus), 0);
    }
    assert_eq!(bus.taken(), []);
    bus.set(REDISTRIBUTORS + 8, Width::Double, 0x1_0000_011f);
    assert_eq!(private(8, None, true, &bus), 0x116, "PLPIS and DirectLPI are hidden, VLPIS not");
    assert_eq!(private(12, None, true, &bus), 1);
    bus.set(REDISTRIBUTORS + 0x14, Width::Word, 6);
    assert_eq!(private(0x14, None, true, &bus), 6);
}

#[test]
fn only_the_identification_of_foreign_redistributors_is_readable() {
    let bus = Registers::default();
    for offset in (0..0x2_0000).step_by(4) {
        bus.set(REDISTRIBUTORS + offset, Width::Word, 0xffff_ffff);
    }
    for offset in (0..0x2_0000).step_by(4) {
        bus.taken();
        private(offset, Some(0xffff_ffff), false, &bus);
        assert_eq!(bus.taken(), [], "{offset:#x}");
        let seen = private(offset, None, false, &bus) != 0;
        let identification = matches!(offset, 8 | 12 | 0xffd0..=0xffff);
        assert_eq!(seen, identification, "{offset:#x}");
    }
    let frames = [0x100_0000, 0x102_0000];
    assert_eq!(redistributor_owner(0x103_0084, &frames, 0x2_0000), Some((1, 0x1_0084)));
    assert_eq!(redistributor_owner(0x104_0000, &frames, 0x2_0000), None);
    assert_eq!(redistributor_owner(0xff_ffff, &frames, 0x2_0000), None);
    let beyond = Access { address: REDISTRIBUTORS, width: Width::Word, write: None };
    assert_eq!(redistributor(0x2_0000, &beyond, true, PRIVATE, &bus), 0);
}

/// Returns the sent SGIs: (affinity 3.2.1.0 of the receiver, interrupt), by the layout of the register.
fn sent(value: u64, sender: u64) -> Vec<(u64, u64)> {
    let mut sent = Vec::new();
    send_sgi(value, sender, CPUS.into_iter(), PRIVATE, |value| {
        assert_eq!(value & !0x00ff_f0ff_0fff_ffff, 0, "bits that are RES0 or IRM: {value:#x}");
        let cluster =
            (value >> 48 & 0xff) << 32 | (value >> 32 & 0xff) << 16 | (value >> 16 & 0xff) << 8;
        for target in (0..16).filter(|target| value >> target & 1 != 0) {
            sent.push((cluster | (value >> 44 & 0xf) << 4 | target, value >> 24 & 0xf));
        }
    });
    sent
}

#[test]
fn sgis_stay_in_the_cell() {
    assert_eq!(sent(3 << 24 | 0xffff, 1), [(1, 3)], "the cell owns one CPU of the cluster 0.0.0");
    assert_eq!(sent(3 << 24 | 1 << 16 | 0xffff, 1), [(0x100, 3)]);
    assert_eq!(sent(3 << 24 | 0b1101, 1), []);
    for elsewhere in [2 << 16, 1 << 32, 1 << 48, 1 << 44] {
        assert_eq!(sent(3 << 24 | elsewhere | 0xffff, 1), [], "{elsewhere:#x}");
    }
    assert_eq!(sent(15 << 24 | 0xffff, 1), [], "the management interrupt");
    assert_eq!(sent(1 << 40 | 5 << 24 | 0xffff, 1), [(0x100, 5)], "all others of the cell");
    assert_eq!(sent(1 << 40 | 5 << 24, 0x100), [(1, 5)]);
    assert_eq!(sent(1 << 40 | 15 << 24, 1), []);
    // The last range of a cluster with 256 CPUs.
    let mut values = Vec::new();
    send_sgi(0xf << 44 | 2 << 24 | 0x8000, 0, [0xff].into_iter(), PRIVATE, |value| {
        values.push(value)
    });
    send_sgi(1 << 40 | 2 << 24, 0, [0, 0xff].into_iter(), PRIVATE, |value| values.push(value));
    assert_eq!(values, [0xf << 44 | 2 << 24 | 0x8000; 2]);
}

#[test]
fn the_cell_controls_its_cpu_interface_except_the_management_interrupt() {
    use ControlRegister::{Control, Deactivate, PriorityMask, RunningPriority};
    let write = |register, value, real| {
        control_write(register, value, real, &own(), PRIVATE, BEST_PRIORITY)
    };
    assert_eq!(write(PriorityMask, 0xf0, 0), Some(0xf0));
    assert_eq!(
        write(PriorityMask, 0, 0xf0),
        Some(BEST_PRIORITY.into()),
        "the management interrupt is not masked"
    );
    assert_eq!(write(PriorityMask, 0xffff_ff00, 0xf0), Some(BEST_PRIORITY.into()));
    assert_eq!(write(Control, 0xffff_ffff, 0x400), Some(0x403), "CBPR and EOImode");
    assert_eq!(write(Control, 0, 0x8403), Some(0x8400));
    assert_eq!(write(RunningPriority, 1, 1), None);
    for (number, own) in [(40, true), (41, false), (3, true), (27, true), (15, false), (25, false)]
    {
        assert_eq!(write(Deactivate, number, 0), own.then_some(number), "{number}");
    }
    assert_eq!(write(Deactivate, 8192, 0), None, "an LPI");
}

/// The priority of the management interrupt is higher than the mask in both views of the mask: with two security
/// states priority p of the distributor is physically 0x80 + p / 2.
#[test]
fn two_security_states_do_not_mask_the_management_interrupt() {
    let real = |priority: u64| 0x80 | priority >> 1;
    for shifted in [true, false] {
        for value in 0..=0xff {
            let lowest = lowest_mask(shifted);
            let mask =
                control_write(ControlRegister::PriorityMask, value, 0xff, &own(), PRIVATE, lowest)
                    .expect("the mask is always written");
            let mask = if shifted { real(mask) } else { mask };
            // With five bits, the minimum for a controller with two security states (4.8).
            let mask = mask & 0xf8;
            assert!(real(0) < mask, "masked by {value:#x}, shifted: {shifted}");
            if value <= u64::from(lowest) {
                assert!(
                    real(BEST_PRIORITY.into()) >= mask,
                    "{value:#x} leaves the cell's own interrupts unmasked"
                );
            }
        }
    }
}

#[test]
fn an_interrupt_is_reset_when_it_changes_its_owner() {
    let bus = Registers::default();
    bus.set(DISTRIBUTOR + 0x88, Width::Word, 0x1);
    // The triggers of 64 to 79; bit 15 is that of 71.
    bus.set(DISTRIBUTOR + 0xc10, Width::Word, 0xaaaa_aaaa);
    assert!(is_edge_triggered(DISTRIBUTOR, 71, &bus));
    change_owner(DISTRIBUTOR, 71, false, 0x100, &bus);
    assert!(!is_edge_triggered(DISTRIBUTOR, 71, &bus));
    let word = |offset| bus.get(DISTRIBUTOR + offset, Width::Word);
    assert_eq!(word(0xc10), 0xaaaa_2aaa);
    assert_eq!([word(0x188), word(0x288), word(0x388)], [1 << 7; 3]);
    assert_eq!(word(0x88), 1 << 7 | 1);
    assert_eq!(bus.get(DISTRIBUTOR + 0x447, Width::Byte), 0xa0);
    assert_eq!(bus.get(DISTRIBUTOR + 0x6000 + 8 * 71, Width::Double), 0x100);
    change_owner(DISTRIBUTOR, 71, true, 0x100, &bus);
    assert!(is_edge_triggered(DISTRIBUTOR, 71, &bus));
}

#[test]
fn interrupts_of_the_root_stay_on_its_cpus() {
    let bus = Registers::default();
    let at = |number: u64| DISTRIBUTOR + 0x6000 + 8 * number;
    let routes = [(32, 0), (33, 1), (34, 1 << 31), (35, 0x100), (36, 1)];
    routes.iter().for_each(|(number, route)| bus.set(at(*number), Width::Double, *route));
    // CPU 1 goes to a cell that owns interrupt 36.
    keep_routes(DISTRIBUTOR, 32..36, 0, |affinity| [0, 0x100].contains(&affinity), &bus);
    let found = routes.map(|(number, _)| bus.get(at(number), Width::Double));
    assert_eq!(found, [0, 0, 0, 0x100, 1]);
}

/// The launch is refused if one is enabled (`find` in the monitor's gic.rs); QEMU has none.
#[test]
fn an_enabled_interrupt_with_an_extended_number_is_found() {
    let bus = Registers::default();
    // ESPI and 32 registers; PPInum 2.
    let (shared, private) = (1 << 8 | 31 << 27, 2 << 27);
    let frame = REDISTRIBUTORS + 0x1_0000;
    let found = || {
        [
            is_extended_shared_enabled(DISTRIBUTOR, shared, &bus),
            is_extended_private_enabled(frame, private, &bus),
        ]
    };
    assert_eq!(found(), [false; 2]);
    bus.set(DISTRIBUTOR + 0x127c, Width::Word, 1 << 31);
    assert_eq!(found(), [true, false]);
    bus.set(DISTRIBUTOR + 0x127c, Width::Word, 0);
    bus.set(frame + 0x108, Width::Word, 1);
    assert_eq!(found(), [false, true]);
    // Without such interrupts the registers do not exist.
    bus.set(DISTRIBUTOR + 0x1200, Width::Word, 1);
    bus.taken();
    assert!(!is_extended_shared_enabled(DISTRIBUTOR, 31 << 27, &bus));
    assert!(!is_extended_private_enabled(frame, 0, &bus));
    assert_eq!(bus.taken(), []);
}
