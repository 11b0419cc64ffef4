// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The root keeps a standby and panics; the same program is the first one of the root that is started again.

use std::ffi::CString;
use std::fs::{self, File};
use std::io::Read as _;
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use rampart_agent::{Agent, AgentCommand, MODULE_LIST, MemoryConnection};
use rampart_cells::device::Device;
use rampart_cells::linux::{AddressSpan, LinuxCell, LinuxOrder, LinuxRegions, initramfs};
use rampart_cells::network::{DEFAULT_BYTES, NetworkRequest};
use rampart_cells::operate::{Operator, StandbyOrder, StopReason, standby_blob};
use rampart_cells::resolve::{CellRequest, CpuSelection, RegionWriter, SharedRequest};
use rampart_cells::shared_memory::SharedMemory;
use rampart_cells::system_configuration::SystemParts;
use rampart_hypervisor_core::interface::{CellState, Exit, ROOT};
use rampart_model::{CpuId, CpuSet};

use super::memory::{from_the_root, is_refused};
use super::support::{
    CODE_BYTES, Done, FIRST, HYPERVISOR, INTERRUPTS, OtherCell, Physical, Plan, SECOND, THIRD,
    TIMEOUT, described, device_of, report, sleeping_traps, state, wait_for_state, wait_until,
    without_exits,
};

/// A cell that the second root creates, on the CPU and in the memory of the first one.
const NEW: Plan = Plan {
    name: "new",
    cpus: &[3],
    memory: FIRST.memory,
};
/// Memory of a Linux cell, its CPU, and the memory of a standby.
const LINUX_BYTES: u64 = 160 << 20;
const LINUX_CPU: u32 = 2;
const STANDBY_BYTES: u64 = 256 << 20;
/// What else is in the standby's initramfs: the drivers, a program of a cell, and programs of the root.
const MODULES: [&str; 2] = ["rampart.ko", "rampart-net.ko"];
const PROGRAM: &str = "rampart-cell-irq";
const NETWORK: &str = "network_agent";
const COMMAND: &str = "rampart";
const DISK_MODULE: &str = "disk-module-";
/// The ends of the network.
const ROOT_ADDRESS: &str = "10.1.0.1";
const CELL_ADDRESS: &str = "10.1.0.2";
/// What each root writes by name to a region of the Linux cell.
const ORDERS: [&[u8]; 2] = [b"before..", b"after..."];
/// This program in the Linux cell.
const GUEST_PROGRAM: &str = "guest-program";
/// An emulated kernel boots in seconds, much later on a busy machine.
const BOOT_TIMEOUT: Duration = Duration::from_secs(150);
/// Size of the first memory, where the first kernel and its log are, and what it writes at its end.
const OLD_KERNEL: u64 = 128 << 20;
const LAST_WORDS: &[u8] = b"Kernel panic - not syncing: sysrq triggered crash";

