// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Adds parameters to the kernel command line and removes them: the commands of each boot loader.

use rampart_model::{Machine, OperatingSystem};

use super::packages::is_image_of_fedora;
use super::{
    Family, GRUBBY, KERNEL_INSTALL_LINE, OSTREE_BOOTED, SYSTEM_FILES, TRANSACTIONAL_UPDATE,
    UPDATE_GRUB, family, has, is_node_of_openshift,
};
use crate::KernelCommandLine;
use crate::machine::kernel_command_line::{Repeated, repeated};

/// What sets the parameters that the kernel is started with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tool {
    /// The PerformanceProfile of a node of OpenShift.
    PerformanceProfile,
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
    if is_node_of_openshift(system) {
        return Some(Tool::PerformanceProfile);
    }
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

/// Returns the command that sets parameters, for example `psi=0 skew_tick=1`, on the command line of the next boots;
/// without a known boot loader, the change in words. `None` if all of them are in effect already.
///
/// A word of the same parameter is replaced, since what the kernel does with a second one is different for each
/// (`Repeated`).
#[must_use]
pub fn add_parameters(machine: &Machine, parameters: &str) -> Option<String> {
    let line = KernelCommandLine::parse(&machine.command_line);
    set(&machine.operating_system, &line, parameters)
}

pub(super) fn set(
    system: &OperatingSystem,
    line: &KernelCommandLine,
    parameters: &str,
) -> Option<String> {
    let mut added: Vec<String> = Vec::new();
    let mut replaced: Vec<&str> = Vec::new();
    for word in parameters.split_whitespace() {
        if line.is_in_effect(word) {
            continue;
        }
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        let kind = repeated(name);
        let is_given = line.has(name) && kind != Repeated::Accumulates;
        if is_given && !replaced.contains(&name) {
            replaced.push(name);
        }
        added.push(
            match line
                .value(name)
                .filter(|_| kind == Repeated::LastListCounts)
            {
                Some(old) => format!("{name}={}", union(old, value)),
                None => word.to_owned(),
            },
        );
    }
    if added.is_empty() {
        return None;
    }
    let parameters = added.join(" ");
    let Some(tool) = tool(system) else {
        return Some(match replaced.as_slice() {
            [] => format!("{parameters} on the kernel command line"),
            names => format!(
                "{parameters} on the kernel command line, instead of the present {}",
                equations(names)
            ),
        });
    };
    let append = |pattern: &str| format!("{pattern} s|$| {parameters}|");
    let (first, rest) = match tool {
        Tool::PerformanceProfile => return Some(profile(&added)),
        Tool::RpmOstree => {
            let old = replaced.iter().flat_map(|name| {
                let values = line.values(name);
                values.map(move |value| format!(" --delete={name}={value}"))
            });
            let old: String = old.collect();
            let kind = if old.is_empty() {
                "append-if-missing"
            } else {
                "append"
            };
            let new = added.iter().map(|word| format!(" --{kind}={word}"));
            return Some(format!("rpm-ostree kargs{old}{}", new.collect::<String>()));
        }
        Tool::Grubby => {
            let old = match replaced.as_slice() {
                [] => String::new(),
                names => format!(" --remove-args=\"{}\"", names.join(" ")),
            };
            return Some(format!(
                "grubby --update-kernel=ALL{old} --args=\"{parameters}\""
            ));
        }
        Tool::Yocto => {
            let old = match replaced.as_slice() {
                [] => String::new(),
                names => format!(
                    ", remove {} from the image's configuration",
                    equations(names)
                ),
            };
            return Some(format!(
                "write APPEND:append = \" {parameters}\" into conf/local.conf{old} and build the image again"
            ));
        }
        Tool::Grub(generate) => (
            None,
            format!(
                "echo 'GRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX {parameters}\"' >> /etc/default/grub && {generate}"
            ),
        ),
        Tool::UBootMenu => (
            None,
            format!(
                "echo 'U_BOOT_PARAMETERS=\"$U_BOOT_PARAMETERS {parameters}\"' >> /etc/default/u-boot && u-boot-update"
            ),
        ),
        Tool::RaspberryPi(_) => (Some(append("1")), String::new()),
        Tool::UpdateExtlinux => (
            Some(format!("s|^default_kernel_opts=\"|&{parameters} |")),
            "update-extlinux".to_owned(),
        ),
        Tool::Extlinux => (Some(append("/^[[:space:]]*append/I")), String::new()),
        Tool::KernelInstall => (Some(append("1")), "kernel-install add-all".to_owned()),
        Tool::Entries(_) => (Some(append("/^options/")), String::new()),
    };
    let removal = (!replaced.is_empty()).then(|| removal(tool, &replaced));
    let edits: Vec<String> = removal.into_iter().chain(first).collect();
    let steps = [edit(tool, &edits), rest];
    let steps: Vec<String> = steps.into_iter().filter(|step| !step.is_empty()).collect();
    Some(steps.join(" && "))
}

