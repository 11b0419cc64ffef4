// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where systemd manages the machine, its units are changed by its own means: what somebody writes to
//! their control groups beside it, it writes over (systemd.resource-control(5); systemd,
//! "Control Group APIs and Delegation").

mod systemctl;
#[cfg(test)]
mod tests;
pub(crate) mod undo;

use std::path::{Path, PathBuf};

use rampart_model::{CpuSet, Finding, Severity};

use crate::HostError;
use crate::changes::Changes;
use crate::journal::Change;
use crate::kernel::Kernel;
use systemctl::Unit;

/// Everything that is not a plan's: the first process, services, logins, guests and containers that
/// systemd-machined knows; each with the knob by which a plan speaks of it.
pub(crate) const SLICES: [(&str, &str); 4] = [
    ("init.scope", "system-slice-cpus"),
    ("system.slice", "system-slice-cpus"),
    ("user.slice", "user-slice-cpus"),
    ("machine.slice", "machine-slice-cpus"),
];

const ALLOWED: &str = "AllowedCPUs";

/// Where systemd has the unified hierarchy.
const CONTROL_GROUPS: &str = "/sys/fs/cgroup";

/// Whether systemd manages this machine (sd_booted(3)).
pub(crate) fn is_manager(kernel: &dyn Kernel) -> bool {
    kernel.is_directory(Path::new("/run/systemd/system"))
}

/// Keeps these units, of [`SLICES`], on `cpus` until [`crate::release`] or the next restart. Without
/// systemd nothing is done. Units that are not loaded are left out.
///
/// # Errors
/// If the journal cannot be written or systemd refuses.
pub(crate) fn keep_slices_on(
    changes: &mut Changes,
    units: &[&str],
    cpus: &CpuSet,
) -> Result<Vec<Finding>, HostError> {
    let kernel = changes.kernel();
    if !is_manager(&*kernel) {
        return Ok(Vec::new());
    }
    // AllowedCPUs= is for the unified hierarchy alone (systemd.resource-control(5)).
    if !kernel.exists(&Path::new(CONTROL_GROUPS).join("cgroup.controllers")) {
        return Ok(vec![
            Finding::new(
                Severity::Note,
                CONTROL_GROUPS,
                "systemd keeps its units on CPUs with cgroup v2 alone, so its slices keep all",
            )
            .values("cgroup v1", "cgroup v2")
            .fix("start the kernel with systemd.unified_cgroup_hierarchy=1"),
        ]);
    }
    let wanted = cpus.to_string();
    for &name in units {
        let unit = Unit::read(&*kernel, name)?;
        if !unit.is_loaded || same(&unit.allowed_cpus, &wanted) {
            continue;
        }
        changes.prepare(vec![Change::UnitProperty {
            unit: name.to_owned(),
            property: ALLOWED.to_owned(),
            old: unit.allowed_cpus.clone(),
            new: wanted.clone(),
            had_drop_in: kernel.exists(&drop_in(name, ALLOWED)),
        }])?;
        changes.step()?;
        systemctl::set_property(&*kernel, name, ALLOWED, &wanted)?;
        changes.step()?;
        let present = Unit::read(&*kernel, name)?.allowed_cpus;
        if !same(&present, &wanted) {
            return Err(HostError::Request {
                location: format!("{name}: {ALLOWED}"),
                what: "systemd took the CPUs and has others".to_owned(),
                present,
                needed: wanted,
                fix: format!("look at `systemctl show {name}` and who else sets it"),
            });
        }
    }
    Ok(Vec::new())
}

/// Stops a service that works against the plan, until [`crate::release`]. One that does not run, and
/// a machine without systemd, is left alone. Answers whether it was stopped.
///
/// # Errors
/// If the journal cannot be written, or systemd does not stop it.
pub(crate) fn stop_service(changes: &mut Changes, name: &str) -> Result<bool, HostError> {
    let kernel = changes.kernel();
    if !is_manager(&*kernel) || !Unit::read(&*kernel, name)?.is_active {
        return Ok(false);
    }
    changes.prepare(vec![Change::ServiceStopped {
        unit: name.to_owned(),
    }])?;
    changes.step()?;
    systemctl::stop(&*kernel, name)?;
    changes.step()?;
    if !Unit::read(&*kernel, name)?.is_active {
        return Ok(true);
    }
    Err(HostError::Request {
        location: name.to_owned(),
        what: "systemd stopped it, and it runs again".to_owned(),
        present: "active".to_owned(),
        needed: "inactive".to_owned(),
        fix: format!("look with `systemctl status {name}` who starts it"),
    })
}

/// Where `systemctl set-property --runtime` keeps a setting.
fn drop_in(unit: &str, property: &str) -> PathBuf {
    PathBuf::from(format!(
        "/run/systemd/system.control/{unit}.d/50-{property}.conf"
    ))
}

/// Whether two lists of CPUs are the same set; systemd writes them with spaces.
fn same(left: &str, right: &str) -> bool {
    let set = |text: &str| {
        let list = text.split([' ', ',']).filter(|part| !part.is_empty());
        list.collect::<Vec<_>>().join(",").parse::<CpuSet>()
    };
    match (left.trim().is_empty(), right.trim().is_empty()) {
        (false, false) => matches!((set(left), set(right)), (Ok(left), Ok(right)) if left == right),
        (left, right) => left == right,
    }
}
