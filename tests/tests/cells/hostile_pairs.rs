// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Attacks of two CPUs of a cell, or of two cells, on what they have in common with others.

use rampart_hypervisor_cells::remote::{BEGUN, EXCEPTIONS, RUNS};
use rampart_hypervisor_core::configuration::build::Blob;
use rampart_hypervisor_core::format::InterruptGrant;
use rampart_hypervisor_core::interface::{CellState, CpuPower, Hypercall};

use crate::hostile_cells::{hypercall, start_second};
use crate::machine::{
    BLOBS, CODE_BYTES, CODE_START, CPU_ON, Cell, DISTRIBUTOR, HVC, ISB, MASK, MODELS, ONE, OTHER,
    PAIR, SMC, SPIN, STORE, SYSTEM_OFF, and_gicv2, ensure, name, on, root,
};

/// GICD_ICFGR (Arm IHI 0069, 12.9).
const TRIGGER: u64 = 0xc00;

/// A CPU of a cell ends the cell while the root has the managers' lock, and the other CPU spins with everything masked.
/// The call that the driver makes periodically parks it.
#[test]
fn a_cpu_of_an_ended_cell_parks_though_the_lock_was_held() {
    const BIG: Cell = Cell {
        name: "big",
        cpus: &[3],
        memory: 0x6400_0000,
    };
    on(&and_gicv2(&MODELS[..4]), |machine| {
        let mut big = BIG.blob();
        big.memory[0].bytes = 64 << 20;
        let bytes = big.bytes();
        for (instruction, arguments) in [(STORE, [0, 0]), (SMC, [SYSTEM_OFF, 0])] {
            let cell = machine.start_hostile(&PAIR, &PAIR.blob())?;
            start_second(machine)?;
            machine.begin(PAIR.cpu(1), &[MASK, SPIN], &[]);
            machine.turn_off(3)?;
            machine.write(BLOBS, &bytes);
            let create = [hypercall(Hypercall::CellCreate), BLOBS, bytes.len() as u64];
            machine.begin(root(0), &[HVC], &create);
            let wiped = || machine.status().cells[2].condition().state == CellState::Created;
            machine.wait(wiped);
            machine.begin(PAIR.cpu(0), &[instruction], &arguments);
            let [outcome, number, ..] = machine.finish(root(0))?;
            ensure(outcome == 0, || name(outcome as i64))?;
            let is_off = || {
                let called = machine.call(root(0), Hypercall::Interface, 0, 0);
                let off =
                    |cpu: usize| machine.status().cpus[cpu].cpu_state().power == CpuPower::Off;
                called.is_ok() && off(1) && off(2)
            };
            ensure(machine.wait(is_off), || {
                "a CPU of a cell that has ended still runs".to_owned()
            })?;
            for cell in [cell, number] {
                machine.manage(Hypercall::CellDestroy, cell)?;
            }
            for cpu in 1..=3 {
                machine.turn_on(cpu)?;
            }
        }
        machine.expect_no_fault()
    });
}

/// A cell turns its second CPU on at addresses that have no instruction.
#[test]
fn an_entry_without_an_instruction_ends_only_the_cell() {
    const END: u64 = CODE_START + CODE_BYTES;
    on(&and_gicv2(&MODELS[..2]), |machine| {
        let witness = machine.start_witness()?;
        for (entry, accepted) in [
            (CODE_START + 1, true),
            (CODE_START + 2, true),
            (END - 4, true),
            (END, false),
            (0, false),
            (DISTRIBUTOR, false),
            (1 << 48 | CODE_START, false),
            (u64::MAX, false),
        ] {
            let failed = |error: String| format!("entry {entry:#x}: {error}");
            let cell = machine.start_hostile(&PAIR, &PAIR.blob())?;
            machine.begin(PAIR.cpu(0), &[SMC], &[CPU_ON, 2, entry, 0]);
            if accepted {
                let condition = || machine.status().cells[cell as usize].condition();
                let ends = || condition().state == CellState::Failed;
                ensure(machine.wait(ends), || failed(format!("{:?}", condition())))?;
            } else {
                let [result, ..] = machine.finish(PAIR.cpu(0)).map_err(failed)?;
                ensure(result != 0, || failed("the CPU is turned on".to_owned()))?;
            }
            machine.manage(Hypercall::CellDestroy, cell)?;
            machine.turn_on(1)?;
            machine.turn_on(2)?;
            machine.expect_no_fault().map_err(failed)?;
        }
        witness.check()
    });
}

/// Two cells change the trigger of an interrupt of their own for ever, in a register that has those of the root too,
/// which changes its own and reads them back; one of the cells is stopped and started meanwhile.
#[test]
fn no_change_of_a_common_register_is_lost() {
    /// Interrupts without a device, of one word of GICD_ICFGR.
    const FIRST: u32 = 244;
    const ROUNDS: u64 = 3000;
    let register = DISTRIBUTOR + TRIGGER + u64::from(FIRST / 16 * 4);
    on(&and_gicv2(&MODELS[..2]), |machine| {
        let witness = machine.start_witness()?;
        let mut cells = Vec::new();
        for (number, cell) in (FIRST..).zip([ONE, OTHER]) {
            let interrupts = vec![InterruptGrant { number, flags: 0 }];
            let blob = Blob {
                interrupts,
                ..cell.blob()
            };
            cells.push(machine.start_hostile(&cell, &blob)?);
        }
        // str w1, [x0]; str w2, [x0]
        let toggle = [0xb900_0001, 0xb900_0002];
        let all = u64::from(u32::MAX);
        let begin = |cell: &Cell| machine.repeat(cell.cpu(0), &toggle, &[register, all, 0]);
        begin(&ONE);
        begin(&OTHER);
        let code = [
            0xb900_0001, // str w1, [x0]
            0xb940_0002, // ldr w2, [x0]
            0x6b01_005f, // cmp w2, w1
            0x5400_0081, // b.ne to the end
            0x4a05_0021, // eor w1, w1, w5
            0xf100_0463, // subs x3, x3, #1
            0x54ff_ff41, // b.ne to the store
            ISB,
        ];
        let of_cells = 0b11_11 << (FIRST % 16 * 2);
        let own = 0xaaaa_aaaa & !of_cells;
        let arguments = [register, own & 0x0ff0_0ff0, 0, ROUNDS, 0, own];
        for round in 0..4 {
            for cell in [ONE, OTHER] {
                let runs = || machine.value(cell.cpu(0), RUNS) > 10;
                ensure(machine.wait(runs), || format!("{} does not run", cell.name))?;
            }
            machine.begin(root(0), &code, &arguments);
            let [_, written, read, left] = machine.finish(root(0))?;
            ensure(left == 0, || {
                format!("the root writes {written:#x} and reads {read:#x}, {left} rounds left")
            })?;
            let begun = machine.value(OTHER.cpu(0), BEGUN);
            machine.manage(Hypercall::CellStop, cells[1])?;
            machine.manage(Hypercall::CellStart, cells[1])?;
            let begins = || machine.value(OTHER.cpu(0), BEGUN) != begun;
            ensure(machine.wait(begins), || {
                format!("round {round}: the cell does not begin")
            })?;
            begin(&OTHER);
        }
        for cell in [ONE, OTHER] {
            let exceptions = machine.value(cell.cpu(0), EXCEPTIONS);
            ensure(exceptions == 0, || {
                format!("{}: {exceptions} exceptions", cell.name)
            })?;
        }
        witness.check()?;
        machine.expect_no_fault()
    });
}
