// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Undoes the active plan, and removes everything that a killed run left on the machine.

use rampart_host::StateDirectory;
use rampart_model::{Finding, ReleaseReport, Restored, Severity};

use crate::SuperviseError;
use crate::active_plan::LoadedPlan;
use crate::program::cell::release_hypervisor;
use crate::record::{liveness, supervised_all};
use crate::standby::remove_standby;
use crate::supervisor::failure;

/// Restores every value of the machine that the active plan or a killed run changed, and removes
/// the containers, guests and cells of killed runs.
///
/// # Errors
/// [`SuperviseError::Missing`] if a program of the plan still runs, since it would continue without
/// isolation; [`SuperviseError::Host`] if another process has shielded the machine.
pub fn release(state: &StateDirectory) -> Result<ReleaseReport, SuperviseError> {
    refuse_while_programs_run(state)?;
    let standbys = remove_standbys(state);
    // Containers first: a control group can only be removed once it is empty.
    let containers = rampart_domain::release_containers(state);
    let mut report = rampart_host::release(state)?;
    // The programs of guests end with their owners; only files are left.
    let guests = rampart_domain::release_guests(state);
    let cells = rampart_domain::release_cells(state);
    for (kind, done, removed, left) in [
        ("container", "removed", containers.removed, containers.left),
        ("guest", "removed", guests.removed, guests.left),
        ("cell", "destroyed", cells.removed, cells.left),
    ] {
        let removed = removed.into_iter().map(|name| Restored {
            location: format!("{kind} {name}"),
            what: done.to_owned(),
        });
        report.restored.splice(0..0, removed);
        report.left.extend(left);
    }
    for (name, removed) in standbys {
        match removed {
            Ok(true) => report.restored.push(Restored {
                location: format!("standby {name}"),
                what: "removed".to_owned(),
            }),
            Ok(false) => {}
            Err(error) => report.left.push(error),
        }
    }
    match release_hypervisor(state) {
        Ok(true) => report.restored.push(Restored {
            location: "hypervisor".to_owned(),
            what: "disabled".to_owned(),
        }),
        Ok(false) => {}
        Err(finding) => report.left.push(finding),
    }
    // Before the module is unloaded.
    let detached = rampart_host::release_detached(state)?;
    // A hypervisor that the user enabled keeps its driver.
    let driver = rampart_host::release_driver(state, rampart_cells::operate::is_enabled())?;
    for part in [detached, driver] {
        report.restored.extend(part.restored);
        report.left.extend(part.left);
        report.journals.extend(part.journals);
    }
    Ok(report)
}

/// Removes the kernels that are kept for the root by the active plan, which is still known.
fn remove_standbys(state: &StateDirectory) -> Vec<(String, Result<bool, Finding>)> {
    // A plan that is applied only in part has kept none.
    let Ok(Some(active)) = LoadedPlan::load(state) else {
        return Vec::new();
    };
    let names = active.planned.standbys.into_iter().map(|one| one.name);
    names
        .map(|name| {
            let removed = remove_standby(&name);
            let removed = removed.map_err(|error| failure(&name, &error));
            (name, removed)
        })
        .collect()
}

fn refuse_while_programs_run(state: &StateDirectory) -> Result<(), SuperviseError> {
    let running: Vec<String> = supervised_all(state)?
        .into_iter()
        .filter(|domain| {
            let alive = liveness(domain);
            alive.supervisor || alive.program
        })
        .map(|domain| domain.name)
        .collect();
    if running.is_empty() {
        return Ok(());
    }
    let finding = Finding::new(
        Severity::Error,
        running.join(", "),
        "programs of the plan are running and would continue without isolation",
    );
    Err(SuperviseError::Missing(
        finding.values("running", "stopped").fix("rampart down"),
    ))
}
