// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Accesses for which the hypervisor gets no address, no register or no syndrome: by table walks, by instructions other
//! than loads and stores of one register, and calls of the firmware and the debugger's lock.

use rampart_hypervisor_cells::remote::PHYSICAL_TIMER;
use rampart_hypervisor_core::configuration::build::Blob;
use rampart_hypervisor_core::format::SmcGrant;
use rampart_hypervisor_core::interface::{CellState, Exit, Hypercall, StopReason};

use crate::machine::{
    CODE_START, DISTRIBUTOR, ERET, HYPERVISOR, ISB, MODELS, ONE, PORT, REDISTRIBUTORS, SMC, SPIN,
    WITNESS, ensure, on, on_with, read_register, register, root, system, write_register,
};

/// TTBR0_EL1 and OSLSR_EL1.
const TABLES: [u32; 5] = [3, 0, 2, 0, 0];
const LOCK_STATUS: [u32; 5] = [2, 0, 1, 1, 4];

/// A cell's own translation tables are at addresses that are not its memory: in frames of the interrupt controller, which
/// are emulated for loads and stores, in a device, and in memory of others. Each walk ends the cell, also one that would
/// update the table.
#[test]
fn a_table_of_a_cell_outside_its_memory_ends_the_cell() {
    on(&MODELS[..3], |machine| {
        let witness = machine.start_witness()?;
        let frame = REDISTRIBUTORS + 2 * 0x2_0000;
        for at in [
            DISTRIBUTOR,
            frame,
            frame + 0x1_0000,
            PORT,
            HYPERVISOR,
            WITNESS,
            1 << 38,
        ] {
            // T0SZ, EPD1, 40 bits of addresses; then with updates by the hardware (HA, HD).
            let control = 25 | 1 << 23 | 2 << 32;
            for control in [control, control | 3 << 39] {
                let cell = machine.start_hostile(&ONE, &ONE.blob())?;
                let code = [
                    write_register(TABLES, 0),
                    write_register(register::TRANSLATION_CONTROL, 1),
                    ISB,
                    write_register(register::SYSTEM_CONTROL, 2),
                    ISB,
                    SPIN,
                ];
                machine.begin(ONE.cpu(0), &code, &[at, control, 0x30d0_0801]);
                let condition = || machine.status().cells[cell as usize].condition();
                let ended = machine.wait(|| condition().state == CellState::Failed);
                ensure(ended, || format!("a table at {at:#x}: the cell goes on"))?;
                let reason = condition().stop_reason;
                ensure(reason == StopReason::TranslationTable, || {
                    format!("a table at {at:#x}: {reason:?}")
                })?;
                machine.manage(Hypercall::CellDestroy, cell)?;
                machine.turn_on(2)?;
            }
        }
        witness.check()?;
        machine.expect_no_fault()
    });
}

/// Accesses whose registers the syndrome of an abort does not name (Arm ARM, ISS encoding of a data abort, ISV).
const WITHOUT_SYNDROME: [(&str, u32); 7] = [
    ("ldp x1, x2, [x0]", 0xa940_0801),
    ("stp x1, x2, [x0]", 0xa900_0801),
    ("ldr x1, [x0], #8", 0xf840_8401),
    ("str w1, [x0, #4]!", 0xb800_4c01),
    ("ldr q0, [x0]", 0x3dc0_0000),
    ("ldxr w1, [x0]", 0x885f_7c01),
    ("ldadd w1, w2, [x0]", 0xb821_0002),
];

/// A cell and the root make such accesses to the distributor and to a redistributor. Nothing is written; a cell ends, or
/// takes the exception of an undefined instruction, and the root takes an exception.
#[test]
fn an_access_without_a_syndrome_changes_no_register() {
    on(&MODELS[..2], |machine| {
        let witness = machine.start_witness()?;
        let frame = REDISTRIBUTORS + 2 * 0x2_0000 + 0x1_0000;
        // GICD_ISENABLER and GICR_ISENABLER0, where the programs enable the timer that wakes them.
        let timer = 1 << PHYSICAL_TIMER;
        for (at, own) in [(DISTRIBUTOR + 0x110, 0), (frame + 0x100, timer)] {
            for (what, code) in WITHOUT_SYNDROME {
                let cell = machine.start_hostile(&ONE, &ONE.blob())?;
                let exceptions =
                    || machine.value(ONE.cpu(0), rampart_hypervisor_cells::remote::EXCEPTIONS);
                machine.begin(ONE.cpu(0), &[code], &[at, u64::MAX, u64::MAX]);
                let state = || machine.status().cells[cell as usize].condition().state;
                let ended = machine.wait(|| state() == CellState::Failed || exceptions() > 0);
                ensure(ended, || format!("{what}: the cell goes on"))?;
                machine.manage(Hypercall::CellDestroy, cell)?;
                machine.turn_on(2)?;
                let before = machine.value(root(1), rampart_hypervisor_cells::remote::EXCEPTIONS);
                machine.run(root(1), &[code], &[at, u64::MAX, u64::MAX])?;
                let after = machine.value(root(1), rampart_hypervisor_cells::remote::EXCEPTIONS);
                ensure(after == before + 1, || {
                    format!("{what}: the root takes no exception")
                })?;
            }
            for word in 0..4 {
                let found = machine.device(root(1), at + 4 * word)? & !own;
                ensure(found == 0, || format!("{:#x} is {found:#x}", at + 4 * word))?;
            }
        }
        witness.check()?;
        machine.expect_no_fault()
    });
}

