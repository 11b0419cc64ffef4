// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Restores units of systemd.

use std::io;
use std::path::Path;

use rampart_model::{Finding, Severity};

use super::systemctl::{self, Unit};
use super::{CONTROL_GROUPS, drop_in, same};
use crate::HostError;
use crate::kernel::Kernel;
use crate::undo::Undone;

/// All CPUs that the machine can have.
const POSSIBLE: &str = "/sys/devices/system/cpu/possible";

/// Restores the old value of a property if it still has Rampart's. `systemctl revert` would also undo
/// changes of the administrator, so the value is set, and then its drop-in file is removed if there
/// was none before.
///
/// # Errors
/// Only if a test interrupts it.
pub(crate) fn property(
    kernel: &dyn Kernel,
    unit: &str,
    property: &str,
    old: &str,
    new: &str,
    had_drop_in: bool,
    undone: &mut Undone,
) -> io::Result<()> {
    let location = format!("{unit}: {property}");
    let location = Path::new(&location);
    let fix = format!("systemctl set-property --runtime {unit} {property}={old}");
    let present = match Unit::read(kernel, unit) {
        // The unit and its properties do not exist any more.
        Ok(present) if !present.is_loaded => return Ok(()),
        Ok(present) => present.allowed_cpus,
        Err(error) => {
            undone.failed(location, error.to_string(), &fix);
            return Ok(());
        }
    };
    if !same(&present, old) {
        if !same(&present, new) {
            undone.left.push(
                Finding::new(
                    Severity::Warning,
                    location.display().to_string(),
                    format!(
                        "another process changed the value after Rampart had set {new}, so it was kept"
                    ),
                )
                .values(present, if old.is_empty() { "no limit" } else { old })
                .fix(fix),
            );
            return Ok(());
        }
        if let Err(error) = systemctl::set_property(kernel, unit, property, old) {
            undone.failed(location, error.to_string(), &fix);
            return Ok(());
        }
        let value = if old.is_empty() { "no limit" } else { old };
        undone.restored(location, format!("restored to {value}"));
    }
    kernel.step()?;
    let file = drop_in(unit, property);
    if !had_drop_in && kernel.exists(&file) {
        let removed = kernel.remove_file(&file).map_err(|error| error.to_string());
        if let Some(directory) = file.parent() {
            // Other properties of the unit may be set there.
            let _ = kernel.remove_directory(directory);
        }
        let reloaded = systemctl::reload(kernel).map_err(|error: HostError| error.to_string());
        if let Err(error) = removed.and(reloaded) {
            undone.failed(
                &file,
                format!("cannot remove this file, which contains the old value: {error}"),
                &format!("rm {}; systemctl daemon-reload", file.display()),
            );
        }
    }
    if old.is_empty() {
        kernel.step()?;
        remove_limit(kernel, unit, new, undone);
    }
    Ok(())
}

/// Removes the limit from the unit's control group. The kernel refuses an empty list for a group with
/// processes (ENOSPC, `validate_change` in kernel/cgroup/cpuset.c), so systemd cannot remove the last
/// limit while a sibling of the unit needs the controller. A list of all CPUs has the same effect.
fn remove_limit(kernel: &dyn Kernel, unit: &str, new: &str, undone: &mut Undone) {
    // All changed units have top-level groups.
    let group = Path::new(CONTROL_GROUPS).join(unit);
    match Unit::read(kernel, unit) {
        Ok(present) if !present.allowed_cpus.is_empty() => return,
        // Setting the property created the group of a slice without members.
        Ok(present) if !present.is_active && kernel.is_directory(&group) => {
            let _ = kernel.remove_directory(&group);
            return;
        }
        Ok(_) => {}
        Err(_) => return,
    }
    let file = group.join("cpuset.cpus");
    if !kernel.read(&file).is_ok_and(|present| same(&present, new)) {
        return;
    }
    let possible = kernel.read(Path::new(POSSIBLE)).unwrap_or_default();
    let above = group.parent().unwrap_or(&group);
    let above = kernel
        .read(&above.join("cpuset.cpus.effective"))
        .unwrap_or_default();
    let written = ["", possible.trim(), above.trim()]
        .into_iter()
        .map(|cpus| (cpus, kernel.write(&file, cpus)))
        .find(|(_, answer)| answer.is_ok());
    match written {
        Some(("", Ok(()))) => undone.restored(&file, "restored to no limit"),
        Some((cpus, Ok(()))) => undone.restored(&file, format!("restored to all CPUs, {cpus}")),
        _ => undone.failed(
            &file,
            format!("the unit has no limit, and its group still has {new}"),
            &format!("echo {} > {}", possible.trim(), file.display()),
        ),
    }
}

/// Starts a service that was stopped.
pub(crate) fn service(kernel: &dyn Kernel, unit: &str, undone: &mut Undone) {
    let answer = Unit::read(kernel, unit).and_then(|present| {
        if present.is_active || !present.is_loaded {
            return Ok(false);
        }
        systemctl::start(kernel, unit).map(|()| true)
    });
    match answer {
        Ok(false) => {}
        Ok(true) => undone.restored(Path::new(unit), "started"),
        Err(error) => undone.failed(
            Path::new(unit),
            error.to_string(),
            &format!("systemctl start {unit}"),
        ),
    }
}
