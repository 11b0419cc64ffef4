// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A simulated machine without an operating system, whose root and cells execute instructions of the test
//! (`hypervisor/cells/src/remote.rs`). The machine's memory is a file that the test reads and writes. QEMU
//! emulates all of it, so the hypervisor is the real image.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use rampart_hypervisor_cells::remote::{
    ARGUMENTS, BEGUN, CODE, CODE_WORDS, DONE, ENTRY, EXCEPTIONS, KIND, LAUNCHED, NUMBER, ONCE,
    RANDOM, REPEATED, RESULTS, SLEEPS, STOP,
};
use rampart_hypervisor_core::configuration::build::Blob;
use rampart_hypervisor_core::interface::{
    Exit, Header, Hypercall, Outcome, STATUS_BYTES, Status, StopReason,
};
use rampart_qemu::{Qemu, QemuCommand, escaped};
use rampart_ring::program_header::{self, InterruptController};
use rampart_tests::programs::{beside_others, directory, left_out};
use zerocopy::{FromBytes as _, IntoBytes as _};

pub(crate) use crate::configurations::*;
pub(crate) use crate::instructions::*;
pub(crate) use crate::models::*;
pub(crate) use crate::waiting::*;

/// The result of an attack: what is wrong.
pub(crate) type Attacked = Result<(), String>;

pub(crate) fn ensure(condition: bool, what: impl FnOnce() -> String) -> Attacked {
    if condition { Ok(()) } else { Err(what()) }
}

/// Runs an attack in a new machine for each of the models, and reports all that fail.
pub(crate) fn on(models: &[Model], attack: impl Fn(&Machine) -> Attacked) {
    on_with(models, &system(), |machine| {
        machine.expect_launched()?;
        attack(machine)
    });
}

/// Like [`on`], with another configuration of the system and before the launch is checked.
pub(crate) fn on_with(models: &[Model], system: &Blob, attack: impl Fn(&Machine) -> Attacked) {
    on_with_options(models, system, &[], attack);
}

/// What differs from the usual machine.
#[derive(Debug, Clone)]
pub(crate) struct Differences {
    /// Further options of QEMU.
    pub(crate) options: Vec<std::ffi::OsString>,
    /// How long each CPU waits for the others at the launch and at the end.
    pub(crate) rendezvous_microseconds: u32,
}

impl Default for Differences {
    fn default() -> Self {
        Self {
            options: Vec::new(),
            // The longest time that the hypervisor accepts: no CPU is too late on a busy machine.
            rendezvous_microseconds: 10_000_000,
        }
    }
}

/// Like [`on_with`], with further options of QEMU.
pub(crate) fn on_with_options(
    models: &[Model],
    system: &Blob,
    options: &[std::ffi::OsString],
    attack: impl Fn(&Machine) -> Attacked,
) {
    let differences = Differences {
        options: options.to_vec(),
        ..Differences::default()
    };
    on_with_differences(models, system, &differences, attack);
}

