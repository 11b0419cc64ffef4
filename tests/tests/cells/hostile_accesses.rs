// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Accesses for which the hypervisor gets no address, no register or no syndrome: by table walks, by instructions other
//! than loads and stores of one register, and calls of the firmware and the debugger's lock.

use rampart_hypervisor_cells::remote::{EXCEPTIONS, PHYSICAL_TIMER, SYNDROME};
use rampart_hypervisor_core::configuration::build::Blob;
use rampart_hypervisor_core::format::{MemoryFlags, SmcGrant};
use rampart_hypervisor_core::interface::{CellState, Exit, Hypercall, StopReason};

use crate::machine::{
    Attacked, CODE_START, DATA, DISTRIBUTOR, ERET, HVC, HYPERVISOR, ISB, LOAD, MODELS, Machine,
    ONE, PORT, RAM, REDISTRIBUTORS, SHARED, SMC, SPIN, WFI, WITNESS, and_gicv2, ensure, on,
    on_with, read_register, region, register, root, system, write_register,
};

/// TTBR0_EL1, TTBR1_EL1 and OSLSR_EL1.
const TABLES: [u32; 5] = [3, 0, 2, 0, 0];
const UPPER_TABLES: [u32; 5] = [3, 0, 2, 0, 1];
const LOCK_STATUS: [u32; 5] = [2, 0, 1, 1, 4];

