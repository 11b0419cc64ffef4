// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where Rampart keeps what it must remember.

use std::path::{Path, PathBuf};

/// The directory that holds the journal and the lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateDirectory(PathBuf);

impl StateDirectory {
    /// `$RAMPART_STATE_DIR`, or `/var/lib/rampart` for root, or `$XDG_STATE_HOME/rampart`, or
    /// `~/.local/state/rampart`.
    #[must_use]
    pub fn standard() -> Self {
        Self(PathBuf::from("/var/lib/rampart"))
    }

    /// This directory; made when something is first written.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }
}
