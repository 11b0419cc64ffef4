// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Gives systemd's units back what they had.

use std::io;
use std::path::Path;

use rampart_model::{Finding, Severity};

use super::systemctl::{self, Unit};
use super::{CONTROL_GROUPS, drop_in, same};
use crate::HostError;
use crate::kernel::Kernel;
use crate::undo::Undone;

/// CPUs that there can be.
const POSSIBLE: &str = "/sys/devices/system/cpu/possible";

/// A property has its old value again, if it still has Rampart's. `systemctl revert` would take the
/// administrator's own changes along; so the value is set back, and then the file that holds it is
/// removed, if there was none before.
///
/// # Errors
/// Only where a test ends the machine.
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
        // Gone, and its properties with it.
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
                        "someone else changed it after Rampart set it to {new}, so it was left"
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
        let words = if old.is_empty() {
            "no limit again".to_owned()
        } else {
            format!("{old} again")
        };
        undone.restored(location, words);
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
                format!("it holds the value that was there before, and cannot go: {error}"),
                &format!("rm {}; systemctl daemon-reload", file.display()),
            );
        }
    }
    if old.is_empty() {
        kernel.step()?;
        lift(kernel, unit, new, undone);
    }
    Ok(())
}

/// The kernel empties no list of a group with processes (ENOSPC, `validate_change` in
/// kernel/cgroup/cpuset.c), so systemd's own attempt leaves the last limit in the kernel as long as
/// anything beside the unit needs the controller. All CPUs are as good as no limit; the file is nobody's
/// then.
fn lift(kernel: &dyn Kernel, unit: &str, new: &str, undone: &mut Undone) {
    // Those that are changed have their groups on top.
    let group = Path::new(CONTROL_GROUPS).join(unit);
    match Unit::read(kernel, unit) {
        Ok(present) if !present.allowed_cpus.is_empty() => return,
        // To set its property made the group of a slice without members.
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
    let effective_settings = ["", possible.trim(), above.trim()]
        .into_iter()
        .map(|cpus| (cpus, kernel.write(&file, cpus)))
        .find(|(_, answer)| answer.is_ok());
    match effective_settings {
        Some(("", Ok(()))) => undone.restored(&file, "no limit again"),
        Some((cpus, Ok(()))) => undone.restored(&file, format!("all CPUs again, {cpus}")),
        _ => undone.failed(
            &file,
            format!("the unit has no limit, and its group still has {new}"),
            &format!("echo {} > {}", possible.trim(), file.display()),
        ),
    }
}

/// A service that was stopped runs again.
pub(crate) fn service(kernel: &dyn Kernel, unit: &str, undone: &mut Undone) {
    let answer = Unit::read(kernel, unit).and_then(|present| {
        if present.is_active || !present.is_loaded {
            return Ok(false);
        }
        systemctl::start(kernel, unit).map(|()| true)
    });
    match answer {
        Ok(false) => {}
        Ok(true) => undone.restored(Path::new(unit), "started again"),
        Err(error) => undone.failed(
            Path::new(unit),
            error.to_string(),
            &format!("systemctl start {unit}"),
        ),
    }
}
