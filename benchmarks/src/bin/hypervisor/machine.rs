// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The simulated machine: QEMU's `virt` with two CPUs, on which one instruction is one tick of the
//! counter. What a kernel's driver puts into memory is put there before it starts, and
//! `hypervisor/cells/src/bin/launcher.rs` does the rest.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use rampart_hypervisor_core::configuration::build::Blob;
use rampart_hypervisor_core::format::{
    InterruptGrant, MemoryFlags, MemoryRegion, Platform, RegisterGrant,
};
use rampart_hypervisor_core::interface::Header;
use zerocopy::{FromBytes as _, IntoBytes as _};

/// Least and greatest count by the name of what was counted.
pub(crate) type Counts = BTreeMap<String, (u64, u64)>;

/// The machine needs a second or two.
const PATIENCE: Duration = Duration::from_secs(120);

/// Physical addresses, as in `launcher.rs`, and where the cell sees its memory.
const HYPERVISOR: u64 = 0x7000_0000;
const HYPERVISOR_BYTES: u64 = 8 << 20;
const PROGRAM: u64 = 0x5800_0000;
const CONFIGURATION: u64 = 0x5900_0000;
const CONFIGURATION_BYTES: u64 = 0x5a00_0000;
const CELL_MEMORY: u64 = 0x6000_0000;
const CELL_MEMORY_BYTES: u64 = 2 << 20;
const CELL_BEGIN: u64 = 0x4000_0000;
const RAM: u64 = 0x4000_0000;
const RAM_BYTES: u64 = 1 << 30;
/// Index of the cell's CPU, and its affinity.
const CELL_CPU: u64 = 1;

/// QEMU, hw/arm/virt.c: `base_memmap`, `a15irqmap`.
const DISTRIBUTOR: u64 = 0x0800_0000;
const REDISTRIBUTORS: u64 = 0x080a_0000;
const REDISTRIBUTOR_BYTES: u64 = 2 * 0x2_0000;
const PORT: u64 = 0x0900_0000;
const PORT_INTERRUPT: u32 = 33;
const GPIO_DIRECTION: u64 = 0x0903_0400;
const DEVICES_END: u64 = 0x0a00_4000;

/// What is put into the machine's memory.
#[derive(Debug)]
pub(crate) struct Files {
    directory: tempfile::TempDir,
    launcher: PathBuf,
    program: PathBuf,
    configuration_bytes: usize,
}

impl Files {
    /// From what `make hypervisor` has built in a directory.
    ///
    /// # Errors
    /// If something is not there or does not fit.
    pub(crate) fn make(built: &Path) -> Result<Self> {
        let there = |name: &str| {
            let path = built.join(name);
            ensure!(
                path.is_file(),
                "{} is not there; needed is what `make hypervisor` builds",
                path.display()
            );
            Ok(path)
        };
        let directory = tempfile::tempdir().context("directory for the machine's memory")?;
        let image = fs::read(there("rampart.bin")?).context("rampart.bin")?;
        let memory = hypervisor_memory(image)?;
        fs::write(directory.path().join("hypervisor"), memory)?;
        let configuration = checked(&cell())?;
        fs::write(directory.path().join("cell"), &configuration)?;
        Ok(Self {
            directory,
            launcher: there("rampart-cell-launcher")?,
            program: there("rampart-cell-count")?,
            configuration_bytes: configuration.len(),
        })
    }
}

/// What the driver makes of the image (`kernel/rampart/launch.c`): the header filled in, the system's
/// configuration in its place.
fn hypervisor_memory(mut image: Vec<u8>) -> Result<Vec<u8>> {
    let (mut header, _) = Header::read_from_prefix(&image)
        .ok()
        .context("rampart.bin has no header; `make hypervisor` builds it anew")?;
    let configuration = checked(&system())?;
    header.physical_base = HYPERVISOR;
    header.memory_bytes = HYPERVISOR_BYTES;
    header.configuration_bytes = configuration.len() as u64;
    header.cpu_count = 2;
    // In the time of the simulated machine.
    header.rendezvous_microseconds = 10_000_000;
    header.mpidrs[CELL_CPU as usize] = CELL_CPU;
    header.arrange();
    header
        .layout(HYPERVISOR)
        .map_err(|outcome| anyhow::anyhow!("the header of rampart.bin: {outcome:?}"))?;
    image[..size_of::<Header>()].copy_from_slice(header.as_bytes());
    image.resize(usize::try_from(header.configuration)?, 0);
    image.extend_from_slice(&configuration);
    Ok(image)
}

fn checked(blob: &Blob) -> Result<Vec<u8>> {
    blob.checked()
        .map_err(|refused| anyhow::anyhow!("configuration {}: {refused:?}", blob.name))
}

