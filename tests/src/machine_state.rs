// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A snapshot of the settings that a shield or a plan may change, to compare before and after.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Contents by path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineState(BTreeMap<PathBuf, String>);

impl MachineState {
    /// Takes a snapshot of cpusets and their groups, interrupt affinities, workqueue masks and real-time
    /// budgets. Members of groups are excluded, because tasks come and go.
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

    /// Takes a snapshot of everything that a plan may change: in addition the kernel's settings, and policy
    /// and CPUs of kernel threads. Threads that the kernel itself moves or binds are excluded.
    #[must_use]
    pub fn whole() -> Self {
        let Self(mut state) = Self::take();
        for tree in ["kernel", "vm", "net/core"] {
            files_below(&Path::new("/proc/sys").join(tree), &mut state);
        }
        for tree in [
            "/sys/kernel/mm/transparent_hugepage",
            "/sys/kernel/mm/ksm",
            "/sys/devices/system/machinecheck",
            "/sys/devices/virtual/workqueue",
        ] {
            files_below(Path::new(tree), &mut state);
        }
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            kernel_thread(&entry.path(), &mut state);
        }
        Self(state)
    }

    /// Returns the paths that differ, with both contents.
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

/// Returns the text of a file without surrounding white space.
///
/// # Panics
/// If the file cannot be read.
#[must_use]
pub fn read_trimmed(path: impl AsRef<Path>) -> String {
    let path = path.as_ref();
    fs::read_to_string(path)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
        .trim()
        .to_owned()
}

fn read(path: &Path, state: &mut BTreeMap<PathBuf, String>) {
    if let Ok(text) = fs::read_to_string(path) {
        state.insert(path.to_owned(), text.trim().to_owned());
    }
}

/// Reads every file below a directory, except those that change by themselves.
fn files_below(directory: &Path, state: &mut BTreeMap<PathBuf, String>) {
    const VOLATILE: [&str; 12] = [
        "random",
        "ns_last_pid",
        "nr",
        "uevent",
        "pages_collapsed",
        "full_scans",
        "sched_domain",
        "cad_pid",
        "drop_caches",
        "compact_memory",
        "full",
        "flush",
    ];
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        let is_volatile = VOLATILE.iter().any(|name| path.ends_with(name));
        match entry.file_type() {
            Ok(_) if is_volatile => {}
            Ok(kind) if kind.is_dir() => files_below(&path, state),
            Ok(kind) if kind.is_file() => read(&path, state),
            _ => {}
        }
    }
}

/// `PF_NO_SETAFFINITY` and `PF_KTHREAD` of include/linux/sched.h.
const BOUND: u64 = 0x0400_0000;
const KERNEL_THREAD: u64 = 0x0020_0000;

/// Reads policy, priority and CPUs of a kernel thread, by proc_pid_stat(5) and proc_pid_status(5). Threads
/// that end by themselves are excluded: workers, and `ext4lazyinit`, which fills the tables of a new ext4.
fn kernel_thread(process: &Path, state: &mut BTreeMap<PathBuf, String>) {
    let Ok(stat) = fs::read_to_string(process.join("stat")) else {
        return;
    };
    let Some((head, tail)) = stat.rsplit_once(')') else {
        return;
    };
    let name = head.split_once('(').map_or("", |(_, name)| name);
    let fields: Vec<&str> = tail.split_whitespace().collect();
    let flags: u64 = fields
        .get(6)
        .and_then(|text| text.parse().ok())
        .unwrap_or(0);
    let is_temporary = name.starts_with("kworker") || name == "ext4lazyinit";
    if flags & KERNEL_THREAD == 0 || is_temporary {
        return;
    }
    let policy = [fields.get(37), fields.get(38)];
    let mut settings = format!("{name} {policy:?}");
    if flags & BOUND == 0 && !name.starts_with("irq/") {
        let status = fs::read_to_string(process.join("status")).unwrap_or_default();
        let allowed = status
            .lines()
            .find(|line| line.starts_with("Cpus_allowed_list"))
            .unwrap_or("");
        settings = format!("{settings} {allowed}");
    }
    state.insert(process.to_owned(), settings);
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
