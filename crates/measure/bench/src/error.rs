// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Why something was not done on another machine.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use rampart_agent::AgentError;

use crate::sim::SimError;

/// Why something was not done on another machine.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// `ssh` is not there.
    #[error("ssh:{host}: cannot start ssh: {source}; fix: apt-get install openssh-client")]
    NoSsh {
        /// The machine.
        host: String,
        /// The system's answer.
        source: io::Error,
    },
    /// No connection came about.
    #[error("ssh:{host}: cannot connect: {said}; fix: ssh {host} true, to see the cause")]
    NotConnected {
        /// The machine.
        host: String,
        /// What `ssh` said.
        said: String,
    },
    /// The machine is of a kind that cannot be served.
    #[error("{machine}: cannot run there: {reason}; fix: {fix}")]
    Unfit {
        /// The machine.
        machine: String,
        /// Why.
        reason: String,
        /// The fix.
        fix: String,
    },
    /// The programs for that machine do not exist.
    #[error("{machine}: it is {architecture}, and {} does not exist; fix: install the programs of rampart for {architecture} there", path.display())]
    NoProgram {
        /// The machine.
        machine: String,
        /// What it is.
        architecture: String,
        /// What is missing.
        path: PathBuf,
    },
    /// The connection was lost, or what was asked over it failed.
    #[error("{machine}: {source}{}", in_words(.said))]
    Agent {
        /// The machine.
        machine: String,
        /// What failed.
        source: AgentError,
        /// What `ssh` said.
        said: String,
    },
    /// A program that carries files failed there.
    #[error("{machine}: `{command}` ended with {status}: {said}")]
    ProgramFailed {
        /// The machine.
        machine: String,
        /// Its command line.
        command: String,
        /// How it ended.
        status: String,
        /// Its last lines.
        said: String,
    },
    /// A program there neither ends nor says anything.
    #[error(
        "{machine}: no output from `{command}` for {} s, and it did not end when asked, so it was killed. \
         Fix: see what holds it there; what it left changed is restored by `rampart release` there",
        silence.as_secs()
    )]
    Hung {
        /// The machine.
        machine: String,
        /// Its command line, shortened.
        command: String,
        /// For how long.
        silence: Duration,
    },
    /// The user ended it.
    #[error("interrupted while {0}")]
    Interrupted(String),
    /// A file here.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// The simulated machine.
    #[error(transparent)]
    Sim(#[from] SimError),
}

fn in_words(text: &str) -> String {
    if text.is_empty() {
        String::new()
    } else {
        format!(", ssh reports: {text}")
    }
}
