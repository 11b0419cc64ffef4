// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The errors of a series of blocks.

use std::io;
use std::time::Duration;

use rampart_host::HostError;
use rampart_model::Refusal;

/// The reason why blocks were not made. The program is ended then, and makes no further block.
#[derive(Debug, thiserror::Error)]
pub enum BlocksError {
    /// The program cannot be started.
    #[error(
        "cannot start {program}: {source}; fix: install rampart-meter in the directory of rampart"
    )]
    NotStarted {
        /// The program.
        program: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// The program refuses the request.
    #[error("{}", .0.finding)]
    Refused(Box<Refusal>),
    /// The program has another protocol version.
    #[error(
        "{program} has protocol version {present}, expected {}; fix: install rampart and rampart-meter of the same version",
        rampart_model::BLOCKER_PROTOCOL_VERSION
    )]
    OtherVersion {
        /// The program.
        program: String,
        /// Its version.
        present: u32,
    },
    /// The program accepts no more requests.
    #[error("cannot send a request to {program}: {source}")]
    NotWritten {
        /// The program.
        program: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// The program sent an unknown event, or one out of order.
    #[error("{program} printed `{line}`: {reason}")]
    Unintelligible {
        /// The program.
        program: String,
        /// The beginning of the line.
        line: String,
        /// Why the line is invalid.
        reason: String,
    },
    /// The program ended too early.
    #[error(
        "{program} ended before its final report{ending}; fix: run `dmesg` to see whether the kernel ended it"
    )]
    Ended {
        /// The program.
        program: String,
        /// Its status and the end of its standard error.
        ending: String,
    },
    /// The program does not answer.
    #[error(
        "{program} did not {what} within {} s; fix: run `top` to see which programs keep its CPUs busy",
        .waited.as_secs()
    )]
    Silent {
        /// The program.
        program: String,
        /// The expected action.
        what: &'static str,
        /// The time waited for it.
        waited: Duration,
    },
    /// The shield of the CPUs does not admit the program.
    #[error(transparent)]
    Shield(Box<HostError>),
}

impl From<HostError> for BlocksError {
    fn from(error: HostError) -> Self {
        Self::Shield(Box::new(error))
    }
}
