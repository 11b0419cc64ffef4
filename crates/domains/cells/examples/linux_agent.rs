// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests Linux cells in a booted root that does not use the memory from 0x7000_0000 (`mem=`). The
//! same program also runs inside the cells:
//!
//! ```text
//! linux_agent run | crash | device KERNEL METER  in the root
//! linux_agent initramfs METER                    in the root: to its output
//! linux_agent reset | panic | alarms             in a cell
//! ```
//!
//! Each check prints a line that begins with `ok` or `FAILED`; figures begin with `figure`, lines
//! of a cell's console with `cell`, those of a kernel that has to fail with `failing`.
#![allow(clippy::print_stdout, clippy::unwrap_used)]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rampart_agent::{Agent, AgentCommand, AgentHandle, AgentInput, AgentProcess};
use rampart_cells::describe::{Sources, describe};
use rampart_cells::linux::{
    AddressSpan, LinuxCell, LinuxError, LinuxOrder, LinuxRegions, initramfs,
};
use rampart_cells::names::RegionNames;
use rampart_cells::resolve::CellRequest;
use rampart_hypervisor_core::interface::{Exit, StopReason};
use rampart_model::{
    CpuId, CpuSet, METER_PROTOCOL_VERSION, MeterEvent, MeterKind, MeterRequest, MeterSettings,
    Nanos, Phase,
};

mod linux_cell;

use linux_cell::{
    GUEST_PROGRAM, Parts, Result, enable, exit_code, output, print_console, report, resolved,
};

const HYPERVISOR: (u64, u64) = (0x7000_0000, 8 << 20);
/// 128 MiB for Linux, including its shared regions.
const SPAN: AddressSpan = AddressSpan {
    start: 0x7100_0000,
    bytes: 132 << 20,
};
/// Memory of a cell whose configuration is resolved: the RT kernel of Linux 6.12 has 45 MB and does not boot in 128 MiB.
const RESOLVED_BYTES: u64 = 192 << 20;
/// An emulated kernel boots in seconds, much later on a busy machine.
const BOOT_TIMEOUT: Duration = Duration::from_secs(150);
const TIMEOUT: Duration = Duration::from_secs(60);
/// A device with a driver built into the kernel, by the first word of its `compatible`.
const CLOCK: &str = "arm,pl031";
/// Number of alarms, one per second.
const ALARMS: u64 = 5;
/// Minimum number of samples of a wakeup meter in three seconds with a period of one millisecond.
const FEWEST_SAMPLES: u64 = 300;
/// Number of batches before the crash, one second each.
const BATCHES_BEFORE_CRASH: u32 = 3;
/// On one CPU the kernel sends itself at most one interrupt for this number of timer interrupts.
const MOST_SENT_ONE_IN: u64 = 20;

fn boot(parts: &Parts, name: &str, cpus: &[u64]) -> std::result::Result<LinuxCell, LinuxError> {
    boot_with(parts, name, cpus, "")
}

/// Boots a cell in [`SPAN`].
fn boot_with(
    parts: &Parts,
    name: &str,
    cpus: &[u64],
    arguments: &str,
) -> std::result::Result<LinuxCell, LinuxError> {
    let regions = LinuxRegions::within(SPAN)?;
    LinuxCell::boot(LinuxOrder {
        configuration: regions.configuration(name, cpus),
        image: parts.image.clone(),
        initramfs: parts.initramfs.clone(),
        arguments: arguments.to_owned(),
        nodes: Vec::new(),
        names: RegionNames::default(),
        functions: Vec::new(),
    })
}

fn release() -> String {
    let text = std::fs::read_to_string("/proc/sys/kernel/osrelease");
    text.unwrap_or_default().trim().to_owned()
}

/// Runs `work` while threads load all CPUs of the root.
fn under_load<T>(work: impl FnOnce() -> T) -> T {
    static ENDING: AtomicBool = AtomicBool::new(false);
    ENDING.store(false, Relaxed);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut memory = vec![1_u8; 1 << 20];
                while !ENDING.load(Relaxed) {
                    memory
                        .iter_mut()
                        .for_each(|byte| *byte = byte.wrapping_mul(3));
                    std::hint::black_box(&memory);
                }
            });
        }
        let result = work();
        ENDING.store(true, Relaxed);
        result
    })
}

