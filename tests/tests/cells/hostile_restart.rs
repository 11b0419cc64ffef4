// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A hostile root that is started again: several of its CPUs turn off and reset the machine at once, beside everything
//! else that the root can do then. Each new root is the hostile one of the next round.

use std::sync::atomic::Ordering::Relaxed;

use rampart_hypervisor_cells::remote::{AREA_BYTES, BEGUN, RESIDUE, RUNS, SLEEPS};
use rampart_hypervisor_core::configuration::build::Blob;
use rampart_hypervisor_core::interface::{CellState, CpuPower, Hypercall, Outcome, ROOT};

use crate::machine::{
    AFFINITY_INFO, Attacked, BLOBS, CODE_BYTES, CODE_START, CPU_ON, DISTRIBUTOR, HVC, INTERFACE,
    ISB, LOADED, MASK, Machine, ONE, REDISTRIBUTORS, Remote, SMC, SPIN, STORE, STORE_WORD,
    SYSTEM_OFF, SYSTEM_RESET, SYSTEM_RESET2, WFI, WITNESS_CPU, ensure, name, on, on_with_options,
    read_register, region, register, root, write_register,
};
use crate::models::{GICV2, MODELS, Model, SMMU};
use crate::smmu::{OF_CELL, OF_ROOT, cell_with, edu_options, fill, holds, with_smmu};
use crate::witness::Witness;

/// The CPUs of the root: all except that of the witness.
const ROOTS: u64 = WITNESS_CPU as u64;
/// Where kernels are kept. One of them is the root, the other two are standbys.
const KERNELS: [Kernel; 3] = [
    Kernel { start: 0x6100_0000 },
    Kernel { start: 0x6120_0000 },
    Kernel { start: 0x6400_0000 },
];
/// Offsets in a kernel's memory: areas of CPUs, and a part that no program writes.
const AREAS: u64 = 0x10_0000;
const UNTOUCHED: u64 = 0x18_0000;
/// Memory of the root: a word for which all CPUs wait, a program, and the number of its runs.
const GO: u64 = BLOBS + 0x1_0000;
const PROGRAM: u64 = GO + 0x1000;
const COUNT: u64 = GO + 0x2000;
/// A shared interrupt without a device.
const INTERRUPT: u64 = 250;
/// Offsets in the distributor and in the second frame of a redistributor (Arm IHI 0069, 12.9 and 12.11).
const ENABLED: u64 = 0x100;
const PENDING: u64 = 0x200;
const ACTIVE: u64 = 0x300;
/// Waits for the word at x7: `ldr x9, [x7]`, `cbz x9` to it.
const WAIT: [u32; 2] = [0xf940_00e9, 0xb4ff_ffe9];
/// `mov x0, x4`, `mov x0, x5`, `mov x1, x6`
const FIRST: u32 = 0xaa04_03e0;
const SECOND: u32 = 0xaa05_03e0;
const ITS_CELL: u32 = 0xaa06_03e1;
/// `str x3, [x4]`: reports that a state is reached.
const REPORT: u32 = 0xf900_0083;
/// Registers that a kernel does not expect to have the values of another one: TPIDR_EL0, TPIDRRO_EL0, CONTEXTIDR_EL1,
/// TTBR0_EL1, MAIR_EL1, SP_EL0, CNTV_CVAL_EL0.
const REGISTERS: [[u32; 5]; 7] = [
    [3, 3, 13, 0, 2],
    [3, 3, 13, 0, 3],
    [3, 0, 13, 0, 1],
    [3, 0, 2, 0, 0],
    [3, 0, 10, 2, 0],
    [3, 0, 4, 1, 0],
    [3, 3, 14, 3, 2],
];

/// A kernel of the root in memory of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Kernel {
    start: u64,
}

impl Kernel {
    fn blob(self) -> Blob {
        Blob {
            name: format!("at-{:x}", self.start),
            entry: self.start,
            argument: self.area(ROOTS).argument,
            memory: vec![region(self.start, self.start, CODE_BYTES, LOADED)],
            ..Blob::default()
        }
    }

