// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The boot loader of a machine: which it is, and what must be written so that it starts the
//! kernel with other arguments.
//!
//! [`plan_boot`] is a function of the machine's files and the arguments; [`crate::prepare_restart`]
//! makes the changes, each with the old text on disk before, in a journal that outlives the restart.

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

/// What starts the kernel of a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum BootLoader {
    /// GRUB, whose configuration `grub-mkconfig` makes from scripts.
    Grub {
        /// What it makes.
        configuration: PathBuf,
        /// How it is called.
        command: Vec<String>,
    },
    /// GRUB that reads the entries of the Boot Loader Specification.
    GrubEntries,
    /// systemd-boot.
    SystemdBoot {
        /// Where the partition with the entries is mounted.
        partition: PathBuf,
    },
    /// U-Boot or extlinux, with a configuration that `u-boot-update` makes.
    UBootMenu {
        /// What it makes.
        configuration: PathBuf,
    },
    /// U-Boot or extlinux, with a configuration that a person keeps.
    Extlinux {
        /// That file.
        configuration: PathBuf,
    },
    /// The firmware of a Raspberry Pi.
    RaspberryPi {
        /// The file with the line.
        line: PathBuf,
    },
}

/// A file that gets another text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BootFileChange {
    /// The file.
    pub path: PathBuf,
    /// What is there; none: it is not there.
    pub old: Option<String>,
    /// What shall be there.
    pub new: String,
}

/// A program that makes the boot loader's configuration from other files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BootCommand {
    /// The program, by its absolute path, and its arguments.
    pub words: Vec<String>,
    /// What it makes.
    pub output: PathBuf,
}

/// What starting the kernel with some arguments takes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BootPlan {
    /// Who starts it.
    pub loader: BootLoader,
    /// The arguments.
    pub arguments: Vec<String>,
    /// The files that have to be changed; none where the next start has the arguments already.
    pub files: Vec<BootFileChange>,
    /// What has to be run after that.
    pub command: Option<BootCommand>,
}

impl BootPlan {
    /// Whether the next start has the arguments already.
    #[must_use]
    pub fn is_as_wanted(&self) -> bool {
        self.files.is_empty() && self.command.is_none()
    }
}

/// What has to be written on a machine so that its kernel is started with `arguments`, for example
/// `isolcpus=domain,2-3`. Other values of the same parameters are replaced. Nothing is changed.
///
/// # Errors
/// [`HostError::Request`] where there is no boot loader that is known, or an argument is none;
/// [`HostError::File`] where a file cannot be read.
pub fn plan_boot(root: &MachineRoot, arguments: &[String]) -> Result<BootPlan, HostError> {
    plan(root, arguments)
}

/// The variable by which a boot loader tells the system its name (systemd, "The Boot Loader
/// Interface").
const LOADER_INFO: &str =
    "/sys/firmware/efi/efivars/LoaderInfo-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f";

/// Who starts the kernel. Files of several may be there: what the firmware's variable names comes
/// first, then those that a machine has only when it is started by them.
fn find(tree: &dyn BootTree) -> Option<BootLoader> {
    let told = tree.text(Path::new(LOADER_INFO)).ok().flatten();
    let told = told.unwrap_or_default().replace('\0', "");
    if told.contains("systemd-boot")
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
        what: "no boot loader that Rampart can write to was found".to_owned(),
        present: "none".to_owned(),
        needed: "GRUB, systemd-boot, extlinux, u-boot-menu or a Raspberry Pi".to_owned(),
        fix: format!(
            "start the kernel with `{}` by the means of this machine, then `rampart apply` again",
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
        .is_some_and(|command| is_made_as_wanted(tree, &command.output, &changes, wanted));
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

/// Whether the next start has the arguments by what a program made.
fn is_made_as_wanted(
    tree: &dyn BootTree,
    output: &Path,
    changes: &[BootFileChange],
    wanted: &[String],
) -> bool {
    let is_written = |change: &BootFileChange| change.old.as_ref() == Some(&change.new);
    if changes.iter().all(is_written) {
        return is_made(tree, output, wanted);
    }
    // Another may have given them by its own means, to the entry that starts by itself; what Rampart
    // wrote before is renewed.
    let is_ours = |change: &BootFileChange| {
        let old = change.old.as_deref().unwrap_or_default();
        old.contains(shell::HEAD) && !is_written(change)
    };
    let lines = made_lines(tree, output);
    let first = lines.first();
    !changes.iter().any(is_ours) && first.is_some_and(|line| arguments::holds(line, wanted))
}

/// Whether what Rampart wrote reached an entry that a program made: the first may be another
/// system's.
fn is_made(tree: &dyn BootTree, output: &Path, wanted: &[String]) -> bool {
    let lines = made_lines(tree, output);
    lines.iter().any(|line| arguments::holds(line, wanted))
}

/// The kernel command lines that a program made, those for recovery left out.
fn made_lines(tree: &dyn BootTree, output: &Path) -> Vec<String> {
    let text = tree.text(output).ok().flatten().unwrap_or_default();
    match output.ends_with("extlinux.conf") {
        true => extlinux::lines(&text),
        false => grub::lines(&text),
    }
}

/// Whether a kernel command line is for fixing the system, and so stays as it is.
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
