// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Random steps of the root and of a cell at once (`hypervisor/cells/src/random.rs`), while the root creates, starts,
//! stops and destroys cells at random. The seed is in the message of a failure.

use std::time::{Duration, Instant};

use rampart_hypervisor_cells::remote::{
    BEGUN, CELL, CELL_WITHOUT_TRANSLATION, ENTRY, LATEST, ROOT, RUNS, SLEEPS, STEPS, STOP,
};
use rampart_hypervisor_core::configuration::build::Blob;
use rampart_hypervisor_core::format::Doorbell;
use rampart_hypervisor_core::interface::{CellState, Hypercall, MAXIMUM_CELLS, Outcome};

use crate::machine::{
    AFFINITY_INFO, Attacked, BLOBS, CPU_OFF, CPU_ON, DISTRIBUTOR, GICV2, HYPERVISOR, INTERFACE,
    MODELS, Machine, Model, ONE, PORT, REDISTRIBUTORS, SMC, WITNESS, ensure, on, root,
};
use crate::witness::Witness;

/// Time for each machine in seconds, and the seed: for a longer run and for its repetition.
const SECONDS: &str = "RAMPART_RANDOM_SECONDS";
const SEED: &str = "RAMPART_RANDOM_SEED";
const USUAL_SECONDS: u64 = 12;
const LONG_SECONDS: u64 = 1800;

const MACHINES: [Model; 7] = [
    MODELS[2], MODELS[4], MODELS[0], MODELS[1], MODELS[6], GICV2[0], GICV2[1],
];

/// Addresses at which the root and the cell read and write: the interrupt controller, a device, memory of others.
const ADDRESSES: [u64; 10] = [
    DISTRIBUTOR,
    DISTRIBUTOR + 0x6000,
    REDISTRIBUTORS + 0x1_0000,
    REDISTRIBUTORS + 0x4_0000,
    REDISTRIBUTORS + 0x5_0000,
    REDISTRIBUTORS + 0x7_0000,
    PORT,
    HYPERVISOR,
    WITNESS,
    BLOBS,
];
/// The same without those that end a cell.
const ADDRESSES_OF_CELL: usize = 6;
/// The same of a GICv2: the targets of interrupts, GICD_SGIR, GICC and GICC_DIR.
const ADDRESSES_OF_GICV2: [u64; 10] = [
    DISTRIBUTOR,
    DISTRIBUTOR + 0x800,
    DISTRIBUTOR + 0xf00,
    INTERFACE,
    INTERFACE,
    INTERFACE + 0x1000,
    PORT,
    HYPERVISOR,
    WITNESS,
    BLOBS,
];

/// xorshift64* (Vigna).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) % limit
    }
}

fn environment(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn random_steps_of_root_and_cell_affect_no_one_else() {
    make(environment(SECONDS).unwrap_or(USUAL_SECONDS));
}

#[test]
#[ignore = "takes hours; make test-long runs it"]
fn random_steps_for_hours_affect_no_one_else() {
    make(environment(SECONDS).unwrap_or(LONG_SECONDS));
}

/// Makes random steps in each machine for this time.
fn make(seconds: u64) {
    let time = Duration::from_secs(seconds);
    let seed = environment(SEED).unwrap_or_else(|| {
        let now = std::time::SystemTime::UNIX_EPOCH.elapsed();
        now.map_or(1, |now| now.as_nanos() as u64 | 1)
    });
    on(&MACHINES, |machine| {
        let mut steps = Steps {
            machine,
            random: Random(seed | 1),
            calls: 0,
            steps_of_cells: 0,
        };
        let result = steps.all(time);
        let calls = steps.calls;
        result.map_err(|error| {
            let latest: Vec<String> = [("root", root(1)), ("cell", ONE.cpu(0))]
                .map(|(who, cpu)| {
                    let runs = machine.value(cpu, RUNS);
                    let index = LATEST + 2 * (runs as usize % STEPS);
                    let (step, first) = (machine.value(cpu, index), machine.value(cpu, index + 1));
                    format!("{who}: {runs} steps, the latest {step:#x} {first:#x}")
                })
                .into();
            format!(
                "{error}; after {calls} calls; {SEED}={seed}; {}",
                latest.join("; ")
            )
        })
    });
}

struct Steps<'a> {
    machine: &'a Machine,
    random: Random,
    calls: u64,
    steps_of_cells: u64,
}

