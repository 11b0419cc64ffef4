// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Priorities: the kernel's own threads on a real-time CPU must get to run.

use rampart_model::{KernelThread, Nanos, PlanFinding, SchedulingPolicy, Severity, VitalThread};
use rampart_rules::Expected;

use super::{Context, Say, about};
use crate::resolve::{policies, precedence};

/// What keeps threads of lower priority from starving.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Relief {
    /// Every thread (stalld).
    All,
    /// Threads under the time-sharing policy alone: throttling and the fair server stop real-time
    /// threads all together, those of the kernel too.
    TimeSharing,
    None,
}

fn relief(context: &Context<'_>) -> Relief {
    let stalld = context
        .environment
        .managers
        .as_ref()
        .is_some_and(|managers| managers.iter().any(|name| name == "stalld"));
    if stalld {
        return Relief::All;
    }
    let throttling = &context.machine.throttling;
    let throttled = throttling
        .runtime
        .zip(throttling.period)
        .is_some_and(|(runtime, period)| runtime < period);
    let fair = throttling
        .fair_server
        .is_some_and(|(runtime, _)| runtime > Nanos::ZERO);
    // A plan that sets a knob of this kind takes the relief away.
    if (throttled && !context.asks_for("real-time-throttling"))
        || (fair && !context.asks_for("fair-server"))
    {
        Relief::TimeSharing
    } else {
        Relief::None
    }
}

/// The priority that a thread will have: the plan may raise it.
fn level(context: &Context<'_>, knob: &str, policy: SchedulingPolicy) -> u8 {
    let present = precedence(policy);
    // Only a plan that applies it: who expects it has to look at what is.
    match context.wanted(knob) {
        Some(Expected::FifoAtLeast(priority)) => present.max(priority),
        _ => present,
    }
}

pub(super) fn ladder(context: &Context<'_>) -> Vec<PlanFinding> {
    let rule = "priority-ladder";
    let relief = relief(context);
    let mut findings = Vec::new();
    for each in context.domains() {
        let domain = each.planned;
        let highest = policies(domain)
            .into_iter()
            .max_by_key(|policy| precedence(*policy));
        let Some(policy) = highest.filter(|policy| policy.is_real_time()) else {
            continue;
        };
        let Some(threads) = &context.environment.kernel_threads else {
            findings.push(
                about(
                    rule,
                    domain,
                    Severity::Note,
                    "the priorities of the kernel's own threads are not known, so whether they starve is neither",
                )
                .values(
                    format!("domain at {policy}"),
                    "a priority below rcuc, ksoftirqd and ktimers",
                )
                .fix("run it outside of containers, where /proc shows the kernel's threads"),
            );
            continue;
        };
        let below: Vec<&KernelThread> = threads
            .iter()
            .filter(|thread| each.resolved.cpus.contains(thread.cpu))
            .filter(|thread| {
                VitalThread::of(&thread.name).is_some_and(|kind| {
                    level(context, kind.knob, thread.policy) <= precedence(policy)
                })
            })
            .collect();
        // The one that is worst off: without relief any, else one that the relief does not reach.
        let starving = below
            .iter()
            .find(|thread| thread.policy != SchedulingPolicy::Other)
            .or(below.first());
        let Some(thread) = starving else {
            continue;
        };
        let severity = match relief {
            Relief::All => continue,
            Relief::TimeSharing if thread.policy == SchedulingPolicy::Other => continue,
            Relief::TimeSharing => Severity::Warning,
            Relief::None => Severity::Error,
        };
        findings.push(
            about(rule, domain, severity, "the kernel's own threads on its CPUs wait while it runs; if it never sleeps, the machine stops")
                .values(
                    format!("{policy} over {} at {} on CPU {}", thread.name, thread.policy, thread.cpu),
                    "a priority below theirs, or stalld",
                )
                .fix(format!(
                    "write {} = {{ action = \"apply\", value = \"{}\" }} in [host], lower the domain's priority, run stalld, whose boosts then interrupt the domain, or waive the rule if the domain sleeps in every period",
                    VitalThread::of(&thread.name).map_or("rcuc-priority", |kind| kind.knob),
                    precedence(policy).saturating_add(1).min(99)
                )),
        );
    }
    findings
}
