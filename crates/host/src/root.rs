// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where a machine is read from: the running one, or a recorded one.

use std::path::PathBuf;

/// The directory that holds a machine's `proc`, `sys` and `etc`.
#[derive(Debug, Clone)]
pub struct MachineRoot(PathBuf);

impl MachineRoot {
    /// The running machine.
    #[must_use]
    pub fn system() -> Self {
        Self(PathBuf::from("/"))
    }

    /// A recorded machine.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }
}

/// Reads everything about a machine that a figure depends on. Never fails: what cannot be read
/// is none or unknown.
#[must_use]
pub fn read_machine(_root: &MachineRoot) -> rampart_model::Machine {
    unreachable!("follows in the next commit")
}
