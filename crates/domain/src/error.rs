// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Why a meter did not start in a domain, or did not go on.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use rampart_host::HostError;
use rampart_model::{Finding, Refusal};

/// Why a meter did not start in a domain, or did not go on. What had been changed before is
/// restored, or still in the journal for `rampart release`.
#[derive(Debug, thiserror::Error)]
pub enum DomainError {
    /// The meter itself says that the plan cannot be carried out as asked.
    #[error("{}", .0.finding)]
    Refused(Refusal),
    /// This machine cannot host the domain.
    #[error("{0}")]
    Unavailable(Finding),
    /// The wall could not be raised or lowered.
    #[error(transparent)]
    Host(#[from] HostError),
    /// A program could not be started.
    #[error("{program}: cannot be started: {source}; mend: {mend}")]
    NotStarted {
        /// The program.
        program: String,
        /// Why not.
        source: io::Error,
        /// What mends it.
        mend: String,
    },
    /// A program ended before its last word.
    #[error("{program} (process {process}) ended too early: {status}{}", said(.stderr))]
    Ended {
        /// The program.
        program: String,
        /// Its process.
        process: u32,
        /// How it ended.
        status: String,
        /// The end of its standard error.
        stderr: String,
    },
    /// A program did not answer.
    #[error(
        "{program} (process {process}) did not {what} within {:.1} s{}", .waited.as_secs_f64(), said(.stderr)
    )]
    Silent {
        /// The program.
        program: String,
        /// Its process.
        process: u32,
        /// What it was expected to do.
        what: &'static str,
        /// For how long it was waited.
        waited: Duration,
        /// The end of its standard error.
        stderr: String,
    },
    /// A program said something that is no part of the conversation.
    #[error(
        "{program} (process {process}) said `{line}`, which is no event of a meter: {reason}; mend: take `rampart` and `rampart-meter` from the same build"
    )]
    Unintelligible {
        /// The program.
        program: String,
        /// Its process.
        process: u32,
        /// The beginning of the line.
        line: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A helper program such as `runc` failed.
    #[error("`{command}` failed: {status}{}", said(.stderr))]
    Helper {
        /// The complete command.
        command: String,
        /// How it ended.
        status: String,
        /// What it said.
        stderr: String,
    },
    /// A guest did not come up, or is gone.
    #[error("guest {guest}: {what}{}{}", qemu_said(.said), console_end(.console))]
    Guest {
        /// Its name.
        guest: String,
        /// What happened.
        what: String,
        /// What QEMU wrote to its standard error.
        said: String,
        /// The last lines of its console.
        console: Vec<String>,
    },
    /// QEMU could not be started.
    #[error(transparent)]
    Qemu(#[from] rampart_qemu::QemuError),
    /// QEMU did not do what it was told.
    #[error(transparent)]
    Monitor(#[from] rampart_qemu::QmpError),
    /// The agent in a guest did not do what it was asked.
    #[error("in the guest: {0}")]
    Agent(#[from] rampart_agent::AgentError),
    /// A file could not be read, written or made.
    #[error("{}: cannot {action}: {source}", .path.display())]
    File {
        /// What was tried.
        action: &'static str,
        /// Where.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A thread of the meter could not be given its CPU or policy from outside.
    #[error("{finding}")]
    NotPlaced {
        /// The process.
        process: u32,
        /// The thread, the value it has, the value it needs.
        finding: Box<Finding>,
    },
}

impl DomainError {
    pub(crate) fn file(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File {
            action,
            path,
            source,
        }
    }
}

/// QEMU's own words, as a part of a message.
fn qemu_said(said: &str) -> String {
    match said.trim() {
        "" | "nothing" => String::new(),
        said => format!("; QEMU says: {said}"),
    }
}

/// The last lines of a console, as the end of a message.
fn console_end(lines: &[String]) -> String {
    if lines.is_empty() {
        "; its console is empty".to_owned()
    } else {
        format!("; its console ends with:\n  {}", lines.join("\n  "))
    }
}

/// What a program left on its standard error, as the end of a message.
fn said(stderr: &str) -> String {
    let text = stderr.trim();
    if text.is_empty() {
        String::new()
    } else {
        format!("; it said: {text}")
    }
}
