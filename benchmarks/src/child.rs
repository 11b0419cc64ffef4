// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs child processes and reads the CPU time of all their threads.

use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rampart_model::Nanos;

/// The result of a program that exited successfully.
#[derive(Debug)]
pub(crate) struct Ended<T> {
    /// The result of the conversation.
    pub(crate) talk: T,
    /// Its standard error.
    pub(crate) errors: String,
    /// CPU time of all its threads, in user space and in the kernel, start-up and end included.
    pub(crate) cpu_time: Nanos,
}

/// Kills a child that exceeds its time limit, unless dropped before.
struct Watchdog {
    _alive: mpsc::Sender<()>,
}

impl Watchdog {
    fn new(process: u32, limit: Duration) -> Self {
        let (alive, gone) = mpsc::channel();
        std::thread::spawn(move || {
            if gone.recv_timeout(limit) == Err(mpsc::RecvTimeoutError::Timeout) {
                // SAFETY: kill(2) accesses no memory of this process. The child has not been waited
                // for, so its PID cannot have been reused.
                unsafe { libc::kill(process as libc::pid_t, libc::SIGKILL) };
            }
        });
        Self { _alive: alive }
    }
}

/// Waits for a child that has not been waited for. Returns its wait(2) status and its CPU time, user
/// and system time of getrusage(2).
fn wait(child: &Child) -> Result<(i32, Nanos)> {
    let mut status = 0;
    // SAFETY: all zeroes is a valid `rusage`, a structure of integers.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    loop {
        // SAFETY: both pointers are to live locals of the types that wait4(2) writes.
        let process = unsafe { libc::wait4(child.id() as libc::pid_t, &mut status, 0, &mut usage) };
        if process >= 0 {
            break;
        }
        let error = std::io::Error::last_os_error();
        if error.kind() != std::io::ErrorKind::Interrupted {
            return Err(error).context("waiting for a child process");
        }
    }
    let time = |time: libc::timeval| {
        Nanos::from_secs(time.tv_sec as u64) + Nanos::from_micros(time.tv_usec as u64)
    };
    Ok((status, time(usage.ru_utime) + time(usage.ru_stime)))
}

/// Runs `command` until it ends, for at most `limit`. `converse` may use its standard input and
/// output; output after that is discarded.
///
/// # Errors
/// If the command cannot be started or fails, or if `converse` fails.
pub(crate) fn run<T>(
    mut command: Command,
    limit: Duration,
    converse: impl FnOnce(&mut dyn Write, &mut dyn Read) -> Result<T>,
) -> Result<Ended<T>> {
    let name = format!("`{}`", command.get_program().to_string_lossy());
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("starting {name}"))?;
    let watchdog = Watchdog::new(child.id(), limit);
    let errors = child.stderr.take().map(|mut stream| {
        std::thread::spawn(move || {
            let mut text = String::new();
            // Output that is not UTF-8 is of no use in a message.
            let _ = stream.read_to_string(&mut text);
            text
        })
    });
    let conversed = match (child.stdin.take(), child.stdout.take()) {
        (Some(mut input), Some(mut stream)) => converse(&mut input, &mut stream).and_then(|talk| {
            drop(input);
            std::io::copy(&mut stream, &mut std::io::sink())
                .with_context(|| format!("reading the output of {name}"))?;
            Ok(talk)
        }),
        _ => bail!("{name} has no standard input or output"),
    };
    if conversed.is_err() {
        // It may have ended already; the wait below covers both cases.
        let _ = child.kill();
    }
    let (status, cpu_time) = wait(&child)?;
    drop(watchdog);
    let errors = errors
        .and_then(|thread| thread.join().ok())
        .unwrap_or_default();
    let talk = conversed.with_context(|| format!("standard error of {name}: {}", errors.trim()))?;
    if status != 0 {
        bail!(
            "{name} ended with wait status {status:#x}; standard error: {}",
            errors.trim()
        );
    }
    Ok(Ended {
        talk,
        errors,
        cpu_time,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    #[test]
    fn returns_the_cpu_time_of_a_child() {
        let mut command = Command::new("sh");
        command.args([
            "-c",
            "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; echo done >&2",
        ]);
        let ended = run(command, LIMIT, |_, _| Ok(())).expect("a shell");
        assert!(ended.cpu_time > Nanos::from_millis(1), "{ended:?}");
        assert_eq!(ended.errors, "done\n");
    }

    #[test]
    fn exchanges_data_with_a_child_and_reports_its_failure() {
        let heard = run(Command::new("cat"), LIMIT, |input, output| {
            writeln!(input, "hello")?;
            let mut heard = [0; 6];
            output.read_exact(&mut heard)?;
            Ok(heard)
        });
        assert_eq!(&heard.expect("cat").talk, b"hello\n");
        let mut command = Command::new("sh");
        command.args(["-c", "echo broken >&2; exit 3"]);
        let error = run(command, LIMIT, |_, _| Ok(())).expect_err("it fails");
        assert!(error.to_string().contains("broken"), "{error}");
        assert!(run(Command::new("no-such-program"), LIMIT, |_, _| Ok(())).is_err());
    }

    #[test]
    fn kills_a_child_that_exceeds_its_limit() {
        let mut command = Command::new("sleep");
        command.arg("1000");
        assert!(run(command, Duration::from_millis(50), |_, _| Ok(())).is_err());
    }
}
