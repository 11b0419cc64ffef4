// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Attacks of one hostile cell on the hypervisor, and of two CPUs or two cells together.

use std::time::Duration;

use rampart_hypervisor_cells::remote::{BEGUN, BUSY, ENTRY, INTERRUPTS, RUNS, STAYS_ACTIVE};
use rampart_hypervisor_core::configuration::build::Blob;
use rampart_hypervisor_core::format::{Doorbell, InterruptFlags, InterruptGrant, MemoryFlags};
use rampart_hypervisor_core::interface::Hypercall;

use crate::machine::{
    Attacked, CODE_START, CPU_OFF, CPU_ON, Clock, DATA, DISTRIBUTOR, ERET, HVC, ISB, MASK, MODELS,
    Machine, NEWEST_FIRST, ONE, OTHER, PAIR, REDISTRIBUTORS, SHARED, SMC, SPIN, STORE, STORE_WORD,
    SYSTEM_OFF, SYSTEM_RESET, UNMASK, WFI, and_firmware, and_gicv2, ensure, name, on, on_with,
    read_register, region, register, root, system, write_register,
};

/// Shared interrupts without a device (QEMU, hw/arm/virt.c: `a15irqmap`).
const BELL: u32 = 250;
/// Calls of each CPU in a loop, and starts of a CPU by another.
const CALLS: u64 = 20_000;
const STARTS: u64 = 20_000;
/// Offsets in the distributor and in a redistributor's second frame (Arm IHI 0069, 12.9 and 12.11).
const ENABLE: u64 = 0x100;
const SET_PENDING: u64 = 0x200;
const SET_ACTIVE: u64 = 0x300;
const PRIORITY: u64 = 0x400;
const TRIGGER: u64 = 0xc00;
const ROUTE: u64 = 0x6000;

fn private_frame(cpu: u64) -> u64 {
    REDISTRIBUTORS + cpu * 0x2_0000 + 0x1_0000
}

pub(crate) const fn hypercall(call: Hypercall) -> u64 {
    // The enum's own conversion is no constant.
    call as u32 as u64
}

/// Starts the second CPU of the pair.
pub(crate) fn start_second(machine: &Machine) -> Attacked {
    let (first, second) = (PAIR.cpu(0), PAIR.cpu(1));
    let begun = machine.value(second, BEGUN);
    let entry = machine.value(first, ENTRY);
    let [result, ..] = machine.run(first, &[SMC], &[CPU_ON, 2, entry, second.argument])?;
    ensure(result == 0, || {
        format!("CPU_ON in the pair: {}", result as i64)
    })?;
    let started = machine.wait(|| machine.value(second, BEGUN) != begun);
    ensure(started, || {
        "the second CPU of the pair does not start".to_owned()
    })
}

/// Checks that nothing is set in the root's frame of a CPU that it has started again.
fn expect_clean_frame(machine: &Machine, cpu: u64) -> Attacked {
    let frame = private_frame(cpu);
    for (register, expected) in [
        (ENABLE, 0),
        (SET_PENDING, 0),
        (SET_ACTIVE, 0),
        (PRIORITY, 0xa0a0_a0a0),
        // The two in the middle are the hypervisor's, and read as 0.
        (PRIORITY + 0x18, 0xa000_00a0),
        (TRIGGER + 4, 0),
    ] {
        let found = machine.device(root(0), frame + register)?;
        ensure(found == expected, || {
            format!("register {register:#x} of CPU {cpu}: {found:#x}, expected {expected:#x}")
        })?;
    }
    Ok(())
}

