// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Enables the hypervisor under the running Linux, and disables it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rampart_host::{StateDirectory, load_module, offer_firmware, release_driver};
use rampart_hypervisor_core::interface::MEMORY_ALIGNMENT;
use rampart_hypervisor_core::smmu::ENTRY_WORDS;
use rampart_model::{ByteSize, Finding, ReleaseReport, Severity};
use rampart_rules::cells::CELL_MEMORY;

use super::{OperateError, Operator, detached, offline, problems, wrong_architecture};
use crate::describe::{AddressSpan, Description, Sources, describe, spans};
use crate::device::DEVICE;
use crate::resolve::InUse;
use crate::system_configuration::{SystemParts, reserved_smmu};

/// Default size of the hypervisor's memory: its image, its tables and space for some cells.
const DEFAULT_BYTES: u64 = 8 << 20;
/// Names of the images among the firmware of the kernel: for a GICv3, for one with an SMMUv3 that the tree leaves to the
/// hypervisor, and for a GICv2 (`kernel/rampart/rampart.h`).
const IMAGE_NAME: &str = "rampart.bin";
const IMAGE_NAME_SMMU: &str = "rampart-smmu.bin";
const IMAGE_NAME_GICV2: &str = "rampart-gicv2.bin";
/// Where the image is installed.
const INSTALLED_IMAGES: &str = "/lib/firmware";
/// Name of the driver's kernel module.
const MODULE_NAME: &str = "rampart";
/// The node by which the driver knows that the hypervisor has started this kernel (`linux/standby_tree.rs`).
const STARTED_BY_HYPERVISOR: &str = "/proc/device-tree/rampart-hypervisor";
/// How long the driver's device may take to appear.
const DEVICE_LIMIT: Duration = Duration::from_secs(30);

/// Options of [`enable`].
#[derive(Debug, Clone, Default)]
pub struct EnableOrder {
    /// File of the driver's kernel module; without it the installed one is loaded (`modprobe rampart`).
    pub module: Option<PathBuf>,
    /// File of the hypervisor's image; without it the one in `/lib/firmware` is used ([`image_name`]).
    pub image: Option<PathBuf>,
    /// Size of the hypervisor's memory; without it 8 MiB.
    pub memory_bytes: Option<u64>,
}

/// Result of [`enable`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Enabled {
    /// The hypervisor's memory.
    pub memory: AddressSpan,
    /// Whether the hypervisor was enabled before.
    pub already: bool,
    /// What does not continue after the root was started again.
    pub findings: Vec<Finding>,
}

/// Result of [`disable`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disabled {
    /// Whether the hypervisor was enabled.
    pub was_enabled: bool,
    /// The driver that [`enable`] loaded: unloaded, or the reason why it is still loaded.
    pub driver: ReleaseReport,
}

/// Returns whether the hypervisor is enabled. Needs no privilege.
#[must_use]
pub fn is_enabled() -> bool {
    let enabled = fs::read_to_string("/sys/devices/virtual/misc/rampart/enabled");
    enabled.is_ok_and(|text| text.trim() == "1")
}

/// Returns the file name of the hypervisor's image for this machine, by the interrupt controller that its device tree
/// names, and by an SMMU: `rampart.bin`, `rampart-smmu.bin` or `rampart-gicv2.bin`.
#[must_use]
pub fn image_name() -> &'static str {
    let sources = Sources::of_this_machine();
    sources.map_or(IMAGE_NAME, |sources| image_for(&describe(&sources)))
}

fn image_for(description: &Description) -> &'static str {
    match &description.interrupt_controller {
        Some(controller) if controller.version == 2 => IMAGE_NAME_GICV2,
        _ if reserved_smmu(description).is_some() => IMAGE_NAME_SMMU,
        _ => IMAGE_NAME,
    }
}

