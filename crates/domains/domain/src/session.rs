// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The protocol with a meter program: JSON lines over its standard input and output.

use std::process::{Command, Stdio};
use std::time::Duration;

use rampart_host::{OnParentExit, spawn_tied};
use rampart_meter::client::{Client, ClientError, abridged};
pub(crate) use rampart_meter::client::{MeterProcess, MeterStreams};
use rampart_model::{
    Finding, METER_PROTOCOL_VERSION, MeterEvent, MeterReady, MeterRequest, MeterSettings, Refusal,
    RefusalKind, Severity,
};

use crate::DomainError;

/// Time limit for a meter to get ready: it calibrates its work, and a container engine may have to
/// start first.
const READY_LIMIT: Duration = Duration::from_secs(30);

/// How a program ends if this process ends first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tie {
    /// It is killed; its input ends as well.
    Killed,
    /// Its input ends, then the meter, then the program around it. That must not be killed, because
    /// it removes the container.
    InputEnds,
}

/// A running meter program, or a program around it. Dropping it kills the program.
#[derive(Debug)]
pub(crate) struct Session {
    program: String,
    client: Client<MeterEvent>,
    /// Whether the last event of a measurement has arrived.
    is_over: bool,
}

impl Session {
    /// Starts `command` with its standard streams on pipes; `program` names it in messages.
    pub(crate) fn start(
        mut command: Command,
        program: &str,
        tie: Tie,
        fix: &str,
    ) -> Result<Self, DomainError> {
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let spawned = match tie {
            Tie::Killed => spawn_tied(command, OnParentExit::Kill),
            Tie::InputEnds => {
                std::os::unix::process::CommandExt::process_group(&mut command, 0);
                command.spawn()
            }
        };
        let not_started = |source| DomainError::NotStarted {
            program: program.to_owned(),
            source,
            fix: fix.to_owned(),
        };
        let mut child = spawned.map_err(not_started)?;
        let streams = MeterStreams::of(&mut child);
        Ok(Self::over(program, streams, Box::new(child)))
    }

    /// Opens a session over the streams of a program that was started elsewhere.
    pub(crate) fn over(
        program: &str,
        streams: MeterStreams,
        process: Box<dyn MeterProcess>,
    ) -> Self {
        Self {
            program: program.to_owned(),
            client: Client::new(streams, process),
            is_over: false,
        }
    }

    /// Returns the id of the process that was started.
    pub(crate) fn process(&self) -> u32 {
        self.client.process()
    }

    /// Sends the settings and waits until the meter's threads wait for [`Session::go`]. After the
    /// last event this starts another measurement.
    pub(crate) fn prepare(&mut self, settings: &MeterSettings) -> Result<MeterReady, DomainError> {
        self.is_over = false;
        let request = MeterRequest::Prepare {
            protocol: METER_PROTOCOL_VERSION,
            settings: settings.clone(),
        };
        // A program that has ended may have reported why; that message is better.
        let sent = self.send(&request);
        match self.next_event(READY_LIMIT)? {
            Some(MeterEvent::Ready(ready)) if ready.protocol == METER_PROTOCOL_VERSION => Ok(ready),
            Some(MeterEvent::Ready(ready)) => {
                Err(DomainError::Refused(other_protocol(&self.program, &ready)))
            }
            Some(MeterEvent::Refused(refusal)) => Err(DomainError::Refused(refusal)),
            Some(other) => Err(DomainError::UnexpectedOutput {
                program: self.program.clone(),
                process: self.process(),
                line: abridged(&format!("{other:?}")),
                reason: "it comes before the event `ready`".to_owned(),
            }),
            None => {
                sent?;
                Err(DomainError::NoAnswer {
                    program: self.program.clone(),
                    process: self.process(),
                    what: "get ready",
                    waited: READY_LIMIT,
                    stderr: self.client.stderr_tail(),
                })
            }
        }
    }

    /// Lets the meter measure.
    pub(crate) fn go(&mut self) -> Result<(), DomainError> {
        self.send(&MeterRequest::Go {})
    }

    /// Asks it to end early.
    pub(crate) fn stop(&mut self) {
        // A program that has ended has stopped already.
        let _ = self.send(&MeterRequest::Stop {});
    }

    fn send(&mut self, request: &MeterRequest) -> Result<(), DomainError> {
        let sent = self.client.send(request);
        sent.map_err(|error| self.error(error))
    }

    fn error(&self, error: ClientError) -> DomainError {
        let (program, process) = (self.program.clone(), self.process());
        match error {
            ClientError::NotWritten(source) => DomainError::File {
                action: "write to the program's standard input",
                path: program.into(),
                source,
            },
            ClientError::Ended { status, stderr } => DomainError::Ended {
                program,
                process,
                status,
                stderr,
            },
            ClientError::UnexpectedLine { line, reason } => DomainError::UnexpectedOutput {
                program,
                process,
                line,
                reason,
            },
        }
    }