fn region(physical: u64, guest: u64, bytes: u64, flags: MemoryFlags) -> MemoryRegion {
    MemoryRegion {
        physical,
        guest,
        bytes,
        flags: flags.bits(),
        reserved: 0,
    }
}

const DEVICE: MemoryFlags = MemoryFlags::READ
    .union(MemoryFlags::WRITE)
    .union(MemoryFlags::DEVICE);
const ALL: MemoryFlags = MemoryFlags::READ
    .union(MemoryFlags::WRITE)
    .union(MemoryFlags::EXECUTE);

fn system() -> Blob {
    let after = HYPERVISOR + HYPERVISOR_BYTES;
    Blob {
        name: "root".to_owned(),
        platform: Some(Platform {
            distributor: DISTRIBUTOR,
            redistributors: REDISTRIBUTORS,
            redistributor_bytes: REDISTRIBUTOR_BYTES,
            serial_port: 0,
            event_interrupt: 0,
            reserved: 0,
        }),
        cpus: vec![0, CELL_CPU],
        memory: vec![
            region(PORT, PORT, DEVICES_END - PORT, DEVICE),
            region(RAM, RAM, HYPERVISOR - RAM, ALL),
            region(after, after, RAM + RAM_BYTES - after, ALL),
        ],
        ..Blob::default()
    }
}

fn cell() -> Blob {
    let memory = ALL | MemoryFlags::LOADABLE;
    Blob {
        name: "count".to_owned(),
        entry: CELL_BEGIN,
        argument: CELL_CPU,
        cpus: vec![CELL_CPU],
        memory: vec![
            region(CELL_MEMORY, CELL_BEGIN, CELL_MEMORY_BYTES, memory),
            region(PORT, PORT, 0x1000, DEVICE),
        ],
        interrupts: vec![InterruptGrant {
            number: PORT_INTERRUPT,
            flags: 0,
        }],
        registers: vec![RegisterGrant {
            address: GPIO_DIRECTION,
            readable: 0xc0,
            writable: 0xc0,
            width: 4,
            flags: 0,
        }],
        ..Blob::default()
    }
}

/// Runs the program that counts, in a cell or at EL1 without a hypervisor.
///
/// # Errors
/// If the machine does not start, does not end in time, or says that something failed.
pub(crate) fn run(files: &Files, in_cell: bool) -> Result<Counts> {
    let bytes = if in_cell {
        files.configuration_bytes
    } else {
        0
    };
    let at = |path: &Path, address: u64| {
        format!(
            "loader,file={},addr={address:#x},force-raw=on",
            path.display()
        )
    };
    let said = files.directory.path().join("said");
    let output = File::create(&said)?;
    let mut machine = Command::new("qemu-system-aarch64")
        .args(["-M", "virt,virtualization=on,gic-version=3,its=off"])
        .args(["-cpu", "cortex-a57", "-smp", "2", "-m", "1024"])
        .args(["-icount", "shift=4,sleep=off", "-nodefaults"])
        .args(["-display", "none", "-serial", "null", "-monitor", "none"])
        .args(["-semihosting-config", "enable=on,target=native"])
        .arg("-kernel")
        .arg(&files.launcher)
        .args(["-device", &at(&files.program, PROGRAM)])
        .args([
            "-device",
            &at(&files.directory.path().join("hypervisor"), HYPERVISOR),
        ])
        .args([
            "-device",
            &at(&files.directory.path().join("cell"), CONFIGURATION),
        ])
        .arg("-device")
        .arg(format!(
            "loader,addr={CONFIGURATION_BYTES:#x},data={bytes:#x},data-len=4"
        ))
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output)
        .spawn()
        .context("qemu-system-aarch64 does not start; `make setup-sim ARCH=aarch64` installs it")?;
    let until = Instant::now() + PATIENCE;
    let ended = loop {
        if let Some(status) = machine.try_wait()? {
            break Some(status);
        }
        if Instant::now() > until {
            machine.kill()?;
            machine.wait()?;
            break None;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let said = String::from_utf8_lossy(&fs::read(&said)?).into_owned();
    let counts = read(&said);
    match ended {
        Some(status) if status.success() && counts.contains_key("done") => Ok(counts),
        Some(status) => bail!("the machine ended with {status} and said: {said}"),
        None => bail!("the machine did not end within {PATIENCE:?} and said: {said}"),
    }
}

/// A line is a name and two numbers; others are not the program's.
fn read(said: &str) -> Counts {
    let line = |line: &str| {
        let mut words = line.split(' ');
        let name = words.next()?.to_owned();
        let counts = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        Some((name, counts))
    };
    said.lines().filter_map(line).collect()
}
