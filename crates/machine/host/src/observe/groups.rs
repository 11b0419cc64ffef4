// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads control groups that own CPUs (Documentation/admin-guide/cgroup-v2.rst and
//! cgroup-v1/cpusets.rst).

use rampart_model::{CpuSet, ObservedGroup, ObservedIsolation, ObservedPartition};

use super::cpus;
use crate::MachineRoot;
use crate::groups::Hierarchies;
use crate::isolation_sources;

/// Depth to which partitions are searched: services of systemd are not deeper.
const DEPTH: u32 = 4;

/// Reads a group by its absolute path.
pub(super) fn read(root: &MachineRoot, path: &str) -> ObservedGroup {
    let inside = path.trim_start_matches('/');
    let set = |names: [&str; 2]| {
        names
            .into_iter()
            .find_map(|name| root.text(&format!("{inside}/{name}")))
            .and_then(|text| text.trim().parse::<CpuSet>().ok())
    };
    let mut threads = Vec::new();
    members(root, inside, &mut threads, 0);
    threads.sort_unstable();
    threads.dedup();
    ObservedGroup {
        exists: root.path(inside).is_dir(),
        cpus: set(["cpuset.cpus", "cpus"]),
        effective: set(["cpuset.cpus.effective", "cpuset.effective_cpus"]),
        partition: root.line(&format!("{inside}/cpuset.cpus.partition")),
        threads,
    }
}

fn members(root: &MachineRoot, group: &str, threads: &mut Vec<u32>, depth: u32) {
    let listed = ["cgroup.threads", "tasks"]
        .into_iter()
        .find_map(|name| root.text(&format!("{group}/{name}")))
        .unwrap_or_default();
    threads.extend(
        listed
            .lines()
            .filter_map(|line| line.trim().parse::<u32>().ok()),
    );
    if depth == DEPTH {
        return;
    }
    for child in children(root, group) {
        members(root, &child, threads, depth + 1);
    }
}

fn children(root: &MachineRoot, group: &str) -> Vec<String> {
    root.directories(group)
        .into_iter()
        .map(|name| format!("{group}/{name}"))
        .collect()
}

/// Reads the isolation of CPUs, also that of other programs.
pub(crate) fn isolation(root: &MachineRoot) -> ObservedIsolation {
    let hierarchies = root
        .text("proc/self/mountinfo")
        .map(|text| Hierarchies::parse(&text))
        .unwrap_or_default();
    let mut partitions = Vec::new();
    let roots = hierarchies
        .unified
        .as_deref()
        .into_iter()
        .chain(hierarchies.legacy_with("cpuset"));
    for mount in roots {
        let mount = mount.to_string_lossy();
        for child in children(root, mount.trim_start_matches('/')) {
            claims(root, &child, &mut partitions, 1);
        }
    }
    ObservedIsolation {
        isolated: cpus(root, "sys/devices/system/cpu/isolated"),
        nohz_full: cpus(root, "sys/devices/system/cpu/nohz_full"),
        sources: isolation_sources::read(root, &partitions),
        partitions,
    }
}

fn claims(root: &MachineRoot, group: &str, partitions: &mut Vec<ObservedPartition>, depth: u32) {
    let kind = root
        .line(&format!("{group}/cpuset.cpus.partition"))
        .filter(|kind| kind != "member")
        .or_else(|| {
            root.line(&format!("{group}/cpuset.cpu_exclusive"))
                .filter(|flag| flag == "1")
                .map(|_| "exclusive".to_owned())
        });
    if let Some(kind) = kind {
        partitions.push(ObservedPartition {
            group: format!("/{group}"),
            kind,
            cpus: cpus(root, &format!("{group}/cpuset.cpus")),
        });
    }
    if depth < DEPTH {
        for child in children(root, group) {
            claims(root, &child, partitions, depth + 1);
        }
    }
}