/// One CPU of a cell writes the frame of the other one, which is off, and continues while the root destroys the cell.
#[test]
fn a_cell_leaves_no_interrupt_in_a_siblings_frame() {
    on(&MODELS, |machine| {
        let witness = machine.start_witness()?;
        for while_destroyed in [false, true] {
            let cell = machine.start_hostile(&PAIR, &PAIR.blob())?;
            start_second(machine)?;
            machine.begin(PAIR.cpu(1), &[SMC], &[CPU_OFF]);
            let first = PAIR.cpu(0);
            let is_off = || {
                let [info, ..] = machine
                    .run(first, &[SMC], &[crate::machine::AFFINITY_INFO, 2, 0])
                    .unwrap_or_default();
                info == 1
            };
            ensure(machine.wait(is_off), || {
                "the second CPU does not turn off".to_owned()
            })?;
            let frame = private_frame(2);
            // str w1, [x0]; str w3, [x2]; str w5, [x4]; str w7, [x6]
            let code = [0xb900_0001, 0xb900_0043, 0xb900_0085, 0xb900_00c7];
            let all = u64::from(u32::MAX);
            let low = [frame + PRIORITY, 0, frame + PRIORITY + 0x18, 0];
            let high = [frame + TRIGGER + 4, all, frame + SET_ACTIVE, 1 << 30];
            machine.run(first, &code, &[low, high].concat())?;
            let arguments = [[frame + SET_PENDING, 0x4000_00ff, frame + ENABLE, all], low].concat();
            if while_destroyed {
                machine.repeat(first, &code, &arguments);
            } else {
                machine.run(first, &code, &arguments)?;
            }
            machine.manage(Hypercall::CellDestroy, cell)?;
            for cpu in [2, 1] {
                machine.turn_on_awake(cpu)?;
                expect_clean_frame(machine, cpu)?;
            }
        }
        witness.check()
    });
}

/// A cell sends software interrupts of all numbers by all registers. No CPU of the root and no cell takes one.
#[test]
fn no_software_interrupt_leaves_a_cell() {
    on(&and_firmware(&NEWEST_FIRST), |machine| {
        let witness = machine.start_witness()?;
        machine.start_hostile(&ONE, &ONE.blob())?;
        for cpu in [0, 1] {
            let frame = private_frame(cpu);
            machine.set_device(root(cpu), frame + ENABLE, 0xffff)?;
            let code = [
                write_register(register::PRIORITY_MASK, 0),
                write_register(register::ENABLE_GROUP_1, 1),
                ISB,
            ];
            machine.run(root(cpu), &code, &[0xf0, 1])?;
        }
        // The other CPU takes its own.
        machine.repeat(root(1), &[UNMASK], &[]);
        let send = write_register(register::SEND[0], 0);
        let taken = |cpu: u64| -> u64 {
            (0..16)
                .map(|number| machine.value(root(cpu), INTERRUPTS + number))
                .sum()
        };
        machine.run(root(0), &[send, ISB], &[3 << 24 | 2])?;
        ensure(machine.wait(|| taken(1) == 1), || {
            "the root takes none of its own".to_owned()
        })?;
        for number in 0..16 {
            for register in register::SEND {
                for value in [0xffff, 1 << 40, 1] {
                    let value = value | number << 24;
                    machine.run(ONE.cpu(0), &[write_register(register, 0), ISB], &[value])?;
                }
            }
        }
        machine.end(root(1))?;
        machine.run(root(0), &[UNMASK, ISB, MASK], &[])?;
        ensure(taken(0) == 0 && taken(1) == 1, || {
            format!(
                "the root takes {} and {} software interrupts",
                taken(0),
                taken(1) - 1
            )
        })?;
        witness.check()
    });
}