/// Starts two cells, makes a third one fail, keeps a standby, and panics.
pub(crate) fn keep(device: &Device, directory: &Path, kernel: &str, meter: &str) -> Done {
    let program = fs::read(directory.join(PROGRAM))?;
    let attack = fs::read(directory.join("rampart-cell-attack"))?;
    let own = fs::read(std::env::current_exe()?)?;
    let kernel = fs::read(kernel)?;
    let system = SystemParts::read(Path::new("/proc/device-tree"), 40)?.system(HYPERVISOR);
    let system = system.checked().map_err(|refused| format!("{refused:?}"))?;
    device.enable(HYPERVISOR.0, HYPERVISOR.1, &system)?;
    FIRST.start(device, 1000, &program)?;
    // Attack 1 reads outside of its memory.
    let failing = Plan {
        cpus: THIRD.cpus,
        ..SECOND
    }
    .start(device, 1, &attack)?;
    let failed = wait_for_state(device, failing, CellState::Failed)?;
    report(failed, "a cell has failed before");
    let operator = Operator::open()?;
    let read = |name: &str| fs::read(directory.join(name));
    let (driver, module) = (read(MODULES[0])?, read(MODULES[1])?);
    let (network, command) = (read(NETWORK)?, read(COMMAND)?);
    begin_linux(
        &operator,
        kernel.clone(),
        initramfs(
            &fs::read(meter)?,
            &[
                (GUEST_PROGRAM, 0o755, &own),
                (NETWORK, 0o755, &network),
                (MODULES[1], 0o644, &module),
                (
                    MODULE_LIST.trim_start_matches('/'),
                    0o644,
                    format!("/{}\n", MODULES[1]).as_bytes(),
                ),
            ],
        )?,
        directory,
    )?;
    device.destroy(failing)?;
    refusals(device)?;

    let mut files: Vec<(&str, u32, &[u8])> = vec![
        (MODULES[0], 0o644, &driver),
        (MODULES[1], 0o644, &module),
        (PROGRAM, 0o644, &program),
        (NETWORK, 0o755, &network),
        (COMMAND, 0o755, &command),
    ];
    // Modules for the root's disk, in the order in which they are loaded.
    let paths = std::env::var("DISK_MODULES").unwrap_or_default();
    let disk: Vec<(String, Vec<u8>)> = (0..)
        .zip(paths.split_whitespace())
        .map(|(number, path)| Ok((format!("{DISK_MODULE}{number}"), fs::read(path)?)))
        .collect::<std::io::Result<_>>()?;
    files.extend(
        disk.iter()
            .map(|(name, module)| (&**name, 0o644, &**module)),
    );
    let sum = if disk.is_empty() {
        String::new()
    } else {
        format!("DISK_SUM={}", disk_sum()?)
    };
    let counted = FIRST.page().word(INTERRUPTS);
    // What the kernel does not know is in the environment of its first program.
    let traps = if sleeping_traps() {
        "SLEEPING_TRAPS=1"
    } else {
        ""
    };
    let order = StandbyOrder {
        name: "standby".to_owned(),
        kernel,
        initramfs: initramfs(&own, &files)?,
        arguments: Some(format!(
            "console=ttyAMA0 rdinit=/init panic=-1 iomem=relaxed {traps} {sum} -- again {counted}"
        )),
        memory_bytes: STANDBY_BYTES,
    };
    let memory = operator.keep_standby(&order)?;
    report(
        operator.root_restart()?.is_none(),
        "the root was not started again",
    );
    kept(device, &operator, memory)?;
    OtherCell::look(device).check("a standby is kept");
    println!("figure standby: {memory}");
    // Wait until the line has been transmitted.
    std::thread::sleep(Duration::from_secs(1));
    fs::write("/proc/sys/kernel/panic", "-1")?;
    fs::write("/proc/sysrq-trigger", "c")?;
    Err("the root did not panic".into())
}

/// Starts a Linux cell that has a network with the root and a region that the root writes, and uses both.
fn begin_linux(operator: &Operator, image: Vec<u8>, initramfs: Vec<u8>, directory: &Path) -> Done {
    let mut request = CellRequest {
        networks: vec![NetworkRequest {
            peer: "root".to_owned(),
            bytes: DEFAULT_BYTES,
            cached: true,
        }],
        cpus: CpuSelection::List([CpuId(LINUX_CPU)].into_iter().collect()),
        ..CellRequest::linux("linux", LINUX_BYTES)
    };
    request.shared.push(SharedRequest::Own {
        name: Some("orders".to_owned()),
        bytes: 4096,
        writer: RegionWriter::Root,
    });
    let resolved = operator.resolved(&request, &CpuSet::new())?;
    let linux = LinuxCell::boot(LinuxOrder {
        configuration: resolved.configuration,
        image,
        initramfs,
        arguments: String::new(),
        nodes: resolved.nodes,
        names: resolved.names,
        functions: resolved.functions,
    })?;
    let agent = linux.agent(BOOT_TIMEOUT)?;
    let words = [&format!("/{NETWORK}"), "up", "root", CELL_ADDRESS].map(str::to_owned);
    let process = agent.spawn(&AgentCommand::new(words))?;
    process.wait(TIMEOUT)?;
    drop(agent);
    operator.write_region("linux", "orders", 0, ORDERS[0])?;
    answers(
        &directory.join(NETWORK),
        "a frame to the Linux cell returns",
    )?;
    linux.leave();
    Ok(())
}

