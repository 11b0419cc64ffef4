// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Why there is no simulated machine, or no longer.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rampart_agent::AgentError;
use rampart_qemu::QemuError;

use super::architecture::Architecture;

/// Why a simulated machine was not built, did not come up, or was lost.
#[derive(Debug, thiserror::Error)]
pub enum SimError {
    /// A file or directory failed.
    #[error("{}: cannot {action}: {source}", .path.display())]
    File {
        /// What was tried.
        action: &'static str,
        /// Where.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A program of this machine is needed and not there.
    #[error(
        "{program}: cannot be started: {source}; needed to {purpose}; fix: apt-get install {package}"
    )]
    ProgramMissing {
        /// The program.
        program: &'static str,
        /// What for.
        purpose: &'static str,
        /// Who brings it.
        package: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A program of this machine failed.
    #[error("`{command}` ended with {status}, output: {said}")]
    ProgramFailed {
        /// Its command line, shortened.
        command: String,
        /// How it ended.
        status: String,
        /// Its last lines.
        said: String,
    },
    /// A program of this machine did not come to an end.
    #[error(
        "`{command}` has shown no progress for {} s and was ended; fix: try it by hand, and look \
         what it waits for", .limit.as_secs()
    )]
    ProgramHung {
        /// Its command line, shortened.
        command: String,
        /// How long was waited.
        limit: Duration,
    },
    /// Another build does not end.
    #[error(
        "{}: locked by another build of the simulated machine for {} s; fix: wait for it, or end \
         it (`fuser -v {}` names its process)", .path.display(), .limit.as_secs(), .path.display()
    )]
    OtherBuild {
        /// The lock.
        path: PathBuf,
        /// How long was waited.
        limit: Duration,
    },
    /// Another machine that comes up does not get ready.
    #[error(
        "{}: locked by another `rampart sim up` for {} s; fix: end it (`fuser -v {}` names its \
         process)", .path.display(), .limit.as_secs(), .path.display()
    )]
    OtherUp {
        /// The lock.
        path: PathBuf,
        /// How long was waited.
        limit: Duration,
    },
    /// There is no simulated machine of this machine's architecture.
    #[error(
        "this machine is {present}, and there are simulated ones of {}; fix: name one of them, as in \
         --on sim:{} or rampart sim --architecture {}", .known.join(" and "),
        .known.first().copied().unwrap_or_default(), .known.first().copied().unwrap_or_default()
    )]
    NoArchitecture {
        /// This machine's.
        present: &'static str,
        /// Those that can be simulated.
        known: Vec<&'static str>,
    },
    /// The user ended it.
    #[error("interrupted while the simulated machine was booting")]
    Interrupted,
    /// The packages cannot be fetched.
    #[error(
        "the packages of the simulated machine cannot be fetched from {mirror}: {source}; fix: a \
         network, or a mirror in RAMPART_DEBIAN_MIRROR"
    )]
    NotFetched {
        /// Where from.
        mirror: String,
        /// What failed.
        source: Box<SimError>,
    },
    /// The directory for the cache is not known.
    #[error(
        "neither XDG_CACHE_HOME nor HOME is set; needed to keep the simulated machine; fix: set one"
    )]
    NoCacheDirectory,
    /// A package or the image lacks something.
    #[error("the simulated machine cannot be made: {0}")]
    Image(String),
    /// The options make no sense together.
    #[error("{0}")]
    Options(String),
    /// QEMU failed.
    #[error(transparent)]
    Qemu(#[from] QemuError),
    /// The machine did not come up in time.
    #[error(
        "the simulated machine did not start within {} s, last lines of its console:\n{}", .limit.as_secs(),
        indented(.console)
    )]
    NeverUp {
        /// How long was waited.
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
    /// The machine runs and says nothing.
    #[error(
        "the simulated machine has not responded for {} s, last lines of its console:\n{}",
        .silence.as_secs(), indented(.console)
    )]
    Hung {
        /// For how long.
        silence: Duration,
        /// The end of its console.
        console: Vec<String>,
    },
    /// The conversation with its agent failed for another reason.
    #[error("the simulated machine's agent: {0}")]
    Agent(#[from] AgentError),
    /// One is up already.
    #[error(
        "a simulated machine ({architecture}) is up already (process {process}); fix: `rampart sim \
         down{}`", .architecture.option()
    )]
    AlreadyUp {
        /// What it simulates.
        architecture: &'static Architecture,
        /// The process that holds it.
        process: u32,
    },
    /// None is up.
    #[error(
        "no simulated machine ({architecture}) is up; fix: `rampart sim up{}`",
        .architecture.option()
    )]
    NoneUp {
        /// What it would simulate.
        architecture: &'static Architecture,
    },
    /// All ways in are taken.
    #[error(
        "the simulated machine that is up serves {limit} commands already; fix: end one of them"
    )]
    Busy {
        /// How many it serves.
        limit: usize,
    },
}

impl SimError {
    /// For `map_err` on operations on files.
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
        return "  (nothing was written to the console)".to_owned();
    }
    lines
        .iter()
        .map(|line| format!("  {line}"))
        .collect::<Vec<_>>()
        .join("\n")
}
