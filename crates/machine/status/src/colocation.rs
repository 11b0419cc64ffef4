// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is where the plan allows it, or where nothing forbids it, and hurts all the same.

use rampart_model::{
    ActivePlan, CpuRole, CpuStatus, Finding, ObservedThread, SchedulingPolicy, Severity, SmtPolicy,
    StatusFinding, StatusFindingKind, VitalThread,
};

use crate::seen::Seen;
use crate::{finding, some_of};

/// A thread that runs for this part of the time lets nobody of lower priority run.
const SPINS: f64 = 0.9;
/// From this part on a CPU counts as busy beside its sibling: with less they seldom meet.
const BUSY: f64 = 0.25;
/// Housekeeping that is so busy serves the domains late.
const OVERLOADED: f64 = 0.95;

pub(crate) fn find(
    seen: &Seen<'_>,
    plan: &ActivePlan,
    cpus: &[CpuStatus],
    findings: &mut Vec<StatusFinding>,
) {
    for cpu in cpus {
        foreign(seen, cpu, findings);
        starved(seen, cpu, findings);
        unbound(seen, plan, cpu, findings);
    }
    siblings(seen, plan, cpus, findings);
    housekeeping(plan, cpus, findings);
}

fn on<'a>(seen: &Seen<'a>, cpu: &CpuStatus) -> impl Iterator<Item = &'a ObservedThread> {
    let (later, cpu) = (seen.later, cpu.cpu);
    later.threads.iter().filter(move |thread| thread.cpu == cpu)
}

fn named(thread: &ObservedThread) -> String {
    format!("{} ({})", thread.name, thread.thread)
}

fn is_real_time(thread: &ObservedThread) -> bool {
    thread.policy.is_some_and(SchedulingPolicy::is_real_time)
}

/// A real-time thread of one domain on a CPU of another. One that sleeps is shown where it ran last;
/// there it does nothing any more unless it may run there again.
fn foreign(seen: &Seen<'_>, cpu: &CpuStatus, findings: &mut Vec<StatusFinding>) {
    let Some(owner) = &cpu.owner else { return };
    let may_run = |thread: &ObservedThread| {
        let affinity = thread.affinity.as_ref();
        seen.used(thread).0 > 0 || affinity.is_none_or(|cpus| cpus.contains(cpu.cpu))
    };
    for thread in on(seen, cpu).filter(|thread| is_real_time(thread) && may_run(thread)) {
        let Some(domain) = seen.domain_of(thread).filter(|domain| domain != owner) else {
            continue;
        };
        findings.push(finding(
            StatusFindingKind::ForeignRealTime,
            Some(domain),
            Finding::new(
                Severity::Error,
                format!("CPU {}", cpu.cpu),
                format!("a real-time thread of `{domain}` is on a CPU of `{owner}`"),
            )
            .values(named(thread), format!("threads of `{owner}` alone"))
            .fix(format!(
                "move it back: rampart move {} --to {domain}",
                thread.process
            )),
        ));
    }
}

/// The real-time priority of a policy; time-sharing is below all.
fn priority(thread: &ObservedThread) -> u8 {
    match thread.policy {
        Some(SchedulingPolicy::Fifo(priority) | SchedulingPolicy::RoundRobin(priority)) => priority,
        _ => 0,
    }
}

/// A thread of the kernel below one that spins.
fn starved(seen: &Seen<'_>, cpu: &CpuStatus, findings: &mut Vec<StatusFinding>) {
    let Some(spinner) = on(seen, cpu)
        .filter(|thread| !thread.kernel && is_real_time(thread) && seen.share(thread) >= SPINS)
        .max_by_key(|thread| priority(thread))
    else {
        return;
    };
    let below: Vec<&ObservedThread> = on(seen, cpu)
        .filter(|thread| thread.kernel && thread.bound && priority(thread) < priority(spinner))
        .filter(|thread| VitalThread::of(&thread.name).is_some())
        .collect();
    if below.is_empty() {
        return;
    }
    // One that wants to run and did not is starved already.
    let waits = below
        .iter()
        .any(|thread| thread.state == 'R' && seen.used(thread).0 == 0);
    let names: Vec<String> = below.iter().map(|thread| named(thread)).collect();
    findings.push(finding(
        StatusFindingKind::KernelThreadStarved,
        seen.domain_of(spinner),
        Finding::new(
            if waits { Severity::Error } else { Severity::Warning },
            format!("CPU {}", cpu.cpu),
            format!(
                "{} spins at priority {}, and threads of the kernel below it cannot run",
                named(spinner),
                priority(spinner)
            ),
        )
        .values(some_of(&names), format!("a priority above {}", priority(spinner)))
        .fix("kernel-thread-priorities in the plan's [host], or a lower priority of the domain; rampart knobs kernel-thread-priorities"),
    ));
}

