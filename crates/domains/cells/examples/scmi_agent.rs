// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests clocks that the root serves to a cell, on a root whose hypervisor is enabled. The same program runs inside
//! the cell:
//!
//! ```text
//! scmi_agent run KERNEL METER HOSTILE MODULE...     in the root: the modules are those of the cell's drivers
//! scmi_agent crash KERNEL METER MODULE...           in the root: panics after a line of its standard input
//! scmi_agent use PATH...                            in the cell: uses the devices, until its standard input ends
//! scmi_agent open PATH                              in the cell: opens a port without end
//! ```
//!
//! Each check prints a line that begins with `ok` or `FAILED`; figures begin with `figure`, lines of the cell's
//! console with `cell`.
#![allow(clippy::print_stdout, clippy::unwrap_used)]

use std::fs::{self, OpenOptions};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rampart_agent::{Agent, AgentCommand, AgentHandle};
use rampart_cells::describe::{Sources, TreeDevice, describe};
use rampart_cells::linux::LinuxCell;
use rampart_cells::operate::Operator;
use rampart_cells::resolve::{CellRequest, MemoryFlags, RegionWriter, SharedRequest};
use rampart_cells::scmi::{Resource, ResourceKind, Service};
use rampart_hypervisor_core::format::{Doorbell, SmcGrant};
use rampart_hypervisor_core::interface::{CellState, DOORBELL_BY_SMC, Exit};
use rampart_model::CpuSet;

mod linux_cell;

use linux_cell::{GUEST_PROGRAM, Parts, Result, report, resolved};

const MEMORY: u64 = 160 << 20;
const BOOT_TIMEOUT: Duration = Duration::from_secs(240);
/// Attempts to boot the cell.
const TRIES: u32 = 4;
const DRIVER_TIMEOUT: Duration = Duration::from_secs(20);
const TIMEOUT: Duration = Duration::from_secs(60);
/// Pause between two times that a port is opened.
const PAUSE: Duration = Duration::from_millis(200);
const SUMMARY: &str = "/sys/kernel/debug/clk/clk_summary";

