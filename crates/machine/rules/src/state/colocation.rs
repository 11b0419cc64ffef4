// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Colocations: activity that the plan allows, or does not forbid, and that causes latency.

use rampart_model::{
    CpuRole, CpuStatus, ObservedThread, SchedulingPolicy, Severity, SmtPolicy, StatusFinding,
    VitalThread,
};

use super::{STATE_RULE, StateComparison, StateRule, commands, first_few, named};
use crate::Rule;

/// A real-time thread that runs for this part of the time starves threads of lower priority.
const SPINS: f64 = 0.9;
/// From this part of the time on a CPU is busy beside its sibling; with less they rarely overlap.
const BUSY: f64 = 0.25;
/// From this part of the time on housekeeping is overloaded.
const OVERLOADED: f64 = 0.95;

pub(super) const FOREIGN_REAL_TIME: StateRule = StateRule::colocation(Rule {
    id: "foreign-real-time",
    severity: Severity::Error,
    title: "No real-time thread of one domain is on a CPU of another",
    reason: "The two domains delay each other.",
    ..STATE_RULE
});

pub(super) const KERNEL_THREAD_STARVED: StateRule = StateRule::colocation(Rule {
    id: "kernel-thread-starved",
    severity: Severity::Error,
    title: "No kernel thread of lower priority waits for a real-time thread that uses 90 % of its CPU",
    reason: "A kernel that waits for rcuc or ksoftirqd of one CPU stops on all CPUs.",
    source: "tuned realtime-virtual-host; OpenShift node tuning operator",
    ..STATE_RULE
});

pub(super) const SPINNING_THREAD: StateRule = StateRule::colocation(Rule {
    id: "spinning-thread",
    severity: Severity::Warning,
    title: "No real-time thread above the kernel's threads uses 90 % of its CPU",
    reason: "The kernel's threads starve as soon as they have work.",
    source: "tuned realtime-virtual-host; OpenShift node tuning operator",
    ..STATE_RULE
});

pub(super) const UNBOUND_WORK: StateRule = StateRule::colocation(Rule {
    id: "unbound-work",
    severity: Severity::Warning,
    title: "No thread that can run elsewhere sleeps on a real-time CPU",
    reason: "It wakes there again.",
    ..STATE_RULE
});

pub(super) const BUSY_SIBLINGS: StateRule = StateRule::colocation(Rule {
    id: "busy-siblings",
    severity: Severity::Warning,
    title: "At most one thread of a core is busy 25 % of the time if one of them does real-time work",
    reason: "Siblings share execution units and first-level caches.",
    source: "libvirt kbase kvm-realtime; knob sibling-threads",
    ..STATE_RULE
});

pub(super) const HOUSEKEEPING_OVERLOADED: StateRule = StateRule::colocation(Rule {
    id: "housekeeping-overloaded",
    severity: Severity::Warning,
    title: "The housekeeping CPUs are busy less than 95 % of the time",
    reason: "Interrupts and kernel work for the domains wait on them.",
    ..STATE_RULE
});

pub(super) fn check(
    comparison: &StateComparison<'_>,
    cpus: &[CpuStatus],
    findings: &mut Vec<StatusFinding>,
) {
    for cpu in cpus {
        foreign(comparison, cpu, findings);
        starved(comparison, cpu, findings);
        unbound(comparison, cpu, findings);
    }
    siblings(comparison, cpus, findings);
    housekeeping(comparison, cpus, findings);
}

fn threads_on<'a>(
    comparison: &StateComparison<'a>,
    cpu: &CpuStatus,
) -> impl Iterator<Item = &'a ObservedThread> {
    let (later, cpu) = (comparison.later, cpu.cpu);
    later.threads.iter().filter(move |thread| thread.cpu == cpu)
}

fn is_real_time(thread: &ObservedThread) -> bool {
    thread.policy.is_some_and(SchedulingPolicy::is_real_time)
}