/// Returns the number of virtual timer interrupts on all CPUs of the cell.
fn timer_interrupts(agent: &Agent) -> Result<u64> {
    let text = output(agent, &["/init", "show", "/proc/interrupts"], TIMEOUT)?;
    let line = text.lines().find(|line| line.contains("arch_timer"));
    let line = line.ok_or("no arch_timer in /proc/interrupts")?;
    let counts = line.split_whitespace().skip(1);
    Ok(counts.map_while(|word| word.parse::<u64>().ok()).sum())
}

/// Returns the exits since `before`, by reason. Excludes sleeping if the script declares that it traps.
fn since(cell: &LinuxCell, before: &[Vec<u64>]) -> Result<Vec<(Exit, u64)>> {
    let after = cell.exits()?;
    let mut found = Vec::new();
    let sleeping = std::env::var_os("SLEEPING_TRAPS").map(|_| Exit::Wait as usize);
    for number in (0..before[0].len()).filter(|number| Some(*number) != sleeping) {
        let sum = |cpus: &[Vec<u64>]| cpus.iter().map(|cpu| cpu[number]).sum::<u64>();
        let grown = sum(&after) - sum(before);
        if grown > 0 {
            found.push((Exit::try_from(number as u32)?, grown));
        }
    }
    Ok(found)
}

/// The result of a meter, and the exits of its cell during the measurement.
struct Measured {
    samples: u64,
    interrupts: u64,
    exits: Vec<(Exit, u64)>,
}

fn send(input: &mut AgentInput, request: &MeterRequest) -> Result<()> {
    let mut line = serde_json::to_vec(request)?;
    line.push(b'\n');
    Ok(input.write_all(&line)?)
}

/// Starts a meter that measures as soon as it is ready.
fn start_meter(agent: &Agent, settings: MeterSettings) -> Result<AgentProcess> {
    let mut process = agent.spawn(&AgentCommand::new(["/init"]))?;
    let prepare = MeterRequest::Prepare {
        protocol: METER_PROTOCOL_VERSION,
        settings,
    };
    send(&mut process.stdin, &prepare)?;
    send(&mut process.stdin, &MeterRequest::Go {})?;
    Ok(process)
}

fn measure(cell: &LinuxCell, agent: &Agent, settings: MeterSettings) -> Result<Measured> {
    let interrupts_before = timer_interrupts(agent)?;
    let mut before = cell.exits()?;
    let mut samples = 0;
    let AgentProcess {
        stdin,
        stdout,
        handle,
        ..
    } = start_meter(agent, settings)?;
    for line in BufReader::new(stdout).lines() {
        match serde_json::from_str(&line?)? {
            MeterEvent::Started { .. } => before = cell.exits()?,
            MeterEvent::Batch(batch) if batch.phase == Phase::Measured => {
                samples += batch.series[0].seen.samples;
            }
            MeterEvent::Ready(_) | MeterEvent::Batch(_) => {}
            MeterEvent::Finished { .. } => break,
            MeterEvent::Refused(refusal) => return Err(refusal.finding.to_string().into()),
        }
    }
    let exits = since(cell, &before)?;
    let interrupts = timer_interrupts(agent)? - interrupts_before;
    drop(stdin);
    handle.wait(TIMEOUT)?.ok_or("the meter does not end")?;
    Ok(Measured {
        samples,
        interrupts,
        exits,
    })
}

fn plan(cpus: &[u32]) -> MeterSettings {
    let cpus: CpuSet = cpus.iter().map(|cpu| CpuId(*cpu)).collect();
    MeterSettings {
        duration: Nanos::from_secs(3),
        ..MeterSettings::new(MeterKind::Wakeup, cpus)
    }
}