impl Steps<'_> {
    fn all(&mut self, time: Duration) -> Attacked {
        let machine = self.machine;
        let witness = machine.start_witness()?;
        for cpu in 0..3 {
            // Random steps may disable the timer that ends the sleep.
            machine.set_value(root(cpu), SLEEPS, 0);
        }
        machine.turn_off(2)?;
        let begin = Instant::now();
        let mut looked = begin;
        let arguments = [self.random.below(u64::MAX), ROOT, witness.number];
        machine.random(root(1), self.addresses(), &arguments);
        while begin.elapsed() < time {
            self.step(&witness)?;
            if looked.elapsed() > Duration::from_millis(300) {
                machine.expect_headers()?;
                machine.expect_running()?;
                witness.check()?;
                machine.expect_no_fault()?;
                looked = Instant::now();
            }
        }
        machine
            .end(root(1))
            .map_err(|error| format!("at the end: {error}"))?;
        self.expect_all_returns(&witness)
    }

    /// Makes a call of the root, with any outcome of the interface.
    fn call(&mut self, call: Hypercall, first: u64, second: u64) -> Result<i64, String> {
        self.calls += 1;
        let (outcome, _) = self.machine.call(root(0), call, first, second)?;
        let known = Outcome::try_from(outcome).is_ok();
        ensure(known, || format!("{call:?} returns {outcome}"))?;
        Ok(outcome)
    }

    fn addresses(&self) -> &'static [u64; 10] {
        if self.machine.model.gicv2 {
            &ADDRESSES_OF_GICV2
        } else {
            &ADDRESSES
        }
    }

    fn blob(&self) -> Blob {
        let doorbells = vec![Doorbell {
            interrupt: 250,
            reserved: 0,
        }];
        Blob {
            doorbells,
            ..ONE.blob()
        }
    }

    fn step(&mut self, witness: &Witness<'_>) -> Attacked {
        let machine = self.machine;
        let cell = witness.number + 1 + self.random.below(2);
        match self.random.below(12) {
            0 => {
                self.call(Hypercall::Interface, 0, 0)?;
                let cpu = self.random.below(5);
                self.call(Hypercall::CpuInfo, cpu, 0)?;
            }
            1 | 2 => {
                let bytes = self.blob().bytes();
                machine.write(BLOBS, &bytes);
                self.call(Hypercall::CellCreate, BLOBS, bytes.len() as u64)?;
            }
            3 | 4 => {
                let loadable = self.call(Hypercall::CellLoadable, cell, 0)?;
                if loadable == 0 {
                    machine.write_program(&self.blob(), "rampart-cell-remote");
                }
                self.call(Hypercall::CellStart, cell, 0)?;
            }
            5 => {
                self.call(Hypercall::CellStop, cell, 0)?;
            }
            6 => {
                self.call(Hypercall::CellDestroy, cell, 0)?;
            }
            7 => {
                let entry = machine.value(root(0), ENTRY);
                let on = [CPU_ON, 2, entry, root(2).argument];
                machine.run(root(0), &[SMC], &on)?;
            }
            8 => {
                machine.begin(root(2), &[SMC], &[CPU_OFF]);
            }
            9 => {
                self.steps_of_cells += machine.value(ONE.cpu(0), RUNS);
                machine.set_value(ONE.cpu(0), STOP, 1);
            }
            _ => {
                let begun = machine.value(ONE.cpu(0), BEGUN) != 0;
                if begun && machine.is_done(ONE.cpu(0)) {
                    let model = machine.model;
                    let kind = if model.two_security_states || model.gicv2 {
                        CELL_WITHOUT_TRANSLATION
                    } else {
                        CELL
                    };
                    let arguments = [self.random.below(u64::MAX), kind, witness.number];
                    let addresses = &self.addresses()[..ADDRESSES_OF_CELL];
                    machine.random(ONE.cpu(0), addresses, &arguments);
                }
            }
        }
        let pause = self.random.below(4000);
        if pause < 2000 {
            std::thread::sleep(Duration::from_micros(pause));
        }
        Ok(())
    }

    /// Destroys all cells except the witness, and checks that CPU 2 is the root's again.
    fn expect_all_returns(&mut self, witness: &Witness<'_>) -> Attacked {
        let machine = self.machine;
        for cell in witness.number + 1..MAXIMUM_CELLS as u64 {
            let status = machine.status();
            if status.cells[cell as usize].condition().state != CellState::Free {
                machine.manage(Hypercall::CellDestroy, cell)?;
            }
        }
        let owner = machine.status().cpus[2].cell();
        ensure(owner == 0, || format!("CPU 2 belongs to {owner}"))?;
        // An order that it was given while it was off is lost.
        let is_off = || {
            if is_on(machine) {
                machine.begin(root(2), &[SMC], &[CPU_OFF]);
            }
            !is_on(machine)
        };
        ensure(machine.wait(is_off), || {
            "at the end: CPU 2 does not turn off".to_owned()
        })?;
        machine
            .expect_off(2)
            .map_err(|error| format!("at the end: {error}"))?;
        machine.turn_on(2)?;
        witness.check()?;
        machine.expect_no_fault()
    }
}

fn is_on(machine: &Machine) -> bool {
    let info = machine.run(root(0), &[SMC], &[AFFINITY_INFO, 2, 0]);
    info.is_ok_and(|[info, ..]| info == 0)
}
