// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The program that carries the engines into a domain. Its arguments are here, the rest is in
//! the library.

use std::io::Write;

use rampart_meter::program::{CellMemoryLocation, LoadRequest, run_load};
use rampart_model::ExitCode;

const HELP: &str = "\
rampart-meter measures latency where it is started; `rampart measure` and `rampart evaluate`
start it and render what it says.

Usage: rampart-meter [--help | --version]
       rampart-meter block [cell FILE TOLD ORDERS]
       rampart-meter cell FILE TOLD ORDERS
       rampart-meter load [cell FILE TOLD ORDERS] cpu|memory|cache --cpu CPU --seconds SECONDS
       rampart-meter show FILE
       rampart-meter agent [--port NAME | --reads START+BYTES --writes START+BYTES]
                           [--console START+BYTES] [--init] [--stay] [--silence SECONDS]

It takes one JSON object a line on standard input: first {\"prepare\":{…}} with a plan, then
\"go\":{} in an object of its own; {\"stop\":{}} or the end of the input ends it early. It answers
with one JSON object a line: ready, started, batch…, finished; or refused, with the reason.
`rampart schema meter-request` and `rampart schema meter-event` print the form of both.

With the word block it stops CPUs for others to notice, in a conversation of the same form: ready,
blocked…, finished (`rampart schema blocker-request` and `blocker-event`).

With the word cell either is done by `rampart-cell-meter`, in a cell without an operating system whose
memory FILE shows: what the cell tells from byte TOLD on, and what it is told from ORDERS on.

With the word load it keeps a CPU or the memory busy for so long, or lets such a cell do it, and tells
when that begins and ends, with the CPU time that it had; the end of its input ends it early.

With the word show it writes a file to standard output, as /proc/interrupts where there is no other
program to do so.

As agent it starts programs for a near side that has no other way in: over the virtio-serial
port NAME, over memory that a cell shares with the root, or standard input and output; with
--console it carries the kernel's log into such memory. With --init it is process 1 of a machine that it makes
ready and at the end powers off; with --stay it waits for the next near side when one goes away;
with --silence it takes one for gone that says nothing for so long.

Measuring never changes the machine. Exit codes: 0 finished, 1 failed, 2 the plan makes no sense,
4 something that the plan needs is missing.
";

fn main() -> std::process::ExitCode {
    let mut arguments: Vec<_> = std::env::args_os().skip(1).collect();
    if std::process::id() == 1 {
        // The kernel puts words of its command line that it does not know before those for us.
        let ours = arguments
            .iter()
            .position(|word| word == "enter-root" || word == "agent");
        arguments.drain(..ours.unwrap_or(0));
    }
    let text = match arguments.as_slice() {
        [] => return rampart_meter::program::run(None).into(),
        [argument] if argument == "block" => {
            return rampart_meter::program::run_blocker(None).into();
        }
        [cell, location @ ..] if cell == "cell" && location.len() == 3 => {
            match CellMemoryLocation::parse(location) {
                Some(location) => return rampart_meter::program::run(Some(&location)).into(),
                None => return not_understood(&arguments),
            }
        }
        [block, cell, location @ ..]
            if block == "block" && cell == "cell" && location.len() == 3 =>
        {
            match CellMemoryLocation::parse(location) {
                Some(location) => {
                    return rampart_meter::program::run_blocker(Some(&location)).into();
                }
                None => return not_understood(&arguments),
            }
        }
        [load, cell, file, told, orders, wish @ ..] if load == "load" && cell == "cell" => {
            let location = CellMemoryLocation::parse(&[file, told, orders].map(Clone::clone));
            match location.zip(LoadRequest::parse(wish)) {
                Some((location, wish)) => return run_load(&wish, Some(&location)).into(),
                None => return not_understood(&arguments),
            }
        }
        [load, wish @ ..] if load == "load" => match LoadRequest::parse(wish) {
            Some(wish) => return run_load(&wish, None).into(),
            None => return not_understood(&arguments),
        },
        [argument] if argument == "--help" || argument == "-h" => HELP.to_owned(),
        [argument] if argument == "--version" || argument == "-V" => {
            format!("rampart-meter {}\n", env!("CARGO_PKG_VERSION"))
        }
        [argument, file] if argument == "show" => return show(file),
        [argument, options @ ..] if argument == "agent" => return agent(options),
        [argument, options @ ..] if argument == "enter-root" => return enter_root(options),
        wrong => return not_understood(wrong),
    };
    match std::io::stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::Success.into(),
        Err(_) => ExitCode::Failure.into(),
    }
}

fn not_understood(arguments: &[std::ffi::OsString]) -> std::process::ExitCode {
    let words: Vec<_> = arguments
        .iter()
        .map(|word| word.to_string_lossy())
        .collect();
    let text = format!(
        "rampart-meter: `{}` is not understood; needed block, cell, load, show or agent with what belongs to it, \
         --help, --version, or nothing: then a plan comes on standard input\n",
        words.join(" ")
    );
    // Whoever closed standard error does not want to know.
    let _ = std::io::stderr().write_all(text.as_bytes());
    ExitCode::Usage.into()
}

/// A file as it is.
fn show(file: &std::ffi::OsStr) -> std::process::ExitCode {
    let shown = std::fs::read(file).and_then(|text| std::io::stdout().write_all(&text));
    let Err(error) = shown else {
        return ExitCode::Success.into();
    };
    let text = format!("rampart-meter show: {}: {error}\n", file.display());
    // Whoever closed standard error does not want to know.
    let _ = std::io::stderr().write_all(text.as_bytes());
    ExitCode::Failure.into()
}

/// The first program of a simulated machine; `agent --init` is its second.
fn enter_root(arguments: &[std::ffi::OsString]) -> std::process::ExitCode {
    // It returns only if it fails.
    let Err(error) = rampart_agent::enter_root(arguments);
    let text = format!("rampart-meter enter-root: {error}\n");
    // Whoever closed standard error does not want to know.
    let _ = std::io::stderr().write_all(text.as_bytes());
    ExitCode::Failure.into()
}

fn agent(options: &[std::ffi::OsString]) -> std::process::ExitCode {
    let served = rampart_agent::ServeOptions::parse(options.iter().cloned())
        .and_then(|options| rampart_agent::serve(&options));
    let Err(error) = served else {
        return ExitCode::Success.into();
    };
    let code = match error {
        rampart_agent::ServeError::Usage(_) => ExitCode::Usage,
        rampart_agent::ServeError::NoPort { .. } => ExitCode::PreconditionMissing,
        rampart_agent::ServeError::System { .. } => ExitCode::Failure,
    };
    let text = format!("rampart-meter agent: {error}\n");
    // Whoever closed standard error does not want to know.
    let _ = std::io::stderr().write_all(text.as_bytes());
    code.into()
}
