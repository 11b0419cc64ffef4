// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Attacks on a machine with a GICv2, with one security state and with two: by the distributor that all CPUs share, and
//! by the CPU interface that a cell has mapped.

use std::time::Duration;

use rampart_hypervisor_cells::remote::{INTERRUPTS, RESULTS, STAYS_ACTIVE};
use rampart_hypervisor_core::configuration::build::Blob;
use rampart_hypervisor_core::format::InterruptGrant;
use rampart_hypervisor_core::interface::Hypercall;

use crate::machine::{
    Attacked, CODE_START, CPU_ON, DISTRIBUTOR, GICV2, INTERFACE, ISB, MASK, Machine, ONE, PAIR,
    SMC, SPIN, STORE_WORD, UNMASK, WFI, WITNESS_CPU, ensure, on, register, root, write_register,
};

/// A shared interrupt without a device (QEMU, hw/arm/virt.c: `a15irqmap`).
const INTERRUPT: u64 = 250;
/// Starts of a CPU by another one.
const STARTS: u64 = 20_000;
/// Offsets in the distributor (Arm IHI 0048, 4.3).
const ENABLE: u64 = 0x100;
const SET_PENDING: u64 = 0x200;
const PRIORITY: u64 = 0x400;
const TARGETS: u64 = 0x800;
const SEND: u64 = 0xf00;
const SENDERS: u64 = 0xf20;
/// Offsets in the CPU interface (4.4).
const PRIORITY_MASK: u64 = 0x04;
const BINARY_POINT: u64 = 0x08;
/// GICC_ABPR: GICC_BPR of group 1 (Arm IHI 0048, 4.4.11).
const ALIAS_OF_BINARY_POINT: u64 = 0x1c;
const RUNNING: u64 = 0x14;
const ACTIVE: u64 = 0xd0;
const DEACTIVATE: u64 = 0x1000;

/// The root sends an interrupt of its own to the witness's CPU before the witness exists, and while it runs.
#[test]
fn an_interrupt_of_the_root_does_not_reach_a_cell_of_a_gicv2() {
    on(&GICV2, |machine| {
        let (word, bit) = (INTERRUPT / 32 * 4, 1 << (INTERRUPT % 32));
        let target = DISTRIBUTOR + TARGETS + INTERRUPT / 4 * 4;
        machine.set_device(root(0), target, u64::from(u32::MAX))?;
        machine.set_device(root(0), DISTRIBUTOR + ENABLE + word, bit)?;
        let priority = DISTRIBUTOR + PRIORITY + INTERRUPT / 4 * 4;
        machine.set_device(root(0), priority, 0x8080_8080)?;
        let pending = DISTRIBUTOR + SET_PENDING + word;
        let witness = machine.start_witness_after(|| machine.set_device(root(0), pending, bit))?;
        witness.check()?;
        machine.set_device(root(0), target, 0x0808_0808)?;
        let targets = machine.device(root(0), target)?;
        ensure(targets & 0x0808_0808 == 0, || {
            format!("the root's interrupts are sent to {targets:#x}")
        })?;
        for _ in 0..20 {
            machine.set_device(root(0), pending, bit)?;
        }
        for number in 0..16 {
            for value in [0xff << 16, 1 << 24, 0xff << 16 | 1 << 15] {
                machine.set_device(root(0), DISTRIBUTOR + SEND, value | number)?;
            }
        }
        witness.check()?;
        machine.manage(Hypercall::CellDestroy, witness.number)?;
        machine.turn_on(WITNESS_CPU as u64)
    });
}

/// A cell sends software interrupts of all numbers to all CPUs, in each way. No CPU of the root and no cell takes one.
#[test]
fn no_software_interrupt_leaves_a_cell_of_a_gicv2() {
    on(&GICV2, |machine| {
        let witness = machine.start_witness()?;
        machine.start_hostile(&ONE, &ONE.blob())?;
        for cpu in [0, 1] {
            machine.set_device(root(cpu), DISTRIBUTOR + ENABLE, 0xffff)?;
            machine.set_device(root(cpu), INTERFACE + PRIORITY_MASK, 0xf0)?;
            machine.set_device(root(cpu), INTERFACE, 1)?;
        }
        // The other CPU takes its own.
        machine.repeat(root(1), &[UNMASK], &[]);
        let taken = |cpu: u64| -> u64 {
            let counts = (0..16).map(|number| machine.value(root(cpu), INTERRUPTS + number));
            counts.sum()
        };
        machine.set_device(root(0), DISTRIBUTOR + SEND, 2 << 16 | 3)?;
        ensure(machine.wait(|| taken(1) == 1), || {
            "the root takes none of its own".to_owned()
        })?;
        for number in 0..16 {
            for value in [
                0xff << 16,
                1 << 24,
                2 << 24,
                3 << 24 | 0xff << 16,
                0xff << 16 | 1 << 15,
            ] {
                machine.set_device(ONE.cpu(0), DISTRIBUTOR + SEND, value | number)?;
            }
            let senders = DISTRIBUTOR + SENDERS + number / 4 * 4;
            machine.set_device(ONE.cpu(0), senders, u64::from(u32::MAX))?;
        }
        machine.end(root(1))?;
        machine.run(root(0), &[UNMASK, ISB, MASK], &[])?;
        ensure(taken(0) == 0 && taken(1) == 1, || {
            let taken = (taken(0), taken(1) - 1);
            format!("the root takes software interrupts: {taken:?}")
        })?;
        witness.check()
    });
}

/// Returns `str w1, [x0, #offset]`.
const fn store_at(offset: u64) -> u32 {
    STORE_WORD | (offset as u32 / 4) << 10
}

