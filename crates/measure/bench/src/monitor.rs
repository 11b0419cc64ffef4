// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Monitoring of a remote program: its three streams, and when data last went through one of them.
//!
//! A program may hang although its machine responds, so every wait for a program also watches how
//! long it has been silent.

use std::io::{self, Read, Write};
use std::process::ExitStatus;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rampart_agent::{AgentError, AgentHandle, AgentInput, AgentOutput, AgentProcess};

/// Interval at which the state of a program is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// How long streams that stay open after their program ended may be silent. A process that the
/// program started holds them open.
pub const AFTER_END: Duration = Duration::from_secs(30);

/// When data last went through a stream of a program.
#[derive(Debug, Clone)]
struct Activity(Arc<Mutex<LastTransfer>>);

#[derive(Debug)]
struct LastTransfer {
    at: Instant,
    /// Number of streams whose last piece is still being processed on this side, which is then the
    /// slow one.
    pieces: usize,
}

impl Activity {
    fn new() -> Self {
        Self(Arc::new(Mutex::new(LastTransfer {
            at: Instant::now(),
            pieces: 0,
        })))
    }

    fn last(&self) -> MutexGuard<'_, LastTransfer> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A stream of a remote program that records each transfer as activity.
#[derive(Debug)]
pub struct TrackedStream<S> {
    stream: S,
    activity: Activity,
    holds_piece: bool,
}

impl<S> TrackedStream<S> {
    fn new(stream: S, activity: &Activity) -> Self {
        Self {
            stream,
            activity: activity.clone(),
            holds_piece: false,
        }
    }

    /// Marks the last piece read as processed.
    fn release(&mut self) {
        if std::mem::take(&mut self.holds_piece) {
            let mut last = self.activity.last();
            last.pieces -= 1;
            last.at = Instant::now();
        }
    }
}

impl<S: Read> Read for TrackedStream<S> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.release();
        let count = self.stream.read(bytes)?;
        if count > 0 {
            self.holds_piece = true;
            self.activity.last().pieces += 1;
        }
        Ok(count)
    }
}

impl<S: Write> Write for TrackedStream<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.stream.write(bytes)?;
        self.activity.last().at = Instant::now();
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

impl<S> Drop for TrackedStream<S> {
    fn drop(&mut self) {
        self.release();
    }
}

/// The streams of a remote program.
#[derive(Debug)]
pub struct Streams {
    /// Its standard input. Dropping it closes it.
    pub stdin: TrackedStream<AgentInput>,
    /// Its standard output.
    pub stdout: TrackedStream<AgentOutput>,
    /// Its standard error.
    pub stderr: TrackedStream<AgentOutput>,
}

/// Waits for a remote program. Dropping the monitor kills the program and closes its streams.
#[derive(Debug)]
pub struct ProcessMonitor {
    handle: AgentHandle,
    activity: Activity,
}

/// Splits a program into its streams and the monitor that waits for its end.
#[must_use]
pub fn monitor(process: AgentProcess) -> (Streams, ProcessMonitor) {
    let AgentProcess {
        stdin,
        stdout,
        stderr,
        handle,
    } = process;
    let activity = Activity::new();
    let streams = Streams {
        stdin: TrackedStream::new(stdin, &activity),
        stdout: TrackedStream::new(stdout, &activity),
        stderr: TrackedStream::new(stderr, &activity),
    };
    (streams, ProcessMonitor { handle, activity })
}

impl ProcessMonitor {
    /// Returns the handle that sends signals to the program.
    #[must_use]
    pub fn handle(&self) -> &AgentHandle {
        &self.handle
    }

    /// Waits 50 ms for the program to end. Returns `None` if it still runs.
    ///
    /// # Errors
    /// Returns an error if the connection is lost.
    pub fn poll(&self) -> Result<Option<ExitStatus>, AgentError> {
        self.handle.wait(POLL_INTERVAL)
    }

    /// Returns how long no data has gone through the streams while this side was waiting for some.
    #[must_use]
    pub fn silence(&self) -> Duration {
        let last = self.activity.last();
        if last.pieces > 0 {
            Duration::ZERO
        } else {
            last.at.elapsed()
        }
    }

    /// Waits for the program to end. Returns `None` if it was silent for `limit`.
    ///
    /// # Errors
    /// Returns an error if the connection is lost.
    pub fn wait(&self, limit: Duration) -> Result<Option<ExitStatus>, AgentError> {
        loop {
            match self.poll()? {
                None if self.silence() < limit => {}
                ended => return Ok(ended),
            }
        }
    }

    /// Waits after the end of the program until the readers of its streams are `done`. If processes
    /// that it started hold its streams silently for `limit` (normally [`AFTER_END`]), kills them and
    /// returns `false`.
    pub fn finish_streams(self, limit: Duration, done: impl Fn() -> bool) -> bool {
        let ended = Instant::now();
        while !done() {
            if self.silence().min(ended.elapsed()) >= limit {
                return false;
            }
            thread::sleep(Duration::from_millis(1));
        }
        true
    }
}

/// Copies like [`std::io::copy`], but flushes after each piece.
///
/// # Errors
/// Returns an error if a read or write fails.
pub fn relay(from: &mut impl Read, to: &mut impl Write) -> io::Result<()> {
    let mut buffer = vec![0; 1 << 16];
    loop {
        let count = match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        to.write_all(&buffer[..count])?;
        to.flush()?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_in_processing_does_not_count_as_silence() {
        let activity = Activity::new();
        activity.last().at -= Duration::from_secs(100);
        let mut stream = TrackedStream::new(&b"piece"[..], &activity);
        let mut bytes = [0; 16];
        assert_eq!(stream.read(&mut bytes).expect("read"), 5);
        assert_eq!(activity.last().pieces, 1);
        assert_eq!(stream.read(&mut bytes).expect("read"), 0);
        assert_eq!(activity.last().pieces, 0);
        assert!(activity.last().at.elapsed() < Duration::from_secs(50));
    }

    #[test]
    fn dropping_a_stream_releases_its_piece() {
        let activity = Activity::new();
        let mut stream = TrackedStream::new(&b"piece"[..], &activity);
        assert_eq!(stream.read(&mut [0; 2]).expect("read"), 2);
        drop(stream);
        assert_eq!(activity.last().pieces, 0);
    }
}
