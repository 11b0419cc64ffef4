// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the tests do in a booted root, whose memory from 0x7000_0000 Linux leaves alone (`mem=`):
//!
//! ```text
//! cells_hand enable | disable | start DIRECTORY | leave TURNS | cells DIRECTORY | turns TURNS DIRECTORY | peek ADDRESS
//! ```
//!
//! Each check is a line that begins with `ok` or `FAILED`; figures begin with `figure`.
#![allow(clippy::print_stdout, clippy::unwrap_used)]

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rampart_cells::device::{Device, Error};
use rampart_cells::machine::Machine;
use rampart_hypervisor_core::configuration::build::Blob;
use rampart_hypervisor_core::format::{MemoryFlags, MemoryRegion};
use rampart_hypervisor_core::interface::{CellState, FAILURE_SLOTS, StopReason};

const HYPERVISOR: (u64, u64) = (0x7000_0000, 8 << 20);
const CODE: u64 = 0x4000_0000;
const CODE_BYTES: u64 = 2 << 20;
const SHARED: u64 = 0x5000_0000;
/// Words of the shared page: `hypervisor/cells/src/lib.rs`.
const BEGUN: usize = 0;
const INTERRUPTS: usize = 1;
const RESULT: usize = 3;
const UNEXPECTED: usize = 4;

type Done = Result<(), Box<dyn std::error::Error>>;

fn say(good: bool, what: &str) {
    println!("{}  {what}", if good { "ok" } else { "FAILED" });
}

/// Physical memory, to be read.
struct Physical(*const AtomicU64);

impl Physical {
    fn open(address: u64) -> Self {
        let memory = File::open("/dev/mem").unwrap();
        // SAFETY: a new mapping, for reading; nobody here has a reference into it.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                4096,
                libc::PROT_READ,
                libc::MAP_SHARED,
                memory.as_raw_fd(),
                address as libc::off_t,
            )
        };
        assert_ne!(start, libc::MAP_FAILED, "{address:#x}");
        Self(start.cast())
    }

    fn word(&self, index: usize) -> u64 {
        assert!(index < 512);
        // SAFETY: within the page that is mapped for ever.
        unsafe { (*self.0.add(index)).load(Relaxed) }
    }
}

/// A cell of the tests: a CPU, memory to be loaded, a page that the root reads.
struct Plan {
    name: &'static str,
    cpu: usize,
    memory: u64,
}

const FIRST: Plan = Plan {
    name: "first",
    cpu: 3,
    memory: 0x7100_0000,
};
const SECOND: Plan = Plan {
    name: "second",
    cpu: 2,
    memory: 0x7200_0000,
};

impl Plan {
    fn shared(&self) -> u64 {
        self.memory + CODE_BYTES
    }

    fn blob(&self, argument: u64) -> Blob {
        let region = |physical, guest, bytes, flags: MemoryFlags| MemoryRegion {
            physical,
            guest,
            bytes,
            flags: flags.bits(),
            reserved: 0,
        };
        let data = MemoryFlags::READ | MemoryFlags::WRITE;
        let code = data | MemoryFlags::EXECUTE | MemoryFlags::LOADABLE;
        let shared = data | MemoryFlags::SHARED | MemoryFlags::ROOT_READ;
        Blob {
            name: self.name.to_owned(),
            entry: CODE,
            argument,
            cpus: vec![self.cpu as u64],
            memory: vec![
                region(self.memory, CODE, CODE_BYTES, code),
                region(self.shared(), SHARED, 4096, shared),
            ],
            ..Blob::default()
        }
    }

    /// Made, loaded and started; its number.
    fn start(&self, device: &Device, argument: u64, program: &[u8]) -> Result<u32, Error> {
        let blob = self.blob(argument).bytes();
        let cell = device.create(&blob)?;
        device.load(cell, CODE, program)?;
        device.start(cell)?;
        Ok(cell)
    }
}