    /// The area of a CPU; the last is that of the CPU that is started with the kernel.
    fn area(self, number: u64) -> Remote {
        let area = self.start + AREAS + number * AREA_BYTES;
        Remote {
            area,
            argument: area,
        }
    }

    /// Keeps it, with a pattern in its memory. Returns its number.
    fn keep(self, machine: &Machine) -> Result<u64, String> {
        let number = machine.create(&self.blob())?;
        machine.manage(Hypercall::CellLoadable, number)?;
        machine.write_program(&self.blob(), "rampart-cell-remote");
        let words = (UNTOUCHED..CODE_BYTES).step_by(8);
        let pattern: Vec<u8> = words
            .flat_map(|at| (self.start ^ at).to_le_bytes())
            .collect();
        machine.write(self.start + UNTOUCHED, &pattern);
        machine.manage(Hypercall::CellStart, number)?;
        Ok(number)
    }

    /// Returns what the root must not change: code and pattern, without the areas.
    fn bytes(self, machine: &Machine) -> Vec<u8> {
        let mut bytes = machine.bytes(self.start, 0x1000);
        bytes.extend(machine.bytes(self.start + UNTOUCHED, CODE_BYTES - UNTOUCHED));
        bytes
    }

    fn has_begun(self, machine: &Machine) -> bool {
        machine.value(self.area(ROOTS), BEGUN) != 0
    }
}

/// The root that runs: each of its CPUs, and the memory that is not its own.
struct Root<'a> {
    machine: &'a Machine,
    cpus: [Remote; ROOTS as usize],
    kernel: Option<Kernel>,
}

