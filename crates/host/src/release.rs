// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Takes back what an ended process left changed.

use std::path::PathBuf;

use rampart_model::Finding;

use crate::{HostError, StateDirectory};

/// One thing that was put back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restored {
    /// What it is about: a file, a group, a task.
    pub place: String,
    /// What was done.
    pub what: String,
}

/// What a release did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReleaseReport {
    /// What was put back, in the order in which it was.
    pub restored: Vec<Restored>,
    /// What was left because someone else changed it meanwhile, or could not be put back.
    pub left: Vec<Finding>,
    /// The journals that are done with and gone.
    pub journals: Vec<PathBuf>,
}

/// A journal that was not released.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingJournal {
    /// Its file.
    pub path: PathBuf,
    /// The process that wrote it.
    pub owner: u32,
    /// Whether that process still lives, so that the changes are in use.
    pub owner_alive: bool,
    /// How many changes it holds.
    pub changes: usize,
}

/// Puts back everything that ended processes left changed.
///
/// # Errors
/// If a living process holds the machine, or a journal cannot be read.
pub fn release(_state: &StateDirectory) -> Result<ReleaseReport, HostError> {
    unreachable!("follows in the next commit")
}

/// The journals that were not released yet.
#[must_use]
pub fn pending(_state: &StateDirectory) -> Vec<PendingJournal> {
    Vec::new()
}
