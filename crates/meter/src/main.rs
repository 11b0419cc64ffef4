// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The program that carries the engines into a domain. Its arguments are here, the rest is in
//! the library.

use std::io::Write;

use rampart_model::ExitCode;

const HELP: &str = "\
rampart-meter measures latency where it is started; `rampart measure` and `rampart evaluate`
start it and render what it says.

Usage: rampart-meter [--help | --version]

It takes one JSON object a line on standard input: first {\"prepare\":{…}} with a plan, then
\"go\":{} in an object of its own; {\"stop\":{}} or the end of the input ends it early. It answers
with one JSON object a line: ready, started, block…, finished; or refused, with the reason.
`rampart schema` prints the form of both.

It never changes the machine. Exit codes: 0 finished, 1 failed, 2 the plan makes no sense,
4 something that the plan needs is missing.
";

fn main() -> std::process::ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let text = match arguments.as_slice() {
        [] => return rampart_meter::program::run().into(),
        [argument] if argument == "--help" || argument == "-h" => HELP.to_owned(),
        [argument] if argument == "--version" || argument == "-V" => {
            format!("rampart-meter {}\n", env!("CARGO_PKG_VERSION"))
        }
        _ => {
            let text = "rampart-meter takes no arguments but --help and --version; its plan comes on standard input\n";
            // Whoever closed standard error does not want to know.
            let _ = std::io::stderr().write_all(text.as_bytes());
            return ExitCode::Usage.into();
        }
    };
    match std::io::stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::Success.into(),
        Err(_) => ExitCode::Failure.into(),
    }
}
