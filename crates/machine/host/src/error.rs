// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Errors of reading and changing a machine.

use std::path::{Path, PathBuf};

/// An error of reading or changing a machine. Earlier changes are restored, or still in the journal
/// for [`crate::release`].
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The request makes no sense on this machine.
    #[error("{location}: {what} (expected {needed}, found {present}); fix: {fix}")]
    Request {
        /// The object of the request.
        location: String,
        /// What is wrong.
        what: String,
        /// The value found.
        present: String,
        /// The value expected.
        needed: String,
        /// The fix.
        fix: String,
    },
    /// Another process changes the machine at this moment.
    #[error(
        "{path}: the machine is shielded by process {owner}; fix: wait for it, or end it and run `rampart release`"
    )]
    Busy {
        /// The lock.
        path: PathBuf,
        /// The process that holds it; `unknown` where it left no trace.
        owner: String,
    },
    /// A file could not be read, written or made.
    #[error("{path}: cannot {action}: {cause}; fix: {fix}")]
    File {
        /// The action that failed.
        action: &'static str,
        /// Where.
        path: PathBuf,
        /// The kernel's answer.
        cause: std::io::Error,
        /// The fix.
        fix: String,
    },
    /// The kernel refused a step of a plan, so the plan was not applied.
    #[error("{step}: {what}; all earlier changes were undone; fix: {fix}")]
    Step {
        /// Name of the step.
        step: String,
        /// The kernel's answer, with its location.
        what: String,
        /// The fix.
        fix: String,
    },
    /// Some changes could not be undone; they are still in the journal.
    #[error(
        "{journal}: {count} changes could not be undone, first: {first}; fix: remove the cause and run `rampart release`"
    )]
    NotRestored {
        /// The journal that keeps them.
        journal: PathBuf,
        /// How many.
        count: usize,
        /// The first of them.
        first: rampart_model::Finding,
    },
}

impl HostError {
    /// A file could not be read, written or made.
    pub(crate) fn file(
        action: &'static str,
        path: &Path,
        cause: std::io::Error,
        fix: impl Into<String>,
    ) -> Self {
        Self::File {
            action,
            path: path.to_owned(),
            cause,
            fix: fix.into(),
        }
    }
}
