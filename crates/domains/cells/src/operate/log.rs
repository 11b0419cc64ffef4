// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads the driver's messages in the kernel log, which give the reason of each refusal
//! (Documentation/ABI/testing/dev-kmsg).

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::OpenOptionsExt as _;

/// Maximum number of messages read after a call, because others may write endlessly.
const MOST_MESSAGES: usize = 1000;

/// The kernel log from one moment on.
#[derive(Debug)]
pub(super) struct KernelLog(Option<File>);

impl KernelLog {
    /// Opens the log at its present end. Stays empty without permission to read it.
    pub(super) fn from_now() -> Self {
        let open = || {
            let mut file = OpenOptions::new()
                .read(true)
                .custom_flags(libc::O_NONBLOCK)
                .open("/dev/kmsg")?;
            file.seek(SeekFrom::End(0))?;
            std::io::Result::Ok(file)
        };
        Self(open().ok())
    }

    /// Returns the driver's messages since then.
    pub(super) fn messages(&mut self) -> Vec<String> {
        let mut messages = Vec::new();
        let Some(file) = &mut self.0 else {
            return messages;
        };
        // One message per read. EPIPE means that a message was overwritten; the next read continues
        // after it.
        let mut buffer = [0; 8192];
        for _ in 0..MOST_MESSAGES {
            match file.read(&mut buffer) {
                Ok(bytes) if bytes > 0 => messages.extend(driver_message(&buffer[..bytes])),
                Err(error) if error.raw_os_error() == Some(libc::EPIPE) => {}
                _ => break,
            }
        }
        messages
    }
}

/// Returns the text after `rampart: ` of a message.
fn driver_message(record: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(record);
    let (_, message) = text.split_once(';')?;
    let line = message.lines().next()?;
    line.strip_prefix("rampart: ").map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn returns_only_messages_of_the_driver() {
        let own = b"3,821,912345,-;rampart: there are cells; destroy them first\n SUBSYSTEM=x\n";
        assert_eq!(
            driver_message(own).as_deref(),
            Some("there are cells; destroy them first")
        );
        assert_eq!(driver_message(b"6,1,1,-;usb 1-1: new device\n"), None);
        assert_eq!(driver_message(b"nonsense"), None);
    }
}
