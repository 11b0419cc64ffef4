// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compares the active plan applied with what a machine does now: drift from the plan,
//! colocations that hurt, and what came to real-time CPUs without being of their domain.
//!
//! **Invariant:** this crate is pure. It reads no file, asks no clock and starts nothing: a
//! [`ActivePlan`] and two [`Observation`]s go in, a [`Status`] comes out; a status goes in, a
//! text comes out.

#![forbid(unsafe_code)]

mod caches;
mod colocation;
mod cpus;
mod domains;
mod drift;
mod interrupts;
mod latency;
mod members;
mod metrics;
mod seen;
#[cfg(test)]
mod support;
#[cfg(test)]
mod tests;
mod text;
mod totals;
mod unwanted_activity;
mod view;

use rampart_model::{
    ActivePlan, Observation, STATUS_SCHEMA_VERSION, Status, StatusFinding, StatusFindingKind,
    StatusPlan,
};

pub use latency::{CpuLatency, Latencies};
pub use metrics::{CLASSIC_CONTENT_TYPE, OPEN_METRICS_CONTENT_TYPE, classic, open_metrics};
pub use text::{TextOptions, terminal};
pub use totals::Totals;
pub use view::{Key, Shown, View, draw};

use seen::Seen;

/// Who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asker<'a> {
    /// Version of the tool, for the document.
    pub tool_version: &'a str,
    /// The process that asks: it and what it started are no noise sources.
    pub process: Option<u32>,
}

/// What is true between two observations of one machine, against the active plan.
#[must_use]
pub fn status(
    plan: Option<&ActivePlan>,
    earlier: &Observation,
    later: &Observation,
    asker: Asker<'_>,
) -> Status {
    let seen = Seen::new(plan, earlier, later, asker.process);
    let cpus = cpus::of(&seen);
    let mut findings = Vec::new();
    if let Some(plan) = plan {
        drift::find(&seen, plan, &mut findings);
        members::find(&seen, plan, &mut findings);
        colocation::find(&seen, plan, &cpus, &mut findings);
        unwanted_activity::find(plan, &cpus, &mut findings);
    }
    // Stable: within one severity the order of the search stays.
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.finding.severity));
    Status {
        schema_version: STATUS_SCHEMA_VERSION,
        tool_version: asker.tool_version.to_owned(),
        host_name: later.host_name.clone(),
        interval: seen.interval(),
        isolation: later.isolation.clone(),
        domains: plan
            .map(|plan| domains::of(&seen, plan, &findings))
            .unwrap_or_default(),
        plan: plan.map(|plan| StatusPlan {
            file: plan.file.clone(),
            state: plan.state,
            applied_at: plan.applied_at,
            fingerprint: plan.resolved.fingerprint.clone(),
            housekeeping: plan.resolved.housekeeping.clone(),
            real_time: plan.resolved.real_time.clone(),
            not_granted: plan.findings.clone(),
        }),
        cpus,
        findings,
    }
}

fn finding(
    kind: StatusFindingKind,
    domain: Option<&str>,
    finding: rampart_model::Finding,
) -> StatusFinding {
    StatusFinding {
        kind,
        domain: domain.map(str::to_owned),
        finding,
    }
}

/// The first few of many, and how many more there are.
fn some_of(names: &[String]) -> String {
    const SHOWN: usize = 4;
    let shown: Vec<&str> = names.iter().take(SHOWN).map(String::as_str).collect();
    match names.len().saturating_sub(SHOWN) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}
