// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Attacks of a hostile root on a cell, and on the hypervisor.

use rampart_hypervisor_cells::remote::{ENTRY, INTERRUPTS, TIMER_TICKS};
use rampart_hypervisor_core::configuration::build::Blob;
use rampart_hypervisor_core::format::{MemoryFlags, RegisterGrant};
use rampart_hypervisor_core::interface::{CellState, Hypercall, Outcome, StopReason};
use rampart_ring::program_header;

use crate::machine::{
    AFFINITY_INFO, BLOBS, CODE_BYTES, COUNT_AND_TURN_OFF, CPU_OFF, CPU_ON, Cell, Clock, DATA,
    DISTRIBUTOR, Differences, HVC, HYPERVISOR, ISB, MASK, MODELS, Machine, NEWEST_FIRST, ONE,
    OTHER, RAM, RAM_BYTES, REDISTRIBUTORS, SMC, STORE, STORE_WORD, UNMASK, WITNESS, WITNESS_CPU,
    and_firmware, and_gicv2, ensure, name, on, on_with, on_with_differences, region, register,
    root, system, write_register,
};

/// A shared interrupt without a device (QEMU, hw/arm/virt.c: `a15irqmap`).
const INTERRUPT: u64 = 250;
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

/// The root routes an interrupt of its own to the witness's CPU before the witness exists, and sets it pending for
/// ever, with both triggers. Then it disables whatever it can: the distributor, the frame of the witness's CPU.
#[test]
fn the_root_neither_sends_nor_disables_an_interrupt_of_a_cell() {
    on(&MODELS, |machine| {
        let (word, bit) = (INTERRUPT / 32 * 4, 1 << (INTERRUPT % 32));
        for interrupt in [INTERRUPT, INTERRUPT + 1] {
            let at = DISTRIBUTOR + ROUTE + 8 * interrupt;
            machine.access(root(0), STORE, at, WITNESS_CPU as u64)?;
            machine.set_device(
                root(0),
                DISTRIBUTOR + PRIORITY + interrupt / 4 * 4,
                0x8080_8080,
            )?;
        }
        // The first is edge-triggered.
        let trigger = DISTRIBUTOR + TRIGGER + INTERRUPT / 16 * 4;
        machine.set_device(root(0), trigger, 2 << (INTERRUPT % 16 * 2))?;
        machine.set_device(root(0), DISTRIBUTOR + ENABLE + word, 3 * bit)?;
        let witness = machine.start_witness_after(|| {
            machine.set_device(root(0), DISTRIBUTOR + SET_PENDING + word, 3 * bit)
        })?;
        witness.check()?;
        let at = DISTRIBUTOR + SET_PENDING + word;
        machine.repeat(root(0), &[STORE_WORD], &[at, 3 * bit]);
        let checked = witness.check();
        machine.end(root(0))?;
        checked?;
        disable_all(machine)?;
        witness.check()?;
        machine.manage(Hypercall::CellDestroy, witness.number)?;
        machine.turn_on(WITNESS_CPU as u64)
    });
}

/// Writes the registers by which the root could disable interrupts of the witness, and expects no change of those that
/// all cells share.
fn disable_all(machine: &Machine) -> crate::machine::Attacked {
    // GICD_CTLR; GICR_CTLR, GICR_WAKER, GICR_PROPBASER and GICR_PENDBASER of the witness's CPU and of the root's.
    let frame = |cpu: u64| private_frame(cpu) - 0x1_0000;
    let of_frame = |cpu| [0x00, 0x14, 0x70, 0x74, 0x78, 0x7c].map(|offset| frame(cpu) + offset);
    let shared = [of_frame(WITNESS_CPU as u64), of_frame(0)].concat();
    // Those of another cell's CPU read as 0; the witness shows whether they have changed.
    for register in shared.into_iter().chain([DISTRIBUTOR]) {
        let before = machine.device(root(0), register)?;
        for value in [0, 1, 1 << 1, u64::from(u32::MAX)] {
            machine.set_device(root(0), register, value)?;
            machine.access(root(0), STORE, register & !7, value << 32 | value)?;
        }
        let after = machine.device(root(0), register)?;
        ensure(before == after, || {
            format!("the root changes {register:#x} from {before:#x} to {after:#x}")
        })?;
    }
    // Group, its modifier, NSACR; clear-enable, clear-pending, clear-active; the lowest priority.
    let all = u64::from(u32::MAX);
    for (register, value) in [
        (0x80, 0),
        (0x80, all),
        (0xd00, all),
        (0xe00, all),
        (0x180, all),
        (0x280, all),
        (0x380, all),
        (PRIORITY + 24, all),
    ] {
        let own = private_frame(WITNESS_CPU as u64) + register;
        for register in [own, DISTRIBUTOR + register] {
            machine.set_device(root(0), register, value)?;
        }
    }
    Ok(())
}

