// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Why QEMU did not start, or did not do what it was told.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Why there is no running QEMU.
#[derive(Debug, thiserror::Error)]
pub enum QemuError {
    /// The program could not be started at all.
    #[error(
        "{}: cannot be started: {source}; fix: install QEMU (on Debian: apt-get install \
         qemu-system-x86) or name the program by its path", .program.display()
    )]
    NotStarted {
        /// The program.
        program: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// It ended before it answered.
    #[error("{}: ended with {status} before it answered; its output: {said}", .program.display())]
    EndedAtOnce {
        /// The program.
        program: PathBuf,
        /// How it ended.
        status: String,
        /// What it wrote to its standard error.
        said: String,
    },
    /// A file, directory or socket failed.
    #[error("{}: cannot {action}: {source}", .path.display())]
    File {
        /// What was tried.
        action: &'static str,
        /// Where.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// It runs and does not speak.
    #[error("{}: {source}; it says: {said}", .program.display())]
    Silent {
        /// The program.
        program: PathBuf,
        /// What failed.
        source: QmpError,
        /// What it wrote to its standard error.
        said: String,
    },
    /// The path of a socket is longer than the kernel takes.
    #[error(
        "{}: a socket's path has {length} bytes here, needed at most 107 (unix(7)); fix: a \
         shorter directory, by TMPDIR or XDG_RUNTIME_DIR", .path.display()
    )]
    PathTooLong {
        /// The socket.
        path: PathBuf,
        /// Bytes of its path.
        length: usize,
    },
}

/// Why a QMP command has no result.
#[derive(Debug, thiserror::Error)]
pub enum QmpError {
    /// QEMU refused the command.
    #[error("QEMU refuses `{command}`: {class}: {description}")]
    Refused {
        /// The command.
        command: String,
        /// QEMU's class of the error.
        class: String,
        /// QEMU's words.
        description: String,
    },
    /// No answer in time.
    #[error("QEMU has not answered `{command}` within {limit:?}")]
    NoAnswer {
        /// The command.
        command: String,
        /// How long was waited.
        limit: Duration,
    },
    /// The connection is closed: QEMU is gone.
    #[error("QEMU closed the connection before it answered `{command}`")]
    Closed {
        /// The command.
        command: String,
    },
    /// The greeting is not QMP's.
    #[error("the socket does not send a QMP greeting: `{text}`")]
    NotQmp {
        /// What was read.
        text: String,
    },
    /// The connection failed.
    #[error("the QMP connection failed: {0}")]
    Connection(#[from] io::Error),
}
