// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rampart release`: restores what a killed run left changed.

use rampart_host::{HostError, ReleaseReport, Restored, StateDirectory};
use rampart_model::ExitCode;

use crate::arguments::Release;
use crate::failure::Failure;
use crate::output;

pub(crate) fn run(arguments: &Release) -> Result<ExitCode, Failure> {
    let state = StateDirectory::standard();
    refuse_under_programs(&state)?;
    // Containers first: the control groups around them can only go when they are gone.
    let containers = rampart_domain::release_containers(&state);
    let mut report = rampart_host::release(&state)
        .map_err(|error: HostError| Failure::new(ExitCode::PreconditionMissing, error))?;
    let removed = containers.removed.into_iter().map(|name| Restored {
        location: format!("container {name}"),
        what: "removed".to_owned(),
    });
    report.restored.splice(0..0, removed);
    report.left.extend(containers.left);
    // Their programs ended with their owners; what is left are files.
    let guests = rampart_domain::release_guests(&state);
    let removed = guests.removed.into_iter().map(|name| Restored {
        location: format!("guest {name}"),
        what: "removed".to_owned(),
    });
    report.restored.splice(0..0, removed);
    report.left.extend(guests.left);
    let cells = rampart_domain::release_cells(&state);
    let removed = cells.removed.into_iter().map(|name| Restored {
        location: format!("cell {name}"),
        what: "destroyed".to_owned(),
    });
    report.restored.splice(0..0, removed);
    report.left.extend(cells.left);
    match rampart_supervise::release_hypervisor(&state) {
        Ok(true) => report.restored.push(Restored {
            location: "hypervisor".to_owned(),
            what: "disabled".to_owned(),
        }),
        Ok(false) => {}
        Err(finding) => report.left.push(finding),
    }
    if arguments.json {
        output::print(&serde_json::to_string_pretty(&report)?)?;
    } else {
        output::print(&text(&report))?;
    }
    Ok(if report.left.is_empty() {
        ExitCode::Success
    } else {
        ExitCode::Partial
    })
}

/// What runs in the domains would run on without its walls.
fn refuse_under_programs(state: &StateDirectory) -> Result<(), Failure> {
    let up: Vec<String> = rampart_supervise::supervised_all(state)?
        .into_iter()
        .filter(|domain| {
            let alive = rampart_supervise::liveness(domain);
            alive.supervisor || alive.program
        })
        .map(|domain| domain.name)
        .collect();
    if up.is_empty() {
        return Ok(());
    }
    Err(Failure::new(
        ExitCode::PreconditionMissing,
        anyhow::anyhow!(
            "{}: what the plan runs is up, and would run on without its walls (is up, needed down); \
             fix: rampart down",
            up.join(", ")
        ),
    ))
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
        text.push_str("Nothing to restore: no earlier run left this machine changed.\n");
    }
    text
}
