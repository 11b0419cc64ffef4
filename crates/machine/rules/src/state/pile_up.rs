// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Threads that share one real-time CPU while others that they may use are idle. The scheduler does
//! not balance isolated CPUs: a thread stays where it started until its affinity excludes the CPU.

use rampart_model::{CpuId, CpuSet, CpuStatus, ObservedThread, Severity, StatusFinding};

use super::{STATE_RULE, StateComparison, StateRule, commands, first_few, named};
use crate::Rule;

pub(super) const THREADS_PILE_UP: StateRule = StateRule::colocation(Rule {
    id: "threads-pile-up",
    severity: Severity::Warning,
    title: "No busy threads share a real-time CPU while another that they may use is idle",
    reason: "The scheduler does not balance isolated CPUs, so the threads stay on one.",
    source: "Linux Documentation/admin-guide/cgroup-v2.rst, cpuset.cpus.partition; kernel/sched/topology.c",
    ..STATE_RULE
});

/// A CPU is full from this busy time on.
const FULL: f64 = 0.9;
/// A CPU has time for another thread below this busy time.
const FREE: f64 = 0.5;
/// A thread counts if it ran for this part of the time, or waits to run.
const RUNS: f64 = 0.1;

/// Reports each real-time CPU that is full with several threads, of which one can run on an idle one.
pub(super) fn check(
    comparison: &StateComparison<'_>,
    cpus: &[CpuStatus],
    findings: &mut Vec<StatusFinding>,
) {
    let idle: CpuSet = cpus
        .iter()
        .filter(|cpu| cpu.online && cpu.busy < FREE && comparison.is_real_time(cpu.cpu))
        .map(|cpu| cpu.cpu)
        .collect();
    let mut taken = CpuSet::new();
    for cpu in cpus.iter().filter(|cpu| cpu.busy >= FULL) {
        if !comparison.is_real_time(cpu.cpu) {
            continue;
        }
        let busy = busy_threads(comparison, cpu.cpu);
        if busy.len() < 2 {
            continue;
        }
        // The first keeps the CPU; each other one gets an idle CPU of its affinity, and of its domain.
        let mut moves = Vec::new();
        let mut could_use = CpuSet::new();
        for thread in busy.iter().skip(1) {
            let free = free_for(comparison, thread, &idle);
            could_use = could_use.union(&free);
            if let Some(target) = free.difference(&taken).first() {
                taken.insert(target);
                moves.push(format!(
                    "taskset --pid --cpu-list {target} {}",
                    thread.thread
                ));
            }
        }
        if moves.is_empty() {
            continue;
        }
        let names: Vec<String> = busy
            .iter()
            .map(|thread| {
                format!(
                    "{}, {:.0} %",
                    named(thread),
                    100.0 * comparison.share(thread)
                )
            })
            .collect();
        let lasting = match comparison.plan {
            Some(_) => " (to keep it so: a rule in `threads` of the domain with the CPU of each)",
            None => "",
        };
        findings.push(
            THREADS_PILE_UP
                .finding(
                    cpu.owner.as_deref(),
                    format!("CPU {}", cpu.cpu),
                    format!("busy threads share this CPU while {}", are_idle(&could_use)),
                )
                .values(first_few(&names), "one busy thread on each CPU")
                .fix(commands(moves) + lasting),
        );
    }
}

fn are_idle(cpus: &CpuSet) -> String {
    let verb = if cpus.len() == 1 { "is" } else { "are" };
    format!("{} {verb} idle", cpus.named())
}

/// Returns the threads of programs that need the time of a CPU, the busiest first.
fn busy_threads<'a>(comparison: &StateComparison<'a>, cpu: CpuId) -> Vec<&'a ObservedThread> {
    let mut busy: Vec<&ObservedThread> = comparison
        .later
        .threads
        .iter()
        .filter(|thread| thread.cpu == cpu && !thread.kernel && !comparison.is_own(thread))
        .filter(|thread| comparison.share(thread) >= RUNS || thread.state == 'R')
        .collect();
    busy.sort_by_key(|thread| std::cmp::Reverse(comparison.used(thread)));
    busy
}

/// Returns the idle CPUs that a thread may use: those of its affinity, within its domain.
fn free_for(comparison: &StateComparison<'_>, thread: &ObservedThread, idle: &CpuSet) -> CpuSet {
    let Some(affinity) = &thread.affinity else {
        return CpuSet::new();
    };
    let free = affinity.intersection(idle);
    let domain = comparison
        .domain_of(thread)
        .and_then(|name| comparison.plan?.domain(name));
    match domain {
        Some(domain) => free.intersection(&domain.cpus),
        None => free,
    }
}
