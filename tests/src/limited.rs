// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs programs with a time limit. A program that hangs fails its test with its output so far.

use std::io::{self, Read, Write};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

/// Default time limit.
const USUAL: Duration = Duration::from_secs(300);
/// Time limit for a program to end after SIGTERM: `rampart` restores the machine meanwhile.
const ENDING: Duration = Duration::from_secs(30);
/// Time between two checks of a condition.
const PAUSE: Duration = Duration::from_millis(10);

/// [`Command::output`] with a time limit.
pub trait Limited {
    /// Runs the command for at most five minutes.
    ///
    /// # Errors
    /// If it does not start.
    ///
    /// # Panics
    /// With its output, if it does not end.
    fn finish(&mut self) -> io::Result<Output>;

    /// Runs the command for at most `limit`, with `input` on its standard input.
    ///
    /// # Errors
    /// If it does not start.
    ///
    /// # Panics
    /// With its output, if it does not end.
    fn finish_within(&mut self, limit: Duration, input: Vec<u8>) -> io::Result<Output>;
}

impl Limited for Command {
    fn finish(&mut self) -> io::Result<Output> {
        self.finish_within(USUAL, Vec::new())
    }

    fn finish_within(&mut self, limit: Duration, input: Vec<u8>) -> io::Result<Output> {
        let mut child = self
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        if let Some(mut pipe) = child.stdin.take() {
            // A program that reads nothing closes the pipe, which is no error of the test.
            thread::spawn(move || pipe.write_all(&input));
        }
        Ok(output_of(child, limit, &format!("{self:?}")))
    }
}

/// Waits for a program to end, for at most five minutes, and returns the output in its pipes.
///
/// # Panics
/// With its output, if it does not end.
#[must_use]
pub fn finished(child: Child) -> Output {
    output_of(child, USUAL, "a program")
}

/// Waits for a program to end, for at most five minutes.
///
/// # Panics
/// If it does not end.
pub fn ended(child: &mut Child) -> ExitStatus {
    wait(child, USUAL).unwrap_or_else(|| {
        let _ = child.kill();
        panic!(
            "process {} did not end within {} s",
            child.id(),
            USUAL.as_secs()
        )
    })
}

/// Waits until a condition is true, for at most five minutes.
///
/// # Panics
/// With this text, if it does not become true.
pub fn wait_until(text: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + USUAL;
    while !condition() {
        assert!(
            Instant::now() < end,
            "not within {} s: {text}",
            USUAL.as_secs()
        );
        thread::sleep(PAUSE);
    }
}

fn output_of(mut child: Child, limit: Duration, program: &str) -> Output {
    let stdout = child.stdout.take().map(read);
    let stderr = child.stderr.take().map(read);
    let ended = wait(&mut child, limit);
    let status = ended.or_else(|| {
        if let Ok(process) = i32::try_from(child.id())
            && let Some(process) = rustix::process::Pid::from_raw(process)
        {
            let _ = rustix::process::kill_process(process, rustix::process::Signal::TERM);
        }
        wait(&mut child, ENDING).or_else(|| {
            let _ = child.kill();
            child.wait().ok()
        })
    });
    // Its children may keep the pipes open.
    let whole = |pipe: Option<Receiver<Vec<u8>>>| {
        let end = Instant::now() + Duration::from_secs(5);
        let mut all = Vec::new();
        while let Some(part) = pipe
            .as_ref()
            .and_then(|pipe| pipe.recv_timeout(end - Instant::now().min(end)).ok())
        {
            all.extend(part);
        }
        all
    };
    let output = Output {
        status: status.unwrap_or_default(),
        stdout: whole(stdout),
        stderr: whole(stderr),
    };
    assert!(
        ended.is_some(),
        "{program} did not end within {} s\nstdout:\n{}\nstderr:\n{}",
        limit.as_secs(),
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

fn wait(child: &mut Child, limit: Duration) -> Option<ExitStatus> {
    let end = Instant::now() + limit;
    loop {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status);
        }
        if Instant::now() >= end {
            return None;
        }
        thread::sleep(PAUSE);
    }
}

fn read(mut pipe: impl Read + Send + 'static) -> Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut part = vec![0; 1 << 16];
        while let Ok(length @ 1..) = pipe.read(&mut part) {
            let _ = sender.send(part[..length].to_vec());
        }
    });
    receiver
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn returns_the_whole_output() {
        let output = Command::new("sh")
            .args(["-c", "cat; echo printed >&2; exit 3"])
            .finish_within(USUAL, b"input".to_vec())
            .expect("sh");
        assert_eq!(output.status.code(), Some(3));
        assert_eq!(output.stdout, b"input");
        assert_eq!(output.stderr, b"printed\n");
    }

    #[test]
    #[should_panic(expected = "printed before")]
    fn a_hanging_program_fails_with_its_output() {
        let _ = Command::new("sh")
            .args(["-c", "echo printed before; exec sleep 1000"])
            .finish_within(Duration::from_millis(300), Vec::new());
    }
}
