// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rules of priorities: the kernel's own threads on a real-time CPU must be able to run.

use rampart_model::{KernelThread, Nanos, PlanFinding, SchedulingPolicy, Severity, VitalThread};

use super::{PLAN_RULE, PlanContext};
use crate::{Expected, Rule};

pub(super) const PRIORITY_LADDER: Rule = Rule {
    id: "priority-ladder",
    severity: Severity::Error,
    title: "A domain's priority is below the priority of the kernel's threads on its CPUs, or stalld or throttling lets them run",
    reason: "rcuc, ksoftirqd and ktimers starve below a real-time thread that never sleeps, and the machine stops.",
    source: "tuned realtime-virtual-host; OpenShift node tuning operator",
    ..PLAN_RULE
};

pub(super) const PRIORITY_LADDER_THROTTLED: Rule = Rule {
    id: "priority-ladder-throttled",
    severity: Severity::Warning,
    title: "Where throttling is on, a domain's priority is below the priority of the kernel's real-time threads on its CPUs",
    reason: "Throttling and the fair server let time-sharing threads run, and stop all real-time threads including those of the kernel.",
    source: "Linux Documentation/scheduler/sched-rt-group.rst",
    ..PLAN_RULE
};

/// A mechanism that keeps threads of lower priority from starving.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Relief {
    /// stalld: every thread runs.
    AllThreads,
    /// Throttling or the fair server: time-sharing threads run. Both stop all real-time threads,
    /// including those of the kernel.
    TimeSharing,
    None,
}

fn relief(context: &PlanContext<'_>) -> Relief {
    let stalld = context
        .environment
        .managers
        .as_ref()
        .is_some_and(|managers| managers.iter().any(|name| name == "stalld"));
    if stalld {
        return Relief::AllThreads;
    }
    let throttling = &context.machine.throttling;
    let throttled = throttling
        .runtime
        .zip(throttling.period)
        .is_some_and(|(runtime, period)| runtime < period);
    let fair = throttling
        .fair_server
        .is_some_and(|(runtime, _)| runtime > Nanos::ZERO);
    // A plan that writes one of these knobs switches the relief off.
    if (throttled && !context.requests("real-time-throttling"))
        || (fair && !context.requests("fair-server"))
    {
        Relief::TimeSharing
    } else {
        Relief::None
    }
}

/// Returns the priority that a thread has after the plan is applied.
fn planned_priority(context: &PlanContext<'_>, knob: &str, policy: SchedulingPolicy) -> u8 {
    let present = policy.precedence();
    match context.wanted(knob) {
        Some(Expected::FifoAtLeast(priority)) => present.max(priority),
        _ => present,
    }
}

pub(super) fn ladder(context: &PlanContext<'_>) -> Vec<PlanFinding> {
    let relief = relief(context);
    let mut findings = Vec::new();
    for domain in context.domains() {
        let planned = domain.planned;
        let Some(policy) = planned
            .highest_policy()
            .filter(|policy| policy.is_real_time())
        else {
            continue;
        };
        let Some(threads) = &context.environment.kernel_threads else {
            let needed = "a priority below rcuc, ksoftirqd and ktimers";
            findings.push(
                PRIORITY_LADDER
                    .not_decided_for(
                        planned,
                        "the priorities of the kernel's threads are not known",
                        needed,
                        "run this command outside of containers, where /proc shows the kernel's threads",
                    )
                    .values(format!("domain at {policy}"), needed),
            );
            continue;
        };
        let below: Vec<&KernelThread> = threads
            .iter()
            .filter(|thread| domain.resolved.cpus.contains(thread.cpu))
            .filter(|thread| {
                VitalThread::of(&thread.name).is_some_and(|kind| {
                    planned_priority(context, kind.knob, thread.policy) <= policy.precedence()
                })
            })
            .collect();
        // Report a real-time thread if there is one: relief by throttling does not reach it.
        let starving = below
            .iter()
            .find(|thread| thread.policy != SchedulingPolicy::Other)
            .or(below.first());
        let Some(thread) = starving else {
            continue;
        };
        let rule = match relief {
            Relief::AllThreads => continue,
            Relief::TimeSharing if thread.policy == SchedulingPolicy::Other => continue,
            Relief::TimeSharing => PRIORITY_LADDER_THROTTLED,
            Relief::None => PRIORITY_LADDER,
        };
        findings.push(
            rule.of_domain(
                planned,
                "the kernel's threads on its CPUs wait while it runs; if it never sleeps, the machine stops",
            )
            .values(
                format!(
                    "{policy} over {} at {} on CPU {}",
                    thread.name, thread.policy, thread.cpu
                ),
                "a priority below theirs, or stalld",
            )
            .fix(format!(
                "write {} = {{ action = \"apply\", value = \"{}\" }} in [host]",
                VitalThread::of(&thread.name).map_or("rcuc-priority", |kind| kind.knob),
                policy.precedence().saturating_add(1).min(99)
            )),
        );
    }
    findings
}