/// Measures and checks the exits: only those for interrupts that the cell's kernel sends, to its
/// other CPU or, for deferred work, to itself. A kernel with one CPU sends much fewer than there are
/// timer interrupts; how many one with two CPUs sends depends on how fast it is emulated.
fn check(cell: &LinuxCell, agent: &Agent, cpus: &[u32], what: &str) -> Result<()> {
    let measured = measure(cell, agent, plan(cpus))?;
    let Measured {
        samples,
        interrupts,
        exits,
    } = measured;
    println!("figure {what}: samples {samples} interrupts {interrupts} exits {exits:?}");
    report(
        samples >= FEWEST_SAMPLES && interrupts >= samples,
        &format!("{what}: measured"),
    );
    let sent = |(reason, _): &&(Exit, u64)| *reason == Exit::SoftwareInterrupt;
    report(
        exits.iter().all(|exit| sent(&exit)),
        &format!("{what}: no exit except for interrupts that it sends"),
    );
    let count: u64 = exits.iter().filter(sent).map(|(_, count)| count).sum();
    report(
        agent.hello().cpus.len() > 1 || count * MOST_SENT_ONE_IN < interrupts,
        &format!("{what}: timer interrupts cause no exit"),
    );
    Ok(())
}

fn one_cpu(parts: &Parts) -> Result<()> {
    let begin = Instant::now();
    let cell = boot(parts, "linux-1", &[3])?;
    let agent = cell.agent(BOOT_TIMEOUT)?;
    println!("figure one CPU: answers after {:?}", begin.elapsed());
    let hello = agent.hello();
    report(
        hello.kernel_release == release() && hello.kernel_version.contains("PREEMPT_RT"),
        &format!("one CPU: {} {}", hello.kernel_release, hello.kernel_version),
    );
    report(hello.cpus.to_string() == "0", "one CPU: the kernel has one");
    report(
        hello.problems.is_empty(),
        &format!("one CPU: problems {:?}", hello.problems),
    );
    check(&cell, &agent, &[0], "one CPU, quiet")?;
    under_load(|| check(&cell, &agent, &[0], "one CPU, the root under load"))?;
    drop(agent);
    // A second connection works as well.
    let again = cell.agent(TIMEOUT)?;
    report(
        output(&again, &["/init", "show", "/proc/interrupts"], TIMEOUT)?.contains("arch_timer"),
        "one CPU: a second connection works",
    );
    print_console(&cell);

    cell.stop()?;
    report(again.wait_lost(TIMEOUT), "stopped: the connection ends");
    report(
        cell.wait_stopped(TIMEOUT)? == Some(StopReason::ByRoot),
        "stopped by the root",
    );
    let agent = restarted(&cell, "after a stop")?;
    agent.power_off()?;
    stopped(&cell, "turned off by itself", StopReason::SystemOff)?;
    let agent = restarted(&cell, "after it turned itself off")?;
    let program = ended_from_inside(&agent, "reset")?;
    stopped(&cell, "reset by itself", StopReason::SystemReset)?;
    drop((program, agent));
    let agent = restarted(&cell, "after it reset itself")?;
    let program = ended_from_inside(&agent, "panic")?;
    stopped(&cell, "its kernel panicked", StopReason::SystemReset)?;
    drop((program, agent));
    restarted(&cell, "after its kernel panicked")?;
    cell.destroy()?;
    Ok(())
}

/// Starts a program that ends its machine at the end of its input. Dropping the returned handle
/// kills the program.
fn ended_from_inside(agent: &Agent, word: &str) -> Result<AgentHandle> {
    let AgentProcess { stdin, handle, .. } =
        agent.spawn(&AgentCommand::new([GUEST_PROGRAM, word]))?;
    drop(stdin);
    Ok(handle)
}

fn restarted(cell: &LinuxCell, what: &str) -> Result<Agent> {
    cell.start()?;
    let agent = cell.agent(BOOT_TIMEOUT)?;
    report(true, &format!("{what}: the cell runs again"));
    print_console(cell);
    Ok(agent)
}

fn stopped(cell: &LinuxCell, what: &str, wanted: StopReason) -> Result<()> {
    let found = cell.wait_stopped(TIMEOUT)?;
    report(found == Some(wanted), &format!("{what}: {found:?}"));
    Ok(())
}

