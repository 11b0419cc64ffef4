// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Entries of the Boot Loader Specification, type 1: one file for each kernel in `loader/entries`,
//! which systemd-boot and Fedora's GRUB read at boot.
//!
//! Changes the `options` lines of the existing entries, and `/etc/kernel/cmdline`, from which
//! `kernel-install` takes the line of the next kernel. An entry of Rampart would stay with one kernel
//! after an update, and making it the default would conflict with `bootctl`.

use std::path::{Path, PathBuf};

use super::arguments;
use super::tree::BootTree;
use super::{BootFileChange, BootLoader};
use crate::HostError;

/// Mount points that the specification allows for the partition with the entries.
const PARTITIONS: &[&str] = &["/efi", "/boot/efi", "/boot"];
const NEXT_KERNELS: &str = "/etc/kernel/cmdline";
const ENVIRONMENT: &str = "/boot/grub2/grubenv";

/// Returns the entries of a partition.
pub(super) fn files(tree: &dyn BootTree, partition: &Path) -> impl Iterator<Item = PathBuf> {
    let directory = partition.join("loader/entries");
    let names = tree.names(&directory);
    names
        .into_iter()
        .filter(|name| name.ends_with(".conf"))
        .map(move |name| directory.join(name))
}

/// Returns systemd-boot if this machine has it.
pub(super) fn find(tree: &dyn BootTree) -> Option<BootLoader> {
    PARTITIONS
        .iter()
        .map(PathBuf::from)
        .find(|partition| {
            tree.exists(&partition.join("loader/loader.conf"))
                || tree.exists(&partition.join("EFI/systemd"))
        })
        .map(|partition| BootLoader::SystemdBoot { partition })
}

/// Returns the changes of all entries and of `/etc/kernel/cmdline`.
pub(super) fn change(
    tree: &dyn BootTree,
    partition: &Path,
    wanted: &[String],
) -> Result<Vec<BootFileChange>, HostError> {
    let mut changes = Vec::new();
    let mut entries = 0;
    for path in files(tree, partition) {
        let Some(old) = tree.text(&path)? else {
            continue;
        };
        if is_rescue(&path, &old) || !is_linux(&old) {
            continue;
        }
        entries += 1;
        let environment = match old.contains("$kernelopts") {
            true => tree.text(Path::new(ENVIRONMENT))?.unwrap_or_default(),
            false => String::new(),
        };
        let new = changed_entry(&old, &environment, wanted);
        changes.push(BootFileChange {
            path,
            old: Some(old),
            new,
        });
    }
    if entries == 0 {
        return Err(HostError::Request {
            location: partition.join("loader/entries").display().to_string(),
            what: "no entry of a Linux kernel can be changed".to_owned(),
            found: "none".to_owned(),
            expected: "an entry with a line `options`".to_owned(),
            fix: format!(
                "add `{}` to {NEXT_KERNELS} and run `kernel-install add` for the kernel, which \
                 builds its unified image again",
                wanted.join(" ")
            ),
        });
    }
    changes.extend(change_next_kernels(tree, wanted)?);
    Ok(changes)
}

/// Returns the change of the line for later kernels, if the machine has one. All lines of the file are
/// one, as for `kernel-install` and `u-boot-update` (kernel-install(8)).
pub(super) fn change_next_kernels(
    tree: &dyn BootTree,
    wanted: &[String],
) -> Result<Option<BootFileChange>, HostError> {
    let path = PathBuf::from(NEXT_KERNELS);
    let Some(old) = tree.text(&path)? else {
        return Ok(None);
    };
    let new = match arguments::has_all(&old, wanted) {
        true => old.clone(),
        false => format!("{}\n", arguments::merged(&old, wanted)),
    };
    Ok(Some(BootFileChange {
        path,
        old: Some(old),
        new,
    }))
}

/// Returns an entry with its `options` lines merged into one with the arguments, in which GRUB's
/// variable `kernelopts` is replaced by its value.
fn changed_entry(entry: &str, environment: &str, wanted: &[String]) -> String {
    let options = |line: &str| {
        let (key, value) = line.trim().split_once(char::is_whitespace)?;
        (key == "options").then(|| value.trim().to_owned())
    };
    let mut present = entry
        .lines()
        .filter_map(options)
        .collect::<Vec<_>>()
        .join(" ");
    let kept = environment
        .lines()
        .find_map(|line| line.strip_prefix("kernelopts="));
    if let Some(kept) = kept
        && !arguments::has_all(&present, wanted)
    {
        present = present.replace("$kernelopts", kept.trim());
    }
    if arguments::has_all(&present, wanted) {
        return entry.to_owned();
    }
    let merged = format!("options {}", arguments::merged(&present, wanted));
    let mut lines: Vec<String> = Vec::new();
    let mut is_written = false;
    for line in entry.lines() {
        if options(line).is_none() && line.trim() != "options" {
            lines.push(line.to_owned());
        } else if !std::mem::replace(&mut is_written, true) {
            lines.push(merged.clone());
        }
    }
    if !is_written {
        lines.push(merged);
    }
    lines.join("\n") + "\n"
}

fn is_linux(entry: &str) -> bool {
    entry
        .lines()
        .any(|line| line.split_whitespace().next() == Some("linux"))
}

fn is_rescue(path: &Path, entry: &str) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.contains("rescue")
        || entry.lines().any(|line| {
            let line = line.trim();
            line.starts_with("options") && super::is_recovery(line)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted() -> Vec<String> {
        vec!["isolcpus=2-3".to_owned(), "nosmt".to_owned()]
    }

    #[test]
    fn merges_options_lines() {
        let entry =
            "title X\nlinux /vmlinuz\noptions root=/dev/sda2\noptions isolcpus=1 ro\ninitrd /i\n";
        assert_eq!(
            changed_entry(entry, "", &wanted()),
            "title X\nlinux /vmlinuz\noptions root=/dev/sda2 ro isolcpus=2-3 nosmt\ninitrd /i\n"
        );
        let entry = "linux /vmlinuz";
        assert_eq!(
            changed_entry(entry, "", &wanted()),
            "linux /vmlinuz\noptions isolcpus=2-3 nosmt\n"
        );
    }

    #[test]
    fn replaces_the_variable_of_the_environment() {
        let entry = "linux /vmlinuz\noptions $kernelopts $tuned_params\n";
        let environment = "# GRUB Environment Block\nkernelopts=root=/dev/x isolcpus=9 ro \n####";
        assert_eq!(
            changed_entry(entry, environment, &wanted()),
            "linux /vmlinuz\noptions root=/dev/x ro $tuned_params isolcpus=2-3 nosmt\n"
        );
    }

    #[test]
    fn keeps_an_entry_that_has_the_arguments() {
        let entry = "linux /vmlinuz\noptions   nosmt isolcpus=2-3 ro";
        assert_eq!(changed_entry(entry, "", &wanted()), entry);
    }
}
