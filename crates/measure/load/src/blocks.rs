// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Blocks: stops CPUs for a known time with `rampart-meter block`, on this kernel or in a domain
//! that has its own kernel.

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rampart_host::{OnParentExit, Shield, spawn_tied};
use rampart_meter::client::{Client, ClientError, MeterProcess, MeterStreams, abridged};
use rampart_model::{
    BLOCKER_PROTOCOL_VERSION, BlockKind, BlockSettings, BlockSpan, BlockerEvent, BlockerRequest,
    BlocksMade, Finding, Nanos,
};

use crate::BlocksError;

/// Time limit for the program to get ready; in an emulated guest it takes seconds.
const READY_TIMEOUT: Duration = Duration::from_secs(30);
/// Time limit for the program to report its blocks after the last one.
const END_TIMEOUT: Duration = Duration::from_secs(10);
/// How much later than planned a block may come before its program counts as hung.
const DELAY_LIMIT: Duration = Duration::from_secs(30);
/// The real-time budget per second of a process in a shield, which `CONFIG_RT_GROUP_SCHED`
/// requires. A spinning blocker uses at most half of the time.
const REAL_TIME_BUDGET: Nanos = Nanos::from_millis(600);

/// The device of the kernel module.
const DEVICE: &str = "/dev/blocksys";

/// The progress since the last poll.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BlocksProgress {
    /// These blocks have ended, in chronological order.
    Made(Vec<BlockSpan>),
    /// There are no more blocks.
    Finished,
}

/// The result of a completed series of blocks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlocksOutcome {
    /// The actual blocks. The times are on the clock of the blocked kernel; the caller adds its
    /// relation to the host's clock.
    pub made: BlocksMade,
    /// Number of blocks on each CPU of the plan.
    pub count: u32,
    /// Limits of this kind of block, and deviations from the plan.
    pub findings: Vec<Finding>,
}

/// A program that was started on another kernel, whose exit status is not known here. Dropping the
/// handle ends it.
struct RemoteProgram(Option<Box<dyn Send>>);

impl MeterProcess for RemoteProgram {
    fn id(&self) -> u32 {
        0
    }

    fn exit_status(&mut self) -> Option<String> {
        Some("status unknown".to_owned())
    }

    fn kill(&mut self) -> Option<String> {
        self.0 = None;
        self.exit_status()
    }
}

/// A program that stops CPUs. Dropping it ends the program and its blocks.
pub struct Blocks {
    name: String,
    settings: BlockSettings,
    kind: BlockKind,
    longest: Nanos,
    findings: Vec<Finding>,
    spans: Vec<BlockSpan>,
    count: Option<u32>,
    client: Client<BlockerEvent>,
}

impl std::fmt::Debug for Blocks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Blocks")
            .field("settings", &self.settings)
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}

impl Blocks {
    /// Starts the program `meter` on this kernel and prepares it for [`Blocks::go`]. To read
    /// [`Blocks::longest`] only, start with any plan and drop the result.
    ///
    /// # Errors
    /// Returns an error if the program cannot be started, or refuses the plan.
    pub fn start(meter: &Path, settings: &BlockSettings) -> Result<Self, BlocksError> {
        Self::start_within(meter, settings, None)
    }

    /// Starts the program for CPUs in a `shield`. A spinning thread must be admitted to the shield;
    /// the kernel module needs no thread there.
    ///
    /// # Errors
    /// Returns the errors of [`Blocks::start`], and an error if the shield does not admit it.
    pub fn start_within(
        meter: &Path,
        settings: &BlockSettings,
        shield: Option<&Shield>,
    ) -> Result<Self, BlocksError> {
        let name = format!("{} block", meter.display());
        let mut command = Command::new(meter);
        command
            .arg("block")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        // If this process ends in any way, the program's input closes and it stops. If the program
        // is killed, no block remains, because the module's device is closed with it.
        let mut child =
            spawn_tied(command, OnParentExit::Kill).map_err(|source| BlocksError::NotStarted {
                program: name.clone(),
                source,
            })?;
        let process = child.id();
        // From here on, dropping `blocks` ends the program.
        let mut blocks = Self::new(
            name,
            settings,
            MeterStreams::of(&mut child),
            Box::new(child),
        );
        let spins = match settings.kind {
            Some(kind) => kind == BlockKind::Spin,
            None => !Path::new(DEVICE).exists(),
        };
        if let Some(shield) = shield.filter(|_| spins) {
            shield.admit(process)?;
            // Without a budget the program itself reports the error.
            let _ = shield.set_real_time_budget(process, REAL_TIME_BUDGET);
        }
        blocks.prepare()?;
        Ok(blocks)
    }

