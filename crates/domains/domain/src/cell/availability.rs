// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Determines whether this machine can host cells, and finds their programs.

use std::path::{Path, PathBuf};

use rampart_cells::describe::{Description, Sources, describe};
use rampart_cells::device::DEVICE;
use rampart_cells::operate::{EnableOrder, image_name};
use rampart_host::program_file_directories;
use rampart_model::{
    Availability, CellPayload, DomainKind, DomainSelection, Finding, Machine, Severity,
};
use rampart_rules::cells::{CELL_DRIVER, CELL_MACHINE, CELL_MEMORY};

use super::bare;
use super::linux::MEMORY_BYTES;
use crate::task::ENOUGH_CPUS;

/// The program of a cell without an operating system: the measuring loops.
pub(super) const BARE_PROGRAM: &str = "rampart-cell-meter";
/// The directories in which the hypervisor's files are installed.
const INSTALLED: [&str; 2] = ["/usr/lib/rampart", "/lib/firmware"];
/// Environment variable that names another kernel for cells with Linux.
const KERNEL_VARIABLE: &str = "RAMPART_CELL_KERNEL";
/// Memory for the hypervisor itself and for regions shared with the root, in bytes.
const LEAST_BYTES: u64 = 16 << 20;

pub(super) fn of(payload: CellPayload, machine: &Machine) -> Availability {
    let selection = DomainSelection {
        cell: Some(payload),
        ..DomainSelection::of(DomainKind::Cell)
    };
    let findings = problems(payload, machine);
    Availability {
        domain: selection,
        available: findings
            .iter()
            .all(|finding| finding.severity != Severity::Error),
        description: description(payload, machine),
        findings,
    }
}

fn description(payload: CellPayload, machine: &Machine) -> String {
    match payload {
        CellPayload::BareMetal => {
            "the measuring loops without an operating system, on a CPU reserved by the partitioning hypervisor".to_owned()
        }
        CellPayload::Linux => format!(
            "Linux {} on CPUs reserved by the partitioning hypervisor",
            machine.kernel_release
        ),
    }
}

fn problems(payload: CellPayload, machine: &Machine) -> Vec<Finding> {
    if machine.architecture != "aarch64" {
        // The other findings would not help.
        return vec![
            CELL_MACHINE
                .finding(
                    "architecture",
                    "cells need an arm64 machine with a GICv2 or GICv3",
                )
                .values(machine.architecture.clone(), "aarch64")
                .fix("measure cells on an arm64 machine: --on ssh:HOST or --on sim:aarch64"),
        ];
    }
    let mut found = Vec::new();
    let mut keep = |result: Result<(), Box<Finding>>| {
        if let Err(finding) = result {
            found.push(*finding);
        }
    };
    keep(driver(machine));
    keep(program(image_name()).map(|_| ()));
    match payload {
        CellPayload::BareMetal => keep(program(BARE_PROGRAM).map(|_| ())),
        CellPayload::Linux => keep(kernel().map(|_| ())),
    }
    match Sources::of_this_machine() {
        Ok(sources) => {
            let description = describe(&sources);
            keep(memory(&description, payload));
            let problems = description.findings.into_iter();
            found.extend(problems.filter(|one| {
                one.severity == Severity::Error && one.rule.as_deref() != Some(CELL_MEMORY.id)
            }));
        }
        Err(error) => found.push(
            Finding::new(Severity::Error, "device tree", error.to_string())
                .fix("boot with a device tree: acpi=off"),
        ),
    }
    if machine.topology.usable().len() < 2 {
        found.push(
            ENOUGH_CPUS
                .finding("CPUs", "a cell needs a CPU of its own")
                .values("1 CPU", "2 CPUs, one of them for the cell"),
        );
    }
    found
}

