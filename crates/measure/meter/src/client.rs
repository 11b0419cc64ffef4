// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The caller's side of the protocol of `rampart-meter`: one JSON object per line, requests on its
//! standard input, events on its standard output.

use std::collections::VecDeque;
use std::io::{self, BufRead as _, BufReader, Read, Write};
use std::process::Child;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::run_before_loads;

/// How long a program may take to end by itself after its last event.
const END_LIMIT: Duration = Duration::from_secs(5);
/// How long to wait for the exit status of a program that closed its output.
const STATUS_LIMIT: Duration = Duration::from_secs(2);
/// How long to wait for the end of a killed process. A process in uninterruptible sleep may never
/// end.
const KILL_LIMIT: Duration = Duration::from_secs(10);
/// Maximum number of unread events. Further events stay in the pipe; the program continues.
const WAITING_EVENTS: usize = 4096;
/// Maximum length of a line, in bytes.
const LONGEST_LINE: u64 = 64 << 20;
/// Number of bytes kept from the end of a program's standard error.
pub const STDERR_KEPT: usize = 4096;

/// A process of `rampart-meter`, or of a program around it, on this or on another kernel.
pub trait MeterProcess: Send {
    /// Returns the process id in the PID namespace of the kernel that runs the process.
    fn id(&self) -> u32;

    /// Returns the exit status as text, or `None` while the process runs.
    fn exit_status(&mut self) -> Option<String>;

    /// Kills the process and returns its exit status as text, or `None` if it does not end in time.
    fn kill(&mut self) -> Option<String>;
}

impl MeterProcess for Child {
    fn id(&self) -> u32 {
        Child::id(self)
    }

    fn exit_status(&mut self) -> Option<String> {
        let status = self.try_wait().ok().flatten()?;
        Some(status.to_string())
    }

    fn kill(&mut self) -> Option<String> {
        // Fails if the process has already ended.
        let _ = Child::kill(self);
        let begin = Instant::now();
        loop {
            let status = MeterProcess::exit_status(self);
            if status.is_some() || begin.elapsed() >= KILL_LIMIT {
                return status;
            }
            thread::sleep(Duration::from_millis(2));
        }
    }
}

/// The standard streams of a program.
pub struct MeterStreams {
    /// Standard input.
    pub input: Option<Box<dyn Write + Send>>,
    /// Standard output.
    pub output: Option<Box<dyn Read + Send>>,
    /// Standard error.
    pub errors: Option<Box<dyn Read + Send>>,
}

impl std::fmt::Debug for MeterStreams {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MeterStreams").finish_non_exhaustive()
    }
}

impl MeterStreams {
    /// Takes the piped streams of a child.
    pub fn of(child: &mut Child) -> Self {
        Self {
            input: child.stdin.take().map(|stream| Box::new(stream) as _),
            output: child.stdout.take().map(|stream| Box::new(stream) as _),
            errors: child.stderr.take().map(|stream| Box::new(stream) as _),
        }
    }
}

/// The reason why a conversation cannot continue.
#[derive(Debug)]
pub enum ClientError {
    /// A request cannot be written.
    NotWritten(io::Error),
    /// The program closed its input or output before its last event.
    Ended {
        /// Exit status of the program.
        status: String,
        /// The end of its standard error.
        stderr: String,
    },
    /// A line is not an event.
    UnexpectedLine {
        /// The beginning of the line.
        line: String,
        /// The error of the parser.
        reason: String,
    },
}

enum Line<Event> {
    Event(Event),
    Unexpected { line: String, reason: String },
}

/// A conversation with one program. Dropping it kills the program.
pub struct Client<Event> {
    process: Box<dyn MeterProcess>,
    input: Option<Box<dyn Write + Send>>,
    lines: Receiver<Line<Event>>,
    stderr: Arc<Mutex<VecDeque<u8>>>,
    stderr_reader: Option<JoinHandle<()>>,
    status: Option<String>,
}

impl<Event> std::fmt::Debug for Client<Event> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client")
            .field("process", &self.process.id())
            .field("status", &self.status)
            .finish_non_exhaustive()
    }
}