    /// Returns the next event, or `None` if none comes within `timeout` or the measurement is over.
    pub(crate) fn next_event(
        &mut self,
        timeout: Duration,
    ) -> Result<Option<MeterEvent>, DomainError> {
        if self.is_over {
            return Ok(None);
        }
        let event = self.client.next_event(timeout);
        let event = event.map_err(|error| self.error(error))?;
        self.is_over = matches!(
            event,
            Some(MeterEvent::Finished { .. } | MeterEvent::Refused(_))
        );
        Ok(event)
    }

    /// Closes the input, so that the meter stops, and kills the program if it does not end. Returns
    /// whether it ended by itself.
    pub(crate) fn close(&mut self) -> bool {
        self.client.close()
    }
}

fn other_protocol(program: &str, ready: &MeterReady) -> Refusal {
    Refusal {
        kind: RefusalKind::OtherProtocol,
        finding: Finding::new(
            Severity::Error,
            program,
            "the meter uses another protocol version",
        )
        .values(
            format!("{} (rampart-meter {})", ready.protocol, ready.version),
            METER_PROTOCOL_VERSION.to_string(),
        )
        .fix("install `rampart` and `rampart-meter` from the same build"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rampart_meter::client::STDERR_KEPT;
    use rampart_model::{CpuId, CpuSet, MeterKind};

    fn shell(script: &str) -> Session {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Session::start(command, "a shell", Tie::Killed, "").expect("a shell starts")
    }

    fn plan() -> MeterSettings {
        MeterSettings::new(MeterKind::Wakeup, CpuSet::single(CpuId(0)))
    }

    #[test]
    fn sends_settings_and_receives_ready() {
        let mut session = shell(
            r#"read line
            case $line in *'"protocol":1'*'"meter":"wakeup"'*) ;; *) exit 3 ;; esac
            echo '{"ready":{"protocol":1,"version":"0","process":7,"threads":[]}}'
            read go; [ "$go" = '{"go":{}}' ] || exit 4
            echo '{"finished":{"threads":[],"findings":[]}}'"#,
        );
        assert_eq!(session.prepare(&plan()).expect("ready").process, 7);
        assert!(
            session
                .next_event(Duration::from_millis(20))
                .expect("silence")
                .is_none()
        );
        session.go().expect("go");
        let last = session.next_event(Duration::from_secs(10)).expect("event");
        assert!(matches!(last, Some(MeterEvent::Finished { .. })));
        assert!(
            session
                .next_event(Duration::from_secs(10))
                .expect("after the end")
                .is_none()
        );
        assert!(session.close());
    }

    #[test]
    fn keeps_a_refusal() {
        let mut session = shell(
            r#"read line
            echo '{"refused":{"kind":"memory-not-locked","finding":{"severity":"error","location":"memory","what":"w"}}}'"#,
        );
        match session.prepare(&plan()) {
            Err(DomainError::Refused(refusal)) => {
                assert_eq!(refusal.kind, RefusalKind::MemoryNotLocked);
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn reports_an_early_end_with_its_standard_error() {
        let mut session = shell("read line; echo no such luck >&2; exit 9");
        let message = session.prepare(&plan()).expect_err("must fail").to_string();
        assert!(message.contains("exit status: 9"), "{message}");
        assert!(message.contains("no such luck"), "{message}");
    }

    #[test]
    fn abridges_an_invalid_line() {
        let mut session = shell("read line; printf 'x%.0s' $(seq 1 500); echo; sleep 5");
        match session.prepare(&plan()) {
            Err(DomainError::UnexpectedOutput { line, .. }) => {
                assert_eq!(line.chars().count(), 121);
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn refuses_another_protocol_version() {
        let mut session = shell(
            r#"read line; echo '{"ready":{"protocol":99,"version":"9","process":7,"threads":[]}}'; sleep 5"#,
        );
        match session.prepare(&plan()) {
            Err(DomainError::Refused(refusal)) => {
                assert_eq!(refusal.kind, RefusalKind::OtherProtocol);
                assert!(refusal.finding.to_string().contains("found 99"));
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn kills_the_program_when_dropped() {
        let session = shell("exec sleep 60");
        let process = session.process();
        drop(session);
        assert!(!std::path::Path::new(&format!("/proc/{process}/status")).exists());
    }

    #[test]
    fn bounds_the_standard_error_in_a_message() {
        let mut session = shell("read line; yes noise | head -c 100000 >&2; echo end >&2");
        let message = session.prepare(&plan()).expect_err("must fail").to_string();
        assert!(message.len() < 2 * STDERR_KEPT);
        assert!(message.contains("end"), "{message}");
    }
}
