// SPDX-License-Identifier: Apache-2.0 OR MIT
//! GRUB with `grub-mkconfig`, which writes `grub.cfg` from shell scripts (GRUB manual, "Simple
//! configuration handling").
//!
//! Debian and what comes from it read every `*.cfg` of `/etc/default/grub.d` after
//! `/etc/default/grub`, so that a file of ours is enough. Elsewhere the same lines stand at the end
//! of `/etc/default/grub`, which is read by the same shell. The arguments go to
//! `GRUB_CMDLINE_LINUX_DEFAULT`, which the entries for recovery do without.

use std::path::{Path, PathBuf};

use super::tree::BootTree;
use super::{BootCommand, BootFileChange, BootLoader, shell};
use crate::HostError;

const DEFAULTS: &str = "/etc/default/grub";
/// The last in alphabetical order, so that what other files append is there already.
const DROP_IN: &str = "/etc/default/grub.d/zz-rampart.cfg";
const VARIABLES: &[&str] = &["GRUB_CMDLINE_LINUX", "GRUB_CMDLINE_LINUX_DEFAULT"];

/// Where `grub-mkconfig` may have written, with the commands that write there again.
const CONFIGURATIONS: &[(&str, &[&[&str]])] = &[
    (
        "/boot/grub/grub.cfg",
        &[
            &["/usr/sbin/update-grub"],
            &["/usr/sbin/grub-mkconfig", "-o", "/boot/grub/grub.cfg"],
            &["/usr/bin/grub-mkconfig", "-o", "/boot/grub/grub.cfg"],
        ],
    ),
    (
        "/boot/grub2/grub.cfg",
        &[
            &["/usr/sbin/grub2-mkconfig", "-o", "/boot/grub2/grub.cfg"],
            &["/usr/bin/grub2-mkconfig", "-o", "/boot/grub2/grub.cfg"],
        ],
    ),
];

/// The GRUB of this machine, if it has one that takes its entries from scripts or drop-ins.
pub(super) fn find(tree: &dyn BootTree) -> Option<BootLoader> {
    let (configuration, commands) = CONFIGURATIONS
        .iter()
        .find(|(configuration, _)| tree.exists(Path::new(configuration)))?;
    let defaults = tree.text(Path::new(DEFAULTS)).ok().flatten();
    let defaults = defaults.unwrap_or_default();
    let has_entries = super::entries::files(tree, Path::new("/boot"))
        .next()
        .is_some();
    // Fedora's GRUB reads the entries themselves (Fedora, "BootLoaderSpecByDefault").
    let reads_entries = defaults
        .lines()
        .rev()
        .find_map(|line| line.trim().strip_prefix("GRUB_ENABLE_BLSCFG="))
        .map_or(configuration.contains("grub2"), |value| {
            value.trim_matches(['"', '\'']) == "true"
        });
    if has_entries && reads_entries {
        return Some(BootLoader::GrubEntries);
    }
    let command = commands.iter().find(|words| {
        words
            .first()
            .is_some_and(|program| tree.exists(Path::new(program)))
    })?;
    Some(BootLoader::Grub {
        configuration: PathBuf::from(configuration),
        command: command.iter().map(|word| (*word).to_owned()).collect(),
    })
}

/// What has to be written.
pub(super) fn change(
    tree: &dyn BootTree,
    wanted: &[String],
) -> Result<Vec<BootFileChange>, HostError> {
    let script = shell::appending(VARIABLES, wanted, quoted);
    if tree.exists(Path::new("/etc/default/grub.d"))
        || tree.exists(Path::new("/usr/sbin/update-grub"))
    {
        let path = PathBuf::from(DROP_IN);
        let old = tree.text(&path)?;
        return Ok(vec![BootFileChange {
            path,
            old,
            new: script,
        }]);
    }
    let path = PathBuf::from(DEFAULTS);
    let old = tree.text(&path)?;
    let text = old.clone().unwrap_or_default();
    // Ours is the end of the file.
    let theirs = text.split(shell::HEAD).next().unwrap_or_default();
    let line_feed = if theirs.is_empty() || theirs.ends_with('\n') {
        ""
    } else {
        "\n"
    };
    let new = format!("{theirs}{line_feed}{script}");
    Ok(vec![BootFileChange { path, old, new }])
}

/// What writes `grub.cfg` again.
pub(super) fn command(configuration: &Path, command: &[String]) -> BootCommand {
    BootCommand {
        words: command.to_vec(),
        output: configuration.to_owned(),
    }
}

/// An argument as GRUB's own script language needs it, which `grub.cfg` is written in: what has a
/// meaning there goes between single quotes, and GRUB hands it on between double ones where it holds
/// a space.
fn quoted(word: &str) -> String {
    let plain =
        |character: char| character.is_ascii_alphanumeric() || "_-=.,:/+@%^~*".contains(character);
    if word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('"', ""))
}

/// The kernel command lines of a `grub.cfg`, those for recovery left out.
pub(super) fn lines(configuration: &str) -> Vec<String> {
    configuration
        .lines()
        .filter_map(|line| {
            let (command, rest) = line.trim().split_once(char::is_whitespace)?;
            // After the command comes the kernel.
            let (_, rest) = rest.trim().split_once(char::is_whitespace)?;
            let is_kernel = matches!(command, "linux" | "linux16" | "linuxefi");
            (is_kernel && !super::is_recovery(rest)).then(|| rest.to_owned())
        })
        .collect()
}
