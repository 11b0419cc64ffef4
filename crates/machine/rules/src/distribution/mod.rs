// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Turns "install this package" and "add this kernel parameter" into the command of a distribution.
//!
//! The distribution is found by `ID` and `ID_LIKE` of os-release(5); what installs packages and sets
//! kernel parameters by the files in [`SYSTEM_FILES`]. Without any of these files the distribution's
//! usual tools are named. A machine is never asked: [`OperatingSystem`] has what `host` read.

mod packages;
mod parameters;
#[cfg(test)]
mod tests;

use rampart_model::OperatingSystem;

pub use packages::{Package, install, install_real_time_kernel};
pub use parameters::{add_parameters, remove_parameter};

/// The files whose existence decides how packages are installed and kernel parameters are set.
pub const SYSTEM_FILES: [&str; 24] = [
    MACHINE_CONFIG,
    // The mark of a system that OSTree has started (ostree(1)).
    OSTREE_BOOTED,
    TRANSACTIONAL_UPDATE,
    "/usr/bin/apt-get",
    "/usr/bin/dnf",
    "/usr/bin/zypper",
    "/usr/bin/pacman",
    "/sbin/apk",
    OPKG,
    GRUBBY,
    UPDATE_GRUB,
    "/usr/sbin/grub2-mkconfig",
    "/usr/bin/grub2-mkconfig",
    "/usr/bin/grub-mkconfig",
    "/usr/sbin/grub-mkconfig",
    "/boot/firmware/cmdline.txt",
    "/boot/cmdline.txt",
    "/etc/update-extlinux.conf",
    "/etc/default/u-boot",
    "/boot/extlinux/extlinux.conf",
    KERNEL_INSTALL_LINE,
    "/boot/loader/entries",
    "/efi/loader/entries",
    "/boot/efi/loader/entries",
];

/// The directory of the daemon that keeps a node of OpenShift as its operators describe it.
const MACHINE_CONFIG: &str = "/etc/machine-config-daemon";
const OSTREE_BOOTED: &str = "/run/ostree-booted";
const TRANSACTIONAL_UPDATE: &str = "/usr/sbin/transactional-update";
const OPKG: &str = "/usr/bin/opkg";
const GRUBBY: &str = "/usr/sbin/grubby";
const UPDATE_GRUB: &str = "/usr/sbin/update-grub";
/// The parameters that `kernel-install` writes into boot entries (kernel-install(8)).
const KERNEL_INSTALL_LINE: &str = "/etc/kernel/cmdline";

/// Distributions with the same tools and package names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    Debian,
    Ubuntu,
    Fedora,
    /// Red Hat Enterprise Linux and its rebuilds.
    RedHat,
    Suse,
    Arch,
    Alpine,
    /// An image built with the Yocto Project.
    Yocto,
}

/// Returns the family of a distribution, or `None` if it is not known. `ID_LIKE` has the closest
/// relatives first (os-release(5)).
fn family(system: &OperatingSystem) -> Option<Family> {
    let names = std::iter::once(&system.id).chain(&system.like);
    let known = names.into_iter().find_map(|name| {
        Some(match name.as_str() {
            "debian" | "raspbian" => Family::Debian,
            "ubuntu" => Family::Ubuntu,
            "fedora" => Family::Fedora,
            "rhel" | "centos" | "almalinux" | "rocky" | "ol" => Family::RedHat,
            "suse" | "opensuse" | "sles" => Family::Suse,
            "arch" => Family::Arch,
            "alpine" => Family::Alpine,
            "poky" | "nodistro" => Family::Yocto,
            _ => return None,
        })
    });
    // opkg installs packages of images that the Yocto Project built; their names are their makers'.
    known.or_else(|| has(system, OPKG).then_some(Family::Yocto))
}

/// Returns whether this is a node of OpenShift, whose operators revert kernel parameters and packages that they do not
/// know (OpenShift, "Machine configuration").
fn is_node_of_openshift(system: &OperatingSystem) -> bool {
    has(system, MACHINE_CONFIG) || ["rhcos", "scos"].contains(&system.id.as_str())
}

/// Returns whether the machine has this file.
fn has(system: &OperatingSystem, file: &str) -> bool {
    system.files.iter().any(|one| one == file)
}
