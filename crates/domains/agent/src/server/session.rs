// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The event loop of the agent: one thread that polls the byte stream, the signals and the streams
//! of all programs.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Signal, WaitOptions, wait};

use super::ServeOptions;
use super::outgoing::Outgoing;
use super::signals::Signals;
use super::started_program::{OutputStream, Program};
use crate::frame::{Decoder, Frame, Kind, Malformed, greeting};
use crate::payloads::{AGENT_PROTOCOL_VERSION, AgentCommand, AgentHello, TerminalSize};

/// Timeout for programs to end after the client disconnected. An evaluation restores the machine in this
/// time.
const GRACE: Duration = Duration::from_secs(20);

/// How long the last answer of a session may wait for its reader.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// Interval between two polls of a port without a client, which poll(2) cannot wait for.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// The reason why a session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// The client disconnected.
    Lost,
    /// The client or a signal requested the end.
    Requested,
    /// The client asked to rest until the next client connects.
    Rested,
}

/// The owner of a polled descriptor.
#[derive(Debug, Clone, Copy)]
enum Source {
    Signals,
    Port,
    Input(u32),
    Output(u32),
    Errors(u32),
}

#[derive(Debug)]
pub(super) struct Session {
    input: OwnedFd,
    output: OwnedFd,
    signals: Signals,
    /// A port reports the end of its stream as long as no client has connected.
    is_port: bool,
    silence: Option<Duration>,
    problems: Vec<String>,
    greeted: Option<[u8; 8]>,
    decoder: Decoder,
    outgoing: Outgoing,
    programs: BTreeMap<u32, Program>,
    last_received: Instant,
    /// The client has disconnected; further output of programs is discarded.
    disconnected: bool,
}

impl Session {
    pub(super) fn new(
        options: &ServeOptions,
        input: OwnedFd,
        output: OwnedFd,
        signals: Signals,
        problems: Vec<String>,
    ) -> Self {
        Self {
            input,
            output,
            signals,
            is_port: options.port.is_some(),
            silence: options.silence,
            problems,
            greeted: None,
            decoder: Decoder::default(),
            outgoing: Outgoing::default(),
            programs: BTreeMap::new(),
            last_received: Instant::now(),
            disconnected: false,
        }
    }

    /// Returns the signals for the next session.
    pub(super) fn into_signals(self) -> Signals {
        self.signals
    }

    /// Prepares for the next client.
    pub(super) fn reset(&mut self) {
        self.greeted = None;
        self.decoder = Decoder::default();
        self.outgoing.clear();
        self.programs.clear();
        self.disconnected = false;
        self.last_received = Instant::now();
    }

    /// Serves until the session ends.
    pub(super) fn serve(&mut self) -> io::Result<End> {
        loop {
            let no_client = self.is_port && self.greeted.is_none();
            let timeout = if no_client {
                Some(LOOK_AGAIN)
            } else {
                self.silence.map(|silence| {
                    silence.saturating_sub(self.last_received.elapsed()) + Duration::from_millis(1)
                })
            };
            if no_client && let Some(end) = self.read_port() {
                return Ok(end);
            }
            for (source, _) in self.wait(timeout, !no_client)? {
                let end = match source {
                    Source::Signals => self.handle_signals(),
                    Source::Port => self.read_port(),
                    other => {
                        self.serve_stream(other);
                        None
                    }
                };
                if let Some(end) = end {
                    return Ok(end);
                }
            }
            // A port without a client accepts no data; reading detects its end.
            if self.outgoing.write(&self.output).is_err() {
                return Ok(End::Lost);
            }
            let silent = |silence| self.last_received.elapsed() > silence;
            if !no_client && self.silence.is_some_and(silent) {
                return Ok(End::Lost);
            }
        }
    }

