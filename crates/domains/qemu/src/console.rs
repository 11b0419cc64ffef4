// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads the end of a console's log, for messages.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::Path;

/// Number of bytes at the end of a log that are searched for its last lines.
const TAIL_BYTES: u64 = 64 * 1024;

/// Returns the last `count` lines of a console's log, without control characters and terminal
/// sequences, or none if the log does not exist.
///
/// # Errors
/// Returns an error if the file exists and cannot be read.
pub fn last_lines(log: &Path, count: usize) -> io::Result<Vec<String>> {
    let mut file = match File::open(log) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
    let mut bytes = Vec::new();
    file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<String> = text
        .split('\n')
        .map(plain)
        .filter(|line| !line.is_empty())
        .collect();
    let first = lines.len().saturating_sub(count);
    Ok(lines[first..].to_vec())
}

/// Returns a line without control characters and without the escape sequences of ECMA-48 (`ESC [`,
/// parameters, one final byte from `@` to `~`).
fn plain(line: &str) -> String {
    let mut kept = String::with_capacity(line.len());
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        if character == '\u{1b}' {
            if characters.next() == Some('[') {
                for parameter in characters.by_ref() {
                    if ('@'..='~').contains(&parameter) {
                        break;
                    }
                }
            }
        } else if character == '\t' || !character.is_control() {
            kept.push(character);
        }
    }
    kept.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removes_terminal_sequences_from_the_last_lines() {
        let directory = tempfile::tempdir().expect("a directory");
        let log = directory.path().join("console");
        std::fs::write(
            &log,
            "one\r\n\u{1b}[2J\u{1b}[1;31mtwo\u{1b}[0m\r\n\r\nthree",
        )
        .expect("written");
        let lines = last_lines(&log, 2).expect("read");
        assert_eq!(lines, ["two", "three"]);
    }

    #[test]
    fn missing_log_has_no_lines() {
        let lines = last_lines(Path::new("/nowhere/console"), 5).expect("no error");
        assert!(lines.is_empty());
    }

    #[test]
    fn accepts_bytes_that_are_not_text() {
        let directory = tempfile::tempdir().expect("a directory");
        let log = directory.path().join("console");
        std::fs::write(&log, b"\xff\xfe\x1b[\n\x1b\nend\n").expect("written");
        assert_eq!(last_lines(&log, 1).expect("read"), ["end"]);
    }
}
