// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The near side.

mod process;
mod shared;

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use rampart_model::{ClockRelation, Nanos, SignedNanos};

pub use process::{AgentHandle, AgentInput, AgentOutput, AgentProcess};
use shared::Shared;

use crate::AgentError;
use crate::frame::{Frame, Kind, LONGEST, greeting};
use crate::words::{AGENT_PROTOCOL_VERSION, AgentCommand, AgentHello};

/// How often a side that cannot see the other go says that it is still there.
pub const KEEP_ALIVE: Duration = Duration::from_secs(5);

/// How often the greeting is sent until it is answered.
const GREET_AGAIN: Duration = Duration::from_secs(1);

/// How long one answer about the time may take.
const CLOCK_PATIENCE: Duration = Duration::from_secs(5);
/// Where answers are slow, as a guest's in an emulated machine, more of them make the fastest no
/// faster: after this time a few are enough.
const CLOCK_TIME: Duration = Duration::from_millis(300);
const FEWEST_EXCHANGES: u32 = 8;

/// A connection to an agent. Clones share it; it ends with the last of them and of their programs.
#[derive(Debug, Clone)]
pub struct Agent {
    inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) shared: Arc<Shared>,
    writer: Mutex<Box<dyn Write + Send>>,
    hello: AgentHello,
    next: AtomicU32,
    /// One question about the time at once.
    clock: Mutex<u32>,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inner").finish_non_exhaustive()
    }
}

/// A socket whose other side learns of the end even while a clone of it is being read here.
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

impl Agent {
    /// Greets the agent at the other end of a socket and waits for its answer for at most
    /// `patience`: a machine may still be booting.
    ///
    /// # Errors
    /// If none comes, it is of another version, or the stream ends.
    pub fn connect(stream: UnixStream, patience: Duration) -> Result<Self, AgentError> {
        let reader = stream.try_clone()?;
        Self::greet(Box::new(reader), Box::new(ShutOnDrop(stream)), patience)
    }

    /// The same over two ends of pipes, for example those of `ssh`.
    ///
    /// # Errors
    /// As [`Agent::connect`].
    pub fn connect_over(
        reader: impl Read + Send + 'static,
        writer: impl Write + Send + 'static,
        patience: Duration,
    ) -> Result<Self, AgentError> {
        Self::greet(Box::new(reader), Box::new(writer), patience)
    }

