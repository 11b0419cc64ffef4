// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compares two observations of a machine.

use std::collections::{BTreeMap, BTreeSet};

use rampart_model::{ActiveDomain, ActivePlan, Nanos, Observation};
use rampart_rules::{StateComparison, real_time_cpus};

/// The process name of meters.
const METER: &str = "rampart-meter";

/// Compares two observations. `process` is the observing process.
pub(crate) fn compare<'a>(
    plan: Option<&'a ActivePlan>,
    earlier: &'a Observation,
    later: &'a Observation,
    process: Option<u32>,
) -> StateComparison<'a> {
    let before: BTreeMap<(u32, u64), Nanos> = earlier
        .threads
        .iter()
        .map(|thread| ((thread.thread, thread.start), thread.cpu_time))
        .collect();
    let used = later.threads.iter().map(|thread| {
        let before = before.get(&(thread.thread, thread.start)).copied();
        let used = thread.cpu_time.saturating_sub(before.unwrap_or_default());
        (thread.thread, used)
    });
    let meters = later
        .threads
        .iter()
        .filter(|thread| thread.thread == thread.process && thread.name == METER)
        .map(|thread| thread.process);
    let (real_time, housekeeping) = match plan {
        Some(plan) => (
            plan.resolved.real_time.clone(),
            plan.resolved.housekeeping.clone(),
        ),
        None => {
            let found = real_time_cpus(&later.isolation.sources, &later.online);
            let real_time = found.map(|found| found.cpus).unwrap_or_default();
            let housekeeping = later.online.difference(&real_time);
            (real_time, housekeeping)
        }
    };
    StateComparison {
        real_time,
        housekeeping,
        plan,
        planned: plan.and_then(|plan| rampart_plan::parse(&plan.text, &plan.file).ok()),
        earlier,
        later,
        used: used.collect(),
        domains: plan.map_or_else(BTreeMap::new, |plan| members(plan, later)),
        own: process.map_or_else(BTreeSet::new, |process| descendants(later, process)),
        meters: meters.collect(),
    }
}

/// Returns a process and all its descendants.
fn descendants(observation: &Observation, root: u32) -> BTreeSet<u32> {
    let mut found = BTreeSet::from([root]);
    // A parent may have a larger number than its child, so repeat until nothing is added.
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

/// Returns the domain of each thread: threads in its control group, and threads that descend from
/// its program.
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
    // The control group takes precedence: the kernel enforces it.
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
