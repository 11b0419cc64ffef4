// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Mount points of the control group hierarchies, and members of groups.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::kernel::{Kernel, RunningKernel};
use crate::tasks;

/// Pause in which the kernel may remove a thread that is ending.
pub(crate) const EXIT_PAUSE: Duration = Duration::from_millis(2);

/// Version of a control group hierarchy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ControlGroupVersion {
    /// One hierarchy for each controller.
    V1,
    /// One hierarchy for all controllers.
    V2,
}

impl ControlGroupVersion {
    /// Returns the name in `/proc/PID/cgroup` of the controller that assigns CPUs.
    pub(crate) fn controller(self) -> &'static str {
        match self {
            Self::V1 => "cpuset",
            Self::V2 => "",
        }
    }
}

/// The mounted hierarchies.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Hierarchies {
    /// Mount point of the v2 hierarchy.
    pub(crate) unified: Option<PathBuf>,
    /// Mount point and controllers of each v1 hierarchy.
    pub(crate) legacy: Vec<(PathBuf, Vec<String>)>,
}

impl Hierarchies {
    /// Parses a `/proc/PID/mountinfo` (proc_pid_mountinfo(5)). Of several mounts of a hierarchy, as
    /// chroots have them, takes the one with the shortest path.
    pub(crate) fn parse(mountinfo: &str) -> Self {
        let mut found = Self::default();
        let mut mounts: Vec<(&str, &str, &str)> = mountinfo
            .lines()
            .filter_map(|line| {
                let (left, right) = line.split_once(" - ")?;
                let point = left.split(' ').nth(4)?;
                let mut right = right.split(' ');
                Some((point, right.next()?, right.nth(1)?))
            })
            .collect();
        mounts.sort_by_key(|(point, ..)| point.len());
        for (point, kind, options) in mounts {
            match kind {
                "cgroup2" if found.unified.is_none() => found.unified = Some(point.into()),
                "cgroup" => {
                    let controllers: Vec<String> = options
                        .split(',')
                        .filter(|option| !matches!(*option, "rw" | "ro"))
                        .map(str::to_owned)
                        .collect();
                    if !found.legacy.iter().any(|(_, known)| *known == controllers) {
                        found.legacy.push((point.into(), controllers));
                    }
                }
                _ => {}
            }
        }
        found
    }

    /// Returns the hierarchies that the running process sees.
    pub(crate) fn of(kernel: &dyn Kernel) -> Self {
        kernel
            .read(Path::new("/proc/self/mountinfo"))
            .map(|text| Self::parse(&text))
            .unwrap_or_default()
    }

    /// Returns the mount point of the v1 hierarchy with a controller.
    pub(crate) fn legacy_with(&self, controller: &str) -> Option<&Path> {
        self.legacy
            .iter()
            .find(|(_, controllers)| controllers.iter().any(|name| name == controller))
            .map(|(point, _)| point.as_path())
    }

    /// Returns the mount point of the hierarchy of this version that assigns CPUs.
    pub(crate) fn cpus(&self, version: ControlGroupVersion) -> Option<&Path> {
        match version {
            ControlGroupVersion::V1 => self.legacy_with("cpuset"),
            ControlGroupVersion::V2 => self.unified.as_deref(),
        }
    }

    /// Returns the absolute path of a thread's group in that hierarchy, or `None` if there is no such
    /// hierarchy or the thread has ended.
    pub(crate) fn group_of(
        &self,
        kernel: &dyn Kernel,
        thread: u32,
        version: ControlGroupVersion,
    ) -> Option<PathBuf> {
        let path = relative_group_of(kernel, thread, version)?;
        Some(self.cpus(version)?.join(path.trim_start_matches('/')))
    }

    /// Returns `v1`, `v2`, `hybrid` or `none`.
    pub(crate) fn word(&self) -> &'static str {
        let legacy = self.legacy.iter().any(|(_, controllers)| {
            controllers
                .iter()
                .any(|controller| !controller.starts_with("name="))
        });
        match (legacy, self.unified.is_some()) {
            (true, true) => "hybrid",
            (true, false) => "v1",
            (false, true) => "v2",
            (false, false) => "none",
        }
    }
}

/// Returns the control groups of the running machine: `v1`, `v2`, `hybrid` (both) or `none`, as in
/// [`rampart_model::Machine::control_groups`].
#[must_use]
pub fn control_group_layout() -> &'static str {
    Hierarchies::of(&RunningKernel).word()
}

/// Returns the group of a thread in the hierarchy that assigns CPUs, from its root with a leading
/// slash, or `None` if the thread has ended.
pub(crate) fn relative_group_of(
    kernel: &dyn Kernel,
    thread: u32,
    version: ControlGroupVersion,
) -> Option<String> {
    let text = kernel
        .read(Path::new(&format!("/proc/{thread}/cgroup")))
        .ok()?;
    group_in(&text, version.controller())
}

