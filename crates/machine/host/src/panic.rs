// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Makes the kernel panic, for an evaluation of who survives that.
//!
//! It is the one change of a machine without an entry in the journal: after it there is nothing
//! that could be restored, and nobody who could. What the machine then does (stay where it is,
//! start anew) is what its own `kernel.panic` says.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::PathBuf;

use crate::{HostError, MachineRoot};

/// Kernel, Documentation/admin-guide/sysrq.rst: `c` makes the kernel panic, from this file
/// whatever `/proc/sys/kernel/sysrq` says.
const TRIGGER: &str = "proc/sysrq-trigger";
const CRASH: &[u8] = b"c";

/// The file that makes this machine's kernel panic, open: that it may be used is known before
/// everything that is to be watched has been brought up.
#[derive(Debug)]
pub struct PanicTrigger {
    path: PathBuf,
    file: File,
}

impl PanicTrigger {
    /// Opens it. Nothing happens yet.
    ///
    /// # Errors
    /// If this process may not, or the kernel has no such file.
    pub fn open(root: &MachineRoot) -> Result<Self, HostError> {
        let path = root.path(TRIGGER);
        let file = OpenOptions::new().write(true).open(&path);
        let file = file.map_err(|cause| {
            let fix = match cause.kind() {
                io::ErrorKind::NotFound => "take a kernel with CONFIG_MAGIC_SYSRQ",
                _ => "run the same command as root, outside of containers",
            };
            HostError::file("open for writing", &path, cause, fix)
        })?;
        Ok(Self { path, file })
    }

    /// Makes the kernel panic, and with it everything on this machine end. Where it comes back the
    /// machine lives: at once with an error, or because the kernel took the command and has not
    /// died of it yet.
    ///
    /// # Errors
    /// If the kernel does not take the command.
    pub fn fire(self) -> Result<(), HostError> {
        let Self { path, mut file } = self;
        file.write_all(CRASH).map_err(|cause| {
            let fix = "see whether the kernel is locked down (`cat /sys/kernel/security/lockdown`)";
            HostError::file("write `c` to", &path, cause, fix)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_goes_to_the_trigger_of_the_machine_that_is_named() {
        let directory = tempfile::tempdir().expect("directory");
        let root = MachineRoot::at(directory.path());
        let error = PanicTrigger::open(&root)
            .expect_err("there is none")
            .to_string();
        assert!(error.contains("proc/sysrq-trigger"), "{error}");
        assert!(error.contains("CONFIG_MAGIC_SYSRQ"), "{error}");
        std::fs::create_dir(directory.path().join("proc")).expect("directory");
        let file = directory.path().join(TRIGGER);
        std::fs::write(&file, "").expect("file");
        let trigger = PanicTrigger::open(&root).expect("opened");
        assert_eq!(std::fs::read(&file).expect("read"), b"");
        trigger.fire().expect("taken");
        assert_eq!(std::fs::read(&file).expect("read"), CRASH);
    }
}
