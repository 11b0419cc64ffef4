// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Detection of a kernel panic in the console, for kernels without a driver for QEMU's panic device.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

/// The text that a panicking kernel writes to its console at any log level (Linux, kernel/panic.c).
const PANIC_TEXT: &[u8] = b"Kernel panic - not syncing";

/// Searches the growing log of a console.
#[derive(Debug)]
pub(super) struct PanicSign {
    console: PathBuf,
    /// Number of bytes searched.
    read: u64,
    /// The last of them, which may be the begin of the text.
    last: Vec<u8>,
    seen: bool,
}

impl PanicSign {
    pub(super) fn in_console(console: &Path) -> Self {
        Self {
            console: console.to_owned(),
            read: 0,
            last: Vec::new(),
            seen: false,
        }
    }

    /// Returns whether the console contains a panic by now.
    pub(super) fn is_seen(&mut self) -> bool {
        if self.seen {
            return true;
        }
        let mut bytes = std::mem::take(&mut self.last);
        let kept = bytes.len();
        // The next call reads what cannot be read now.
        if let Ok(mut file) = File::open(&self.console)
            && file.seek(SeekFrom::Start(self.read)).is_ok()
        {
            let _ = file.read_to_end(&mut bytes);
        }
        self.read += (bytes.len() - kept) as u64;
        self.seen = bytes
            .windows(PANIC_TEXT.len())
            .any(|part| part == PANIC_TEXT);
        let rest = bytes.len().saturating_sub(PANIC_TEXT.len() - 1);
        self.last = bytes.split_off(rest);
        self.seen
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn detects_a_panic_written_in_pieces() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("console.log");
        let mut sign = PanicSign::in_console(&path);
        assert!(!sign.is_seen(), "there is no console yet");
        let mut log = File::create(&path).expect("made");
        for piece in ["[    1.0] Kernel pan", "ic - not", " syncin"] {
            log.write_all(piece.as_bytes()).expect("written");
            assert!(!sign.is_seen());
            assert!(!sign.is_seen(), "nothing new");
        }
        log.write_all(b"g: sysrq triggered crash\r\n")
            .expect("written");
        assert!(sign.is_seen());
        assert!(sign.is_seen(), "once and for all");
    }
}