/// Two CPUs of a cell ring bells for ever: one that exists and one that does not. The root manages cells meanwhile.
#[test]
fn bells_in_a_loop_delay_no_management_call() {
    let grant = InterruptGrant {
        number: BELL,
        flags: InterruptFlags::DOORBELL.bits(),
    };
    let system = Blob {
        interrupts: vec![grant],
        ..system()
    };
    on_with(&and_gicv2(&MODELS[..3]), &system, |machine| {
        machine.expect_launched()?;
        let witness = machine.start_witness()?;
        let doorbells = vec![Doorbell {
            interrupt: BELL,
            reserved: 0,
        }];
        let cell = machine.start_hostile(
            &PAIR,
            &Blob {
                doorbells,
                ..PAIR.blob()
            },
        )?;
        start_second(machine)?;
        for number in [0, 1] {
            let arguments = [hypercall(Hypercall::Doorbell), number];
            machine.repeat(PAIR.cpu(number), &[HVC], &arguments);
        }
        // Calls of the root that fail at once: no cell has this number.
        machine.repeat(root(0), &[HVC], &[hypercall(Hypercall::CellStop), 15]);
        machine.wait_for_runs(root(0), CALLS)?;
        for number in [0, 1] {
            machine.wait_for_runs(PAIR.cpu(number), CALLS)?;
        }
        machine.end(root(0))?;
        let (calls, busy) = (machine.value(root(0), RUNS), machine.value(root(0), BUSY));
        ensure(busy == 0, || {
            format!("{busy} of {calls} calls of the root are busy")
        })?;
        for number in [0, 1] {
            let busy = machine.value(PAIR.cpu(number), BUSY);
            let rings = machine.value(PAIR.cpu(number), RUNS);
            ensure(rings > 0 && busy == 0, || {
                format!("{busy} of {rings} bells are busy")
            })?;
        }
        machine.manage(Hypercall::CellDestroy, cell)?;
        machine.turn_on(1)?;
        machine.turn_on(2)?;
        end_while_turned_on(machine)?;
        witness.check()
    });
}

/// One CPU of a cell turns the cell off while the other one turns it on, and the root stops and destroys it.
fn end_while_turned_on(machine: &Machine) -> Attacked {
    for function in [SYSTEM_OFF, SYSTEM_RESET] {
        let cell = machine.start_hostile(&PAIR, &PAIR.blob())?;
        start_second(machine)?;
        let entry = machine.value(PAIR.cpu(0), ENTRY);
        let first = PAIR.cpu(0).argument;
        machine.repeat(PAIR.cpu(1), &[SMC], &[CPU_ON, 1, entry, first]);
        machine.begin(PAIR.cpu(0), &[SMC], &[function]);
        machine.call(root(0), Hypercall::CellStop, cell, 0)?;
        machine.manage(Hypercall::CellDestroy, cell)?;
        machine.turn_on(1)?;
        machine.turn_on(2)?;
    }
    Ok(())
}

/// One CPU turns the other on and off for ever, which acknowledges the management interrupt if it sees it, and leaves it
/// active. An interrupt of the cell keeps the sleeping CPU awake, so that it sees its order before the interrupt.
#[test]
fn a_cell_cannot_keep_the_management_interrupt_active() {
    const PROGRAM: u64 = 0x18_0000;
    let acknowledge = read_register(register::ACKNOWLEDGE, 1);
    let end = write_register(register::END, 1);
    let program = [
        0xaa00_03f3, // mov x19, x0
        0xd280_1fe1, // mov x1, #0xff
        write_register(register::PRIORITY_MASK, 1),
        0xd280_0021, // mov x1, #1
        write_register(register::ENABLE_GROUP_1, 1),
        ISB,
        0xd280_0802, // mov x2, #64
        acknowledge,
        0xf100_1c3f, // cmp x1, #7
        0x5400_00e0, // b.eq to the store
        end,
        0xf100_0442, // subs x2, x2, #1
        0x54ff_ff61, // b.ne to the acknowledgement
        0x52b0_8000, // movz w0, #0x8400, lsl #16
        0x7280_0040, // movk w0, #2
        SMC,
        0xf900_0261, // str x1, [x19]
        SPIN,
    ];
    on(&and_firmware(&MODELS), |machine| {
        let witness = machine.start_witness()?;
        let interrupts = vec![InterruptGrant {
            number: BELL,
            flags: 0,
        }];
        let cell = machine.start_hostile(
            &PAIR,
            &Blob {
                interrupts,
                ..PAIR.blob()
            },
        )?;
        for (index, instruction) in (0..).zip(program) {
            machine.write(
                PAIR.memory + PROGRAM + 4 * index,
                &instruction.to_le_bytes(),
            );
        }
        let marker = PAIR.memory + PROGRAM + 0x1000;
        let first = PAIR.cpu(0);
        let (word, bit) = (u64::from(BELL) / 32 * 4, 1 << (BELL % 32));
        machine.access(first, STORE, DISTRIBUTOR + ROUTE + 8 * u64::from(BELL), 2)?;
        machine.set_device(first, DISTRIBUTOR + ENABLE + word, bit)?;
        // str w5, [x4]: sets the interrupt pending.
        let at = CODE_START + PROGRAM;
        let arguments = [
            CPU_ON,
            2,
            at,
            at + 0x1000,
            DISTRIBUTOR + SET_PENDING + word,
            bit,
        ];
        machine.repeat(first, &[0xb900_0085, SMC], &arguments);
        machine.wait_for_runs_or(first, STARTS, || machine.word(marker) != 0)?;
        machine.manage(Hypercall::CellDestroy, cell)?;
        machine.turn_on(2)?;
        machine.turn_on(1)?;
        machine.run(root(2), &[ISB], &[])?;
        witness.check()?;
        machine.expect_no_fault()
    });
}

