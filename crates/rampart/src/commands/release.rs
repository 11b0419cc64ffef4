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
        output::print(&text(report))?;
    }
    Ok(ExitCode::of_work(report.left.is_empty()))
}

fn text(report: &ReleaseReport) -> String {
    let mut text = String::new();
    for restored in &report.restored {
        text.push_str(&format!(
            "restored  {}: {}\n",
            restored.location, restored.what
        ));
    }
    for left in &report.left {
        text.push_str(&format!("left      {left}\n"));
    }
    if report.journals.is_empty() && report.restored.is_empty() && report.left.is_empty() {
        text.push_str("Nothing to restore: no plan is active and no run was killed.\n");
    }
    text
}
