// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reading of requests and end of a conversation, common to both protocols of the program.

use rampart_model::{ExitCode, Finding, Refusal, RefusalKind, Severity};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::console::{Console, OutputClosed};

/// Location in findings about requests.
pub(super) const REQUEST: &str = "request on standard input";

/// The reason why a conversation ends before its last event.
pub(super) enum End {
    Refused(Box<Refusal>),
    OutputClosed,
}

impl From<Refusal> for End {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(Box::new(refusal))
    }
}

impl From<OutputClosed> for End {
    fn from(_: OutputClosed) -> Self {
        Self::OutputClosed
    }
}

/// Sends a refusal as the event that `refused` makes of it, and returns the exit code: 0 for a
/// complete conversation, 2 for an invalid plan, 4 for another refusal, 1 if the output was closed
/// early.
pub(super) fn conclude<E: Serialize>(
    console: &mut Console,
    ended: Result<(), End>,
    refused: impl FnOnce(Refusal) -> E,
) -> ExitCode {
    let refusal = match ended {
        Ok(()) => return ExitCode::Success,
        Err(End::OutputClosed) => return ExitCode::Failure,
        Err(End::Refused(refusal)) => *refusal,
    };
    let code = match refusal.kind {
        RefusalKind::BadPlan => ExitCode::Usage,
        _ => ExitCode::PreconditionMissing,
    };
    console.send(&refused(refusal));
    match console.flush() {
        Ok(()) => code,
        Err(OutputClosed) => ExitCode::Failure,
    }
}

/// The requests of one protocol.
#[derive(Debug)]
pub(super) struct Requests {
    /// Version of the protocol.
    pub(super) protocol: u32,
    /// The command that serves the protocol.
    pub(super) command: &'static str,
    /// Name of the schema.
    pub(super) schema: &'static str,
}

impl Requests {
    /// Parses the request on one line.
    pub(super) fn read<R: DeserializeOwned>(&self, line: &[u8]) -> Result<R, Refusal> {
        serde_json::from_slice(line).map_err(|cause| {
            // Another version may have other fields; then the version is the relevant error.
            if let Ok(value) = serde_json::from_slice::<serde_json::Value>(line)
                && let Some(protocol) = value.pointer("/prepare/protocol")
                && *protocol != self.protocol
            {
                return self.wrong_protocol(&protocol.to_string());
            }
            self.bad(&format!("cannot read: {cause}"))
        })
    }

    /// Refuses a request of another version.
    pub(super) fn check_protocol(&self, protocol: u32) -> Result<(), Refusal> {
        if protocol == self.protocol {
            Ok(())
        } else {
            Err(self.wrong_protocol(&protocol.to_string()))
        }
    }

    /// Returns the refusal for an input that ended before a request.
    pub(super) fn none(&self) -> Refusal {
        self.bad("the input ended before a request")
    }

    /// Returns the refusal for a request out of order.
    pub(super) fn out_of_turn(&self, needed: &str) -> Refusal {
        let mut refusal = self.bad("it is out of sequence");
        refusal.finding = refusal.finding.values("another request", needed);
        refusal
    }

    fn bad(&self, what: &str) -> Refusal {
        refuse(Finding::new(Severity::Error, REQUEST, what).fix(format!(
            "{}, or `rampart schema {}` for the format of a request",
            self.command, self.schema
        )))
    }

    fn wrong_protocol(&self, present: &str) -> Refusal {
        let finding = Finding::new(
            Severity::Error,
            REQUEST,
            "the request has another protocol version",
        );
        Refusal {
            kind: RefusalKind::OtherProtocol,
            finding: finding
                .values(present, self.protocol.to_string())
                .fix("use rampart and rampart-meter of the same version"),
        }
    }
}

/// Refuses a plan with findings: the first one is the reason, the others are added to it.
pub(super) fn refuse_plan(findings: Vec<Finding>) -> Result<(), Refusal> {
    let mut findings = findings.into_iter();
    let Some(mut finding) = findings.next() else {
        return Ok(());
    };
    for other in findings {
        finding.what = format!("{}; and {other}", finding.what);
    }
    Err(refuse(finding))
}

fn refuse(finding: Finding) -> Refusal {
    Refusal {
        kind: RefusalKind::BadPlan,
        finding,
    }
}

/// Returns the finding about a request other than stop that was ignored.
pub(super) fn ignored(meanwhile: &str) -> Finding {
    Finding::new(
        Severity::Warning,
        REQUEST,
        format!("a request other than stop came {meanwhile} and was ignored"),
    )
}
