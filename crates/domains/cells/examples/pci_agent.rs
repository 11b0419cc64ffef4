// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests PCI functions in a Linux cell, on a machine whose own devices are behind the hypervisor's SMMU, in a booted root
//! that does not use the memory from 0x7000_0000 (`mem=`). The same program also runs inside the cells:
//!
//! ```text
//! pci_agent run KERNEL METER NETWORK_AGENT MODULE...     in the root
//! pci_agent name DRIVER                                  in a cell: names the interface of this driver `outside`
//! pci_agent interrupts                                   in a cell: counts those of PCI functions
//! pci_agent attack ADDRESS                               in a cell: writes to all of its configuration space
//! pci_agent dma ADDRESS                                  in a cell: makes an e1000e read its orders at an address
//! ```
//!
//! Each check prints a line that begins with `ok` or `FAILED`; figures begin with `figure`, lines of a cell's
//! console with `cell`.
#![allow(clippy::print_stdout)]

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rampart_agent::Agent;
use rampart_cells::describe::{Description, PciFunction, Sources, describe};
use rampart_cells::linux::LinuxCell;
use rampart_cells::operate::Operator;
use rampart_cells::resolve::{CellRequest, CpuSelection, Resolved};
use rampart_hypervisor_core::interface::Exit;
use rampart_model::CpuId;

mod linux_cell;

use linux_cell::{
    GUEST_PROGRAM, Parts, Result, agent_of, enable, exit_code, output, print_console, report,
    resolved,
};

const HYPERVISOR: (u64, u64) = (0x7000_0000, 10 << 20);
const MEMORY: u64 = 192 << 20;
const BOOT_TIMEOUT: Duration = Duration::from_secs(240);
const TIMEOUT: Duration = Duration::from_secs(20);
const NETWORK_PROGRAM: &str = "/bin/network-program";
/// The gateway of QEMU's user network, which answers echo requests, and the address of the first machine.
const GATEWAY: &str = "10.0.2.2";
const OWN: &str = "10.0.2.15";
const PINGS: &str = "20";
const FUNCTIONS: &str = "/sys/bus/pci/devices";
/// On the disk behind the SMMU.
const FILE: &str = "/var/lib/rampart/pci-test";

/// Writes to the root's disk and reads it back, without what Linux has in memory.
fn disk_works(what: &str) -> Result<()> {
    let bytes: Vec<u8> = (0..4_u32 << 20).map(|at| (at ^ at >> 11) as u8).collect();
    let mut file = File::create(FILE)?;
    file.write_all(&bytes)?;
    file.sync_all()?;
    fs::write("/proc/sys/vm/drop_caches", "3")?;
    report(
        fs::read(FILE)? == bytes,
        &format!("{what}: the root's disk"),
    );
    Ok(fs::remove_file(FILE)?)
}

fn described() -> Result<Description> {
    Ok(describe(&Sources::of_this_machine()?))
}

fn function(identity: (u16, u16)) -> Result<PciFunction> {
    let functions = described()?.functions;
    let mut functions = functions.into_iter();
    let found = functions.find(|one| (one.vendor, one.device) == identity);
    Ok(found.ok_or_else(|| format!("no function {identity:x?}"))?)
}

/// Reads or writes the root's configuration space of a function.
fn configuration(address: &str) -> Result<File> {
    let path = Path::new(FUNCTIONS).join(address).join("config");
    Ok(OpenOptions::new().read(true).write(true).open(path)?)
}

/// Returns the resources of a cell with these devices.
fn with_devices(name: &str, devices: &[&str]) -> Result<Resolved> {
    resolved(&CellRequest {
        devices: devices.iter().map(|one| (*one).to_owned()).collect(),
        cpus: CpuSelection::List([CpuId(3)].into_iter().collect()),
        ..CellRequest::linux(name, MEMORY)
    })
}

/// Returns the output of a program in the cell, and prints it.
fn inside(agent: &Agent, words: &[&str]) -> Result<String> {
    let text = output(agent, words, TIMEOUT)?;
    print!("{text}");
    Ok(text)
}

fn interrupts(agent: &Agent) -> Result<u64> {
    let text = inside(agent, &[GUEST_PROGRAM, "interrupts"])?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("interrupts "));
    Ok(line.ok_or("no count")?.parse()?)
}

