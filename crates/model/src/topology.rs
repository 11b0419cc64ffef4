// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Queries of a [`Topology`].

use crate::{Cache, CacheKind, Cpu, CpuId, CpuSet, SmtPolicy, Topology};

/// The CPU that Linux boots on. The kernel keeps its timekeeping duty there and removes it from
/// `nohz_full=` (Documentation/timers/no_hz.rst).
pub const BOOT_CPU: CpuId = CpuId(0);

impl Topology {
    /// Returns the entry of an online CPU.
    #[must_use]
    pub fn cpu(&self, id: CpuId) -> Option<&Cpu> {
        self.cpus.iter().find(|cpu| cpu.id == id)
    }

    /// Returns the online CPUs of the core of `id`, including `id`.
    #[must_use]
    pub fn core(&self, id: CpuId) -> CpuSet {
        let mut core = self
            .cpu(id)
            .map(|cpu| cpu.siblings.intersection(&self.online))
            .unwrap_or_default();
        core.insert(id);
        core
    }

    /// Returns the memory node of a CPU.
    #[must_use]
    pub fn node_of(&self, id: CpuId) -> Option<u32> {
        self.cpu(id)?.node
    }

    /// Returns the relative capacity of a CPU; 1024 if the kernel reports none, as on machines with
    /// one kind of core.
    #[must_use]
    pub fn capacity(&self, id: CpuId) -> u32 {
        self.cpu(id).and_then(|cpu| cpu.capacity).unwrap_or(1024)
    }

    /// Returns the last-level cache of a CPU.
    #[must_use]
    pub fn last_level_cache(&self, id: CpuId) -> Option<&Cache> {
        self.caches
            .iter()
            .filter(|cache| cache.kind != CacheKind::Instruction && cache.shared_by.contains(id))
            .max_by_key(|cache| cache.level)
    }

    /// Returns all CPUs under the last-level caches of `cpus`, including `cpus`.
    #[must_use]
    pub fn under_last_level_cache(&self, cpus: &CpuSet) -> CpuSet {
        cpus.iter()
            .filter_map(|id| self.last_level_cache(id))
            .fold(cpus.clone(), |all, cache| all.union(&cache.shared_by))
    }

    /// Returns the CPUs that a plan takes offline: with [`SmtPolicy::Off`] all but the first thread
    /// of each core, else none.
    #[must_use]
    pub fn taken_offline(&self, smt: SmtPolicy) -> CpuSet {
        if smt != SmtPolicy::Off {
            return CpuSet::new();
        }
        self.online
            .iter()
            .filter(|id| self.core(*id).first() != Some(*id))
            .collect()
    }
}
