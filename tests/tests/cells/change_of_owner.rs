// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What remains when a CPU or an interrupt changes its owner: registers, routes, the state of the management interrupt.

use rampart_hypervisor_cells::remote::{BEGUN, CODE_WORDS, INTERRUPTS, SKIPS};
use rampart_hypervisor_core::configuration::build::Blob;
use rampart_hypervisor_core::format::InterruptGrant;
use rampart_hypervisor_core::interface::{CellState, Hypercall};

use crate::machine::{
    Attacked, CODE_START, Cell, DISTRIBUTOR, GICV2, INTERFACE, ISB, MODELS, Machine, Model, ONE,
    OTHER, Remote, UNMASK, and_firmware, ensure, on, read_register, register, root, write_register,
};

/// A shared interrupt without a device (QEMU, hw/arm/virt.c: `a15irqmap`).
const INTERRUPT: u64 = 250;
/// Offsets in the distributor (Arm IHI 0069, 12.9; IHI 0048, 4.3), and in GICC (IHI 0048, 4.4).
const ENABLE: u64 = 0x100;
const SET_PENDING: u64 = 0x200;
const PRIORITY_MASK: u64 = 0x04;

/// Makes a CPU take all interrupts that are sent to it.
fn take_interrupts(machine: &Machine, cpu: Remote) -> Attacked {
    if machine.model.gicv2 {
        machine.set_device(cpu, INTERFACE + PRIORITY_MASK, 0xff)?;
        machine.set_device(cpu, INTERFACE, 1)?;
    } else {
        let code = [
            write_register(register::PRIORITY_MASK, 0),
            write_register(register::ENABLE_GROUP_1, 1),
            ISB,
        ];
        machine.run(cpu, &code, &[0xff, 1])?;
    }
    machine.repeat(cpu, &[UNMASK], &[]);
    Ok(())
}

/// Each controller, with one security state and with two.
fn models() -> Vec<Model> {
    MODELS[..3].iter().chain(&GICV2).copied().collect()
}

/// The root gives away the first CPU of the machine, then gets an interrupt back from another cell, and sets it pending.
#[test]
fn an_interrupt_that_returns_to_the_root_does_not_reach_a_cell() {
    const VICTIM: Cell = Cell {
        cpus: &[0],
        ..OTHER
    };
    on(&models(), |machine| {
        machine.manage_from(root(1));
        let interrupts = vec![InterruptGrant {
            number: INTERRUPT as u32,
            flags: 0,
        }];
        let blob = Blob {
            interrupts,
            ..ONE.blob()
        };
        let holder = machine.start_hostile(&ONE, &blob)?;
        let victim = machine.start_hostile(&VICTIM, &VICTIM.blob())?;
        take_interrupts(machine, VICTIM.cpu(0))?;
        machine.manage(Hypercall::CellDestroy, holder)?;
        let (word, bit) = (INTERRUPT / 32 * 4, 1 << (INTERRUPT % 32));
        machine.set_device(root(1), DISTRIBUTOR + ENABLE + word, bit)?;
        machine.set_device(root(1), DISTRIBUTOR + SET_PENDING + word, bit)?;
        take_interrupts(machine, root(1))?;
        let taken = |cpu: Remote| machine.value(cpu, INTERRUPTS + INTERRUPT as usize);
        let arrives = machine.wait(|| taken(root(1)) + taken(VICTIM.cpu(0)) > 0);
        machine.end(root(1))?;
        ensure(arrives && taken(VICTIM.cpu(0)) == 0, || {
            format!(
                "a cell takes {} interrupts of the root",
                taken(VICTIM.cpu(0))
            )
        })?;
        machine.manage(Hypercall::CellDestroy, victim)?;
        machine.turn_on(2)?;
        machine.turn_on(0)?;
        machine.expect_no_fault()
    });
}

/// The management interrupt is active on CPU 2 when the hypervisor is launched, and nobody ends it
/// (`hypervisor/cells/src/bin/hostile_root.rs`). While it is active it wakes no CPU.
#[test]
fn a_management_interrupt_that_stays_active_does_not_keep_a_cpu_asleep() {
    on(&and_firmware(&models()), |machine| {
        machine.turn_off(2)?;
        machine.turn_on(2)?;
        let cell = machine.start_hostile(&ONE, &ONE.blob())?;
        machine.manage(Hypercall::CellDestroy, cell)?;
        machine.turn_on(2)?;
        machine.expect_no_fault()
    });
}

type Register = [u32; 5];

/// Written to every register.
const PATTERN: u64 = 0x0123_4567_89ab_cdef;

/// Returns whether a program can write the register and go on: not the MMU, the vectors and the address of its area, the
/// state of the processor, and registers of the implementation, which are not the hypervisor's to know.
fn is_examined(register: Register) -> bool {
    let [op0, op1, n, m, op2] = register;
    match (op0, op1, n, m) {
        (3, 0, 1, 0) => op2 != 0,
        (3, 0, 2, 0) => op2 != 2,
        (3, 0, 12, 0) => op2 != 0,
        (3, 0, 13, 0) => op2 != 4,
        // The time, and the counts down to it.
        (3, 3, 14, 0) => false,
        (3, 3, 14, 2 | 3) => op2 != 0,
        // Acknowledges and ends interrupts, and sends them.
        (3, 0, 12, 8 | 12) => ![0, 1].contains(&op2) || m == 8 && op2 == 1,
        (3, 0, 12, 11) => op2 == 3,
        // Parts of the processor's state.
        (3, _, 4, 2 | 3) => false,
        (3, _, 11 | 15, _) => false,
        _ => true,
    }
}

