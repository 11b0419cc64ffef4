// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The conversation with a meter program: JSON lines over its standard input and output.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rampart_host::{OnParentExit, end_child, spawn_tied};
use rampart_model::{
    Finding, METER_PROTOCOL_VERSION, MeterEvent, MeterReady, MeterRequest, MeterSettings, Refusal,
    RefusalKind, Severity,
};

use crate::DomainError;

/// How long a meter may take to get ready: it calibrates its work meanwhile, and a container
/// engine may have to start first.
const READY_PATIENCE: Duration = Duration::from_secs(30);
/// How long a program may take to end by itself once it has nothing more to say.
const END_PATIENCE: Duration = Duration::from_secs(5);
/// Events that may wait to be read. A batch is some kilobytes; more waiting than this would
/// mean that nobody reads.
const WAITING_EVENTS: usize = 4096;
/// The longest line that is read.
const LONGEST_LINE: u64 = 64 << 20;
/// How much of a program's standard error is kept: the end of it.
const STDERR_KEPT: usize = 4096;

/// What the reader of the standard output hands over.
enum Heard {
    Event(Box<MeterEvent>),
    Unintelligible { line: String, reason: String },
}

/// What becomes of the program when this process ends without having ended it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tie {
    /// It is killed; besides, its input ends.
    Killed,
    /// Its input ends, whereupon the meter ends and then the program around it, which must not be
    /// killed because it puts away the container.
    InputEnds,
}

/// The program at the other end of a conversation, wherever it runs.
pub(crate) trait Program: Send {
    /// Its process, as the kernel that runs it numbers it.
    fn number(&self) -> u32;

    /// How it ended; none while it runs.
    fn ended(&mut self) -> Option<String>;

    /// Kills it and waits for its end, as long as that is worth; none if it does not come.
    fn kill(&mut self) -> Option<String>;
}

impl Program for Child {
    fn number(&self) -> u32 {
        self.id()
    }

    fn ended(&mut self) -> Option<String> {
        let status = self.try_wait().ok().flatten()?;
        Some(status.to_string())
    }

    fn kill(&mut self) -> Option<String> {
        end_child(self).map(|status| status.to_string())
    }
}

/// A program's three streams.
pub(crate) struct Streams {
    pub(crate) input: Option<Box<dyn Write + Send>>,
    pub(crate) output: Option<Box<dyn Read + Send>>,
    pub(crate) errors: Option<Box<dyn Read + Send>>,
}