    fn greet(
        reader: Box<dyn Read + Send>,
        mut writer: Box<dyn Write + Send>,
        patience: Duration,
    ) -> Result<Self, AgentError> {
        let own = own_bytes();
        let shared = Arc::new(Shared::default());
        let for_reader = Arc::clone(&shared);
        std::thread::Builder::new()
            .name("agent".to_owned())
            .spawn(move || for_reader.read_all(reader, own))?;
        let until = Instant::now() + patience;
        let hello = loop {
            let sent = writer
                .write_all(&greeting(own))
                .and_then(|()| writer.flush());
            if let Err(error) = sent {
                // What ended the stream says more than that it ended.
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
                None if left.is_zero() => return Err(AgentError::Silent(patience)),
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
            next: AtomicU32::new(1),
            clock: Mutex::new(0),
        };
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// What the far side said of itself.
    #[must_use]
    pub fn hello(&self) -> &AgentHello {
        &self.inner.hello
    }

    /// From now on says every [`KEEP_ALIVE`] that this side is there, for an agent that takes
    /// silence for its end (`--silence`).
    ///
    /// # Errors
    /// If no thread can be started.
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

    /// Starts a program over there.
    ///
    /// # Errors
    /// If it cannot be started, with the far side's reason, or the connection is lost.
    pub fn spawn(&self, command: &AgentCommand) -> Result<AgentProcess, AgentError> {
        let text = serde_json::to_vec(command).map_err(io::Error::from)?;
        if text.len() > LONGEST {
            return Err(AgentError::Impossible(format!(
                "a command line with environment of {} bytes is longer than the {LONGEST} that are sent",
                text.len()
            )));
        }
        let number = self.inner.next.fetch_add(1, Ordering::Relaxed);
        self.inner.shared.add(number);
        // From here on a failure forgets the number again.
        let process = AgentProcess::new(Arc::clone(&self.inner), number);
        self.inner.send(&Frame::new(Kind::Spawn, number, text))?;
        let started = self.inner.shared.wait_for_ever(|state| {
            let lost = state.lost.is_some();
            let process = state.processes.get(&number)?;
            process
                .started
                .clone()
                .map(Some)
                .or_else(|| lost.then_some(None))
        });
        match started {
            Some(Ok(_)) => Ok(process),
            Some(Err(reason)) => Err(AgentError::NotStarted {
                program: command.argv.first().cloned().unwrap_or_default(),
                reason,
            }),
            None => Err(self.inner.lost()),
        }
    }

    /// Relates the far side's `CLOCK_MONOTONIC` to ours by so many exchanges, or fewer where they
    /// are slow: what is taken is the fastest of them (Cristian 1989).
    ///
    /// # Errors
    /// If no answer comes.
    pub fn clock(&self, exchanges: u32) -> Result<ClockRelation, AgentError> {
        let mut question = self
            .inner
            .clock
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let mut best: Option<ClockRelation> = None;
        let begin = Instant::now();
        for made in 1..=exchanges.max(1) {
            *question = question.wrapping_add(1);
            let asked = *question;
            let sent = shared::monotonic_now();
            let frame = Frame::new(Kind::Clock, 0, asked.to_le_bytes());
            self.inner.send(&frame)?;
            let answer = self.inner.shared.wait(CLOCK_PATIENCE, |state| {
                let answer = state.time.filter(|time| time.question == asked);
                match answer {
                    Some(time) => Some(Some(time)),
                    None => state.lost.is_some().then_some(None),
                }
            });
            let Some(answer) = answer else { break };
            let time = answer.ok_or_else(|| self.inner.lost())?;
            let relation = relate(sent, time.far, time.received, made);
            best = Some(ClockRelation {
                exchanges: made,
                ..best
                    .filter(|best| best.uncertainty <= relation.uncertainty)
                    .unwrap_or(relation)
            });
            if made >= FEWEST_EXCHANGES && begin.elapsed() > CLOCK_TIME {
                break;
            }
        }
        best.ok_or(AgentError::Silent(CLOCK_PATIENCE))
    }

    /// Ends every program over there; as process 1 the agent then powers its machine off.
    ///
    /// # Errors
    /// If the connection is lost already.
    pub fn power_off(&self) -> Result<(), AgentError> {
        self.inner.send(&Frame::new(Kind::PowerOff, 0, []))
    }

    /// Whether the connection is gone, and what ended it.
    #[must_use]
    pub fn lost(&self) -> Option<AgentError> {
        self.inner.shared.lost()
    }

    /// Waits until the connection is gone; false if it is not within `timeout`.
    #[must_use]
    pub fn wait_lost(&self, timeout: Duration) -> bool {
        self.inner
            .shared
            .wait(timeout, |state| state.lost.is_some().then_some(()))
            .is_some()
    }
}

impl Inner {
    pub(crate) fn send(&self, frame: &Frame) -> Result<(), AgentError> {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let sent = writer
            .write_all(&frame.to_bytes())
            .and_then(|()| writer.flush());
        sent.map_err(|error| {
            self.shared
                .lost()
                .unwrap_or_else(|| AgentError::Lost(Some(error.to_string())))
        })
    }

    pub(crate) fn lost(&self) -> AgentError {
        self.shared.lost().unwrap_or(AgentError::Lost(None))
    }
}

/// One exchange: the far clock was read at some moment between `sent` and `received`.
fn relate(sent: u64, far: u64, received: u64, exchanges: u32) -> ClockRelation {
    let way = received.saturating_sub(sent);
    let at = sent + way / 2;
    ClockRelation {
        at: Nanos(at),
        offset: SignedNanos(far as i64 - at as i64),
        uncertainty: Nanos(way.div_ceil(2)),
        exchanges,
    }
}

/// Bytes that no other connection has.
fn own_bytes() -> [u8; 8] {
    use std::hash::{BuildHasher, Hasher};
    let mut hasher = std::hash::RandomState::new().build_hasher();
    hasher.write_u32(std::process::id());
    hasher.write_u64(shared::monotonic_now());
    // No zero, so that no beginning of a greeting is found inside one.
    hasher.finish().to_le_bytes().map(|byte| byte.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_far_clock_is_related_to_the_middle_of_the_exchange() {
        let relation = relate(1_000, 5_000, 1_201, 4);
        assert_eq!(relation.at, Nanos(1_100));
        assert_eq!(relation.offset, SignedNanos(3_900));
        assert_eq!(relation.uncertainty, Nanos(101));
        assert_eq!(relate(5_000, 100, 5_000, 1).offset, SignedNanos(-4_900));
    }
}