/// The root sets private interrupts pending, active and enabled for the witness's CPU: while the CPU is off, and while
/// the witness runs. It sends software interrupts.
#[test]
fn private_interrupts_of_a_parked_cpu_do_not_reach_its_next_owner() {
    on(&NEWEST_FIRST, |machine| {
        let frame = private_frame(WITNESS_CPU as u64);
        let plant = || {
            for word in 0..8 {
                machine.set_device(root(0), frame + PRIORITY + 4 * word, 0)?;
            }
            machine.set_device(root(0), frame + TRIGGER + 4, u64::from(u32::MAX))?;
            machine.set_device(root(0), frame + SET_PENDING, 0x00c0_ffff)?;
            machine.set_device(root(0), frame + SET_ACTIVE, 1 << 27 | 1 << 30)?;
            machine.set_device(root(0), frame + ENABLE, u64::from(u32::MAX))
        };
        let witness = machine.start_witness_after(plant)?;
        witness.check()?;
        plant()?;
        send_all(machine)?;
        witness.check()?;
        machine.manage(Hypercall::CellDestroy, witness.number)?;
        machine.turn_on(WITNESS_CPU as u64)
    });
}

/// Sends software interrupts of all numbers by all registers to all CPUs.
fn send_all(machine: &Machine) -> crate::machine::Attacked {
    for number in 0..16 {
        for send in register::SEND {
            for value in [0xf, 1 << 40] {
                let value = value | number << 24;
                machine.run(root(0), &[write_register(send, 0), ISB], &[value])?;
            }
        }
    }
    Ok(())
}

/// The root reads, writes and executes memory of the witness and of the hypervisor, and uses both as arguments.
#[test]
fn the_root_has_no_access_to_memory_of_others() {
    on(&and_gicv2(&NEWEST_FIRST), |machine| {
        let witness = machine.start_witness()?;
        let (secret, _) = witness.secret();
        for address in [WITNESS, secret, HYPERVISOR, HYPERVISOR + 0x10_0000] {
            let before = machine.word(address);
            let loaded = machine.load(root(1), address)?;
            ensure(loaded.is_none(), || format!("the root reads {address:#x}"))?;
            machine.access(root(1), STORE, address, !before)?;
            ensure(machine.word(address) == before, || {
                format!("the root writes {address:#x}")
            })?;
            // br x0
            let ran = machine.access(root(1), 0xd61f_0000, address, 0)?;
            ensure(ran.is_none(), || format!("the root executes {address:#x}"))?;
            for bytes in [0, 8, 200, 4096, 1 << 20, u64::MAX - 8] {
                let (outcome, _) = machine.call(root(1), Hypercall::CellCreate, address, bytes)?;
                ensure(outcome < 0, || format!("creates from {address:#x}"))?;
            }
        }
        for start in [0, DISTRIBUTOR, BLOBS + 1, u64::MAX, 1 << 40, 1 << 47] {
            let (outcome, _) = machine.call(root(1), Hypercall::CellCreate, start, 4096)?;
            ensure(outcome < 0, || format!("creates from {start:#x}"))?;
        }
        witness.check()?;
        machine.expect_no_fault()
    });
}

