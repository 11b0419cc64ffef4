// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What can go wrong on the near side.

use std::io;
use std::time::Duration;

/// Why the far side did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// Nobody answered.
    #[error(
        "the agent has not answered within {} s; fix: see its console for whether the machine hangs or is too busy, and restart it", .0.as_secs_f64()
    )]
    Silent(Duration),
    /// The byte stream ended or broke.
    #[error(
        "the connection to the agent is lost{}; fix: check that the machine runs and is reachable, and run the command again",
        .0.as_ref().map(|error| format!(": {error}")).unwrap_or_default()
    )]
    Lost(Option<String>),
    /// Something came that is no word of the conversation.
    #[error("the agent sent an invalid frame: {0}")]
    Unintelligible(String),
    /// The other side is of another version.
    #[error(
        "the agent has protocol version {theirs}, this program {ours}; fix: use programs of the same version on both sides"
    )]
    Version {
        /// Its version.
        theirs: u32,
        /// Ours.
        ours: u32,
    },
    /// A program did not start.
    #[error("the agent cannot start `{program}`: {reason}")]
    NotStarted {
        /// The program.
        program: String,
        /// What the far side said.
        reason: String,
    },
    /// A request cannot be made as asked.
    #[error("{0}")]
    Impossible(String),
    /// Something on this side.
    #[error("cannot communicate with the agent: {0}")]
    Here(#[from] io::Error),
}

impl From<AgentError> for io::Error {
    fn from(error: AgentError) -> Self {
        match error {
            AgentError::Here(error) => error,
            AgentError::Lost(_) => Self::new(io::ErrorKind::ConnectionAborted, error.to_string()),
            other => Self::other(other.to_string()),
        }
    }
}
