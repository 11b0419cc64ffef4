// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Finds the boot loader of a machine, and changes its files so that it starts the kernel with other
//! arguments.
//!
//! [`plan_boot`] only reads the machine's files; [`crate::prepare_restart`] makes the changes, with the
//! old texts in a journal that outlives the restart.

mod arguments;
mod entries;
mod extlinux;
mod grub;
mod prepare;
mod shell;
#[cfg(test)]
mod tests;
mod tree;
pub(crate) mod undo;

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::{HostError, MachineRoot};
use tree::BootTree;

pub use prepare::BootReport;
pub(crate) use prepare::prepare;

/// The boot loader of a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum BootLoader {
    /// GRUB with a configuration that `grub-mkconfig` generates from scripts.
    Grub {
        /// The generated file.
        configuration: PathBuf,
        /// The command that generates it.
        command: Vec<String>,
    },
    /// GRUB that reads the entries of the Boot Loader Specification.
    GrubEntries,
    /// systemd-boot.
    SystemdBoot {
        /// Mount point of the partition with the entries.
        partition: PathBuf,
    },
    /// U-Boot or extlinux, with a configuration that `u-boot-update` generates.
    UBootMenu {
        /// The generated file.
        configuration: PathBuf,
    },
    /// U-Boot or extlinux, with a configuration that the administrator maintains.
    Extlinux {
        /// The configuration.
        configuration: PathBuf,
    },
    /// The firmware of a Raspberry Pi.
    RaspberryPi {
        /// The file with the kernel command line.
        line: PathBuf,
    },
}

/// The change of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BootFileChange {
    /// The file.
    pub path: PathBuf,
    /// Its text; `None` if it does not exist.
    pub old: Option<String>,
    /// Its new text.
    pub new: String,
}

/// A program that generates the boot loader's configuration from other files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BootCommand {
    /// The program, by its absolute path, and its arguments.
    pub words: Vec<String>,
    /// The generated file.
    pub output: PathBuf,
}

/// The changes that let the next boot start the kernel with some arguments.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BootPlan {
    /// The boot loader.
    pub loader: BootLoader,
    /// The arguments.
    pub arguments: Vec<String>,
    /// The files to change; empty if the next boot has the arguments already.
    pub files: Vec<BootFileChange>,
    /// The command to run after that.
    pub command: Option<BootCommand>,
}

impl BootPlan {
    /// Returns whether the next boot has the arguments already.
    #[must_use]
    pub fn is_as_wanted(&self) -> bool {
        self.files.is_empty() && self.command.is_none()
    }
}

/// Returns the changes to a machine's files that let its next boot start the kernel with `arguments`,
/// for example `isolcpus=domain,2-3`. They replace other values of the same parameters.
///
/// # Errors
/// [`HostError::Request`] if no known boot loader is found or an argument is invalid;
/// [`HostError::File`] if a file cannot be read.
pub fn plan_boot(root: &MachineRoot, arguments: &[String]) -> Result<BootPlan, HostError> {
    plan(root, arguments)
}

/// The EFI variable with the boot loader's name (systemd, "The Boot Loader Interface").
const LOADER_INFO: &str =
    "/sys/firmware/efi/efivars/LoaderInfo-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f";

/// Returns the machine's boot loader. With files of several, prefers the one in the EFI variable, then
/// those whose files exist only if they start the machine.
fn find(tree: &dyn BootTree) -> Option<BootLoader> {
    let info = tree.text(Path::new(LOADER_INFO)).ok().flatten();
    let info = info.unwrap_or_default().replace('\0', "");
    if info.contains("systemd-boot")
        && let Some(loader) = entries::find(tree)
    {
        return Some(loader);
    }
    extlinux::find_raspberry_pi(tree)
        .or_else(|| extlinux::find(tree))
        .or_else(|| grub::find(tree))
        .or_else(|| entries::find(tree))
}

