// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The files of a boot loader, on the running machine or a recorded one.

use std::io;
use std::path::Path;

use crate::kernel::Kernel;
use crate::{HostError, MachineRoot};

const FIX: &str = "make the file readable text in UTF-8, or edit the kernel command line yourself";

/// Files of a machine. Paths are absolute there.
pub(super) trait BootTree {
    /// Reads the text of a file. Returns `None` if it does not exist.
    fn text(&self, path: &Path) -> Result<Option<String>, HostError>;
    /// Returns the names in a directory in alphabetical order, or none if it cannot be read.
    fn names(&self, path: &Path) -> Vec<String>;
    /// Returns whether a file or directory exists.
    fn exists(&self, path: &Path) -> bool;
}

/// The running machine.
#[derive(Debug)]
pub(super) struct Live<'a>(pub(super) &'a dyn Kernel);

impl BootTree for Live<'_> {
    fn text(&self, path: &Path) -> Result<Option<String>, HostError> {
        answer(path, self.0.read(path))
    }

    fn names(&self, path: &Path) -> Vec<String> {
        self.0.names(path)
    }

    fn exists(&self, path: &Path) -> bool {
        self.0.exists(path)
    }
}

impl BootTree for MachineRoot {
    fn text(&self, path: &Path) -> Result<Option<String>, HostError> {
        answer(path, std::fs::read_to_string(self.path(inside(path))))
    }

    fn names(&self, path: &Path) -> Vec<String> {
        MachineRoot::names(self, inside(path))
    }

    fn exists(&self, path: &Path) -> bool {
        MachineRoot::exists(self, inside(path))
    }
}

fn inside(path: &Path) -> &str {
    path.to_str().unwrap_or_default().trim_start_matches('/')
}

fn answer(path: &Path, read: io::Result<String>) -> Result<Option<String>, HostError> {
    match read {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(cause) => Err(HostError::file("read", path, cause, FIX)),
    }
}
