// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A program over there while it runs: its three streams, and when it last gave a sign of life.
//!
//! A machine that answers may hold a program that never ends, so nobody here waits for one without
//! an eye on its silence.

use std::io::{self, Read, Write};
use std::process::ExitStatus;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rampart_agent::{AgentError, AgentHandle, AgentInput, AgentOutput, AgentProcess};

/// How often it is looked what became of a program.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// How long streams that stay open after the end of their program may be silent: something that it
/// started holds them.
pub const AFTER_END: Duration = Duration::from_secs(30);

/// When something last went through a stream of a program.
#[derive(Debug, Clone)]
struct Signs(Arc<Mutex<Newest>>);

#[derive(Debug)]
struct Newest {
    at: Instant,
    /// Streams whose last piece is still being worked on here: then we are the ones who are slow.
    held: usize,
}

impl Signs {
    fn new() -> Self {
        Self(Arc::new(Mutex::new(Newest {
            at: Instant::now(),
            held: 0,
        })))
    }

    fn newest(&self) -> MutexGuard<'_, Newest> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A stream of a program over there, each piece of which is a sign of life.
#[derive(Debug)]
pub struct Tracked<S> {
    stream: S,
    signs: Signs,
    holds: bool,
}

impl<S> Tracked<S> {
    fn new(stream: S, signs: &Signs) -> Self {
        Self {
            stream,
            signs: signs.clone(),
            holds: false,
        }
    }

    /// The piece that was taken last is done with.
    fn release(&mut self) {
        if std::mem::take(&mut self.holds) {
            let mut newest = self.signs.newest();
            newest.held -= 1;
            newest.at = Instant::now();
        }
    }
}

impl<S: Read> Read for Tracked<S> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.release();
        let count = self.stream.read(bytes)?;
        if count > 0 {
            self.holds = true;
            self.signs.newest().held += 1;
        }
        Ok(count)
    }
}

impl<S: Write> Write for Tracked<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.stream.write(bytes)?;
        self.signs.newest().at = Instant::now();
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

impl<S> Drop for Tracked<S> {
    fn drop(&mut self) {
        self.release();
    }
}

/// The streams of a program over there.
#[derive(Debug)]
pub struct Streams {
    /// Its standard input; dropping it is the end of it.
    pub stdin: Tracked<AgentInput>,
    /// Its standard output.
    pub stdout: Tracked<AgentOutput>,
    /// Its standard error.
    pub stderr: Tracked<AgentOutput>,
}

/// Who waits for a program over there. Dropping it kills the program and ends its streams.
#[derive(Debug)]
pub struct Attendant {
    handle: AgentHandle,
    signs: Signs,
}

/// Takes a program apart: its streams, and who waits for its end.
#[must_use]
pub fn attend(process: AgentProcess) -> (Streams, Attendant) {
    let AgentProcess {
        stdin,
        stdout,
        stderr,
        handle,
    } = process;
    let signs = Signs::new();
    let streams = Streams {
        stdin: Tracked::new(stdin, &signs),
        stdout: Tracked::new(stdout, &signs),
        stderr: Tracked::new(stderr, &signs),
    };
    (streams, Attendant { handle, signs })
}

impl Attendant {
    /// To send it signals.
    #[must_use]
    pub fn handle(&self) -> &AgentHandle {
        &self.handle
    }

    /// How it ended; none if it has not within a moment.
    ///
    /// # Errors
    /// If the connection is lost.
    pub fn look(&self) -> Result<Option<ExitStatus>, AgentError> {
        self.handle.wait(LOOK_AGAIN)
    }

    /// How long nothing has gone through its streams although somebody here waited for it.
    #[must_use]
    pub fn silence(&self) -> Duration {
        let newest = self.signs.newest();
        if newest.held > 0 {
            Duration::ZERO
        } else {
            newest.at.elapsed()
        }
    }

    /// How it ended; none if it has not and was silent for `limit`.
    ///
    /// # Errors
    /// If the connection is lost.
    pub fn wait(&self, limit: Duration) -> Result<Option<ExitStatus>, AgentError> {
        loop {
            match self.look()? {
                None if self.silence() < limit => {}
                ended => return Ok(ended),
            }
        }
    }

    /// After its end: waits until those who read its streams are `done`, and lets go of it. What it
    /// has left running and holds its streams is killed after so much silence, [`AFTER_END`] unless
    /// there is a reason for another; then this is false.
    pub fn let_go(self, limit: Duration, done: impl Fn() -> bool) -> bool {
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

/// As [`std::io::copy`], but what came is passed on at once.
///
/// # Errors
/// If one side cannot be read or the other not be written.
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
    fn who_holds_a_piece_here_is_not_taken_for_silence_there() {
        let signs = Signs::new();
        signs.newest().at -= Duration::from_secs(100);
        let mut stream = Tracked::new(&b"piece"[..], &signs);
        let mut bytes = [0; 16];
        assert_eq!(stream.read(&mut bytes).expect("read"), 5);
        assert_eq!(signs.newest().held, 1);
        assert_eq!(stream.read(&mut bytes).expect("read"), 0);
        assert_eq!(signs.newest().held, 0);
        assert!(signs.newest().at.elapsed() < Duration::from_secs(50));
    }

    #[test]
    fn dropping_a_stream_gives_its_piece_back() {
        let signs = Signs::new();
        let mut stream = Tracked::new(&b"piece"[..], &signs);
        assert_eq!(stream.read(&mut [0; 2]).expect("read"), 2);
        drop(stream);
        assert_eq!(signs.newest().held, 0);
    }
}
