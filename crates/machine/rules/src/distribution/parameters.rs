// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Adds parameters to the kernel command line and removes them: the commands of each boot loader.

use rampart_model::OperatingSystem;

use super::packages::is_image_of_fedora;
use super::{
    Family, GRUBBY, KERNEL_INSTALL_LINE, OSTREE_BOOTED, SYSTEM_FILES, TRANSACTIONAL_UPDATE,
    UPDATE_GRUB, family, has,
};

/// What sets the parameters that the kernel is started with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tool {
    /// rpm-ostree(1), `kargs`.
    RpmOstree,
    /// grubby(8), for GRUB with entries of the Boot Loader Specification.
    Grubby,
    /// GRUB with this command to generate its configuration from `/etc/default/grub` (GRUB manual,
    /// "Simple configuration handling").
    Grub(&'static str),
    /// The file with the whole command line that a Raspberry Pi's firmware reads.
    RaspberryPi(&'static str),
    /// `update-extlinux` of Alpine Linux.
    UpdateExtlinux,
    /// `u-boot-update` of Debian's package `u-boot-menu`.
    UBootMenu,
    /// A configuration of extlinux or U-Boot that the administrator maintains.
    Extlinux,
    /// kernel-install(8) of systemd, which writes the entries of systemd-boot.
    KernelInstall,
    /// Entries of systemd-boot in this directory that the administrator maintains (Boot Loader
    /// Specification, type 1).
    Entries(&'static str),
    /// The configuration of an image's build (Yocto Project Reference Manual, `APPEND`).
    Yocto,
}

const GRUB_2: &str = "grub2-mkconfig -o /boot/grub2/grub.cfg";
const GRUB: &str = "grub-mkconfig -o /boot/grub/grub.cfg";

/// Returns the tool of this machine; `None` if it is not known.
fn tool(system: &OperatingSystem) -> Option<Tool> {
    let family = family(system);
    if has(system, OSTREE_BOOTED) || is_image_of_fedora(system) {
        return Some(Tool::RpmOstree);
    }
    if has(system, TRANSACTIONAL_UPDATE) {
        return Some(Tool::Grub("transactional-update grub.cfg"));
    }
    if family == Some(Family::Yocto) {
        return Some(Tool::Yocto);
    }
    let found = SYSTEM_FILES
        .iter()
        .filter(|file| has(system, file))
        .find_map(|file| {
            Some(match *file {
                GRUBBY => Tool::Grubby,
                UPDATE_GRUB => Tool::Grub("update-grub"),
                "/usr/sbin/grub2-mkconfig" | "/usr/bin/grub2-mkconfig" => Tool::Grub(GRUB_2),
                "/usr/sbin/grub-mkconfig" | "/usr/bin/grub-mkconfig" => Tool::Grub(GRUB),
                file @ ("/boot/firmware/cmdline.txt" | "/boot/cmdline.txt") => {
                    Tool::RaspberryPi(file)
                }
                "/etc/update-extlinux.conf" => Tool::UpdateExtlinux,
                "/etc/default/u-boot" => Tool::UBootMenu,
                "/boot/extlinux/extlinux.conf" => Tool::Extlinux,
                KERNEL_INSTALL_LINE => Tool::KernelInstall,
                file if file.ends_with("/loader/entries") => Tool::Entries(file),
                _ => return None,
            })
        });
    // A machine with a package manager and without any of these boots in a way that is not known.
    if found.is_some() || !system.files.is_empty() {
        return found;
    }
    Some(match family? {
        Family::Debian | Family::Ubuntu => Tool::Grub("update-grub"),
        Family::Fedora | Family::RedHat => Tool::Grubby,
        Family::Suse => Tool::Grub(GRUB_2),
        Family::Arch => Tool::Grub(GRUB),
        Family::Alpine => Tool::UpdateExtlinux,
        Family::Yocto => Tool::Yocto,
    })
}

/// Returns the command that adds parameters, for example `psi=0 skew_tick=1`, to the command line of
/// the next boots; without a known boot loader, the change in words.
#[must_use]
pub fn add_parameters(system: &OperatingSystem, parameters: &str) -> String {
    let Some(tool) = tool(system) else {
        return format!("{parameters} on the kernel command line");
    };
    match tool {
        Tool::RpmOstree => {
            let options: Vec<String> = parameters
                .split_whitespace()
                .map(|parameter| format!("--append-if-missing={parameter}"))
                .collect();
            format!("rpm-ostree kargs {}", options.join(" "))
        }
        Tool::Grubby => format!("grubby --update-kernel=ALL --args=\"{parameters}\""),
        Tool::Grub(generate) => format!(
            "echo 'GRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX {parameters}\"' >> /etc/default/grub && {generate}"
        ),
        Tool::RaspberryPi(file) => format!("sed -i '1 s|$| {parameters}|' {file}"),
        Tool::UpdateExtlinux => format!(
            "sed -i 's|^default_kernel_opts=\"|&{parameters} |' /etc/update-extlinux.conf && update-extlinux"
        ),
        Tool::UBootMenu => format!(
            "echo 'U_BOOT_PARAMETERS=\"$U_BOOT_PARAMETERS {parameters}\"' >> /etc/default/u-boot && u-boot-update"
        ),
        Tool::Extlinux => format!(
            "sed -i -E '/^[[:space:]]*append/I s|$| {parameters}|' /boot/extlinux/extlinux.conf"
        ),
        Tool::KernelInstall => {
            format!("sed -i '1 s|$| {parameters}|' {KERNEL_INSTALL_LINE} && kernel-install add-all")
        }
        Tool::Entries(directory) => {
            format!("sed -i '/^options/ s|$| {parameters}|' {directory}/*.conf")
        }
        Tool::Yocto => format!(
            "write APPEND:append = \" {parameters}\" into conf/local.conf and build the image again"
        ),
    }
}

/// Returns the command that removes a parameter with this name, whatever its value, from the command
/// line of the next boots; without a known boot loader, the change in words.
#[must_use]
pub fn remove_parameter(system: &OperatingSystem, name: &str) -> String {
    let Some(tool) = tool(system) else {
        return format!("remove {name}= from the kernel command line");
    };
    // Only the whole name: `nohz` must leave `nohz_full` alone.
    let removal = format!(
        "s/(^|[ \"]){}(=[^ \"]*)?([ \"]|$)/\\1\\3/",
        name.replace('.', "\\.")
    );
    let edit = |files: &str| format!("sed -i -E '{removal}' {files}");
    match tool {
        Tool::RpmOstree => format!("rpm-ostree kargs --delete={name}"),
        Tool::Grubby => format!("grubby --update-kernel=ALL --remove-args=\"{name}\""),
        // Some distributions read more files of the same form.
        Tool::Grub(generate) => format!(
            "{} && {generate}",
            edit("$(find /etc/default/grub* -type f)")
        ),
        Tool::RaspberryPi(file) => edit(file),
        Tool::UpdateExtlinux => format!("{} && update-extlinux", edit("/etc/update-extlinux.conf")),
        Tool::UBootMenu => format!("{} && u-boot-update", edit("/etc/default/u-boot")),
        Tool::Extlinux => edit("/boot/extlinux/extlinux.conf"),
        Tool::KernelInstall => {
            format!("{} && kernel-install add-all", edit(KERNEL_INSTALL_LINE))
        }
        Tool::Entries(directory) => edit(&format!("{directory}/*.conf")),
        Tool::Yocto => {
            format!(
                "remove {name} from APPEND in the image's configuration and build the image again"
            )
        }
    }
}
