// SPDX-License-Identifier: Apache-2.0 OR MIT
//! GRUB with `grub-mkconfig`, which generates `grub.cfg` from shell scripts (GRUB manual, "Simple
//! configuration handling").
//!
//! Debian and its derivatives read every `*.cfg` of `/etc/default/grub.d` after `/etc/default/grub`,
//! so Rampart writes its own file there. On other distributions it appends the same lines to
//! `/etc/default/grub`, which the same shell reads. The arguments are added to
//! `GRUB_CMDLINE_LINUX_DEFAULT`, which entries for recovery do not use.

use std::path::{Path, PathBuf};

use super::tree::BootTree;
use super::{BootCommand, BootFileChange, BootLoader, shell};
use crate::HostError;

const DEFAULTS: &str = "/etc/default/grub";
/// The last in alphabetical order, so that it is read after the other files.
const DROP_IN: &str = "/etc/default/grub.d/zz-rampart.cfg";
const VARIABLES: &[&str] = &["GRUB_CMDLINE_LINUX", "GRUB_CMDLINE_LINUX_DEFAULT"];

/// Possible outputs of `grub-mkconfig`, with the commands that generate each.
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

/// Returns the GRUB of this machine, if it generates its entries or reads entry files.
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

/// Returns the change of the drop-in file or of `/etc/default/grub`.
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
    // Rampart's lines are the end of the file.
    let before = text.split(shell::HEAD).next().unwrap_or_default();
    let line_feed = if before.is_empty() || before.ends_with('\n') {
        ""
    } else {
        "\n"
    };
    let new = format!("{before}{line_feed}{script}");
    Ok(vec![BootFileChange { path, old, new }])
}

/// Returns the command that generates `grub.cfg`.
pub(super) fn command(configuration: &Path, command: &[String]) -> BootCommand {
    BootCommand {
        words: command.to_vec(),
        output: configuration.to_owned(),
    }
}

/// Quotes an argument for the script language of `grub.cfg`: with single quotes if it has special
/// characters. GRUB passes it on in double quotes if it contains a space.
fn quoted(word: &str) -> String {
    let plain =
        |character: char| character.is_ascii_alphanumeric() || "_-=.,:/+@%^~*".contains(character);
    if word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('"', ""))
}

/// Returns the kernel command lines of a `grub.cfg`, except those for recovery.
pub(super) fn lines(configuration: &str) -> Vec<String> {
    configuration
        .lines()
        .filter_map(|line| {
            let (command, rest) = line.trim().split_once(char::is_whitespace)?;
            // The word after the command is the kernel.
            let (_, rest) = rest.trim().split_once(char::is_whitespace)?;
            let is_kernel = matches!(command, "linux" | "linux16" | "linuxefi");
            (is_kernel && !super::is_recovery(rest)).then(|| rest.to_owned())
        })
        .collect()
}
