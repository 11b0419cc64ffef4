// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Finds the CPUs that another process of Rampart has isolated.

use rampart_model::CpuSet;

use crate::MachineRoot;
use crate::groups::{ControlGroupVersion, Hierarchies};

/// CPUs that a process of Rampart isolated, for example a running evaluation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShieldInUse {
    /// The CPUs of all its shields.
    pub cpus: CpuSet,
    /// Whether that process still runs. A killed one leaves its shield until `rampart release`.
    pub is_running: bool,
}

/// Returns the CPUs that a process of Rampart isolated with control groups, or `None` if there are
/// none. Such CPUs are missing in the affinity of every other process.
#[must_use]
pub fn shield_in_use(root: &MachineRoot) -> Option<ShieldInUse> {
    let mounts = root.text("proc/self/mountinfo")?;
    let hierarchies = Hierarchies::parse(&mounts);
    let mut found: Option<ShieldInUse> = None;
    for version in [ControlGroupVersion::V2, ControlGroupVersion::V1] {
        let Some(mount) = hierarchies.cpus(version).and_then(|path| path.to_str()) else {
            continue;
        };
        let mount = mount.trim_start_matches('/');
        for name in root.directories(mount) {
            let Some(process) = process_of(&name) else {
                continue;
            };
            let cpus = root.value::<CpuSet>(&format!("{mount}/{name}/cpuset.cpus"));
            let Some(cpus) = cpus.filter(|cpus| !cpus.is_empty()) else {
                continue;
            };
            let program = root.line(&format!("proc/{process}/comm"));
            let is_running = program.is_some_and(|name| name.starts_with("rampart"));
            let known = found.get_or_insert(ShieldInUse {
                cpus: CpuSet::new(),
                is_running: false,
            });
            known.cpus = known.cpus.union(&cpus);
            known.is_running |= is_running;
        }
    }
    found
}

/// Returns the process whose shield has the group of this name: 4711 for `rampart-4711-0`. The
/// group of all other tasks, `rampart-4711-0-rest`, is not a shield.
fn process_of(name: &str) -> Option<u32> {
    let (process, number) = name.strip_prefix("rampart-")?.split_once('-')?;
    number.parse::<u32>().ok()?;
    process.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns what is found on a machine with these groups of `cpuset` and this running process.
    fn found(mount: &str, groups: &[(&str, &str)], process: Option<u32>) -> Option<ShieldInUse> {
        let directory = tempfile::tempdir().expect("a directory");
        let write = |file: &str, text: &str| {
            let path = directory.path().join(file);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
            std::fs::write(path, text).expect("a file");
        };
        write("proc/self/mountinfo", mount);
        for (group, cpus) in groups {
            write(&format!("sys/fs/cgroup/{group}/cpuset.cpus"), cpus);
        }
        if let Some(process) = process {
            write(&format!("proc/{process}/comm"), "rampart\n");
        }
        shield_in_use(&MachineRoot::at(directory.path()))
    }

    const V1: &str = "30 20 0:25 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n";
    const V2: &str = "30 20 0:25 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";

    #[test]
    fn finds_the_cpus_of_all_shields_of_a_process() {
        let groups = [
            ("cpuset/rampart-4711-0", "1\n"),
            ("cpuset/rampart-4711-1", "3\n"),
            ("cpuset/rampart-4711-0-rest", "0,2\n"),
            ("cpuset/system.slice", "0-3\n"),
        ];
        let shield = found(V1, &groups, Some(4711)).expect("a shield");
        assert_eq!(shield.cpus.to_string(), "1,3");
        assert!(shield.is_running);
        let shield = found(V2, &[("rampart-12-0", "2-3\n")], Some(12)).expect("a shield");
        assert_eq!(shield.cpus.to_string(), "2-3");
    }

    #[test]
    fn reports_the_shield_of_a_killed_process() {
        let groups = [("cpuset/rampart-4711-0", "1\n")];
        let shield = found(V1, &groups, None).expect("a shield");
        assert!(!shield.is_running);
        // A domain of a plan has its group too, and belongs to no process.
        assert_eq!(found(V2, &[("rampart-press", "1\n")], None), None);
        assert_eq!(found(V2, &[("rampart-1-0", "\n")], Some(1)), None);
    }
}