/// Reports real-time threads of one domain on a CPU of another. A thread that sleeps is observed
/// where it ran last, and counts only if it may run there again.
fn foreign(comparison: &StateComparison<'_>, cpu: &CpuStatus, findings: &mut Vec<StatusFinding>) {
    let Some(owner) = &cpu.owner else { return };
    let may_run = |thread: &ObservedThread| {
        let affinity = thread.affinity.as_ref();
        comparison.used(thread).0 > 0 || affinity.is_none_or(|cpus| cpus.contains(cpu.cpu))
    };
    let threads = threads_on(comparison, cpu);
    for thread in threads.filter(|thread| is_real_time(thread) && may_run(thread)) {
        let Some(domain) = comparison
            .domain_of(thread)
            .filter(|domain| domain != owner)
        else {
            continue;
        };
        findings.push(
            FOREIGN_REAL_TIME
                .finding(
                    Some(domain),
                    format!("CPU {}", cpu.cpu),
                    format!("a real-time thread of `{domain}` is on a CPU of `{owner}`"),
                )
                .values(named(thread), format!("only threads of `{owner}`"))
                .fix(format!("rampart move {} --to {domain}", thread.process)),
        );
    }
}

/// Returns the real-time priority of a thread; 0 for time-sharing threads.
fn priority(thread: &ObservedThread) -> u8 {
    match thread.policy {
        Some(SchedulingPolicy::Fifo(priority) | SchedulingPolicy::RoundRobin(priority)) => priority,
        _ => 0,
    }
}

/// Reports kernel threads below a real-time thread that spins.
fn starved(comparison: &StateComparison<'_>, cpu: &CpuStatus, findings: &mut Vec<StatusFinding>) {
    let Some(spinning) = threads_on(comparison, cpu)
        .filter(|thread| {
            !thread.kernel && is_real_time(thread) && comparison.share(thread) >= SPINS
        })
        .max_by_key(|thread| priority(thread))
    else {
        return;
    };
    let below: Vec<&ObservedThread> = threads_on(comparison, cpu)
        .filter(|thread| thread.kernel && thread.bound && priority(thread) < priority(spinning))
        .filter(|thread| VitalThread::of(&thread.name).is_some())
        .collect();
    let Some(knob) = below
        .first()
        .and_then(|thread| VitalThread::of(&thread.name))
        .map(|kind| kind.knob)
    else {
        return;
    };
    // A thread that is runnable and did not run is starved already.
    let waits = below
        .iter()
        .any(|thread| thread.state == 'R' && comparison.used(thread).0 == 0);
    let rule = if waits {
        KERNEL_THREAD_STARVED
    } else {
        SPINNING_THREAD
    };
    let names: Vec<String> = below.iter().map(|thread| named(thread)).collect();
    findings.push(
        rule.finding(
            comparison.domain_of(spinning),
            format!("CPU {}", cpu.cpu),
            format!(
                "{} spins at priority {}, and kernel threads of lower priority cannot run",
                named(spinning),
                priority(spinning)
            ),
        )
        .values(
            first_few(&names),
            format!("a priority above {}", priority(spinning)),
        )
        .fix(match comparison.plan {
            Some(_) => format!(
                "write {knob} = \"apply\" in the plan's [host] (`rampart knobs {knob}` explains it)"
            ),
            None => above(spinning, &below),
        }),
    );
}

/// Returns the commands that give kernel threads a priority above a thread that spins. The highest
/// priority leaves none above it, so that thread gets the lowest first.
fn above(spinning: &ObservedThread, below: &[&ObservedThread]) -> String {
    let (first, priority) = match priority(spinning) {
        99.. => (Some(format!("chrt --fifo --pid 1 {}", spinning.thread)), 2),
        priority => (None, priority + 1),
    };
    let each = below
        .iter()
        .map(|thread| format!("chrt --fifo --pid {priority} {}", thread.thread));
    let all: Vec<String> = first.into_iter().chain(each).collect();
    all.join(" && ")
}