fn all_registers() -> Vec<Register> {
    let mut all = Vec::new();
    for [op0, op1] in [[3, 0], [3, 3], [2, 0], [2, 3]] {
        for n in 0..16 {
            for m in 0..16 {
                all.extend((0..8).map(|op2| [op0, op1, n, m, op2]));
            }
        }
    }
    all.retain(|register| is_examined(*register));
    all
}

/// Starts the cell anew if the last access has ended it. Returns whether it had to.
fn revive(machine: &Machine, cell: u64) -> Result<bool, String> {
    if machine.status().cells[cell as usize].condition().state != CellState::Failed {
        return Ok(false);
    }
    begin(machine, cell)?;
    Ok(true)
}

/// Loads and starts the cell, and waits until it executes orders.
fn begin(machine: &Machine, cell: u64) -> Attacked {
    machine.load_and_start(cell, &ONE.blob(), "rampart-cell-remote")?;
    let begun = machine.wait(|| machine.value(ONE.cpu(0), BEGUN) != 0);
    ensure(begun, || "the cell does not begin".to_owned())
}

/// Where the cell stores what it reads: offset in its memory.
const READ: u64 = 0x18_0000;
/// The value of a register that cannot be read.
const NOTHING: u64 = 0x0bad;
/// `mov x1, x3`: the value of a register that cannot be read. `str x1, [x2], #8`
const BEFORE: u32 = 0xaa03_03e1;
const STORE_NEXT: u32 = 0xf800_8441;

/// Returns code that reads a register.
fn reading(register: Register) -> Vec<u32> {
    vec![BEFORE, read_register(register, 1), STORE_NEXT]
}

/// Returns code that writes a register and reads it.
fn writing(register: Register) -> Vec<u32> {
    [&[write_register(register, 0), ISB], &reading(register)[..]].concat()
}

/// Executes the code for each of the registers in the cell, as much as fits in one order at a time. Returns the value
/// that it reads, or `None` after an exception or the end of the cell.
fn attempt_all(
    machine: &Machine,
    cell: u64,
    registers: &[Register],
    code: fn(Register) -> Vec<u32>,
) -> Result<Vec<Option<u64>>, String> {
    let instructions = registers.first().map_or(1, |first| code(*first).len());
    // Two instructions in a word, and the return.
    let fit = (2 * CODE_WORDS - 1) / instructions;
    let mut values = Vec::new();
    for registers in registers.chunks(fit) {
        values.extend(attempt(machine, cell, registers, code)?);
    }
    Ok(values)
}

/// The same for registers whose code fits in one order. If it ends the cell, each half is attempted again in a new one.
fn attempt(
    machine: &Machine,
    cell: u64,
    registers: &[Register],
    code: fn(Register) -> Vec<u32>,
) -> Result<Vec<Option<u64>>, String> {
    let cpu = ONE.cpu(0);
    let count = registers.len() as u64;
    let read = |index: u64| machine.word(ONE.memory + READ + 8 * index);
    (0..count).for_each(|index| machine.set(ONE.memory + READ + 8 * index, NOTHING));
    machine.set_value(cpu, SKIPS, 1);
    let all: Vec<u32> = registers.iter().flat_map(|one| code(*one)).collect();
    machine.begin(cpu, &all, &[PATTERN, 0, CODE_START + READ, NOTHING]);
    let ended = || machine.status().cells[cell as usize].condition().state == CellState::Failed;
    ensure(machine.wait(|| machine.is_done(cpu) || ended()), || {
        format!("an order for {registers:?} does not end")
    })?;
    if !revive(machine, cell)? {
        let value = |index| Some(read(index)).filter(|value| *value != NOTHING);
        return Ok((0..count).map(value).collect());
    }
    if let [_] = registers {
        return Ok(vec![None]);
    }
    let (first, second) = registers.split_at(registers.len() / 2);
    let mut values = attempt(machine, cell, first, code)?;
    values.extend(attempt(machine, cell, second, code)?);
    Ok(values)
}

/// A cell writes every system register that it can. The next owner of the CPU, another cell, reads all of them.
#[test]
fn no_register_keeps_what_the_last_owner_wrote() {
    on(&[MODELS[2], MODELS[4], MODELS[0]], |machine| {
        machine.turn_off(2)?;
        let fresh = || -> Result<u64, String> {
            let cell = machine.create(&ONE.blob())?;
            begin(machine, cell)?;
            Ok(cell)
        };
        let cell = fresh()?;
        let all = all_registers();
        let values = attempt_all(machine, cell, &all, reading)?;
        let readable = all.into_iter().zip(values);
        let readable: Vec<(Register, u64)> = readable
            .filter_map(|(register, value)| Some((register, value?)))
            .collect();
        let registers: Vec<Register> = readable.iter().map(|(register, _)| *register).collect();
        let values = attempt_all(machine, cell, &registers, writing)?;
        let written: Vec<(Register, u64, u64)> = readable
            .into_iter()
            .zip(values)
            .filter_map(|((register, before), after)| Some((register, before, after?)))
            .filter(|(_, before, after)| before != after)
            .collect();
        ensure(written.len() > 60, || {
            format!("a cell writes only {} registers", written.len())
        })?;
        machine.manage(Hypercall::CellDestroy, cell)?;
        let cell = fresh()?;
        let registers: Vec<Register> = written.iter().map(|(register, ..)| *register).collect();
        let values = attempt_all(machine, cell, &registers, reading)?;
        let kept: Vec<String> = written
            .into_iter()
            .zip(values)
            .filter(|((_, _, after), value)| *value == Some(*after))
            .map(|((register, before, after), _)| {
                format!("{register:?}: {after:#x}, first {before:#x}")
            })
            .collect();
        machine.manage(Hypercall::CellDestroy, cell)?;
        ensure(kept.is_empty(), || format!("kept: {}", kept.join("; ")))?;
        machine.expect_no_fault()
    });
}
