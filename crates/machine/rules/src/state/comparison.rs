// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The input of the rules of states: two observations of a machine, compared.

use std::collections::{BTreeMap, BTreeSet};

use rampart_model::{
    ActivePlan, CpuId, CpuRole, CpuSet, Nanos, Observation, ObservedThread, Plan, SchedulingPolicy,
};

/// Two observations of a machine, with its active plan if there is one.
#[derive(Debug)]
pub struct StateComparison<'a> {
    /// The active plan.
    pub plan: Option<&'a ActivePlan>,
    /// The active plan as it was written; `None` if its text cannot be parsed any more.
    pub planned: Option<Plan>,
    /// The real-time CPUs of the plan; without one, those that settings of the machine keep for
    /// real-time work.
    pub real_time: CpuSet,
    /// The CPUs for all other work.
    pub housekeeping: CpuSet,
    /// The observation at the start of the interval.
    pub earlier: &'a Observation,
    /// The observation at the end of the interval.
    pub later: &'a Observation,
    /// CPU time that each thread used in the interval.
    pub used: BTreeMap<u32, Nanos>,
    /// The domain of each thread that belongs to one.
    pub domains: BTreeMap<u32, &'a str>,
    /// The observing process and its descendants.
    pub own: BTreeSet<u32>,
    /// Processes of all meters.
    pub meters: BTreeSet<u32>,
}

impl<'a> StateComparison<'a> {
    /// Returns the length of the interval.
    #[must_use]
    pub fn interval(&self) -> Nanos {
        self.later.at.saturating_sub(self.earlier.at)
    }

    /// Returns a count in the interval as a rate in 1/s; 0 if the interval is empty.
    #[must_use]
    pub fn per_second(&self, count: u64) -> f64 {
        let seconds = self.interval().as_secs_f64();
        if seconds > 0.0 {
            count as f64 / seconds
        } else {
            0.0
        }
    }

    /// Returns the CPU time that a thread used in the interval. A thread that started within it
    /// used all of its CPU time there.
    #[must_use]
    pub fn used(&self, thread: &ObservedThread) -> Nanos {
        self.used.get(&thread.thread).copied().unwrap_or_default()
    }

    /// Returns the part of the interval that a thread ran, 0 to 1.
    #[must_use]
    pub fn share(&self, thread: &ObservedThread) -> f64 {
        let interval = self.interval().0.max(1) as f64;
        (self.used(thread).0 as f64 / interval).min(1.0)
    }

    /// Returns the domain of a thread.
    #[must_use]
    pub fn domain_of(&self, thread: &ObservedThread) -> Option<&'a str> {
        self.domains.get(&thread.thread).copied()
    }

    /// Returns the threads of a domain. A meter inside the domain, for example of another
    /// `rampart status`, has a policy of its own and is not part of it.
    pub fn members(&self, domain: &str) -> impl Iterator<Item = &'a ObservedThread> {
        let later = self.later;
        later
            .threads
            .iter()
            .filter(move |thread| self.domain_of(thread) == Some(domain))
            .filter(|thread| !self.is_own(thread) && !self.meters.contains(&thread.process))
    }

    /// Returns whether a thread belongs to the observing process or its descendants.
    #[must_use]
    pub fn is_own(&self, thread: &ObservedThread) -> bool {
        self.own.contains(&thread.process)
    }

    /// Returns the role of a CPU; `None` without a plan if no setting of the machine gives it one.
    #[must_use]
    pub fn role(&self, cpu: CpuId) -> Option<CpuRole> {
        match self.plan {
            Some(plan) => plan.resolved.cpu(cpu).map(|ownership| ownership.role),
            None if self.real_time.contains(cpu) => Some(CpuRole::RealTime),
            None if self.real_time.is_empty() => None,
            None => self
                .housekeeping
                .contains(cpu)
                .then_some(CpuRole::Housekeeping),
        }
    }

    /// Returns whether real-time work runs on a CPU.
    #[must_use]
    pub fn is_real_time(&self, cpu: CpuId) -> bool {
        let role = self.role(cpu);
        matches!(role, Some(CpuRole::RealTime | CpuRole::VirtualCpu(_)))
    }

    /// Returns whether a CPU is kept for the work of its owner: a real-time CPU or its idle sibling.
    #[must_use]
    pub fn is_reserved(&self, cpu: CpuId) -> bool {
        self.is_real_time(cpu) || self.role(cpu) == Some(CpuRole::IdleSibling)
    }

    /// Returns whether a thread does the work of the reserved CPU that it is on: it belongs to the
    /// CPU's domain. Without a plan no thread is known to, so the real-time threads of programs and
    /// the virtual CPUs that are bound to real-time CPUs are taken for their work.
    #[must_use]
    pub fn is_work_of_cpu(&self, thread: &ObservedThread) -> bool {
        if let Some(plan) = self.plan {
            let owner = plan
                .resolved
                .cpu(thread.cpu)
                .filter(|ownership| ownership.role != CpuRole::IdleSibling)
                .and_then(|ownership| ownership.owner.as_deref());
            return owner.is_some() && self.domain_of(thread) == owner;
        }
        let is_virtual_cpu = thread.name.starts_with("CPU ") && thread.name.ends_with("/KVM");
        let is_real_time = thread.policy.is_some_and(SchedulingPolicy::is_real_time);
        let is_bound = thread
            .affinity
            .as_ref()
            .is_some_and(|cpus| cpus.is_subset(&self.real_time));
        !thread.kernel && is_bound && (is_virtual_cpu || is_real_time)
    }
}
