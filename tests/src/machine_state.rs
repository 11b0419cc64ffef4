// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A picture of everything that a shield may change, to compare before and after.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Contents by path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineState(BTreeMap<PathBuf, String>);

impl MachineState {
    /// Takes the picture: cpusets with the groups in them, interrupt affinities, workqueue masks,
    /// real-time budgets. Membership is left out of it: tasks come and go; where Rampart's own
    /// groups are gone nothing can be left in them.
    #[must_use]
    pub fn take() -> Self {
        let mut state = BTreeMap::new();
        for controller in [
            "/sys/fs/cgroup/cpuset",
            "/sys/fs/cgroup/cpu",
            "/sys/fs/cgroup/unified",
            "/sys/fs/cgroup",
        ] {
            groups(Path::new(controller), 0, &mut state);
        }
        for entry in fs::read_dir("/proc/irq").into_iter().flatten().flatten() {
            read(&entry.path().join("smp_affinity_list"), &mut state);
        }
        read(Path::new("/proc/irq/default_smp_affinity"), &mut state);
        read(
            Path::new("/sys/devices/virtual/workqueue/cpumask"),
            &mut state,
        );
        read(
            Path::new("/proc/sys/kernel/sched_rt_runtime_us"),
            &mut state,
        );
        Self(state)
    }

    /// The places that differ, with both contents.
    #[must_use]
    pub fn differences(&self, later: &Self) -> Vec<String> {
        let paths: std::collections::BTreeSet<&PathBuf> =
            self.0.keys().chain(later.0.keys()).collect();
        paths
            .into_iter()
            .filter(|path| self.0.get(*path) != later.0.get(*path))
            .map(|path| {
                format!(
                    "{}: {:?} then {:?}",
                    path.display(),
                    self.0.get(path),
                    later.0.get(path)
                )
            })
            .collect()
    }
}

fn read(path: &Path, state: &mut BTreeMap<PathBuf, String>) {
    if let Ok(text) = fs::read_to_string(path) {
        state.insert(path.to_owned(), text.trim().to_owned());
    }
}

fn groups(directory: &Path, depth: usize, state: &mut BTreeMap<PathBuf, String>) {
    const VALUES: [&str; 8] = [
        "cpuset.cpus",
        "cpuset.mems",
        "cpuset.cpu_exclusive",
        "cpuset.sched_load_balance",
        "cpuset.cpus.partition",
        "cgroup.subtree_control",
        "cpu.rt_runtime_us",
        "cpuset.effective_cpus",
    ];
    for value in VALUES {
        read(&directory.join(value), state);
    }
    if depth == 4 {
        return;
    }
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            groups(&entry.path(), depth + 1, state);
        }
    }
}