/// A running meter program, or a program around it.
pub(crate) struct Session {
    program: String,
    process: Box<dyn Program>,
    input: Option<Box<dyn Write + Send>>,
    events: Receiver<Heard>,
    stderr: Arc<Mutex<VecDeque<u8>>>,
    stderr_reader: Option<JoinHandle<()>>,
    last_word: bool,
    ended: Option<String>,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session")
            .field("program", &self.program)
            .field("process", &self.process.number())
            .field("ended", &self.ended)
            .finish_non_exhaustive()
    }
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
        let streams = Streams {
            input: child.stdin.take().map(|stream| Box::new(stream) as _),
            output: child.stdout.take().map(|stream| Box::new(stream) as _),
            errors: child.stderr.take().map(|stream| Box::new(stream) as _),
        };
        Ok(Self::over(program, streams, Box::new(child)))
    }

    /// A conversation over the streams of a program that was started elsewhere.
    pub(crate) fn over(program: &str, streams: Streams, process: Box<dyn Program>) -> Self {
        let (sender, events) = sync_channel(WAITING_EVENTS);
        let stderr = Arc::new(Mutex::new(VecDeque::new()));
        let mut reader = None;
        if let Some(output) = streams.output {
            thread::spawn(move || read_events(output, &sender));
        }
        if let Some(errors) = streams.errors {
            let tail = Arc::clone(&stderr);
            reader = Some(thread::spawn(move || read_tail(errors, &tail)));
        }
        Self {
            program: program.to_owned(),
            process,
            input: streams.input,
            events,
            stderr,
            stderr_reader: reader,
            last_word: false,
            ended: None,
        }
    }

    /// The process that was started.
    pub(crate) fn process(&self) -> u32 {
        self.process.number()
    }

    /// Hands over the plan and waits until the meter's threads wait for [`Session::go`].
    /// Again after its last word, for another measurement.
    pub(crate) fn prepare(&mut self, plan: &MeterSettings) -> Result<MeterReady, DomainError> {
        self.last_word = false;
        let request = MeterRequest::Prepare {
            protocol: METER_PROTOCOL_VERSION,
            plan: plan.clone(),
        };
        // A program that has ended already says why on its way out; that is the better message.
        let sent = self.send(&request);
        match self.next_event(READY_PATIENCE)? {
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
                    waited: READY_PATIENCE,
                    stderr: self.stderr_tail(),
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
        // A program that is gone has stopped already.
        let _ = self.send(&MeterRequest::Stop {});
    }

    fn send(&mut self, request: &MeterRequest) -> Result<(), DomainError> {
        let mut line = serde_json::to_vec(request)
            .map_err(|error| self.not_written(std::io::Error::other(error)))?;
        line.push(b'\n');
        let Some(input) = self.input.as_mut() else {
            return Err(self.not_written(std::io::ErrorKind::BrokenPipe.into()));
        };
        input
            .write_all(&line)
            .and_then(|()| input.flush())
            .map_err(|error| self.not_written(error))
    }

    fn not_written(&mut self, source: std::io::Error) -> DomainError {
        if source.kind() == std::io::ErrorKind::BrokenPipe {
            return self.end_error();
        }
        DomainError::File {
            action: "write to the program's standard input",
            path: self.program.clone().into(),
            source,
        }
    }

    /// The next event; none if nothing comes within `timeout`, or after the last word.
    pub(crate) fn next_event(
        &mut self,
        timeout: Duration,
    ) -> Result<Option<MeterEvent>, DomainError> {
        if self.last_word {
            return Ok(None);
        }
        match self.events.recv_timeout(timeout) {
            Ok(Heard::Event(event)) => {
                self.last_word =
                    matches!(*event, MeterEvent::Finished { .. } | MeterEvent::Refused(_));
                Ok(Some(*event))
            }
            Ok(Heard::Unintelligible { line, reason }) => Err(DomainError::UnexpectedOutput {
                program: self.program.clone(),
                process: self.process(),
                line,
                reason,
            }),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(self.end_error()),
        }
    }

    /// The error of a program that closed its output or input before its last word.
    fn end_error(&mut self) -> DomainError {
        let status = match self.wait(Duration::from_secs(2)) {
            Some(status) => status,
            None => "it closed its output and goes on".to_owned(),
        };
        DomainError::Ended {
            program: self.program.clone(),
            process: self.process(),
            status,
            stderr: self.stderr_tail(),
        }
    }

    /// The end of what the program wrote to its standard error.
    pub(crate) fn stderr_tail(&mut self) -> String {
        // Once the program is gone the rest is in the pipe; while it runs, what came so far.
        if self.ended.is_some()
            && let Some(reader) = self.stderr_reader.take()
        {
            let begin = Instant::now();
            while !reader.is_finished() && begin.elapsed() < Duration::from_millis(200) {
                thread::sleep(Duration::from_millis(5));
            }
        }
        let bytes: Vec<u8> = match self.stderr.lock() {
            Ok(tail) => tail.iter().copied().collect(),
            Err(_) => Vec::new(),
        };
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Waits for the program's end.
    fn wait(&mut self, patience: Duration) -> Option<String> {
        let begin = Instant::now();
        loop {
            if self.ended.is_none() {
                self.ended = self.process.ended();
            }
            if self.ended.is_some() {
                return self.ended.clone();
            }
            if begin.elapsed() >= patience {
                return None;
            }
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Ends the conversation: the input ends, which a meter takes as "stop"; if the program is
    /// still there after a while it is killed. Whether it ended by itself.
    pub(crate) fn close(&mut self) -> bool {
        self.input = None;
        // Unread events would keep the program from writing its last ones, so they are drained.
        let begin = Instant::now();
        while begin.elapsed() < END_PATIENCE {
            if self.wait(Duration::ZERO).is_some() {
                return true;
            }
            match self.events.recv_timeout(Duration::from_millis(5)) {
                Ok(_) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => thread::sleep(Duration::from_millis(2)),
            }
        }
        self.kill();
        false
    }

    /// Kills the program and waits for its end.
    pub(crate) fn kill(&mut self) {
        if self.ended.is_none() {
            self.ended = self.process.kill();
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.kill();
    }
}

fn other_protocol(program: &str, ready: &MeterReady) -> Refusal {
    Refusal {
        kind: RefusalKind::BadPlan,
        finding: Finding::new(
            Severity::Error,
            program,
            "the meter speaks another version of the conversation",
        )
        .values(
            format!("{} (rampart-meter {})", ready.protocol, ready.version),
            METER_PROTOCOL_VERSION.to_string(),
        )
        .fix("take `rampart` and `rampart-meter` from the same build"),
    }
}

/// Reads events until the output ends, or until nobody listens any more.
fn read_events(output: impl Read, events: &SyncSender<Heard>) {
    let mut output = BufReader::new(output);
    loop {
        let mut line = Vec::new();
        match output
            .by_ref()
            .take(LONGEST_LINE)
            .read_until(b'\n', &mut line)
        {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let heard = match serde_json::from_slice(&line) {
            Ok(event) => Heard::Event(Box::new(event)),
            Err(error) => Heard::Unintelligible {
                line: abridged(&String::from_utf8_lossy(&line)),
                reason: error.to_string(),
            },
        };
        if events.send(heard).is_err() {
            return;
        }
    }
}

/// The beginning of a text, as much as a message bears.
fn abridged(text: &str) -> String {
    const SHOWN: usize = 120;
    let text = text.trim_end();
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Keeps the end of an output.
fn read_tail(mut output: impl Read, tail: &Mutex<VecDeque<u8>>) {
    let mut chunk = [0; 1024];
    while let Ok(length) = output.read(&mut chunk) {
        if length == 0 {
            return;
        }
        let Ok(mut tail) = tail.lock() else { return };
        tail.extend(&chunk[..length]);
        let surplus = tail.len().saturating_sub(STDERR_KEPT);
        tail.drain(..surplus);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
    fn the_plan_arrives_and_ready_comes_back() {
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
    fn a_refusal_is_kept_as_one() {
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
    fn an_early_end_is_told_with_what_was_said() {
        let mut session = shell("read line; echo no such luck >&2; exit 9");
        let message = session.prepare(&plan()).expect_err("must fail").to_string();
        assert!(message.contains("exit status: 9"), "{message}");
        assert!(message.contains("no such luck"), "{message}");
    }

    #[test]
    fn nonsense_is_shown_abridged() {
        let mut session = shell("read line; printf 'x%.0s' $(seq 1 500); echo; sleep 5");
        match session.prepare(&plan()) {
            Err(DomainError::UnexpectedOutput { line, .. }) => {
                assert_eq!(line.chars().count(), 121);
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn another_protocol_is_refused() {
        let mut session = shell(
            r#"read line; echo '{"ready":{"protocol":99,"version":"9","process":7,"threads":[]}}'; sleep 5"#,
        );
        match session.prepare(&plan()) {
            Err(DomainError::Refused(refusal)) => {
                assert!(refusal.finding.to_string().contains("found 99"));
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn dropping_kills() {
        let session = shell("exec sleep 60");
        let process = session.process();
        drop(session);
        assert!(!std::path::Path::new(&format!("/proc/{process}/status")).exists());
    }

    #[test]
    fn standard_error_is_bounded() {
        let mut session = shell("read line; yes noise | head -c 100000 >&2; echo end >&2");
        let message = session.prepare(&plan()).expect_err("must fail").to_string();
        assert!(message.len() < 2 * STDERR_KEPT);
        assert!(message.contains("end"), "{message}");
    }
}