fn two_cpus(parts: &Parts) -> Result<()> {
    let cell = boot(parts, "linux-2", &[2, 3])?;
    let agent = cell.agent(BOOT_TIMEOUT)?;
    report(
        agent.hello().cpus.to_string() == "0-1",
        "two CPUs: the kernel has two",
    );
    check(&cell, &agent, &[1], "two CPUs, one measured")?;
    under_load(|| check(&cell, &agent, &[0, 1], "two CPUs, both measured"))?;
    print_console(&cell);
    cell.destroy()?;
    Ok(())
}

/// Boots kernels that fail before their first program. The error has the kernel's own reason.
fn failing(parts: &Parts) -> Result<()> {
    // The later of two parameters is in effect; a kernel without a first program looks for a disk.
    let cell = boot_with(parts, "no-init", &[3], "rdinit=/none")?;
    stopped(&cell, "without a first program", StopReason::SystemReset)?;
    let error = cell.agent(Duration::from_secs(1)).err();
    let error = error.map_or_else(String::new, |error| error.to_string());
    println!("failing {}", error.replace('\n', "\nfailing "));
    let whole = cell.kernel_log()?.unwrap_or_default();
    report(
        error.contains("] Kernel panic - not syncing: VFS: Unable to mount root fs")
            && whole
                .first()
                .is_some_and(|line| line.contains("] Booting Linux on physical CPU")),
        "without a first program: the error has the panic, and the log is whole",
    );
    cell.destroy()?;
    // Parameters are parsed before the memory is known, so the kernel does not reset itself.
    let cell = boot_with(parts, "no-memory", &[3], "mem=1M")?;
    let error = cell.agent(Duration::from_secs(20)).err();
    let error = error.map_or_else(String::new, |error| error.to_string());
    println!("failing {}", error.replace('\n', "\nfailing "));
    report(
        error.contains("Memory limited to 1MB"),
        "with too little memory: the error has the log of a kernel that hangs",
    );
    cell.destroy()?;
    Ok(())
}

fn run(kernel: &str, meter: &str) -> Result<()> {
    let device = enable(HYPERVISOR)?;
    let mut parts = Parts::read(kernel, meter, &[], &[])?;
    for (what, done) in [
        ("failing", failing(&parts)),
        ("one CPU", one_cpu(&parts)),
        ("two CPUs", two_cpus(&parts)),
    ] {
        if let Err(error) = done {
            report(false, &format!("{what}: {error}"));
        }
    }
    parts.image.truncate(40);
    report(
        matches!(boot(&parts, "none", &[3]), Err(LinuxError::Image(_))),
        "an invalid kernel image is refused",
    );
    device.disable()?;
    report(true, "left");
    Ok(())
}

/// Panics while a cell measures; the reader of the machine's memory examines the cell.
fn crash(kernel: &str, meter: &str) -> Result<()> {
    let _device = enable(HYPERVISOR)?;
    let cell = boot(&Parts::read(kernel, meter, &[], &[])?, "survivor", &[3])?;
    let to_root = cell.regions().to_root;
    println!(
        "figure to the root: {:#x}+{:#x}",
        to_root.start, to_root.bytes
    );
    let agent = cell.agent(BOOT_TIMEOUT)?;
    let plan = MeterSettings {
        duration: Nanos::from_secs(600),
        ..plan(&[0])
    };
    let process = start_meter(&agent, plan)?;
    let mut batches = 0;
    for line in BufReader::new(process.stdout).lines() {
        if let MeterEvent::Batch(batch) = serde_json::from_str(&line?)? {
            batches += u32::from(batch.phase == Phase::Measured);
        }
        if batches == BATCHES_BEFORE_CRASH {
            println!("figure batches before the panic: {batches}");
            std::io::stdout().flush()?;
            // Wait until the line has been transmitted.
            std::thread::sleep(Duration::from_secs(1));
            std::fs::write("/proc/sysrq-trigger", "c")?;
        }
    }
    Err("the root did not panic".into())
}

