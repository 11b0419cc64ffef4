// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Errors as the user sees them: a message on standard error and an exit code.
//!
//! Every error becomes an exit code here and nowhere else.

use std::error::Error;
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

use rampart_agent::AgentError;
use rampart_bench::BenchError;
use rampart_bench::sim::SimError;
use rampart_cells::operate::OperateError;
use rampart_domain::DomainError;
use rampart_evaluate::EvaluateError;
use rampart_host::HostError;
use rampart_live::LiveError;
use rampart_load::BlocksError;
use rampart_model::{ExitCode, Refusal, RefusalKind};
use rampart_plan::ProposeError;
use rampart_qemu::QemuError;
use rampart_supervise::{PlanFileError, ShieldError, SuperviseError};

/// An error that ends a command, with its exit code.
#[derive(Debug)]
pub(crate) struct Failure {
    code: ExitCode,
    text: String,
    /// The reader of standard output closed it.
    broken_pipe: bool,
}

impl Failure {
    fn new(code: ExitCode, text: impl std::fmt::Display, error: &(dyn Error + 'static)) -> Self {
        let mut cause = Some(error);
        let mut broken_pipe = false;
        while let Some(error) = cause {
            broken_pipe |= error
                .downcast_ref::<io::Error>()
                .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe);
            cause = error.source();
        }
        Self {
            code,
            text: text.to_string(),
            broken_pipe,
        }
    }

    const fn plain(code: ExitCode, text: String) -> Self {
        Self {
            code,
            text,
            broken_pipe: false,
        }
    }

    /// The arguments, or a file that they name, are invalid.
    pub(crate) fn usage(text: impl std::fmt::Display) -> Self {
        Self::plain(ExitCode::Usage, text.to_string())
    }

    /// Something that the command needs is missing.
    pub(crate) fn precondition(text: impl std::fmt::Display) -> Self {
        Self::plain(ExitCode::PreconditionMissing, text.to_string())
    }

    /// Prints the error and returns its exit code. A closed standard output is not an error.
    pub(crate) fn report(self) -> ExitCode {
        if self.broken_pipe {
            return ExitCode::Success;
        }
        crate::output::eprint(&rampart_present::message(&format!("error: {self}")));
        self.code
    }

    /// Prints the errors of some of `total` parts of a command and returns the exit code of the
    /// command: that of the last error if every part failed.
    pub(crate) fn report_each(failures: Vec<Self>, total: usize) -> ExitCode {
        let every_part_failed = failures.len() == total;
        // Each is printed; the last decides.
        match failures
            .into_iter()
            .fold(None, |_, failure| Some(failure.report()))
        {
            None => ExitCode::Success,
            Some(code) if every_part_failed => code,
            Some(_) => ExitCode::Partial,
        }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::new(ExitCode::Failure, format!("{error:#}"), error.as_ref())
    }
}

/// Implements `From` for an error type with a function that returns its exit code.
macro_rules! exit_codes {
    ($($error:ty => $code:expr),+ $(,)?) => {$(
        impl From<$error> for Failure {
            fn from(error: $error) -> Self {
                let code: fn(&$error) -> ExitCode = $code;
                Self::new(code(&error), &error, &error)
            }
        }
    )+};
}

exit_codes! {
    io::Error => |_| ExitCode::Failure,
    serde_json::Error => |_| ExitCode::Failure,
    BenchError => bench,
    BlocksError => blocks,
    DomainError => domain,
    EvaluateError => evaluate,
    HostError => host,
    LiveError => live,
    OperateError => cells,
    PlanFileError => plan_file,
    ProposeError => |_| ExitCode::PreconditionMissing,
    ShieldError => shield,
    SimError => sim,
    SuperviseError => supervise,
}

fn refusal(refusal: &Refusal) -> ExitCode {
    match refusal.kind {
        RefusalKind::BadPlan => ExitCode::Usage,
        _ => ExitCode::PreconditionMissing,
    }
}

fn host(error: &HostError) -> ExitCode {
    match error {
        HostError::Request { .. }
        | HostError::Refused(_)
        | HostError::Busy { .. }
        | HostError::Step { .. } => ExitCode::PreconditionMissing,
        HostError::File { cause, .. } => file(cause),
        HostError::NotRestored { .. } => ExitCode::Partial,
    }
}

