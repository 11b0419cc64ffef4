// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Exit codes of `rampart` and `rampart-meter`. They are part of the stable interface.

/// The exit code of a program. `crates/rampart/src/failure.rs` maps every error to one of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum ExitCode {
    /// The requested work is complete.
    Success = 0,
    /// An error of the environment, or a bug.
    Failure = 1,
    /// The arguments or the plan are invalid; nothing was changed or measured.
    Usage = 2,
    /// Everything was measured, and the verdict on a deadline that the user gave (`--deadline` or
    /// the plan) is not `holds`.
    VerdictNegative = 3,
    /// A precondition is missing (`rampart` and `rampart-meter` of different versions among them),
    /// the machine does not fit the plan, a check found an error, or an applied plan is not in
    /// effect any more; the message names it and the fix.
    PreconditionMissing = 4,
    /// The work ended early (Ctrl-C, or a part of it failed); results until then are kept.
    Partial = 5,
    /// The machine that the work ran on panicked, hung, ended or did not boot; results that
    /// arrived before are kept.
    MachineLost = 6,
    /// Interrupted a second time (128 + SIGINT).
    Interrupted = 130,
}

impl ExitCode {
    /// Every exit code.
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

    /// Returns the code of work that may have ended early.
    #[must_use]
    pub const fn of_work(complete: bool) -> Self {
        if complete {
            Self::Success
        } else {
            Self::Partial
        }
    }

    /// Returns the code of an evaluation. An incomplete one is partial even if a deadline that the
    /// user gave is not met.
    #[must_use]
    pub const fn of_evaluation(complete: bool, meets_deadlines: bool) -> Self {
        match (complete, meets_deadlines) {
            (false, _) => Self::Partial,
            (true, false) => Self::VerdictNegative,
            (true, true) => Self::Success,
        }
    }

    /// Returns the code of a check of the machine or a plan.
    #[must_use]
    pub const fn of_check(passed: bool) -> Self {
        if passed {
            Self::Success
        } else {
            Self::PreconditionMissing
        }
    }

    /// Returns the code of work on `total` parts of which `failed` failed.
    #[must_use]
    pub const fn of_parts(failed: usize, total: usize) -> Self {
        match failed {
            0 => Self::Success,
            _ if failed == total => Self::PreconditionMissing,
            _ => Self::Partial,
        }
    }

    /// Returns the exit code of a program of Rampart; [`ExitCode::Failure`] for any other status,
    /// such as that of a killed program.
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
    fn failed_parts_decide_the_code() {
        assert_eq!(ExitCode::of_parts(0, 0), ExitCode::Success);
        assert_eq!(ExitCode::of_parts(1, 2), ExitCode::Partial);
        assert_eq!(ExitCode::of_parts(2, 2), ExitCode::PreconditionMissing);
    }

    #[test]
    fn an_incomplete_evaluation_decides_no_deadline() {
        assert_eq!(ExitCode::of_evaluation(true, true), ExitCode::Success);
        let missed = ExitCode::of_evaluation(true, false);
        assert_eq!(missed, ExitCode::VerdictNegative);
        for meets_deadlines in [true, false] {
            let code = ExitCode::of_evaluation(false, meets_deadlines);
            assert_eq!(code, ExitCode::Partial);
        }
    }

    #[test]
    fn an_unknown_status_is_a_failure() {
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