    /// Answers that no program runs.
    pub(super) fn answer_resting(&mut self) {
        self.outgoing.push(&Frame::new(Kind::Resting, 0, []));
        let until = Instant::now() + ANSWER_LIMIT;
        // A client that reads nothing gets no answer.
        while self.outgoing.write(&self.output).is_ok()
            && !self.outgoing.is_empty()
            && Instant::now() < until
        {
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    /// Asks every program to end, waits, and kills the remaining ones.
    pub(super) fn end_programs(&mut self) -> io::Result<()> {
        self.disconnected = true;
        self.outgoing.clear();
        let until = Instant::now() + GRACE;
        for program in self.programs.values_mut() {
            program.input.end();
            program.signal(libc::SIGTERM);
            for stream in [&mut program.output, &mut program.errors] {
                stream.extend_window(u32::MAX);
            }
        }
        self.reap();
        while self.programs.values().any(|program| !program.exited) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            for (source, _) in self.wait(Some(left), false)? {
                match source {
                    Source::Signals => {
                        self.handle_signals();
                    }
                    Source::Port => {}
                    other => self.serve_stream(other),
                }
            }
        }
        for program in self.programs.values() {
            program.signal_group(Signal::KILL);
        }
        self.programs.clear();
        Ok(())
    }

    /// Returns the ready sources. `with_port`: whether to wait for the byte stream too.
    fn wait(
        &self,
        timeout: Option<Duration>,
        with_port: bool,
    ) -> io::Result<Vec<(Source, PollFlags)>> {
        let mut sources = vec![Source::Signals];
        let signals = self.signals.descriptor();
        let mut polled = vec![PollFd::from_borrowed_fd(signals, PollFlags::IN)];
        if with_port {
            sources.push(Source::Port);
            polled.push(PollFd::from_borrowed_fd(self.input.as_fd(), PollFlags::IN));
        }
        let full = !self.disconnected && self.outgoing.is_full();
        for (&number, program) in &self.programs {
            let reading = |stream: &OutputStream| !full && stream.ready_to_read().is_some();
            let streams = [
                (Source::Input(number), program.input.ready_to_write(), true),
                (
                    Source::Output(number),
                    program.output.ready_to_read(),
                    reading(&program.output),
                ),
                (
                    Source::Errors(number),
                    program.errors.ready_to_read(),
                    reading(&program.errors),
                ),
            ];
            for (source, descriptor, wanted) in streams {
                if let (Some(descriptor), true) = (descriptor, wanted) {
                    let flags = match source {
                        Source::Input(_) => PollFlags::OUT,
                        _ => PollFlags::IN,
                    };
                    sources.push(source);
                    polled.push(PollFd::from_borrowed_fd(descriptor, flags));
                }
            }
        }
        // Added last, because it has no source: it only wakes the loop.
        if !self.disconnected && !self.outgoing.is_empty() {
            polled.push(PollFd::from_borrowed_fd(
                self.output.as_fd(),
                PollFlags::OUT,
            ));
        }
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        match poll(&mut polled, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let ready = sources.into_iter().zip(&polled);
        Ok(ready
            .map(|(source, polled)| (source, polled.revents()))
            .filter(|(_, flags)| !flags.is_empty())
            .collect())
    }

    fn handle_signals(&mut self) -> Option<End> {
        let received = self.signals.read();
        if received.child {
            self.reap();
        }
        received.end.then_some(End::Requested)
    }

    /// Reaps every ended child, including adopted ones.
    fn reap(&mut self) {
        while let Ok(Some((id, status))) = wait(WaitOptions::NOHANG) {
            let found = self
                .programs
                .iter_mut()
                .find(|(_, program)| program.id == id && !program.exited);
            if let Some((&number, program)) = found {
                program.exited = true;
                let status = status.as_raw().to_le_bytes();
                self.outgoing
                    .push(&Frame::new(Kind::Exited, number, status));
            }
        }
    }

    fn serve_stream(&mut self, source: Source) {
        let number = match source {
            Source::Input(number) | Source::Output(number) | Source::Errors(number) => number,
            Source::Signals | Source::Port => return,
        };
        let Some(program) = self.programs.get_mut(&number) else {
            return;
        };
        let frame = match source {
            Source::Input(_) => {
                let released = program.input.write();
                (released > 0)
                    .then(|| Frame::new(Kind::InputWindow, number, released.to_le_bytes()))
            }
            Source::Output(_) => program.output.read(number),
            _ => program.errors.read(number),
        };
        if let Some(frame) = frame
            && !self.disconnected
        {
            self.outgoing.push(&frame);
        }
    }

    /// Reads and handles the frames of the client.
    fn read_port(&mut self) -> Option<End> {
        let mut buffer = [0; 32 * 1024];
        match rustix::io::read(&self.input, &mut buffer) {
            Ok(0) if self.is_port && self.greeted.is_none() => return None,
            Ok(0) => return Some(End::Lost),
            Ok(count) => self.decoder.push(&buffer[..count]),
            Err(Errno::AGAIN | Errno::INTR) => return None,
            Err(_) => return Some(End::Lost),
        }
        self.last_received = Instant::now();
        loop {
            if self.greeted.is_none() || self.decoder.greeting_is_next() {
                let own = self.decoder.find_greeting()?;
                match self.greeted {
                    None => self.greet(own),
                    // The greeting was repeated before the answer arrived.
                    Some(known) if known == own => {}
                    // Another client has connected: end the programs of the previous one, then
                    // answer the next greeting of the new one.
                    Some(_) => return Some(End::Lost),
                }
                continue;
            }
            match self.decoder.next_frame() {
                Ok(None) => return None,
                Ok(Some(frame)) => match self.handle(frame) {
                    Ok(None) => {}
                    Ok(end) => return end,
                    Err(_) => return Some(End::Lost),
                },
                Err(_) => return Some(End::Lost),
            }
        }
    }

    fn greet(&mut self, own: [u8; 8]) {
        self.greeted = Some(own);
        self.outgoing.push_bytes(greeting(own).to_vec());
        let hello = hello(&self.problems);
        let text = serde_json::to_vec(&hello).unwrap_or_default();
        self.outgoing.push(&Frame::new(Kind::Hello, 0, text));
    }

    fn handle(&mut self, frame: Frame) -> Result<Option<End>, Malformed> {
        let number = frame.process;
        match frame.kind {
            Kind::Spawn => self.spawn(number, &frame.payload),
            Kind::Clock => {
                let mut payload = frame.number()?.to_le_bytes().to_vec();
                payload.extend(monotonic_now().to_le_bytes());
                self.outgoing
                    .push_urgent(&Frame::new(Kind::Time, 0, payload));
            }
            Kind::PowerOff => return Ok(Some(End::Requested)),
            Kind::Rest => return Ok(Some(End::Rested)),
            Kind::Continued => {
                let (time, seed) = frame.time_and_seed()?;
                // An agent over pipes, as over ssh, is on a machine that no one saved.
                let failed = match self.is_port {
                    true => super::continued::adjust(time, seed),
                    false => "this machine was not saved".to_owned(),
                };
                self.outgoing.push(&Frame::new(Kind::Adjusted, 0, failed));
            }
            Kind::Alive => {}
            Kind::Input
            | Kind::Window
            | Kind::Signal
            | Kind::SignalGroup
            | Kind::Resize
            | Kind::Unread
            | Kind::Forget => self.handle_for(number, &frame)?,
            _ => return Err(Malformed::Kind(frame.kind as u8)),
        }
        Ok(None)
    }

    /// Handles a frame for one program. Ignores a program that was removed.
    fn handle_for(&mut self, number: u32, frame: &Frame) -> Result<(), Malformed> {
        let Some(program) = self.programs.get_mut(&number) else {
            return Ok(());
        };
        match frame.kind {
            Kind::Input => {
                if !program.input.push(&frame.payload) {
                    return Err(Malformed::Payload);
                }
                self.serve_stream(Source::Input(number));
            }
            Kind::Window => {
                let (stream, bytes) = frame.stream_and_number()?;
                match stream {
                    1 => program.output.extend_window(bytes),
                    _ => program.errors.extend_window(bytes),
                }
            }
            Kind::Signal => program.signal(i32::try_from(frame.number()?).unwrap_or(0)),
            Kind::SignalGroup => {
                let number = i32::try_from(frame.number()?).unwrap_or(0);
                if let Some(signal) = Signal::from_named_raw(number) {
                    program.signal_group(signal);
                }
            }
            Kind::Resize => {
                let size = frame.number()?;
                program.resize(TerminalSize {
                    rows: (size & 0xffff) as u16,
                    columns: (size >> 16) as u16,
                });
            }
            Kind::Unread => match frame.payload.first() {
                Some(1) => program.output.close(),
                _ => program.errors.close(),
            },
            _ => {
                if !program.exited || !program.is_over() {
                    program.signal_group(Signal::KILL);
                }
                self.programs.remove(&number);
            }
        }
        Ok(())
    }

    fn spawn(&mut self, number: u32, payload: &[u8]) {
        let started = match serde_json::from_slice::<AgentCommand>(payload) {
            Err(error) => Err(error.to_string()),
            Ok(_) if self.programs.contains_key(&number) => {
                Err(format!("program {number} already exists"))
            }
            Ok(command) => Program::start(&command).map_err(|error| error.to_string()),
        };
        match started {
            Err(reason) => {
                let frame = Frame::new(Kind::NotStarted, number, reason);
                self.outgoing.push(&frame);
            }
            Ok(program) => {
                let id = program.id.as_raw_nonzero().get().to_le_bytes();
                self.outgoing.push(&Frame::new(Kind::Started, number, id));
                if program.has_terminal() {
                    self.outgoing.push(&Frame::new(Kind::Errors, number, []));
                }
                self.programs.insert(number, program);
            }
        }
    }
}

fn monotonic_now() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

fn hello(problems: &[String]) -> AgentHello {
    let system = rustix::system::uname();
    let text = |text: &std::ffi::CStr| text.to_string_lossy().into_owned();
    let file = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    AgentHello {
        protocol: AGENT_PROTOCOL_VERSION,
        program: env!("CARGO_PKG_VERSION").to_owned(),
        kernel_release: text(system.release()),
        kernel_version: text(system.version()),
        architecture: text(system.machine()),
        kernel_command_line: file("/proc/cmdline").trim().to_owned(),
        cpus: file("/sys/devices/system/cpu/online")
            .trim()
            .parse()
            .unwrap_or_default(),
        problems: problems.to_vec(),
    }
}
