// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the conversations of the program have in common: how a request is read, and how one ends.

use rampart_model::{ExitCode, Finding, Refusal, RefusalKind, Severity};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::console::{Console, OutputClosed};

/// Where requests come from.
pub(super) const REQUEST: &str = "request on standard input";

/// Why there is nothing more to say than this.
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

/// Says a refusal as the event that `refused` makes of it, and gives the exit code: 0 when the
/// conversation came to its end, 2 for a plan that makes no sense, 4 for another refusal, 1 if nobody
/// read the output to its end.
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

/// One form of conversation, as far as its requests go.
#[derive(Debug)]
pub(super) struct Requests {
    /// Its version.
    pub(super) protocol: u32,
    /// The command that holds it.
    pub(super) command: &'static str,
    /// The name of their schema.
    pub(super) schema: &'static str,
}

impl Requests {
    /// The request on one line.
    pub(super) fn read<R: DeserializeOwned>(&self, line: &[u8]) -> Result<R, Refusal> {
        serde_json::from_slice(line).map_err(|cause| {
            // Another version may have other fields; then that is the reason worth telling.
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

    /// The input ended before a request.
    pub(super) fn none(&self) -> Refusal {
        self.bad("the input ended before a request")
    }

    /// Another request came than the one whose turn it is.
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
        refuse(
            Finding::new(
                Severity::Error,
                REQUEST,
                "the request has another protocol version",
            )
            .values(present, self.protocol.to_string())
            .fix("use rampart and rampart-meter of the same version"),
        )
    }
}

/// Refuses a plan that has findings: with the first, to which the others are added.
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

/// What is said of a request other than stop, at a time when nothing else is heard.
pub(super) fn ignored(meanwhile: &str) -> Finding {
    Finding::new(
        Severity::Warning,
        REQUEST,
        format!("a request other than stop came {meanwhile} and was ignored"),
    )
}