/// Returns the change of a PerformanceProfile that sets parameters (OpenShift, "Scalability and performance"): from its
/// two lists of CPUs the operator makes the parameters of isolation itself.
fn profile(parameters: &[String]) -> String {
    let mut settings: Vec<String> = Vec::new();
    for word in parameters {
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        let set = |field: &str| {
            let begin = |part: &&str| part.starts_with(|first: char| first.is_ascii_digit());
            let cpus: Vec<&str> = value.split(',').filter(begin).collect();
            format!("set spec.cpu.{field} to \"{}\"", cpus.join(","))
        };
        let setting = match name {
            "isolcpus" | "nohz_full" | "rcu_nocbs" => set("isolated"),
            "systemd.cpu_affinity" | "irqaffinity" | "workqueue.unbound_cpus" => set("reserved"),
            _ => format!("add {word} to spec.additionalKernelArgs"),
        };
        if !settings.contains(&setting) {
            settings.push(setting);
        }
    }
    format!("oc edit performanceprofile, and {}", settings.join(", "))
}

/// Returns the items of two lists, each once.
fn union(old: &str, new: &str) -> String {
    let mut items: Vec<&str> = Vec::new();
    for item in old.split(',').chain(new.split(',')) {
        if !items.contains(&item) {
            items.push(item);
        }
    }
    items.join(",")
}

/// Returns parameter names as words: `isolcpus=, nohz_full=`.
fn equations(names: &[&str]) -> String {
    let names: Vec<String> = names.iter().map(|name| format!("{name}=")).collect();
    names.join(", ")
}

/// Returns the expression of sed(1) that removes each word of these parameters from the lines of the tool's files that
/// have kernel parameters.
fn removal(tool: Tool, names: &[&str]) -> String {
    let names: Vec<String> = names
        .iter()
        .map(|name| name.replace('.', "\\.").replace(['-', '_'], "[-_]"))
        .collect();
    // In files that a shell reads, words are in quotation marks of either kind.
    let ends = match tool {
        Tool::Grub(_) | Tool::UBootMenu => " \"\\x27",
        _ => " \"",
    };
    // Only whole names: `nohz` must leave `nohz_full` alone. Two neighbours share a space, hence the loop.
    let loops = format!(
        ":a;s/(^|[{ends}])({})(=[^{ends}]*)?([{ends}]|$)/\\1\\4/;ta",
        names.join("|")
    );
    match lines(tool) {
        Some(lines) => format!("{lines}{{{loops};}}"),
        None => loops,
    }
}

/// Returns which lines of the tool's files have kernel parameters; `None` if all have.
const fn lines(tool: Tool) -> Option<&'static str> {
    Some(match tool {
        Tool::Grub(_) => "/GRUB_CMDLINE/",
        Tool::UpdateExtlinux => "/^default_kernel_opts=/",
        Tool::UBootMenu => "/^U_BOOT_PARAMETERS=/",
        Tool::Extlinux => "/^[[:space:]]*append/I",
        Tool::Entries(_) => "/^options/",
        _ => return None,
    })
}

/// Returns the command that edits the tool's files with expressions of sed(1); empty without any.
fn edit(tool: Tool, expressions: &[String]) -> String {
    let files = match tool {
        // Some distributions read more files of the same form.
        Tool::Grub(_) => "$(find /etc/default/grub* -type f)",
        Tool::RaspberryPi(file) => file,
        Tool::UpdateExtlinux => "/etc/update-extlinux.conf",
        Tool::UBootMenu => "/etc/default/u-boot",
        Tool::Extlinux => "/boot/extlinux/extlinux.conf",
        Tool::KernelInstall => KERNEL_INSTALL_LINE,
        Tool::Entries(directory) => return edit_files(expressions, &format!("{directory}/*.conf")),
        Tool::PerformanceProfile | Tool::RpmOstree | Tool::Grubby | Tool::Yocto => {
            return String::new();
        }
    };
    edit_files(expressions, files)
}

fn edit_files(expressions: &[String], files: &str) -> String {
    match expressions {
        [] => String::new(),
        [only] => format!("sed -i -E '{only}' {files}"),
        several => format!("sed -i -E -e '{}' {files}", several.join("' -e '")),
    }
}

/// Returns the command that removes a parameter with this name, whatever its value, from the command
/// line of the next boots; without a known boot loader, the change in words.
#[must_use]
pub fn remove_parameter(machine: &Machine, name: &str) -> String {
    remove(&machine.operating_system, name)
}

pub(super) fn remove(system: &OperatingSystem, name: &str) -> String {
    let Some(tool) = tool(system) else {
        return format!("remove {name}= from the kernel command line");
    };
    let then = match tool {
        Tool::PerformanceProfile => {
            return format!(
                "oc edit performanceprofile, and remove {name} from spec.additionalKernelArgs"
            );
        }
        Tool::RpmOstree => return format!("rpm-ostree kargs --delete={name}"),
        Tool::Grubby => return format!("grubby --update-kernel=ALL --remove-args=\"{name}\""),
        Tool::Yocto => {
            return format!(
                "remove {name} from APPEND in the image's configuration and build the image again"
            );
        }
        Tool::Grub(generate) => Some(generate),
        Tool::UpdateExtlinux => Some("update-extlinux"),
        Tool::UBootMenu => Some("u-boot-update"),
        Tool::KernelInstall => Some("kernel-install add-all"),
        Tool::RaspberryPi(_) | Tool::Extlinux | Tool::Entries(_) => None,
    };
    let edit = edit(tool, &[removal(tool, &[name])]);
    match then {
        Some(then) => format!("{edit} && {then}"),
        None => edit,
    }
}