    /// Controls a `rampart-meter block` that was started elsewhere, for example in a guest, through
    /// its standard input and output and the handle that keeps it running.
    ///
    /// The CPUs of the plan and of the spans are numbered by the kernel there.
    ///
    /// # Errors
    /// Returns an error if the program has ended, or refuses the plan.
    pub fn over(
        name: &str,
        input: Box<dyn Write + Send>,
        output: Box<dyn Read + Send>,
        handle: Box<dyn Send>,
        settings: &BlockSettings,
    ) -> Result<Self, BlocksError> {
        let streams = MeterStreams {
            input: Some(input),
            output: Some(output),
            errors: None,
        };
        let process = Box::new(RemoteProgram(Some(handle)));
        let mut blocks = Self::new(name.to_owned(), settings, streams, process);
        blocks.prepare()?;
        Ok(blocks)
    }

    fn new(
        name: String,
        settings: &BlockSettings,
        streams: MeterStreams,
        process: Box<dyn MeterProcess>,
    ) -> Self {
        Self {
            name,
            settings: settings.clone(),
            kind: settings.kind.unwrap_or(BlockKind::Module),
            longest: Nanos::ZERO,
            findings: Vec::new(),
            spans: Vec::new(),
            count: None,
            client: Client::new(streams, process),
        }
    }

    fn prepare(&mut self) -> Result<(), BlocksError> {
        // If the program has ended, its own message is better than the write error.
        let sent = self.send(&BlockerRequest::Prepare {
            protocol: BLOCKER_PROTOCOL_VERSION,
            settings: self.settings.clone(),
        });
        match self.next_event(READY_TIMEOUT)? {
            Some(BlockerEvent::Ready {
                protocol,
                kind,
                longest,
                findings,
            }) if protocol == BLOCKER_PROTOCOL_VERSION => {
                (self.kind, self.longest, self.findings) = (kind, longest, findings);
                Ok(())
            }
            Some(BlockerEvent::Ready { protocol, .. }) => Err(BlocksError::OtherVersion {
                program: self.name.clone(),
                present: protocol,
            }),
            Some(other) => Err(self.unexpected_event(&other)),
            None => {
                sent?;
                Err(self.silent("get ready", READY_TIMEOUT))
            }
        }
    }

    /// Returns the kind of block.
    #[must_use]
    pub const fn kind(&self) -> BlockKind {
        self.kind
    }

    /// Returns the longest block that is accepted here.
    #[must_use]
    pub const fn longest(&self) -> Nanos {
        self.longest
    }

    /// Returns the findings so far.
    #[must_use]
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// Makes the whole series, or the part until `stop` is set. `made` gets the number of blocks so
    /// far.
    ///
    /// # Errors
    /// As [`Self::go`], [`Self::poll`] and [`Self::finish`], and if the next block is overdue.
    pub fn run(
        mut self,
        settings: &BlockSettings,
        stop: &AtomicBool,
        made: &mut dyn FnMut(u32),
    ) -> Result<BlocksOutcome, BlocksError> {
        self.go()?;
        // A random pause is at most 1.5 times its mean.
        let one = Duration::from_nanos(settings.length.0.saturating_add(settings.pause.0));
        let limit = one.saturating_mul(2) + DELAY_LIMIT;
        let mut received = Instant::now();
        while !stop.load(Ordering::Relaxed) {
            match self.poll(Duration::from_millis(200))? {
                Some(BlocksProgress::Finished) => break,
                Some(BlocksProgress::Made(spans)) => {
                    if let Some(last) = spans.last() {
                        received = Instant::now();
                        made(last.sequence + 1);
                    }
                }
                None if received.elapsed() >= limit => {
                    return Err(BlocksError::Silent {
                        program: "rampart-meter block".to_owned(),
                        what: "make its next block",
                        waited: limit,
                    });
                }
                None => {}
            }
        }
        self.finish()
    }

