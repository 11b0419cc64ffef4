// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs a program on another machine with the standard streams of this process.

use std::io::{self, IsTerminal as _};
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use rampart_agent::{AgentCommand, AgentProcess, TerminalSize};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGWINCH};

use crate::monitor::{AFTER_END, Streams, monitor, relay};
use crate::{BenchError, BenchMachine};

/// Runs a program on another machine with the standard streams of this process: a command, or, with
/// `terminal`, a program on a terminal there that is connected to the terminal of this process.
///
/// The first signal to end is forwarded to the program. Returns `None` after a second one, else the
/// exit status. `report` gets warnings.
///
/// # Errors
/// If the program cannot be started, a stream breaks, or the machine is lost.
pub fn run_with_standard_streams(
    machine: &dyn BenchMachine,
    argv: Vec<String>,
    terminal: bool,
    report: impl Fn(&str),
) -> Result<Option<ExitStatus>, BenchError> {
    let command = match terminal {
        false => AgentCommand::new(argv),
        true => AgentCommand {
            argv,
            env: std::env::var("TERM")
                .map(|kind| vec![("TERM".to_owned(), kind)])
                .unwrap_or_default(),
            directory: Some("/".to_owned()),
            cpus: None,
            terminal: Some(terminal_size()),
        },
    };
    let process = machine
        .agent()
        .spawn(&command)
        .map_err(|error| machine.explain(error))?;
    let _raw = terminal
        .then(RawTerminal::enter)
        .transpose()
        .map_err(stream_error)?;
    join_streams(machine, process, report)
}

/// Returns whether standard input and output are a terminal.
#[must_use]
pub fn has_terminal() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal()
}

fn stream_error(source: io::Error) -> BenchError {
    BenchError::File {
        path: "standard streams".into(),
        source,
    }
}

fn terminal_size() -> TerminalSize {
    tcgetwinsize(io::stdout()).map_or(
        TerminalSize {
            rows: 24,
            columns: 80,
        },
        |size| TerminalSize {
            rows: size.ws_row,
            columns: size.ws_col,
        },
    )
}

/// This process's terminal in raw mode, so that every key reaches the remote terminal. Restored when
/// the value is dropped.
#[derive(Debug)]
struct RawTerminal(Termios);

impl RawTerminal {
    fn enter() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(io::stdin(), OptionalActions::Now, &raw)?;
        Ok(Self(before))
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        // The terminal may be closed.
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.0);
    }
}

/// Connects the streams and waits for the end of the process.
fn join_streams(
    machine: &dyn BenchMachine,
    process: AgentProcess,
    report: impl Fn(&str),
) -> Result<Option<ExitStatus>, BenchError> {
    let (
        Streams {
            mut stdin,
            mut stdout,
            mut stderr,
        },
        process_monitor,
    ) = monitor(process);
    let flags = [SIGINT, SIGTERM, SIGHUP].map(|signal| (signal, Arc::new(AtomicBool::new(false))));
    for (signal, flag) in &flags {
        signal_hook::flag::register(*signal, Arc::clone(flag)).map_err(stream_error)?;
    }
    let resized = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(SIGWINCH, Arc::clone(&resized)).map_err(stream_error)?;

    // The thread ends with the input or with this process.
    start("stdin", move || {
        let _ = relay(&mut io::stdin().lock(), &mut stdin);
    })
    .map_err(stream_error)?;
    let outputs = [
        start("stdout", move || relay(&mut stdout, &mut io::stdout())).map_err(stream_error)?,
        start("stderr", move || relay(&mut stderr, &mut io::stderr())).map_err(stream_error)?,
    ];
    let mut signalled = false;
    let status = loop {
        for (signal, flag) in &flags {
            if flag.swap(false, Ordering::Relaxed) {
                if signalled {
                    return Ok(None);
                }
                signalled = true;
                process_monitor
                    .handle()
                    .signal_group(*signal)
                    .map_err(|error| machine.explain(error))?;
            }
        }
        if resized.swap(false, Ordering::Relaxed) {
            process_monitor
                .handle()
                .resize(terminal_size())
                .map_err(|error| machine.explain(error))?;
        }
        // No time limit: the user sees the command and can end it.
        let looked = process_monitor.poll();
        if let Some(status) = looked.map_err(|error| machine.explain(error))? {
            break status;
        }
    };
    if !process_monitor.finish_streams(AFTER_END, || outputs.iter().all(JoinHandle::is_finished)) {
        report(
            "warning: the command has ended, but a process that it started keeps its output open; \
             that output is not shown",
        );
    }
    for output in outputs {
        match output.join() {
            Ok(Ok(())) => {}
            // The reader closed standard output.
            Ok(Err(error)) if error.kind() == io::ErrorKind::BrokenPipe => {}
            Ok(Err(error)) => return Err(stream_error(error)),
            Err(_) => {
                let failed = io::Error::other("a thread that carries output failed");
                return Err(stream_error(failed));
            }
        }
    }
    Ok(Some(status))
}

fn start<T: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    thread::Builder::new().name(name.to_owned()).spawn(body)
}