/// The root calls a function of the firmware that the machine's description names; a cell calls the same, and others.
#[test]
fn only_the_root_reaches_the_firmwares_functions() {
    let range = SmcGrant {
        first: 0x8200_0010,
        last: 0x8200_0011,
    };
    let system = Blob {
        smcs: vec![range],
        ..system()
    };
    on_with(&MODELS[..2], &system, |machine| {
        machine.expect_launched()?;
        let cell = machine.start_hostile(&ONE, &ONE.blob())?;
        let count = |cpu: usize, exit: Exit| {
            let counts = &machine.status().cpus[cpu].exits[exit as usize];
            counts.load(std::sync::atomic::Ordering::Relaxed)
        };
        for (function, forwarded) in [(0x8200_0010, 1), (0x8200_0011, 2), (0x8200_0012, 2)] {
            machine.run(root(1), &[SMC], &[function])?;
            let found = count(1, Exit::SmcForwarded);
            ensure(found == forwarded, || {
                format!("{function:#x} of the root: {found} calls are forwarded")
            })?;
            let [result, ..] = machine.run(ONE.cpu(0), &[SMC], &[function])?;
            let found = count(2, Exit::SmcForwarded);
            ensure(result as i64 == -1 && found == 0, || {
                format!("{function:#x} of a cell: {result:#x}, {found} calls are forwarded")
            })?;
        }
        let refused = count(2, Exit::SmcRefused);
        ensure(refused == 3, || {
            format!("{refused} calls of the cell are refused")
        })?;
        machine.manage(Hypercall::CellDestroy, cell)
    });
}

/// With the OS lock closed, MDSCR_EL1.HDE can be set, and a breakpoint then stops the CPU at EL2, perhaps with a lock.
#[test]
fn neither_the_root_nor_a_cell_closes_the_debuggers_lock() {
    on(&MODELS[..3], |machine| {
        let cell = machine.start_hostile(&ONE, &ONE.blob())?;
        for who in [root(1), ONE.cpu(0)] {
            let code = [
                write_register(register::LOCK, 0),
                ISB,
                read_register(LOCK_STATUS, 1),
            ];
            let [_, status, ..] = machine.run(who, &code, &[1, 0xbad])?;
            ensure(status == 0, || format!("OSLSR_EL1 is {status:#x}"))?;
        }
        machine.manage(Hypercall::CellDestroy, cell)?;
        machine.expect_no_fault()
    });
}

/// A program of AArch32 at EL0 reads GICD_TYPER by instructions of 16 bits, also in a block of conditional ones: each is
/// skipped alone.
#[test]
fn a_skipped_instruction_of_aarch32_has_its_size() {
    const PROGRAM: u64 = 0x18_0000;
    const RESULT: u64 = 0x19_0000;
    let program: [u16; 10] = [
        0x2200, // movs r2, #0
        0x6801, // ldr r1, [r0]
        0x3201, // adds r2, #1
        0x3201, // adds r2, #1
        0x4292, // cmp r2, r2
        0xbf0c, // ite eq
        0x6801, // ldreq r1, [r0]
        0x3210, // addne r2, #16
        0x601a, // str r2, [r3]
        0xe7fe, // b .
    ];
    on(&MODELS[..3], |machine| {
        let cell = machine.start_hostile(&ONE, &ONE.blob())?;
        for (index, instruction) in (0..).zip(program) {
            let at = ONE.memory + PROGRAM + 2 * index;
            machine.write(at, &instruction.to_le_bytes());
        }
        let code = [
            write_register(register::SAVED_STATE, 1),
            write_register(register::RETURN_ADDRESS, 2),
            ERET,
        ];
        let at = CODE_START + PROGRAM;
        let arguments = [DISTRIBUTOR + 4, 0x1f0, at, CODE_START + RESULT];
        machine.begin(ONE.cpu(0), &code, &arguments);
        let counted = || machine.word(ONE.memory + RESULT) as u32;
        ensure(machine.wait(|| counted() != 0), || {
            "the program does not end".to_owned()
        })?;
        ensure(counted() == 2, || format!("it counts {}", counted()))?;
        machine.manage(Hypercall::CellDestroy, cell)?;
        machine.expect_no_fault()
    });
}
