// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Errors of starting and running a meter in a domain.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use rampart_host::HostError;
use rampart_model::{Finding, Refusal};

/// An error of starting or running a meter in a domain. Earlier changes are restored, or still in the
/// journal for `rampart release`.
#[derive(Debug, thiserror::Error)]
pub enum DomainError {
    /// The meter itself says that the plan cannot be carried out as asked.
    #[error("{}", .0.finding)]
    Refused(Refusal),
    /// This machine cannot host the domain.
    #[error("{0}")]
    Unavailable(Finding),
    /// The isolation could not be applied or undone.
    #[error(transparent)]
    Host(#[from] HostError),
    /// A program could not be started.
    #[error("{program}: cannot be started: {source}; fix: {fix}")]
    NotStarted {
        /// The program.
        program: String,
        /// Why not.
        source: io::Error,
        /// What fixes it.
        fix: String,
    },
    /// A program ended before its last word.
    #[error(
        "{program} (process {process}) ended too early: {status}, needed its last word first{}; fix: see with `dmesg` whether the kernel ended it, and run the same command again",
        said(.stderr)
    )]
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
        "{program} (process {process}) did not {what} within {:.1} s{}; fix: see with `top` what keeps its CPUs busy, and run the same command again",
        .waited.as_secs_f64(), said(.stderr)
    )]
    NoAnswer {
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
        "{program} (process {process}) said `{line}`, which is no event of a meter: {reason}; fix: take `rampart` and `rampart-meter` from the same build"
    )]
    UnexpectedOutput {
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
    #[error(
        "`{command}` failed: {status}, needed exit status 0{}; fix: run it by hand until it does",
        said(.stderr)
    )]
    Helper {
        /// The complete command.
        command: String,
        /// How it ended.
        status: String,
        /// What it said.
        stderr: String,
    },
    /// A guest did not come up, or is gone.
    #[error(
        "guest {guest}: {what}{}, needed a guest that runs; fix: see its console's end below, run the same command again, or name another kernel in {}{}",
        qemu_said(.said), crate::vm::KERNEL_VARIABLE, console_end(.console)
    )]
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
    /// A cell does not come up, or runs no more.
    #[error(
        "cell {cell}: {what}, needed a cell that runs; fix: see `rampart cell list` and `dmesg`, and run the same command again"
    )]
    Cell {
        /// Its name.
        cell: String,
        /// What happened.
        what: String,
    },
    /// What stands in the way of a cell.
    #[error(transparent)]
    Operate(#[from] rampart_cells::operate::OperateError),
    /// QEMU could not be started.
    #[error(transparent)]
    Qemu(#[from] rampart_qemu::QemuError),
    /// QEMU did not carry out a command.
    #[error(transparent)]
    Monitor(#[from] rampart_qemu::QmpError),
    /// The agent in a guest did not do what it was asked.
    #[error("in the guest: {0}")]
    Agent(#[from] rampart_agent::AgentError),
    /// A file could not be read, written or made.
    #[error("{}: cannot {action}: {source}; fix: {}", .path.display(), fix_of(.source))]
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

/// What fixes a file that could not be used.
fn fix_of(cause: &io::Error) -> &'static str {
    match cause.kind() {
        io::ErrorKind::PermissionDenied => "run the same command as root",
        io::ErrorKind::NotFound => "check that the file and its directory exist",
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "free some space on that file system"
        }
        io::ErrorKind::ReadOnlyFilesystem => "name a directory on a writable file system",
        _ => "see the kernel log: dmesg",
    }
}

/// QEMU's own words, as a part of a message.
fn qemu_said(said: &str) -> String {
    match said.trim() {
        "" | "nothing" => String::new(),
        said => format!("; QEMU reports: {said}"),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_has_a_fix() {
        let file = DomainError::file("make", "/nowhere/x");
        let errors = [
            file(io::ErrorKind::NotFound.into()),
            DomainError::file("write", "/x")(io::ErrorKind::StorageFull.into()),
            DomainError::Helper {
                command: "runc delete x".to_owned(),
                status: "exit status: 1".to_owned(),
                stderr: "no such container\n".to_owned(),
            },
            DomainError::Ended {
                program: "rampart-meter".to_owned(),
                process: 7,
                status: "signal: 9 (SIGKILL)".to_owned(),
                stderr: String::new(),
            },
            DomainError::NoAnswer {
                program: "rampart-meter".to_owned(),
                process: 7,
                what: "get ready",
                waited: Duration::from_secs(30),
                stderr: String::new(),
            },
            DomainError::Guest {
                guest: "vm".to_owned(),
                what: "the guest ended".to_owned(),
                said: "nothing".to_owned(),
                console: vec!["Kernel panic".to_owned()],
            },
        ];
        for error in errors {
            let text = error.to_string();
            assert!(text.contains("; fix: "), "{text}");
        }
    }
}
