// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Exit codes of `rampart` and `rampart-meter`. They are part of the stable interface.

/// What a program's exit code says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum ExitCode {
    /// All that was asked was done.
    Success = 0,
    /// An error of the environment, or a bug.
    Failure = 1,
    /// The arguments or the plan make no sense; nothing was changed or measured.
    Usage = 2,
    /// Everything was measured, and a verdict the user asked for (`--deadline`) is not `holds`.
    VerdictNegative = 3,
    /// Something that the work needs is missing, or a check found a problem; the message names it
    /// and the mend.
    PreconditionMissing = 4,
    /// The work ended early (Ctrl-C, or a part of it failed); what was measured is kept.
    Partial = 5,
    /// The machine that the work ran on panicked, hung, ended or never came up; what came back
    /// until then is kept.
    MachineLost = 6,
    /// Interrupted a second time, at once (128 + SIGINT).
    Interrupted = 130,
}

impl From<ExitCode> for std::process::ExitCode {
    fn from(code: ExitCode) -> Self {
        Self::from(code as u8)
    }
}
