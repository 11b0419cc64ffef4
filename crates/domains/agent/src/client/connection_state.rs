// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The received data that was not consumed yet. One thread fills it and never waits for the
//! consumers; the windows limit the amount of data.

use std::collections::{BTreeMap, VecDeque};
use std::io::Read;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::AgentError;
use crate::frame::{Decoder, Frame, Kind, Malformed, WINDOW};
use crate::payloads::AgentHello;

/// Received bytes of one stream.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    pub(crate) bytes: VecDeque<u8>,
    pub(crate) ended: bool,
    /// The stream is no longer read; its data is discarded.
    pub(crate) unread: bool,
}

/// The state of one program.
#[derive(Debug)]
pub(crate) struct Process {
    /// Process id on the agent's machine, or the reason why it did not start.
    pub(crate) started: Option<Result<u32, String>>,
    pub(crate) output: Stream,
    pub(crate) errors: Stream,
    /// Remaining window of the standard input, in bytes.
    pub(crate) input_window: usize,
    /// Wait status.
    pub(crate) exited: Option<i32>,
}

/// An answer to a request for the time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Time {
    pub(crate) request: u32,
    pub(crate) far: u64,
    pub(crate) received: u64,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) hello: Option<AgentHello>,
    /// The reason why the connection is lost.
    pub(crate) lost: Option<Lost>,
    pub(crate) processes: BTreeMap<u32, Process>,
    pub(crate) time: Option<Time>,
    /// The agent waits for the next client.
    pub(crate) resting: bool,
    /// What failed when the machine continued; empty if nothing.
    pub(crate) adjusted: Option<String>,
    /// Time of the last received data.
    last_received: Option<Instant>,
}

/// The reason why a connection is lost.
#[derive(Debug, Clone)]
pub(crate) enum Lost {
    Ended,
    Broken(String),
    InvalidFrame(String),
}

#[derive(Debug, Default)]
pub(crate) struct ConnectionState {
    state: Mutex<State>,
    changed: Condvar,
}

impl ConnectionState {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, number: u32) {
        let process = Process {
            started: None,
            output: Stream::default(),
            errors: Stream::default(),
            input_window: WINDOW,
            exited: None,
        };
        self.state().processes.insert(number, process);
    }

    pub(crate) fn changed(&self) {
        self.changed.notify_all();
    }

    pub(crate) fn lost(&self) -> Option<AgentError> {
        self.state().lost.clone().map(|lost| match lost {
            Lost::Ended => AgentError::Lost(None),
            Lost::Broken(reason) => AgentError::Lost(Some(reason)),
            Lost::InvalidFrame(what) => AgentError::InvalidFrame(what),
        })
    }

    /// Marks the connection as lost, unless it already is.
    pub(crate) fn lose(&self, reason: String) {
        self.state().lost.get_or_insert(Lost::Broken(reason));
        self.changed();
    }

    /// Returns the time since data was last received.
    pub(crate) fn quiet(&self) -> Duration {
        self.state()
            .last_received
            .map_or(Duration::MAX, |last_received| last_received.elapsed())
    }

    /// Waits until `found` returns a value, at most for this time.
    pub(crate) fn wait<T>(
        &self,
        timeout: Duration,
        mut found: impl FnMut(&mut State) -> Option<T>,
    ) -> Option<T> {
        let until = Instant::now().checked_add(timeout);
        let mut state = self.state();
        loop {
            if let Some(value) = found(&mut state) {
                return Some(value);
            }
            let left = until.map_or(Duration::from_secs(3600), |until| {
                until.saturating_duration_since(Instant::now())
            });
            if left.is_zero() {
                return None;
            }
            (state, _) = self
                .changed
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Reads until the stream ends.
    pub(crate) fn read_all(&self, mut reader: Box<dyn Read + Send>, own: [u8; 8]) {
        let (mut decoder, mut greeted) = (Decoder::default(), false);
        let mut buffer = vec![0; 64 * 1024];
        let lost = loop {
            match reader.read(&mut buffer) {
                Ok(0) => break Lost::Ended,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => break Lost::Broken(error.to_string()),
                Ok(count) => {
                    let received = monotonic_now();
                    self.state().last_received = Some(Instant::now());
                    decoder.push(&buffer[..count]);
                    while !greeted && let Some(found) = decoder.find_greeting() {
                        // The greeting of another connection is old data.
                        greeted = found == own;
                    }
                    if greeted && let Err(error) = self.take(&mut decoder, received) {
                        break Lost::InvalidFrame(error.to_string());
                    }
                }
            }
        };
        self.state().lost.get_or_insert(lost);
        self.changed();
    }

    fn take(&self, decoder: &mut Decoder, received: u64) -> Result<(), Malformed> {
        let mut state = self.state();
        let mut some = false;
        while let Some(frame) = decoder.next_frame()? {
            state.take(frame, received)?;
            some = true;
        }
        drop(state);
        if some {
            self.changed();
        }
        Ok(())
    }
}

impl State {
    fn take(&mut self, frame: Frame, received: u64) -> Result<(), Malformed> {
        match frame.kind {
            Kind::Hello => {
                let hello = serde_json::from_slice(&frame.payload);
                self.hello = Some(hello.map_err(|_| Malformed::Payload)?);
                return Ok(());
            }
            Kind::Resting => {
                self.resting = true;
                return Ok(());
            }
            Kind::Adjusted => {
                self.adjusted = Some(String::from_utf8_lossy(&frame.payload).into_owned());
                return Ok(());
            }
            Kind::Time => {
                let (request, far) = frame
                    .payload
                    .split_first_chunk::<4>()
                    .ok_or(Malformed::Payload)?;
                let far = far.try_into().map_err(|_| Malformed::Payload)?;
                self.time = Some(Time {
                    request: u32::from_le_bytes(*request),
                    far: u64::from_le_bytes(far),
                    received,
                });
                return Ok(());
            }
            _ => {}
        }
        // Frames of a forgotten program may still arrive.
        let Some(process) = self.processes.get_mut(&frame.process) else {
            return Ok(());
        };
        match frame.kind {
            Kind::Started => process.started = Some(Ok(frame.number()?)),
            Kind::NotStarted => {
                let reason = String::from_utf8_lossy(&frame.payload).into_owned();
                process.started = Some(Err(reason));
            }
            Kind::Output => process.output.push(&frame.payload),
            Kind::Errors => process.errors.push(&frame.payload),
            Kind::InputWindow => {
                process.input_window = process
                    .input_window
                    .saturating_add(frame.number()? as usize);
            }
            Kind::Exited => process.exited = Some(frame.number()?.cast_signed()),
            other => return Err(Malformed::Kind(other as u8)),
        }
        Ok(())
    }
}

impl Stream {
    fn push(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            self.ended = true;
        } else if !self.unread {
            self.bytes.extend(bytes);
        }
    }
}

/// Returns `CLOCK_MONOTONIC` in nanoseconds.
pub(crate) fn monotonic_now() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