/// Checks that the driver is loaded, or can be.
fn driver(machine: &Machine) -> Result<(), Box<Finding>> {
    if Path::new(DEVICE).exists() {
        return Ok(());
    }
    let modules = Path::new("/lib/modules").join(&machine.kernel_release);
    let installed = ["extra", "updates", "updates/dkms", "kernel/drivers/misc"]
        .iter()
        .any(|location| modules.join(location).join("rampart.ko").exists());
    if installed {
        return Ok(());
    }
    Err(Box::new(
        CELL_DRIVER.finding(
            DEVICE,
            "the driver that launches the hypervisor is missing",
        )
        .values("not loaded", "loaded")
        .fix("build it for this kernel (kernel/rampart/README.md), install it, and run: modprobe rampart"),
    ))
}

/// Checks that enough memory is reserved from Linux.
fn memory(description: &Description, payload: CellPayload) -> Result<(), Box<Finding>> {
    let kept: u64 = description.kept.iter().map(|span| span.bytes).sum();
    let needed = match payload {
        CellPayload::BareMetal => LEAST_BYTES + bare::MEMORY_BYTES,
        CellPayload::Linux => LEAST_BYTES + MEMORY_BYTES,
    };
    if kept >= needed {
        return Ok(());
    }
    let mebibytes = |bytes: u64| format!("{} MiB", bytes >> 20);
    Err(Box::new(
        CELL_MEMORY.finding(
            "memory",
            "too little memory is reserved for the hypervisor and a cell",
        )
        .values(mebibytes(kept), format!("{} or more", mebibytes(needed)))
        .fix("boot with less memory for Linux, for example mem=768M of 1 GiB, or with a reserved-memory node for rampart"),
    ))
}

/// Finds a file of the hypervisor: among the files of this program, in their directory
/// `hypervisor`, or where the simulated machine has it.
pub(super) fn program(name: &str) -> Result<PathBuf, Box<Finding>> {
    let directories: Vec<PathBuf> =
        program_file_directories(&std::env::current_exe().unwrap_or_default())
            .into_iter()
            // The programs of this architecture may be in a directory of a build.
            .flat_map(|own| [own.join("hypervisor"), own.join("../hypervisor"), own])
            .chain(INSTALLED.map(PathBuf::from))
            .collect();
    let mut files = directories.iter().map(|directory| directory.join(name));
    files.find(|path| path.is_file()).ok_or_else(|| {
        let searched: Vec<String> = directories
            .iter()
            .map(|directory| directory.display().to_string())
            .collect();
        Box::new(
            Finding::new(
                Severity::Error,
                name,
                "the file of the hypervisor does not exist",
            )
            .values("missing", format!("in one of {}", searched.join(", ")))
            .fix("install the hypervisor's files in /usr/lib/rampart"),
        )
    })
}

/// Returns the order that starts the hypervisor under Linux.
pub(super) fn order() -> EnableOrder {
    EnableOrder {
        image: program(image_name()).ok(),
        ..EnableOrder::default()
    }
}

/// Finds the kernel for cells with Linux: the one that the user names, or this machine's own.
pub(super) fn kernel() -> Result<PathBuf, Box<Finding>> {
    let release = rustix::system::uname()
        .release()
        .to_string_lossy()
        .into_owned();
    let named = std::env::var_os(KERNEL_VARIABLE).map(PathBuf::from);
    let usual = [
        PathBuf::from(format!("/boot/vmlinuz-{release}")),
        PathBuf::from(format!("/usr/lib/modules/{release}/vmlinuz")),
        PathBuf::from("/usr/lib/rampart/vmlinuz"),
    ];
    let mut locations = named.into_iter().chain(usual);
    locations.find(|path| path.is_file()).ok_or_else(|| {
        Box::new(
            Finding::new(
                Severity::Error,
                format!("/boot/vmlinuz-{release}"),
                "there is no kernel image for a cell with Linux",
            )
            .values("missing", "a kernel image for arm64")
            .fix(format!("export {KERNEL_VARIABLE}=FILE")),
        )
    })
}
