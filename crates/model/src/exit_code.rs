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
    /// Something that the work needs is missing, the machine does not fit the plan, a check found a
    /// problem, or something of an applied plan does not hold; the message names it and the fix.
    PreconditionMissing = 4,
    /// The work ended early (Ctrl-C, or a part of it failed); what was measured is kept.
    Partial = 5,
    /// The machine that the work ran on panicked, hung, ended or never came up; what came back
    /// until then is kept.
    MachineLost = 6,
    /// Interrupted a second time, at once (128 + SIGINT).
    Interrupted = 130,
}

impl ExitCode {
    /// Each of them.
    pub const ALL: [Self; 8] = [
        Self::Success,
        Self::Failure,
        Self::Usage,
        Self::VerdictNegative,
        Self::PreconditionMissing,
        Self::Partial,
        Self::MachineLost,
        Self::Interrupted,
    ];

    /// What one of the programs ended with; [`ExitCode::Failure`] for a status that is none of
    /// theirs, as that of a program that was killed.
    #[cfg(feature = "std")]
    #[must_use]
    pub fn from_status(status: std::process::ExitStatus) -> Self {
        Self::ALL
            .into_iter()
            .find(|code| status.code() == Some(*code as i32))
            .unwrap_or(Self::Failure)
    }
}

impl From<ExitCode> for std::process::ExitCode {
    fn from(code: ExitCode) -> Self {
        Self::from(code as u8)
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::ExitStatus;

    use super::*;

    #[test]
    fn a_status_is_one_of_ours_or_a_failure() {
        for code in ExitCode::ALL {
            let status = ExitStatus::from_raw(i32::from(code as u8) << 8);
            assert_eq!(ExitCode::from_status(status), code);
        }
        assert_eq!(
            ExitCode::from_status(ExitStatus::from_raw(9)),
            ExitCode::Failure
        );
        assert_eq!(
            ExitCode::from_status(ExitStatus::from_raw(77 << 8)),
            ExitCode::Failure
        );
    }
}
