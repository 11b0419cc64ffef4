// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Errors of the client.

use std::io;
use std::time::Duration;

/// The reason why a request to the agent failed.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// No answer arrived in time.
    #[error(
        "the agent has not answered within {} s; fix: check on its console whether the machine hangs or is too busy, and restart it", .0.as_secs_f64()
    )]
    NoAnswer(Duration),
    /// The byte stream ended or failed.
    #[error(
        "the connection to the agent is lost{}; fix: check that the machine runs and is reachable, and run the command again",
        .0.as_ref().map(|error| format!(": {error}")).unwrap_or_default()
    )]
    Lost(Option<String>),
    /// Invalid data arrived.
    #[error("the agent sent an invalid frame: {0}")]
    InvalidFrame(String),
    /// The agent has another protocol version.
    #[error(
        "the agent has protocol version {theirs}, this program {ours}; fix: use programs of the same version on both sides"
    )]
    Version {
        /// Protocol version of the agent.
        theirs: u32,
        /// Protocol version of this program.
        ours: u32,
    },
    /// A program could not be started.
    #[error("the agent cannot start `{program}`: {reason}")]
    NotStarted {
        /// Name of the program.
        program: String,
        /// The agent's reason.
        reason: String,
    },
    /// The request is invalid.
    #[error("{0}")]
    InvalidRequest(String),
    /// A system call of the client failed.
    #[error("cannot communicate with the agent: {0}")]
    Io(#[from] io::Error),
}

impl From<AgentError> for io::Error {
    fn from(error: AgentError) -> Self {
        match error {
            AgentError::Io(error) => error,
            AgentError::Lost(_) => Self::new(io::ErrorKind::ConnectionAborted, error.to_string()),
            other => Self::other(other.to_string()),
        }
    }
}