/// Enables the hypervisor, and loads the driver first if it is not loaded. If the hypervisor is enabled, only creates the
/// root's ends of networks that do not exist: a root that was started again has none. The journal of the driver is in
/// `state`.
///
/// # Errors
/// A description of the obstacle. The hypervisor is then not enabled; the driver may be loaded, and
/// is unloaded by [`disable`] or `rampart release`.
pub fn enable(state: &StateDirectory, order: &EnableOrder) -> Result<Enabled, OperateError> {
    if std::env::consts::ARCH != "aarch64" {
        return Err(OperateError::refused(wrong_architecture()));
    }
    if Path::new(STARTED_BY_HYPERVISOR).exists() {
        // The driver attaches to it.
        load_module(state, MODULE_NAME, order.module.as_deref())?;
        wait_for_device()?;
    }
    if let Some(mut already) = already_enabled() {
        already.findings = Operator::open()?.continue_networks()?;
        return Ok(already);
    }
    let description = describe(&Sources::of_this_machine()?);
    let mut found = problems(&description);
    found.extend(offline_cpus());
    found.extend(users_of_kvm());
    let image_name = image_for(&description);
    found.extend(image_is_missing(order, image_name));
    let bytes = order.memory_bytes.unwrap_or(DEFAULT_BYTES);
    let memory = hypervisor_span(&description, bytes + stream_table_bytes(&description));
    if let Err(finding) = &memory {
        // The description already reports a machine without any reserved memory.
        let same = |known: &Finding| known.rule == finding.rule && !known.undecided;
        if !found.iter().any(same) {
            found.push(finding.clone());
        }
    }
    let (true, Ok(memory)) = (found.is_empty(), memory) else {
        return Err(OperateError::Refused(found));
    };
    let machine = SystemParts::of(&description)?;
    let blob = machine.system((memory.start, memory.bytes));
    let blob = blob.checked().map_err(|refused| {
        OperateError::refused(
            Finding::new(
                Severity::Error,
                format!(
                    "description of the machine, entry {} of a table",
                    refused.index
                ),
                refused.refusal.text(),
            )
            .fix("send the output of `rampart cell describe --json` with a bug report"),
        )
    })?;
    load_module(state, MODULE_NAME, order.module.as_deref())?;
    wait_for_device()?;
    let operator = Operator::open()?;
    let offered = match &order.image {
        Some(image) => Some(offer_firmware(state, image_name, &read_image(image)?)?),
        None => None,
    };
    operator.call(|device| device.enable(memory.start, memory.bytes, &blob))?;
    // A refusal to restore the search path stays in the journal; the hypervisor is enabled.
    drop(offered);
    Ok(Enabled {
        memory,
        already: false,
        findings: Vec::new(),
    })
}

/// Disables the hypervisor, and unloads the driver if [`enable`] loaded it.
///
/// # Errors
/// If there are cells, unless `with_cells` destroys them first.
pub fn disable(state: &StateDirectory, with_cells: bool) -> Result<Disabled, OperateError> {
    let was_enabled = disable_hypervisor(with_cells)?;
    Ok(Disabled {
        was_enabled,
        driver: release_driver(state, is_enabled())?,
    })
}

/// Returns whether the hypervisor was enabled. Closes the device, so that the driver can be unloaded.
fn disable_hypervisor(with_cells: bool) -> Result<bool, OperateError> {
    if !Path::new(DEVICE).exists() && std::env::consts::ARCH == "aarch64" {
        return Ok(false);
    }
    let operator = Operator::open()?;
    let in_use = operator.in_use()?;
    if in_use.hypervisor.is_none() {
        return Ok(false);
    }
    let names: Vec<&str> = in_use.cells.iter().map(|cell| cell.name.as_str()).collect();
    if !names.is_empty() && !with_cells {
        return Err(OperateError::refused(
            Finding::new(Severity::Error, "hypervisor", "cells exist")
                .values(names.join(", "), "none")
                .fix("rampart cell disable --destroy-cells"),
        ));
    }
    for name in names {
        operator.destroy(name)?;
    }
    operator.call(|device| device.disable())?;
    Ok(true)
}

/// Returns the hypervisor if it is already enabled.
fn already_enabled() -> Option<Enabled> {
    if !Path::new(DEVICE).exists() {
        return None;
    }
    let state = Operator::open().ok()?.device().state().ok()?;
    state.is_enabled().then_some(Enabled {
        memory: AddressSpan {
            start: state.memory,
            bytes: state.memory_bytes,
        },
        already: true,
        findings: Vec::new(),
    })
}

/// Returns the size of the memory for the table of the SMMU's streams, which is aligned to its size; 0 without one.
fn stream_table_bytes(description: &Description) -> u64 {
    let Some((_, smmu)) = reserved_smmu(description) else {
        return 0;
    };
    let end = smmu
        .streams
        .iter()
        .map(|(first, count)| first + count)
        .max();
    let entries = u64::from(end.unwrap_or(1)).next_power_of_two();
    2 * 8 * ENTRY_WORDS as u64 * entries
}