fn plan(tree: &dyn BootTree, wanted: &[String]) -> Result<BootPlan, HostError> {
    arguments::check(wanted)?;
    let loader = find(tree).ok_or_else(|| HostError::Request {
        location: "the boot loader".to_owned(),
        what: "no boot loader that Rampart can configure was found".to_owned(),
        found: "none".to_owned(),
        expected: "GRUB, systemd-boot, extlinux, u-boot-menu or a Raspberry Pi".to_owned(),
        fix: format!(
            "add `{}` to this machine's kernel command line, restart it and run `rampart apply` again",
            wanted.join(" ")
        ),
    })?;
    let (changes, command) = match &loader {
        BootLoader::Grub {
            configuration,
            command,
        } => (
            grub::change(tree, wanted)?,
            Some(grub::command(configuration, command)),
        ),
        BootLoader::GrubEntries => (entries::change(tree, Path::new("/boot"), wanted)?, None),
        BootLoader::SystemdBoot { partition } => (entries::change(tree, partition, wanted)?, None),
        BootLoader::UBootMenu { configuration } => (
            extlinux::change_menu(tree, wanted)?,
            Some(extlinux::menu_command(configuration)),
        ),
        BootLoader::Extlinux { configuration } => {
            (extlinux::change(tree, configuration, wanted)?, None)
        }
        BootLoader::RaspberryPi { line } => {
            (extlinux::change_raspberry_pi(tree, line, wanted)?, None)
        }
    };
    let is_as_wanted = command
        .as_ref()
        .is_some_and(|command| is_generated_with(tree, &command.output, &changes, wanted));
    let (files, command) = match is_as_wanted {
        true => (Vec::new(), None),
        false => {
            let needed = changes.into_iter();
            let needed = needed.filter(|change| change.old.as_ref() != Some(&change.new));
            (needed.collect(), command)
        }
    };
    Ok(BootPlan {
        loader,
        arguments: wanted.to_vec(),
        files,
        command,
    })
}

/// Returns whether the next boot has the arguments by a generated configuration.
fn is_generated_with(
    tree: &dyn BootTree,
    output: &Path,
    changes: &[BootFileChange],
    wanted: &[String],
) -> bool {
    let is_written = |change: &BootFileChange| change.old.as_ref() == Some(&change.new);
    if changes.iter().all(is_written) {
        return any_entry_has(tree, output, wanted);
    }
    // The administrator may have added them to the default entry; files that Rampart wrote before
    // are replaced.
    let is_ours = |change: &BootFileChange| {
        let old = change.old.as_deref().unwrap_or_default();
        old.contains(shell::HEAD) && !is_written(change)
    };
    let lines = generated_lines(tree, output);
    let first = lines.first();
    !changes.iter().any(is_ours) && first.is_some_and(|line| arguments::has_all(line, wanted))
}

/// Returns whether a generated entry has the arguments; the first may be that of another system.
fn any_entry_has(tree: &dyn BootTree, output: &Path, wanted: &[String]) -> bool {
    let lines = generated_lines(tree, output);
    lines.iter().any(|line| arguments::has_all(line, wanted))
}

/// Returns the generated kernel command lines, except those for recovery.
fn generated_lines(tree: &dyn BootTree, output: &Path) -> Vec<String> {
    let text = tree.text(output).ok().flatten().unwrap_or_default();
    match output.ends_with("extlinux.conf") {
        true => extlinux::lines(&text),
        false => grub::lines(&text),
    }
}

/// Returns whether a kernel command line is for recovery, and so is not changed.
fn is_recovery(line: &str) -> bool {
    const WORDS: &[&str] = &["single", "recovery", "rescue", "emergency"];
    let mut words = line.split_whitespace();
    words.any(|word| {
        WORDS.contains(&word)
            || word
                .strip_prefix("systemd.unit=")
                .is_some_and(|unit| unit.starts_with("rescue") || unit.starts_with("emergency"))
    })
}