/// A cell's own translation tables are at addresses that are not its memory: in frames of the interrupt controller, which
/// are emulated for loads and stores, in a device, and in memory of others. Each walk ends the cell, also one that would
/// update the table.
#[test]
fn a_table_of_a_cell_outside_its_memory_ends_the_cell() {
    on(&and_gicv2(&MODELS[..3]), |machine| {
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
            // T0SZ, T1SZ, TG1, 40 bits of addresses; EPD1. Then with updates by the hardware (HA, HD).
            let both = 25 | 25 << 16 | 2 << 30 | 2 << 32;
            let control = 25 | 1 << 23 | 2 << 32;
            for (control, fetches) in [control, both]
                .into_iter()
                .flat_map(|control| [control, control | 3 << 39])
                .zip([true, true, false, false])
            {
                let cell = machine.start_hostile(&ONE, &ONE.blob())?;
                // The walk is that of a fetch, or of a load: its code has a table of its own.
                let own = 0x19_0000;
                machine.set(ONE.memory + own + 8, CODE_START | 1 | 3 << 8 | 1 << 10);
                let [lower, upper] = if fetches { [0, 3] } else { [3, 0] };
                let code = [
                    write_register(TABLES, lower),
                    write_register(UPPER_TABLES, upper),
                    write_register(register::TRANSLATION_CONTROL, 1),
                    ISB,
                    write_register(register::SYSTEM_CONTROL, 2),
                    ISB,
                    // ldr x0, [x4]
                    0xf940_0080,
                    SPIN,
                ];
                let arguments = [at, control, 0x30d0_0801, CODE_START + own, u64::MAX << 39];
                machine.begin(ONE.cpu(0), &code, &arguments);
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

/// The root's own tables are in memory that it may only read, and the CPU would update them (HA, HD): it takes an
/// exception, and does not try again for ever.
#[test]
fn a_table_of_the_root_that_cannot_be_updated_is_an_exception() {
    on(&MODELS[2..3], |machine| {
        // Memory of a cell that the root reads: the second GiB with the access flag, and again as the third one without.
        let table = 0x6700_0000;
        let mut blob = ONE.blob();
        let flags = DATA | MemoryFlags::SHARED | MemoryFlags::ROOT_READ;
        blob.memory.push(region(table, SHARED, 0x1000, flags));
        let cell = machine.start_hostile(&ONE, &blob)?;
        let block = RAM | 1 | 3 << 8;
        // The first one has the interrupt controller.
        machine.set(table, 1 | 1 << 10);
        machine.set(table + 8, block | 1 << 10);
        machine.set(table + 16, block);
        let set = |control: u64, load: u32| {
            let code = [
                write_register(TABLES, 1),
                write_register(register::TRANSLATION_CONTROL, 2),
                write_register(register::SYSTEM_CONTROL, 3),
                ISB,
                // tlbi vmalle1
                0xd508_871f,
                ISB,
                load,
            ];
            // T0SZ, EPD1, 40 bits of addresses, HA and HD.
            let translation = 25 | 1 << 23 | 2 << 32 | 3 << 39;
            let arguments = [2 * RAM, table, translation, control];
            machine.run(root(1), &code, &arguments)
        };
        let before = machine.value(root(1), EXCEPTIONS);
        set(0x30d0_0801, LOAD)?;
        let taken = machine.value(root(1), EXCEPTIONS) - before;
        set(0x30d0_0800, ISB)?;
        ensure(taken == 1, || format!("the root takes {taken} exceptions"))?;
        let updated = machine.word(table + 16) != block;
        ensure(!updated, || "the CPU writes the table".to_owned())?;
        machine.manage(Hypercall::CellDestroy, cell)?;
        machine.turn_on(2)?;
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
    on(&and_gicv2(&MODELS[..2]), |machine| {
        let witness = machine.start_witness()?;
        // GICD_ISENABLER, and GICR_ISENABLER0 or GICD_ISENABLER0, where the programs enable the timer that wakes them. The
        // software interrupts of a GICv2 are always enabled.
        let timer = 1 << PHYSICAL_TIMER;
        let (private, own) = match machine.model.gicv2 {
            true => (DISTRIBUTOR + 0x100, timer | 0xffff),
            false => (REDISTRIBUTORS + 2 * 0x2_0000 + 0x1_0100, timer),
        };
        for (at, own) in [(DISTRIBUTOR + 0x110, 0), (private, own)] {
            for (what, code) in WITHOUT_SYNDROME {
                let cell = machine.start_hostile(&ONE, &ONE.blob())?;
                let exceptions = || machine.value(ONE.cpu(0), EXCEPTIONS);
                machine.begin(ONE.cpu(0), &[code], &[at, u64::MAX, u64::MAX]);
                let state = || machine.status().cells[cell as usize].condition().state;
                let ended = machine.wait(|| state() == CellState::Failed || exceptions() > 0);
                ensure(ended, || format!("{what}: the cell goes on"))?;
                machine.manage(Hypercall::CellDestroy, cell)?;
                machine.turn_on(2)?;
                let before = machine.value(root(1), EXCEPTIONS);
                machine.run(root(1), &[code], &[at, u64::MAX, u64::MAX])?;
                let after = machine.value(root(1), EXCEPTIONS);
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
    on_with(&and_gicv2(&MODELS[..2]), &system, |machine| {
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
    on(&and_gicv2(&MODELS[..3]), |machine| {
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

/// Instructions at EL0 that trap to the hypervisor, or are undefined: the cell takes an exception, and goes on. Those of
/// vectors and streaming mode trap because cells do not have them.
const AT_EL0: [(&str, u32); 11] = [
    ("mrs x1, s3_3_c15_c0_0", 0xd53b_f001),
    ("msr s3_3_c15_c0_0, x1", 0xd51b_f001),
    ("mrs x1, s3_3_c11_c0_0", 0xd53b_b001),
    ("mrs x1, tpidr2_el0", 0xd53b_d0a1),
    ("rdvl x1, #1", 0x04bf_5021),
    ("smstart", 0xd503_477f),
    ("mrs x1, actlr_el1", 0xd538_1021),
    ("dc cisw, x1", 0xd508_7e41),
    ("hvc #0", HVC),
    ("smc #0", SMC),
    ("wfi", WFI),
];

/// A program at EL0 does not end its cell by what it executes.
#[test]
fn a_cell_takes_the_exceptions_of_its_programs_and_counts_nothing_at_el2() {
    const PROGRAM: u64 = 0x18_0000;
    // svc #0
    const SUPERVISOR_CALL: u32 = 0xd400_0001;
    on(&[MODELS[2], MODELS[4]], |machine| {
        let cell = machine.start_hostile(&ONE, &ONE.blob())?;
        let cpu = ONE.cpu(0);
        // Each at an address of its own: QEMU does not see that code which it has translated is changed from outside.
        for (offset, (what, instruction)) in (PROGRAM..).step_by(16).zip(AT_EL0) {
            let program = [instruction, SUPERVISOR_CALL].map(u32::to_le_bytes);
            machine.write(ONE.memory + offset, &program.concat());
            let before = machine.value(cpu, EXCEPTIONS);
            let code = [
                write_register(register::FEATURE_ACCESS, 0),
                write_register(register::SAVED_STATE, 1),
                write_register(register::RETURN_ADDRESS, 2),
                // ic iallu
                0xd508_751f,
                ISB,
                ERET,
            ];
            let arguments = [u64::MAX, 0x3c0, CODE_START + offset];
            machine
                .run(cpu, &code, &arguments)
                .map_err(|error| format!("{what} at EL0: {error}"))?;
            let taken = machine.value(cpu, EXCEPTIONS) - before;
            ensure(taken == 1, || format!("{what}: {taken} exceptions"))?;
            let class = machine.value(cpu, SYNDROME) >> 26;
            ensure(class != 0x15, || format!("{what} is executed at EL0"))?;
        }
        expect_no_counts_of_the_hypervisor(machine)?;
        machine.manage(Hypercall::CellDestroy, cell)?;
        expect_access_never(machine)?;
        machine.expect_no_fault()
    });
}

/// A cell counts cycles at EL2 alone (PMEVTYPER0_EL0: P, U, NSH), during calls of the hypervisor.
fn expect_no_counts_of_the_hypervisor(machine: &Machine) -> Attacked {
    let set = [
        (register::COUNTER_EVENT, 1 << 31 | 1 << 30 | 1 << 27 | 0x11),
        (register::COUNTER, 0),
        (register::COUNTERS_ENABLE, 1),
        (register::COUNTERS, 1),
    ];
    for (register, value) in set {
        let code = [write_register(register, 0), ISB];
        machine.run(ONE.cpu(0), &code, &[value])?;
    }
    let call = u64::from(u32::from(Hypercall::Interface));
    for _ in 0..20 {
        machine.run(ONE.cpu(0), &[HVC], &[call])?;
    }
    let code = [read_register(register::COUNTER, 0)];
    let [counted, ..] = machine.run(ONE.cpu(0), &code, &[0xbad])?;
    ensure(counted == 0, || format!("a cell counts {counted} at EL2"))
}

/// The root takes the exception of an undefined instruction, which the hypervisor causes (a write of ACTLR_EL1), with
/// PAN as after any other exception: set, unless SCTLR_EL1.SPAN keeps what it was (Arm ARM D1.3.5).
fn expect_access_never(machine: &Machine) -> Attacked {
    const PAN: u64 = 1 << 22;
    const KEEPS: u64 = 1 << 23;
    const CONTROL: u64 = 0x3050_0800;
    for (control, before, after) in [
        (CONTROL, 0, PAN),
        (CONTROL, PAN, PAN),
        (CONTROL | KEEPS, 0, 0),
        (CONTROL | KEEPS, PAN, PAN),
    ] {
        let exceptions = machine.value(root(1), EXCEPTIONS);
        let code = [
            write_register(register::SYSTEM_CONTROL, 0),
            write_register(register::PRIVILEGED_ACCESS_NEVER, 1),
            ISB,
            write_register(register::AUXILIARY_CONTROL, 2),
        ];
        machine.run(root(1), &code, &[control, before])?;
        let taken = machine.value(root(1), EXCEPTIONS) - exceptions;
        let code = [read_register(register::PRIVILEGED_ACCESS_NEVER, 0)];
        let [found, ..] = machine.run(root(1), &code, &[])?;
        ensure(taken == 1 && found == after, || {
            format!(
                "with SCTLR_EL1 {control:#x} and PAN {before:#x}: {found:#x}, {taken} exceptions"
            )
        })?;
    }
    Ok(())
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
    on(&and_gicv2(&MODELS[..3]), |machine| {
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
