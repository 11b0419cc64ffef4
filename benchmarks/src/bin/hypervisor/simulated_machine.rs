// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs the simulated machine: QEMU's `virt` with two CPUs, on which one instruction is one tick of the
//! counter. The memory that the kernel driver would prepare is loaded before the start;
//! `hypervisor/cells/src/bin/launcher.rs` launches the hypervisor.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use rampart_hypervisor_core::configuration::build::Blob;
use rampart_hypervisor_core::format::{
    Doorbell, InterruptFlags, InterruptGrant, MemoryFlags, MemoryRegion, Platform, RegisterGrant,
    SmcGrant,
};
use rampart_hypervisor_core::interface::{DOORBELL_BY_SMC, Header};
use rampart_ring::program_header::{self, InterruptController};
use zerocopy::{FromBytes as _, IntoBytes as _};

/// Minimum and maximum count by the name of the count.
pub(crate) type Counts = BTreeMap<String, (u64, u64)>;

/// Time limit of a run, which takes one or two seconds.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Physical addresses, as in `launcher.rs`, and the guest address of the cell's memory.
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
/// A function of the vendor of a board, as in `count.rs`.
const FIRMWARE_CALL: u32 = 0x8200_0010;
/// An interrupt that no device raises.
const BELL: u32 = 60;
const GPIO_DIRECTION: u64 = 0x0903_0400;
const DEVICES_END: u64 = 0x0a00_4000;

/// The files that are loaded into the machine's memory.
#[derive(Debug)]
pub(crate) struct Files {
    directory: tempfile::TempDir,
    launcher: PathBuf,
    program: PathBuf,
    configuration_bytes: usize,
}

impl Files {
    /// Creates the files from the output directory of `make hypervisor`.
    ///
    /// # Errors
    /// If a file is missing or does not fit.
    pub(crate) fn make(built: &Path) -> Result<Self> {
        let existing = |name: &str| {
            let path = built.join(name);
            ensure!(
                path.is_file(),
                "{} does not exist; build it with `make hypervisor`",
                path.display()
            );
            Ok(path)
        };
        let directory = tempfile::tempdir().context("directory for the machine's memory")?;
        let image = fs::read(existing("rampart.bin")?).context("rampart.bin")?;
        let memory = hypervisor_memory(image)?;
        fs::write(directory.path().join("hypervisor"), memory)?;
        let configuration = checked(&cell())?;
        fs::write(directory.path().join("cell"), &configuration)?;
        let program = |name: &str| {
            let mut program = fs::read(existing(name)?).context(name.to_owned())?;
            let controller = InterruptController {
                distributor: DISTRIBUTOR,
                cpu_frames: REDISTRIBUTORS,
            };
            let is_filled_in = program_header::fill_in(&mut program, controller);
            ensure!(
                is_filled_in,
                "{name} has no header; build it again with `make hypervisor`"
            );
            let path = directory.path().join(name);
            fs::write(&path, program)?;
            Ok(path)
        };
        Ok(Self {
            launcher: program("rampart-cell-launcher")?,
            program: program("rampart-cell-count")?,
            directory,
            configuration_bytes: configuration.len(),
        })
    }
}

/// Prepares the image as the driver does (`kernel/rampart/launch.c`): fills in the header and appends
/// the system's configuration.
fn hypervisor_memory(mut image: Vec<u8>) -> Result<Vec<u8>> {
    let (mut header, _) = Header::read_from_prefix(&image)
        .ok()
        .context("rampart.bin has no header; rebuild it with `make hypervisor`")?;
    let configuration = checked(&system())?;
    header.physical_base = HYPERVISOR;
    header.memory_bytes = HYPERVISOR_BYTES;
    header.configuration_bytes = configuration.len() as u64;
    header.cpu_count = 2;
    // In simulated time.
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
        colours: 0,
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
            cpu_frames: REDISTRIBUTORS,
            cpu_frame_bytes: REDISTRIBUTOR_BYTES,
            event_interrupt: 0,
            version: 3,
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
        // It rings itself.
        interrupts: [(PORT_INTERRUPT, 0), (BELL, InterruptFlags::DOORBELL.bits())]
            .map(|(number, flags)| InterruptGrant { number, flags })
            .to_vec(),
        smcs: [FIRMWARE_CALL, DOORBELL_BY_SMC]
            .map(|number| SmcGrant {
                first: number,
                last: number,
            })
            .to_vec(),
        doorbells: vec![Doorbell {
            interrupt: BELL,
            reserved: 0,
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

/// Runs the counting program in a cell, or at EL1 without a hypervisor.
///
/// # Errors
/// If the machine does not start, exceeds its time limit or reports a failure.
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
    let output_path = files.directory.path().join("output");
    let output = File::create(&output_path)?;
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
        .context(
            "cannot start qemu-system-aarch64; install it with `make setup-sim ARCH=aarch64`",
        )?;
    let until = Instant::now() + TIMEOUT;
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
    let output = String::from_utf8_lossy(&fs::read(&output_path)?).into_owned();
    let counts = parse(&output);
    match ended {
        Some(status) if status.success() && counts.contains_key("done") => Ok(counts),
        Some(status) => bail!("the machine ended with {status}; output: {output}"),
        None => bail!("the machine did not end within {TIMEOUT:?}; output: {output}"),
    }
}

/// Parses the program's output: each line is a name and two numbers; other lines are ignored.
fn parse(output: &str) -> Counts {
    let line = |line: &str| {
        let mut words = line.split(' ');
        let name = words.next()?.to_owned();
        let counts = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        Some((name, counts))
    };
    output.lines().filter_map(line).collect()
}
