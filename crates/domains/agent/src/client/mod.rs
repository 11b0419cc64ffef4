// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The client of the agent.

mod connection_state;
mod process;

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use rampart_model::{ClockRelation, Nanos, SignedNanos};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use connection_state::{ConnectionState, State};
pub use process::{AgentHandle, AgentInput, AgentOutput, AgentProcess};

use crate::AgentError;
use crate::frame::{Frame, Kind, MAXIMUM_PAYLOAD, greeting};
use crate::payloads::{AGENT_PROTOCOL_VERSION, AgentCommand, AgentHello, SEED};

/// Interval of keep-alive messages on streams that do not report the end of the other side.
pub const KEEP_ALIVE: Duration = Duration::from_secs(5);

/// Interval between greetings until one is answered.
const GREET_AGAIN: Duration = Duration::from_secs(1);

/// Timeout for the start of a program. A start takes milliseconds; in an emulated guest of an emulated
/// machine with busy CPUs, seconds.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// Maximum time for which the agent may accept no data.
const SEND_TIMEOUT: Duration = Duration::from_secs(60);

/// Time without data after which the client checks that a program's machine is alive.
const QUIET: Duration = Duration::from_secs(30);

/// Timeout of the answer to this check.
const ALIVE_TIMEOUT: Duration = Duration::from_secs(60);

/// Timeout of one answer to a request for the time.
const CLOCK_TIMEOUT: Duration = Duration::from_secs(5);
/// If answers are slow, as in a guest of an emulated machine, more exchanges do not improve the
/// result: after this time, [`MINIMUM_EXCHANGES`] are enough.
const CLOCK_TIME: Duration = Duration::from_millis(300);
const MINIMUM_EXCHANGES: u32 = 8;

/// A connection to an agent, shared by its clones. It closes with the last of them and of their
/// programs.
#[derive(Debug, Clone)]
pub struct Agent {
    inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) shared: Arc<ConnectionState>,
    writer: Mutex<Box<dyn Write + Send>>,
    hello: AgentHello,
    alive_check: AliveCheck,
    next: AtomicU32,
    /// Locked while one request for the time is pending.
    clock: Mutex<u32>,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inner").finish_non_exhaustive()
    }
}

/// Limits of the check that a machine is alive while its program is silent.
#[derive(Debug, Clone, Copy)]
struct AliveCheck {
    /// Silence after which the client requests the agent's time.
    quiet: Duration,
    /// Timeout of the answer.
    answer: Duration,
}

/// A socket that is shut down on drop, even while another thread reads a clone of it.
struct ShutOnDrop(UnixStream);

