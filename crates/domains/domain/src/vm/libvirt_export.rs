// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Exports a guest for libvirt: its XML, and the initramfs that it names.

use std::fs;
use std::path::{Path, PathBuf};

use rampart_model::{CpuSet, DomainSelection, Finding, GuestRole, Machine};

use super::description::Board;
use super::guest_kernel::KernelLocations;
use super::initramfs::{self, Contents};
use super::program_libraries::Libraries;
use super::{Order, describe, guest_modules, weaknesses};
use crate::DomainError;

/// A guest as files for libvirt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportedGuest {
    /// The XML: `virsh define FILE`.
    pub xml: PathBuf,
    /// The initramfs that it names.
    pub initramfs: PathBuf,
    /// Weaknesses of the guest on this machine.
    pub findings: Vec<Finding>,
}

/// Writes the guest `selection`, under `name`, as files into `directory`, which must not be moved:
/// the XML names the initramfs in it. Its real-time virtual CPUs get `cpus`, everything else
/// `housekeeping`. The machine is not changed.
///
/// # Errors
/// If the selection is no guest, no kernel for it is found, or a file cannot be written.
pub fn export_libvirt(
    selection: DomainSelection,
    name: &str,
    machine: &Machine,
    cpus: &CpuSet,
    housekeeping: &CpuSet,
    meter: &Path,
    directory: &Path,
) -> Result<ExportedGuest, DomainError> {
    let role = selection.guest.unwrap_or(GuestRole::RealTime);
    let unavailable = |finding: Box<Finding>| DomainError::Unavailable(*finding);
    let kernel = KernelLocations::standard().find().map_err(unavailable)?;
    let modules = guest_modules(&kernel, meter).map_err(unavailable)?;
    let load = Libraries::of_program("stress-ng");
    let directory = std::path::absolute(directory).map_err(DomainError::file("find", directory))?;
    fs::create_dir_all(&directory).map_err(DomainError::file("make the directory", &directory))?;
    let archive = directory.join(format!("{name}.initramfs"));
    let contents = Contents {
        meter,
        modules: &modules,
        load: load.as_ref(),
    };
    initramfs::write(&archive, &contents)?;
    let image =
        std::path::absolute(&kernel.image).map_err(DomainError::file("find", &kernel.image))?;
    let order = Order {
        role,
        name,
        board: Board::Q35,
        machine,
        cpus,
        housekeeping,
        real_time_policy: true,
        kernel: &image,
    };
    let description = describe(&order, &archive);
    let xml = directory.join(format!("{name}.xml"));
    super::libvirt::document(&description)
        .and_then(|text| fs::write(&xml, text))
        .map_err(DomainError::file("write", &xml))?;
    Ok(ExportedGuest {
        xml,
        initramfs: archive,
        findings: weaknesses(&order, &kernel),
    })
}
