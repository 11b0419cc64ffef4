// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rampart check`: judges whether a machine is fit for real-time work.

use clap::Args;
use rampart_evaluate::check;
use rampart_model::{CpuList, ExitCode};

use super::recorded::RecordedMachine;
use crate::commands::VERSION;
use crate::failure::Failure;
use crate::output;

#[derive(Debug, Args)]
#[command(after_help = "\
The command changes nothing.

Exit codes:
  0  no error, whatever the warnings and notes
  4  at least one error

Examples:
  rampart check                  with the CPUs that `evaluate` would measure
  rampart check --cpus 2-3 -v    these CPUs, also correct settings
  rampart check --on ssh:root@board
  rampart check --json > check.json")]
pub(crate) struct Check {
    /// Real-time CPUs [default: the isolated ones, or the last of the fastest
    /// cores]
    #[arg(long, value_name = "CPUS")]
    pub(crate) cpus: Option<CpuList>,

    #[command(flatten)]
    pub(crate) recorded: RecordedMachine,

    /// Also show correct settings, and each location of a wrong one
    #[arg(short, long, help_heading = "Output")]
    pub(crate) verbose: bool,

    /// Print the check as JSON
    #[arg(long, help_heading = "Output")]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) on: super::on::On,
}

pub(crate) fn run(arguments: &Check, colour: bool) -> Result<ExitCode, Failure> {
    let check = check(
        &arguments.recorded.root()?,
        arguments.cpus.as_ref(),
        VERSION,
    )?;
    if arguments.json {
        output::print_json(&check)?;
    } else {
        let elements = rampart_present::check(&check, arguments.verbose);
        output::print_elements(&elements, colour)?;
    }
    Ok(ExitCode::of_check(!check.is_unfit()))
}
