// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A topology as the resolver asks it.

use rampart_model::{Cache, CacheKind, Cpu, CpuId, CpuSet, Machine, SmtPolicy, Topology};

/// The CPU that Linux starts on. It keeps time, takes what nobody else takes, and is taken out of
/// `nohz_full=` by the kernel (Documentation/timers/no_hz.rst).
pub(crate) const BOOT_CPU: CpuId = CpuId(0);

/// What is known of a CPU.
pub(crate) fn cpu(topology: &Topology, id: CpuId) -> Option<&Cpu> {
    topology.cpus.iter().find(|cpu| cpu.id == id)
}

/// The online CPUs of the core of `id`, itself among them.
pub(crate) fn core(topology: &Topology, id: CpuId) -> CpuSet {
    let mut core = cpu(topology, id)
        .map(|cpu| cpu.siblings.intersection(&topology.online))
        .unwrap_or_default();
    core.insert(id);
    core
}

/// The memory node of a CPU.
pub(crate) fn node(topology: &Topology, id: CpuId) -> Option<u32> {
    cpu(topology, id)?.node
}

/// The relative capacity of a CPU; 1024 where all are equal.
pub(crate) fn capacity(topology: &Topology, id: CpuId) -> u32 {
    cpu(topology, id)
        .and_then(|cpu| cpu.capacity)
        .unwrap_or(1024)
}

/// The last-level cache of a CPU.
pub(crate) fn last_level(topology: &Topology, id: CpuId) -> Option<&Cache> {
    topology
        .caches
        .iter()
        .filter(|cache| cache.kind != CacheKind::Instruction && cache.shared_by.contains(id))
        .max_by_key(|cache| cache.level)
}

/// The CPUs under the last-level caches of `cpus`, themselves among them.
pub(crate) fn under_last_level(topology: &Topology, cpus: &CpuSet) -> CpuSet {
    cpus.iter()
        .filter_map(|id| last_level(topology, id))
        .fold(cpus.clone(), |all, cache| all.union(&cache.shared_by))
}

/// The CPUs that go offline where one thread of each core stays.
pub(crate) fn taken_offline(machine: &Machine, smt: SmtPolicy) -> CpuSet {
    if smt != SmtPolicy::Off {
        return CpuSet::new();
    }
    let topology = &machine.topology;
    topology
        .online
        .iter()
        .filter(|id| core(topology, *id).first() != Some(*id))
        .collect()
}
