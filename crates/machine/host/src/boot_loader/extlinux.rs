// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `extlinux.conf`, which U-Boot and extlinux read: written by a person, or by Debian's
//! `u-boot-update` from shell scripts (package u-boot-menu). And the line of a Raspberry Pi.

use std::path::{Path, PathBuf};

use super::arguments;
use super::tree::BootTree;
use super::{BootCommand, BootFileChange, BootLoader, entries, shell};
use crate::HostError;

const CONFIGURATIONS: &[&str] = &["/boot/extlinux/extlinux.conf", "/extlinux/extlinux.conf"];
const UPDATE: &str = "/usr/sbin/u-boot-update";
const MENU_DEFAULTS: &str = "/etc/default/u-boot";
const MENU_DROP_INS: &[&str] = &["/usr/share/u-boot-menu/conf.d", "/etc/u-boot-menu/conf.d"];
const MENU_DROP_IN: &str = "/etc/u-boot-menu/conf.d/zz-rampart.conf";
const RASPBERRY_PI: &[&str] = &["/boot/firmware", "/boot"];

/// The loader that reads an `extlinux.conf` of this machine.
pub(super) fn find(tree: &dyn BootTree) -> Option<BootLoader> {
    let configuration = CONFIGURATIONS
        .iter()
        .map(PathBuf::from)
        .find(|path| tree.exists(path))?;
    if tree.exists(Path::new(UPDATE)) && is_made_by_menu(tree, &configuration) {
        return Some(BootLoader::UBootMenu { configuration });
    }
    Some(BootLoader::Extlinux { configuration })
}

/// The configuration says who made it in its first lines.
fn is_made_by_menu(tree: &dyn BootTree, configuration: &Path) -> bool {
    let text = tree.text(configuration).ok().flatten().unwrap_or_default();
    text.lines()
        .filter(|line| line.trim().starts_with('#'))
        .any(|line| line.contains("u-boot-update") || line.contains("u-boot-menu"))
}

/// A Raspberry Pi, whose firmware reads `cmdline.txt` beside `config.txt`.
pub(super) fn find_raspberry_pi(tree: &dyn BootTree) -> Option<BootLoader> {
    RASPBERRY_PI
        .iter()
        .map(Path::new)
        .find(|location| {
            tree.exists(&location.join("config.txt")) && tree.exists(&location.join("cmdline.txt"))
        })
        .map(|location| BootLoader::RaspberryPi {
            line: location.join("cmdline.txt"),
        })
}

/// What has to be written to the line of a Raspberry Pi, whose firmware reads the first line alone.
pub(super) fn change_raspberry_pi(
    tree: &dyn BootTree,
    path: &Path,
    wanted: &[String],
) -> Result<Vec<BootFileChange>, HostError> {
    let Some(old) = tree.text(path)? else {
        return Ok(Vec::new());
    };
    let (line, rest) = old.split_once('\n').unwrap_or((&old, ""));
    let new = match arguments::holds(line, wanted) {
        true => old.clone(),
        false => format!("{}\n{rest}", arguments::merged(line, wanted)),
    };
    Ok(vec![BootFileChange {
        path: path.to_owned(),
        old: Some(old),
        new,
    }])
}

/// What has to be written where `u-boot-update` makes the configuration.
pub(super) fn change_menu(
    tree: &dyn BootTree,
    wanted: &[String],
) -> Result<Vec<BootFileChange>, HostError> {
    // With a line for all kernels and no setting of its own, it takes that line.
    if !sets_parameters(tree)?
        && let Some(change) = entries::change_next_kernels(tree, wanted)?
    {
        return Ok(vec![change]);
    }
    let path = PathBuf::from(MENU_DROP_IN);
    let old = tree.text(&path)?;
    // Its own default would no longer be taken once the setting is there.
    let new = format!(
        "{}U_BOOT_PARAMETERS=\"${{U_BOOT_PARAMETERS:-ro quiet}}\"\n{}",
        shell::HEAD,
        shell::appending(&["U_BOOT_PARAMETERS"], wanted, str::to_owned)
            .trim_start_matches(shell::HEAD)
    );
    Ok(vec![BootFileChange { path, old, new }])
}

/// What makes the configuration again.
pub(super) fn menu_command(configuration: &Path) -> BootCommand {
    BootCommand {
        words: vec![UPDATE.to_owned()],
        output: configuration.to_owned(),
    }
}

fn sets_parameters(tree: &dyn BootTree) -> Result<bool, HostError> {
    let drop_ins = MENU_DROP_INS.iter().flat_map(|directory| {
        let names = tree.names(Path::new(directory));
        names
            .into_iter()
            .map(|name| Path::new(directory).join(name))
    });
    for path in std::iter::once(PathBuf::from(MENU_DEFAULTS)).chain(drop_ins) {
        if path == Path::new(MENU_DROP_IN) {
            continue;
        }
        let text = tree.text(&path)?.unwrap_or_default();
        let value = text
            .lines()
            .filter_map(|line| line.trim().strip_prefix("U_BOOT_PARAMETERS="))
            .any(|value| !value.trim_matches(['"', '\'']).is_empty());
        if value {
            return Ok(true);
        }
    }
    Ok(false)
}