/// A file of the kernel or of the state directory that is missing or needs a privilege is a
/// missing precondition; every other error of a file is one of the environment.
fn file(cause: &io::Error) -> ExitCode {
    match cause.kind() {
        io::ErrorKind::NotFound
        | io::ErrorKind::PermissionDenied
        | io::ErrorKind::ReadOnlyFilesystem
        | io::ErrorKind::Unsupported => ExitCode::PreconditionMissing,
        _ => ExitCode::Failure,
    }
}

fn cells(error: &OperateError) -> ExitCode {
    match error {
        OperateError::Usage(_) => ExitCode::Usage,
        OperateError::Refused(_) => ExitCode::PreconditionMissing,
    }
}

fn domain(error: &DomainError) -> ExitCode {
    match error {
        DomainError::Refused(refused) => refusal(refused),
        DomainError::Host(error) => host(error),
        DomainError::Operate(error) => cells(error),
        DomainError::Unavailable(_)
        | DomainError::NotStarted { .. }
        | DomainError::NotPlaced { .. }
        | DomainError::Qemu(QemuError::NotStarted { .. }) => ExitCode::PreconditionMissing,
        _ => ExitCode::Failure,
    }
}

fn blocks(error: &BlocksError) -> ExitCode {
    match error {
        BlocksError::Refused(refused) => refusal(refused),
        BlocksError::NotStarted { .. } | BlocksError::OtherVersion { .. } => {
            ExitCode::PreconditionMissing
        }
        _ => ExitCode::Failure,
    }
}

fn evaluate(error: &EvaluateError) -> ExitCode {
    match error {
        EvaluateError::CpusUnusable { .. }
        | EvaluateError::NoOtherCpu { .. }
        | EvaluateError::TooShort { .. }
        | EvaluateError::TooShortToCompare { .. }
        | EvaluateError::NotInPlan { .. }
        | EvaluateError::TooShortForDisturbances { .. }
        | EvaluateError::NoSuchDisturbance { .. }
        | EvaluateError::BadPlan { .. }
        | EvaluateError::InvalidCpus(_)
        | EvaluateError::OutputTaken { .. } => ExitCode::Usage,
        EvaluateError::NoCpu
        | EvaluateError::DomainUnavailable { .. }
        | EvaluateError::NothingInPlan { .. }
        | EvaluateError::PlanIsActive { .. }
        | EvaluateError::AnotherPlanIsActive { .. } => ExitCode::PreconditionMissing,
        EvaluateError::Host(error) => host(error),
        EvaluateError::Domain(error) => domain(error),
        EvaluateError::Blocks(error) => blocks(error),
        _ => ExitCode::Failure,
    }
}

fn live(error: &LiveError) -> ExitCode {
    match error {
        LiveError::Host(error) => host(error),
        LiveError::Io(_) => ExitCode::Failure,
        LiveError::Unresolved { .. } => ExitCode::Usage,
        LiveError::NotListening { .. } => ExitCode::PreconditionMissing,
    }
}

fn plan_file(error: &PlanFileError) -> ExitCode {
    match error {
        PlanFileError::Unreadable { .. }
        | PlanFileError::Invalid(_)
        | PlanFileError::PathNotUtf8(_) => ExitCode::Usage,
        PlanFileError::DoesNotFit { .. } | PlanFileError::RestartNotAllowed(_) => {
            ExitCode::PreconditionMissing
        }
    }
}

fn shield(error: &ShieldError) -> ExitCode {
    match error {
        ShieldError::Supervise(error) => supervise(error),
        ShieldError::Plan(error) => plan_file(error),
    }
}

fn supervise(error: &SuperviseError) -> ExitCode {
    match error {
        SuperviseError::Usage(_) => ExitCode::Usage,
        SuperviseError::Missing(_)
        | SuperviseError::Plan(_)
        | SuperviseError::NotStarted { .. } => ExitCode::PreconditionMissing,
        SuperviseError::Host(error) => host(error),
        SuperviseError::Domain(error) => domain(error),
        SuperviseError::File { .. } => ExitCode::Failure,
    }
}

fn bench(error: &BenchError) -> ExitCode {
    match error {
        BenchError::NoSsh { .. }
        | BenchError::NotConnected { .. }
        | BenchError::Unfit { .. }
        | BenchError::NoProgram { .. } => ExitCode::PreconditionMissing,
        BenchError::Agent {
            source: AgentError::Lost(_) | AgentError::NoAnswer(_),
            ..
        }
        | BenchError::Hung { .. } => ExitCode::MachineLost,
        BenchError::Interrupted(_) => ExitCode::Partial,
        BenchError::Sim(error) => sim(error),
        _ => ExitCode::Failure,
    }
}

