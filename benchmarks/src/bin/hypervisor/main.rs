// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Counts the hypervisor's instructions: `make bench-hypervisor`.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program for the terminal"
)]

mod simulated_machine;
mod table;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::Parser;

use crate::simulated_machine::Files;
use crate::table::Row;

/// Count the hypervisor's instructions for each trap and interrupt, on a simulated machine
#[derive(Debug, Parser)]
#[command(name = "rampart-bench-hypervisor")]
struct Arguments {
    /// Output directory of `make hypervisor`
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
    let rows = counted(&arguments.hypervisor)?;
    if arguments.json {
        println!("{}", serde_json::to_string_pretty(&rows)?);
    } else {
        print!("{}", table::text(&rows));
    }
    Ok(())
}

/// Counts with the files that `make hypervisor` built into a directory.
fn counted(hypervisor: &Path) -> Result<Vec<Row>> {
    let files = Files::make(hypervisor)?;
    let native = simulated_machine::run(&files, false).context("without the hypervisor")?;
    let cell = simulated_machine::run(&files, true).context("in a cell")?;
    table::rows(&native, &cell)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts are deterministic: each run of the same programs returns the same counts.
    #[test]
    fn interrupts_cost_the_same_as_without_a_hypervisor_and_each_aim_is_reached() {
        let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bin/hypervisor");
        let rows = counted(&built).expect("counts");
        let missed = rows.iter().filter(|row| row.reached == Some(false));
        let missed: Vec<_> = missed.collect();
        assert!(missed.is_empty(), "{missed:#?}");
        let held = rows.iter().filter(|row| row.reached.is_some());
        let held: Vec<_> = held.map(|row| row.what).collect();
        for what in [
            "timer interrupt to its handler",
            "device interrupt to its handler",
            "exits for 100 timer interrupts",
            "exits for 100 device interrupts",
            "meter mmio: GICD_TYPER, mean of 64 reads",
            "GICD_ISENABLER1, write",
            "GICR_IPRIORITYR6, write",
            "bits of a shared register, read",
            "bits of a shared register, write",
            "PSCI_VERSION by SMC",
        ] {
            assert!(held.contains(&what), "no {what} in {held:?}");
        }
    }
}
