// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The errors of a load.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use rampart_host::HostError;
use rampart_model::{Condition, CpuId};

/// Why a load did not start. No part of it runs then.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The program is not installed.
    #[error("stress-ng is not in PATH ({})", if searched.is_empty() { "empty" } else { searched })]
    Missing {
        /// The directories that were searched.
        searched: String,
    },
    /// The program does not print its version.
    #[error("`{path} --version` printed `{answer}`, expected `stress-ng, version …`")]
    NoVersion {
        /// The program.
        path: PathBuf,
        /// The beginning of its answer.
        answer: String,
    },
    /// The program neither prints its version nor ends.
    #[error("`{path} --version` did not end within {} s and was killed", .waited.as_secs())]
    Hung {
        /// The program.
        path: PathBuf,
        /// The time waited for its end.
        waited: Duration,
    },
    /// There is no CPU for the load.
    #[error("load `{condition}`: no CPU is left for it; fix: use `@same`, or measure fewer CPUs")]
    NoLocation {
        /// The load.
        condition: Condition,
    },
    /// There is too little memory.
    #[error(
        "load `{condition}`: {available} bytes of memory are free, needed {needed}; fix: end other programs, or leave this load out"
    )]
    NoMemory {
        /// The load.
        condition: Condition,
        /// Free memory in bytes.
        available: u64,
        /// Least memory in bytes that the load needs.
        needed: u64,
    },
    /// A file or directory failed.
    #[error("{}: cannot {action}: {source}", .path.display())]
    File {
        /// The action that failed.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The load cannot be bound to its CPU.
    #[error(
        "cannot bind load `{condition}` to CPU {cpu}: {source}; fix: choose CPUs that are online and inside the cpuset of this shell"
    )]
    NotBound {
        /// The load.
        condition: Condition,
        /// The CPU.
        cpu: CpuId,
        /// The kernel's error.
        source: io::Error,
    },
    /// The shield of the CPUs does not admit the load.
    #[error(transparent)]
    Shield(Box<HostError>),
    /// The load was started and did not run.
    #[error("`{command}`: {reason}")]
    DidNotRun {
        /// The complete command.
        command: String,
        /// Its output, or the evidence that is missing.
        reason: String,
    },
}

impl From<HostError> for LoadError {
    fn from(error: HostError) -> Self {
        Self::Shield(Box::new(error))
    }
}

impl LoadError {
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
