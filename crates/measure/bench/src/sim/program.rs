// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs of this machine that the making of an image needs.

use std::process::Command;
use std::time::Duration;

use rampart_host::output_within;

use super::error::SimError;

/// How long a program may show no progress: the slowest of them, without a sign of it, unpacks one
/// package or waits for a server that apt gives up after some tries.
const PATIENCE: Duration = Duration::from_secs(10 * 60);

/// How long a program may take to tell a setting of this machine.
const ASKED: Duration = Duration::from_secs(30);

/// A program of this machine that the work needs.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) name: &'static str,
    /// What it is needed for, after "needed to".
    pub(super) purpose: &'static str,
    /// The package that brings it.
    pub(super) package: &'static str,
}

impl Program {
    /// Runs `command`, this program with its arguments, to its end: its output. `progress` is asked
    /// every moment how far it is, and is to tell something else within [`PATIENCE`].
    pub(super) fn run(
        &self,
        command: Command,
        progress: &mut dyn FnMut() -> u64,
    ) -> Result<String, SimError> {
        self.run_within(PATIENCE, command, progress)
    }

    fn run_within(
        &self,
        limit: Duration,
        command: Command,
        progress: &mut dyn FnMut() -> u64,
    ) -> Result<String, SimError> {
        let told: String = format!("{command:?}").chars().take(200).collect();
        let ended = output_within(command, limit, progress);
        let ended = ended.map_err(|source| SimError::ProgramMissing {
            program: self.name,
            purpose: self.purpose,
            package: self.package,
            source,
        })?;
        let Some(output) = ended else {
            return Err(SimError::ProgramHung {
                command: told,
                limit,
            });
        };
        if !output.status.success() {
            let text = String::from_utf8_lossy(&output.stderr);
            let lines: Vec<_> = text.lines().rev().take(5).collect();
            return Err(SimError::ProgramFailed {
                command: told,
                status: output.status.to_string(),
                said: lines.into_iter().rev().collect::<Vec<_>>().join("; "),
            });
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// What a program of this machine says, if it says anything.
pub(super) fn said(command: Command) -> String {
    let output = output_within(command, ASKED, &mut || 0);
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
    fn a_program_that_hangs_is_told_with_what_it_was() {
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
