// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs programs of this machine to their end or a time limit, and captures their output.

use std::io::{self, Read};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::child_process::{OnParentExit, end_group, spawn_tied};

/// Longest time that children of an ended program may keep its output open before they are killed.
const OUTPUT_OPEN_LIMIT: Duration = Duration::from_secs(1);
/// Longest time to read the output written until then, on a busy machine.
const READ_LIMIT: Duration = Duration::from_secs(10);
/// Bytes that [`run_within`] keeps of an output.
const OUTPUT_KEPT: u64 = 64 << 10;
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The exit status and output of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CapturedOutput {
    /// The exit status; `None` if the program was killed after the time limit.
    pub status: Option<ExitStatus>,
    /// The first 64 KiB of its standard output.
    pub output: String,
    /// The first 64 KiB of its standard error.
    pub errors: String,
}

/// Runs `command` without standard input, and kills it with all that it started after `limit`. It
/// ends with this process.
///
/// # Errors
/// If it cannot be started.
pub fn run_within(command: Command, limit: Duration) -> io::Result<CapturedOutput> {
    let ran = run(command, OUTPUT_KEPT, limit, &mut || 0)?;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ok(CapturedOutput {
        status: ran.status,
        output: text(ran.output),
        errors: text(ran.errors),
    })
}

/// Runs `command` without standard input. Kills it with all that it started and returns `None` if
/// `progress`, which is called every 10 ms, returns the same number for `limit`. The command ends
/// with this process.
///
/// # Errors
/// If it cannot be started.
pub fn output_within(
    command: Command,
    limit: Duration,
    progress: &mut dyn FnMut() -> u64,
) -> io::Result<Option<Output>> {
    let ran = run(command, u64::MAX, limit, progress)?;
    Ok(ran.status.map(|status| Output {
        status,
        stdout: ran.output,
        stderr: ran.errors,
    }))
}

struct Ran {
    status: Option<ExitStatus>,
    output: Vec<u8>,
    errors: Vec<u8>,
}

fn run(
    mut command: Command,
    kept: u64,
    limit: Duration,
    progress: &mut dyn FnMut() -> u64,
) -> io::Result<Ran> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = spawn_tied(command, OnParentExit::Kill)?;
    let mut output = Collected::of(child.stdout.take(), kept);
    let mut errors = Collected::of(child.stderr.take(), kept);
    let status = wait(&mut child, limit, progress);
    if status.is_none() {
        end_group(&mut child);
    }
    let mut ended = |limit: Duration| {
        let until = Instant::now() + limit;
        let output = output.gather(until);
        errors.gather(until) && output
    };
    if !ended(OUTPUT_OPEN_LIMIT) {
        // A process of its group keeps the output open.
        end_group(&mut child);
        ended(READ_LIMIT);
    }
    Ok(Ran {
        status,
        output: output.bytes,
        errors: errors.bytes,
    })
}

/// Waits for the end of `child` while `progress` returns a new number within each `limit`.
fn wait(
    child: &mut Child,
    limit: Duration,
    progress: &mut dyn FnMut() -> u64,
) -> Option<ExitStatus> {
    let (mut reached, mut since) = (progress(), Instant::now());
    loop {
        if let Some(status) = child.try_wait().ok()? {
            return Some(status);
        }
        let now = progress();
        if now != reached {
            (reached, since) = (now, Instant::now());
        } else if since.elapsed() >= limit {
            return None;
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// The output received so far, read by a separate thread.
struct Collected {
    pieces: Option<Receiver<Vec<u8>>>,
    bytes: Vec<u8>,
}

impl Collected {
    fn of(stream: Option<impl Read + Send + 'static>, kept: u64) -> Self {
        Self {
            pieces: stream.map(|stream| collect(stream, kept)),
            bytes: Vec::new(),
        }
    }

    /// Receives the output. Returns whether it ended before `until`.
    fn gather(&mut self, until: Instant) -> bool {
        let Some(pieces) = &self.pieces else {
            return true;
        };
        loop {
            match pieces.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(piece) => self.bytes.extend(piece),
                Err(RecvTimeoutError::Disconnected) => return true,
                Err(RecvTimeoutError::Timeout) => return false,
            }
        }
    }
}

/// Reads an output to its end, and sends its first `kept` bytes.
fn collect(mut output: impl Read + Send + 'static, kept: u64) -> Receiver<Vec<u8>> {
    let (sender, pieces) = channel();
    thread::spawn(move || {
        let mut left = kept;
        let mut piece = [0; 4096];
        // Always to the end: a full pipe would stop the program.
        while let Ok(length @ 1..) = output.read(&mut piece) {
            let kept = piece.get(..length).unwrap_or_default();
            let kept = kept
                .get(..usize::try_from(left).unwrap_or(length).min(length))
                .unwrap_or_default();
            left -= kept.len() as u64;
            // The receiver is dropped after the time limit.
            if !kept.is_empty() && sender.send(kept.to_vec()).is_err() {
                return;
            }
        }
    });
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    /// Waits until the process has ended or is a zombie.
    fn assert_ends(process: &str) {
        let stat = format!("/proc/{}/stat", process.trim());
        let gone = || !std::fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z "));
        let until = Instant::now() + Duration::from_secs(60);
        while !gone() {
            assert!(Instant::now() < until, "it still runs");
            thread::sleep(POLL_INTERVAL);
        }
    }

    #[test]
    fn captures_status_and_output_of_a_program() {
        let script = "echo yes; echo no >&2; yes | head -c 300000; exit 3";
        let captured = run_within(shell(script), Duration::from_secs(60)).expect("started");
        assert_eq!(captured.status.and_then(|status| status.code()), Some(3));
        assert!(captured.output.starts_with("yes\ny\n"));
        assert_eq!(captured.output.len() as u64, OUTPUT_KEPT);
        assert_eq!(captured.errors, "no\n");
        let output = output_within(shell(script), Duration::from_secs(60), &mut || 0);
        let output = output.expect("started").expect("ended");
        assert_eq!(output.status.code(), Some(3));
        assert_eq!(output.stdout.len(), 300_004);
        assert_eq!(output.stderr, b"no\n");
    }

    #[test]
    fn kills_a_program_and_its_children_after_the_limit() {
        let captured = run_within(
            shell("sleep 1000 & echo $!; wait"),
            Duration::from_millis(500),
        );
        let captured = captured.expect("started");
        assert_eq!(captured.status, None);
        assert_ends(&captured.output);
        let output = output_within(shell("sleep 1000"), Duration::from_millis(100), &mut || 0);
        assert_eq!(output.expect("started"), None);
    }

    #[test]
    fn kills_children_of_an_ended_program_without_waiting_for_them() {
        let begin = Instant::now();
        let captured = run_within(shell("sleep 600 & echo $!"), Duration::from_secs(60));
        let captured = captured.expect("started");
        assert!(captured.status.is_some_and(|status| status.success()));
        assert_ends(&captured.output);
        assert!(begin.elapsed() < Duration::from_secs(300));
    }

    #[test]
    fn progress_keeps_a_slow_program_alive() {
        let mut progress = 0;
        let output = output_within(shell("sleep 1"), Duration::from_millis(500), &mut || {
            progress += 1;
            progress
        });
        assert!(output.expect("started").is_some());
    }
}
