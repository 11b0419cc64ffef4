// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs a program on another machine: passes on its streams, its status and Ctrl-C.

use std::io::{BufRead, BufReader, Read};
use std::process::ExitStatus;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rampart_agent::{AgentCommand, AgentOutput};

use crate::monitor::{AFTER_END, Streams, TrackedStream, monitor};
use crate::{BenchError, BenchMachine};

/// How long a remote program may be silent before it counts as hung.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SilenceLimits {
    /// Limit while it works.
    pub working: Duration,
    /// Limit after SIGINT.
    pub ending: Duration,
    /// Limit after its end, while its streams are still open.
    pub after_end: Duration,
}

impl SilenceLimits {
    /// Returns the limits for a program that may be silent for `quiet` by design. Adds what the
    /// slowest machine, an emulated one with guests, needs beyond that.
    #[must_use]
    pub const fn with_quiet(quiet: Duration) -> Self {
        Self {
            working: quiet.saturating_add(Duration::from_secs(5 * 60)),
            ending: Duration::from_secs(2 * 60),
            after_end: AFTER_END,
        }
    }
}

/// How a remote program ended, and the result of its output.
#[derive(Debug)]
pub struct Ended<T> {
    /// Its status; an error if the machine was lost or the program hung.
    pub status: Result<ExitStatus, BenchError>,
    /// The value that the reader of its standard output returned.
    pub output: T,
}

/// Runs a program on a machine. `output` reads its standard output to the end; `line` gets every
/// line of its standard error. When `stop` is set, or the program is silent for too long, sends
/// SIGINT once and continues to read until the program ends.
///
/// # Errors
/// Returns an error if the program does not start. If it hangs or the machine is lost, the error is
/// in [`Ended::status`], beside the output received before.
pub fn run<T: Send>(
    machine: &dyn BenchMachine,
    argv: &[String],
    limits: SilenceLimits,
    stop: &AtomicBool,
    output: impl FnOnce(TrackedStream<AgentOutput>) -> T + Send,
    line: impl FnMut(&str) + Send,
) -> Result<Ended<T>, BenchError> {
    // The PATH of a session without login often lacks the sbin directories.
    let script = "PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin; export PATH; exec \"$@\"";
    let mut words = ["sh", "-c", script, "sh"].map(str::to_owned).to_vec();
    words.extend_from_slice(argv);
    let process = machine
        .agent()
        .spawn(&AgentCommand::new(words))
        .map_err(|error| machine.explain(error))?;
    let (
        Streams {
            stdin,
            stdout,
            stderr,
        },
        process_monitor,
    ) = monitor(process);
    let line = Mutex::new(line);
    let report = |text: &str| {
        if let Ok(mut line) = line.lock() {
            line(text);
        }
    };
    let command = shortened(argv);
    let result = thread::scope(|scope| {
        let reading = scope.spawn(move || output(stdout));
        let reading_errors = scope.spawn(|| for_each_line(stderr, &report));
        let mut asked: Option<Instant> = None;
        let status = loop {
            match process_monitor.poll() {
                Ok(Some(status)) => break Ok(status),
                Ok(None) => {}
                Err(error) => break Err(machine.explain(error)),
            }
            let silence = process_monitor.silence();
            match asked {
                Some(at) if silence.min(at.elapsed()) >= limits.ending => {
                    break Err(BenchError::Hung {
                        machine: machine.name(),
                        command: command.clone(),
                        silence,
                    });
                }
                Some(_) => continue,
                None if silence >= limits.working => report(&format!(
                    "rampart: {}: no output from `{command}` for {} s, sending SIGINT",
                    machine.name(),
                    silence.as_secs()
                )),
                None if stop.load(Ordering::Relaxed) => {}
                None => continue,
            }
            asked = Some(Instant::now());
            // If it has ended meanwhile, the next poll returns its status.
            let _ = process_monitor.handle().signal(libc::SIGINT);
        };
        if matches!(status, Err(BenchError::Hung { .. })) {
            // This closes its streams.
            drop(process_monitor);
        } else if !process_monitor.finish_streams(limits.after_end, || {
            reading.is_finished() && reading_errors.is_finished()
        }) {
            report(&format!(
                "rampart: {}: `{command}` has ended, but a process that it started keeps its output \
                 open; no longer waiting for it",
                machine.name()
            ));
        }
        // The readers first receive what is still in the streams.
        let output = reading.join();
        let _ = reading_errors.join();
        output.map(|output| Ended { status, output })
    });
    // The program may read its standard input until it ends, as rampart-meter does.
    drop(stdin);
    result.or_else(|panic| std::panic::resume_unwind(panic))
}

fn for_each_line(stream: impl Read, report: &impl Fn(&str)) {
    let mut lines = BufReader::new(stream);
    let mut bytes = Vec::new();
    while lines
        .read_until(b'\n', &mut bytes)
        .is_ok_and(|count| count > 0)
    {
        report(String::from_utf8_lossy(&bytes).trim_end_matches('\n'));
        bytes.clear();
    }
}

/// Shortens a command line for a message.
fn shortened(argv: &[String]) -> String {
    const LONGEST: usize = 80;
    let whole = argv.join(" ");
    if whole.chars().count() <= LONGEST {
        return whole;
    }
    whole.chars().take(LONGEST).chain(['…']).collect()
}
