// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Why blocks were not made.

use std::io;
use std::time::Duration;

use rampart_host::HostError;
use rampart_model::Refusal;

/// The reason why blocks were not made. The program is ended then, and makes no further block.
#[derive(Debug, thiserror::Error)]
pub enum BlocksError {
    /// The program cannot be started.
    #[error(
        "{program}: cannot be started: {source}; fix: install it in the directory of `rampart` and make it executable"
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
        "{program}: has protocol version {present}, expected {}; fix: install rampart and rampart-meter of the same version",
        rampart_model::BLOCKER_PROTOCOL_VERSION
    )]
    OtherVersion {
        /// The program.
        program: String,
        /// Its version.
        present: u32,
    },
    /// The program accepts no more requests.
    #[error("{program}: cannot be spoken with: {source}")]
    NotWritten {
        /// The program.
        program: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// The program sent an unknown event, or one out of order.
    #[error("{program}: says `{line}`: {reason}")]
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
        "{program}: ended{said}, needed its last word first; fix: see with `dmesg` whether the kernel ended it, and run the same command again"
    )]
    Ended {
        /// The program.
        program: String,
        /// Its status and the end of its standard error, as a part of a sentence.
        said: String,
    },
    /// The program does not answer.
    #[error(
        "{program}: did not {what} within {} s, needed an answer; fix: see with `top` what keeps its CPUs busy, and run the same command again",
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
