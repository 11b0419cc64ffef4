// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Brings the hypervisor under the running Linux, and takes it away again.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rampart_hypervisor_core::interface::MEMORY_ALIGNMENT;
use rampart_model::{ByteSize, Finding, Severity};

use super::{OperateError, Operator, offline, problems, wrong_architecture};
use crate::describe::{Description, Sources, Span, describe, spans};
use crate::device::DEVICE;
use crate::machine::Machine;

/// What the hypervisor has where nobody says otherwise: image, tables and room for some cells.
const USUAL_BYTES: u64 = 8 << 20;
/// The kernel looks for the image here, among other places.
const IMAGE: &str = "/lib/firmware/rampart.bin";
/// How long a module may take to load, and its device to appear.
const DRIVER_LIMIT: Duration = Duration::from_secs(30);

/// How the hypervisor is to be enabled.
#[derive(Debug, Clone, Default)]
pub struct EnableOrder {
    /// The driver; without it the installed one (`modprobe rampart`).
    pub module: Option<PathBuf>,
    /// The hypervisor's image, which is installed as `/lib/firmware/rampart.bin` first; without it
    /// what is installed.
    pub image: Option<PathBuf>,
    /// How much memory it gets; without it 8 MiB.
    pub memory_bytes: Option<u64>,
}

/// The hypervisor as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Enabled {
    /// Its memory.
    pub memory: Span,
    /// Whether it was there before.
    pub already: bool,
}

/// Whether the hypervisor is there, as far as is to be seen without privilege.
#[must_use]
pub fn is_enabled() -> bool {
    let enabled = fs::read_to_string("/sys/devices/virtual/misc/rampart/enabled");
    enabled.is_ok_and(|text| text.trim() == "1")
}

/// Enables the hypervisor. Where it is there, nothing is done.
///
/// # Errors
/// All that stands in the way; the machine is then as before, but for the driver, which may be
/// loaded, and the image, which may be installed.
pub fn enable(order: &EnableOrder) -> Result<Enabled, OperateError> {
    if std::env::consts::ARCH != "aarch64" {
        return Err(OperateError::refused(wrong_architecture()));
    }
    if let Some(already) = standing() {
        return Ok(already);
    }
    let description = describe(&Sources::of_this_machine()?);
    let mut found = problems(&description);
    found.extend(offline_cpus());
    found.extend(users_of_kvm());
    found.extend(image_is_missing(order));
    let memory = place(&description, order.memory_bytes.unwrap_or(USUAL_BYTES));
    if let Err(finding) = &memory {
        // Of no memory at all the description has told.
        if found.iter().all(|known| known.location != "memory") {
            found.push(finding.clone());
        }
    }
    let (true, Ok(memory)) = (found.is_empty(), memory) else {
        return Err(OperateError::Refused(found));
    };
    let machine = Machine::of(&description)?;
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
    if let Some(image) = &order.image {
        install(image)?;
    }
    driver(order.module.as_deref())?;
    let operator = Operator::open()?;
    operator.call(|device| device.enable(memory.start, memory.bytes, &blob))?;
    Ok(Enabled {
        memory,
        already: false,
    })
}

/// Ends the hypervisor; whether it was there.
///
/// # Errors
/// While there are cells, unless they are to be destroyed first.
pub fn disable(with_cells: bool) -> Result<bool, OperateError> {
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
            Finding::new(Severity::Error, "hypervisor", "there are cells")
                .values(names.join(", "), "none")
                .fix(format!(
                    "rampart cell destroy {}, or rampart cell disable --destroy-cells",
                    names.join(" ")
                )),
        ));
    }
    for name in names {
        operator.destroy(name)?;
    }
    operator.call(|device| device.disable())?;
    Ok(true)
}

/// What is there already.
fn standing() -> Option<Enabled> {
    if !Path::new(DEVICE).exists() {
        return None;
    }
    let state = Operator::open().ok()?.device().state().ok()?;
    state.is_enabled().then_some(Enabled {
        memory: Span {
            start: state.memory,
            bytes: state.memory_bytes,
        },
        already: true,
    })
}

/// Whole blocks within one GiB, as high as can be: cells get what is below in one piece.
fn place(description: &Description, bytes: u64) -> Result<Span, Finding> {
    const GIB: u64 = 1 << 30;
    let bytes = bytes.max(1).next_multiple_of(MEMORY_ALIGNMENT);
    let within = |span: &Span| {
        let end = span.end() & !(MEMORY_ALIGNMENT - 1);
        let start = end.checked_sub(bytes)?;
        let start = if start / GIB == (end - 1) / GIB {
            start
        } else {
            // The end of the GiB in which it would begin.
            ((start / GIB + 1) * GIB).checked_sub(bytes)?
        };
        (start >= span.start && bytes <= GIB).then_some(Span { start, bytes })
    };
    let found = description.kept.iter().rev().find_map(within);
    found.ok_or_else(|| {
        let kept = spans::united(description.kept.clone());
        let largest = kept.iter().map(|span| span.bytes).max().unwrap_or(0);
        Finding::new(
            Severity::Error,
            "memory",
            "what is kept from Linux has no room for the hypervisor",
        )
        .values(ByteSize(largest).to_string(), ByteSize(bytes).to_string())
        .fix("keep more from Linux (mem=, a reserved-memory node), or enable with less: --memory 4MiB")
    })
}

