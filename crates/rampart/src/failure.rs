// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Errors as the user meets them: a message on standard error and an exit code.

use std::error::Error;
use std::io;

use rampart_evaluate::EvaluateError;
use rampart_model::ExitCode;

/// Why a command did not do what was asked.
#[derive(Debug)]
pub(crate) struct Failure {
    code: ExitCode,
    error: anyhow::Error,
}

impl Failure {
    /// A failure with a code of its own.
    pub(crate) fn new(code: ExitCode, error: impl Into<anyhow::Error>) -> Self {
        Self {
            code,
            error: error.into(),
        }
    }

    /// What was asked makes no sense.
    pub(crate) fn usage(text: impl std::fmt::Display) -> Self {
        Self::new(ExitCode::Usage, anyhow::anyhow!("{text}"))
    }

    /// Tells the user, unless the reader of our output simply went away.
    pub(crate) fn report(self) -> ExitCode {
        let broken_pipe = |cause: &(dyn Error + 'static)| {
            cause
                .downcast_ref::<io::Error>()
                .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
        };
        if self.error.chain().any(broken_pipe) {
            return ExitCode::Success;
        }
        crate::output::say(&format!("rampart: {:#}", self.error));
        self.code
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:#}", self.error)
    }
}

impl From<EvaluateError> for Failure {
    fn from(error: EvaluateError) -> Self {
        Self::new(error.exit_code(), error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::new(ExitCode::Failure, error)
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::new(ExitCode::Failure, error)
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        Self::new(ExitCode::Failure, error)
    }
}
