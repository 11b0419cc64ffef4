// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads CPUs, caches and nodes from sysfs
//! (Documentation/admin-guide/cputopology.rst, Documentation/ABI/testing/sysfs-devices-system-cpu).

use std::collections::BTreeMap;

use rampart_model::{Cache, CacheKind, Cpu, CpuId, CpuSet, MemoryNode, Topology};

use crate::{MachineRoot, tasks};

const CPUS: &str = "sys/devices/system/cpu";
const NODES: &str = "sys/devices/system/node";

pub(super) fn read(root: &MachineRoot) -> Topology {
    let possible = set(root, &format!("{CPUS}/possible"));
    let mut online = set(root, &format!("{CPUS}/online"));
    if online.is_empty() {
        online = root.numbered(CPUS, "cpu").into_iter().map(CpuId).collect();
    }
    let nodes = nodes(root);
    let capacities = capacities(root, &online);
    let cpus = online
        .iter()
        .map(|id| cpu(root, id, &nodes, &capacities))
        .collect();
    Topology {
        possible: if possible.is_empty() {
            online.clone()
        } else {
            possible
        },
        allowed: tasks::allowed(root, "self").unwrap_or_else(|| online.clone()),
        isolated: set(root, &format!("{CPUS}/isolated")),
        nohz_full: set(root, &format!("{CPUS}/nohz_full")),
        isolation_sources: Vec::new(),
        caches: caches(root, &online),
        cpus,
        nodes,
        online,
    }
}

/// Reads a list of CPUs. Returns an empty set if there is none; without `nohz_full=` the kernel writes
/// `(null)`.
fn set(root: &MachineRoot, path: &str) -> CpuSet {
    root.value(path).unwrap_or_default()
}

fn cpu(
    root: &MachineRoot,
    id: CpuId,
    nodes: &[MemoryNode],
    capacities: &BTreeMap<CpuId, u32>,
) -> Cpu {
    let topology = format!("{CPUS}/cpu{id}/topology");
    // The old name of the list exists on every kernel, the new one from 5.3 on.
    let mut siblings = set(root, &format!("{topology}/core_cpus_list"));
    if siblings.is_empty() {
        siblings = set(root, &format!("{topology}/thread_siblings_list"));
    }
    siblings.insert(id);
    // The kernel writes -1 if the firmware does not report it.
    Cpu {
        id,
        core: root.value(&format!("{topology}/core_id")),
        package: root.value(&format!("{topology}/physical_package_id")),
        node: nodes
            .iter()
            .find(|node| node.cpus.contains(id))
            .map(|node| node.id),
        siblings,
        capacity: capacities.get(&id).copied(),
    }
}

/// Returns relative capacities, with 1024 for the strongest core, or none if all cores are equal.
///
/// Reads `cpu_capacity` on arm64, and on hybrid x86 from 6.12; before, the performance that the
/// firmware reports for each core (ACPI CPPC), or its highest frequency.
fn capacities(root: &MachineRoot, online: &CpuSet) -> BTreeMap<CpuId, u32> {
    let each = |file: &str| -> Option<BTreeMap<CpuId, u64>> {
        online
            .iter()
            .map(|id| Some((id, root.value(&format!("{CPUS}/cpu{id}/{file}"))?)))
            .collect()
    };
    let hybrid = root.exists("sys/devices/cpu_atom/cpus");
    let found = each("cpu_capacity").or_else(|| {
        // Cores of one kind differ a little too, as some have a higher turbo frequency.
        hybrid
            .then(|| each("acpi_cppc/highest_perf").or_else(|| each("cpufreq/cpuinfo_max_freq")))
            .flatten()
    });
    let Some(found) = found else {
        return BTreeMap::new();
    };
    let highest = found.values().copied().max().unwrap_or(0).max(1);
    let scaled: BTreeMap<CpuId, u32> = found
        .into_iter()
        .map(|(id, value)| (id, u32::try_from(value * 1024 / highest).unwrap_or(1024)))
        .collect();
    if scaled.values().all(|value| *value == 1024) {
        return BTreeMap::new();
    }
    scaled
}

fn nodes(root: &MachineRoot) -> Vec<MemoryNode> {
    root.numbered(NODES, "node")
        .into_iter()
        .map(|id| MemoryNode {
            id,
            cpus: set(root, &format!("{NODES}/node{id}/cpulist")),
            memory: root
                .text(&format!("{NODES}/node{id}/meminfo"))
                .and_then(|text| kilobytes(&text, "MemTotal:"))
                .unwrap_or(0),
        })
        .collect()
}

/// Returns the bytes of a `meminfo` line in kB.
pub(super) fn kilobytes(text: &str, label: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.contains(label))?;
    let number = line.split(label).nth(1)?.split_whitespace().next()?;
    number.parse::<u64>().ok()?.checked_mul(1024)
}

fn caches(root: &MachineRoot, online: &CpuSet) -> Vec<Cache> {
    let mut caches: Vec<Cache> = Vec::new();
    for id in online.iter() {
        let directory = format!("{CPUS}/cpu{id}/cache");
        for index in root.numbered(&directory, "index") {
            let Some(cache) = cache(root, &format!("{directory}/index{index}"), id) else {
                continue;
            };
            let known = caches.iter().any(|other| {
                (other.level, other.kind) == (cache.level, cache.kind)
                    && other.shared_by == cache.shared_by
            });
            if !known {
                caches.push(cache);
            }
        }
    }
    caches
}

fn cache(root: &MachineRoot, directory: &str, cpu: CpuId) -> Option<Cache> {
    let kind = match root.line(&format!("{directory}/type"))?.as_str() {
        "Data" => CacheKind::Data,
        "Instruction" => CacheKind::Instruction,
        "Unified" => CacheKind::Unified,
        _ => return None,
    };
    let mut shared_by = set(root, &format!("{directory}/shared_cpu_list"));
    shared_by.insert(cpu);
    Some(Cache {
        level: root.value(&format!("{directory}/level"))?,
        kind,
        // The firmware of many arm64 boards reports a cache without its size.
        size: root
            .line(&format!("{directory}/size"))
            .and_then(|size| size.strip_suffix('K')?.parse::<u64>().ok())
            .map_or(0, |size| size.saturating_mul(1024)),
        shared_by,
    })
}
