// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Moves processes and threads into control groups, and out of groups without a real-time budget.

use std::path::{Path, PathBuf};

use rampart_model::{CpuSet, Finding, Severity};

use super::held_cpus::starving_thread;
use super::{PlacementGroup, ThreadPlacement, refusal};
use crate::HostError;
use crate::groups::{ControlGroupVersion, Hierarchies, group_in};
use crate::kernel::{Kernel, RunningKernel};
use crate::real_time;

/// Returns the group of this machine's first process in the hierarchy that assigns CPUs, which shields
/// keep among the housekeeping groups, or `None` if there is no such hierarchy.
#[must_use]
pub fn home_group(unified: bool) -> Option<PathBuf> {
    let version = match unified {
        true => ControlGroupVersion::V2,
        false => ControlGroupVersion::V1,
    };
    Hierarchies::of(&RunningKernel).group_of(&RunningKernel, 1, version)
}

/// Returns whether a process is in a group or in one below it.
#[must_use]
pub fn is_inside(process: u32, group: &PlacementGroup) -> bool {
    let kernel = &RunningKernel;
    let text = kernel
        .read(&PathBuf::from(format!("/proc/{process}/cgroup")))
        .unwrap_or_default();
    names(&Hierarchies::of(kernel), &text, group)
}

/// Returns whether the text of a `/proc/PID/cgroup` has a group, or one below it, in its hierarchy.
fn names(hierarchies: &Hierarchies, cgroup: &str, group: &PlacementGroup) -> bool {
    let controller = match group {
        PlacementGroup::AsIs => return false,
        PlacementGroup::V1(_) => "cpuset",
        PlacementGroup::V2(_) => "",
    };
    in_hierarchy(hierarchies, group)
        .zip(group_in(cgroup, controller))
        .is_some_and(|(group, own)| Path::new(&own).starts_with(group))
}

pub(super) fn in_hierarchy(hierarchies: &Hierarchies, group: &PlacementGroup) -> Option<PathBuf> {
    let (path, root) = match group {
        PlacementGroup::AsIs => return None,
        PlacementGroup::V1(path) => (path, hierarchies.legacy_with("cpuset")?),
        PlacementGroup::V2(path) => (path, hierarchies.unified.as_deref()?),
    };
    Some(Path::new("/").join(path.strip_prefix(root).ok()?))
}

/// Moves a process with all its threads.
pub(super) fn enter(
    kernel: &dyn Kernel,
    process: u32,
    group: &PlacementGroup,
) -> Result<(), HostError> {
    let (PlacementGroup::V1(path) | PlacementGroup::V2(path)) = group else {
        return Ok(());
    };
    write(kernel, &path.join("cgroup.procs"), process)
}

fn write(kernel: &dyn Kernel, file: &Path, number: u32) -> Result<(), HostError> {
    if let Some(finding) = starving_thread(kernel) {
        return Err(HostError::Refused(Box::new(finding)));
    }
    kernel.write(file, &number.to_string()).map_err(|cause| {
        let fix = match cause.kind() {
            std::io::ErrorKind::NotFound => {
                "see `rampart run --list` for the domains; create its group with `rampart release` and `rampart apply`"
            }
            std::io::ErrorKind::PermissionDenied => "run the same command as root",
            _ => "name a running process that is not a kernel thread",
        };
        HostError::file("move the process into its control group", file, cause, fix)
    })
}

/// Moves a single thread. Returns a note if its group must be that of its process and has the CPUs.
pub(super) fn enter_alone(
    kernel: &dyn Kernel,
    thread: u32,
    location: &ThreadPlacement,
) -> Result<Option<Finding>, HostError> {
    let path = match &location.group {
        PlacementGroup::AsIs => return Ok(None),
        PlacementGroup::V1(path) => {
            return write(kernel, &path.join("tasks"), thread).map(|()| None);
        }
        PlacementGroup::V2(path) => path,
    };
    if let Some(finding) = starving_thread(kernel) {
        return Err(HostError::Refused(Box::new(finding)));
    }
    let file = path.join("cgroup.threads");
    let Err(cause) = kernel.write(&file, &thread.to_string()) else {
        return Ok(None);
    };
    let own = Hierarchies::of(kernel).group_of(kernel, thread, ControlGroupVersion::V2);
    let reach = own.as_ref().map(|own| reach(kernel, own));
    let shown = own.map_or_else(
        || "an unknown group".to_owned(),
        |own| own.display().to_string(),
    );
    match (&location.cpus, reach) {
        (Some(cpus), Some(reach)) if cpus.is_subset(&reach) => Ok(Some(
            Finding::new(
                Severity::Note,
                format!("thread {thread}"),
                "cgroup v2 keeps the threads of a process in one group, so CPUs and policy were set in that group",
            )
            .values(shown, path.display().to_string())
            .fix("move the whole process to isolate it"),
        )),
        (_, reach) => Err(HostError::Request {
            location: format!("thread {thread}"),
            what: format!(
                "cgroup v2 keeps the threads of a process in one group, and its own does not have the CPUs ({}: {cause})",
                file.display()
            ),
            found: format!(
                "{shown} with {}",
                reach.unwrap_or_default().named()
            ),
            expected: format!(
                "{} with {}",
                path.display(),
                location.cpus.clone().unwrap_or_default().named()
            ),
            fix: "move the whole process: name its number (PID), without --thread".to_owned(),
        }),
    }
}