/// One CPU of the root leaves, another makes a cell, and the first reads it.
#[test]
fn no_cpu_leaves_alone() {
    let soon = Differences {
        rendezvous_microseconds: 1_000_000,
        ..Differences::default()
    };
    let models = and_gicv2(&and_firmware(&MODELS));
    on_with_differences(&models, &system(), &soon, |machine| {
        machine.expect_launched()?;
        // It waits for the others, and fails.
        let (left, _) = machine.call(root(1), Hypercall::Disable, 0, 0)?;
        let witness = match machine.start_witness() {
            Ok(witness) => witness,
            // All or none: with a CPU that has left no cell may be created.
            Err(error) if left == 0 => {
                ensure(machine.is_done(root(0)), || error)?;
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let (address, value) = witness.secret();
        let loaded = machine.load(root(1), address)?;
        ensure(loaded != Some(value), || {
            "a CPU that has left reads a cell".to_owned()
        })?;
        let (outcome, _) = machine.call(root(1), Hypercall::Disable, 0, 0)?;
        let refused = outcome == Outcome::WrongState as i64;
        ensure(refused, || {
            format!("leaves while a cell exists: {}", name(outcome))
        })?;
        witness.check()
    });
}

/// All CPUs leave, one of them turned off; in each order.
#[test]
fn all_cpus_leave() {
    on(&and_gicv2(&and_firmware(&NEWEST_FIRST)), |machine| {
        machine.turn_off(2)?;
        let disable = u64::from(u32::from(Hypercall::Disable));
        let order = [1, 0, 3].map(root);
        // On a busy machine the CPU that is off may be too late for the hypervisor. Then all stay, as they do for the
        // driver, and all try again.
        let clock = Clock::start();
        loop {
            for cpu in order {
                machine.begin(cpu, &[HVC], &[disable]);
            }
            let mut outcomes = Vec::new();
            for cpu in order {
                let [outcome, ..] = machine.finish(cpu)?;
                outcomes.push(outcome as i64);
            }
            if outcomes == [0; 3] {
                break;
            }
            let late = outcomes.iter().all(|outcome| {
                let refused = [Outcome::TimedOut, Outcome::Busy].map(|outcome| outcome as i64);
                refused.contains(outcome)
            });
            ensure(late && !clock.is_over(machine), || {
                format!(
                    "{:?}",
                    outcomes.iter().map(|one| name(*one)).collect::<Vec<_>>()
                )
            })?;
        }
        // Now by the firmware.
        let off = || {
            let result = machine.run(root(0), &[SMC], &[AFFINITY_INFO, 2, 0]);
            result.is_ok_and(|[result, ..]| result == 1)
        };
        ensure(machine.wait(off), || "CPU 2 is left behind".to_owned())?;
        let loaded = machine.load(root(3), HYPERVISOR)?;
        ensure(loaded == Some(machine.word(HYPERVISOR)), || {
            "stage 2 remains".to_owned()
        })
    });
}

/// The configuration has memory that the monitor cannot map.
#[test]
fn memory_beyond_the_monitor_is_refused() {
    let beyond = 1 << 39;
    let mut configuration = system();
    let all = DATA | MemoryFlags::EXECUTE;
    configuration
        .memory
        .push(region(beyond, beyond, CODE_BYTES, all));
    on_with(&and_gicv2(&MODELS), &configuration, |machine| {
        let launched = machine.outcome_of_launch(0);
        let launched = launched.ok_or("the launch does not end")?;
        if launched != 0 {
            let expected = [Outcome::Refused, Outcome::Unsuitable, Outcome::Exhausted];
            let expected = expected.iter().any(|outcome| *outcome as i64 == launched);
            return ensure(expected, || format!("the launch: {}", name(launched)));
        }
        machine.expect_launched()?;
        machine.turn_off(2)?;
        let mut blob = ONE.blob();
        blob.memory.push(region(beyond, 0x7000_0000, 0x1000, DATA));
        let (outcome, _) = machine.try_create(&blob)?;
        ensure(outcome < 0, || {
            "a cell has memory beyond the monitor".to_owned()
        })?;
        machine.start_witness()?.check()?;
        machine.turn_on(2)?;
        machine.expect_no_fault()
    });
}

/// One CPU of the root turns another on for ever, which turns itself off at once, while a third makes and destroys a
/// cell with it.
#[test]
fn a_cpu_has_one_owner_while_it_is_turned_on_and_off() {
    const AT: u64 = BLOBS + 0x8000;
    const COUNT: u64 = AT + 0x1000;
    on(&and_gicv2(&and_firmware(&NEWEST_FIRST)), |machine| {
        let witness = machine.start_witness()?;
        machine.turn_off(2)?;
        for (index, instruction) in (0..).zip(COUNT_AND_TURN_OFF) {
            machine.write(AT + 4 * index, &instruction.to_le_bytes());
        }
        machine.repeat(root(1), &[SMC], &[CPU_ON, 2, AT, COUNT]);
        let counts = |from: u64| machine.wait(|| machine.word(COUNT) > from + 3);
        ensure(counts(0), || "CPU 2 does not start".to_owned())?;
        for round in 0..12 {
            let clock = Clock::start();
            let (outcome, [cell, ..]) = loop {
                let created = machine.try_create(&ONE.blob())?;
                if created.0 != Outcome::CpuInUse as i64 || clock.is_over(machine) {
                    break created;
                }
            };
            ensure(outcome == 0, || {
                format!("round {round}: create: {}", name(outcome))
            })?;
            let count = machine.word(COUNT);
            std::thread::sleep(std::time::Duration::from_millis(3));
            let same = machine.word(COUNT) == count;
            ensure(same, || {
                format!("round {round}: the root runs on a cell's CPU")
            })?;
            machine.write(ONE.memory, &vec![0; CODE_BYTES as usize]);
            machine.load_and_start(cell, &ONE.blob(), "rampart-cell-remote")?;
            let begun = machine.wait(|| machine.value(ONE.cpu(0), ENTRY) != 0);
            ensure(begun, || format!("round {round}: the cell does not begin"))?;
            let same = machine.word(COUNT) == count;
            ensure(same, || {
                format!("round {round}: the root's program runs in a cell")
            })?;
            machine.manage(Hypercall::CellDestroy, cell)?;
            ensure(counts(count), || {
                format!("round {round}: CPU 2 does not return")
            })?;
        }
        machine.end(root(1))?;
        witness.check()?;
        machine.expect_no_fault()
    });
}

/// The root creates a cell with much memory. Interrupts of the root's timer are taken meanwhile, and a bell of another
/// cell never waits.
#[test]
fn long_work_delays_no_one() {
    const BIG: Cell = Cell {
        name: "big",
        cpus: &[1],
        memory: 0x6400_0000,
    };
    const BIG_BYTES: u64 = 64 << 20;
    on(&MODELS[..3], |machine| {
        let witness = machine.start_witness()?;
        machine.start_hostile(&ONE, &ONE.blob())?;
        machine.turn_off(1)?;
        let mut blob = BIG.blob();
        blob.memory[0].bytes = BIG_BYTES;
        let bytes = blob.bytes();
        machine.write(BLOBS, &bytes);
        let bell = u64::from(u32::from(Hypercall::Doorbell));
        machine.repeat(ONE.cpu(0), &[HVC], &[bell, 0]);
        let enable = private_frame(0) + ENABLE;
        machine.set_device(root(0), enable, 1 << 27)?;
        machine.set_value(root(0), TIMER_TICKS, 62_500);
        let taken = || machine.value(root(0), INTERRUPTS + 27);
        for call in [Hypercall::CellCreate, Hypercall::CellDestroy] {
            let (first, second) = match call {
                Hypercall::CellCreate => (BLOBS, bytes.len() as u64),
                _ => (3, 0),
            };
            let call_number = u64::from(u32::from(call));
            let before = taken();
            let code = [
                write_register(register::PRIORITY_MASK, 5),
                write_register(register::ENABLE_GROUP_1, 6),
                write_register(register::TIMER_VALUE, 4),
                write_register(register::TIMER_CONTROL, 6),
                UNMASK,
                HVC,
                MASK,
            ];
            let arguments = [call_number, first, second, 0, 62_500, 0xf0, 1];
            let [outcome, ..] = machine.run(root(0), &code, &arguments)?;
            ensure(outcome == 0, || {
                format!("{call:?}: {}", name(outcome as i64))
            })?;
            let taken = taken() - before;
            ensure(taken > 5, || {
                format!("{call:?}: the root takes {taken} interrupts meanwhile")
            })?;
        }
        machine.end(ONE.cpu(0))?;
        let busy = machine.value(ONE.cpu(0), rampart_hypervisor_cells::remote::BUSY);
        let runs = machine.value(ONE.cpu(0), rampart_hypervisor_cells::remote::RUNS);
        ensure(runs > 100, || format!("a cell makes {runs} calls"))?;
        ensure(busy == 0, || {
            format!("a cell waits for the root in {busy} of {runs} calls")
        })?;
        witness.check()
    });
}

/// What a cell has computed stays its own after it was stopped.
#[test]
fn the_root_does_not_see_what_a_stopped_cell_computed() {
    on(&and_gicv2(&MODELS[..2]), |machine| {
        let cell = machine.start_hostile(&ONE, &ONE.blob())?;
        let secret = 0x5ec2_e700_0000_0001;
        let offset = 0x8_0000;
        let at = crate::machine::CODE_START + offset;
        machine.access(ONE.cpu(0), STORE, at, secret)?;
        let written = machine.word(ONE.memory + offset) == secret;
        ensure(written, || "the cell does not write".to_owned())?;
        machine.manage(Hypercall::CellStop, cell)?;
        let loaded = machine.load(root(1), ONE.memory + offset)?;
        ensure(loaded.is_none(), || {
            "the root reads a stopped cell".to_owned()
        })?;
        machine.call(root(0), Hypercall::CellLoadable, cell, 0)?;
        let loaded = machine.load(root(1), ONE.memory + offset)?;
        ensure(loaded != Some(secret), || {
            "the root reads what the cell computed".to_owned()
        })?;
        machine.manage(Hypercall::CellDestroy, cell)
    });
}

/// All CPUs of the root make management calls at once, and change a configuration during the call.
#[test]
fn management_calls_at_once_end() {
    on(&and_gicv2(&MODELS[..3]), |machine| {
        let witness = machine.start_witness()?;
        machine.turn_off(2)?;
        let bytes = OTHER_ON_2.blob().bytes();
        machine.write(BLOBS, &bytes);
        let number = |call: Hypercall| u64::from(u32::from(call));
        // Create, load, start, stop, destroy: hvc, then with the same cell.
        let create = [number(Hypercall::CellCreate), BLOBS, bytes.len() as u64];
        machine.repeat(root(0), &[HVC], &create);
        machine.repeat(root(1), &[HVC], &[number(Hypercall::CellDestroy), 2]);
        for cpu in [0, 1] {
            machine.wait_for_runs(root(cpu), CALLS)?;
        }
        machine.end(root(0))?;
        machine.end(root(1))?;
        // Now one CPU changes the address of the memory for ever, to the witness's and back, with `str x1, [x0]` and
        // `str x2, [x0]`. The other one destroys, creates, and writes what it may load then: the witness's header.
        // With one page, so that there are many calls.
        let mut hostile = OTHER_ON_2.blob();
        hostile.memory[0].bytes = 0x1000;
        let bytes = hostile.bytes();
        machine.write(BLOBS, &bytes);
        hostile.memory[0].physical = WITNESS;
        let differs = |(one, other)| one != other;
        let at = bytes.iter().zip(&hostile.bytes()).position(differs);
        let at = BLOBS + at.ok_or("the configurations are the same")? as u64 / 8 * 8;
        let changes = [0xf900_0001, 0xf900_0002].repeat(20);
        machine.repeat(root(1), &changes, &[at, WITNESS, OTHER_ON_2.memory]);
        let write = [
            0x9100_1080, // add x0, x4, #4
            0xd280_0041, // mov x1, #2
            HVC,
            0xaa04_03e0, // mov x0, x4; mov x1, x5; mov x2, x6
            0xaa05_03e1,
            0xaa06_03e2,
            HVC,
            0x9100_0480, // add x0, x4, #1
            0xd280_0041, // mov x1, #2
            HVC,
            0xf900_00e7, // str x7, [x7]
        ];
        let header = [WITNESS + program_header::OFFSET as u64];
        machine.repeat(root(0), &write, &[&[0; 4], &create[..], &header].concat());
        for cpu in [0, 1] {
            machine.wait_for_runs(root(cpu), ROUNDS_OF_CALLS)?;
        }
        machine.end(root(0))?;
        machine.end(root(1))?;
        machine.call(root(0), Hypercall::CellDestroy, 2, 0)?;
        machine.turn_on(2)?;
        witness.check()?;
        machine.expect_headers()?;
        machine.expect_no_fault()
    });
}

/// Calls of each CPU, and rounds of four of them.
const CALLS: u64 = 2000;
const ROUNDS_OF_CALLS: u64 = 300;
const OTHER_ON_2: Cell = Cell {
    cpus: &[2],
    ..OTHER
};

/// The root turns itself off, or the machine, while a cell exists.
#[test]
fn the_root_does_not_turn_the_machine_off() {
    on(&and_gicv2(&and_firmware(&MODELS[..3])), |machine| {
        let witness = machine.start_witness()?;
        // SYSTEM_OFF, SYSTEM_RESET, CPU_OFF, and functions of newer versions.
        for (cpu, function) in [(1, 0x8400_0008), (2, 0x8400_0009)] {
            machine.begin(root(cpu), &[SMC], &[function]);
        }
        for function in [
            0x8400_000e,
            0xc400_000e,
            0x8400_0012,
            0xc400_0012,
            0x8400_000c,
        ] {
            machine.run(root(0), &[SMC], &[function])?;
        }
        witness.check()?;
        machine.begin(root(0), &[SMC], &[CPU_OFF]);
        witness.check()?;
        machine.expect_running()
    });
}

/// A cell is destroyed before its CPU has started: the CPU stays off in the root.
#[test]
fn a_start_does_not_outlive_its_cell() {
    on(&and_gicv2(&MODELS[..3]), |machine| {
        let witness = machine.start_witness()?;
        machine.turn_off(2)?;
        let blob = ONE.blob();
        for round in 0..20 {
            let cell = machine.create(&blob)?;
            machine.manage(Hypercall::CellLoadable, cell)?;
            machine.write_program(&blob, "rampart-cell-remote");
            // Both calls at once, so that the CPU may not have begun: `mov x0, x4`, `mov x1, x5`.
            let code = [HVC, 0xaa04_03e0, 0xaa05_03e1, HVC];
            let [start, destroy] = [Hypercall::CellStart, Hypercall::CellDestroy];
            let [start, destroy] = [start, destroy].map(|call| u64::from(u32::from(call)));
            let arguments = [start, cell, 0, 0, destroy, cell];
            let [outcome, ..] = machine.run(root(0), &code, &arguments)?;
            ensure(outcome == 0, || {
                format!("destroy: {}", name(outcome as i64))
            })?;
            for _ in 0..3 {
                let [info, ..] = machine.run(root(0), &[SMC], &[AFFINITY_INFO, 2, 0])?;
                ensure(info == 1, || {
                    format!("round {round}: the root's CPU is {info}, not off")
                })?;
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        }
        machine.turn_on(2)?;
        witness.check()?;
        machine.expect_no_fault()
    });
}

/// A CPU of the root writes a word of memory for ever while another one gives it to a cell, loads and starts the cell,
/// and destroys it; and it counts in the page beside, whose block the hypervisor splits and merges meanwhile.
#[test]
fn stores_of_another_cpu_end_when_a_cell_gets_the_memory() {
    const PATTERN: u64 = 0x5a5a_1234_5678_9abc;
    const PRIVATE: u64 = ONE.memory + 0x40_0000;
    const BESIDE: u64 = PRIVATE + 0x1000;
    let code = [
        0xf940_0043, // ldr x3, [x2]
        0x9100_0463, // add x3, x3, #1
        0xf900_0043, // str x3, [x2]
        STORE,
    ];
    on(&and_gicv2(&MODELS), |machine| {
        let witness = machine.start_witness()?;
        let mut blob = ONE.blob();
        blob.memory.push(region(PRIVATE, 0x7000_0000, 0x1000, DATA));
        let count = || machine.word(BESIDE);
        for (target, loaded) in [(PRIVATE, false), (ONE.memory + 0x1c_0000, true)] {
            let expect = |expected: u64, when: &str| {
                let from = count();
                ensure(machine.wait(|| count() > from + 20), || {
                    format!("{when}: the root cannot write beside")
                })?;
                let found = machine.word(target);
                ensure(found == expected, || {
                    format!("{when}: {target:#x} has {found:#x}, expected {expected:#x}")
                })
            };
            machine.turn_off(2)?;
            machine.repeat(root(1), &code, &[target, PATTERN, BESIDE]);
            expect(PATTERN, "before the cell exists")?;
            let cell = machine.create(&blob)?;
            expect(0, "after the creation")?;
            machine.manage(Hypercall::CellLoadable, cell)?;
            expect(if loaded { PATTERN } else { 0 }, "while it is loaded")?;
            machine.write_program(&blob, "rampart-cell-remote");
            machine.manage(Hypercall::CellStart, cell)?;
            machine.set(target, 1);
            expect(1, "while the cell runs")?;
            machine.manage(Hypercall::CellStop, cell)?;
            expect(1, "while it is stopped")?;
            machine.manage(Hypercall::CellDestroy, cell)?;
            expect(PATTERN, "after the cell")?;
            machine.end(root(1))?;
            machine.turn_on(2)?;
        }
        witness.check()?;
        machine.expect_no_fault()
    });
}

/// Returns GICR_CTLR.EnableLPIs (Arm IHI 0069, 12.11.2) of a CPU of the root.
fn delivers_messages(machine: &Machine, cpu: u64) -> Result<bool, String> {
    let control = private_frame(cpu) - 0x1_0000;
    Ok(machine.device(root(cpu), control)? & 1 != 0)
}

/// The root has turned on message-signalled interrupts (LPIs) on all CPUs before the launch: by its tables, which no one
/// else can write, they would reach a cell.
#[test]
fn no_message_of_the_root_reaches_a_cell() {
    on(&crate::machine::SMMU, |machine| {
        let of_root = delivers_messages(machine, WITNESS_CPU as u64)?;
        ensure(of_root, || "the machine has no LPIs".to_owned())?;
        let witness = machine.start_witness()?;
        witness.check()?;
        machine.manage(Hypercall::CellDestroy, witness.number)?;
        machine.turn_on(WITNESS_CPU as u64)?;
        let still = delivers_messages(machine, WITNESS_CPU as u64)?;
        ensure(!still, || {
            "a CPU of a cell takes LPIs of the root".to_owned()
        })?;
        ensure(delivers_messages(machine, 1)?, || {
            "the root has lost its LPIs".to_owned()
        })
    });
}

/// The hypervisor itself faults, on an address without memory or device: in accesses of two cells and of the root to a
/// shared register, and in calls that create and destroy a cell. Whatever it held is free afterwards.
#[test]
fn a_fault_of_the_hypervisor_leaves_its_locks_free() {
    /// Addresses that QEMU's machine leaves free, in the root's devices and after the memory.
    const REGISTER: u64 = 0x09ff_f000;
    const MEMORY: u64 = RAM + RAM_BYTES;
    let mut configuration = system();
    configuration
        .memory
        .push(region(MEMORY, MEMORY, CODE_BYTES, DATA));
    on_with(&and_gicv2(&NEWEST_FIRST), &configuration, |machine| {
        machine.expect_launched()?;
        let witness = machine.start_witness()?;
        for (cell, bit) in [(ONE, 1), (OTHER, 2)] {
            let registers = vec![RegisterGrant {
                address: REGISTER,
                readable: bit,
                writable: bit,
                width: 4,
                flags: 0,
            }];
            let blob = Blob {
                registers,
                ..cell.blob()
            };
            let number = machine.start_hostile(&cell, &blob)?;
            machine.begin(cell.cpu(0), &[STORE_WORD], &[REGISTER, 3]);
            let condition = || machine.status().cells[number as usize].condition();
            machine.wait(|| condition().state == CellState::Failed);
            let found = condition();
            ensure(found.stop_reason == StopReason::Hypervisor, || {
                format!("{}: {found:?}", cell.name)
            })?;
            if cell.name == OTHER.name {
                machine.manage(Hypercall::CellDestroy, number)?;
                machine.turn_on(1)?;
            }
        }
        // The other bits are the root's.
        for _ in 0..2 {
            machine.begin(root(1), &[STORE_WORD], &[REGISTER, 4]);
            machine.expect_off(1)?;
            machine.turn_on(1)?;
        }
        let mut blob = OTHER.blob();
        blob.memory.push(region(MEMORY, 0x7000_0000, 0x1000, DATA));
        machine.turn_off(1)?;
        let (created, _) = machine.try_create(&blob)?;
        let (destroyed, _) = machine.call(root(0), Hypercall::CellDestroy, 3, 0)?;
        for (call, outcome) in [("create", created), ("destroy", destroyed)] {
            ensure(outcome == Outcome::Faulted as i64, || {
                format!("{call}: {}", name(outcome))
            })?;
        }
        let (outcome, _) = machine.call(root(0), Hypercall::CellStop, 2, 0)?;
        ensure(outcome == 0, || format!("stop: {}", name(outcome)))?;
        witness.check()
    });
}
