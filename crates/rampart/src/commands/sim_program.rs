// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs a program in the simulated machine with the standard streams of this process.

use std::io::{self, IsTerminal as _};
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use rampart_agent::{AgentCommand, AgentProcess, TerminalSize};
use rampart_bench::{AFTER_END, Machine, Streams, monitor, relay};
use rampart_model::ExitCode;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGWINCH};

use crate::failure::Failure;
use crate::output;

/// Runs a command with the standard streams of this process. The first signal to end is forwarded to
/// the command, the second ends this process.
pub(crate) fn run_program(
    machine: &dyn Machine,
    command: &[String],
) -> Result<std::process::ExitCode, Failure> {
    let process = machine
        .agent()
        .spawn(&AgentCommand::new(command.iter().cloned()))
        .map_err(|error| machine.explain(error))?;
    join_streams(machine, process)
}

/// Runs a login shell on a terminal in the machine, connected to the terminal of this process.
pub(crate) fn run_shell(machine: &dyn Machine) -> Result<std::process::ExitCode, Failure> {
    if !has_terminal() {
        return Err(Failure::usage(
            "sim shell: standard input and output must be a terminal; fix: rampart sim run -- \
             bash -c COMMANDS",
        ));
    }
    let words = ["bash", "--login"].map(str::to_owned).to_vec();
    run_on_terminal(machine, words)
}

/// Returns whether standard input and output are a terminal.
pub(super) fn has_terminal() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal()
}

/// Runs a command on a terminal in the machine, connected to the terminal of this process.
pub(super) fn run_on_terminal(
    machine: &dyn Machine,
    argv: Vec<String>,
) -> Result<std::process::ExitCode, Failure> {
    let command = AgentCommand {
        argv,
        env: std::env::var("TERM")
            .map(|kind| vec![("TERM".to_owned(), kind)])
            .unwrap_or_default(),
        directory: Some("/".to_owned()),
        cpus: None,
        terminal: Some(terminal_size()),
    };
    let process = machine
        .agent()
        .spawn(&command)
        .map_err(|error| machine.explain(error))?;
    let _raw = RawTerminal::enter()?;
    join_streams(machine, process)
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
    machine: &dyn Machine,
    process: AgentProcess,
) -> Result<std::process::ExitCode, Failure> {
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
        signal_hook::flag::register(*signal, Arc::clone(flag))?;
    }
    let resized = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(SIGWINCH, Arc::clone(&resized))?;

    // The thread ends with the input or with this process.
    start("stdin", move || {
        let _ = relay(&mut io::stdin().lock(), &mut stdin);
    })?;
    let outputs = [
        start("stdout", move || relay(&mut stdout, &mut io::stdout()))?,
        start("stderr", move || relay(&mut stderr, &mut io::stderr()))?,
    ];
    let mut signalled = false;
    let status = loop {
        for (signal, flag) in &flags {
            if flag.swap(false, Ordering::Relaxed) {
                if signalled {
                    return Ok(ExitCode::Interrupted.into());
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
        output::say(
            "warning: the command has ended, but a process that it started keeps its output open; \
             that output is not shown",
        );
    }
    for output in outputs {
        match output.join() {
            Ok(Ok(())) => {}
            // The reader closed standard output.
            Ok(Err(error)) if error.kind() == io::ErrorKind::BrokenPipe => {}
            Ok(Err(error)) => return Err(error.into()),
            Err(_) => return Err(io::Error::other("a thread that carries output failed").into()),
        }
    }
    Ok(code_of(status))
}

fn start<T: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    thread::Builder::new().name(name.to_owned()).spawn(body)
}

/// Returns the exit code as shells define it: the exit status, or 128 plus the signal.
fn code_of(status: ExitStatus) -> std::process::ExitCode {
    let signal = status.signal().map(|signal| 128 + signal);
    let code = status.code().or(signal).unwrap_or_default();
    // An exit status has eight bits.
    std::process::ExitCode::from(code.to_le_bytes()[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_exit_statuses_and_signals_to_exit_codes() {
        let code = |raw| format!("{:?}", code_of(ExitStatus::from_raw(raw)));
        let expected = |code: u8| format!("{:?}", std::process::ExitCode::from(code));
        assert_eq!(code(0), expected(0));
        assert_eq!(code(7 << 8), expected(7));
        assert_eq!(code(9), expected(137));
    }
}
