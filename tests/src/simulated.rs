// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs `rampart` where a simulated machine is meant.

use std::process::{Child, Command, Output, Stdio};

use rampart_model::ExitCode;

use crate::limited::Limited as _;
use crate::programs::directory;

/// Something is missing.
pub const MISSING: i32 = ExitCode::PreconditionMissing as i32;

/// A machine was lost.
pub const MACHINE_LOST: i32 = ExitCode::MachineLost as i32;

/// `rampart` with these arguments and nothing to read, its state in the usual place, where the image
/// of the simulated machine is.
#[must_use]
pub fn rampart(arguments: &[&str]) -> Command {
    let mut command = Command::new(directory().join("rampart"));
    command
        .args(arguments)
        .env_remove("RAMPART_METER")
        .stdin(Stdio::null());
    command
}

/// `rampart sim` with these arguments.
#[must_use]
pub fn sim(arguments: &[&str]) -> Command {
    rampart(&[&["sim"], arguments].concat())
}

/// What it says and ends with.
///
/// # Panics
/// If it does not start, or does not end in time.
#[must_use]
pub fn finish(mut command: Command) -> Output {
    command.finish().expect("rampart starts")
}

/// Ends what a failed test left.
#[derive(Debug)]
pub struct KillAtEnd(pub Child);

impl Drop for KillAtEnd {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