fn sim(error: &SimError) -> ExitCode {
    match error {
        SimError::ProgramMissing { .. }
        | SimError::NotFetched { .. }
        | SimError::NoCacheDirectory
        | SimError::NoneUp { .. }
        | SimError::NoArchitecture { .. }
        | SimError::Qemu(QemuError::NotStarted { .. }) => ExitCode::PreconditionMissing,
        SimError::Options(_) => ExitCode::Usage,
        SimError::Interrupted => ExitCode::Partial,
        SimError::NeverUp { .. }
        | SimError::Panicked { .. }
        | SimError::Ended { .. }
        | SimError::Hung { .. } => ExitCode::MachineLost,
        _ => ExitCode::Failure,
    }
}

/// Returns the exit code of a program on another machine as shells define it: its exit status, or
/// 128 plus its signal. `None` means that a second signal ended this command.
pub(crate) fn code_of(status: Option<ExitStatus>) -> std::process::ExitCode {
    let Some(status) = status else {
        return ExitCode::Interrupted.into();
    };
    let signal = status.signal().map(|signal| 128 + signal);
    let code = status.code().or(signal).unwrap_or_default();
    // An exit status has eight bits.
    std::process::ExitCode::from(code.to_le_bytes()[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file_error(kind: io::ErrorKind) -> HostError {
        HostError::File {
            action: "write",
            path: "/sys/x".into(),
            cause: kind.into(),
            fix: String::new(),
        }
    }

    #[test]
    fn a_host_error_has_one_exit_code_wherever_it_comes_from() {
        for (error, code) in [
            (
                io::ErrorKind::PermissionDenied,
                ExitCode::PreconditionMissing,
            ),
            (io::ErrorKind::StorageFull, ExitCode::Failure),
        ]
        .map(|(kind, code)| (move || file_error(kind), code))
        {
            assert_eq!(Failure::from(error()).code, code);
            assert_eq!(Failure::from(SuperviseError::Host(error())).code, code);
            assert_eq!(Failure::from(EvaluateError::Host(error())).code, code);
            assert_eq!(Failure::from(DomainError::Host(error())).code, code);
        }
    }

    #[test]
    fn a_cause_is_printed_once() {
        let cause = io::Error::other("disk on fire");
        let error = EvaluateError::Output {
            path: "/x".into(),
            source: cause,
        };
        assert_eq!(Failure::from(error).to_string().matches("disk").count(), 1);
        let error = anyhow::Error::new(io::Error::other("disk on fire")).context("cannot write");
        assert_eq!(
            Failure::from(error).to_string(),
            "cannot write: disk on fire"
        );
    }

    #[test]
    fn a_closed_standard_output_is_success() {
        let error = anyhow::Error::new(io::Error::from(io::ErrorKind::BrokenPipe));
        assert_eq!(Failure::from(error).report(), ExitCode::Success);
    }

    #[test]
    fn a_lost_machine_has_its_own_exit_code() {
        let ended = SimError::Ended {
            how: "guest-reset".to_owned(),
            console: Vec::new(),
        };
        assert_eq!(Failure::from(ended).code, ExitCode::MachineLost);
        let interrupted = BenchError::Sim(SimError::Interrupted);
        assert_eq!(Failure::from(interrupted).code, ExitCode::Partial);
        let none = SimError::NoArchitecture {
            present: "riscv64",
            known: Vec::new(),
        };
        assert_eq!(Failure::from(none).code, ExitCode::PreconditionMissing);
    }

    #[test]
    fn parts_that_failed_make_a_command_partial() {
        let one = || vec![Failure::usage("x")];
        assert_eq!(Failure::report_each(Vec::new(), 2), ExitCode::Success);
        assert_eq!(Failure::report_each(one(), 2), ExitCode::Partial);
        assert_eq!(Failure::report_each(one(), 1), ExitCode::Usage);
    }

    #[test]
    fn maps_exit_statuses_and_signals_to_exit_codes() {
        let code = |raw| format!("{:?}", code_of(Some(ExitStatus::from_raw(raw))));
        let expected = |code: u8| format!("{:?}", std::process::ExitCode::from(code));
        assert_eq!(code(0), expected(0));
        assert_eq!(code(7 << 8), expected(7));
        assert_eq!(code(9), expected(137));
    }
}
