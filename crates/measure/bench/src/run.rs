// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A program over there, as if it ran here: its streams, its status, Ctrl-C.

use std::io::{BufRead, BufReader, Read};
use std::process::ExitStatus;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rampart_agent::{AgentCommand, AgentOutput};

use crate::attend::{AFTER_END, Streams, Tracked, attend};
use crate::{BenchError, Machine};

/// How long a program over there may be silent before it is taken for hung.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// While it works.
    pub working: Duration,
    /// After it was asked to end.
    pub ending: Duration,
    /// After its end, while its streams are open still.
    pub after_end: Duration,
}

impl Patience {
    /// For a program that may by its nature say nothing for `quiet`: so long, and what the slowest
    /// machine, an emulated one with guests in it, needs beside that.
    #[must_use]
    pub const fn with_quiet(quiet: Duration) -> Self {
        Self {
            working: quiet.saturating_add(Duration::from_secs(5 * 60)),
            ending: Duration::from_secs(2 * 60),
            after_end: AFTER_END,
        }
    }
}

/// How a program over there ended, and what became of its output.
#[derive(Debug)]
pub struct Ended<T> {
    /// How it ended; an error if the machine was lost before, or the program hung.
    pub status: Result<ExitStatus, BenchError>,
    /// What the reader of its standard output made of it.
    pub output: T,
}

/// Runs a program there. `output` gets its standard output and reads it to the end, `line` every
/// line of its standard error. When `stop` is set, or nothing came from it for too long, it gets
/// SIGINT, once, and is waited for all the same: what it still has to say comes.
///
/// # Errors
/// If it does not start. That the machine was lost while it ran, or that it hung, is in the result,
/// beside what came before.
pub fn run<T: Send>(
    machine: &dyn Machine,
    argv: &[String],
    patience: Patience,
    stop: &AtomicBool,
    output: impl FnOnce(Tracked<AgentOutput>) -> T + Send,
    line: impl FnMut(&str) + Send,
) -> Result<Ended<T>, BenchError> {
    // A session without login often lacks the directories of programs for the administrator.
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
        attendant,
    ) = attend(process);
    let line = Mutex::new(line);
    let say = |text: &str| {
        if let Ok(mut line) = line.lock() {
            line(text);
        }
    };
    let command = shortened(argv);
    let result = thread::scope(|scope| {
        let reading = scope.spawn(move || output(stdout));
        let hearing = scope.spawn(|| for_each_line(stderr, &say));
        let mut asked: Option<Instant> = None;
        let status = loop {
            match attendant.look() {
                Ok(Some(status)) => break Ok(status),
                Ok(None) => {}
                Err(error) => break Err(machine.explain(error)),
            }
            let silence = attendant.silence();
            match asked {
                Some(at) if silence.min(at.elapsed()) >= patience.ending => {
                    break Err(BenchError::Hung {
                        machine: machine.name(),
                        command: command.clone(),
                        silence,
                    });
                }
                Some(_) => continue,
                None if silence >= patience.working => say(&format!(
                    "rampart: {}: no output from `{command}` for {} s, asking it to end",
                    machine.name(),
                    silence.as_secs()
                )),
                None if stop.load(Ordering::Relaxed) => {}
                None => continue,
            }
            asked = Some(Instant::now());
            // If it is not there any more, the next look says so.
            let _ = attendant.handle().signal(libc::SIGINT);
        };
        if matches!(status, Err(BenchError::Hung { .. })) {
            // Nothing comes from it any more; this ends its streams.
            drop(attendant);
        } else if !attendant.let_go(patience.after_end, || {
            reading.is_finished() && hearing.is_finished()
        }) {
            say(&format!(
                "rampart: {}: `{command}` has ended, but something that it started holds its \
                 output; it is not waited for any longer",
                machine.name()
            ));
        }
        // What is still in its streams comes before they end.
        let output = reading.join();
        let _ = hearing.join();
        output.map(|output| Ended { status, output })
    });
    // It may read from us, as rampart-meter does, until it ends.
    drop(stdin);
    // The reader is a closure of ours: where it panics, so do we.
    result.or_else(|panic| std::panic::resume_unwind(panic))
}

fn for_each_line(stream: impl Read, say: &impl Fn(&str)) {
    let mut lines = BufReader::new(stream);
    let mut bytes = Vec::new();
    while lines
        .read_until(b'\n', &mut bytes)
        .is_ok_and(|count| count > 0)
    {
        say(String::from_utf8_lossy(&bytes).trim_end_matches('\n'));
        bytes.clear();
    }
}

/// A command line as a message shows it.
fn shortened(argv: &[String]) -> String {
    const LONGEST: usize = 80;
    let whole = argv.join(" ");
    if whole.chars().count() <= LONGEST {
        return whole;
    }
    whole.chars().take(LONGEST).chain(['…']).collect()
}