    /// Starts the series: the first block comes after a pause.
    ///
    /// # Errors
    /// Returns an error if the program has ended.
    pub fn go(&mut self) -> Result<(), BlocksError> {
        self.send(&BlockerRequest::Go {})
    }

    /// Requests no further blocks. Blocks made before are still reported.
    pub fn stop(&mut self) {
        // A program that has ended makes no blocks.
        let _ = self.send(&BlockerRequest::Stop {});
    }

    /// Returns the next progress, or `None` if there is none within `timeout`. Always returns
    /// [`BlocksProgress::Finished`] after it was first returned.
    ///
    /// # Errors
    /// Returns an error if the program refuses to begin, ends without its final report, or sends an
    /// invalid event.
    pub fn poll(&mut self, timeout: Duration) -> Result<Option<BlocksProgress>, BlocksError> {
        if self.count.is_some() {
            return Ok(Some(BlocksProgress::Finished));
        }
        match self.next_event(timeout)? {
            None => Ok(None),
            Some(BlockerEvent::Blocked { spans }) => {
                self.spans.extend_from_slice(&spans);
                Ok(Some(BlocksProgress::Made(spans)))
            }
            Some(BlockerEvent::Finished { made, findings }) => {
                self.count = Some(made);
                self.findings.extend(findings);
                Ok(Some(BlocksProgress::Finished))
            }
            Some(other) => Err(self.unexpected_event(&other)),
        }
    }

    /// Ends the series, also before the last block, and returns all blocks that were made.
    ///
    /// # Errors
    /// Returns the errors of [`Blocks::poll`], and an error if it does not end in time.
    pub fn finish(mut self) -> Result<BlocksOutcome, BlocksError> {
        if self.count.is_none() {
            self.stop();
        }
        let begin = Instant::now();
        loop {
            let left = END_TIMEOUT.saturating_sub(begin.elapsed());
            match self.poll(left)? {
                Some(BlocksProgress::Finished) => break,
                Some(BlocksProgress::Made(_)) => {}
                None if left.is_zero() => return Err(self.silent("end", END_TIMEOUT)),
                None => {}
            }
        }
        // Blocks of several CPUs are reported in the order of their ends.
        self.spans.sort_by_key(|span| (span.start, span.cpu));
        Ok(BlocksOutcome {
            made: BlocksMade {
                kind: self.kind,
                length: self.settings.length,
                clock: Vec::new(),
                spans: std::mem::take(&mut self.spans),
            },
            count: self.count.unwrap_or(0),
            findings: std::mem::take(&mut self.findings),
        })
    }

    fn send(&mut self, request: &BlockerRequest) -> Result<(), BlocksError> {
        let sent = self.client.send(request);
        sent.map_err(|error| self.error(error))
    }

    fn next_event(&mut self, timeout: Duration) -> Result<Option<BlockerEvent>, BlocksError> {
        match self.client.next_event(timeout) {
            Ok(Some(BlockerEvent::Refused(refusal))) => {
                Err(BlocksError::Refused(Box::new(refusal)))
            }
            Ok(event) => Ok(event),
            Err(error) => Err(self.error(error)),
        }
    }

    fn error(&self, error: ClientError) -> BlocksError {
        let program = self.name.clone();
        match error {
            ClientError::NotWritten(source) => BlocksError::NotWritten { program, source },
            ClientError::UnexpectedLine { line, reason } => BlocksError::Unintelligible {
                program,
                line,
                reason,
            },
            ClientError::Ended { status, stderr } => BlocksError::Ended {
                program,
                ending: match stderr.trim() {
                    "" => format!(" ({status})"),
                    stderr => format!(" ({status}): {stderr}"),
                },
            },
        }
    }

    fn unexpected_event(&self, event: &BlockerEvent) -> BlocksError {
        BlocksError::Unintelligible {
            program: self.name.clone(),
            line: abridged(&format!("{event:?}")),
            reason: "unexpected at this point".to_owned(),
        }
    }

