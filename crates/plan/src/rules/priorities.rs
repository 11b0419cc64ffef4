// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Priorities: the kernel's own threads on a real-time CPU must get to run.

use rampart_model::{KernelThread, Nanos, PlanFinding, SchedulingPolicy, Severity};

use super::{Context, Say, about};
use crate::resolve::{policies, precedence};

/// Threads without which a CPU stops: callbacks of RCU, soft interrupts, timers.
const VITAL: [&str; 4] = ["rcuc/", "ksoftirqd/", "ktimers/", "ktimersoftd/"];

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
        .surroundings
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
    if (throttled && !context.applies("real-time-throttling"))
        || (fair && !context.applies("fair-server"))
    {
        Relief::TimeSharing
    } else {
        Relief::None
    }
}

/// The priority that the plan gives the kernel's threads, where it does.
fn raised(context: &Context<'_>) -> Option<u8> {
    let knob = context.plan.host.get("kernel-thread-priorities")?;
    (knob.action != rampart_model::KnobAction::Skip)
        .then(|| knob.value.as_ref()?.parse().ok())
        .flatten()
}

pub(super) fn ladder(context: &Context<'_>) -> Vec<PlanFinding> {
    let rule = "priority-ladder";
    let relief = relief(context);
    let raised = raised(context);
    let mut findings = Vec::new();
    for each in context.domains() {
        let domain = each.planned;
        let highest = policies(domain)
            .into_iter()
            .max_by_key(|policy| precedence(*policy));
        let Some(policy) = highest.filter(|policy| policy.is_real_time()) else {
            continue;
        };
        let Some(threads) = &context.surroundings.kernel_threads else {
            findings.push(
                about(rule, domain, Severity::Note, "the priorities of the kernel's own threads are not known, so whether they starve is neither")
                    .values(format!("domain at {policy}"), "a priority below rcuc, ksoftirqd and ktimers"),
            );
            continue;
        };
        let level = |thread: &KernelThread| {
            raised.map_or_else(
                || precedence(thread.policy),
                |value| value.max(precedence(thread.policy)),
            )
        };
        let below: Vec<&KernelThread> = threads
            .iter()
            .filter(|thread| each.resolved.cpus.contains(thread.cpu))
            .filter(|thread| VITAL.iter().any(|name| thread.name.starts_with(name)))
            .filter(|thread| level(thread) <= precedence(policy))
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
            Relief::None => Severity::Problem,
        };
        findings.push(
            about(rule, domain, severity, "the kernel's own threads on its CPUs wait while it runs; if it never sleeps, the machine stops")
                .values(
                    format!("{policy} over {} at {} on CPU {}", thread.name, thread.policy, thread.cpu),
                    "a priority below theirs, or stalld",
                )
                .mend(format!(
                    "raise them with `chrt -f -p {} PID`, lower the domain's priority, run stalld, or waive the rule if the domain sleeps in every period",
                    precedence(policy).saturating_add(1).min(99)
                )),
        );
    }
    findings
}
