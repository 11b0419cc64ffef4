// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The hypervisor's instructions, counted: `make bench-hypervisor`.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program for the terminal"
)]

mod machine;
mod table;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::Parser;

use crate::machine::Files;

/// Count the hypervisor's instructions for each trap and interrupt, on a simulated machine
#[derive(Debug, Parser)]
#[command(name = "rampart-bench-hypervisor")]
struct Arguments {
    /// Where `make hypervisor` has put everything
    #[arg(long, value_name = "DIRECTORY", default_value = "bin/hypervisor")]
    hypervisor: PathBuf,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("rampart-bench-hypervisor: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<()> {
    let files = Files::make(&arguments.hypervisor)?;
    let native = machine::run(&files, false).context("without the hypervisor")?;
    let cell = machine::run(&files, true).context("in a cell")?;
    let rows = table::rows(&native, &cell)?;
    if arguments.json {
        println!("{}", serde_json::to_string_pretty(&rows)?);
    } else {
        print!("{}", table::text(&rows));
    }
    Ok(())
}
