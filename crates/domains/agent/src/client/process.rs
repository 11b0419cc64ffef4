// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A program of the agent, as seen by the client.

use std::io::{self, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use super::Inner;
use super::connection_state::{Process, State, Stream};
use crate::AgentError;
use crate::frame::{Frame, Kind, MAXIMUM_PAYLOAD, WINDOW};
use crate::payloads::TerminalSize;

/// A program that the agent started. Its parts can be moved out.
#[derive(Debug)]
pub struct AgentProcess {
    /// Standard input; dropping it closes it.
    pub stdin: AgentInput,
    /// Standard output.
    pub stdout: AgentOutput,
    /// Standard error; empty if the program has a terminal.
    pub stderr: AgentOutput,
    /// Dropping the handle kills the program and its process group.
    pub handle: AgentHandle,
}

/// Controls a program; dropping it kills the program.
#[derive(Debug)]
pub struct AgentHandle {
    inner: Arc<Inner>,
    number: u32,
}

/// Standard input of a program.
#[derive(Debug)]
pub struct AgentInput {
    inner: Arc<Inner>,
    number: u32,
}

/// Standard output or standard error of a program.
#[derive(Debug)]
pub struct AgentOutput {
    inner: Arc<Inner>,
    number: u32,
    which: Which,
    /// Bytes that were read but not yet acknowledged.
    taken: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Which {
    Output = 1,
    Errors = 2,
}

impl AgentProcess {
    pub(super) fn new(inner: Arc<Inner>, number: u32) -> Self {
        let output = |which| AgentOutput {
            inner: Arc::clone(&inner),
            number,
            which,
            taken: 0,
        };
        Self {
            stdout: output(Which::Output),
            stderr: output(Which::Errors),
            stdin: AgentInput {
                inner: Arc::clone(&inner),
                number,
            },
            handle: AgentHandle { inner, number },
        }
    }

    /// As [`AgentHandle::signal`].
    ///
    /// # Errors
    /// Returns an error if the connection is lost.
    pub fn signal(&self, signal: i32) -> Result<(), AgentError> {
        self.handle.signal(signal)
    }

    /// As [`AgentHandle::wait`].
    ///
    /// # Errors
    /// Returns an error if the connection is lost.
    pub fn wait(&self, timeout: Duration) -> Result<Option<ExitStatus>, AgentError> {
        self.handle.wait(timeout)
    }
}

impl AgentHandle {
    /// Sends a signal to the program, but not to its children. Has no effect if the program has
    /// ended.
    ///
    /// # Errors
    /// Returns an error if the connection is lost.
    pub fn signal(&self, signal: i32) -> Result<(), AgentError> {
        let frame = Frame::new(Kind::Signal, self.number, signal.to_le_bytes());
        self.inner.send(&frame)
    }

    /// Sends a signal to the program's process group, as a terminal does.
    ///
    /// # Errors
    /// Returns an error if the connection is lost.
    pub fn signal_group(&self, signal: i32) -> Result<(), AgentError> {
        let frame = Frame::new(Kind::SignalGroup, self.number, signal.to_le_bytes());
        self.inner.send(&frame)
    }

    /// Sets the size of the program's terminal. Has no effect if it has none.
    ///
    /// # Errors
    /// Returns an error if the connection is lost.
    pub fn resize(&self, size: TerminalSize) -> Result<(), AgentError> {
        let both = u32::from(size.rows) | u32::from(size.columns) << 16;
        let frame = Frame::new(Kind::Resize, self.number, both.to_le_bytes());
        self.inner.send(&frame)
    }

    /// Returns the exit status, or `None` if the program has not ended within `timeout`. Its
    /// streams may still contain data.
    ///
    /// # Errors
    /// Returns an error if the connection is lost before the program ended.
    pub fn wait(&self, timeout: Duration) -> Result<Option<ExitStatus>, AgentError> {
        let found = self.inner.shared.wait(timeout, |state| {
            let lost = state.lost.is_some();
            let exited = state.processes.get(&self.number)?.exited;
            exited.map(Some).or_else(|| lost.then_some(None))
        });
        match found {
            None => Ok(None),
            Some(Some(status)) => Ok(Some(ExitStatus::from_raw(status))),
            Some(None) => Err(self.inner.lost()),
        }
    }

    /// Returns the process id on the agent's machine, or `None` if the program did not start.
    #[must_use]
    pub fn id(&self) -> Option<u32> {
        let state = self.inner.shared.state();
        let started = &state.processes.get(&self.number)?.started;
        started.as_ref()?.as_ref().ok().copied()
    }
}

impl Drop for AgentHandle {
    fn drop(&mut self) {
        self.inner.shared.state().processes.remove(&self.number);
        self.inner.shared.changed();
        // Without a connection, the agent ends the program anyway.
        let _ = self.inner.send(&Frame::new(Kind::Forget, self.number, []));
    }
}

impl Write for AgentInput {
    /// Waits while the agent's window is full, as long as its machine is alive.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.is_empty() {
            return Ok(0);
        }
        let count = self.inner.wait_while_alive(|state| {
            if state.lost.is_some() {
                return Some(Err(()));
            }
            let Some(process) = state.processes.get_mut(&self.number) else {
                return Some(Ok(0));
            };
            if process.exited.is_some() {
                return Some(Ok(0));
            }
            let count = process.input_window.min(bytes.len()).min(MAXIMUM_PAYLOAD);
            process.input_window -= count;
            (count > 0).then_some(Ok(count))
        });
        match count {
            Err(()) => Err(self.inner.lost().into()),
            Ok(0) => Err(io::ErrorKind::BrokenPipe.into()),
            Ok(count) => {
                let frame = Frame::new(Kind::Input, self.number, &bytes[..count]);
                self.inner.send(&frame)?;
                Ok(count)
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for AgentInput {
    fn drop(&mut self) {
        let _ = self.inner.send(&Frame::new(Kind::Input, self.number, []));
    }
}

impl Which {
    fn of(self, process: &mut Process) -> &mut Stream {
        match self {
            Self::Output => &mut process.output,
            Self::Errors => &mut process.errors,
        }
    }
}

impl AgentOutput {
    /// Reads with a time limit. Returns `None` if no data arrives within `timeout`.
    /// [`Duration::MAX`] waits as long as the machine is alive, like `read`.
    ///
    /// # Errors
    /// Returns an error if the connection is lost.
    pub fn read_within(
        &mut self,
        bytes: &mut [u8],
        timeout: Duration,
    ) -> io::Result<Option<usize>> {
        if bytes.is_empty() {
            return Ok(Some(0));
        }
        let (number, which) = (self.number, self.which);
        let take = |state: &mut State| take(state, number, which, bytes);
        let taken = if timeout == Duration::MAX {
            Some(self.inner.wait_while_alive(take))
        } else {
            self.inner.shared.wait(timeout, take)
        };
        let count = match taken {
            None => return Ok(None),
            Some(Err(())) => return Err(self.inner.lost().into()),
            Some(Ok(count)) => count,
        };
        self.taken += count;
        if self.taken >= WINDOW / 4 {
            // At most a window.
            let frame = Frame::window(self.number, self.which as u8, self.taken as u32);
            self.taken = 0;
            // If the connection is lost, the next read reports it.
            let _ = self.inner.send(&frame);
        }
        Ok(Some(count))
    }
}

/// Takes the available bytes. Returns `None` if there are none yet.
fn take(
    state: &mut State,
    number: u32,
    which: Which,
    bytes: &mut [u8],
) -> Option<Result<usize, ()>> {
    let lost = state.lost.is_some();
    let Some(process) = state.processes.get_mut(&number) else {
        return Some(Ok(0));
    };
    let stream = which.of(process);
    match stream.bytes.read(bytes) {
        Ok(count) if count > 0 => Some(Ok(count)),
        _ if stream.ended => Some(Ok(0)),
        _ => lost.then_some(Err(())),
    }
}

impl Read for AgentOutput {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.read_within(bytes, Duration::MAX)
            .map(Option::unwrap_or_default)
    }
}

impl Drop for AgentOutput {
    fn drop(&mut self) {
        if let Some(process) = self.inner.shared.state().processes.get_mut(&self.number) {
            let stream = self.which.of(process);
            stream.unread = true;
            stream.bytes.clear();
            if stream.ended {
                return;
            }
        }
        let frame = Frame::new(Kind::Unread, self.number, [self.which as u8]);
        let _ = self.inner.send(&frame);
    }
}
