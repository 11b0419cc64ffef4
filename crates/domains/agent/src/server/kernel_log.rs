// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Copies the kernel log of a machine without a serial port to shared memory. Never waits for the
//! reader.

use std::fs::File;
use std::io::{self, Read as _};
use std::sync::atomic::AtomicU64;

use rampart_ring::records::{MAXIMUM_RECORD_BYTES, RecordWriter};

/// Starts a thread that copies the kernel log, past and future, including the text that this
/// program writes to standard error.
pub(super) fn copy_to(memory: &'static [AtomicU64]) -> io::Result<()> {
    let mut log = File::open("/dev/kmsg")?;
    let mut writer = RecordWriter::begin(memory).ok_or(io::ErrorKind::InvalidInput)?;
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
                            // The line is truncated, which is enough unless the memory is tiny.
                            let _ = writer.write(level, &line.as_bytes()[..end]);
                        }
                    }
                    // EPIPE: the record was overwritten before it was read; the next read returns
                    // the oldest record.
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

/// Redirects standard error to the kernel log. Each line has to be written with one call, because
/// each call is a separate record.
pub(super) fn redirect_standard_error() -> io::Result<()> {
    let log = File::options().write(true).open("/dev/kmsg")?;
    Ok(rustix::stdio::dup2_stderr(log)?)
}

/// Returns level and line of a record: `level,number,microseconds,flags;text`, then lines of a
/// dictionary that begin with a space (Linux, Documentation/ABI/testing/dev-kmsg).
fn line_of(record: &str) -> Option<(u32, String)> {
    let (prefix, rest) = record.split_once(';')?;
    let text = rest.lines().next()?;
    let mut fields = prefix.split(',');
    let level: u32 = fields.next()?.parse().ok()?;
    let microseconds: u64 = fields.nth(1)?.parse().ok()?;
    let (seconds, fraction) = (microseconds / 1_000_000, microseconds % 1_000_000);
    // The facility is above the three bits of the level.
    Some((level & 7, format!("[{seconds:5}.{fraction:06}] {text}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn converts_a_record_to_a_line() {
        let record = "6,339,5140900,-;NET: Registered\n SUBSYSTEM=net\n DEVICE=+x\n";
        let line = "[    5.140900] NET: Registered".to_owned();
        assert_eq!(line_of(record), Some((6, line)));
        let (level, line) = line_of("30,1,12,-;init: a; b\n").expect("a record");
        assert_eq!((level, line.as_str()), (6, "[    0.000012] init: a; b"));
        for invalid in ["", "text", "6;text", "6,1,x,-;text", "6,1,2,-;"] {
            assert_eq!(line_of(invalid), None, "{invalid}");
        }
    }
}