/// Returns the group of a process in the hierarchy of a v1 controller, or in the v2 hierarchy if
/// `controller` is empty, from the text of `/proc/PID/cgroup` (cgroups(7)).
pub(crate) fn group_in(cgroup: &str, controller: &str) -> Option<String> {
    cgroup.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':');
        let controllers = parts.nth(1)?;
        let found = if controller.is_empty() {
            controllers.is_empty()
        } else {
            controllers.split(',').any(|name| name == controller)
        };
        found.then(|| parts.next().map(str::to_owned)).flatten()
    })
}

/// Returns the file of a group to which new members are written: threads in v1, processes in v2.
pub(crate) fn members_file(kernel: &dyn Kernel, group: &Path) -> PathBuf {
    let tasks = group.join("tasks");
    if kernel.exists(&tasks) {
        tasks
    } else {
        group.join("cgroup.procs")
    }
}

/// Returns the file of a group that lists its members: threads for a threaded v2 group, because only
/// the root of its subtree lists their processes.
pub(crate) fn listing_file(kernel: &dyn Kernel, group: &Path) -> PathBuf {
    let threaded = kernel
        .read(&group.join("cgroup.type"))
        .is_ok_and(|kind| kind.trim() == "threaded");
    if threaded {
        group.join("cgroup.threads")
    } else {
        members_file(kernel, group)
    }
}

/// Returns the groups below a group, the deepest first.
pub(crate) fn below(kernel: &dyn Kernel, group: &Path) -> Vec<PathBuf> {
    let mut groups = Vec::new();
    for name in kernel.names(group) {
        let child = group.join(name);
        if kernel.is_directory(&child) {
            groups.extend(below(kernel, &child));
            groups.push(child);
        }
    }
    groups
}

/// Moves every member of `group` to `home`, also those that are forked meanwhile. Returns the number
/// of moved members, and those that stay with the kernel's error.
pub(crate) fn empty(
    kernel: &dyn Kernel,
    group: &Path,
    mut home: impl FnMut(u32) -> PathBuf,
) -> io::Result<(u32, Vec<(u32, io::Error)>)> {
    let members = listing_file(kernel, group);
    let mut moved = 0;
    let mut stuck: Vec<(u32, io::Error)> = Vec::new();
    // A parent that forks in a loop adds a child between the listing and the move; each pass leaves
    // fewer parents.
    for _ in 0..100 {
        let present: Vec<u32> = tasks::listed(kernel, &members)
            .into_iter()
            .filter(|member| !stuck.iter().any(|(known, _)| known == member))
            .collect();
        if present.is_empty() {
            break;
        }
        let before = (moved, stuck.len());
        for member in present {
            kernel.step()?;
            let target = members_file(kernel, &home(member));
            match kernel.write(&target, &member.to_string()) {
                Ok(()) => moved += 1,
                Err(error) if is_gone(&error) => {}
                Err(error) => stuck.push((member, error)),
            }
        }
        if before == (moved, stuck.len()) {
            // All of them are ending: still listed, but they cannot be moved.
            std::thread::sleep(EXIT_PAUSE);
        }
    }
    Ok((moved, stuck))
}

/// Returns whether the error means that a thread or file does not exist any more.
pub(crate) fn is_gone(error: &io::Error) -> bool {
    // kernfs returns ENODEV for an open file of a removed group; ESRCH: the thread has ended.
    error.kind() == io::ErrorKind::NotFound
        || matches!(
            error
                .raw_os_error()
                .map(rustix::io::Errno::from_raw_os_error),
            Some(rustix::io::Errno::SRCH | rustix::io::Errno::NODEV)
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "\
25 1 0:5 / /sys/fs/cgroup rw,relatime shared:1 - tmpfs tmpfs rw,mode=755
90 1 0:22 / /srv/chroot/sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset
26 25 0:22 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset
27 25 0:23 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu,cpuacct
28 25 0:24 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd
29 25 0:25 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
";

    #[test]
    fn finds_hierarchies_and_prefers_the_nearest_mount() {
        let found = Hierarchies::parse(HYBRID);
        assert_eq!(
            found.legacy_with("cpuset"),
            Some(Path::new("/sys/fs/cgroup/cpuset"))
        );
        assert_eq!(
            found.legacy_with("cpuacct"),
            Some(Path::new("/sys/fs/cgroup/cpu"))
        );
        assert_eq!(found.legacy_with("memory"), None);
        assert_eq!(found.word(), "hybrid");
        assert_eq!(
            Hierarchies::parse("29 25 0:25 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw").word(),
            "v2"
        );
        assert_eq!(Hierarchies::parse("nonsense - x").word(), "none");
    }

    #[test]
    fn finds_the_group_of_a_process() {
        let text = "4:memory:/a\n3:cpu,cpuacct:/b:c\n0::/d\n";
        assert_eq!(group_in(text, "cpuacct").as_deref(), Some("/b:c"));
        assert_eq!(group_in(text, "").as_deref(), Some("/d"));
        assert_eq!(group_in(text, "cpuset"), None);
    }
}
