// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether this machine can hold cells, and if not, what is missing; where the programs are.

use std::path::{Path, PathBuf};

use rampart_cells::describe::{Description, Sources, describe};
use rampart_cells::device::DEVICE;
use rampart_cells::operate::EnableOrder;
use rampart_model::{
    Availability, CellPayload, DomainKind, DomainSelection, Finding, Machine, Severity,
};

use super::bare;
use super::linux::MEMORY_BYTES;

/// The measuring loops as a cell's program.
pub(super) const BARE_PROGRAM: &str = "rampart-cell-meter";
/// The hypervisor's image.
const IMAGE: &str = "rampart.bin";
/// Where what belongs to the hypervisor is installed.
const INSTALLED: [&str; 2] = ["/usr/lib/rampart", "/lib/firmware"];
/// Names another kernel for cells with Linux than this machine's own.
const KERNEL_VARIABLE: &str = "RAMPART_CELL_KERNEL";
/// What the hypervisor needs for itself, with what cells share with the root, in bytes.
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
            "the measuring loops without an operating system, on a CPU that the partitioning hypervisor keeps from Linux".to_owned()
        }
        CellPayload::Linux => format!(
            "Linux {} on CPUs that the partitioning hypervisor keeps from this one",
            machine.kernel_release
        ),
    }
}

fn problems(payload: CellPayload, machine: &Machine) -> Vec<Finding> {
    if machine.architecture != "aarch64" {
        // What else is missing would not help.
        return vec![
            Finding::new(
                Severity::Error,
                "architecture",
                "the partitioning hypervisor is for another one",
            )
            .values(machine.architecture.clone(), "aarch64")
            .fix("measure cells on such a machine, as with --on ssh:HOST or --on sim:aarch64"),
        ];
    }
    let mut found = Vec::new();
    let mut keep = |result: Result<(), Box<Finding>>| {
        if let Err(finding) = result {
            found.push(*finding);
        }
    };
    keep(driver(machine));
    keep(program(IMAGE).map(|_| ()));
    match payload {
        CellPayload::BareMetal => keep(program(BARE_PROGRAM).map(|_| ())),
        CellPayload::Linux => keep(kernel().map(|_| ())),
    }
    match Sources::of_this_machine() {
        Ok(sources) => {
            let description = describe(&sources);
            keep(memory(&description, payload));
            let problems = description.findings.iter();
            found.extend(
                problems
                    .filter(|one| one.severity == Severity::Error && one.location != "memory")
                    .cloned(),
            );
        }
        Err(error) => found.push(
            Finding::new(Severity::Error, "device tree", error.to_string())
                .fix("boot with a device tree: acpi=off"),
        ),
    }
    if machine.topology.usable().len() < 2 {
        found.push(
            Finding::new(Severity::Error, "machine", "no CPU can be spared")
                .values("1 CPU", "2 CPUs, one of them for the cell"),
        );
    }
    found
}

/// The driver is loaded, or can be.
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
        Finding::new(
            Severity::Error,
            DEVICE,
            "the driver that launches the hypervisor is not there",
        )
        .values("not loaded", "loaded")
        .fix("build it for this kernel (kernel/rampart/README.md), install it, and: modprobe rampart"),
    ))
}

/// Memory that Linux leaves alone.
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
        Finding::new(
            Severity::Error,
            "memory",
            "not enough is kept from Linux for the hypervisor and a cell",
        )
        .values(mebibytes(kept), format!("{} or more", mebibytes(needed)))
        .fix("boot with less memory for Linux, as mem=768M of 1 GiB; or with a reserved-memory node for rampart"),
    ))
}

/// A file that belongs to the hypervisor: beside this program, in `hypervisor` there, or installed.
pub(super) fn program(name: &str) -> Result<PathBuf, Box<Finding>> {
    let own = std::env::current_exe().unwrap_or_default();
    let own = own.parent().map(Path::to_owned).unwrap_or_default();
    let locations = [own.join("hypervisor"), own.join("../hypervisor"), own];
    let installed = INSTALLED.iter().map(PathBuf::from);
    let mut locations = locations.into_iter().chain(installed);
    locations
        .find_map(|location| Some(location.join(name)).filter(|path| path.is_file()))
        .ok_or_else(|| {
            Box::new(
                Finding::new(
                    Severity::Error,
                    name,
                    "it is neither beside `rampart` nor installed",
                )
                .values("not there", format!("in {}", INSTALLED.join(" or ")))
                .fix("build it with `make hypervisor`, and install bin/hypervisor in /usr/lib/rampart"),
            )
        })
}

/// How the hypervisor is brought under Linux.
pub(super) fn order() -> EnableOrder {
    EnableOrder {
        image: program(IMAGE).ok(),
        ..EnableOrder::default()
    }
}

/// The kernel for cells with Linux: the one that is named, or this machine's own.
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
                "no kernel's image is there for a cell with Linux",
            )
            .values("not there", "the image of a kernel for arm64")
            .fix(format!("name one: {KERNEL_VARIABLE}=FILE")),
        )
    })
}
