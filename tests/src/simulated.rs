// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs `rampart` with simulated machines.

use std::process::{Command, Output, Stdio};

use rampart_model::ExitCode;

use crate::limited::Limited as _;
use crate::programs::directory;

/// Exit code for a missing precondition.
pub const MISSING: i32 = ExitCode::PreconditionMissing as i32;

/// Exit code for a lost machine.
pub const MACHINE_LOST: i32 = ExitCode::MachineLost as i32;

/// Returns the command `rampart` with these arguments, without input, and with the default state directory.
#[must_use]
pub fn rampart(arguments: &[&str]) -> Command {
    let mut command = Command::new(directory().join("rampart"));
    command
        .args(arguments)
        .env_remove("RAMPART_METER")
        .stdin(Stdio::null());
    command
}

/// Returns the command `rampart sim` with these arguments.
#[must_use]
pub fn sim(arguments: &[&str]) -> Command {
    rampart(&[&["sim"], arguments].concat())
}

/// Runs a command and returns its output.
///
/// # Panics
/// If it does not start or does not end in time.
#[must_use]
pub fn finish(mut command: Command) -> Output {
    command.finish().expect("rampart starts")
}
