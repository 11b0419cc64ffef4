// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the driver can refuse.

use std::io;

/// The error of a call of the driver.
#[derive(Debug, thiserror::Error)]
pub enum DetachError {
    /// A CPU cannot be taken.
    #[error("cannot take CPU {cpu}: {source}; fix: {fix}", fix = fix_of_take(source))]
    Take {
        /// The CPU.
        cpu: u32,
        /// The error of the system.
        source: io::Error,
    },
    /// The program has no CPU.
    #[error("no CPU was passed to this program; fix: rampart detach take CPU -- PROGRAM")]
    NotPassed,
    /// A descriptor is no open file of the driver.
    #[error("cannot use the descriptor: {source}; fix: pass an open file of /dev/rampart-detach")]
    Descriptor {
        /// The error of the system.
        source: io::Error,
    },
    /// The thread cannot be detached.
    #[error("cannot detach the thread: {source}")]
    Detach {
        /// The error of the system.
        source: io::Error,
    },
    /// The counts cannot be read.
    #[error("cannot read the counts of a CPU: {source}")]
    Counts {
        /// The error of the system.
        source: io::Error,
    },
}

fn fix_of_take(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => {
            "load the driver: `rampart detach` shows what this machine needs for that"
        }
        io::ErrorKind::PermissionDenied => {
            "run as root, or write owner = UID for the CPU's domain in the plan"
        }
        io::ErrorKind::ResourceBusy => {
            "choose another CPU: /sys/devices/virtual/misc/rampart-detach/taken lists those that are taken"
        }
        _ => "choose a CPU that is online: /sys/devices/system/cpu/online",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_error_of_taking_has_its_fix() {
        // errno(3): ENOENT, EACCES, EPERM, EBUSY, ENODEV.
        for (number, fix) in [
            (2, "`rampart detach`"),
            (13, "as root"),
            (1, "as root"),
            (16, "another CPU"),
            (19, "online"),
        ] {
            let source = io::Error::from_raw_os_error(number);
            let text = DetachError::Take { cpu: 2, source }.to_string();
            assert!(
                text.starts_with("cannot take CPU 2: ") && text.contains(fix),
                "{text}"
            );
        }
    }
}