/// Work of nobody's domain that rests here and may come back.
fn unbound(seen: &Seen<'_>, plan: &ActivePlan, cpu: &CpuStatus, findings: &mut Vec<StatusFinding>) {
    let house = &plan.resolved.housekeeping;
    let Some(owner) = seen.real_time_owner(cpu.cpu) else {
        return;
    };
    let resting: Vec<String> = on(seen, cpu)
        .filter(|thread| !thread.bound && seen.domain_of(thread) != Some(owner))
        // What did run is told as an noise source.
        .filter(|thread| !seen.is_own(thread) && seen.used(thread).0 == 0)
        .filter(|thread| {
            thread
                .affinity
                .as_ref()
                .is_some_and(|cpus| cpus.contains(cpu.cpu) && cpus.len() > 1)
        })
        .map(named)
        .collect();
    if resting.is_empty() {
        return;
    }
    findings.push(finding(
        StatusFindingKind::UnboundWork,
        cpu.owner.as_deref(),
        Finding::new(
            Severity::Warning,
            format!("CPU {}", cpu.cpu),
            "work that is not of its domain rests here and may run here",
        )
        .values(some_of(&resting), house.named().to_string())
        .fix(format!("taskset --pid --cpu-list {house} THREAD for each")),
    ));
}

fn siblings(
    seen: &Seen<'_>,
    plan: &ActivePlan,
    cpus: &[CpuStatus],
    findings: &mut Vec<StatusFinding>,
) {
    for cpu in cpus.iter().filter(|cpu| cpu.busy >= BUSY) {
        if seen.real_time_owner(cpu.cpu).is_none_or(str::is_empty) {
            continue;
        }
        let Some(observed) = seen.later.cpus.get(&cpu.cpu) else {
            continue;
        };
        for other in cpus
            .iter()
            .filter(|other| other.cpu != cpu.cpu && observed.siblings.contains(other.cpu))
        {
            let agreed = plan.resolved.smt == SmtPolicy::SameOwner && other.owner == cpu.owner;
            // Of two real-time CPUs the pair is told once.
            let told = other.cpu < cpu.cpu
                && seen
                    .real_time_owner(other.cpu)
                    .is_some_and(|owner| !owner.is_empty());
            if other.busy < BUSY || agreed || told {
                continue;
            }
            findings.push(finding(
                StatusFindingKind::BusySiblings,
                cpu.owner.as_deref(),
                Finding::new(
                    Severity::Warning,
                    format!("CPUs {} and {}", cpu.cpu, other.cpu),
                    "both threads of a core are busy, and share all of it but registers",
                )
                .values(
                    format!("busy {:.0} % and {:.0} %", 100.0 * cpu.busy, 100.0 * other.busy),
                    format!("CPU {} idle", other.cpu),
                )
                .fix("smt = \"off\" or \"idle-sibling\" in the plan's [machine], or whole-cores for the domain"),
            ));
        }
    }
}

fn housekeeping(plan: &ActivePlan, cpus: &[CpuStatus], findings: &mut Vec<StatusFinding>) {
    let house: Vec<&CpuStatus> = cpus
        .iter()
        .filter(|cpu| cpu.online && cpu.role == Some(CpuRole::Housekeeping))
        .collect();
    let busy = house.iter().map(|cpu| cpu.busy).sum::<f64>() / house.len().max(1) as f64;
    if house.is_empty() || busy < OVERLOADED {
        return;
    }
    findings.push(finding(
        StatusFindingKind::HousekeepingOverloaded,
        None,
        Finding::new(
            Severity::Warning,
            format!("housekeeping {}", plan.resolved.housekeeping.named()),
            "they are busy all the time, and what serves the domains waits",
        )
        .values(format!("busy {:.0} %", 100.0 * busy), "time left over")
        .fix("more housekeeping CPUs in the plan's [machine], or less ordinary work"),
    ));
}
