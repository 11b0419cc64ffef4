// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Errors of starting QEMU and of its commands.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// The reason why QEMU does not run.
#[derive(Debug, thiserror::Error)]
pub enum QemuError {
    /// The program could not be started.
    #[error(
        "{}: cannot start: {source}; fix: install QEMU, or name \
         the program by its path", .program.display()
    )]
    NotStarted {
        /// The program.
        program: PathBuf,
        /// The error of the kernel.
        source: io::Error,
    },
    /// It ended before it answered.
    #[error("{}: ended with {status} before it answered; its output: {stderr}", .program.display())]
    EndedAtOnce {
        /// The program.
        program: PathBuf,
        /// Its exit status.
        status: String,
        /// Its standard error.
        stderr: String,
    },
    /// A file, directory or socket failed.
    #[error("{}: cannot {action}: {source}", .path.display())]
    File {
        /// The failed operation.
        action: &'static str,
        /// The path of the file.
        path: PathBuf,
        /// The error of the kernel.
        source: io::Error,
    },
    /// It runs and does not answer.
    #[error("{}: {source}; its output: {stderr}", .program.display())]
    Silent {
        /// The program.
        program: PathBuf,
        /// The failed request.
        source: QmpError,
        /// Its standard error.
        stderr: String,
    },
    /// The path of a socket is longer than the kernel allows.
    #[error(
        "{}: a socket's path has {length} bytes, at most 107 are possible (unix(7)); fix: use a \
         shorter directory: set TMPDIR or XDG_RUNTIME_DIR", .path.display()
    )]
    PathTooLong {
        /// The path of the socket.
        path: PathBuf,
        /// Length of the path in bytes.
        length: usize,
    },
}

/// The reason why a QMP command has no result.
#[derive(Debug, thiserror::Error)]
pub enum QmpError {
    /// QEMU refused the command.
    #[error("QEMU refuses `{command}`: {class}: {description}")]
    Refused {
        /// The command.
        command: String,
        /// QEMU's error class.
        class: String,
        /// QEMU's description.
        description: String,
    },
    /// No answer arrived in time.
    #[error("QEMU has not answered `{command}` within {limit:?}")]
    NoAnswer {
        /// The command.
        command: String,
        /// The time limit.
        limit: Duration,
    },
    /// The connection is closed: QEMU has ended.
    #[error("QEMU closed the connection before it answered `{command}`")]
    Closed {
        /// The command.
        command: String,
    },
    /// The greeting is not that of QMP.
    #[error("the socket does not send a QMP greeting: `{text}`")]
    NotQmp {
        /// The received text.
        text: String,
    },
    /// The connection failed.
    #[error("the QMP connection failed: {0}")]
    Connection(#[from] io::Error),
}
