// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two observations and a plan, asked together.

use std::collections::{BTreeMap, BTreeSet};

use rampart_model::{
    ActiveDomain, ActivePlan, CpuId, CpuRole, Nanos, Observation, ObservedThread, Plan,
};

/// What is asked.
#[derive(Debug)]
pub(crate) struct Seen<'a> {
    pub(crate) plan: Option<&'a ActivePlan>,
    /// The plan as it was written; none where its text cannot be read any more.
    pub(crate) planned: Option<Plan>,
    pub(crate) earlier: &'a Observation,
    pub(crate) later: &'a Observation,
    /// The earlier CPU time of a thread by number and start.
    before: BTreeMap<(u32, u64), Nanos>,
    /// The domain of each thread that has one.
    domains: BTreeMap<u32, &'a str>,
    /// Processes of who asks.
    own: BTreeSet<u32>,
    /// Processes that measure, whoever started them.
    meters: BTreeSet<u32>,
}

/// The name of the program that measures.
const METER: &str = "rampart-meter";

impl<'a> Seen<'a> {
    pub(crate) fn new(
        plan: Option<&'a ActivePlan>,
        earlier: &'a Observation,
        later: &'a Observation,
        asker: Option<u32>,
    ) -> Self {
        let before = earlier
            .threads
            .iter()
            .map(|thread| ((thread.thread, thread.start), thread.cpu_time))
            .collect();
        let own = asker.map_or_else(BTreeSet::new, |asker| descendants(later, asker));
        let meters = later
            .threads
            .iter()
            .filter(|thread| thread.thread == thread.process && thread.name == METER)
            .map(|thread| thread.process)
            .collect();
        Self {
            meters,
            planned: plan.and_then(|plan| rampart_plan::parse(&plan.text, &plan.file).ok()),
            domains: plan.map_or_else(BTreeMap::new, |plan| members(plan, later)),
            plan,
            earlier,
            later,
            before,
            own,
        }
    }

    /// How long the machine was watched.
    pub(crate) fn interval(&self) -> Nanos {
        self.later.at.saturating_sub(self.earlier.at)
    }

    /// A count as a rate; 0 where no time passed.
    pub(crate) fn per_second(&self, count: u64) -> f64 {
        let seconds = self.interval().as_secs_f64();
        if seconds > 0.0 {
            count as f64 / seconds
        } else {
            0.0
        }
    }

    /// CPU time that a thread used in the interval. One that was not there before used all of its
    /// time in it.
    pub(crate) fn used(&self, thread: &ObservedThread) -> Nanos {
        let before = self.before.get(&(thread.thread, thread.start));
        thread
            .cpu_time
            .saturating_sub(before.copied().unwrap_or_default())
    }

    /// The part of the interval that a thread ran, 0 to 1.
    pub(crate) fn share(&self, thread: &ObservedThread) -> f64 {
        let interval = self.interval().0.max(1) as f64;
        (self.used(thread).0 as f64 / interval).min(1.0)
    }

    /// The domain of a thread.
    pub(crate) fn domain_of(&self, thread: &ObservedThread) -> Option<&'a str> {
        self.domains.get(&thread.thread).copied()
    }

    /// The threads of a domain; what measures inside it, for another `rampart status` perhaps, is a
    /// guest there and has a policy of its own.
    pub(crate) fn members(&self, domain: &str) -> impl Iterator<Item = &'a ObservedThread> {
        let later = self.later;
        later
            .threads
            .iter()
            .filter(move |thread| self.domain_of(thread) == Some(domain))
            .filter(|thread| !self.is_own(thread) && !self.meters.contains(&thread.process))
    }

    /// Whether a thread is of who asks.
    pub(crate) fn is_own(&self, thread: &ObservedThread) -> bool {
        self.own.contains(&thread.process)
    }

    /// The CPU's domain, if it does real-time work; an empty name where it must do nothing.
    pub(crate) fn real_time_owner(&self, cpu: CpuId) -> Option<&'a str> {
        let ownership = self.plan?.resolved.cpu(cpu)?;
        match ownership.role {
            CpuRole::RealTime | CpuRole::VirtualCpu(_) => {
                Some(ownership.owner.as_deref().unwrap_or_default())
            }
            CpuRole::IdleSibling => Some(""),
            _ => None,
        }
    }
}

/// A process and all that descend from it.
fn descendants(observation: &Observation, root: u32) -> BTreeSet<u32> {
    let mut found = BTreeSet::from([root]);
    // A parent need not have the smaller number, so until nothing new is found.
    loop {
        let before = found.len();
        for thread in &observation.threads {
            if found.contains(&thread.parent) {
                found.insert(thread.process);
            }
        }
        if found.len() == before {
            return found;
        }
    }
}

/// The threads of each domain: those in its control group, and those that descend from its program.
fn members<'a>(plan: &'a ActivePlan, later: &Observation) -> BTreeMap<u32, &'a str> {
    let mut members = BTreeMap::new();
    for domain in &plan.domains {
        for program in later
            .programs
            .iter()
            .filter(|program| program.domain == domain.name && program.alive)
        {
            let Some(process) = program.process else {
                continue;
            };
            let family = descendants(later, process);
            let threads = later
                .threads
                .iter()
                .filter(|thread| family.contains(&thread.process));
            members.extend(threads.map(|thread| (thread.thread, domain.name.as_str())));
        }
    }
    // Where both say something the group is what the kernel goes by.
    for domain in &plan.domains {
        members.extend(
            group_threads(domain, later)
                .iter()
                .map(|thread| (*thread, domain.name.as_str())),
        );
    }
    members
}

fn group_threads<'o>(domain: &ActiveDomain, later: &'o Observation) -> &'o [u32] {
    domain
        .group
        .as_ref()
        .and_then(|path| later.groups.get(path))
        .map_or(&[], |group| &group.threads)
}