/// Like [`on_with`], with a machine that differs from the usual one.
pub(crate) fn on_with_differences(
    models: &[Model],
    system: &Blob,
    differences: &Differences,
    attack: impl Fn(&Machine) -> Attacked,
) {
    let mut failures = Vec::new();
    for model in chosen(models) {
        let name = model.name();
        if let Some(firmware) = model.firmware
            && !firmware_file(firmware).exists()
        {
            left_out(&format!(
                "attacks with the firmware {firmware}: scripts/firmware could not build it"
            ));
            continue;
        }
        let _slot = beside_others();
        let machine = Machine::boot(model, system, differences);
        if let Err(error) = attack(&machine) {
            failures.push(format!("{name}: {error}\n  {}", machine.description()));
        }
        machine.qemu.kill();
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// A running machine.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) model: Model,
    qemu: Qemu,
    memory: File,
    status: u64,
    /// The CPU of the root that makes the calls of the functions below.
    manager: std::cell::Cell<Remote>,
    _directory: tempfile::TempDir,
}

impl Machine {
    fn boot(model: Model, system: &Blob, differences: &Differences) -> Self {
        let programs = directory().join("hypervisor");
        let location = tempfile::tempdir().expect("a directory");
        let path = location.path().join("memory");
        let memory = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path);
        let memory = memory.expect("the machine's memory");
        memory.set_len(RAM_BYTES).expect("the machine's memory");
        let image = if model.gicv2 {
            "rampart-gicv2.bin"
        } else if model.smmu {
            "rampart-smmu.bin"
        } else {
            "rampart.bin"
        };
        let mut image = read(&programs, image, model);
        let (mut header, _) = Header::read_from_prefix(&image).expect("a header");
        let mut system = system.clone();
        if model.gicv2 {
            system.platform = Some(gicv2());
        }
        let configuration = system.bytes();
        header.physical_base = HYPERVISOR;
        header.memory_bytes = HYPERVISOR_BYTES;
        header.configuration_bytes = configuration.len() as u64;
        header.cpu_count = CPUS as u32;
        header.rendezvous_microseconds = differences.rendezvous_microseconds;
        header.mpidrs[..CPUS].copy_from_slice(&[0, 1, 2, 3]);
        header.arrange();
        image[..size_of::<Header>()].copy_from_slice(header.as_bytes());
        memory
            .write_all_at(&image, HYPERVISOR - RAM)
            .expect("the image");
        let at = HYPERVISOR - RAM + header.configuration;
        memory
            .write_all_at(&configuration, at)
            .expect("the configuration");

        let secure = if model.two_security_states {
            ",secure=on"
        } else {
            ""
        };
        // Memory with tags, for CPUs that have them.
        let has_tags = ["max", "neoverse-n2"].contains(&model.cpu);
        let tags = if has_tags { ",mte=on" } else { "" };
        let version = if model.gicv2 { 2 } else { 3 };
        let its = if model.smmu { "on,iommu=smmuv3" } else { "off" };
        let machine = format!("virt,virtualization=on,gic-version={version},its={its}");
        let mut backend = format!("memory-backend-file,id=ram,size={RAM_BYTES},share=on,mem-path=");
        backend.push_str(escaped(&path).to_str().expect("a path"));
        let mut arguments: Vec<std::ffi::OsString> = Vec::new();
        arguments.extend([
            "-machine".into(),
            format!("{machine},memory-backend=ram{secure}{tags}").into(),
        ]);
        arguments.extend(["-object".into(), backend.into(), "-m".into(), "1024".into()]);
        arguments.extend(["-cpu", model.cpu, "-smp", "4", "-nodefaults"].map(Into::into));
        arguments.extend(["-serial".into(), "null".into()]);
        let root = read(&programs, "rampart-cell-hostile-root", model);
        if let Some(firmware) = model.firmware {
            load_for_firmware(&memory, &root);
            arguments.extend(["-bios".into(), firmware_file(firmware).into()]);
        } else {
            let path = location.path().join("root");
            std::fs::write(&path, root).expect("the root");
            arguments.extend(["-kernel".into(), path.into()]);
        }
        arguments.extend_from_slice(&differences.options);
        let command = if model.smmu {
            rampart_bench::sim::newer_qemu().expect("QEMU 10")
        } else {
            QemuCommand {
                program: "qemu-system-aarch64".into(),
                ..QemuCommand::default()
            }
        };
        let qemu = Qemu::start_by(&command, arguments, location.path());
        let status = HYPERVISOR + header.status;
        Self {
            model,
            qemu: qemu.expect("a machine"),
            memory,
            status,
            manager: std::cell::Cell::new(crate::configurations::root(0)),
            _directory: location,
        }
    }

    /// Makes this CPU of the root, instead of CPU 0, the one that manages cells.
    pub(crate) fn manage_from(&self, cpu: Remote) {
        self.manager.set(cpu);
    }

    pub(crate) fn manager(&self) -> Remote {
        self.manager.get()
    }

    /// Reads a word of the machine's memory.
    pub(crate) fn word(&self, address: u64) -> u64 {
        let mut bytes = [0; 8];
        self.memory
            .read_exact_at(&mut bytes, address - RAM)
            .expect("memory");
        u64::from_le_bytes(bytes)
    }

    /// Writes to the machine's memory, regardless of its owner.
    pub(crate) fn write(&self, address: u64, bytes: &[u8]) {
        self.memory
            .write_all_at(bytes, address - RAM)
            .expect("memory");
    }

    pub(crate) fn bytes(&self, address: u64, count: u64) -> Vec<u8> {
        let mut bytes = vec![0; count as usize];
        self.memory
            .read_exact_at(&mut bytes, address - RAM)
            .expect("memory");
        bytes
    }

    pub(crate) fn set(&self, address: u64, value: u64) {
        self.write(address, &value.to_le_bytes());
    }

    /// Reads the hypervisor's status pages.
    pub(crate) fn status(&self) -> Box<Status> {
        let bytes = self.bytes(self.status, STATUS_BYTES as u64);
        let status = Status::read_from_bytes(&bytes[..size_of::<Status>()]);
        Box::new(status.expect("the status"))
    }

    /// Returns the number of a CPU's exits by their reason.
    pub(crate) fn exits(&self, cpu: usize) -> Vec<u64> {
        let status = self.status();
        let counts = status.cpus[cpu].exits.iter();
        let mut exits: Vec<u64> = counts
            .map(|count| count.load(std::sync::atomic::Ordering::Relaxed))
            .collect();
        if self.model.two_security_states || self.model.gicv2 {
            exits[Exit::Wait as usize] = 0;
        }
        exits
    }

    /// Returns what a person needs to understand a failure.
    fn description(&self) -> String {
        let status = self.status();
        let cells = status.cells.iter().map(|cell| cell.condition());
        let cells: Vec<_> = cells.map(|cell| (cell.state, cell.stop_reason)).collect();
        let cpus = status.cpus[..CPUS].iter();
        let cpus: Vec<_> = cpus.map(|cpu| (cpu.cpu_state(), cpu.all_exits())).collect();
        let registers = self.qemu.qmp().execute(
            "human-monitor-command",
            serde_json::json!({ "command-line": "info registers -a" }),
        );
        let registers = registers
            .ok()
            .and_then(|text| text.as_str().map(str::to_owned));
        let registers = registers.unwrap_or_default();
        let registers: Vec<_> = registers
            .lines()
            .filter(|line| line.contains("PC=") || line.contains("PSTATE"))
            .collect();
        format!(
            "cells {:?}\n  CPUs {cpus:?}\n  log {}\n  {}",
            &cells[1..4],
            log(&status),
            registers.join("\n  ")
        )
    }

    /// Checks that all CPUs run in the hypervisor's root.
    pub(crate) fn expect_launched(&self) -> Attacked {
        for cpu in 0..CPUS as u64 {
            self.set_value(root(cpu), SLEEPS, 1);
            let launched = self.outcome_of_launch(cpu);
            ensure(launched == Some(0), || {
                format!("the launch on CPU {cpu}: {launched:?}")
            })?;
        }
        Ok(())
    }

    /// Checks that the addresses which the programs of the root and of the witness read from their headers are those
    /// of this machine: otherwise an attack has changed the test itself.
    pub(crate) fn expect_headers(&self) -> Attacked {
        let InterruptController {
            distributor,
            cpu_frames,
        } = controller(self.model);
        let expected = [program_header::MAGIC, distributor, cpu_frames];
        for (program, at) in [("root", ROOT_PROGRAM), ("witness", WITNESS)] {
            let first = at + program_header::OFFSET as u64;
            let found = [0, 8, 16].map(|offset| self.word(first + offset));
            ensure(found == expected, || {
                format!("the header of the {program}: {found:#x?}, expected {expected:#x?}")
            })?;
        }
        Ok(())
    }

    /// Waits for the outcome of the launch on a CPU.
    pub(crate) fn outcome_of_launch(&self, cpu: u64) -> Option<i64> {
        let launched = || self.value(root(cpu), LAUNCHED);
        self.wait(|| launched() != 0 && self.value(root(cpu), BEGUN) != 0)
            .then(|| launched() as i64 - 100)
    }

    /// Reads a word of a CPU's area.
    pub(crate) fn value(&self, of: Remote, index: usize) -> u64 {
        self.word(of.area + 8 * index as u64)
    }

    pub(crate) fn set_value(&self, of: Remote, index: usize, value: u64) {
        self.set(of.area + 8 * index as u64, value);
    }

    /// Writes words of a CPU's area, and zeros after them up to this count.
    fn set_values(&self, of: Remote, index: usize, values: &[u64], count: usize) {
        let mut bytes = values.as_bytes().to_vec();
        bytes.resize(8 * count, 0);
        self.write(of.area + 8 * index as u64, &bytes);
    }

    fn give(&self, to: Remote, kind: u64, words: &[u64], arguments: &[u64]) -> u64 {
        assert!(words.len() <= CODE_WORDS && arguments.len() <= 8);
        self.set_values(to, CODE, words, CODE_WORDS);
        self.set_values(to, ARGUMENTS, arguments, 8);
        self.set_value(to, KIND, kind);
        self.set_value(to, STOP, 0);
        let number = self.value(to, NUMBER) + 1;
        self.set_value(to, NUMBER, number);
        number
    }

    /// Begins to execute code on a CPU, with arguments in x0 to x7.
    pub(crate) fn begin(&self, on: Remote, code: &[u32], arguments: &[u64]) -> u64 {
        self.give(on, ONCE, &packed(code), arguments)
    }

    /// Begins to execute code until [`Machine::end`].
    pub(crate) fn repeat(&self, on: Remote, code: &[u32], arguments: &[u64]) -> u64 {
        self.give(on, REPEATED, &packed(code), arguments)
    }

    /// Begins random steps (`hypervisor/cells/src/random.rs`).
    pub(crate) fn random(&self, on: Remote, addresses: &[u64], arguments: &[u64]) -> u64 {
        self.give(on, RANDOM, addresses, arguments)
    }

    /// Returns whether a CPU has completed its order.
    pub(crate) fn is_done(&self, on: Remote) -> bool {
        self.value(on, DONE) == self.value(on, NUMBER)
    }

    /// Waits for the end of the order and returns x0 to x3.
    pub(crate) fn finish(&self, on: Remote) -> Result<[u64; 4], String> {
        ensure(self.wait(|| self.is_done(on)), || {
            "a CPU does not complete its order".to_owned()
        })?;
        Ok([0, 1, 2, 3].map(|index| self.value(on, RESULTS + index)))
    }

    /// Ends a repeated order.
    pub(crate) fn end(&self, on: Remote) -> Attacked {
        self.set_value(on, STOP, 1);
        self.finish(on).map(|_| ())
    }

    /// Executes code on a CPU and returns x0 to x3.
    pub(crate) fn run(
        &self,
        on: Remote,
        code: &[u32],
        arguments: &[u64],
    ) -> Result<[u64; 4], String> {
        self.begin(on, code, arguments);
        self.finish(on)
    }

    /// Executes one load of 64 bits. Returns `None` if it causes an exception.
    pub(crate) fn load(&self, on: Remote, address: u64) -> Result<Option<u64>, String> {
        self.access(on, LOAD, address, 0)
    }

    /// Executes a load or store, x0 from or x1 to the address in x0. Returns x0, or `None` after an exception.
    pub(crate) fn access(
        &self,
        on: Remote,
        instruction: u32,
        address: u64,
        value: u64,
    ) -> Result<Option<u64>, String> {
        let before = self.value(on, EXCEPTIONS);
        let [result, ..] = self.run(on, &[instruction], &[address, value])?;
        Ok((self.value(on, EXCEPTIONS) == before).then_some(result))
    }

    /// Writes a register of a device with 32 bits.
    pub(crate) fn set_device(&self, on: Remote, address: u64, value: u64) -> Attacked {
        self.access(on, STORE_WORD, address, value).map(|_| ())
    }

    /// Reads a register of a device with 32 bits; 0 after an exception.
    pub(crate) fn device(&self, on: Remote, address: u64) -> Result<u64, String> {
        Ok(self.access(on, LOAD_WORD, address, 0)?.unwrap_or(0))
    }

    /// Makes a hypercall and returns its outcome and results.
    pub(crate) fn call(
        &self,
        on: Remote,
        call: Hypercall,
        first: u64,
        second: u64,
    ) -> Result<(i64, [u64; 3]), String> {
        let function = u64::from(u32::from(call));
        let [x0, results @ ..] = self
            .run(on, &[HVC], &[function, first, second])
            .map_err(|error| format!("{call:?}: {error}"))?;
        Ok((x0 as i64, results))
    }

    /// Repeats a management call as the kernel module does: a CPU whose cell fails has the managers' lock for a moment.
    fn call_repeatedly(
        &self,
        call: Hypercall,
        [first, second]: [u64; 2],
        retried: &[i64],
    ) -> Result<(i64, [u64; 3]), String> {
        let clock = Clock::start();
        loop {
            let answer = self.call(self.manager(), call, first, second)?;
            if !retried.contains(&answer.0) || clock.is_over(self) {
                return Ok(answer);
            }
        }
    }

    /// Makes a management call that must succeed. It is repeated if another CPU is busy or did not respond
    /// in time: its thread may wait for a CPU of the test's machine.
    pub(crate) fn manage(&self, call: Hypercall, cell: u64) -> Attacked {
        let retried = [Outcome::TimedOut as i64, Outcome::Busy as i64];
        let (outcome, _) = self.call_repeatedly(call, [cell, 0], &retried)?;
        ensure(outcome == 0, || {
            format!("{call:?} of cell {cell}: {}", name(outcome))
        })
    }

    /// Turns a CPU of the root off and waits until it is parked.
    pub(crate) fn turn_off(&self, cpu: u64) -> Attacked {
        self.turn_off_at(root(cpu), cpu)
    }

    /// The same for a CPU that executes orders in another area.
    pub(crate) fn turn_off_at(&self, of: Remote, cpu: u64) -> Attacked {
        self.begin(of, &[SMC], &[CPU_OFF]);
        self.expect_off(cpu)
    }

    pub(crate) fn expect_off(&self, cpu: u64) -> Attacked {
        let is_off = || {
            let result = self.run(self.manager(), &[SMC], &[AFFINITY_INFO, cpu, 0]);
            result.is_ok_and(|[result, ..]| result == 1)
        };
        ensure(self.wait(is_off), || {
            format!("CPU {cpu} of the root does not turn off")
        })
    }

    /// Turns a CPU of the root on and waits until it executes orders. It does not sleep: its frame is unused.
    pub(crate) fn turn_on_awake(&self, cpu: u64) -> Attacked {
        self.set_value(root(cpu), SLEEPS, 0);
        self.turn_on(cpu)
    }

    /// Turns a CPU of the root on and waits until it executes orders.
    pub(crate) fn turn_on(&self, cpu: u64) -> Attacked {
        let begun = self.value(root(cpu), BEGUN);
        let entry = self.value(self.manager(), ENTRY);
        let on = [CPU_ON, cpu, entry, root(cpu).argument];
        let [result, ..] = self.run(self.manager(), &[SMC], &on)?;
        ensure(result == 0, || {
            format!("CPU_ON of CPU {cpu} returns {}", result as i64)
        })?;
        let started = self.wait(|| self.value(root(cpu), BEGUN) != begun);
        ensure(started, || format!("CPU {cpu} does not start in the root"))
    }

    /// Writes a configuration to the root's memory and creates the cell; its CPUs must be off.
    pub(crate) fn try_create(&self, blob: &Blob) -> Result<(i64, [u64; 3]), String> {
        let bytes = blob.bytes();
        self.write(BLOBS, &bytes);
        let source = [BLOBS, bytes.len() as u64];
        self.call_repeatedly(Hypercall::CellCreate, source, &[Outcome::Busy as i64])
    }

    pub(crate) fn create(&self, blob: &Blob) -> Result<u64, String> {
        let (outcome, results) = self.try_create(blob)?;
        let name = name(outcome);
        ensure(outcome == 0, || {
            format!("create of {}: {name} {results:?}", blob.name)
        })?;
        Ok(results[0])
    }

    /// Turns off the cell's CPUs, creates, loads and starts it. Returns its number.
    pub(crate) fn start(&self, blob: &Blob, program: &str) -> Result<u64, String> {
        for cpu in &blob.cpus {
            self.turn_off(*cpu)?;
        }
        self.start_parked(blob, program)
    }

    pub(crate) fn start_parked(&self, blob: &Blob, program: &str) -> Result<u64, String> {
        let cell = self.create(blob)?;
        self.load_and_start(cell, blob, program)?;
        Ok(cell)
    }

    pub(crate) fn load_and_start(&self, cell: u64, blob: &Blob, program: &str) -> Attacked {
        self.manage(Hypercall::CellLoadable, cell)?;
        self.write_program(blob, program);
        self.manage(Hypercall::CellStart, cell)
    }

    /// Writes the program of a cell, regardless of the owner of its memory.
    pub(crate) fn write_program(&self, blob: &Blob, program: &str) {
        let program = read(&directory().join("hypervisor"), program, self.model);
        self.write(blob.memory[0].physical, &program);
    }

    /// Starts a hostile cell and waits until it executes orders.
    pub(crate) fn start_hostile(&self, cell: &Cell, blob: &Blob) -> Result<u64, String> {
        let number = self.start(blob, "rampart-cell-remote")?;
        let begun = self.wait(|| self.value(cell.cpu(0), BEGUN) != 0);
        ensure(begun, || format!("cell {} does not begin", cell.name))?;
        Ok(number)
    }

    /// Checks that the hypervisor has not faulted.
    pub(crate) fn expect_no_fault(&self) -> Attacked {
        let status = self.status();
        let faults = status.failure.iter().filter(|failure| {
            let reason = failure.reason.load(std::sync::atomic::Ordering::Relaxed);
            reason == u32::from(StopReason::Hypervisor)
        });
        let faults = faults.count();
        // It logs a fault, and that the root is started again.
        let log = log(&status);
        let is_restart = |line: &str| line.starts_with("the root is started again");
        ensure(faults == 0 && log.lines().all(is_restart), || {
            "the hypervisor faulted".to_owned()
        })
    }

    /// Checks that QEMU still runs: no one turned the machine off.
    pub(crate) fn expect_running(&self) -> Attacked {
        let ended = self.qemu.ended();
        ensure(ended.is_none(), || format!("the machine ended: {ended:?}"))
    }
}