/// Exchanges packets, and compares exits and interrupts before and after.
fn packets_cause_no_exits(name: &str, cell: &LinuxCell, agent: &Agent) -> Result<()> {
    let before = (cell.exits()?.concat(), interrupts(agent)?);
    let text = inside(agent, &[NETWORK_PROGRAM, "ping", GATEWAY, PINGS])?;
    let after = (cell.exits()?.concat(), interrupts(agent)?);
    let all = format!("answered {PINGS} of {PINGS}");
    report(text.contains(&all), &format!("{name}: ping"));
    let raised = after.1 - before.1;
    report(
        raised > 0,
        &format!("{name}: {raised} interrupts of the function"),
    );
    let mut for_interrupts = 0;
    for (number, (before, after)) in before.0.iter().zip(&after.0).enumerate() {
        let exit = Exit::try_from(number as u32)
            .ok()
            .filter(|_| after > before);
        if let Some(exit) = exit {
            println!("figure {name}: exit {exit:?} {}", after - before);
            // PREEMPT_RT masks an interrupt at the distributor while its thread runs, and sends interrupts to itself.
            let of_kernel = [Exit::Distributor, Exit::SoftwareInterrupt, Exit::Management];
            if !of_kernel.contains(&exit) {
                for_interrupts += after - before;
            }
        }
    }
    report(
        for_interrupts == 0,
        &format!("{name}: no exit for an interrupt or an access"),
    );
    Ok(())
}

/// The root's accesses to the configuration space of a function that a cell has, and of the root port above it.
fn the_root_reaches_no_function_of_a_cell(function: &PciFunction) -> Result<()> {
    for address in function.behind.iter().chain([&function.address]) {
        let configuration = configuration(address)?;
        let mut bytes = [0; 64];
        configuration.read_exact_at(&mut bytes, 0)?;
        let what = format!("the root reads no function of a cell: {address}");
        report(bytes == [0xff; 64], &what);
        // Also the bits that turn off a bridge, and reset what is behind it.
        for (at, value) in [(4_u64, 0), (0x10, 0), (0x14, 0), (0x3c, 1 << 22)] {
            // Linux does not report what becomes of it.
            configuration.write_all_at(&u32::to_le_bytes(value), at)?;
        }
    }
    Ok(())
}

/// Takes the root's driver from the root port above a function.
fn release_root_port(function: &PciFunction) -> Result<()> {
    let Some(port) = &function.behind else {
        return Ok(());
    };
    let refused = with_devices("refused", &[function.address.as_str()]).err();
    let refused = refused.map(|error| error.to_string()).unwrap_or_default();
    report(
        refused.contains("Linux uses the root port above it"),
        &format!("refused: {}: {refused}", function.address),
    );
    let unbind = format!("{FUNCTIONS}/{port}/driver/unbind");
    Ok(fs::write(unbind, port)?)
}

fn a_function_in_a_cell(
    parts: &Parts,
    (name, driver): (&str, &str),
    identity: (u16, u16),
) -> Result<()> {
    let own = function(identity)?;
    let events_before = events()?;
    let mut before = [0; 64];
    configuration(&own.address)?.read_exact_at(&mut before, 0)?;
    // As a driver with message-signalled interrupts leaves it.
    configuration(&own.address)?.write_all_at(&[0, 4], 4)?;
    let cell = parts.boot(with_devices(name, &[own.address.as_str()])?)?;
    let agent = agent_of(&cell, name, BOOT_TIMEOUT)?;
    let named = inside(&agent, &[GUEST_PROGRAM, "name", driver])?;
    print_console(&cell);
    if !named.contains("ok  ") {
        return Err(format!("{name}: {driver} does not bind").into());
    }
    inside(&agent, &[NETWORK_PROGRAM, "up", "outside", OWN])?;
    inside(&agent, &[NETWORK_PROGRAM, "reach", GATEWAY])?;
    packets_cause_no_exits(name, &cell, &agent)?;
    disk_works(name)?;
    the_root_reaches_no_function_of_a_cell(&own)?;
    let attacked = inside(
        &agent,
        &[GUEST_PROGRAM, "attack", &format!("{:#x}", HYPERVISOR.0)],
    )?;
    report(
        attacked.contains("attacked"),
        &format!("{name}: writes to its configuration space"),
    );
    packets_cause_no_exits(&format!("{name}, after the attacks"), &cell, &agent)?;
    print_console(&cell);
    let refused = with_devices("second", &[own.address.as_str()]);
    let refused = refused
        .err()
        .map(|error| error.to_string())
        .unwrap_or_default();
    report(
        refused.contains("another cell owns it"),
        &format!("{name}: a second owner is refused: {refused}"),
    );
    let events_after = events()?;
    report(
        events_after == events_before,
        &format!("{name}: no event of the SMMU"),
    );
    if driver == "e1000e" {
        dma_is_refused_and_reported(name, &agent)?;
    }
    cell.stop()?;
    let again = cell.start().map_err(|error| error.to_string());
    let again = again.err().unwrap_or_default();
    report(
        again.contains("keep the orders of its last start"),
        &format!("{name}: a second start is refused: {again}"),
    );
    cell.destroy()?;
    let mut after = [0; 64];
    configuration(&own.address)?.read_exact_at(&mut after, 0)?;
    // All but the command register and what follows it, the status.
    let is_same = before[..4] == after[..4] && before[8..] == after[8..];
    report(
        is_same,
        &format!("{name}: neither side moved it: {before:x?} {after:x?}"),
    );
    disk_works(&format!("{name} destroyed"))
}