fn wait_until(limit: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let begin = Instant::now();
    while begin.elapsed() < limit {
        if condition() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    condition()
}

fn enable(device: &Device) -> Done {
    let machine = Machine::read(Path::new("/proc/device-tree"), 40)?;
    let blob = machine.system(HYPERVISOR).checked();
    let blob = blob.map_err(|refused| format!("{refused:?}"))?;
    device.enable(HYPERVISOR.0, HYPERVISOR.1, &blob)?;
    Ok(())
}

/// Whether a process that reads there is ended by a signal.
fn read_is_refused(address: u64) -> bool {
    use std::os::unix::process::ExitStatusExt as _;
    let program = std::env::current_exe().unwrap();
    let status = Command::new(program)
        .args(["peek", &address.to_string()])
        .status()
        .unwrap();
    status.signal() == Some(libc::SIGBUS)
}

/// Threads that go from CPU to CPU, so that interrupts between CPUs are needed all the time.
fn under_load<T>(work: impl FnOnce() -> T) -> T {
    static ENDING: AtomicBool = AtomicBool::new(false);
    ENDING.store(false, Relaxed);
    std::thread::scope(|scope| {
        for first in 0..3_usize {
            scope.spawn(move || {
                let mut cpu = first;
                while !ENDING.load(Relaxed) {
                    cpu = (cpu + 1) % 4;
                    // SAFETY: a set of CPUs is plain data; a CPU that is away is an error, no more.
                    unsafe {
                        let mut set: libc::cpu_set_t = std::mem::zeroed();
                        libc::CPU_SET(cpu, &mut set);
                        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set);
                    }
                    std::thread::sleep(Duration::from_millis(2));
                    let begin = Instant::now();
                    while begin.elapsed() < Duration::from_millis(2) {
                        std::hint::spin_loop();
                    }
                }
            });
        }
        let result = work();
        ENDING.store(true, Relaxed);
        result
    })
}

fn leave(device: &Device, turns: usize) -> Done {
    under_load(|| {
        for turn in 0..turns {
            enable(device).map_err(|error| format!("turn {turn}: {error}"))?;
            device
                .disable()
                .map_err(|error| format!("turn {turn}: {error}"))?;
        }
        say(
            true,
            &format!("enabled and disabled {turns} times under load"),
        );
        Ok(())
    })
}

fn exits(device: &Device, cpu: usize) -> Vec<u64> {
    device.status().unwrap().exits(cpu)
}

fn state(device: &Device, cell: u32) -> (CellState, StopReason) {
    let status = device.status().unwrap();
    let cell = &status.get().cells[cell as usize];
    (
        CellState::try_from(cell.state.load(Relaxed)).unwrap(),
        StopReason::try_from(cell.stop_reason.load(Relaxed)).unwrap(),
    )
}

/// Whether the latest failure is this one, whole, and from where the program is.
fn is_recorded(device: &Device, cell: u32, reason: StopReason) -> bool {
    let status = device.status().unwrap();
    let number = status.get().failures.load(Relaxed);
    let record = &status.get().failure[(number.wrapping_sub(1) % FAILURE_SLOTS as u64) as usize];
    let counter = record.program_counter.load(Relaxed);
    let outside = reason == StopReason::MemoryExecute;
    record.sequence.load(Relaxed) == number
        && status.get().cells[cell as usize].failure.load(Relaxed) == number
        && record.cell.load(Relaxed) == cell
        && record.cpu.load(Relaxed) as usize == SECOND.cpu
        && record.reason.load(Relaxed) == u32::from(reason)
        && (outside || (CODE..CODE + CODE_BYTES).contains(&counter))
        && (!outside || record.guest_address.load(Relaxed) & !0xfff == HYPERVISOR.0)
}

/// The timer's interrupts in a cell, and how often it came to the hypervisor meanwhile.
fn interrupts(device: &Device, plan: &Plan, wanted: u64) -> (u64, u64) {
    let page = Physical::open(plan.shared());
    wait_until(Duration::from_secs(20), || page.word(INTERRUPTS) > 10);
    let before: u64 = exits(device, plan.cpu).iter().sum();
    let from = page.word(INTERRUPTS);
    wait_until(Duration::from_secs(60), || {
        page.word(INTERRUPTS) - from >= wanted
    });
    let count = page.word(INTERRUPTS) - from;
    let after: u64 = exits(device, plan.cpu).iter().sum();
    (count, after - before)
}

