// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Errors of starting, placing and ending programs of domains.

use std::io;
use std::path::PathBuf;

use rampart_domain::DomainError;
use rampart_host::HostError;
use rampart_model::Finding;
use rampart_plan::PlanError;

/// An error of starting, placing or ending the program of a domain.
#[derive(Debug, thiserror::Error)]
pub enum SuperviseError {
    /// The request names a domain or CPU that does not exist.
    #[error("{0}")]
    Usage(Finding),
    /// A precondition is missing: an active plan, a supervisor, the placement of a thread.
    #[error("{0}")]
    Missing(Finding),
    /// The machine refused a change.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The container or guest did not start.
    #[error(transparent)]
    Domain(#[from] DomainError),
    /// The text of the active plan cannot be parsed.
    #[error("cannot read the active plan: {0}")]
    Plan(#[from] PlanError),
    /// A program could not be started.
    #[error("cannot start {program}: {cause}; fix: {fix}")]
    NotStarted {
        /// The program.
        program: String,
        /// The error that the kernel returned.
        cause: io::Error,
        /// The fix.
        fix: String,
    },
    /// A file could not be read, written or created.
    #[error("cannot {action} {}: {cause}; fix: run as root; fix: set RAMPART_STATE_DIR to a writable directory with free space", .path.display())]
    File {
        /// The action that failed.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The error that the kernel returned.
        cause: io::Error,
    },
}

impl SuperviseError {
    pub(crate) fn file(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |cause| Self::File {
            action,
            path,
            cause,
        }
    }
}
