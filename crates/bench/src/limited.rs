// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs of this machine, run to their end or to the end of patience.

use std::io::{self, Read};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use rampart_host::{AtOurEnd, spawn_tied};
use rustix::process::{Pid, Signal, kill_process_group};

/// How often it is looked whether a program has ended.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// How long output may stay open after the end of its program: something that it started holds it.
const AFTER_END: Duration = Duration::from_secs(10);

/// Runs a program to its end, without input; none if `progress`, which is asked every moment, has
/// given the same number for `limit`. Then the program and all that it started is killed.
///
/// # Errors
/// If it cannot be started.
pub(crate) fn output_within(
    mut command: Command,
    limit: Duration,
    progress: &mut dyn FnMut() -> u64,
) -> io::Result<Option<Output>> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = spawn_tied(command, AtOurEnd::Kill)?;
    let stdout = collect(child.stdout.take());
    let stderr = collect(child.stderr.take());
    let (mut reached, mut since) = (progress(), Instant::now());
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        let now = progress();
        if now != reached {
            (reached, since) = (now, Instant::now());
        } else if since.elapsed() >= limit {
            kill(&mut child);
            return Ok(None);
        }
        thread::sleep(LOOK_AGAIN);
    };
    let text = |collected: &Receiver<Vec<u8>>| collected.recv_timeout(AFTER_END);
    let (stdout, stderr) = match (text(&stdout), text(&stderr)) {
        (Ok(stdout), Ok(stderr)) => (stdout, stderr),
        (stdout, stderr) => {
            // Its group is not empty: something of it holds the output.
            kill(&mut child);
            (stdout.unwrap_or_default(), stderr.unwrap_or_default())
        }
    };
    Ok(Some(Output {
        status,
        stdout,
        stderr,
    }))
}

/// Reads a stream to its end, in a thread of its own.
fn collect(stream: Option<impl Read + Send + 'static>) -> Receiver<Vec<u8>> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut stream) = stream {
            // What came before an error is all there is.
            let _ = stream.read_to_end(&mut bytes);
        }
        // Nobody waits for it if the program was killed.
        let _ = sender.send(bytes);
    });
    receiver
}

fn kill(child: &mut Child) {
    // Gone already is as good. Every program here has a process group of its own.
    let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
    let _ = child.wait();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn output_and_status_come_back() {
        let output = output_within(
            shell("echo out; echo away >&2; exit 3"),
            Duration::from_secs(60),
            &mut || 0,
        );
        let output = output.expect("started").expect("ended");
        assert_eq!(output.status.code(), Some(3));
        assert_eq!(output.stdout, b"out\n");
        assert_eq!(output.stderr, b"away\n");
    }

    #[test]
    fn a_program_that_makes_no_progress_is_ended_with_what_it_started() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("process");
        let script = format!("sleep 1000 & echo $! >{}; wait", file.display());
        let ended = output_within(shell(&script), Duration::from_millis(500), &mut || 0);
        assert!(ended.expect("started").is_none());
        let process = std::fs::read_to_string(file).expect("written");
        let stat = format!("/proc/{}/stat", process.trim());
        let gone = || !std::fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z "));
        let until = Instant::now() + Duration::from_secs(60);
        while !gone() {
            assert!(Instant::now() < until, "it lives");
            thread::sleep(LOOK_AGAIN);
        }
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
