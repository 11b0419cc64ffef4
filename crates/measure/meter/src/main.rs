// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Parses the arguments of `rampart-meter` and calls the library.

use std::io::Write;

use rampart_meter::program::{CellMemoryLocation, LoadRequest, run_load};
use rampart_model::ExitCode;

const HELP: &str = "\
Measure latency on CPUs of this machine. `rampart measure` and `rampart evaluate`
start this program and render its results.

Usage: rampart-meter [--help | --version]
       rampart-meter cell FILE OUTPUT ORDERS
       rampart-meter detached FILE OUTPUT ORDERS
       rampart-meter block [cell FILE OUTPUT ORDERS]
       rampart-meter load cpu|memory|cache|io --cpu CPU [OPTION]...
       rampart-meter load cell FILE OUTPUT ORDERS
                          cpu|memory|cache --cpu CPU --seconds SECONDS
       rampart-meter show FILE
       rampart-meter agent [--port NAME | --reads START+BYTES --writes START+BYTES]
                           [--console START+BYTES] [--init] [--stay]
                           [--silence SECONDS]

Without a command it measures. It reads one JSON object a line: first
{\"prepare\":{…}} with a plan, then {\"go\":{}}; {\"stop\":{}} or the end of the
input ends the measurement early. It writes one JSON object a line: ready,
started, batch…, finished; or refused, with the reason. `rampart schema
meter-request` and `rampart schema meter-event` print their schemas.

Commands:
  cell    Measure in a cell without an operating system (rampart-cell-meter).
          FILE maps its memory: the region that the cell writes begins at
          byte OUTPUT, the region that it reads at byte ORDERS.
  detached
          Be the program of such a cell on a CPU that the caller took from
          Linux and passed on (RAMPART_DETACHED), until it is killed.
  block   Stop CPUs for set times, by requests and events of the same form:
          ready, blocked…, finished (blocker-request, blocker-event).
  load    Keep a CPU, the memory or a disk busy, and print the begin and the
          end with the CPU time used. The end of the input ends it.
  show    Copy a file, such as /proc/interrupts, to the standard output.
  agent   Start programs for a caller that has no other access: over the
          virtio-serial port NAME, over memory that a cell shares with the
          root, or over standard input and output.

Options of load:
  --seconds SECONDS      end after this time
  --bytes BYTES          size of the memory that memory and cache access
  --directory DIRECTORY  where io writes a file of 64 MiB without a name
  --wait                 begin after the first line of the input

Options of agent:
  --console START+BYTES  write the kernel log into this memory
  --init                 prepare the machine as process 1, and power it off
  --stay                 wait for the next caller when one disconnects
  --silence SECONDS      end if the caller is silent for this long

Measuring changes no setting of the machine. Exit codes: 0 finished; 1 failed;
2 wrong arguments or plan; 4 a precondition is missing.
";

fn main() -> std::process::ExitCode {
    let mut arguments: Vec<_> = std::env::args_os().skip(1).collect();
    if std::process::id() == 1 {
        // The kernel passes unknown words of its command line before the arguments of this program.
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
                None => return unknown_arguments(&arguments),
            }
        }
        #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
        [detached, location @ ..] if detached == "detached" && location.len() == 3 => {
            match CellMemoryLocation::parse(location) {
                Some(location) => return rampart_meter::program::run_detached(&location).into(),
                None => return unknown_arguments(&arguments),
            }
        }
        [block, cell, location @ ..]
            if block == "block" && cell == "cell" && location.len() == 3 =>
        {
            match CellMemoryLocation::parse(location) {
                Some(location) => {
                    return rampart_meter::program::run_blocker(Some(&location)).into();
                }
                None => return unknown_arguments(&arguments),
            }
        }
        [load, cell, file, output, orders, request @ ..] if load == "load" && cell == "cell" => {
            let location = CellMemoryLocation::parse(&[file, output, orders].map(Clone::clone));
            match location.zip(LoadRequest::parse(request)) {
                Some((location, request)) => return run_load(&request, Some(&location)).into(),
                None => return unknown_arguments(&arguments),
            }
        }
        [load, request @ ..] if load == "load" => match LoadRequest::parse(request) {
            Some(request) => return run_load(&request, None).into(),
            None => return unknown_arguments(&arguments),
        },
        [argument] if argument == "--help" || argument == "-h" => HELP.to_owned(),
        [argument] if argument == "--version" || argument == "-V" => {
            format!("rampart-meter {}\n", env!("CARGO_PKG_VERSION"))
        }
        [argument, file] if argument == "show" => return show(file),
        [argument, options @ ..] if argument == "agent" => return agent(options),
        [argument, options @ ..] if argument == "enter-root" => return enter_root(options),
        wrong => return unknown_arguments(wrong),
    };
    match std::io::stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::Success.into(),
        Err(_) => ExitCode::Failure.into(),
    }
}

fn unknown_arguments(arguments: &[std::ffi::OsString]) -> std::process::ExitCode {
    let words: Vec<_> = arguments
        .iter()
        .map(|word| word.to_string_lossy())
        .collect();
    let text = format!(
        "rampart-meter: unknown arguments `{}`; fix: see `rampart-meter --help`\n",
        words.join(" ")
    );
    // Standard error may be closed.
    let _ = std::io::stderr().write_all(text.as_bytes());
    ExitCode::Usage.into()
}

/// Copies a file to the standard output.
fn show(file: &std::ffi::OsStr) -> std::process::ExitCode {
    let shown = std::fs::read(file).and_then(|text| std::io::stdout().write_all(&text));
    let Err(error) = shown else {
        return ExitCode::Success.into();
    };
    let text = format!(
        "rampart-meter show: cannot read {}: {error}\n",
        file.display()
    );
    // Standard error may be closed.
    let _ = std::io::stderr().write_all(text.as_bytes());
    ExitCode::Failure.into()
}

/// Enters the root file system as the first program of a simulated machine. The second program is
/// `agent --init`.
fn enter_root(arguments: &[std::ffi::OsString]) -> std::process::ExitCode {
    // Returns only on failure.
    let Err(error) = rampart_agent::enter_root(arguments);
    let text = format!("rampart-meter enter-root: {error}\n");
    // Standard error may be closed.
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
    // Standard error may be closed.
    let _ = std::io::stderr().write_all(text.as_bytes());
    code.into()
}
