// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A cell's console: lines in shared memory. The cell never waits for the reader.

use rampart_ring::records::{MAXIMUM_RECORD_BYTES, Mark, Read, Reader};

use crate::shared_memory::SharedMemory;

/// Maximum number of lines read at once, so that a cell that writes endlessly does not block the
/// reader.
const MOST_AT_ONCE: usize = 4096;

/// A console, read from its oldest line in memory.
#[derive(Debug)]
pub struct Console {
    memory: SharedMemory,
    mark: Mark,
}

impl Console {
    /// Creates the console of a shared region.
    #[must_use]
    pub fn new(memory: SharedMemory) -> Self {
        Self {
            memory,
            mark: Mark::default(),
        }
    }

    /// Returns whether its cell was destroyed, as far as an access has found out.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.memory.is_lost()
    }

    /// Returns the lines since the last call, up to a limit. A separate line reports overwritten
    /// data. Control characters are removed, because the cell is not trusted with a terminal.
    pub fn lines(&mut self) -> Vec<String> {
        let mut lines = Vec::new();
        let Some(mut reader) = Reader::resume(self.memory.words(), self.mark) else {
            return lines;
        };
        let mut buffer = [0; MAXIMUM_RECORD_BYTES];
        while lines.len() < MOST_AT_ONCE {
            match reader.read(&mut buffer) {
                Read::Record { bytes, .. } => lines.push(printable(&buffer[..bytes])),
                Read::Nothing | Read::NoRing => break,
                Read::Lost(words) => lines.push(format!("({words} words lost)")),
                Read::Began => lines.push("(restarted)".to_owned()),
                Read::Damaged => lines.push("(damaged record)".to_owned()),
            }
        }
        self.mark = reader.mark();
        lines
    }
}

pub(super) fn printable(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.chars()
        .filter(|character| !character.is_control() || *character == '\t')
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removes_control_characters_from_a_line() {
        assert_eq!(printable(b"a\x1b[2Jb\tc\r\n\xff"), "a[2Jb\tc\u{fffd}");
    }
}
