// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs programs of this machine to their end or a time limit, and captures their output.

use std::io::{self, Read};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::child_process::{OnParentExit, end_group, spawn_tied};

/// How long the output of a program that has ended may stay open: a child of its own may hold it for
/// as long as it lives. Then that is killed.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// How long what was written until then may take to be read, on a machine that is busy.
const READ_OUT: Duration = Duration::from_secs(10);
/// How much [`run_within`] keeps of an output, in bytes.
const OUTPUT_KEPT: u64 = 64 << 10;
/// Pause between two looks at a program.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// The exit status and output of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CapturedOutput {
    /// How it ended; none if it did not in time, and was killed.
    pub status: Option<ExitStatus>,
    /// The first 64 KiB of its standard output.
    pub output: String,
    /// The first 64 KiB of its standard error.
    pub errors: String,
}

/// Runs `command` to its end, with nothing to read, and kills it after `limit` with all that it
/// started. It ends with this process.
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

/// Runs `command` to its end, with nothing to read; none if `progress`, which is asked every moment,
/// has given the same number for `limit`. Then it is killed with all that it started. It ends with
/// this process.
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
    if !ended(LAST_WORDS) {
        // Its group is not empty: something of it holds the output.
        end_group(&mut child);
        ended(READ_OUT);
    }
    Ok(Ran {
        status,
        output: output.bytes,
        errors: errors.bytes,
    })
}

/// Waits for the end of `child`, as long as `progress` gives a new number within each `limit`.
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
        thread::sleep(LOOK_AGAIN);
    }
}

/// What an output gave so far, read by a thread of its own.
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

    /// Takes what comes, to the end of the output; whether that came in time.
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

/// Reads an output to its end, and hands over as much of it as is kept.
fn collect(mut output: impl Read + Send + 'static, kept: u64) -> Receiver<Vec<u8>> {
    let (sender, said) = channel();
    thread::spawn(move || {
        let mut left = kept;
        let mut piece = [0; 4096];
        // To the end in any case: a full pipe would hold the program up.
        while let Ok(length @ 1..) = output.read(&mut piece) {
            let kept = piece.get(..length).unwrap_or_default();
            let kept = kept
                .get(..usize::try_from(left).unwrap_or(length).min(length))
                .unwrap_or_default();
            left -= kept.len() as u64;
            // Nobody listens any more once the program's last words were waited for.
            if !kept.is_empty() && sender.send(kept.to_vec()).is_err() {
                return;
            }
        }
    });
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    /// Waits until the process of this number is gone, or dead and not buried.
    fn assert_goes(process: &str) {
        let stat = format!("/proc/{}/stat", process.trim());
        let gone = || !std::fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z "));
        let until = Instant::now() + Duration::from_secs(60);
        while !gone() {
            assert!(Instant::now() < until, "it lives");
            thread::sleep(LOOK_AGAIN);
        }
    }

    #[test]
    fn a_program_is_run_to_its_end_with_all_it_said() {
        let script = "echo yes; echo no >&2; yes | head -c 300000; exit 3";
        let said = run_within(shell(script), Duration::from_secs(60)).expect("started");
        assert_eq!(said.status.and_then(|status| status.code()), Some(3));
        assert!(said.output.starts_with("yes\ny\n"));
        assert_eq!(said.output.len() as u64, OUTPUT_KEPT);
        assert_eq!(said.errors, "no\n");
        let output = output_within(shell(script), Duration::from_secs(60), &mut || 0);
        let output = output.expect("started").expect("ended");
        assert_eq!(output.status.code(), Some(3));
        assert_eq!(output.stdout.len(), 300_004);
        assert_eq!(output.stderr, b"no\n");
    }

    #[test]
    fn a_program_that_does_not_end_is_ended_with_what_it_started() {
        let said = run_within(
            shell("sleep 1000 & echo $!; wait"),
            Duration::from_millis(500),
        );
        let said = said.expect("started");
        assert_eq!(said.status, None);
        assert_goes(&said.output);
        let output = output_within(shell("sleep 1000"), Duration::from_millis(100), &mut || 0);
        assert_eq!(output.expect("started"), None);
    }

    #[test]
    fn what_a_program_left_behind_is_ended_and_not_waited_for() {
        let begin = Instant::now();
        let said = run_within(shell("sleep 600 & echo $!"), Duration::from_secs(60));
        let said = said.expect("started");
        assert!(said.status.is_some_and(|status| status.success()));
        assert_goes(&said.output);
        assert!(begin.elapsed() < Duration::from_secs(300));
    }

    #[test]
    fn progress_keeps_a_slow_program_alive() {
        let mut asked = 0;
        let output = output_within(shell("sleep 1"), Duration::from_millis(500), &mut || {
            asked += 1;
            asked
        });
        assert!(output.expect("started").is_some());
    }
}