/// What an attack must come to.
#[derive(Clone, Copy)]
enum Outcome {
    /// The cell fails for this reason.
    Fails(StopReason),
    /// It ends itself.
    Ends(StopReason),
    /// It goes on; its result is this.
    Survives(u64),
    /// It goes on and answers nothing; the root takes its CPU.
    Silent,
}

const NOT_SUPPORTED: u64 = -1_i64 as u64;
const INVALID_PARAMETERS: u64 = -2_i64 as u64;

const ATTACKS: [(u64, &str, Outcome); 17] = [
    (1, "reads outside", Outcome::Fails(StopReason::MemoryRead)),
    (2, "writes outside", Outcome::Fails(StopReason::MemoryWrite)),
    (
        3,
        "executes outside",
        Outcome::Fails(StopReason::MemoryExecute),
    ),
    (4, "interrupts everybody", Outcome::Survives(0)),
    (5, "calls the firmware", Outcome::Survives(NOT_SUPPORTED)),
    (6, "spins with everything masked", Outcome::Silent),
    (
        7,
        "faults on its vectors and stack",
        Outcome::Fails(StopReason::MemoryExecute),
    ),
    (
        8,
        "maintains caches by set and way",
        Outcome::Fails(StopReason::SetWay),
    ),
    (9, "sleeps with everything masked", Outcome::Silent),
    (
        10,
        "reaches for the interrupt controller",
        Outcome::Survives(0),
    ),
    (
        11,
        "starts the root's CPU",
        Outcome::Survives(INVALID_PARAMETERS),
    ),
    (12, "masks by priority and spins", Outcome::Silent),
    // QEMU emulates no caches, and does not look whether the address is there.
    (13, "cleans caches outside", Outcome::Survives(0)),
    (14, "faults for ever", Outcome::Silent),
    (
        15,
        "writes the auxiliary control register",
        Outcome::Fails(StopReason::SystemRegister),
    ),
    (
        16,
        "turns the system off",
        Outcome::Ends(StopReason::SystemOff),
    ),
    (
        17,
        "resets the system",
        Outcome::Ends(StopReason::SystemReset),
    ),
];

fn attack(device: &Device, number: u64, name: &str, outcome: Outcome, program: &[u8]) -> Done {
    let page = Physical::open(SECOND.shared());
    while device.wait(Duration::ZERO)? {}
    let begun = page.word(BEGUN);
    let cell = SECOND.start(device, number, program)?;
    wait_until(Duration::from_secs(20), || page.word(BEGUN) != begun);
    match outcome {
        Outcome::Fails(reason) | Outcome::Ends(reason) => {
            let wanted = match outcome {
                Outcome::Fails(_) => CellState::Failed,
                _ => CellState::Stopped,
            };
            let met = wait_until(Duration::from_secs(10), || state(device, cell).0 == wanted);
            let found = state(device, cell);
            say(met && found.1 == reason, &format!("{name}: {found:?}"));
            say(
                device.wait(Duration::from_secs(1))?,
                &format!("{name}: told by poll"),
            );
            if let Outcome::Fails(_) = outcome {
                say(
                    is_recorded(device, cell, reason),
                    &format!("{name}: recorded"),
                );
            }
        }
        Outcome::Survives(result) => {
            let from = page.word(INTERRUPTS);
            let alive = wait_until(Duration::from_secs(20), || page.word(INTERRUPTS) > from + 3);
            let found = page.word(RESULT);
            let state = state(device, cell);
            let what = format!("{name}: alive {alive}, result {found:#x}, {state:?}");
            say(alive && found == result, &what);
        }
        Outcome::Silent => {
            std::thread::sleep(Duration::from_millis(300));
            say(
                state(device, cell).0 == CellState::Running,
                &format!("{name}: runs"),
            );
        }
    }
    let begin = Instant::now();
    device.destroy(cell)?;
    say(
        true,
        &format!("{name}: its CPU is back after {:?}", begin.elapsed()),
    );
    Ok(())
}