/// What a cell can leave in the registers of its CPU: a name, x0 and x1, and code after which it spins.
type State = (&'static str, [u64; 2], Vec<u32>);

fn with_features(code: &[u32]) -> Vec<u32> {
    [&[write_register(register::FEATURE_ACCESS, 0), ISB], code].concat()
}

fn states() -> Vec<State> {
    let write = write_register;
    let all_features = u64::MAX;
    // mov sp, x1
    let set_stack = 0x9100_003f;
    let returns = vec![
        write(register::SAVED_STATE, 0),
        write(register::RETURN_ADDRESS, 1),
        ERET,
    ];
    vec![
        (
            "a short vector length",
            [all_features, 0],
            with_features(&[write(register::VECTOR_LENGTH, 1), ISB]),
        ),
        // PAN, UAO, DIT, SSBS, TCO.
        ("PAN", [0, 0], vec![0xd500_419f]),
        ("UAO", [0, 0], vec![0xd500_417f]),
        ("DIT", [0, 0], vec![0xd503_415f]),
        ("SSBS", [0, 0], vec![0xd503_413f]),
        ("TCO", [0, 0], vec![0xd503_419f]),
        // msr spsel, #0
        ("SP_EL0", [0, 0], vec![0xd500_40bf]),
        ("an unaligned stack", [0, 3], vec![set_stack]),
        // EE, A, SA, and no MMU.
        (
            "big-endian",
            [0x32d0_080a, 0],
            vec![write(register::SYSTEM_CONTROL, 0), ISB],
        ),
        (
            "single step",
            [1 | 1 << 13 | 1 << 15, 0],
            vec![
                write(register::LOCK, 1),
                write(register::DEBUG_CONTROL, 0),
                0xd503_48ff,
                ISB,
            ],
        ),
        (
            "a breakpoint in the hypervisor",
            [0x7000_1000, 0x1e7 | 1 << 13 | 3 << 14],
            vec![
                write(register::BREAKPOINT, 0),
                write(register::BREAKPOINT_CONTROL, 1),
                0xd292_0020, // mov x0, #0x9001
                write(register::DEBUG_CONTROL, 0),
                ISB,
            ],
        ),
        // An illegal return, to EL2, and AArch32.
        ("an illegal state", [0x3c9, CODE_START], returns.clone()),
        ("AArch32", [0x1d0, CODE_START + 0x18_0000], returns.clone()),
        ("EL0", [0x3c0, CODE_START + 0x18_0000], returns),
        (
            "sleep without interrupts",
            [0, 0],
            vec![
                write(register::PRIORITY_MASK, 0),
                write(register::ENABLE_GROUP_1, 0),
                MASK,
                WFI,
            ],
        ),
        (
            "EOImode and preemption",
            [7, 2],
            vec![
                write(register::BINARY_POINT, 0),
                write(register::CONTROL, 1),
            ],
        ),
        (
            "a timer that fires",
            [0, 1],
            vec![
                write(register::TIMER_VALUE, 0),
                write(register::TIMER_CONTROL, 1),
            ],
        ),
    ]
}

/// `str x3, [x4]`: reports that the CPU is there.
const REPORT: u32 = 0xf900_0083;
/// Where it is reported, as an offset in the cell's memory.
const REPORTED: u64 = 0x19_0000;

/// Begins code in the hostile cell, and waits until it has reported and executed some more instructions.
fn begin_and_reach(machine: &Machine, code: &[u32], arguments: [u64; 2]) -> Attacked {
    let reported = ONE.memory + REPORTED;
    machine.set(reported, 0);
    let [first, second] = arguments;
    let arguments = [first, second, 0, 1, CODE_START + REPORTED];
    machine.begin(ONE.cpu(0), code, &arguments);
    let reached = machine.wait(|| machine.word(reported) == 1);
    std::thread::sleep(Duration::from_millis(2));
    ensure(reached, || "the cell does not execute its code".to_owned())
}

/// Leaves each of the states in a new cell, destroys it, and gives the CPU to the root.
fn expect_returns(machine: &Machine, states: Vec<State>) -> Attacked {
    let witness = machine.start_witness()?;
    for (what, arguments, mut code) in states {
        let failed = |error: String| format!("{what}: {error}");
        let cell = machine.start_hostile(&ONE, &ONE.blob()).map_err(failed)?;
        // `b .` of A64, and of A32.
        let spin = if what == "AArch32" { 0xeaff_fffe } else { SPIN };
        machine.write(ONE.memory + 0x18_0000, &spin.to_le_bytes());
        machine.set_value(ONE.cpu(0), STAYS_ACTIVE, 1);
        code.insert(0, REPORT);
        code.push(SPIN);
        begin_and_reach(machine, &code, arguments).map_err(failed)?;
        machine
            .manage(Hypercall::CellDestroy, cell)
            .map_err(failed)?;
        machine.turn_on(2).map_err(failed)?;
        machine.expect_no_fault().map_err(failed)?;
    }
    witness.check()
}

/// Nothing that a cell leaves in a register makes the hypervisor fault or keeps the CPU.
#[test]
fn every_cpu_returns_whatever_state_it_is_left_in() {
    on(&and_gicv2(&and_firmware(&NEWEST_FIRST)), |machine| {
        expect_returns(machine, states())
    });
}

/// The same for modes of vector registers in which the hypervisor's own instructions would trap.
#[test]
fn a_cpu_in_streaming_mode_returns() {
    on(&MODELS[2..3], |machine| {
        let modes = [
            ("streaming mode", 0xd503_437f),
            ("matrices", 0xd503_457f),
            ("both", 0xd503_477f),
        ];
        let state = |(name, code)| (name, [u64::MAX, 0], with_features(&[code]));
        expect_returns(machine, modes.map(state).to_vec())
    });
}

/// States in which a CPU takes exceptions for ever and reads no memory, because its own translation faults before it
/// reads a table.
fn states_without_memory() -> Vec<State> {
    let write = write_register;
    let set = vec![
        write(register::TRANSLATION_CONTROL, 1),
        write(register::SYSTEM_CONTROL, 0),
        ISB,
    ];
    vec![
        // EPD0 and EPD1; T0SZ and T1SZ.
        (
            "no tables",
            [0x30d0_0801, 25 | 1 << 7 | 25 << 16 | 1 << 23],
            set.clone(),
        ),
        ("a size out of range", [0x30d0_0801, 0], set.clone()),
        ("all of SCTLR_EL1", [u64::MAX, 0], set),
        // Without translation: vectors beyond the physical address size, then an undefined instruction.
        (
            "no vectors",
            [!0x7ff, 0],
            vec![write(register::VECTORS, 0), ISB, 0],
        ),
    ]
}

fn with_security_states(two: bool) -> Vec<crate::machine::Model> {
    let mut models = MODELS.to_vec();
    models.retain(|model| model.two_security_states == two);
    models
}

/// With one security state such a CPU returns.
#[test]
fn a_cpu_whose_own_translation_faults_returns() {
    on(&with_security_states(false), |machine| {
        expect_returns(machine, states_without_memory())
    });
}

/// With two security states it does not, and with one if it acts as if it handled an interrupt that the management
/// interrupt cannot preempt (docs/hypervisor.md, limits): the root gets an answer, the memory stays with the cell, and
/// the rest of the machine continues.
#[test]
fn a_cpu_that_does_not_return_affects_no_one_else() {
    let (_, arguments, translation) = states_without_memory().remove(0);
    // mov x2, #1
    let priority = [
        0xd280_0022,
        write_register(register::ACTIVE_PRIORITIES, 2),
        ISB,
        MASK,
    ];
    let faulting = [&priority[..], &[REPORT], &translation, &[SPIN]].concat();
    on(&and_firmware(&MODELS), |machine| {
        keep_cpu(machine, &faulting, arguments)
    });
    let asleep = [&priority[..], &[REPORT, WFI, WFI, WFI, SPIN]].concat();
    on(&MODELS[..1], |machine| {
        keep_cpu(machine, &asleep, arguments)
    });
}

/// A cell keeps its CPU by this code.
fn keep_cpu(machine: &Machine, code: &[u32], arguments: [u64; 2]) -> Attacked {
    use rampart_hypervisor_core::interface::{Outcome, StopReason};
    let witness = machine.start_witness()?;
    // Some instructions after the report it is in the state in which it cannot be taken.
    let clock = Clock::start();
    let cell = loop {
        let cell = machine.start_hostile(&ONE, &ONE.blob())?;
        begin_and_reach(machine, code, arguments)?;
        let (outcome, _) = machine.call(root(0), Hypercall::CellStop, cell, 0)?;
        if outcome == Outcome::TimedOut as i64 {
            break cell;
        }
        machine.manage(Hypercall::CellDestroy, cell)?;
        machine.turn_on(2)?;
        ensure(!clock.is_over(machine), || {
            "the CPU is always taken".to_owned()
        })?;
    };
    let (outcome, _) = machine.call(root(0), Hypercall::CellDestroy, cell, 0)?;
    let ends = outcome == Outcome::TimedOut as i64;
    ensure(ends, || format!("destroy: {}", name(outcome)))?;
    let reason = machine.status().cells[cell as usize]
        .condition()
        .stop_reason;
    ensure(reason == StopReason::Unreachable, || {
        format!("the cell ended by {reason:?}")
    })?;
    let read = machine.load(root(0), ONE.memory)?;
    ensure(read.is_none(), || {
        "the root reads memory that a CPU may still use".to_owned()
    })?;
    let other = machine.start_hostile(&OTHER, &OTHER.blob())?;
    machine.manage(Hypercall::CellDestroy, other)?;
    machine.turn_on(1)?;
    witness.check()?;
    machine.expect_no_fault()
}

/// Two cells share a region. The reader writes it, one is destroyed under the other, and a new one gets it.
#[test]
fn a_shared_region_has_one_writer_and_no_past() {
    on(&and_gicv2(&MODELS[..3]), |machine| {
        let witness = machine.start_witness()?;
        let physical = 0x6700_0000;
        let shared = |flags: MemoryFlags, cell: &crate::machine::Cell| {
            let mut blob = cell.blob();
            blob.memory.push(region(
                physical,
                SHARED,
                0x1000,
                flags | MemoryFlags::SHARED,
            ));
            blob
        };
        let (writes, reads) = (shared(DATA, &ONE), shared(MemoryFlags::READ, &OTHER));
        let writer = machine.start_hostile(&ONE, &writes)?;
        let reader = machine.start_hostile(&OTHER, &reads)?;
        machine.access(ONE.cpu(0), STORE, SHARED, 77)?;
        let read = machine.load(OTHER.cpu(0), SHARED)?;
        ensure(read == Some(77), || format!("the reader reads {read:?}"))?;
        for address in [physical, ONE.memory, OTHER.memory] {
            let read = machine.load(root(0), address)?;
            ensure(read.is_none(), || format!("the root reads {address:#x}"))?;
        }
        // The reader writes, and fails; the writer is destroyed; a new writer sees the same, because the reader has it.
        machine.begin(OTHER.cpu(0), &[STORE_WORD], &[SHARED, 5]);
        let failed = || {
            let status = machine.status();
            let state = status.cells[reader as usize].condition().state;
            state == rampart_hypervisor_core::interface::CellState::Failed
        };
        ensure(machine.wait(failed), || "the reader writes".to_owned())?;
        ensure(machine.word(physical) == 77, || {
            "the reader has written".to_owned()
        })?;
        machine.manage(Hypercall::CellDestroy, writer)?;
        ensure(machine.word(physical) == 77, || {
            "wiped under the reader".to_owned()
        })?;
        let read = machine.load(root(0), physical)?;
        ensure(read.is_none(), || {
            "the root reads a region that a cell has".to_owned()
        })?;
        // As private memory of another cell.
        machine.turn_on(2)?;
        let mut private = ONE.blob();
        private.memory.push(region(physical, SHARED, 0x1000, DATA));
        machine.turn_off(2)?;
        let (outcome, _) = machine.try_create(&private)?;
        ensure(outcome < 0, || {
            format!("a region becomes private: {}", name(outcome))
        })?;
        machine.manage(Hypercall::CellDestroy, reader)?;
        ensure(machine.word(physical) == 0, || {
            "the region is not wiped".to_owned()
        })?;
        machine.turn_on(1)?;
        machine.turn_on(2)?;
        witness.check()
    });
}

/// Two cells fail at once, again and again, while the root restarts them.
#[test]
fn cells_that_fail_at_once_are_restarted() {
    on(&and_gicv2(&MODELS[..3]), |machine| {
        let witness = machine.start_witness()?;
        let blobs = [(ONE, ONE.blob()), (OTHER, OTHER.blob())];
        let mut cells = Vec::new();
        for (cell, blob) in &blobs {
            cells.push(machine.start_hostile(cell, blob)?);
        }
        for _ in 0..10 {
            for (cell, _) in &blobs {
                machine.begin(cell.cpu(0), &[STORE], &[0x7000_0000, 1]);
            }
            for (number, (cell, blob)) in cells.iter().zip(&blobs) {
                let failed = || {
                    let condition = machine.status().cells[*number as usize].condition();
                    condition.state == rampart_hypervisor_core::interface::CellState::Failed
                };
                ensure(machine.wait(failed), || {
                    format!("cell {} does not fail", cell.name)
                })?;
                machine.manage(Hypercall::CellLoadable, *number)?;
                machine.write_program(blob, "rampart-cell-remote");
                machine.set_value(cell.cpu(0), BEGUN, 0);
                machine.manage(Hypercall::CellStart, *number)?;
                let starts = machine.wait(|| machine.value(cell.cpu(0), BEGUN) != 0);
                ensure(starts, || {
                    format!("cell {} does not start again", cell.name)
                })?;
            }
        }
        for (number, cpu) in cells.into_iter().zip([2, 1]) {
            machine.manage(Hypercall::CellDestroy, number)?;
            machine.turn_on(cpu)?;
        }
        witness.check()?;
        machine.expect_no_fault()
    });
}