/// Returns the CPUs for members of a v2 group: its own, or those of the nearest parent for which the
/// controller is enabled, or all.
fn reach(kernel: &dyn Kernel, group: &Path) -> CpuSet {
    let read = |path: &Path| kernel.read(path).ok()?.trim().parse::<CpuSet>().ok();
    group
        .ancestors()
        .find_map(|group| read(&group.join("cpuset.cpus.effective")))
        .or_else(|| read(Path::new("/sys/devices/system/cpu/online")))
        .unwrap_or_default()
}

/// Lets a thread have a real-time policy: if `CONFIG_RT_GROUP_SCHED` requires a budget of its group of
/// the v1 controller `cpu` and the group has none, moves the thread to the root group, which always
/// has one. Setting a budget would change the machine, which placement does not.
pub(super) fn reach_budget(
    kernel: &dyn Kernel,
    hierarchies: &Hierarchies,
    thread: u32,
) -> Result<Option<Finding>, Finding> {
    let Some((root, group)) = real_time::group_without_budget(kernel, hierarchies, thread) else {
        return Ok(None);
    };
    let file = root.join("tasks");
    match kernel.write(&file, &thread.to_string()) {
        Ok(()) => Ok(Some(
            Finding::new(
                Severity::Note,
                format!("thread {thread}"),
                "its group of the controller `cpu` has no real-time budget (CONFIG_RT_GROUP_SCHED), so it was moved to the root group",
            )
            .values(group, "/"),
        )),
        Err(cause) => Err(refusal(
            thread,
            format!(
                "its group of the controller `cpu` has no real-time budget (CONFIG_RT_GROUP_SCHED), and {} refuses it: {cause}",
                file.display()
            ),
        )
        .values(group, "a group with a budget")
        .fix("run the same command as root")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_belongs_to_its_hierarchy() {
        let hierarchies = Hierarchies {
            unified: Some("/sys/fs/cgroup/unified".into()),
            legacy: vec![("/sys/fs/cgroup/cpuset".into(), vec!["cpuset".to_owned()])],
        };
        let old = PlacementGroup::V1("/sys/fs/cgroup/cpuset/rampart/press".into());
        let new = PlacementGroup::V2("/sys/fs/cgroup/unified/rampart/press".into());
        for (cgroup, in_old, in_new) in [
            ("3:cpuset:/rampart/press\n0::/\n", true, false),
            ("3:cpuset:/rampart/press/box\n0::/\n", true, false),
            ("3:cpuset:/\n0::/rampart/press/box\n", false, true),
            // The same names in another hierarchy.
            ("4:cpu:/press\n3:cpuset:/press\n0::/press\n", false, false),
            ("4:cpu:/rampart/press\n3:cpuset:/\n0::/\n", false, false),
            ("3:cpuset:/rampart/press-2\n0::/rampart\n", false, false),
            ("", false, false),
        ] {
            assert_eq!(names(&hierarchies, cgroup, &old), in_old, "{cgroup}");
            assert_eq!(names(&hierarchies, cgroup, &new), in_new, "{cgroup}");
            assert!(!names(&hierarchies, cgroup, &PlacementGroup::AsIs));
        }
        let found = in_hierarchy(&hierarchies, &old).expect("mounted");
        assert_eq!(found, Path::new("/rampart/press"));
        assert_eq!(in_hierarchy(&Hierarchies::default(), &old), None);
    }
}
