// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The errors of the simulated machine.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rampart_agent::AgentError;
use rampart_qemu::QemuError;

use super::architecture::Architecture;

/// Why a simulated machine was not built, did not boot, or was lost.
#[derive(Debug, thiserror::Error)]
pub enum SimError {
    /// A file operation failed.
    #[error("{}: cannot {action}: {source}", .path.display())]
    File {
        /// The operation, after "cannot".
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A required program is missing on this machine.
    #[error(
        "cannot start {program}, needed to {purpose}: {source}; fix: apt-get install {package}"
    )]
    ProgramMissing {
        /// The program.
        program: &'static str,
        /// Its purpose, after "needed to".
        purpose: &'static str,
        /// The package that contains it.
        package: &'static str,
        /// The cause.
        source: io::Error,
    },
    /// A program of this machine failed.
    #[error("`{command}` ended with {status}, output: {output}")]
    ProgramFailed {
        /// Its command line, shortened.
        command: String,
        /// How it ended.
        status: String,
        /// Its last lines.
        output: String,
    },
    /// A program of this machine hung.
    #[error(
        "`{command}` made no progress for {} s and was ended; fix: run it in a shell to see what it \
         waits for", .limit.as_secs()
        )]
    ProgramHung {
        /// Its command line, shortened.
        command: String,
        /// The time limit.
        limit: Duration,
    },
    /// Another build does not end.
    #[error(
        "{}: locked by another build of the simulated machine for {} s; fix: end the process that \
         `fuser -v {}` prints", .path.display(), .limit.as_secs(), .path.display()
        )]
    OtherBuild {
        /// The lock.
        path: PathBuf,
        /// How long was waited.
        limit: Duration,
    },
    /// Another `sim up` does not finish.
    #[error(
        "{}: locked by another `rampart sim up` for {} s; fix: end the process that `fuser -v {}` \
         prints", .path.display(), .limit.as_secs(), .path.display()
        )]
    OtherUp {
        /// The lock.
        path: PathBuf,
        /// The time limit.
        limit: Duration,
    },
    /// The architecture of this machine cannot be simulated.
    #[error(
        "cannot simulate a machine of {present}, only of {}; fix: name one, as in --on sim:{} or \
         rampart sim --architecture {}", .known.join(" and "),
        .known.first().copied().unwrap_or_default(), .known.first().copied().unwrap_or_default()
        )]
    NoArchitecture {
        /// The architecture of this machine.
        present: &'static str,
        /// The architectures that can be simulated.
        known: Vec<&'static str>,
    },
    /// The user interrupted it.
    #[error("interrupted while the simulated machine was booting")]
    Interrupted,
    /// The packages cannot be fetched.
    #[error(
        "cannot fetch the packages of the simulated machine from {mirror}: {source}; fix: check the \
         network, or name a mirror in RAMPART_DEBIAN_MIRROR"
    )]
    NotFetched {
        /// The mirror.
        mirror: String,
        /// The cause.
        source: Box<SimError>,
    },
    /// The cache directory is unknown.
    #[error(
        "no directory for the simulated machine: neither XDG_CACHE_HOME nor HOME is set; fix: export HOME"
    )]
    NoCacheDirectory,
    /// A package or the image is unusable.
    #[error("cannot build or use the simulated machine: {0}")]
    Image(String),
    /// The options contradict each other.
    #[error("{0}")]
    Options(String),
    /// QEMU failed.
    #[error(transparent)]
    Qemu(#[from] QemuError),
    /// The machine did not boot in time.
    #[error(
        "the simulated machine did not start within {} s, last lines of its console:\n{}", .limit.as_secs(),
        indented(.console)
    )]
    NeverUp {
        /// The time limit.
        limit: Duration,
        /// The end of its console.
        console: Vec<String>,
    },
    /// The kernel panicked.
    #[error("the simulated machine's kernel panicked, last lines of its console:\n{}", indented(.console))]
    Panicked {
        /// The end of its console.
        console: Vec<String>,
    },
    /// The machine switched itself off or was reset.
    #[error("the simulated machine has ended ({how}), last lines of its console:\n{}", indented(.console))]
    Ended {
        /// How, in QEMU's words.
        how: String,
        /// The end of its console.
        console: Vec<String>,
    },
    /// The machine runs but does not respond.
    #[error(
        "the simulated machine has not responded for {} s, last lines of its console:\n{}",
        .silence.as_secs(), indented(.console)
    )]
    Hung {
        /// How long it has not responded.
        silence: Duration,
        /// The end of its console.
        console: Vec<String>,
    },
    /// Its agent failed for another reason.
    #[error("the simulated machine's agent: {0}")]
    Agent(#[from] AgentError),
    /// A machine of this architecture is up already.
    #[error(
        "a simulated machine ({architecture}) is up already (process {process}); fix: `rampart sim \
         down{}`", .architecture.option()
    )]
    AlreadyUp {
        /// Its architecture.
        architecture: &'static Architecture,
        /// The process that runs it.
        process: u32,
    },
    /// No machine of this architecture is up.
    #[error(
        "no simulated machine ({architecture}) is up; fix: `rampart sim up{}`",
        .architecture.option()
    )]
    NoneUp {
        /// The requested architecture.
        architecture: &'static Architecture,
    },
    /// A machine could not be saved; it is booted without a snapshot then.
    #[error("cannot save the simulated machine: {reason}")]
    Snapshot {
        /// The cause.
        reason: String,
    },
    /// All agents of the machine are in use.
    #[error(
        "{limit} commands use the simulated machine that is up, and it admits no more; fix: end one \
         of them"
    )]
    Busy {
        /// The greatest number of commands.
        limit: usize,
    },
}

impl SimError {
    /// Returns a function for `map_err` on file operations.
    pub(super) fn file(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File {
            action,
            path,
            source,
        }
    }
}

fn indented(lines: &[String]) -> String {
    if lines.is_empty() {
        return "  (the console is empty)".to_owned();
    }
    lines
        .iter()
        .map(|line| format!("  {line}"))
        .collect::<Vec<_>>()
        .join("\n")
}
