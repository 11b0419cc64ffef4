// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a machine without any serial port says: its kernel's log, carried into shared memory. Whoever
//! reads there is never waited for.

use std::fs::File;
use std::io::{self, Read as _};
use std::sync::atomic::AtomicU64;

use rampart_ring::records::{MAXIMUM_RECORD_BYTES, Writer};

/// From here on, in a thread of its own, everything that the kernel has said and will say. What is
/// written to standard error becomes part of it.
pub(super) fn carry(memory: &'static [AtomicU64]) -> io::Result<()> {
    let mut log = File::open("/dev/kmsg")?;
    let mut writer = Writer::begin(memory).ok_or(io::ErrorKind::InvalidInput)?;
    std::thread::Builder::new()
        .name("agent-console".to_owned())
        .spawn(move || {
            let mut record = vec![0; 8192];
            loop {
                match log.read(&mut record) {
                    Ok(count) => {
                        let text = String::from_utf8_lossy(&record[..count]);
                        if let Some((level, line)) = line_of(&text) {
                            let end = line.floor_char_boundary(MAXIMUM_RECORD_BYTES);
                            // Shorter than what does not fit, unless the memory is tiny.
                            let _ = writer.write(level, &line.as_bytes()[..end]);
                        }
                    }
                    // EPIPE: it was overwritten before it was read; the next is the oldest there is.
                    Err(error) if error.raw_os_error() == Some(libc::EPIPE) => {
                        let _ = writer.write(4, b"(lines of the kernel log were lost)");
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(_) => return,
                }
            }
        })?;
    Ok(())
}

/// The kernel says what we would say to standard error: one call for each line, or it takes them for
/// several.
pub(super) fn take_standard_error() -> io::Result<()> {
    let log = File::options().write(true).open("/dev/kmsg")?;
    Ok(rustix::stdio::dup2_stderr(log)?)
}

/// Level and line of a record: `level,number,microseconds,flags;text`, then lines of a dictionary that
/// begin with a space (Linux, Documentation/ABI/testing/dev-kmsg).
fn line_of(record: &str) -> Option<(u32, String)> {
    let (prefix, rest) = record.split_once(';')?;
    let text = rest.lines().next()?;
    let mut fields = prefix.split(',');
    let level: u32 = fields.next()?.parse().ok()?;
    let microseconds: u64 = fields.nth(1)?.parse().ok()?;
    let (seconds, fraction) = (microseconds / 1_000_000, microseconds % 1_000_000);
    // The facility stands above the three bits of the level.
    Some((level & 7, format!("[{seconds:5}.{fraction:06}] {text}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_becomes_a_line() {
        let record = "6,339,5140900,-;NET: Registered\n SUBSYSTEM=net\n DEVICE=+x\n";
        let line = "[    5.140900] NET: Registered".to_owned();
        assert_eq!(line_of(record), Some((6, line)));
        let (level, line) = line_of("30,1,12,-;init: a; b\n").expect("a record");
        assert_eq!((level, line.as_str()), (6, "[    0.000012] init: a; b"));
        for wrong in ["", "text", "6;text", "6,1,x,-;text", "6,1,2,-;"] {
            assert_eq!(line_of(wrong), None, "{wrong}");
        }
    }
}