/// Returns a sum of the first bytes of the root's disk.
fn disk_sum() -> std::io::Result<u64> {
    let mut bytes = vec![0; 1 << 20];
    File::open("/dev/vda")?.read_exact(&mut bytes)?;
    let sum = |sum: u64, byte: &u8| sum.rotate_left(5) ^ u64::from(*byte);
    Ok(bytes.iter().fold(0, sum))
}

/// The disk is behind the SMMU, and the new kernel permits its DMA again.
fn disk() -> Done {
    let Ok(before) = std::env::var("DISK_SUM") else {
        return Ok(());
    };
    (0..)
        .map(|number| format!("/{DISK_MODULE}{number}"))
        .take_while(|path| Path::new(path).exists())
        .try_for_each(|path| load(&path))?;
    wait_until(TIMEOUT, || Path::new("/dev/vda").exists());
    let now = disk_sum()?.to_string();
    report(
        now == before,
        &format!("the disk of the root behind the SMMU is read: {before}, {now}"),
    );
    Ok(())
}

/// Configures the root's end of the network, and waits for an answer of the cell.
fn answers(program: &Path, what: &str) -> Done {
    let run = |words: &[&str]| Command::new(program).args(words).output();
    let up = run(&["up", "linux", ROOT_ADDRESS])?;
    let reached = run(&["reach", CELL_ADDRESS])?;
    let passed = up.status.success() && reached.status.success();
    report(passed, &format!("{what}: {up:?} {reached:?}"));
    Ok(())
}

/// A standby has memory of the root only.
fn refusals(device: &Device) -> Done {
    let span = |start, bytes| AddressSpan { start, bytes };
    let machine = described()?;
    let memory = machine.memory.first().ok_or("no memory")?;
    let end = machine.memory.iter().map(AddressSpan::end).max();
    let controller = machine.interrupt_controller.ok_or("no GIC")?;
    let port = device_of("arm,pl011")?;
    let port = port.ranges.first().ok_or("no registers")?;
    for (name, memory) in [
        ("the hypervisor", span(HYPERVISOR.0, CODE_BYTES)),
        ("a cell", span(FIRST.memory, CODE_BYTES)),
        ("a device", span(port.start, 0x1000)),
        (
            "the interrupt controller",
            span(controller.distributor.start, CODE_BYTES),
        ),
        (
            "no memory",
            span(end.unwrap_or(0).next_multiple_of(1 << 32), CODE_BYTES),
        ),
        (
            "memory of the running kernel",
            span(memory.start + OLD_KERNEL, CODE_BYTES),
        ),
    ] {
        let blob = standby_blob("bad", memory, (memory.start, 0));
        report(
            device.create(&blob).is_err(),
            &format!("a standby in memory of {name} is refused"),
        );
    }
    Ok(())
}

/// The root cannot change a standby that is kept, and can keep it again without seeing it.
fn kept(device: &Device, operator: &Operator, memory: AddressSpan) -> Done {
    let number = operator.cell("standby")?.number;
    let physical = Physical::map(memory.start, memory.bytes, true);
    let places = (0..memory.bytes).step_by(4096);
    let reached = places
        .filter(|at| !(is_refused(&physical, *at, false) && is_refused(&physical, *at, true)));
    let reached = reached.count();
    report(
        reached == 0,
        &format!("the root reaches {reached} pages of a standby"),
    );
    let load = || device.load(number, memory.start, &[0; 8]);
    report(load().is_err(), "a standby that is kept is not loaded");
    report(device.start(number).is_err(), "nor kept twice");
    report(device.disable().is_err(), "nor left behind");
    device.stop(number)?;
    let reached = !is_refused(&physical, 0, false);
    report(!reached, "the root does not reach a standby that was kept");
    device.start(number)?;
    report(load().is_err(), "it is kept again");
    Ok(())
}