/// Returns what the hypervisor has logged.
fn log(status: &Status) -> String {
    use std::sync::atomic::Ordering::Relaxed;
    let logged = (status.logged.load(Relaxed) as usize).min(status.log.len());
    let bytes = status.log[..logged].iter().map(|byte| byte.load(Relaxed));
    String::from_utf8_lossy(&bytes.collect::<Vec<u8>>()).into_owned()
}

/// Returns the name of a hypercall's outcome.
pub(crate) fn name(outcome: i64) -> String {
    Outcome::try_from(outcome)
        .map_or_else(|_| outcome.to_string(), |outcome| format!("{outcome:?}"))
}

fn firmware_file(name: &str) -> PathBuf {
    directory().join(format!("firmware/{name}.bin"))
}

/// Writes the root where the firmware does not write, and where the firmware continues a program that copies it to its
/// address, which is that of the firmware's device tree.
fn load_for_firmware(memory: &File, root: &[u8]) {
    const ENTRY: u64 = 0x4020_0000;
    const COPY: u64 = 0x4030_0000;
    const COPY_BYTES: usize = 0x1_0000;
    assert!(root.len() <= COPY_BYTES && ROOT_PROGRAM == 0x4008_0000);
    let program: [u32; 10] = [
        0xd2a8_0100, // mov x0, #0x40080000
        0xd2a8_0601, // mov x1, #0x40300000
        0xd2a8_0622, // mov x2, #0x40310000
        0xf840_8423, // ldr x3, [x1], #8
        0xf800_8403, // str x3, [x0], #8
        0xeb02_003f, // cmp x1, x2
        0x54ff_ffa3, // b.lo of the load
        0xd2a8_0100, // mov x0, #0x40080000
        ISB,
        0xd61f_0000, // br x0
    ];
    for (address, bytes) in [(ENTRY, program.as_bytes()), (COPY, root)] {
        let written = memory.write_all_at(bytes, address - RAM);
        written.expect("the machine's memory");
    }
}

fn read(directory: &Path, name: &str, model: Model) -> Vec<u8> {
    let path = directory.join(name);
    let mut bytes = std::fs::read(&path)
        .unwrap_or_else(|error| panic!("{}: {error}; run `make hypervisor`", path.display()));
    // The hypervisor's image has no header of a program.
    program_header::fill_in(&mut bytes, controller(model));
    bytes
}

fn controller(model: Model) -> InterruptController {
    InterruptController {
        distributor: DISTRIBUTOR,
        cpu_frames: if model.gicv2 {
            INTERFACE
        } else {
            REDISTRIBUTORS
        },
    }
}