/// A standby with its number.
type Kept = (Kernel, u64);
/// What the root does when the machine is reset.
type Attack = fn(&Root<'_>, Kept) -> Attacked;

#[test]
fn a_hostile_root_is_started_again_once_and_with_nothing_of_the_old_one() {
    let models = [&MODELS[..2], &GICV2, &SMMU].concat();
    on(&models, |machine| {
        let witness = machine.start_witness()?;
        let mut of_root = Root {
            machine,
            cpus: [0, 1, 2].map(root),
            kernel: None,
        };
        let rounds: [(&str, Attack); 4] = [
            ("all CPUs at once", |of, kept| of.reset_at_once(kept)),
            ("beside calls for the standby", |of, kept| {
                of.reset_beside_calls(kept)
            }),
            ("beside a CPU that is turned on", |of, kept| {
                of.reset_beside_starts(kept)
            }),
            ("beside CPUs that do not listen", |of, kept| {
                of.reset_beside_masked(kept)
            }),
        ];
        for (number, (what, attack)) in (1..).zip(rounds) {
            of_root = of_root
                .round(number, &witness, attack)
                .map_err(|error| format!("{what}: {error}"))?;
        }
        if is_maskable(machine.model) {
            of_root.keeps_a_cpu_asleep(&witness)?;
        } else {
            machine.manage(Hypercall::CellDestroy, witness.number)?;
            of_root.turn_on(WITNESS_CPU as u64)?;
        }
        machine.expect_no_fault()
    });
}

/// A device of the root has an order of DMA when the root is started again, to memory of the new root. One of a cell
/// goes on.
#[test]
fn dma_of_the_old_root_does_not_reach_the_new_one() {
    on_with_options(&SMMU, &with_smmu(), &edu_options(), |machine| {
        machine.expect_launched()?;
        for edu in [OF_ROOT, OF_CELL] {
            edu.set_up(machine, root(0))?;
        }
        let witness = machine.start_witness()?;
        machine.start_hostile(&ONE, &cell_with(OF_CELL))?;
        // The first is the cell's memory.
        let [_, kernel, later] = KERNELS;
        kernel.keep(machine)?;
        later.keep(machine)?;
        let before = kernel.bytes(machine);
        let (target, own) = (kernel.start + UNTOUCHED, BLOBS + 0x1_0000);
        fill(machine, own, 0x66);
        OF_ROOT.copy(machine, root(0), own, false)?;
        // The device begins to write some milliseconds after the order; the root resets the machine with the next
        // instruction.
        let order = OF_ROOT.order(machine, root(0), target, true)?;
        let code = [STORE, FIRST, SMC];
        machine.begin(root(0), &code, &[order.0, order.1, 0, 0, SYSTEM_RESET]);
        let begun = machine.wait(|| kernel.has_begun(machine));
        ensure(begun, || "the root is not started again".to_owned())?;
        let new = kernel.area(ROOTS);
        machine.manage_from(new);
        ensure(OF_ROOT.command(machine, new)? & 4 == 0, || {
            "the device may still do DMA".to_owned()
        })?;
        OF_ROOT.finish(machine, new)?;
        // The cell's device is as before.
        let cell = ONE.cpu(0);
        let guest = CODE_START + 0x18_0000;
        fill(machine, ONE.memory + 0x18_0000, 0x77);
        OF_CELL.copy(machine, cell, guest, false)?;
        OF_CELL.copy(machine, cell, guest + 0x1000, true)?;
        ensure(holds(machine, ONE.memory + 0x18_1000, 0x77), || {
            "the cell's device does no DMA".to_owned()
        })?;
        ensure(before == kernel.bytes(machine), || {
            "DMA of the old root reaches the new one".to_owned()
        })?;
        // The new root's driver permits it, and finds its own memory and no other.
        OF_ROOT.set_up(machine, new)?;
        for (address, reached) in [(target, true), (later.start + UNTOUCHED, false)] {
            fill(machine, own, 0x55);
            OF_ROOT.copy(machine, new, own, false)?;
            OF_ROOT.copy(machine, new, address, true)?;
            ensure(holds(machine, address, 0x55) == reached, || {
                format!("DMA of the new root to {address:#x}: {reached} expected")
            })?;
        }
        witness.check()?;
        machine.expect_no_fault()
    });
}

/// Returns whether the root can mask the management interrupt.
fn is_maskable(model: Model) -> bool {
    model.gicv2 || model.two_security_states
}

/// The frame of the private interrupts of a CPU, for the CPU itself.
fn private_frame(machine: &Machine, cpu: u64) -> u64 {
    if machine.model.gicv2 {
        DISTRIBUTOR
    } else {
        REDISTRIBUTORS + cpu * 0x2_0000 + 0x1_0000
    }
}

impl<'a> Root<'a> {
    fn cpu(&self, number: u64) -> Remote {
        self.cpus[number as usize]
    }

    /// Keeps two kernels, attacks them, and turns the machine off. Checks what is started, and returns it.
    fn round(&self, number: u64, witness: &Witness<'_>, attack: Attack) -> Result<Self, String> {
        let machine = self.machine;
        machine.manage_from(self.cpu(0));
        let mut kept = Vec::new();
        for kernel in KERNELS {
            if self.kernel != Some(kernel) {
                kept.push((kernel, kernel.keep(machine)?));
            }
        }
        let before: Vec<_> = kept.iter().map(|(of, _)| of.bytes(machine)).collect();
        for kept in &kept {
            self.reach(*kept)?;
        }
        (0..ROOTS).try_for_each(|cpu| self.plant(cpu))?;
        machine.set(GO, 0);
        attack(self, kept[0])?;
        machine.set(GO, 1);
        let begun = || kept.iter().filter(|(of, _)| of.has_begun(machine));
        let started = machine.wait(|| begun().count() != 0);
        ensure(started, || "the root is not started again".to_owned())?;
        // Whatever the old root was about to do it does now.
        let runs = || [0, 1, 2].map(|cpu| machine.value(self.cpu(cpu), RUNS));
        let (old, count) = (runs(), machine.word(COUNT));
        witness.check()?;
        ensure((old, count) == (runs(), machine.word(COUNT)), || {
            "the old root still runs".to_owned()
        })?;
        let [(kernel, cell)] = begun().copied().collect::<Vec<_>>()[..] else {
            return Err("the root is started twice".to_owned());
        };
        let status = machine.status();
        let (starts, own) = (status.cells[0].starts.load(Relaxed), cell as usize);
        let state = status.cells[own].condition().state;
        ensure(starts == number && state == CellState::Free, || {
            format!("{starts} starts, the standby is {state:?}")
        })?;
        let position = kept.iter().position(|(of, _)| *of == kernel);
        ensure(
            position.is_some_and(|position| before[position] == kernel.bytes(machine)),
            || "the memory of the standby has changed".to_owned(),
        )?;
        let new = Self::started(machine, kernel)?;
        for (_, other) in kept.iter().filter(|(of, _)| *of != kernel) {
            let existing = machine.status().cells[*other as usize].condition().state;
            if existing != CellState::Free {
                machine.manage(Hypercall::CellDestroy, *other)?;
            }
        }
        witness.check()?;
        machine.expect_no_fault()?;
        Ok(new)
    }

    /// Reads and writes a standby, and makes calls for it that must be refused.
    fn reach(&self, (kernel, number): Kept) -> Attacked {
        let machine = self.machine;
        for offset in (0..CODE_BYTES).step_by(0x8000) {
            let at = kernel.start + offset;
            let loaded = machine.load(self.cpu(1), at)?;
            let stored = machine.access(self.cpu(1), STORE, at, 1)?;
            ensure(loaded.is_none() && stored.is_none(), || {
                format!("the root reaches the standby at {at:#x}")
            })?;
        }
        for call in [Hypercall::CellLoadable, Hypercall::CellStart] {
            let (outcome, _) = machine.call(self.cpu(1), call, number, 0)?;
            ensure(outcome == Outcome::WrongState as i64, || {
                format!("{call:?} of a standby: {}", name(outcome))
            })?;
        }
        let mut blob = kernel.blob();
        blob.name = "over".to_owned();
        let (outcome, _) = machine.try_create(&blob)?;
        ensure(outcome == Outcome::Refused as i64, || {
            format!("created over a standby: {}", name(outcome))
        })?;
        let [result, ..] = machine.run(self.cpu(1), &[SMC], &[SYSTEM_RESET2, 0, 0])?;
        ensure(result as i64 == -1, || "SYSTEM_RESET2".to_owned())
    }

    /// Leaves values in registers, and interrupts pending, active and enabled.
    fn plant(&self, cpu: u64) -> Attacked {
        let (machine, own) = (self.machine, self.cpu(cpu));
        let frame = private_frame(machine, cpu);
        // The interrupt that would wake it is active from now on.
        machine.set_value(own, SLEEPS, 0);
        machine.set_device(own, frame + ENABLED, u64::from(u32::MAX))?;
        machine.set_device(own, frame + PENDING, 0xffff_ffff)?;
        machine.set_device(own, frame + ACTIVE, 1 << 27 | 1 << 30)?;
        let (word, bit) = (INTERRUPT / 32 * 4, 1 << (INTERRUPT % 32));
        machine.set_device(own, DISTRIBUTOR + ENABLED + word, bit)?;
        machine.set_device(own, DISTRIBUTOR + PENDING + word, bit)?;
        for written in REGISTERS {
            let code = [write_register(written, 0), ISB];
            machine.run(own, &code, &[0x5a5a_5000])?;
        }
        Ok(())
    }

    fn reset_at_once(&self, _: Kept) -> Attacked {
        let functions = [SYSTEM_RESET, SYSTEM_OFF, SYSTEM_RESET2];
        for (cpu, function) in (0..).zip(functions) {
            let code = [&WAIT[..], &[SMC, FIRST, SMC]].concat();
            let arguments = [function, 0, 0, 0, SYSTEM_RESET, 0, 0, GO];
            self.machine.repeat(self.cpu(cpu), &code, &arguments);
        }
        Ok(())
    }

    /// One CPU stops and loads the standby, another destroys it.
    fn reset_beside_calls(&self, (_, number): Kept) -> Attacked {
        let code = [&WAIT[..], &[FIRST, ITS_CELL, HVC, SECOND, ITS_CELL, HVC]].concat();
        let call = |call: Hypercall| u64::from(u32::from(call));
        let calls = [
            (1, Hypercall::CellDestroy, Hypercall::CellStart),
            (2, Hypercall::CellStop, Hypercall::CellLoadable),
        ];
        for (cpu, first, second) in calls {
            let arguments = [0, 0, 0, 0, call(first), call(second), number, GO];
            self.machine.repeat(self.cpu(cpu), &code, &arguments);
        }
        self.reset(0, SYSTEM_RESET)
    }

    /// One CPU turns another on for ever, which turns itself off at once.
    fn reset_beside_starts(&self, _: Kept) -> Attacked {
        let machine = self.machine;
        for (index, instruction) in (0..).zip(crate::instructions::COUNT_AND_TURN_OFF) {
            machine.write(PROGRAM + 4 * index, &u32::to_le_bytes(instruction));
        }
        machine.set(COUNT, 0);
        machine.turn_off_at(self.cpu(2), 2)?;
        machine.repeat(self.cpu(1), &[SMC], &[CPU_ON, 2, PROGRAM, COUNT]);
        let counts = machine.wait(|| machine.word(COUNT) > 3);
        ensure(counts, || "CPU 2 does not start".to_owned())?;
        self.reset(0, SYSTEM_OFF)
    }

    /// One CPU spins, one sleeps, with everything masked that the root can mask without its own harm.
    fn reset_beside_masked(&self, _: Kept) -> Attacked {
        let machine = self.machine;
        let mask = write_register(register::PRIORITY_MASK, 2);
        let enable = write_register(register::ENABLE_GROUP_1, 1);
        let set: &[u32] = match machine.model.gicv2 {
            // str w2, [x0, #4]
            true => &[STORE_WORD, 0xb900_0402],
            false => &[mask, enable],
        };
        let (enabled, lowest) = match is_maskable(machine.model) {
            true => (1, 0xff),
            false => (0, 0),
        };
        let asleep = [&[MASK], set, &[ISB, REPORT, WFI, WFI, WFI, SPIN]].concat();
        self.begin_and_reach(1, &[MASK, REPORT, SPIN], &[])?;
        self.begin_and_reach(2, &asleep, &[INTERFACE, enabled, lowest])?;
        self.reset(0, SYSTEM_RESET)
    }

    /// Begins code with up to three arguments, and waits until it reports.
    fn begin_and_reach(&self, cpu: u64, code: &[u32], arguments: &[u64]) -> Attacked {
        let mut all = [0, 0, 0, 1, COUNT];
        all[..arguments.len()].copy_from_slice(arguments);
        self.machine.set(COUNT, 0);
        self.machine.begin(self.cpu(cpu), code, &all);
        let reached = self.machine.wait(|| self.machine.word(COUNT) == 1);
        std::thread::sleep(std::time::Duration::from_millis(2));
        ensure(reached, || format!("CPU {cpu} does not begin"))
    }

    fn reset(&self, cpu: u64, function: u64) -> Attacked {
        let code = [&WAIT[..], &[SMC]].concat();
        let arguments = [function, 0, 0, 0, 0, 0, 0, GO];
        self.machine.begin(self.cpu(cpu), &code, &arguments);
        Ok(())
    }

    /// Where the management interrupt can be masked, a root can keep a CPU of its own asleep: then it is not started
    /// again. The cells run on.
    fn keeps_a_cpu_asleep(&self, witness: &Witness<'_>) -> Attacked {
        let machine = self.machine;
        machine.manage_from(self.cpu(0));
        let free = KERNELS.into_iter().find(|of| self.kernel != Some(*of));
        let kernel = free.ok_or("no memory for a standby")?;
        kernel.keep(machine)?;
        let off = if machine.model.gicv2 {
            vec![STORE_WORD]
        } else {
            vec![write_register(register::ENABLE_GROUP_1, 1)]
        };
        // wfi, and a branch to it.
        let sleep = [ISB, REPORT, WFI, 0x17ff_ffff];
        let code = [&[MASK][..], &off, &sleep].concat();
        machine.set_value(self.cpu(2), SLEEPS, 0);
        self.begin_and_reach(2, &code, &[INTERFACE, 0, 0])?;
        machine.set(GO, 1);
        self.reset(0, SYSTEM_RESET)?;
        witness.check()?;
        let starts = || machine.status().cells[0].starts.load(Relaxed);
        let before = starts();
        witness.check()?;
        ensure(starts() == before && !kernel.has_begun(machine), || {
            "started again beside a CPU of the old root".to_owned()
        })
    }

    /// Checks a root that was started again: what its CPUs find, and that it turns them on and off.
    fn started(machine: &'a Machine, kernel: Kernel) -> Result<Self, String> {
        let first = kernel.area(ROOTS);
        let [affinity, ..] = machine.run(first, &[read_register([3, 0, 0, 0, 5], 0)], &[])?;
        let own = affinity & 0xff;
        let mut cpus = [0, 1, 2].map(|cpu| kernel.area(cpu));
        cpus[own as usize] = first;
        let new = Self {
            machine,
            cpus,
            kernel: Some(kernel),
        };
        machine.manage_from(first);
        let status = machine.status();
        for cpu in 0..ROOTS {
            let state = status.cpus[cpu as usize].cpu_state();
            let expected = if cpu == own {
                CpuPower::On
            } else {
                CpuPower::Off
            };
            ensure((state.cell, state.power) == (ROOT, expected), || {
                format!("CPU {cpu} is {state:?}")
            })?;
            let expected = [u64::from(cpu != own); 2];
            let found = [
                machine.run(first, &[SMC], &[AFFINITY_INFO, cpu, 0])?[0],
                u64::from(machine.value(new.cpu(cpu), BEGUN) == 0),
            ];
            ensure(found == expected, || format!("CPU {cpu}: {found:?}"))?;
        }
        let word = INTERRUPT / 32 * 4;
        for register in [ENABLED, PENDING, ACTIVE] {
            let found = machine.device(first, DISTRIBUTOR + register + word)?;
            ensure(found == 0, || {
                format!("shared interrupts at {register:#x}: {found:#x}")
            })?;
        }
        new.check_cpu(own)?;
        for cpu in (0..ROOTS).filter(|cpu| *cpu != own) {
            new.turn_on(cpu)?;
            new.check_cpu(cpu)?;
            machine.turn_off_at(new.cpu(cpu), cpu)?;
            new.turn_on(cpu)?;
        }
        Ok(new)
    }

    /// Checks that a CPU has nothing of the old root.
    fn check_cpu(&self, cpu: u64) -> Attacked {
        let (machine, own) = (self.machine, self.cpu(cpu));
        let residue = machine.value(own, RESIDUE);
        ensure(residue == 1, || {
            format!("CPU {cpu}: general registers {residue:#x}")
        })?;
        let frame = private_frame(machine, cpu);
        for register in [ENABLED, PENDING, ACTIVE] {
            // Software interrupts of a GICv2 may be enabled always (Arm IHI 0048, 4.3.5).
            let always = machine.model.gicv2 && register == ENABLED;
            let seen = if always { 0xffff_0000 } else { 0xffff_ffff };
            let found = machine.device(own, frame + register)? & seen;
            ensure(found == 0, || {
                format!("CPU {cpu}: private interrupts at {register:#x}: {found:#x}")
            })?;
        }
        if !machine.model.gicv2 {
            let control = machine.device(own, frame - 0x1_0000)?;
            ensure(control & 1 == 0, || format!("CPU {cpu}: LPIs"))?;
        }
        for register in REGISTERS {
            let [value, ..] = machine.run(own, &[read_register(register, 0)], &[])?;
            ensure(value == 0, || {
                format!("CPU {cpu}: {register:?}: {value:#x}")
            })?;
        }
        Ok(())
    }

    /// Turns a CPU on by the kernel's entry, and waits until it executes orders.
    fn turn_on(&self, cpu: u64) -> Attacked {
        let machine = self.machine;
        let kernel = self.kernel.ok_or("no kernel")?;
        let area = kernel.area(if cpu == ROOTS { ROOTS + 1 } else { cpu });
        let begun = machine.value(area, BEGUN);
        let on = [CPU_ON, cpu, kernel.start, area.argument];
        let [result, ..] = machine.run(machine.manager(), &[SMC], &on)?;
        ensure(result == 0, || {
            format!("CPU_ON of CPU {cpu} returns {}", result as i64)
        })?;
        let started = machine.wait(|| machine.value(area, BEGUN) != begun);
        ensure(started, || format!("CPU {cpu} does not start"))
    }
}