/// Returns the number of events of the SMMU.
fn events() -> Result<u64> {
    let refused = Operator::open()?.refused_dma();
    let refused = refused.map_err(|error| error.to_string())?;
    Ok(refused.map_or(0, |(count, _, _)| count))
}

/// The cell orders DMA of the memory of the hypervisor. The command reports it, and the kernel's log, which the test
/// reads.
fn dma_is_refused_and_reported(name: &str, agent: &Agent) -> Result<()> {
    let before = events()?;
    let address = format!("{:#x}", HYPERVISOR.0);
    inside(agent, &[GUEST_PROGRAM, "dma", &address])?;
    let begin = Instant::now();
    while events()? == before && begin.elapsed() < TIMEOUT {
        std::thread::sleep(Duration::from_millis(50));
    }
    let listed = |option: &str| {
        let mut command = Command::new("rampart");
        command.args(["cell", "list", option]).output()
    };
    let json: serde_json::Value = serde_json::from_slice(&listed("--json")?.stdout)?;
    let refused = json[0]["refused-dma"].as_array();
    let is_it = |one: &serde_json::Value| {
        (&one["access"], &one["address"], &one["event"])
            == (&"read".into(), &(*address).into(), &"0x10".into())
    };
    report(
        json[0]["name"] == name && refused.is_some_and(|all| all.iter().any(is_it)),
        &format!("{name}: refused DMA is listed: {refused:?}"),
    );
    let listed = listed("--verbose")?;
    for (what, text) in [("note", listed.stderr), ("list", listed.stdout)] {
        for line in String::from_utf8_lossy(&text).lines() {
            println!("{what} {line}");
        }
    }
    Ok(())
}

/// Requests what the command refuses.
fn refusals(own: &PciFunction) -> Result<()> {
    let of_root = described()?.functions;
    let is_used = |one: &&PciFunction| one.linux.driver.is_some();
    let of_root = of_root
        .iter()
        .find(is_used)
        .ok_or("the root has no function")?;
    let bridge = own.bridge.clone().unwrap_or_default();
    for (device, wanted) in [
        (of_root.address.as_str(), "Linux uses it"),
        ("0000:00:1f.7", "this machine has no such PCI function"),
        (
            bridge.as_str(),
            "a PCI host bridge cannot be given to a cell",
        ),
    ] {
        let error = with_devices("refused", &[device]).err();
        let error = error.map(|error| error.to_string()).unwrap_or_default();
        report(
            error.contains(wanted),
            &format!("refused: {device}: {error}"),
        );
    }
    Ok(())
}

fn run(parts: &Parts) -> Result<()> {
    const E1000E: (u16, u16) = (0x8086, 0x10d3);
    const VIRTIO: [(u16, u16); 2] = [(0x1af4, 0x1000), (0x1af4, 0x1041)];
    disk_works("before")?;
    let device = enable(HYPERVISOR)?;
    disk_works("enabled")?;
    let e1000e = function(E1000E)?;
    report(
        e1000e.obstacles.is_empty(),
        &format!("described: {:?}", e1000e.obstacles),
    );
    refusals(&e1000e)?;
    a_function_in_a_cell(parts, ("intel", "e1000e"), E1000E)?;
    let virtio = VIRTIO.into_iter().find(|one| function(*one).is_ok());
    let virtio = virtio.ok_or("no virtio")?;
    release_root_port(&function(virtio)?)?;
    a_function_in_a_cell(parts, ("virtio", "virtio_net"), virtio)?;
    // The stream of a cell that ran stays without an owner until it is given to a cell again.
    a_function_in_a_cell(parts, ("again", "e1000e"), E1000E)?;
    device.disable()?;
    disk_works("disabled")
}