impl<Event: DeserializeOwned + Send + 'static> Client<Event> {
    /// Creates a client for the streams of a program.
    #[must_use]
    pub fn new(streams: MeterStreams, process: Box<dyn MeterProcess>) -> Self {
        let (sender, lines) = sync_channel(WAITING_EVENTS);
        if let Some(output) = streams.output {
            thread::spawn(move || {
                run_before_loads();
                read_lines(output, &sender);
            });
        }
        let stderr = Arc::new(Mutex::new(VecDeque::new()));
        let stderr_reader = streams.errors.map(|errors| {
            let tail = Arc::clone(&stderr);
            thread::spawn(move || read_tail(errors, &tail))
        });
        Self {
            process,
            input: streams.input,
            lines,
            stderr,
            stderr_reader,
            status: None,
        }
    }

    /// Returns the process id.
    #[must_use]
    pub fn process(&self) -> u32 {
        self.process.id()
    }

    /// Sends a request.
    ///
    /// # Errors
    /// Returns an error if the program no longer reads its input.
    pub fn send(&mut self, request: &impl Serialize) -> Result<(), ClientError> {
        let written = serde_json::to_vec(request)
            .map_err(io::Error::other)
            .and_then(|mut line| {
                line.push(b'\n');
                let input = self.input.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
                input.write_all(&line)?;
                input.flush()
            });
        written.map_err(|error| match error.kind() {
            io::ErrorKind::BrokenPipe => self.ended(),
            _ => ClientError::NotWritten(error),
        })
    }

    /// Returns the next event, or `None` if none comes within `limit`.
    ///
    /// # Errors
    /// Returns an error if the output ends or contains a line that is not an event.
    pub fn next_event(&mut self, limit: Duration) -> Result<Option<Event>, ClientError> {
        match self.lines.recv_timeout(limit) {
            Ok(Line::Event(event)) => Ok(Some(event)),
            Ok(Line::Unexpected { line, reason }) => {
                Err(ClientError::UnexpectedLine { line, reason })
            }
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(self.ended()),
        }
    }

    fn ended(&mut self) -> ClientError {
        let status = match self.wait(STATUS_LIMIT) {
            Some(status) => status,
            None => "it closed its output and runs on".to_owned(),
        };
        ClientError::Ended {
            status,
            stderr: self.stderr_tail(),
        }
    }

    /// Returns the end of the program's standard error so far.
    pub fn stderr_tail(&mut self) -> String {
        // The pipe of an ended program may still hold unread text.
        if self.status.is_some()
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

    fn wait(&mut self, limit: Duration) -> Option<String> {
        let begin = Instant::now();
        loop {
            if self.status.is_none() {
                self.status = self.process.exit_status();
            }
            if self.status.is_some() {
                return self.status.clone();
            }
            if begin.elapsed() >= limit {
                return None;
            }
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Closes the input, which `rampart-meter` takes as a request to stop, and kills the program if
    /// it does not end within 5 s. Returns whether it ended without being killed.
    pub fn close(&mut self) -> bool {
        self.input = None;
        // Drain the events: a full pipe would block the program before its last events.
        let begin = Instant::now();
        while begin.elapsed() < END_LIMIT {
            if self.wait(Duration::ZERO).is_some() {
                return true;
            }
            match self.lines.recv_timeout(Duration::from_millis(5)) {
                Ok(_) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => thread::sleep(Duration::from_millis(2)),
            }
        }
        self.kill();
        false
    }
}

impl<Event> Client<Event> {
    /// Kills the program and waits for its end.
    pub fn kill(&mut self) {
        if self.status.is_none() {
            self.status = self.process.kill();
        }
    }
}

impl<Event> Drop for Client<Event> {
    fn drop(&mut self) {
        self.input = None;
        self.kill();
    }
}

/// Reads lines until the output ends or the client is dropped.
fn read_lines<Event: DeserializeOwned>(output: impl Read, lines: &SyncSender<Line<Event>>) {
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
        let line = match serde_json::from_slice(&line) {
            Ok(event) => Line::Event(event),
            Err(error) => Line::Unexpected {
                line: abridged(&String::from_utf8_lossy(&line)),
                reason: error.to_string(),
            },
        };
        if lines.send(line).is_err() {
            return;
        }
    }
}

/// Returns the beginning of a text, short enough for a message.
#[must_use]
pub fn abridged(text: &str) -> String {
    const SHOWN: usize = 120;
    let text = text.trim_end();
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Keeps the last [`STDERR_KEPT`] bytes of an output.
fn read_tail(mut output: impl Read, tail: &Mutex<VecDeque<u8>>) {
    let mut chunk = [0; 1024];
    while let Ok(length @ 1..) = output.read(&mut chunk) {
        let Ok(mut tail) = tail.lock() else { return };
        tail.extend(&chunk[..length]);
        let surplus = tail.len().saturating_sub(STDERR_KEPT);
        tail.drain(..surplus);
    }
}