fn offline_cpus() -> Option<Finding> {
    let offline = offline();
    (!offline.is_empty()).then(|| {
        let all: Vec<String> = offline
            .iter()
            .map(|cpu| format!("echo 1 >/sys/devices/system/cpu/cpu{}/online", cpu.0))
            .collect();
        Finding::new(
            Severity::Error,
            format!("CPUs {offline}"),
            "every CPU has to take part in the launch",
        )
        .values("offline", "online")
        .fix(all.join("; "))
    })
}

/// Processes that have guests of KVM: it holds EL2 while they run.
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
            "guests have the level that the hypervisor needs",
        )
        .values(format!("processes {}", users.join(", ")), "no guest")
        .fix("end these guests; `rampart down` ends those of a plan")
    })
}

fn image_is_missing(order: &EnableOrder) -> Option<Finding> {
    let (path, fix) = match &order.image {
        Some(image) => (
            image.clone(),
            "make hypervisor makes bin/hypervisor/rampart.bin",
        ),
        None => (
            PathBuf::from(IMAGE),
            "make hypervisor, then rampart cell enable --image bin/hypervisor/rampart.bin",
        ),
    };
    let own = fs::read_to_string("/sys/module/firmware_class/parameters/path");
    let elsewhere = own.is_ok_and(|own| {
        !own.trim().is_empty() && Path::new(own.trim()).join("rampart.bin").exists()
    });
    let found = path.is_file() || (order.image.is_none() && elsewhere);
    (!found).then(|| {
        Finding::new(
            Severity::Error,
            path.display().to_string(),
            "the hypervisor's image is not there",
        )
        .fix(fix)
    })
}

fn failed(path: &Path, what: &str, error: &std::io::Error) -> OperateError {
    OperateError::refused(
        Finding::new(
            Severity::Error,
            path.display().to_string(),
            format!("{what}: {error}"),
        )
        .fix("as root, with room in /lib/firmware"),
    )
}

/// Puts the image where the kernel looks for it; whole, or as it was.
fn install(image: &Path) -> Result<(), OperateError> {
    let bytes = fs::read(image).map_err(|error| failed(image, "it cannot be read", &error))?;
    let target = Path::new(IMAGE);
    if fs::read(target).is_ok_and(|there| there == bytes) {
        return Ok(());
    }
    let write = || -> std::io::Result<()> {
        let directory = target.parent().unwrap_or(Path::new("/"));
        fs::create_dir_all(directory)?;
        let new = directory.join(format!(".rampart.bin.{}", std::process::id()));
        let mut file = fs::File::create(&new)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        fs::rename(&new, target)
    };
    write().map_err(|error| failed(target, "the image cannot be installed", &error))
}

/// Loads the driver, if it is not there.
fn driver(module: Option<&Path>) -> Result<(), OperateError> {
    if Path::new(DEVICE).exists() {
        return Ok(());
    }
    let mut command = match module {
        Some(path) => {
            let mut command = Command::new("insmod");
            command.arg(path);
            command
        }
        None => {
            let mut command = Command::new("modprobe");
            command.arg("rampart");
            command
        }
    };
    let refused = |what: String| {
        OperateError::refused(
            Finding::new(Severity::Error, "driver rampart", what)
                .values("not loaded", "loaded")
                .fix("build it for this kernel (kernel/rampart/README.md) and install it, or name it: rampart cell enable --module FILE"),
        )
    };
    let program = command.get_program().to_string_lossy().into_owned();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| refused(format!("{program}: {error}")))?;
    let begin = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => break,
            Ok(Some(status)) => {
                let mut said = String::new();
                if let Some(errors) = &mut child.stderr {
                    let _ = std::io::Read::read_to_string(errors, &mut said);
                }
                return Err(refused(format!(
                    "{program} ended with {status}: {}",
                    said.trim()
                )));
            }
            Err(error) => return Err(refused(format!("{program}: {error}"))),
            Ok(None) if begin.elapsed() >= DRIVER_LIMIT => {
                let _ = child.kill();
                return Err(refused(format!(
                    "{program} took longer than {} s",
                    DRIVER_LIMIT.as_secs()
                )));
            }
            Ok(None) => std::thread::sleep(Duration::from_millis(10)),
        }
    }
    while !Path::new(DEVICE).exists() {
        if begin.elapsed() >= DRIVER_LIMIT {
            return Err(refused(format!(
                "the module is loaded, and {DEVICE} did not appear within {} s",
                DRIVER_LIMIT.as_secs()
            )));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}
