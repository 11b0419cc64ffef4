// SPDX-License-Identifier: Apache-2.0 OR MIT
//! File systems of the kernel that Rampart mounts if they are not mounted, and unmounts again.

use std::io;
use std::path::{Path, PathBuf};

use rampart_model::{Finding, Severity};

use crate::HostError;
use crate::changes::Changes;
use crate::facts::allocation;
use crate::journal::Change;
use crate::kernel::Kernel;
use crate::undo::Undone;

/// Returns the shortest mount point of a file system of this kind (proc_pid_mountinfo(5)).
pub(crate) fn mounted(kernel: &dyn Kernel, kind: &str) -> Option<PathBuf> {
    let mounts = kernel.read(Path::new("/proc/self/mountinfo")).ok()?;
    point_of(&mounts, kind).map(PathBuf::from)
}

/// Returns the same from the text of a `mountinfo` file.
pub(crate) fn point_of<'a>(mounts: &'a str, kind: &str) -> Option<&'a str> {
    let points = mounts.lines().filter_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        (right.split(' ').next()? == kind).then(|| left.split(' ').nth(4))?
    });
    points.min_by_key(|point| point.len())
}

/// Records in the journal and mounts a file system.
///
/// # Errors
/// If the directory does not exist, the journal cannot be written, or the kernel refuses.
pub(crate) fn mount(
    changes: &mut Changes,
    kind: &str,
    point: &Path,
    action: (&'static str, &'static str),
    fix: &str,
) -> Result<(), HostError> {
    let kernel = changes.kernel();
    let (find, make) = action;
    if !kernel.is_directory(point) {
        return Err(HostError::file(
            find,
            point,
            io::ErrorKind::NotFound.into(),
            fix,
        ));
    }
    changes.prepare(vec![Change::Mount {
        kind: kind.to_owned(),
        point: point.to_owned(),
    }])?;
    changes.step()?;
    kernel
        .mount(kind, point)
        .map_err(|cause| HostError::file(make, point, cause, fix))?;
    changes.step()
}

/// Unmounts a file system, unless it is in use by now.
pub(crate) fn undo(kernel: &dyn Kernel, kind: &str, point: &Path, undone: &mut Undone) {
    if mounted(kernel, kind).as_deref() != Some(point) {
        return;
    }
    // Unmounting resctrl removes its groups, also those of others.
    let others = if kind == allocation::KIND {
        allocation::groups_of_others(kernel, point)
    } else {
        Vec::new()
    };
    let used = |by: String| {
        let location = point.display().to_string();
        let what = format!("another process uses it{by}, so it stays mounted");
        Finding::new(Severity::Note, location, what)
    };
    if !others.is_empty() {
        undone.left.push(used(format!(": {}", others.join(", "))));
        return;
    }
    match kernel.unmount(point) {
        Ok(()) => undone.restored(point, "unmounted"),
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
            undone.left.push(used(String::new()));
        }
        Err(error) => undone.failed(
            point,
            format!("cannot unmount: {error}"),
            &format!("umount {}", point.display()),
        ),
    }
}
