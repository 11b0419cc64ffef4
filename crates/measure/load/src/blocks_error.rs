// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Why blocks were not made.

use std::io;
use std::time::Duration;

use rampart_host::HostError;
use rampart_model::Refusal;

/// Why blocks were not made. The program is ended then, and no further block comes.
#[derive(Debug, thiserror::Error)]
pub enum BlocksError {
    /// The program cannot be started.
    #[error(
        "{program}: cannot be started: {source}; fix: install it in the directory of `rampart` and make it executable"
    )]
    NotStarted {
        /// The program.
        program: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// It does what it was asked not to do, or not as asked.
    #[error("{}", .0.finding)]
    Refused(Box<Refusal>),
    /// Its conversation is of another version.
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
    /// It takes no requests any more.
    #[error("{program}: cannot be spoken with: {source}")]
    NotWritten {
        /// The program.
        program: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// It said something that is none of its events, or out of turn.
    #[error("{program}: says `{line}`: {reason}")]
    Unintelligible {
        /// The program.
        program: String,
        /// The beginning of what it said.
        line: String,
        /// Why that is not understood.
        reason: String,
    },
    /// It ended too early.
    #[error(
        "{program}: ended{said}, needed its last word first; fix: see with `dmesg` whether the kernel ended it, and run the same command again"
    )]
    Ended {
        /// The program.
        program: String,
        /// Its status and the end of its standard error, as a part of a sentence.
        said: String,
    },
    /// It does not answer.
    #[error(
        "{program}: did not {what} within {} s, needed an answer; fix: see with `top` what keeps its CPUs busy, and run the same command again",
        .waited.as_secs()
    )]
    Silent {
        /// The program.
        program: String,
        /// What it was to do.
        what: &'static str,
        /// How long that was waited for.
        waited: Duration,
    },
    /// The shield around the CPUs does not let it in.
    #[error(transparent)]
    Shield(Box<HostError>),
}

impl From<HostError> for BlocksError {
    fn from(error: HostError) -> Self {
        Self::Shield(Box::new(error))
    }
}