fn mount(kind: &str, target: &str) -> Done {
    fs::create_dir_all(target)?;
    let (kind, target) = (CString::new(kind)?, CString::new(target)?);
    // SAFETY: both strings live until the call returns.
    let result = unsafe {
        libc::mount(
            kind.as_ptr(),
            target.as_ptr(),
            kind.as_ptr(),
            0,
            std::ptr::null(),
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(std::io::Error::last_os_error().into())
    }
}

/// Loads a module.
fn load(path: &str) -> Done {
    let module = File::open(path)?;
    // SAFETY: finit_module(2) with an open file and an empty string.
    let result =
        unsafe { libc::syscall(libc::SYS_finit_module, module.as_raw_fd(), c"".as_ptr(), 0) };
    if result == 0 {
        Ok(())
    } else {
        Err(format!("{path}: {}", std::io::Error::last_os_error()).into())
    }
}

/// The first program of the root that was started again: checks everything, and panics too.
pub(crate) fn again(counted: u64) -> Done {
    for (kind, target) in [("proc", "/proc"), ("sysfs", "/sys"), ("devtmpfs", "/dev")] {
        // The kernel may have mounted it.
        let _ = mount(kind, target);
    }
    // The kernel's messages are on the same console.
    let _ = fs::write("/proc/sys/kernel/printk", "1");
    // The first one attaches to the hypervisor.
    MODULES
        .iter()
        .try_for_each(|name| load(&format!("/{name}")))?;
    if let Err(error) = attached(counted) {
        report(false, &format!("the second root: {error}"));
    }
    println!("again finished");
    std::thread::sleep(Duration::from_secs(1));
    let _ = fs::write("/proc/sys/kernel/printk", "7");
    fs::write("/proc/sysrq-trigger", "c")?;
    Err("the root did not panic".into())
}

fn attached(counted: u64) -> Done {
    let device = Device::open()?;
    let operator = Operator::open()?;
    let found = operator.root_restart()?;
    let once =
        found.is_some_and(|found| (found.count, found.reason) == (1, StopReason::SystemReset));
    report(once, &format!("the root was started again once: {found:?}"));
    let listed: Vec<_> = operator
        .list()?
        .into_iter()
        .map(|cell| (cell.name, cell.state, cell.starts))
        .collect();
    let wanted = ["first", "linux"].map(|name| (name.to_owned(), "running".to_owned(), 1));
    report(
        listed == wanted,
        &format!("the cells run on, and the standby is gone: {listed:?}"),
    );
    {
        let status = device.status()?;
        let failures = status.get().failures.load(Relaxed);
        report(failures >= 1, &format!("{failures} failures are on record"));
        let root = &status.get().cells[ROOT as usize];
        report(
            root.starts.load(Relaxed) == 1,
            "the hypervisor counts the starts of the root",
        );
    }
    let now = FIRST.page().word(INTERRUPTS);
    report(
        now > counted,
        &format!("the first cell has counted on: {counted}, {now}"),
    );
    without_exits(&device, "the first cell", &FIRST, &[INTERRUPTS], 500);
    from_the_root()?;
    report(
        device.disable().is_err(),
        "EL2 is not returned to a kernel that is gone",
    );
    old_log()?;
    linux(&device, &operator)?;
    by_name()?;
    disk()?;
    let online = || fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    report(
        online().trim() == "0-1",
        &format!("the root has its own CPUs: {}", online().trim()),
    );

    operator.destroy("first")?;
    let wiped = Physical::map(FIRST.memory, CODE_BYTES, false).is_zero();
    report(wiped, "the memory of the destroyed cell is wiped");
    report(
        online().trim() == "0-1,3",
        &format!("its CPU is online: {}", online().trim()),
    );
    let program = fs::read(format!("/{PROGRAM}"))?;
    NEW.begin(&device, &NEW.blob(1000), &program)?;
    without_exits(&device, "a new cell", &NEW, &[INTERRUPTS], 500);
    let number = operator.cell("linux")?.number;
    operator.stop("linux")?;
    report(
        state(&device, number).0 == CellState::Stopped,
        "the Linux cell is stopped",
    );
    operator.destroy("linux")?;
    report(
        online().trim() == "0-2",
        &format!("its CPU is online too: {}", online().trim()),
    );
    Ok(())
}

/// The log of the last kernel is in its memory.
fn old_log() -> Done {
    let start = described()?.memory.first().ok_or("no memory")?.start;
    let old = Physical::map(start, OLD_KERNEL, false);
    let first = u64::from_le_bytes(LAST_WORDS[..8].try_into().expect("eight bytes"));
    let rest = |at: u64| {
        let read = |offset: u64| {
            // SAFETY: within the mapping.
            unsafe { old.address(offset).read_volatile() }
        };
        (at..).zip(LAST_WORDS).all(|(at, byte)| read(at) == *byte)
    };
    // Records of the log begin at multiples of eight, with a text of any length before.
    let words = OLD_KERNEL / 8 - 16;
    let found = (0..words).any(|word| {
        let (low, high) = (old.word(word as usize), old.word(word as usize + 1));
        let both = u128::from(low) | u128::from(high) << 64;
        (0..8).any(|shift| (both >> (8 * shift)) as u64 == first && rest(8 * word + shift))
    });
    report(found, "the log of the last kernel is in its memory");
    Ok(())
}

/// A section of a connection with a Linux cell.
struct Section(SharedMemory);

impl AsRef<[AtomicU64]> for Section {
    fn as_ref(&self) -> &[AtomicU64] {
        self.0.words()
    }
}

/// The Linux cell has not been started again, and answers.
fn linux(device: &Device, operator: &Operator) -> Done {
    let regions = LinuxRegions::of(&operator.cell("linux")?.configuration)?;
    let map = |span: AddressSpan, writable| {
        device
            .map_shared(span.start, span.bytes as usize, writable)
            .map(Section)
    };
    let (own, other) = (map(regions.from_root, true)?, map(regions.to_root, false)?);
    let (stream, connection) = MemoryConnection::call(own, other)?;
    let agent = Agent::connect(stream, BOOT_TIMEOUT)?;
    let words = [format!("/{GUEST_PROGRAM}"), "uptime".to_owned()];
    let mut process = agent.spawn(&AgentCommand::new(words))?;
    let mut text = String::new();
    process.stdout.read_to_string(&mut text)?;
    process.wait(TIMEOUT)?;
    let uptime = |text: &str| {
        text.split('.')
            .next()
            .and_then(|word| word.trim().parse::<u64>().ok())
    };
    let own = fs::read_to_string("/proc/uptime")?;
    let older = uptime(&text) > uptime(&own);
    report(
        older,
        &format!("the Linux cell runs for longer than the root: {text:?}, {own:?}"),
    );
    connection.close();
    let exits = device.status()?.exits(LINUX_CPU as usize);
    let taken = exits[Exit::Interrupt as usize] + exits[Exit::Management as usize];
    report(
        taken == 0,
        &format!("the Linux cell has no exits for interrupts: {taken}"),
    );
    Ok(())
}

/// The names and the network of the Linux cell outlive the root that has created it.
fn by_name() -> Done {
    let run = |words: &[&str]| -> std::io::Result<Output> {
        let mut command = Command::new(format!("/{COMMAND}"));
        command.arg("cell").args(words).output()
    };
    let read = || run(&["read", "linux:orders", "--bytes", "8B"]);
    let found = read()?;
    report(
        found.stdout == ORDERS[0],
        &format!("a region has its name: {found:?}"),
    );
    fs::write("/orders", ORDERS[1])?;
    let written = run(&["write", "linux:orders", "/orders"])?;
    let found = read()?;
    report(
        found.stdout == ORDERS[1],
        &format!("and is written by it: {written:?} {found:?}"),
    );
    let console = run(&["console", "linux"])?;
    let text = String::from_utf8_lossy(&console.stdout);
    report(
        text.contains("Run /init as init process"),
        &format!("the Linux cell has a console: {} bytes", text.len()),
    );
    for _ in 0..2 {
        let enabled = run(&["enable"])?;
        report(
            enabled.status.success(),
            &format!("the networks continue: {enabled:?}"),
        );
    }
    let program = format!("/{NETWORK}");
    answers(Path::new(&program), "a frame of the new root returns")
}

/// In the Linux cell.
pub(crate) fn uptime() -> Done {
    print!("{}", fs::read_to_string("/proc/uptime")?);
    Ok(())
}