/// What has to be written to a configuration that a person keeps: the `append` line of every entry
/// but those for recovery.
pub(super) fn change(
    tree: &dyn BootTree,
    path: &Path,
    wanted: &[String],
) -> Result<Vec<BootFileChange>, HostError> {
    let old = tree.text(path)?.unwrap_or_default();
    let new = changed(&old, wanted);
    if lines(&new).is_empty() {
        return Err(HostError::Request {
            location: path.display().to_string(),
            what: "there is no entry of a Linux kernel".to_owned(),
            present: "none".to_owned(),
            needed: "a `label` with `linux` or `kernel`".to_owned(),
            fix: format!(
                "add `{}` to the machine's kernel command line",
                wanted.join(" ")
            ),
        });
    }
    Ok(vec![BootFileChange {
        path: path.to_owned(),
        old: Some(old),
        new,
    }])
}

/// A line's key in small letters, and its value.
fn key_of(line: &str) -> (String, &str) {
    let line = line.trim();
    let (key, value) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    (key.to_ascii_lowercase(), value.trim())
}

fn changed(old: &str, wanted: &[String]) -> String {
    let all: Vec<&str> = old.split_inclusive('\n').collect();
    // A part begins with each label; what is before the first counts for entries without a line.
    let starts: Vec<usize> = (0..all.len())
        .filter(|index| {
            all.get(*index)
                .is_some_and(|line| key_of(line).0 == "label")
        })
        .collect();
    let first = starts.first().copied().unwrap_or(all.len());
    let head = all.get(..first).unwrap_or_default();
    let common = head
        .iter()
        .map(|line| key_of(line))
        .find(|(key, _)| key == "append");
    let mut text: String = head
        .iter()
        .map(|line| with_arguments(line, wanted))
        .collect();
    for (index, start) in starts.iter().enumerate() {
        let end = starts.get(index + 1).copied().unwrap_or(all.len());
        let part = all.get(*start..end).unwrap_or_default();
        let has = |name: &str| part.iter().any(|line| key_of(line).0 == name);
        let is_kernel = has("linux") || has("kernel");
        let is_recovery = part.iter().any(|line| {
            let (key, value) = key_of(line);
            key == "append" && super::is_recovery(value)
        });
        for line in part {
            if is_recovery {
                text.push_str(line);
                continue;
            }
            text.push_str(&with_arguments(line, wanted));
            let (key, _) = key_of(line);
            if is_kernel
                && !has("append")
                && common.is_none()
                && (key == "linux" || key == "kernel")
            {
                if !line.ends_with('\n') {
                    text.push('\n');
                }
                let space: String = line.chars().take_while(|c| c.is_whitespace()).collect();
                text.push_str(&format!("{space}append {}\n", wanted.join(" ")));
            }
        }
    }
    text
}

/// An `append` line with the arguments; any other line as it is.
fn with_arguments(line: &str, wanted: &[String]) -> String {
    let (key, value) = key_of(line);
    if key != "append" || arguments::holds(value, wanted) {
        return line.to_owned();
    }
    // The key and the space before and after it stay as they are.
    let before = line.len() - line.trim_start().len() + key.len();
    let (start, rest) = line.split_at_checked(before).unwrap_or((line, ""));
    let space: String = rest
        .chars()
        .take_while(|c| *c == ' ' || *c == '\t')
        .collect();
    let space = if space.is_empty() {
        " ".to_owned()
    } else {
        space
    };
    let end = if line.ends_with('\n') { "\n" } else { "" };
    format!("{start}{space}{}{end}", arguments::merged(value, wanted))
}

/// The kernel command lines of an `extlinux.conf`, those for recovery left out.
pub(super) fn lines(configuration: &str) -> Vec<String> {
    configuration
        .lines()
        .filter_map(|line| {
            let (key, value) = key_of(line);
            (key == "append" && !super::is_recovery(value)).then(|| value.to_owned())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_get_them_and_those_for_recovery_do_not() {
        let wanted = ["isolcpus=2-3".to_owned()];
        let old = "default a\n\nlabel a\n\tlinux /vmlinuz\n\tAPPEND  root=/x isolcpus=1\n\
                   label r\n\tlinux /vmlinuz\n\tappend root=/x single\nlabel b\n  kernel /other";
        assert_eq!(
            changed(old, &wanted),
            "default a\n\nlabel a\n\tlinux /vmlinuz\n\tAPPEND  root=/x isolcpus=2-3\n\
             label r\n\tlinux /vmlinuz\n\tappend root=/x single\nlabel b\n  kernel /other\n  append isolcpus=2-3\n"
        );
    }

    #[test]
    fn a_line_for_all_entries_is_enough() {
        let wanted = ["nosmt".to_owned()];
        let old = "append root=/x\nlabel a\n kernel /vmlinuz\n";
        assert_eq!(
            changed(old, &wanted),
            "append root=/x nosmt\nlabel a\n kernel /vmlinuz\n"
        );
    }
}
