// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the driver says in the kernel's log: it names the reason of each refusal there
//! (Documentation/ABI/testing/dev-kmsg).

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::OpenOptionsExt as _;

/// The most messages that are read after a call: others may write without end.
const MOST_MESSAGES: usize = 1000;

/// The log from one moment on.
#[derive(Debug)]
pub(super) struct KernelLog(Option<File>);

impl KernelLog {
    /// From now on. Where it may not be read it stays empty.
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

    /// What the driver said since.
    pub(super) fn said(&mut self) -> Vec<String> {
        let mut said = Vec::new();
        let Some(file) = &mut self.0 else {
            return said;
        };
        // One message a read; one that was overwritten meanwhile is EPIPE, and the next comes.
        let mut room = [0; 8192];
        for _ in 0..MOST_MESSAGES {
            match file.read(&mut room) {
                Ok(bytes) if bytes > 0 => said.extend(driver_message(&room[..bytes])),
                Err(error) if error.raw_os_error() == Some(libc::EPIPE) => {}
                _ => break,
            }
        }
        said
    }
}

/// The text after `rampart: ` of one message.
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
    fn of_the_log_only_the_driver() {
        let own = b"3,821,912345,-;rampart: there are cells; destroy them first\n SUBSYSTEM=x\n";
        assert_eq!(
            driver_message(own).as_deref(),
            Some("there are cells; destroy them first")
        );
        assert_eq!(driver_message(b"6,1,1,-;usb 1-1: new device\n"), None);
        assert_eq!(driver_message(b"nonsense"), None);
    }
}