/// A device's address, a file that shows that its driver is bound, and its clock.
type Used = (&'static str, &'static str, &'static str);

/// The devices of the cell on the i.MX 8M Plus.
const DEVICES: [Used; 3] = [
    ("0x30880000", "30880000.serial", "uart3_root_clk"),
    ("0x30a30000", "30a30000.i2c", "i2c2_root_clk"),
    ("0x30830000", "30830000.spi", "ecspi2_root_clk"),
];

/// Returns how often a clock is enabled in the root, by the kernel's own count.
fn enabled(clock: &str) -> Result<u64> {
    let text = fs::read_to_string(SUMMARY)?;
    let mut lines = text.lines().map(str::split_whitespace);
    let found = lines.find_map(|mut words| (words.next() == Some(clock)).then(|| words.next()));
    let count = found.flatten().ok_or(format!("no clock {clock}"))?;
    Ok(count.parse()?)
}

fn all_enabled() -> Result<Vec<u64>> {
    DEVICES.iter().map(|(_, _, clock)| enabled(clock)).collect()
}

/// Waits until the counts of all clocks are these.
fn become_enabled(wanted: &[u64]) -> Result<bool> {
    let begin = Instant::now();
    while begin.elapsed() < TIMEOUT {
        if all_enabled()? == wanted {
            return Ok(true);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    println!("figure clocks {:?}, not {wanted:?}", all_enabled()?);
    Ok(false)
}

/// Takes the devices from the drivers of the root.
fn unbind(devices: &[TreeDevice]) -> Result<()> {
    for device in devices {
        if let Some(linux) = &device.linux
            && let Some(driver) = &linux.driver
        {
            let path = format!("/sys/bus/{}/drivers/{driver}/unbind", linux.bus);
            fs::write(path, &linux.device)?;
        }
    }
    Ok(())
}

fn is_chosen(device: &TreeDevice) -> bool {
    let location = device.ranges.first().map(|range| range.start);
    let text = location.map(|start| format!("{start:#x}"));
    DEVICES
        .iter()
        .any(|(address, _, _)| text.as_deref() == Some(address))
}

fn boot(kernel: &str, meter: &str, modules: &[&str]) -> Result<LinuxCell> {
    let request = CellRequest {
        devices: DEVICES.map(|(address, _, _)| address.to_owned()).to_vec(),
        ..CellRequest::linux("board", MEMORY)
    };
    Ok(Parts::read(kernel, meter, modules, &[])?.boot(resolved(&request)?)?)
}

/// Starts to use the devices in the cell; they are used as long as the returned process. Returns `None` if a driver is
/// not bound, or gets no clock.
fn start_use(agent: &Agent, devices: &[Used]) -> Result<Option<AgentHandle>> {
    let mut words = vec![GUEST_PROGRAM, "use"];
    words.extend(devices.iter().map(|(_, device, _)| *device));
    let process = agent.spawn(&AgentCommand::new(words))?;
    let mut used = false;
    for line in BufReader::new(process.stdout).lines() {
        let line = line?;
        println!("{line}");
        if line == "used" {
            used = true;
            break;
        }
    }
    // Its standard input stays open as long as the process.
    std::mem::forget(process.stdin);
    Ok(used.then_some(process.handle))
}

/// Boots the cell until its drivers are bound. Its Linux waits for an answer for 30 ms, and the processors of a
/// simulated machine may stand still for longer.
fn boot_used(
    devices: &[Used],
    boot: impl Fn() -> Result<LinuxCell>,
) -> Result<(LinuxCell, Agent, AgentHandle)> {
    for _ in 0..TRIES {
        let cell = boot()?;
        let agent = cell.agent(BOOT_TIMEOUT)?;
        println!(
            "figure requests until the first program: {}",
            requests(&cell)?
        );
        let used = start_use(&agent, devices);
        for line in cell.console().iter().filter(|line| line.contains("scmi")) {
            println!("cell {line}");
        }
        if let Ok(Some(handle)) = used {
            return Ok((cell, agent, handle));
        }
        println!("figure a driver has no clock: {used:?}");
        cell.destroy()?;
    }
    Err("the cell does not use its devices".into())
}

/// Waits for the driver of a device, and returns the device.
fn driven(device: &str) -> Result<PathBuf> {
    let path = Path::new("/sys/bus/platform/devices").join(device);
    let begin = Instant::now();
    while !path.join("driver").exists() && begin.elapsed() < DRIVER_TIMEOUT {
        std::thread::sleep(Duration::from_millis(50));
    }
    let driver = fs::read_link(path.join("driver")).unwrap_or_default();
    let driver = driver.file_name().unwrap_or_default().to_string_lossy();
    if driver.is_empty() {
        return Err(format!("{device} has no driver").into());
    }
    report(true, &format!("{device}: driver {driver}"));
    Ok(path)
}

/// Returns the ports of a device.
fn ports(path: &Path) -> Vec<PathBuf> {
    let names = fs::read_dir(path.join("tty")).into_iter().flatten();
    let names = names.flatten().map(|port| port.file_name());
    names.map(|name| Path::new("/dev").join(name)).collect()
}

/// Uses devices until the standard input ends.
fn use_devices(devices: &[&str]) -> Result<()> {
    let mut opened = Vec::new();
    for device in devices {
        let path = driven(device)?;
        // A port is used while it is open; the others while they may not sleep.
        fs::write(path.join("power/control"), "on")?;
        for port in ports(&path) {
            opened.push(OpenOptions::new().write(true).open(port)?);
        }
    }
    println!("used");
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

/// Opens and closes a port, each of which needs requests, and writes to it.
fn open_without_end(device: &str) -> Result<()> {
    let ports = ports(&driven(device)?);
    let port = ports.first().ok_or("the device has no port")?;
    for number in 1_u64.. {
        // With the rights of root the port opens without its clock, and cannot be used.
        let opened = OpenOptions::new().write(true).open(port);
        let result = opened.and_then(|mut port| port.write_all(b"."));
        let result = result.map_or_else(|error| format!("fails: {error}"), |()| "works".to_owned());
        println!("port {number} {result}");
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

fn requests(cell: &LinuxCell) -> Result<u64> {
    let exits = cell.exits()?;
    Ok(exits
        .iter()
        .map(|cpu| cpu[Exit::SmcForwarded as usize])
        .sum())
}

fn linux(kernel: &str, meter: &str, modules: &[&str]) -> Result<()> {
    let before = all_enabled()?;
    println!("figure clocks before: {before:?}");
    report(before == [0; 3], "the root has turned the clocks off");
    let (cell, agent, handle) = boot_used(&DEVICES, || boot(kernel, meter, modules))?;
    let during = all_enabled()?;
    println!("figure clocks while the cell uses its devices: {during:?}");
    report(
        during
            .iter()
            .zip(&before)
            .all(|(during, before)| during > before),
        "the root counts the uses of the cell",
    );
    println!("figure requests in all: {}", requests(&cell)?);
    drop(handle);
    drop(agent);
    cell.stop()?;
    report(become_enabled(&before)?, "after a stop, the clocks are off");
    cell.destroy()?;
    let (cell, agent, _handle) = boot_used(&DEVICES, || boot(kernel, meter, modules))?;
    report(all_enabled()? == during, "another cell uses them again");
    drop(agent);
    cell.destroy()?;
    report(
        become_enabled(&before)?,
        "after its end, the clocks are off",
    );
    Ok(())
}

/// Panics while a cell uses two devices and opens the port of the third one. The reader of the machine's memory examines
/// the cell and the registers of the clocks.
fn crash(kernel: &str, meter: &str, modules: &[&str]) -> Result<()> {
    let [port, used @ ..] = &DEVICES;
    let (cell, agent, _handle) = boot_used(used, || boot(kernel, meter, modules))?;
    let to_root = cell.regions().to_root;
    println!(
        "figure to the root: {:#x}+{:#x}",
        to_root.start, to_root.bytes
    );
    let process = agent.spawn(&AgentCommand::new([GUEST_PROGRAM, "open", port.1]))?;
    let mut lines = BufReader::new(process.stdout)
        .lines()
        .map_while(|line| line.ok());
    let works = lines.find(|line| line.ends_with(" works"));
    println!(
        "figure before the panic: {}",
        works.ok_or("the port does not work")?
    );
    std::thread::spawn(move || lines.for_each(drop));
    std::io::stdin().read_line(&mut String::new())?;
    fs::write("/proc/sysrq-trigger", "c")?;
    Err("the root did not panic".into())
}

/// Starts the attack with one device's clocks, and returns its number.
fn start_hostile(image: &[u8], device: &TreeDevice, argument: u64) -> Result<(u32, u64)> {
    let operator = Operator::open()?;
    let mut request = CellRequest::new("hostile");
    request.bells = 1;
    request.shared.push(SharedRequest::Own {
        name: None,
        bytes: 4096,
        writer: RegionWriter::Cell,
    });
    let clocks = device
        .references
        .iter()
        .filter(|one| one.property == "clocks");
    let resources: Vec<Resource> = (0..clocks.count() as u32)
        .map(|index| Resource {
            kind: ResourceKind::Clock,
            path: device.path.clone(),
            index,
            shared: false,
        })
        .collect();
    request.argument = argument | resources.len() as u64;
    let failed = |error| format!("hostile: {error:?}");
    let in_use = operator.in_use().map_err(failed)?;
    let mut resolved = operator
        .resolved(&request, &CpuSet::new())
        .map_err(failed)?;
    let page = resolved.shared[1].physical;
    let memory = resolved.configuration.memory.iter_mut();
    for region in memory.filter(|region| region.physical == page) {
        region.flags |= (MemoryFlags::ROOT_WRITE | MemoryFlags::UNCACHED).bits();
    }
    resolved.configuration.doorbells.push(Doorbell {
        interrupt: in_use.network_interrupt,
        reserved: 0,
    });
    resolved.configuration.smcs.push(SmcGrant {
        first: DOORBELL_BY_SMC,
        last: DOORBELL_BY_SMC,
    });
    let bell = resolved.bells[0];
    let mut doorbells = in_use.root_doorbells.iter();
    let root_doorbell = doorbells
        .position(|number| *number == bell)
        .ok_or("no doorbell")?;
    let number = operator.create(&resolved).map_err(failed)?;
    operator.device().serve(
        number,
        &Service {
            page,
            bell,
            root_doorbell: root_doorbell as u32,
            resources,
        },
    )?;
    operator.load("hostile", None, image).map_err(failed)?;
    operator.start("hostile").map_err(failed)?;
    Ok((number, resolved.shared[0].physical))
}

/// Words of the page that the program writes: `rampart_hypervisor_cells::Word`.
const RESULT: usize = 3;
const DONE: usize = 6;

fn hostile(image: &str) -> Result<()> {
    let image = fs::read(image)?;
    let description = describe(&Sources::of_this_machine()?);
    let device = description
        .devices
        .iter()
        .find(|one| is_chosen(one))
        .ok_or("no device")?;
    let before = all_enabled()?;
    let operator = Operator::open()?;
    let failed = |error| format!("hostile: {error:?}");
    for (what, argument) in [
        ("stops", 0),
        ("fails", 1 << 31),
        ("floods", 7 << 32),
        ("floods again", 9 << 32),
    ] {
        let (number, shared) = start_hostile(&image, device, argument)?;
        let memory = operator.device().map_shared(shared, 4096, false)?;
        let word = |index: usize| memory.words()[index].load(std::sync::atomic::Ordering::Acquire);
        let begin = Instant::now();
        while word(DONE) == 0 && begin.elapsed() < TIMEOUT {
            std::thread::sleep(Duration::from_millis(20));
        }
        report(
            word(DONE) > 0 && word(RESULT) == 0,
            &format!(
                "hostile, {what}: its requests are refused (request {})",
                word(RESULT)
            ),
        );
        let state = |device: &rampart_cells::device::Device| -> Result<CellState> {
            Ok(device.status()?.get().cells[number as usize]
                .condition()
                .state)
        };
        match argument {
            0 => {
                let during = all_enabled()?;
                report(during != before, "hostile: its clock is on");
                operator.stop("hostile").map_err(failed)?;
            }
            0x8000_0000 => {
                let begin = Instant::now();
                while state(operator.device())? != CellState::Failed && begin.elapsed() < TIMEOUT {
                    std::thread::sleep(Duration::from_millis(20));
                }
                report(
                    state(operator.device())? == CellState::Failed,
                    "hostile: it fails",
                );
            }
            _ => {
                std::thread::sleep(Duration::from_secs(5));
                println!("figure hostile: {} requests", word(DONE));
                report(word(DONE) > 1000, "hostile: it floods");
                operator.stop("hostile").map_err(failed)?;
            }
        }
        report(
            become_enabled(&before)?,
            &format!("hostile, {what}: its clocks are off"),
        );
        drop(memory);
        operator.destroy("hostile").map_err(failed)?;
        report(
            all_enabled()? == before,
            &format!("hostile, {what}: destroyed"),
        );
    }
    Ok(())
}

fn run(kernel: &str, meter: &str, image: &str, modules: &[&str]) -> Result<()> {
    let description = describe(&Sources::of_this_machine()?);
    let chosen = description.devices.into_iter().filter(is_chosen);
    unbind(&chosen.collect::<Vec<_>>())?;
    linux(kernel, meter, modules)?;
    hostile(image)?;
    report(true, "left");
    Ok(())
}

fn main() -> std::process::ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match &words[..] {
        ["run", kernel, meter, image, modules @ ..] => run(kernel, meter, image, modules),
        ["crash", kernel, meter, modules @ ..] => crash(kernel, meter, modules),
        ["use", devices @ ..] => use_devices(devices),
        ["open", device] => open_without_end(device),
        _ => Err("see the top of scmi_agent.rs".into()),
    };
    match done {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            // Inside a cell it is not the result of the test: there may be another attempt.
            let word = if words.first() == Some(&"use") {
                "figure"
            } else {
                "FAILED"
            };
            println!("{word}  {error}");
            std::process::ExitCode::FAILURE
        }
    }
}
