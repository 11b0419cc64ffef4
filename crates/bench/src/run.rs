// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A program over there, as if it ran here: its streams, its status, Ctrl-C.

use std::io::{BufRead, BufReader};
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rampart_agent::{AgentCommand, AgentOutput, AgentProcess};

use crate::{BenchError, Machine};

/// How often it is looked whether the user wants to end.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// How a program over there ended, and what became of its output.
#[derive(Debug)]
pub struct Ended<T> {
    /// How it ended; an error if the machine was lost before.
    pub status: Result<ExitStatus, BenchError>,
    /// What the reader of its standard output made of it.
    pub output: T,
}

/// Runs a program there. `output` gets its standard output and reads it to the end, `line` every
/// line of its standard error. When `stop` is set it gets SIGINT, once, and is waited for all the
/// same: what it still has to say comes.
///
/// # Errors
/// If it does not start. That the machine was lost while it ran is in the result, beside what
/// came before.
pub fn run<T: Send>(
    machine: &dyn Machine,
    argv: &[String],
    stop: &AtomicBool,
    output: impl FnOnce(AgentOutput) -> T + Send,
    mut line: impl FnMut(&str) + Send,
) -> Result<Ended<T>, BenchError> {
    // A session without login often lacks the directories of programs for the administrator.
    let script = "PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin; export PATH; exec \"$@\"";
    let mut words = ["sh", "-c", script, "sh"].map(str::to_owned).to_vec();
    words.extend_from_slice(argv);
    let process = machine
        .agent()
        .spawn(&AgentCommand::new(words))
        .map_err(|error| machine.explain(error))?;
    let AgentProcess {
        stdin,
        stdout,
        stderr,
        handle,
    } = process;
    let result = thread::scope(|scope| {
        let reading = scope.spawn(move || output(stdout));
        let hearing = scope.spawn(move || {
            let mut lines = BufReader::new(stderr);
            let mut bytes = Vec::new();
            while lines
                .read_until(b'\n', &mut bytes)
                .is_ok_and(|count| count > 0)
            {
                line(String::from_utf8_lossy(&bytes).trim_end_matches('\n'));
                bytes.clear();
            }
        });
        let mut told = false;
        let status = loop {
            match handle.wait(LOOK_AGAIN) {
                Ok(Some(status)) => break Ok(status),
                Ok(None) => {}
                Err(error) => break Err(machine.explain(error)),
            }
            if !told && stop.load(Ordering::Relaxed) {
                told = true;
                // If it is not there any more, the next wait says so.
                let _ = handle.signal(libc::SIGINT);
            }
        };
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
