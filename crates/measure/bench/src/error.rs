// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The errors of work on another machine.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use rampart_agent::AgentError;

use crate::sim::SimError;

/// Why work on another machine failed.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// `ssh` is not installed.
    #[error("ssh:{host}: cannot start ssh: {source}; fix: apt-get install openssh-client")]
    NoSsh {
        /// The machine.
        host: String,
        /// The cause.
        source: io::Error,
    },
    /// `ssh` cannot connect.
    #[error("ssh:{host}: cannot connect: {output}; fix: see the cause with `{command}`")]
    NotConnected {
        /// The machine.
        host: String,
        /// The command that connects and does nothing.
        command: String,
        /// The output of `ssh`.
        output: String,
    },
    /// The machine cannot run the programs.
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
    #[error(
        "{machine}: its architecture is {architecture}, and there is no program {}; fix: install the programs of rampart for {architecture} there",
        .searched.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(" or ")
        )]
    NoProgram {
        /// The machine.
        machine: String,
        /// Its architecture.
        architecture: String,
        /// The paths where its program was searched.
        searched: Vec<PathBuf>,
    },
    /// The connection was lost, or a request over it failed.
    #[error("{machine}: {source}{}", with_ssh_output(.output))]
    Agent {
        /// The machine.
        machine: String,
        /// What failed.
        source: AgentError,
        /// The output of `ssh`.
        output: String,
    },
    /// A program that copies files failed on that machine.
    #[error("{machine}: `{command}` ended with {status}: {output}")]
    ProgramFailed {
        /// The machine.
        machine: String,
        /// Its command line.
        command: String,
        /// How it ended.
        status: String,
        /// Its last lines.
        output: String,
    },
    /// A program on that machine is silent and does not end.
    #[error(
        "{machine}: no output from `{command}` for {} s, and it did not end on SIGINT, so it was killed; \
         fix: restore the machine with `rampart release` there",
        silence.as_secs()
    )]
    Hung {
        /// The machine.
        machine: String,
        /// Its command line, shortened.
        command: String,
        /// How long it was silent.
        silence: Duration,
    },
    /// The user interrupted it.
    #[error("interrupted while {0}")]
    Interrupted(String),
    /// A file on this machine cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The simulated machine failed.
    #[error(transparent)]
    Sim(#[from] SimError),
}

fn with_ssh_output(text: &str) -> String {
    if text.is_empty() {
        String::new()
    } else {
        format!(", ssh reports: {text}")
    }
}