/// Nothing that a cell writes to its CPU interface keeps the CPU, or remains for the next owner.
#[test]
fn every_cpu_of_a_gicv2_returns_without_traces() {
    // str w5, [x4]: enables the timer's interrupt. str x3, [x2]: reports that the state is reached.
    let (enable, report) = (0xb900_0085, 0xf900_0043);
    let asleep = [enable, report, MASK, WFI, WFI, WFI];
    let taken = [
        enable,
        write_register(register::TIMER_CONTROL, 3),
        UNMASK,
        ISB,
        report,
    ];
    let states = [
        ("interface off", 0, 0, &asleep[..]),
        ("all masked", PRIORITY_MASK, 0, &asleep),
        ("no preemption", BINARY_POINT, 7, &asleep),
        (
            "no preemption by group 1",
            ALIAS_OF_BINARY_POINT,
            7,
            &asleep,
        ),
        ("active priorities", ACTIVE, u64::from(u32::MAX), &asleep),
        ("control", 0, u64::from(u32::MAX), &asleep),
        ("an active interrupt", 0, 1, &taken),
    ];
    const REACHED: usize = RESULTS + 7;
    on(&GICV2, |machine| {
        let witness = machine.start_witness()?;
        for (what, register, value, code) in states {
            let failed = |error: String| format!("{what}: {error}");
            let cell = machine.start_hostile(&ONE, &ONE.blob());
            let (cell, cpu) = (cell.map_err(failed)?, ONE.cpu(0));
            machine.set_value(cpu, STAYS_ACTIVE, 1);
            machine.set_value(cpu, REACHED, 0);
            let code = [&[store_at(register)], code, &[SPIN]].concat();
            let reached = cpu.argument + 8 * REACHED as u64;
            let enabled = [DISTRIBUTOR + ENABLE, 1 << 27];
            machine.begin(
                cpu,
                &code,
                &[&[INTERFACE, value, reached, 1][..], &enabled].concat(),
            );
            ensure(machine.wait(|| machine.value(cpu, REACHED) == 1), || {
                format!("{what}: the state is not reached")
            })?;
            let interrupts = machine.value(cpu, INTERRUPTS + 27);
            ensure(what != "an active interrupt" || interrupts > 0, || {
                "the cell takes no interrupt".to_owned()
            })?;
            std::thread::sleep(Duration::from_millis(2));
            machine
                .manage(Hypercall::CellDestroy, cell)
                .map_err(failed)?;
            machine.turn_on_awake(2).map_err(failed)?;
            let alias = machine.device(root(0), INTERFACE + ALIAS_OF_BINARY_POINT)?;
            let registers = [
                (0, 0),
                (ACTIVE, 0),
                (RUNNING, 0xff),
                (ALIAS_OF_BINARY_POINT, alias),
            ];
            for (register, expected) in registers {
                let found = machine.device(root(2), INTERFACE + register)?;
                ensure(found == expected, || {
                    format!("{what}: register {register:#x} of GICC is {found:#x}")
                })?;
            }
            machine.expect_no_fault().map_err(failed)?;
        }
        witness.check()
    });
}

/// A cell deactivates the root's interrupts by GICC_DIR, and starts a CPU again and again that acknowledges the
/// management interrupt if it sees it, and leaves it active.
#[test]
fn a_cell_of_a_gicv2_cannot_keep_the_management_interrupt_active() {
    const PROGRAM: u64 = 0x18_0000;
    let program = [
        0xaa00_03f3, // mov x19, x0
        0xd2a1_0034, // movz x20, #0x801, lsl #16: GICC
        0xd280_1fe1, // mov x1, #0xff
        0xb900_0681, // str w1, [x20, #4]
        0xd280_0021, // mov x1, #1
        0xb900_0281, // str w1, [x20]
        0xd280_0802, // mov x2, #64
        0xb940_0e81, // ldr w1, [x20, #0xc]
        0x1200_2423, // and w3, w1, #0x3ff
        0x7100_1c7f, // cmp w3, #7
        0x5400_00e0, // b.eq to the store
        0xb900_1281, // str w1, [x20, #0x10]
        0xf100_0442, // subs x2, x2, #1
        0x54ff_ff41, // b.ne to the acknowledgement
        0x52b0_8000, // movz w0, #0x8400, lsl #16
        0x7280_0040, // movk w0, #2
        SMC,
        0xf900_0261, // str x1, [x19]
        SPIN,
    ];
    on(&GICV2, |machine: &Machine| -> Attacked {
        let witness = machine.start_witness()?;
        let interrupts = vec![InterruptGrant {
            number: INTERRUPT as u32,
            flags: 0,
        }];
        let blob = Blob {
            interrupts,
            ..PAIR.blob()
        };
        let cell = machine.start_hostile(&PAIR, &blob)?;
        for (index, instruction) in (0..).zip(program) {
            let at = PAIR.memory + PROGRAM + 4 * index;
            machine.write(at, &instruction.to_le_bytes());
        }
        let marker = PAIR.memory + PROGRAM + 0x1000;
        let first = PAIR.cpu(0);
        for number in (0..16).chain(27..INTERRUPT) {
            machine.set_device(first, INTERFACE + DEACTIVATE, number)?;
        }
        let at = CODE_START + PROGRAM;
        machine.repeat(first, &[SMC], &[CPU_ON, 2, at, at + 0x1000]);
        machine.wait_for_runs_or(first, STARTS, || machine.word(marker) != 0)?;
        machine.manage(Hypercall::CellDestroy, cell)?;
        machine.turn_on(2)?;
        machine.turn_on(1)?;
        machine.run(root(2), &[ISB], &[])?;
        witness.check()?;
        machine.expect_no_fault()
    });
}