impl Write for ShutOnDrop {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl Drop for ShutOnDrop {
    fn drop(&mut self) {
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

/// A pipe whose writes fail if it accepts no data for [`SEND_TIMEOUT`].
struct TimedPipe<Pipe>(Pipe);

impl<Pipe: Write + AsFd> TimedPipe<Pipe> {
    fn new(pipe: Pipe) -> io::Result<Self> {
        not_blocking(&pipe)?;
        Ok(Self(pipe))
    }
}

impl<Pipe: Write + AsFd> Write for TimedPipe<Pipe> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let until = Instant::now() + SEND_TIMEOUT;
        loop {
            match self.0.write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => return written,
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let timeout = Timespec::try_from(left).ok();
            let mut polled = [PollFd::new(&self.0, PollFlags::OUT)];
            match poll(&mut polled, timeout.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl Agent {
    /// Greets the agent at the other end of a socket and waits for its answer, at most for
    /// `timeout`, because a machine may still be booting.
    ///
    /// # Errors
    /// Returns an error if no answer arrives, the agent has another version, or the stream ends.
    pub fn connect(stream: UnixStream, timeout: Duration) -> Result<Self, AgentError> {
        let reader = stream.try_clone()?;
        stream.set_write_timeout(Some(SEND_TIMEOUT))?;
        Self::greet(
            Box::new(reader),
            Box::new(ShutOnDrop(stream)),
            timeout,
            AliveCheck::DEFAULT,
        )
    }

    /// Does the same over two pipes, for example those of `ssh`. Sets the pipe for writing to
    /// non-blocking mode.
    ///
    /// # Errors
    /// As [`Agent::connect`].
    pub fn connect_over(
        reader: impl Read + Send + 'static,
        writer: impl Write + AsFd + Send + 'static,
        timeout: Duration,
    ) -> Result<Self, AgentError> {
        let writer = TimedPipe::new(writer)?;
        Self::greet(
            Box::new(reader),
            Box::new(writer),
            timeout,
            AliveCheck::DEFAULT,
        )
    }

    fn greet(
        reader: Box<dyn Read + Send>,
        mut writer: Box<dyn Write + Send>,
        timeout: Duration,
        alive_check: AliveCheck,
    ) -> Result<Self, AgentError> {
        let own = own_bytes();
        let shared = Arc::new(ConnectionState::default());
        let for_reader = Arc::clone(&shared);
        std::thread::Builder::new()
            .name("agent".to_owned())
            .spawn(move || for_reader.read_all(reader, own))?;
        let until = Instant::now() + timeout;
        let hello = loop {
            let sent = writer
                .write_all(&greeting(own))
                .and_then(|()| writer.flush());
            if let Err(error) = sent {
                // The reason for the end of the stream is more useful than the end itself.
                shared.wait(Duration::from_millis(200), |state| {
                    state.lost.is_some().then_some(())
                });
                return Err(shared
                    .lost()
                    .unwrap_or_else(|| AgentError::Lost(Some(error.to_string()))));
            }
            let left = until.saturating_duration_since(Instant::now());
            let answer = shared.wait(left.min(GREET_AGAIN), |state| match &state.hello {
                Some(hello) => Some(Some(hello.clone())),
                None => state.lost.is_some().then_some(None),
            });
            match answer {
                Some(Some(hello)) => break hello,
                Some(None) => return Err(shared.lost().unwrap_or(AgentError::Lost(None))),
                None if left.is_zero() => return Err(AgentError::NoAnswer(timeout)),
                None => {}
            }
        };
        if hello.protocol != AGENT_PROTOCOL_VERSION {
            return Err(AgentError::Version {
                theirs: hello.protocol,
                ours: AGENT_PROTOCOL_VERSION,
            });
        }
        let inner = Inner {
            shared,
            writer: Mutex::new(writer),
            hello,
            alive_check,
            next: AtomicU32::new(1),
            clock: Mutex::new(0),
        };
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// Returns the agent's description of itself.
    #[must_use]
    pub fn hello(&self) -> &AgentHello {
        &self.inner.hello
    }

    /// Starts to send a keep-alive message every [`KEEP_ALIVE`], for an agent with a limit of
    /// silence (`--silence`).
    ///
    /// # Errors
    /// Returns an error if no thread can be started.
    pub fn keep_alive(&self) -> Result<(), AgentError> {
        let inner = Arc::downgrade(&self.inner);
        std::thread::Builder::new()
            .name("agent-alive".to_owned())
            .spawn(move || {
                while let Some(inner) = Weak::upgrade(&inner) {
                    if inner.send(&Frame::new(Kind::Alive, 0, [])).is_err() {
                        return;
                    }
                    drop(inner);
                    std::thread::sleep(KEEP_ALIVE);
                }
            })?;
        Ok(())
    }

    /// Starts a program on the agent's machine, which may take a minute.
    ///
    /// # Errors
    /// Returns an error if the program cannot be started, with the agent's reason, or if the
    /// connection is lost; [`AgentError::NoAnswer`] if the agent does not answer.
    pub fn spawn(&self, command: &AgentCommand) -> Result<AgentProcess, AgentError> {
        self.spawn_within(command, START_TIMEOUT)
    }

    /// Starts a program on the agent's machine, which may take as long as `timeout`.
    ///
    /// # Errors
    /// As [`Agent::spawn`].
    pub fn spawn_within(
        &self,
        command: &AgentCommand,
        timeout: Duration,
    ) -> Result<AgentProcess, AgentError> {
        let text = serde_json::to_vec(command).map_err(io::Error::from)?;
        if text.len() > MAXIMUM_PAYLOAD {
            return Err(AgentError::InvalidRequest(format!(
                "the command line and environment have {} bytes, more than the maximum of {MAXIMUM_PAYLOAD}",
                text.len()
            )));
        }
        let number = self.inner.next.fetch_add(1, Ordering::Relaxed);
        self.inner.shared.add(number);
        // From here on, a failure releases the number again.
        let process = AgentProcess::new(Arc::clone(&self.inner), number);
        self.inner.send(&Frame::new(Kind::Spawn, number, text))?;
        let started = self.inner.shared.wait(timeout, |state| {
            let lost = state.lost.is_some();
            let process = state.processes.get(&number)?;
            process
                .started
                .clone()
                .map(Some)
                .or_else(|| lost.then_some(None))
        });
        match started.ok_or(AgentError::NoAnswer(timeout))? {
            Some(Ok(_)) => Ok(process),
            Some(Err(reason)) => Err(AgentError::NotStarted {
                program: command.argv.first().cloned().unwrap_or_default(),
                reason,
            }),
            None => Err(self.inner.lost()),
        }
    }

    /// Relates the agent's `CLOCK_MONOTONIC` to that of this machine by `exchanges` exchanges, or
    /// fewer if they are slow, and uses the fastest of them (Cristian 1989).
    ///
    /// # Errors
    /// Returns an error if no answer arrives.
    pub fn clock(&self, exchanges: u32) -> Result<ClockRelation, AgentError> {
        let mut best: Option<ClockRelation> = None;
        let begin = Instant::now();
        for made in 1..=exchanges.max(1) {
            let Some((sent, time)) = self.inner.request_time(CLOCK_TIMEOUT)? else {
                break;
            };
            let relation = relate(sent, time.far, time.received, made);
            best = Some(ClockRelation {
                exchanges: made,
                ..best
                    .filter(|best| best.uncertainty <= relation.uncertainty)
                    .unwrap_or(relation)
            });
            if made >= MINIMUM_EXCHANGES && begin.elapsed() > CLOCK_TIME {
                break;
            }
        }
        best.ok_or(AgentError::NoAnswer(CLOCK_TIMEOUT))
    }

    /// Ends every program of the agent, which then waits for the next client, and this connection. The machine can be
    /// saved in this state: a client of the continued machine is answered at once.
    ///
    /// # Errors
    /// Returns an error if the connection is lost, or [`AgentError::NoAnswer`] after `timeout`.
    pub fn rest(self, timeout: Duration) -> Result<(), AgentError> {
        self.inner.send(&Frame::new(Kind::Rest, 0, []))?;
        self.answer(timeout, |state| state.resting.then_some(()))
    }

    /// Gives a machine that continues from a saved state the real time and new random numbers. Returns what failed;
    /// normally empty.
    ///
    /// # Errors
    /// Returns an error if the connection is lost, or [`AgentError::NoAnswer`] after `timeout`.
    pub fn continued(&self, timeout: Duration) -> Result<String, AgentError> {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
        let now = now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64;
        let mut seed = [0; SEED];
        File::open("/dev/urandom")?.read_exact(&mut seed)?;
        let payload = [&now.to_le_bytes()[..], &seed].concat();
        self.inner.send(&Frame::new(Kind::Continued, 0, payload))?;
        self.answer(timeout, |state| state.adjusted.take())
    }

    /// Waits for an answer that `found` returns.
    fn answer<T>(
        &self,
        timeout: Duration,
        mut found: impl FnMut(&mut State) -> Option<T>,
    ) -> Result<T, AgentError> {
        let answer = self.inner.shared.wait(timeout, |state| match found(state) {
            Some(value) => Some(Some(value)),
            None => state.lost.is_some().then_some(None),
        });
        answer
            .ok_or(AgentError::NoAnswer(timeout))?
            .ok_or_else(|| self.inner.lost())
    }

    /// Ends every program of the agent. As process 1, the agent then powers its machine off.
    ///
    /// # Errors
    /// Returns an error if the connection is already lost.
    pub fn power_off(&self) -> Result<(), AgentError> {
        self.inner.send(&Frame::new(Kind::PowerOff, 0, []))
    }

    /// Returns the reason if the connection is lost.
    #[must_use]
    pub fn lost(&self) -> Option<AgentError> {
        self.inner.shared.lost()
    }

    /// Returns the time since data was last received.
    #[must_use]
    pub fn quiet(&self) -> Duration {
        self.inner.shared.quiet()
    }

    /// Waits until the connection is lost. Returns `false` if it is not within `timeout`.
    #[must_use]
    pub fn wait_lost(&self, timeout: Duration) -> bool {
        self.inner
            .shared
            .wait(timeout, |state| state.lost.is_some().then_some(()))
            .is_some()
    }
}

impl AliveCheck {
    const DEFAULT: Self = Self {
        quiet: QUIET,
        answer: ALIVE_TIMEOUT,
    };
}

impl Inner {
    pub(crate) fn send(&self, frame: &Frame) -> Result<(), AgentError> {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        // Fail at once after a send has failed.
        if let Some(error) = self.shared.lost() {
            return Err(error);
        }
        let sent = writer
            .write_all(&frame.to_bytes())
            .and_then(|()| writer.flush());
        sent.map_err(|error| {
            let timed_out = matches!(
                error.kind(),
                io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock
            );
            if timed_out {
                // A part of the frame may have been sent, so no frame can follow.
                self.shared.lose(format!(
                    "it has read no data for {} s",
                    SEND_TIMEOUT.as_secs()
                ));
            }
            self.shared
                .lost()
                .unwrap_or_else(|| AgentError::Lost(Some(error.to_string())))
        })
    }

    /// Asks the agent for its time. Returns the time of the request and the answer, or `None` on a
    /// timeout.
    fn request_time(
        &self,
        timeout: Duration,
    ) -> Result<Option<(u64, connection_state::Time)>, AgentError> {
        let mut last = self.clock.lock().unwrap_or_else(PoisonError::into_inner);
        *last = last.wrapping_add(1);
        let request = *last;
        let sent = connection_state::monotonic_now();
        self.send(&Frame::new(Kind::Clock, 0, request.to_le_bytes()))?;
        let answer = self.shared.wait(timeout, |state| {
            let answer = state.time.filter(|time| time.request == request);
            match answer {
                Some(time) => Some(Some(time)),
                None => state.lost.is_some().then_some(None),
            }
        });
        match answer {
            None => Ok(None),
            Some(Some(time)) => Ok(Some((sent, time))),
            Some(None) => Err(self.lost()),
        }
    }

    /// Waits until `found` returns a value, which it must if the connection is lost. A program may
    /// take any time, but its machine must regularly send data or answer a request; otherwise the
    /// connection is marked as lost.
    pub(crate) fn wait_while_alive<T>(&self, mut found: impl FnMut(&mut State) -> Option<T>) -> T {
        loop {
            if let Some(value) = self.shared.wait(self.alive_check.quiet, &mut found) {
                return value;
            }
            // Data for another request or program also shows that the machine is alive.
            if self.shared.quiet() < self.alive_check.quiet {
                continue;
            }
            if !matches!(self.request_time(self.alive_check.answer), Ok(Some(_)))
                && self.shared.quiet() >= self.alive_check.answer
            {
                self.shared.lose(format!(
                    "it has sent no data for {:.0} s",
                    self.shared.quiet().as_secs_f64()
                ));
            }
        }
    }

    pub(crate) fn lost(&self) -> AgentError {
        self.shared.lost().unwrap_or(AgentError::Lost(None))
    }
}

/// Evaluates one exchange: the agent's clock was read between `sent` and `received`.
fn relate(sent: u64, far: u64, received: u64, exchanges: u32) -> ClockRelation {
    let duration = received.saturating_sub(sent);
    let at = sent + duration / 2;
    ClockRelation {
        at: Nanos(at),
        offset: SignedNanos(far as i64 - at as i64),
        uncertainty: Nanos(duration.div_ceil(2)),
        exchanges,
    }
}

/// Sets a descriptor to non-blocking mode.
fn not_blocking(descriptor: impl AsFd) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(&descriptor)?;
    let flags = flags | rustix::fs::OFlags::NONBLOCK;
    Ok(rustix::fs::fcntl_setfl(&descriptor, flags)?)
}

/// Returns bytes that identify a connection.
fn own_bytes() -> [u8; 8] {
    use std::hash::{BuildHasher, Hasher};
    let mut hasher = std::hash::RandomState::new().build_hasher();
    hasher.write_u32(std::process::id());
    hasher.write_u64(connection_state::monotonic_now());
    // No zero byte, so that it never contains the beginning of a greeting.
    hasher.finish().to_le_bytes().map(|byte| byte.max(1))
}

#[cfg(test)]
mod tests {
    use crate::frame::{Decoder, GREETING};

    use super::*;

    /// Simulates an agent that greets, answers this many requests for the time, starts every
    /// program, and then stays silent.
    fn simulated_agent(stream: UnixStream, answers: u32) {
        let mut stream = stream;
        let mut own = [0; GREETING];
        stream.read_exact(&mut own).expect("a greeting");
        stream.write_all(&own).expect("written");
        let hello = AgentHello {
            protocol: AGENT_PROTOCOL_VERSION,
            program: String::new(),
            kernel_release: String::new(),
            kernel_version: String::new(),
            architecture: String::new(),
            kernel_command_line: String::new(),
            cpus: rampart_model::CpuSet::new(),
            problems: Vec::new(),
        };
        let text = serde_json::to_vec(&hello).expect("text");
        let send = |kind, number, payload: Vec<u8>| {
            let frame = Frame::new(kind, number, payload);
            (&stream).write_all(&frame.to_bytes()).expect("written");
        };
        send(Kind::Hello, 0, text);
        let (mut decoder, mut answered) = (Decoder::default(), 0);
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = (&stream).read(&mut buffer) {
            decoder.push(&buffer[..count]);
            while let Some(frame) = decoder.next_frame().expect("a frame") {
                match frame.kind {
                    Kind::Spawn => send(Kind::Started, frame.process, 7u32.to_le_bytes().into()),
                    Kind::Clock if answered < answers => {
                        answered += 1;
                        let mut payload = frame.payload;
                        payload.extend([0; 8]);
                        send(Kind::Time, 0, payload);
                    }
                    _ => {}
                }
            }
        }
    }

    fn connected(answers: u32) -> Agent {
        let (near, far) = UnixStream::pair().expect("sockets");
        std::thread::spawn(move || simulated_agent(far, answers));
        let reader = near.try_clone().expect("a clone");
        let alive_check = AliveCheck {
            quiet: Duration::from_millis(100),
            answer: Duration::from_millis(500),
        };
        let long = Duration::from_secs(60);
        Agent::greet(
            Box::new(reader),
            Box::new(ShutOnDrop(near)),
            long,
            alive_check,
        )
        .expect("an answer")
    }

    #[test]
    fn does_not_wait_for_a_silent_machine() {
        let agent = connected(3);
        let mut process = agent.spawn(&AgentCommand::new(["x"])).expect("started");
        let begin = Instant::now();
        // The machine answers three requests for the time.
        let error = process
            .stdout
            .read(&mut [0; 8])
            .expect_err("no data arrives");
        assert_eq!(error.kind(), io::ErrorKind::ConnectionAborted, "{error}");
        assert!(begin.elapsed() >= Duration::from_millis(800));
        let reason = agent.lost().map(|error| error.to_string());
        assert!(reason.is_some_and(|reason| reason.contains("sent no data")));
        // After that, every call fails at once.
        let error = process.stdin.write(b"x").expect_err("lost");
        assert_eq!(error.kind(), io::ErrorKind::ConnectionAborted, "{error}");
        assert!(agent.clock(1).is_err());
    }

    #[test]
    fn blocked_input_waits_only_while_the_machine_is_alive() {
        let agent = connected(0);
        let mut process = agent.spawn(&AgentCommand::new(["x"])).expect("started");
        let error = process
            .stdin
            .write_all(&vec![0; crate::frame::WINDOW + 1])
            .expect_err("no program reads it");
        assert_eq!(error.kind(), io::ErrorKind::ConnectionAborted, "{error}");
    }

    #[test]
    fn relates_the_clock_to_the_middle_of_the_exchange() {
        let relation = relate(1_000, 5_000, 1_201, 4);
        assert_eq!(relation.at, Nanos(1_100));
        assert_eq!(relation.offset, SignedNanos(3_900));
        assert_eq!(relation.uncertainty, Nanos(101));
        assert_eq!(relate(5_000, 100, 5_000, 1).offset, SignedNanos(-4_900));
    }
}
