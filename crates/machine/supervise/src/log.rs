// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The output of a domain's program: a log file and its predecessor, each bounded in size.
//!
//! The program writes to the file directly, not through its supervisor. It therefore continues when
//! the supervisor is killed and never waits for it. The file is opened for appending, so that the
//! program continues at the start of the file after a truncation.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

/// Size at which a log is rotated, in bytes; checked each second.
pub(crate) const LIMIT: u64 = 4 << 20;

/// Opens a log for appending.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

/// Returns the path of the rotated log.
pub(crate) fn previous(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".1");
    PathBuf::from(name)
}

/// Copies a log that has reached `limit` bytes to [`previous`] and truncates it. Output written
/// between the two steps is lost.
pub(crate) fn rotate(path: &Path, limit: u64) -> io::Result<bool> {
    if fs::metadata(path)?.len() < limit {
        return Ok(false);
    }
    fs::copy(path, previous(path))?;
    OpenOptions::new().write(true).open(path)?.set_len(0)?;
    Ok(true)
}

/// Returns the last lines of a log, for a message.
pub(crate) fn tail(path: &Path, lines: usize) -> Vec<String> {
    let text = fs::read(path).unwrap_or_default();
    let from = text.len().saturating_sub(8192);
    let text = String::from_utf8_lossy(text.get(from..).unwrap_or_default()).into_owned();
    let all: Vec<&str> = text.lines().collect();
    all.iter()
        .skip(all.len().saturating_sub(lines))
        .map(|line| (*line).to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn rotates_a_full_log_while_its_writer_continues() {
        let directory = tempfile::tempdir().expect("directory");
        let path = directory.path().join("press.log");
        let mut writer = open(&path).expect("open");
        writer.write_all(b"first line\n").expect("write");
        assert!(!rotate(&path, 100).expect("checked"), "it is short");
        assert!(rotate(&path, 11).expect("rotated"));
        writer.write_all(b"second\n").expect("write");
        assert_eq!(fs::read_to_string(&path).expect("log"), "second\n");
        let before = fs::read_to_string(previous(&path)).expect("the previous log");
        assert_eq!(before, "first line\n");
        writer.write_all(b"third\n").expect("write");
        assert_eq!(tail(&path, 1), ["third"]);
        assert!(tail(Path::new("/nowhere"), 1).is_empty());
    }
}
