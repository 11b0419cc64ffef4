// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Small files of `/proc`, `/sys` and control groups.

use std::path::{Path, PathBuf};

/// Returns the trimmed text of a file, or `None` if it cannot be read.
pub(crate) fn text(path: impl AsRef<Path>) -> Option<String> {
    let bytes = std::fs::read(path).ok()?;
    Some(String::from_utf8_lossy(&bytes).trim().to_owned())
}

/// Returns the number in a file.
pub(crate) fn number(path: impl AsRef<Path>) -> Option<i64> {
    text(path)?.parse().ok()
}

/// Returns the value after `key:` in a file of such lines, for example `/proc/self/status`.
pub(crate) fn field(path: &str, key: &str) -> Option<String> {
    field_of(&text(path)?, key).map(str::to_owned)
}

fn field_of<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.trim() == key)
        .map(|(_, value)| value.trim())
}

/// Returns the lines of `/proc/thread-self/cgroup` whose hierarchies determine CPUs: those of the v1
/// controller `cpuset` and of v2. `None` if it cannot be read.
pub(crate) fn cpu_groups_of_thread() -> Option<String> {
    text("/proc/thread-self/cgroup").map(|text| cpu_groups(&text))
}

fn cpu_groups(text: &str) -> String {
    let determines_cpus = |line: &&str| {
        line.split(':').nth(1).is_some_and(|controllers| {
            controllers.is_empty() || controllers.split(',').any(|name| name == "cpuset")
        })
    };
    let lines: Vec<&str> = text.lines().filter(determines_cpus).collect();
    lines.join(" ")
}

/// The control group of the program in one hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Group {
    /// Mount point of the hierarchy.
    pub(crate) mount: PathBuf,
    /// Directory of the group, at or below `mount`.
    pub(crate) directory: PathBuf,
    /// Whether the hierarchy is cgroup v2.
    pub(crate) unified: bool,
}

impl Group {
    /// Returns the program's group for a controller: from its v1 hierarchy if there is one,
    /// otherwise v2.
    pub(crate) fn of_controller(controller: &str) -> Option<Self> {
        Self::find(
            controller,
            &text("/proc/self/cgroup")?,
            &text("/proc/self/mountinfo")?,
        )
    }

    fn find(controller: &str, groups: &str, mounts: &str) -> Option<Self> {
        // cgroups(7): hierarchy-ID:controller-list:path; v2 has an empty list.
        let lines = || groups.lines().map(|line| line.splitn(3, ':'));
        let path_where = |wanted: &dyn Fn(&str) -> bool| {
            lines().find_map(|mut parts| {
                let (_, list, path) = (parts.next()?, parts.next()?, parts.next()?);
                wanted(list).then(|| path.to_owned())
            })
        };
        let (path, unified) =
            match path_where(&|list| list.split(',').any(|name| name == controller)) {
                Some(path) => (path, false),
                None => (path_where(&|list| list.is_empty())?, true),
            };
        // proc_pid_mountinfo(5): field 4 is the root of the mount, field 5 the mount point; type,
        // source and super options follow a separate hyphen.
        let (root, mount) = mounts.lines().find_map(|line| {
            let (head, tail) = line.split_once(" - ")?;
            let mut tail = tail.split(' ');
            let (kind, _, options) = (tail.next()?, tail.next()?, tail.next()?);
            let fits = if unified {
                kind == "cgroup2"
            } else {
                kind == "cgroup" && options.split(',').any(|name| name == controller)
            };
            let mut head = head.split(' ').skip(3);
            fits.then(|| Some((head.next()?, head.next()?)))?
        })?;
        // Without a cgroup namespace, a container sees the host's path, but only its own subtree is
        // mounted.
        let below = Path::new(&path)
            .strip_prefix(root)
            .unwrap_or(Path::new(&path));
        let below = below.strip_prefix("/").unwrap_or(below);
        Some(Self {
            directory: Path::new(mount).join(below),
            mount: mount.into(),
            unified,
        })
    }

    /// Returns the group and its parents within the mount, outermost first.
    pub(crate) fn outermost_first(&self) -> Vec<PathBuf> {
        let mut groups: Vec<PathBuf> = self
            .directory
            .ancestors()
            .take_while(|directory| directory.starts_with(&self.mount))
            .map(Path::to_path_buf)
            .collect();
        groups.reverse();
        groups
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
30 24 0:26 / /sys/fs/cgroup ro,nosuid - tmpfs tmpfs ro,mode=755
31 30 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
33 30 0:29 /docker/abc /sys/fs/cgroup/cpu,cpuacct ro shared:9 - cgroup cgroup rw,cpu,cpuacct
34 30 0:30 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset";

    #[test]
    fn finds_the_groups_that_determine_cpus() {
        let text = "5:cpu,cpuset:/rt:1\n4:memory:/m\n1:name=systemd:/\n0::/user.slice";
        assert_eq!(cpu_groups(text), "5:cpu,cpuset:/rt:1 0::/user.slice");
    }

    #[test]
    fn finds_the_group_below_its_mount() {
        let groups = "5:cpuset:/rt/one\n4:cpu,cpuacct:/docker/abc/x\n0::/user.slice";
        let find = |controller| Group::find(controller, groups, MOUNTS).expect(controller);
        assert_eq!(
            find("cpu").directory,
            Path::new("/sys/fs/cgroup/cpu,cpuacct/x")
        );
        assert_eq!(
            find("cpuset").directory,
            Path::new("/sys/fs/cgroup/cpuset/rt/one")
        );
        let memory = find("memory");
        assert!(memory.unified);
        assert_eq!(
            memory.directory,
            Path::new("/sys/fs/cgroup/unified/user.slice")
        );
        assert_eq!(
            find("cpuset").outermost_first(),
            [
                "/sys/fs/cgroup/cpuset",
                "/sys/fs/cgroup/cpuset/rt",
                "/sys/fs/cgroup/cpuset/rt/one"
            ]
            .map(PathBuf::from)
        );
        assert_eq!(Group::find("cpu", "", MOUNTS), None);
        assert_eq!(Group::find("cpu", groups, ""), None);
    }

    #[test]
    fn finds_a_field() {
        assert_eq!(field_of("Name:\tx\nSeccomp:\t2\n", "Seccomp"), Some("2"));
        assert_eq!(field_of("Name:\tx\n", "Seccomp"), None);
    }
}
