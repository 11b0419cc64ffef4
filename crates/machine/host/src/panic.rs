// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Makes the kernel panic, to evaluate which domains survive that.
//!
//! This is the only change of a machine without an entry in the journal, because nothing can be
//! restored after it. Whether the machine then halts or restarts depends on `kernel.panic`.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::PathBuf;

use crate::{HostError, MachineRoot};

/// Kernel, Documentation/admin-guide/sysrq.rst: `c` makes the kernel panic, from this file
/// independent of `/proc/sys/kernel/sysrq`.
const TRIGGER: &str = "proc/sysrq-trigger";
const CRASH: &[u8] = b"c";

/// The open file that makes the kernel panic. Opening it early reports missing privileges before the
/// domains of an evaluation are started.
#[derive(Debug)]
pub struct PanicTrigger {
    path: PathBuf,
    file: File,
}

impl PanicTrigger {
    /// Opens the file for writing.
    ///
    /// # Errors
    /// If this process has no permission, or the kernel has no such file.
    pub fn open(root: &MachineRoot) -> Result<Self, HostError> {
        let path = root.path(TRIGGER);
        let file = OpenOptions::new().write(true).open(&path);
        let file = file.map_err(|cause| {
            let fix = match cause.kind() {
                io::ErrorKind::NotFound => "boot a kernel with CONFIG_MAGIC_SYSRQ",
                _ => "run the same command as root, outside of containers",
            };
            HostError::file("open", &path, cause, fix)
        })?;
        Ok(Self { path, file })
    }

    /// Makes the kernel panic. Returns if the kernel refuses the command, or has not panicked yet.
    ///
    /// # Errors
    /// If the kernel refuses the command.
    pub fn fire(self) -> Result<(), HostError> {
        let Self { path, mut file } = self;
        file.write_all(CRASH).map_err(|cause| {
            let fix = "check for kernel lockdown: cat /sys/kernel/security/lockdown";
            HostError::file("write `c` to", &path, cause, fix)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_the_command_to_the_trigger_below_the_root() {
        let directory = tempfile::tempdir().expect("directory");
        let root = MachineRoot::at(directory.path());
        let error = PanicTrigger::open(&root).expect_err("no file").to_string();
        assert!(error.contains("proc/sysrq-trigger"), "{error}");
        assert!(error.contains("CONFIG_MAGIC_SYSRQ"), "{error}");
        std::fs::create_dir(directory.path().join("proc")).expect("directory");
        let file = directory.path().join(TRIGGER);
        std::fs::write(&file, "").expect("file");
        let trigger = PanicTrigger::open(&root).expect("opened");
        assert_eq!(std::fs::read(&file).expect("read"), b"");
        trigger.fire().expect("written");
        assert_eq!(std::fs::read(&file).expect("read"), CRASH);
    }
}