/// Reports threads that are not the work of a real-time CPU, sleep there and may run there again.
fn unbound(comparison: &StateComparison<'_>, cpu: &CpuStatus, findings: &mut Vec<StatusFinding>) {
    let housekeeping = &comparison.housekeeping;
    if !comparison.is_reserved(cpu.cpu) {
        return;
    }
    let sleeping: Vec<&ObservedThread> = threads_on(comparison, cpu)
        .filter(|thread| !thread.bound && !comparison.is_work_of_cpu(thread))
        // A thread that ran is reported as unwanted activity.
        .filter(|thread| !comparison.is_own(thread) && comparison.used(thread).0 == 0)
        .filter(|thread| {
            thread
                .affinity
                .as_ref()
                .is_some_and(|cpus| cpus.contains(cpu.cpu) && cpus.len() > 1)
        })
        .collect();
    if sleeping.is_empty() {
        return;
    }
    let names: Vec<String> = sleeping.iter().map(|thread| named(thread)).collect();
    let fix = sleeping
        .iter()
        .map(|thread| format!("taskset --pid --cpu-list {housekeeping} {}", thread.thread));
    findings.push(
        UNBOUND_WORK
            .finding(
                cpu.owner.as_deref(),
                format!("CPU {}", cpu.cpu),
                match comparison.plan {
                    Some(_) => {
                        "threads that do not belong to the CPU's domain sleep here and may run here"
                    }
                    None => "threads that are no real-time work sleep here and may run here",
                },
            )
            .values(first_few(&names), housekeeping.named().to_string())
            .fix(commands(fix)),
    );
}

fn siblings(
    comparison: &StateComparison<'_>,
    cpus: &[CpuStatus],
    findings: &mut Vec<StatusFinding>,
) {
    let is_owned = |cpu| comparison.is_real_time(cpu);
    let busy = |cpu: &&CpuStatus| cpu.busy >= BUSY;
    for cpu in cpus.iter().filter(busy).filter(|cpu| is_owned(cpu.cpu)) {
        let Some(observed) = comparison.later.cpus.get(&cpu.cpu) else {
            continue;
        };
        let siblings = cpus
            .iter()
            .filter(|other| other.cpu != cpu.cpu && observed.siblings.contains(other.cpu));
        for other in siblings.filter(busy) {
            let planned = comparison.plan.is_some_and(|plan| {
                plan.resolved.smt == SmtPolicy::SameOwner && other.owner == cpu.owner
            });
            // Of two real-time CPUs the pair is reported once.
            if planned || (other.cpu < cpu.cpu && is_owned(other.cpu)) {
                continue;
            }
            findings.push(
                BUSY_SIBLINGS
                    .finding(
                        cpu.owner.as_deref(),
                        format!("CPUs {} and {}", cpu.cpu, other.cpu),
                        "both threads of a core are busy, and share its execution units and caches",
                    )
                    .values(
                        format!(
                            "busy {:.0} % and {:.0} %",
                            100.0 * cpu.busy,
                            100.0 * other.busy
                        ),
                        format!("CPU {} idle", other.cpu),
                    )
                    .fix(match comparison.plan {
                        Some(_) => {
                            "write smt = \"idle-sibling\" in the plan's [machine]".to_owned()
                        }
                        None => format!("echo 0 > /sys/devices/system/cpu/cpu{}/online", other.cpu),
                    }),
            );
        }
    }
}

fn housekeeping(
    comparison: &StateComparison<'_>,
    cpus: &[CpuStatus],
    findings: &mut Vec<StatusFinding>,
) {
    let housekeeping: Vec<&CpuStatus> = cpus
        .iter()
        .filter(|cpu| cpu.online && cpu.role == Some(CpuRole::Housekeeping))
        .collect();
    let sum = housekeeping.iter().map(|cpu| cpu.busy).sum::<f64>();
    let busy = sum / housekeeping.len().max(1) as f64;
    if housekeeping.is_empty() || busy < OVERLOADED {
        return;
    }
    findings.push(
        HOUSEKEEPING_OVERLOADED
            .finding(
                None,
                format!("housekeeping {}", comparison.housekeeping.named()),
                "the housekeeping CPUs are overloaded, and kernel work for the domains waits",
            )
            .values(
                format!("busy {:.0} %", 100.0 * busy),
                format!("less than {:.0} %", 100.0 * OVERLOADED),
            )
            .fix(match comparison.plan {
                Some(_) => "add housekeeping CPUs in the plan's [machine]",
                None => "keep fewer CPUs for real-time work, or start less ordinary work",
            }),
    );
}