fn cells(device: &Device, directory: &Path) -> Done {
    let irq = std::fs::read(directory.join("rampart-cell-irq"))?;
    let program = std::fs::read(directory.join("rampart-cell-attack"))?;
    enable(device)?;
    let first = FIRST.start(device, 1000, &irq)?;
    let (count, exits_then) = interrupts(device, &FIRST, 500);
    println!("figure interrupts {count} exits {exits_then}");
    say(
        count >= 500 && exits_then == 0,
        "no exit for the timer's interrupts",
    );

    say(
        read_is_refused(FIRST.memory),
        "the root cannot read the cell's memory",
    );
    say(
        read_is_refused(HYPERVISOR.0),
        "the root cannot read the hypervisor's memory",
    );
    let again = FIRST.blob(0).bytes();
    say(
        device.create(&again).is_err(),
        "a CPU and memory have one owner",
    );
    for (number, name, outcome) in ATTACKS {
        let page = Physical::open(FIRST.shared());
        let (before, exits_before) = (page.word(INTERRUPTS), exits(device, FIRST.cpu));
        let unexpected = page.word(UNEXPECTED);
        if let Err(error) = attack(device, number, name, outcome, &program) {
            say(false, &format!("{name}: {error}"));
        }
        let counted = wait_until(Duration::from_secs(20), || {
            page.word(INTERRUPTS) > before + 20
        });
        let same = exits(device, FIRST.cpu) == exits_before && page.word(UNEXPECTED) == unexpected;
        say(
            counted && same,
            &format!("{name}: the neighbour notices nothing"),
        );
    }
    device.stop(first)?;
    let page = Physical::open(FIRST.shared());
    let stopped = page.word(INTERRUPTS);
    std::thread::sleep(Duration::from_millis(50));
    say(
        page.word(INTERRUPTS) == stopped,
        "a stopped cell does nothing",
    );
    device.start(first)?;
    let again = wait_until(Duration::from_secs(20), || {
        page.word(INTERRUPTS) > stopped + 10
    });
    say(again, "it starts again");
    device.destroy(first)?;
    let memory = Physical::open(FIRST.memory);
    let wiped = (0..512).all(|word| memory.word(word) == 0);
    say(wiped, "what was loaded is wiped");
    device.disable()?;
    say(true, "left");
    Ok(())
}

fn turns(device: &Device, turns: usize, directory: &Path) -> Done {
    let irq = std::fs::read(directory.join("rampart-cell-irq"))?;
    enable(device)?;
    for turn in 0..turns {
        let page = Physical::open(FIRST.shared());
        let begun = page.word(BEGUN);
        let cell = FIRST.start(device, 1000, &irq)?;
        if !wait_until(Duration::from_secs(20), || page.word(BEGUN) != begun) {
            return Err(format!("turn {turn}: the cell did not begin").into());
        }
        device.stop(cell)?;
        device.destroy(cell)?;
        let memory = Physical::open(FIRST.memory);
        if (0..512).any(|word| memory.word(word) != 0) {
            return Err(format!("turn {turn}: not wiped").into());
        }
    }
    device.disable()?;
    say(
        true,
        &format!("created, started, stopped and destroyed {turns} times"),
    );
    Ok(())
}

fn main() -> Done {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    if let ["peek", address] = words[..] {
        println!("{:#x}", Physical::open(address.parse()?).word(0));
        return Ok(());
    }
    let device = Device::open()?;
    match words[..] {
        ["enable"] => enable(&device),
        ["disable"] => Ok(device.disable()?),
        // The cell stays when this program ends.
        ["start", directory] => {
            enable(&device)?;
            let program = std::fs::read(Path::new(directory).join("rampart-cell-irq"))?;
            FIRST.start(&device, 1000, &program)?;
            Ok(())
        }
        ["leave", count] => leave(&device, count.parse()?),
        ["cells", directory] => cells(&device, Path::new(directory)),
        ["turns", count, directory] => turns(&device, count.parse()?, Path::new(directory)),
        _ => Err(format!("{words:?}: no such command").into()),
    }
}