/// Assigns a device of the machine to a cell: its driver probes it, and its interrupts arrive.
fn device(kernel: &str, meter: &str) -> Result<()> {
    let parts = Parts::read(kernel, meter, &[], &[])?;
    let mut devices = describe(&Sources::of_this_machine()?).devices.into_iter();
    let clock = devices.find(|device| device.compatible.first().is_some_and(|one| one == CLOCK));
    let clock = clock.ok_or("the device tree has no clock")?;
    let request = CellRequest {
        devices: vec![clock.path],
        ..CellRequest::linux("clock", RESOLVED_BYTES)
    };
    let resolved = resolved(&request)?;
    report(
        resolved.findings.is_empty() && resolved.nodes.len() == 2,
        &format!(
            "device: the device and its clock are available: {:?}",
            resolved.findings
        ),
    );
    let cell = parts.boot(resolved)?;
    let agent = cell.agent(BOOT_TIMEOUT)?;
    let counted = || -> Result<u64> {
        let text = output(&agent, &["/init", "show", "/proc/interrupts"], TIMEOUT)?;
        let line = text.lines().find(|line| line.contains("rtc-pl031"));
        let count = line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
        Ok(count.ok_or("no interrupt of rtc-pl031")?)
    };
    let before = counted()?;
    let exits = cell.exits()?;
    let alarm_output = output(&agent, &[GUEST_PROGRAM, "alarms"], TIMEOUT)?;
    let exits = since(&cell, &exits)?;
    let interrupts = counted()? - before;
    println!("figure device: interrupts {interrupts} exits {exits:?}");
    report(
        alarm_output.trim() == format!("alarms {ALARMS}") && interrupts >= ALARMS,
        &format!(
            "device: its interrupts arrive: {interrupts}, {}",
            alarm_output.trim()
        ),
    );
    // With PREEMPT_RT the handler is a thread, and the kernel masks the interrupt around it: three
    // accesses to the distributor. Without PREEMPT_RT nothing traps.
    let real_time = agent.hello().kernel_version.contains("PREEMPT_RT");
    let sent = |reason| reason == Exit::SoftwareInterrupt;
    if real_time {
        let allowed = |(reason, count): &(Exit, u64)| match reason {
            Exit::Distributor => *count <= 3 * interrupts,
            reason => sent(*reason),
        };
        let only = exits.iter().all(allowed);
        report(only, "device: no exit except to mask its interrupt");
    } else {
        let none = exits.iter().all(|(reason, _)| sent(*reason));
        report(none, "device: no exit for its interrupts");
    }
    drop(agent);
    print_console(&cell);
    cell.destroy()?;
    Ok(())
}

/// Writes the first files of a plan's cell.
fn first_files(meter: &str) -> Result<()> {
    let files = initramfs(&std::fs::read(meter)?, &[])?;
    Ok(std::io::stdout().write_all(&files)?)
}

/// In a cell: waits for this number of seconds with the clock's interrupt
/// (Documentation/admin-guide/rtc.rst).
fn alarms() -> Result<()> {
    /// `_IO('p', 0x03)`.
    const RTC_UIE_ON: u64 = 0x7003;
    let mut clock = std::fs::File::open("/dev/rtc0")?;
    // SAFETY: the command takes no argument.
    if unsafe { libc::ioctl(clock.as_raw_fd(), RTC_UIE_ON as _) } != 0 {
        return Err(std::io::Error::last_os_error().into());
    }
    for _ in 0..ALARMS {
        clock.read_exact(&mut [0; 8])?;
    }
    println!("alarms {ALARMS}");
    Ok(())
}

/// Runs in a cell.
fn inside(what: &str) -> Result<()> {
    // The end of the input shows that the caller has received the start.
    std::io::stdin().read_to_end(&mut Vec::new())?;
    match what {
        "panic" => std::fs::write("/proc/sysrq-trigger", "c")?,
        _ => {
            // SAFETY: the call takes a number and does not return.
            unsafe { libc::reboot(libc::RB_AUTOBOOT) };
        }
    }
    Ok(())
}

fn main() -> std::process::ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["run", kernel, meter] => run(kernel, meter),
        ["crash", kernel, meter] => crash(kernel, meter),
        ["device", kernel, meter] => device(kernel, meter),
        ["initramfs", meter] => first_files(meter),
        ["alarms"] => alarms(),
        [what @ ("reset" | "panic")] => inside(what),
        _ => Err("see the top of linux_agent.rs".into()),
    };
    exit_code(done)
}
