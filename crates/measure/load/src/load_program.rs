// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Finds the program that makes the loads: `stress-ng`, or the meter if that is not usable.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rampart_host::run_within;

use crate::LoadError;

/// Time limit for the program to print its version. An emulated machine needs seconds.
const VERSION_TIMEOUT: Duration = Duration::from_secs(60);

/// The program that makes the loads.
#[derive(Debug)]
pub enum LoadProgram {
    /// `stress-ng`.
    StressNg {
        /// Path of the program.
        path: PathBuf,
        /// Its name and version, for example `stress-ng 0.15.06`.
        version: String,
    },
    /// The meter, whose own loads replace those of `stress-ng`.
    Meter {
        /// Path of the program.
        path: PathBuf,
        /// Why `stress-ng` is not used.
        reason: LoadError,
    },
}

impl LoadProgram {
    /// Returns `stress-ng` of `PATH` if it prints its version, otherwise the program `meter`.
    #[must_use]
    pub fn find(meter: &Path) -> Self {
        let searched = std::env::var("PATH").unwrap_or_default();
        let stress_ng = std::env::split_paths(&searched)
            .map(|directory| directory.join("stress-ng"))
            .find(|path| path.is_file())
            .ok_or(LoadError::Missing { searched });
        match stress_ng.and_then(|path| Ok((read_version(&path, VERSION_TIMEOUT)?, path))) {
            Ok((version, path)) => Self::StressNg { path, version },
            Err(reason) => Self::Meter {
                path: meter.to_owned(),
                reason,
            },
        }
    }

    /// Returns name and version, as a record names the program.
    #[must_use]
    pub fn version(&self) -> String {
        match self {
            Self::StressNg { version, .. } => version.clone(),
            Self::Meter { .. } => format!("rampart-meter {}", env!("CARGO_PKG_VERSION")),
        }
    }
}

/// Returns the version that the program prints.
fn read_version(program: &Path, timeout: Duration) -> Result<String, LoadError> {
    let mut command = Command::new(program);
    command.arg("--version");
    let result =
        run_within(command, timeout).map_err(LoadError::file("start the program", program))?;
    let answer = result.output;
    match (version(&answer), result.status) {
        (Some(version), _) => Ok(version),
        (None, None) => Err(LoadError::Hung {
            path: program.to_owned(),
            waited: timeout,
        }),
        (None, Some(_)) => Err(LoadError::NoVersion {
            path: program.to_owned(),
            answer: answer.chars().take(80).collect(),
        }),
    }
}

/// Parses `stress-ng 0.15.06` from `stress-ng, version 0.15.06 (gcc 12.2.0, …)`.
fn version(answer: &str) -> Option<String> {
    let number = answer
        .strip_prefix("stress-ng, version ")?
        .split_whitespace()
        .next()?;
    Some(format!("stress-ng {number}"))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn parses_the_version() {
        let answer = "stress-ng, version 0.15.06 (gcc 12.2.0, x86_64 Linux 6.18)\n";
        assert_eq!(version(answer).as_deref(), Some("stress-ng 0.15.06"));
        assert_eq!(version("stress 1.0"), None);
    }

    #[test]
    fn reports_a_program_without_a_version_and_one_that_hangs() {
        let directory = tempfile::tempdir().expect("directory");
        let program = directory.path().join("stress-ng");
        let make = |script: &str| {
            fs::write(&program, format!("#!/bin/sh\n{script}\n")).expect("file");
            fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("mode");
        };
        make("echo other; exit 1");
        let error = read_version(&program, Duration::from_secs(60)).expect_err("no version");
        assert!(error.to_string().contains("printed `other"), "{error}");
        make("sleep 1000");
        let error = read_version(&program, Duration::from_secs(1)).expect_err("it hangs");
        let text = error.to_string();
        assert!(
            text.contains("within 1 s") && !text.contains("printed"),
            "{text}"
        );
    }
}