/// Returns the directories of the interfaces with a driver.
fn interfaces(driver: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/sys/class/net")? {
        let path = entry?.path();
        let bound = fs::read_link(path.join("device/driver")).unwrap_or_default();
        if bound.file_name().is_some_and(|name| name == driver) {
            found.push(path);
        }
    }
    Ok(found)
}

/// Waits for the interface of a driver, and names it for the other program.
fn name(driver: &str) -> Result<()> {
    let begin = Instant::now();
    while begin.elapsed() < TIMEOUT {
        if let Some(interface) = interfaces(driver)?.first() {
            fs::write(interface.join("ifalias"), "outside")?;
            println!("ok  {driver} drives the function");
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    Err(format!("no interface of {driver}").into())
}

/// Prints the number of interrupts of functions: those of the controller with a level that no other driver has.
fn count_interrupts() -> Result<()> {
    let text = fs::read_to_string("/proc/interrupts")?;
    let is_of_function = |line: &&str| {
        line.contains("GIC") && ["eth", "virtio"].iter().any(|name| line.contains(name))
    };
    let count = |line: &str| line.split_whitespace().nth(1)?.parse::<u64>().ok();
    let sum: u64 = text.lines().filter(is_of_function).filter_map(count).sum();
    println!("interrupts {sum}");
    Ok(())
}

/// Writes an address of the hypervisor to each register of its own configuration space, and then what it read before.
fn attack(address: &str) -> Result<()> {
    let address = u32::from_str_radix(address.trim_start_matches("0x"), 16)?;
    for entry in fs::read_dir(FUNCTIONS)? {
        let path = entry?.path().join("config");
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let mut before = [0; 256];
        file.read_exact_at(&mut before, 0)?;
        for value in [address.to_le_bytes(), [0xff; 4], [0; 4]] {
            for at in (0..256).step_by(4) {
                file.write_all_at(&value, at)?;
            }
        }
        file.write_all_at(&before, 0)?;
        println!("attacked");
    }
    Ok(())
}

/// Takes the driver from the e1000e, and makes the function read its orders at this address.
fn order_dma(address: &str) -> Result<()> {
    /// Bytes of the registers, and those of the transmitter (Intel 82574 datasheet, 10.2): CTRL, TCTL, TDBAL, TDLEN, TDT.
    const BYTES: usize = 128 << 10;
    const RESET: (usize, u32) = (0, 1 << 26);
    const ENABLE: (usize, u32) = (0x400, 1 << 1);
    const ADDRESS: usize = 0x3800;
    const LENGTH: (usize, u32) = (0x3808, 4096);
    const TAIL: (usize, u32) = (0x3818, 1);
    let address = u32::from_str_radix(address.trim_start_matches("0x"), 16)?;
    let mut drivers = fs::read_dir("/sys/bus/pci/drivers/e1000e")?.flatten();
    let function = drivers.find(|entry| entry.path().join("resource0").exists());
    let function = function.ok_or("no function of e1000e")?;
    let path = Path::new(FUNCTIONS).join(function.file_name());
    fs::write(
        "/sys/bus/pci/drivers/e1000e/unbind",
        function.file_name().to_string_lossy().as_bytes(),
    )?;
    fs::write(path.join("enable"), "1")?;
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(path.join("resource0"))?;
    // SAFETY: a new mapping of registers that no driver uses now.
    let mapped = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            BYTES,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0,
        )
    };
    if mapped == libc::MAP_FAILED {
        return Err(std::io::Error::last_os_error().into());
    }
    for (register, value) in [RESET, (ADDRESS, address), LENGTH, ENABLE, TAIL] {
        // SAFETY: an aligned register within the mapping, which is never unmapped.
        unsafe {
            mapped
                .cast::<u8>()
                .add(register)
                .cast::<u32>()
                .write_volatile(value)
        };
    }
    println!("ordered");
    Ok(())
}

fn main() -> std::process::ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["run", kernel, meter, network, ref modules @ ..] => {
            Parts::read(kernel, meter, modules, &[(NETWORK_PROGRAM, network)])
                .and_then(|parts| run(&parts))
        }
        ["name", driver] => name(driver),
        ["interrupts"] => count_interrupts(),
        ["attack", address] => attack(address),
        ["dma", address] => order_dma(address),
        _ => Err("see the top of pci_agent.rs".into()),
    };
    exit_code(done)
}