    fn silent(&self, what: &'static str, waited: Duration) -> BlocksError {
        BlocksError::Silent {
            program: self.name.clone(),
            what,
            waited,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rampart_model::{BlockSpread, CpuId, CpuSet, Refusal, RefusalKind, Severity};

    fn plan() -> BlockSettings {
        BlockSettings {
            cpus: CpuSet::single(CpuId(1)),
            length: Nanos(1000),
            count: 2,
            pause: Nanos(200_000),
            spread: BlockSpread::Even,
            seed: 0,
            kind: None,
        }
    }

    fn ready(protocol: u32) -> BlockerEvent {
        BlockerEvent::Ready {
            protocol,
            kind: BlockKind::Spin,
            longest: Nanos(5000),
            findings: vec![Finding::new(Severity::Warning, "here", "weak")],
        }
    }

    fn span(cpu: u32, start: u64) -> BlockSpan {
        BlockSpan {
            cpu: CpuId(cpu),
            sequence: 0,
            start: Nanos(start),
            end: Nanos(start + 1000),
        }
    }

    /// Returns blocks from a program that has already sent these events.
    fn blocks_from(events: &[BlockerEvent]) -> Result<Blocks, BlocksError> {
        let mut text = Vec::new();
        for event in events {
            serde_json::to_writer(&mut text, event).expect("text");
            text.push(b'\n');
        }
        let output = Box::new(std::io::Cursor::new(text));
        Blocks::over(
            "there",
            Box::new(std::io::sink()),
            output,
            Box::new(()),
            &plan(),
        )
    }

    #[test]
    fn returns_the_blocks_and_findings_of_a_series() {
        let mut blocks = blocks_from(&[
            ready(BLOCKER_PROTOCOL_VERSION),
            BlockerEvent::Blocked {
                spans: vec![span(2, 70)],
            },
            BlockerEvent::Blocked {
                spans: vec![span(1, 60)],
            },
            BlockerEvent::Finished {
                made: 1,
                findings: vec![Finding::new(Severity::Note, "there", "late")],
            },
        ])
        .expect("starts");
        assert_eq!(
            (blocks.kind(), blocks.longest()),
            (BlockKind::Spin, Nanos(5000))
        );
        blocks.go().expect("started");
        let timeout = Duration::from_secs(5);
        assert_eq!(
            blocks.poll(timeout).expect("an event"),
            Some(BlocksProgress::Made(vec![span(2, 70)]))
        );
        let outcome = blocks.finish().expect("ends");
        assert_eq!(outcome.made.spans, [span(1, 60), span(2, 70)]);
        assert_eq!((outcome.made.kind, outcome.count), (BlockKind::Spin, 1));
        assert_eq!(outcome.findings.len(), 2);
    }

    #[test]
    fn refusal_and_wrong_version_are_errors() {
        let refusal = Refusal {
            kind: RefusalKind::CpuOffline,
            finding: Finding::new(Severity::Error, "CPU 1", "the CPU is offline"),
        };
        let refused = blocks_from(&[BlockerEvent::Refused(refusal.clone())]).expect_err("refused");
        assert!(matches!(refused, BlocksError::Refused(given) if *given == refusal));
        let other = blocks_from(&[ready(99)]).expect_err("another version");
        assert!(matches!(
            other,
            BlocksError::OtherVersion { present: 99, .. }
        ));
    }

    #[test]
    fn reports_a_silent_program_with_a_fix() {
        let (near, _far) = std::os::unix::net::UnixStream::pair().expect("sockets");
        let output = near.try_clone().expect("a clone");
        let streams = MeterStreams {
            input: Some(Box::new(near)),
            output: Some(Box::new(output)),
            errors: None,
        };
        let process = Box::new(RemoteProgram(None));
        let mut blocks = Blocks::new("there".to_owned(), &plan(), streams, process);
        let nothing = blocks.poll(Duration::from_millis(20)).expect("it lives");
        assert_eq!(nothing, None);
        let error = blocks.silent("get ready", READY_TIMEOUT).to_string();
        assert!(
            error.contains("30 s") && error.contains("; fix: "),
            "{error}"
        );
    }

    #[test]
    fn reports_a_program_that_ends_or_sends_invalid_events() {
        assert!(matches!(blocks_from(&[]), Err(BlocksError::Ended { .. })));
        let early = blocks_from(&[BlockerEvent::Blocked { spans: vec![] }]);
        assert!(matches!(early, Err(BlocksError::Unintelligible { .. })));
        let mut blocks = blocks_from(&[ready(BLOCKER_PROTOCOL_VERSION)]).expect("starts");
        let error = blocks.poll(Duration::from_secs(5)).expect_err("ended");
        assert!(
            error.to_string().contains("before its final report"),
            "{error}"
        );
    }
}