/// Returns the highest aligned span within one GiB, so that the memory below stays contiguous for cells.
fn hypervisor_span(description: &Description, bytes: u64) -> Result<AddressSpan, Finding> {
    const GIB: u64 = 1 << 30;
    let bytes = bytes.max(1).next_multiple_of(MEMORY_ALIGNMENT);
    let within = |span: &AddressSpan| {
        let end = span.end() & !(MEMORY_ALIGNMENT - 1);
        let start = end.checked_sub(bytes)?;
        let start = if start / GIB == (end - 1) / GIB {
            start
        } else {
            // The end of the GiB in which it would begin.
            ((start / GIB + 1) * GIB).checked_sub(bytes)?
        };
        (start >= span.start && bytes <= GIB).then_some(AddressSpan { start, bytes })
    };
    let found = description.kept.iter().rev().find_map(within);
    found.ok_or_else(|| {
        let kept = spans::united(description.kept.clone());
        let largest = kept.iter().map(|span| span.bytes).max().unwrap_or(0);
        CELL_MEMORY.finding(
            "memory",
            "the memory reserved from Linux is too small for the hypervisor",
        )
        .values(ByteSize(largest).to_string(), ByteSize(bytes).to_string())
        .fix("rampart cell enable --memory 4MiB, or reserve more memory from Linux (mem= on the kernel command line, or a reserved-memory node)")
    })
}

fn offline_cpus() -> Option<Finding> {
    let offline = offline();
    (!offline.is_empty()).then(|| {
        let in_use = InUse {
            detached: detached(),
            ..InUse::default()
        };
        let all: Vec<String> = offline
            .iter()
            .map(|cpu| in_use.online_command(cpu))
            .collect();
        Finding::new(
            Severity::Error,
            format!("CPUs {offline}"),
            "the hypervisor is launched on every CPU",
        )
        .values("offline", "online")
        .fix(all.join("; "))
    })
}

/// Reports processes with KVM guests: KVM uses EL2 while they run.
fn users_of_kvm() -> Option<Finding> {
    let mut users = Vec::new();
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let name = process.file_name().to_string_lossy().into_owned();
        if name.parse::<u32>().is_err() {
            continue;
        }
        let opened = fs::read_dir(process.path().join("fd"));
        let has_guest = opened.into_iter().flatten().flatten().any(|file| {
            let target = fs::read_link(file.path()).unwrap_or_default();
            target.to_string_lossy().contains("kvm-vm")
        });
        if has_guest {
            let program = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
            users.push(format!("{name} ({})", program.trim()));
        }
    }
    (!users.is_empty()).then(|| {
        Finding::new(
            Severity::Error,
            "KVM",
            "KVM guests use the exception level (EL2) that the hypervisor needs",
        )
        .values(format!("processes {}", users.join(", ")), "no guest")
        .fix("rampart down, or end these guests")
    })
}

fn image_is_missing(order: &EnableOrder, name: &str) -> Option<Finding> {
    let image = order.image.clone();
    let path = image.unwrap_or_else(|| Path::new(INSTALLED_IMAGES).join(name));
    let search_path = fs::read_to_string("/sys/module/firmware_class/parameters/path");
    let is_elsewhere = search_path
        .is_ok_and(|path| !path.trim().is_empty() && Path::new(path.trim()).join(name).exists());
    let found = path.is_file() || (order.image.is_none() && is_elsewhere);
    (!found).then(|| {
        Finding::new(
            Severity::Error,
            path.display().to_string(),
            "the hypervisor's image does not exist",
        )
        .fix(format!(
            "rampart cell enable --image FILE, with the image {name} of this version"
        ))
    })
}

fn read_image(path: &Path) -> Result<Vec<u8>, OperateError> {
    fs::read(path).map_err(|error| {
        OperateError::refused(
            Finding::new(
                Severity::Error,
                path.display().to_string(),
                format!("cannot read the hypervisor's image: {error}"),
            )
            .fix("name a readable file with --image"),
        )
    })
}

/// Waits until udev or devtmpfs has created the driver's device.
fn wait_for_device() -> Result<(), OperateError> {
    let begin = Instant::now();
    while !Path::new(DEVICE).exists() {
        if begin.elapsed() >= DEVICE_LIMIT {
            return Err(OperateError::refused(
                Finding::new(
                    Severity::Error,
                    "driver rampart",
                    format!(
                        "the module is loaded, but {DEVICE} did not appear within {} s",
                        DEVICE_LIMIT.as_secs()
                    ),
                )
                .fix("dmesg | grep rampart"),
            ));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}
