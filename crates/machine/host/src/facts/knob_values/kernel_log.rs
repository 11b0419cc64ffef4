// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads the kernel log (Documentation/ABI/testing/dev-kmsg, dmesg(1)).

use std::fs::OpenOptions;
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;

use crate::MachineRoot;

/// The log as one record a line, and the device of the running machine.
const DEVICE: &str = "dev/kmsg";
/// Files of recorded machines: of dmesg(1), and of syslog, which keeps the messages of several boots.
const RECORDED: [&str; 3] = ["var/log/dmesg", "var/log/kern.log", DEVICE];
/// The first message of a boot (init/version-timestamp.c).
const FIRST: &str = "Linux version ";
/// Longest record that the kernel returns (`PRINTK_MESSAGE_MAX`), and one more.
const RECORD: usize = 1 << 14;
/// Limit of messages, the newest of which are kept.
const MOST: usize = 1 << 16;

/// Returns the messages since the machine started, or `None` if they cannot be read.
pub(super) fn read(root: &MachineRoot) -> Option<Vec<String>> {
    if root.is_system() {
        return running(root);
    }
    let text = RECORDED.iter().find_map(|file| root.text(file))?;
    let mut messages: Vec<String> = text.lines().map(message).collect();
    if let Some(first) = messages.iter().rposition(|one| one.contains(FIRST)) {
        messages.drain(..first);
    }
    Some(messages)
}

/// Reads the device, which returns a record for each read, and `EAGAIN` after the last one.
fn running(root: &MachineRoot) -> Option<Vec<String>> {
    let nonblocking = rustix::fs::OFlags::NONBLOCK.bits();
    let mut device = OpenOptions::new()
        .read(true)
        .custom_flags(i32::try_from(nonblocking).ok()?)
        .open(root.path(DEVICE))
        .ok()?;
    let mut record = vec![0; RECORD];
    let mut messages = std::collections::VecDeque::new();
    // Messages that arrive meanwhile must not keep this loop up.
    for _ in 0..2 * MOST {
        match device.read(&mut record) {
            Ok(0) => break,
            Ok(length) => {
                let text = String::from_utf8_lossy(record.get(..length)?).into_owned();
                if messages.len() == MOST {
                    messages.pop_front();
                }
                messages.push_back(message(text.lines().next().unwrap_or_default()));
            }
            // Older records were overwritten, or a signal arrived: the next read goes on.
            Err(error)
                if matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::Interrupted) => {}
            Err(_) => break,
        }
    }
    Some(messages.into())
}

/// Returns a message with its time as dmesg(1) prints it: a record of the device has the form
/// `priority,number,microseconds,flags;text`.
fn message(line: &str) -> String {
    let record = || {
        let (fields, text) = line.split_once(';')?;
        let micros: u64 = fields.split(',').nth(2)?.parse().ok()?;
        Some(format!(
            "[{}.{:06}] {text}",
            micros / 1_000_000,
            micros % 1_000_000
        ))
    };
    record().unwrap_or_else(|| line.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_records_and_lines() {
        for (line, expected) in [
            (
                "4,1234,98765432,-;sched: RT throttling activated",
                "[98.765432] sched: RT throttling activated",
            ),
            ("[   98.765432] tsc: a; b", "[   98.765432] tsc: a; b"),
            ("kernel: x; y", "kernel: x; y"),
            ("", ""),
        ] {
            assert_eq!(message(line), expected);
        }
    }

    #[test]
    fn only_messages_of_the_last_boot_count() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("var/log/kern.log");
        std::fs::create_dir_all(file.parent().expect("a parent")).expect("directories");
        let text = "a kernel: Linux version 6.1\na kernel: old\nb kernel: Linux version 6.12\nb kernel: new\n";
        std::fs::write(&file, text).expect("a file");
        let messages = read(&MachineRoot::at(directory.path())).expect("messages");
        assert_eq!(messages, ["b kernel: Linux version 6.12", "b kernel: new"]);
        std::fs::remove_file(&file).expect("removed");
        assert_eq!(read(&MachineRoot::at(directory.path())), None);
    }
}
