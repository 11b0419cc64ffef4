// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The programs of this machine that build an image.

use std::process::Command;
use std::time::Duration;

use rampart_host::output_within;

use super::error::SimError;

/// How long a program may make no progress. The longest such times are to unpack one package, and
/// apt's retries of a server.
const TIMEOUT: Duration = Duration::from_secs(10 * 60);

/// How long a program may take to print a setting of this machine.
const QUERY_LIMIT: Duration = Duration::from_secs(30);

/// A required program of this machine.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) name: &'static str,
    /// Its purpose, after "needed to".
    pub(super) purpose: &'static str,
    /// The package that contains it.
    pub(super) package: &'static str,
}

impl Program {
    /// Runs `command`, which is this program with its arguments, to its end and returns its output.
    /// The value of `progress` has to change within [`TIMEOUT`].
    pub(super) fn run(
        &self,
        command: Command,
        progress: &mut dyn FnMut() -> u64,
    ) -> Result<String, SimError> {
        self.run_within(TIMEOUT, command, progress)
    }

    fn run_within(
        &self,
        limit: Duration,
        command: Command,
        progress: &mut dyn FnMut() -> u64,
    ) -> Result<String, SimError> {
        let shown: String = format!("{command:?}").chars().take(200).collect();
        let ended = output_within(command, limit, progress);
        let ended = ended.map_err(|source| SimError::ProgramMissing {
            program: self.name,
            purpose: self.purpose,
            package: self.package,
            source,
        })?;
        let Some(output) = ended else {
            return Err(SimError::ProgramHung {
                command: shown,
                limit,
            });
        };
        if !output.status.success() {
            let text = String::from_utf8_lossy(&output.stderr);
            let lines: Vec<_> = text.lines().rev().take(5).collect();
            return Err(SimError::ProgramFailed {
                command: shown,
                status: output.status.to_string(),
                output: lines.into_iter().rev().collect::<Vec<_>>().join("; "),
            });
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// Returns the output of a program of this machine; empty if it fails.
pub(super) fn output_of(command: Command) -> String {
    let output = output_within(command, QUERY_LIMIT, &mut || 0);
    output
        .ok()
        .flatten()
        .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_a_hung_program_with_its_command_line() {
        let mut command = Command::new("sleep");
        command.arg("1000");
        let program = Program {
            name: "sleep",
            purpose: "wait",
            package: "coreutils",
        };
        let error = program
            .run_within(Duration::from_millis(100), command, &mut || 0)
            .expect_err("it hangs");
        let text = error.to_string();
        assert!(text.contains("1000") && text.contains("fix"), "{text}");
    }
}
