// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rampart release`: takes back the active plan and the changes of killed runs.

use clap::Args;
use rampart_host::StateDirectory;
use rampart_model::{ExitCode, ReleaseReport};

use crate::failure::Failure;
use crate::output;

#[derive(Debug, Args)]
#[command(after_help = "\
Exit codes:
  0  everything is restored
  4  programs of the plan are running (`rampart down` stops them), or another
     process is changing the machine
  5  something was not restored; the output names it

Examples:
  rampart release
  rampart release --on ssh:root@board")]
pub(crate) struct Release {
    /// Print the restored values as JSON
    #[arg(long, help_heading = "Output")]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) on: super::on::On,
}

pub(crate) fn run(arguments: &Release) -> Result<ExitCode, Failure> {
    let report = rampart_supervise::release(&StateDirectory::standard())?;
    show(&report, arguments.json)
}

/// Prints a report and returns its exit code.
pub(super) fn show(report: &ReleaseReport, json: bool) -> Result<ExitCode, Failure> {
    if json {
        output::print_json(report)?;
    } else {
        output::print_text(&rampart_present::released(report))?;
    }
    Ok(ExitCode::of_work(report.left.is_empty()))
}
