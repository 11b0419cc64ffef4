// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rampart release`: takes back the active plan and the changes of killed runs.

use rampart_host::StateDirectory;
use rampart_model::{ExitCode, ReleaseReport};

use crate::arguments::Release;
use crate::failure::Failure;
use crate::output;

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
