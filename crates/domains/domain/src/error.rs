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
    /// The meter refused the settings.
    #[error("{}", .0.finding)]
    Refused(Refusal),
    /// This machine cannot host the domain.
    #[error("{0}")]
    Unavailable(Finding),
    /// The isolation could not be applied or undone.
    #[error(transparent)]
    Host(#[from] HostError),
    /// A program could not be started.
    #[error("{program}: cannot start: {source}; fix: {fix}")]
    NotStarted {
        /// The program.
        program: String,
        /// Why not.
        source: io::Error,
        /// The fix.
        fix: String,
    },
    /// A program ended before its last event.
    #[error(
        "{program} (process {process}) ended too early: {status}{}; fix: check with `dmesg` whether the kernel ended it, then run the same command again",
        stderr_end(.stderr)
    )]
    Ended {
        /// The program.
        program: String,
        /// The id of its process.
        process: u32,
        /// Its exit status.
        status: String,
        /// The end of its standard error.
        stderr: String,
    },
    /// A program did not answer.
    #[error(
        "{program} (process {process}) did not {what} within {:.1} s{}; fix: check with `top` whether its CPUs are busy, then run the same command again",
        .waited.as_secs_f64(), stderr_end(.stderr)
    )]
    NoAnswer {
        /// The program.
        program: String,
        /// The id of its process.
        process: u32,
        /// The expected action, after "did not".
        what: &'static str,
        /// Time waited.
        waited: Duration,
        /// The end of its standard error.
        stderr: String,
    },
    /// A program printed a line that is not part of the meter protocol.
    #[error(
        "{program} (process {process}) printed `{line}`, which is not a meter event: {reason}; fix: install `rampart` and `rampart-meter` from the same build"
    )]
    UnexpectedOutput {
        /// The program.
        program: String,
        /// The id of its process.
        process: u32,
        /// The beginning of the line.
        line: String,
        /// The parse error.
        reason: String,
    },
    /// A helper program such as `runc` failed.
    #[error(
        "`{command}` failed: {status}{}; fix: run the command in a shell, and fix the error that it prints",
        stderr_end(.stderr)
    )]
    Helper {
        /// The complete command.
        command: String,
        /// Its exit status.
        status: String,
        /// Its standard error.
        stderr: String,
    },
    /// A guest did not boot, or has ended.
    #[error(
        "guest {guest}: {what}{}; fix: check the end of its console below, run the same command again, or name another kernel in {}{}",
        qemu_stderr(.stderr), crate::vm::KERNEL_VARIABLE, console_end(.console)
    )]
    Guest {
        /// Its name.
        guest: String,
        /// The failure.
        what: String,
        /// QEMU's standard error.
        stderr: String,
        /// The last lines of its console.
        console: Vec<String>,
    },
    /// A cell did not start, or has ended.
    #[error(
        "cell {cell}: {what}; fix: check `rampart cell list` and `dmesg`, then run the same command again"
    )]
    Cell {
        /// Its name.
        cell: String,
        /// The failure.
        what: String,
    },
    /// A cell could not be created or operated.
    #[error(transparent)]
    Operate(#[from] rampart_cells::operate::OperateError),
    /// QEMU could not be started.
    #[error(transparent)]
    Qemu(#[from] rampart_qemu::QemuError),
    /// QEMU did not carry out a command.
    #[error(transparent)]
    Monitor(#[from] rampart_qemu::QmpError),
    /// The guest agent did not carry out a request.
    #[error("in the guest: {0}")]
    Agent(#[from] rampart_agent::AgentError),
    /// A file could not be read, written or created.
    #[error("{}: cannot {action}: {source}; fix: {}", .path.display(), fix_of(.source))]
    File {
        /// The action that failed.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the system call.
        source: io::Error,
    },
    /// A thread of the meter could not be bound to its CPU or given its policy.
    #[error("{finding}")]
    NotPlaced {
        /// The process.
        process: u32,
        /// The thread, with the value found and the value expected.
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

/// Returns the fix for a file that could not be used.
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

/// Formats QEMU's standard error as a part of a message.
fn qemu_stderr(text: &str) -> String {
    match text.trim() {
        "" | "nothing" => String::new(),
        text => format!("; QEMU reports: {text}"),
    }
}

/// Formats the last lines of a console as the end of a message.
fn console_end(lines: &[String]) -> String {
    if lines.is_empty() {
        "; its console is empty".to_owned()
    } else {
        format!("; its console ends with:\n  {}", lines.join("\n  "))
    }
}

/// Formats the end of a program's standard error as the end of a message.
fn stderr_end(stderr: &str) -> String {
    let text = stderr.trim();
    if text.is_empty() {
        String::new()
    } else {
        format!("; its standard error: {text}")
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
                stderr: "nothing".to_owned(),
                console: vec!["Kernel panic".to_owned()],
            },
        ];
        for error in errors {
            let text = error.to_string();
            assert!(text.contains("; fix: "), "{text}");
        }
    }
}
