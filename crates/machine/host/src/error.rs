// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Errors of reading and changing a machine.

use std::path::{Path, PathBuf};

use rampart_model::fixes;

/// An error of reading or changing a machine. Earlier changes have been undone, or are still in the
/// journal for [`crate::release`].
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The request is not possible on this machine.
    #[error("{location}: {what} (expected {expected}, found {found}){}", fixes(.fix))]
    Request {
        /// The object of the request.
        location: String,
        /// What is wrong.
        what: String,
        /// The value found.
        found: String,
        /// The value expected.
        expected: String,
        /// The fixes, each on a line.
        fix: String,
    },
    /// A process could not be placed.
    #[error("{0}")]
    Refused(Box<rampart_model::Finding>),
    /// Another process is changing the machine.
    #[error(
        "{}: process {owner} has shielded the machine; fix: wait for it; fix: end it and run `rampart release`", .path.display()
    )]
    Busy {
        /// The lock file.
        path: PathBuf,
        /// The process that holds it, or `unknown`.
        owner: String,
    },
    /// A file could not be read, written or created.
    #[error("cannot {action} {}: {cause}{}", .path.display(), fixes(.fix))]
    File {
        /// The action that failed.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The error that the kernel returned.
        cause: std::io::Error,
        /// The fixes, each on a line.
        fix: String,
    },
    /// The kernel refused a step of a plan, so the plan was not applied.
    #[error("{step}: {what}; all earlier changes were undone{}", fixes(.fix))]
    Step {
        /// Name of the step.
        step: String,
        /// The location, and the error that the kernel returned.
        what: String,
        /// The fixes, each on a line.
        fix: String,
    },
    /// Some changes could not be undone; they are still in the journal.
    #[error(
        "{}: {count} changes could not be undone, first: {first}; fix: remove the cause and run `rampart release`", .journal.display()
    )]
    NotRestored {
        /// The journal.
        journal: PathBuf,
        /// Number of these changes.
        count: usize,
        /// The finding of the first one.
        first: rampart_model::Finding,
    },
}

impl HostError {
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
