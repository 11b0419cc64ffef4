// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Why the machine was not changed as asked.

use std::path::PathBuf;

/// Why the machine was not changed as asked. Whatever had been changed before is restored,
/// or still in the journal for [`crate::release`].
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The request makes no sense on this machine.
    #[error("{place}: {what} (is {present}, needed {needed}); mend: {mend}")]
    Request {
        /// What it is about.
        place: String,
        /// What is wrong.
        what: String,
        /// The value found.
        present: String,
        /// The value that would do.
        needed: String,
        /// What mends it.
        mend: String,
    },
    /// Another process changes the machine at this moment.
    #[error(
        "{path}: the machine is shielded by process {owner}; mend: wait for it, or end it and run `rampart release`"
    )]
    Busy {
        /// The lock.
        path: PathBuf,
        /// The process that holds it; `unknown` where it left no trace.
        owner: String,
    },
    /// A file could not be read, written or made.
    #[error("{path}: cannot {action}: {cause}; mend: {mend}")]
    File {
        /// What was tried.
        action: &'static str,
        /// Where.
        path: PathBuf,
        /// The kernel's answer.
        cause: std::io::Error,
        /// What mends it.
        mend: String,
    },
}
