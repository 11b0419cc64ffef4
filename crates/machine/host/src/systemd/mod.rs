// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Changes units of systemd with `systemctl`, because systemd overwrites direct changes of its control
//! groups (systemd.resource-control(5); systemd, "Control Group APIs and Delegation").

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

/// The units of ordinary work, each with its knob in a plan: the first process, services, logins, and
/// guests and containers of systemd-machined.
pub(crate) const SLICES: [(&str, &str); 4] = [
    ("init.scope", "system-slice-cpus"),
    ("system.slice", "system-slice-cpus"),
    ("user.slice", "user-slice-cpus"),
    ("machine.slice", "machine-slice-cpus"),
];

const ALLOWED: &str = "AllowedCPUs";

/// Where systemd mounts the unified hierarchy.
const CONTROL_GROUPS: &str = "/sys/fs/cgroup";

/// Returns whether systemd manages this machine (sd_booted(3)).
pub(crate) fn is_manager(kernel: &dyn Kernel) -> bool {
    kernel.is_directory(Path::new("/run/systemd/system"))
}

/// Restricts these units of [`SLICES`] to `cpus` until [`crate::release`] or the next restart. Ignores
/// units that are not loaded, and does nothing without systemd.
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
    // AllowedCPUs= needs the unified hierarchy (systemd.resource-control(5)).
    if !kernel.exists(&Path::new(CONTROL_GROUPS).join("cgroup.controllers")) {
        return Ok(vec![
            Finding::new(
                Severity::Note,
                CONTROL_GROUPS,
                "systemd can restrict its units to CPUs only with cgroup v2, so they keep all CPUs",
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
                what: "systemd changed the CPUs to others".to_owned(),
                found: present,
                expected: wanted,
                fix: format!("find the drop-in that sets it: systemctl cat {name}"),
            });
        }
    }
    Ok(Vec::new())
}

/// Stops a service that works against the plan, until [`crate::release`]. Returns `false` if it does
/// not run or the machine has no systemd.
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
        what: "the service was stopped and is active again".to_owned(),
        found: "active".to_owned(),
        expected: "inactive".to_owned(),
        fix: format!("find the unit that starts it: systemctl status {name}"),
    })
}

/// Returns the file of a setting of `systemctl set-property --runtime`.
fn drop_in(unit: &str, property: &str) -> PathBuf {
    PathBuf::from(format!(
        "/run/systemd/system.control/{unit}.d/50-{property}.conf"
    ))
}

/// Returns whether two lists of CPUs are equal; systemd writes them with spaces.
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
