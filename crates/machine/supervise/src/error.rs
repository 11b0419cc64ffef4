// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Why a program is not where a plan wants it.

use std::io;
use std::path::PathBuf;

use rampart_domain::DomainError;
use rampart_host::HostError;
use rampart_model::Finding;
use rampart_plan::PlanError;

/// Why a program is not where a plan wants it.
#[derive(Debug, thiserror::Error)]
pub enum SuperviseError {
    /// The request names something that is not there.
    #[error("{0}")]
    Usage(Finding),
    /// Something that it needs is missing: a active plan, a supervisor, a place.
    #[error("{0}")]
    Missing(Finding),
    /// The machine refuses.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The container or guest did not start.
    #[error(transparent)]
    Domain(#[from] DomainError),
    /// The text of the active plan is none.
    #[error("the active plan cannot be read: {0}")]
    Plan(#[from] PlanError),
    /// A program could not be started.
    #[error("{program}: cannot be started: {cause}; fix: {fix}")]
    NotStarted {
        /// The program.
        program: String,
        /// The kernel's answer.
        cause: io::Error,
        /// What fixes it.
        fix: String,
    },
    /// A file could not be read, written or made.
    #[error("{}: cannot {action}: {cause}; fix: make its directory writable and free some space there, or name another one in RAMPART_STATE_DIR", .path.display())]
    File {
        /// What was tried.
        action: &'static str,
        /// Where.
        path: PathBuf,
        /// The kernel's answer.
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
