// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compares two observations of a machine: drift from its active plan, colocations that cause
//! latency, and unwanted activity on real-time CPUs. The rules are in `rampart-rules`.
//!
//! **Invariant:** this crate is pure: it does no IO and reads no clock.

#![forbid(unsafe_code)]

mod comparison;
mod cpus;
mod domains;
#[cfg(test)]
mod example_plan;
mod latency;
mod metrics;
#[cfg(test)]
mod tests;
mod totals;
mod view;

use rampart_model::{
    ActivePlan, Observation, STATUS_SCHEMA_VERSION, Status, StatusDivision, StatusPlan,
};
use rampart_rules::{check_state, real_time_cpus};

use comparison::compare;

pub use latency::{CpuLatency, Latencies};
pub use metrics::{
    CLASSIC_CONTENT_TYPE, OPEN_METRICS_CONTENT_TYPE, classic, open_metrics, open_metrics_once,
};
pub use totals::Totals;
pub use view::{Key, Shown, View, draw};

/// The observer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatusObserver<'a> {
    /// Version of the tool, written to the document.
    pub tool_version: &'a str,
    /// The observing process. It and its descendants are not unwanted activity.
    pub process: Option<u32>,
}

/// Returns the state of a machine between two observations, compared with the active plan, or with the
/// isolation that its settings intend if no plan is active.
#[must_use]
pub fn status(
    plan: Option<&ActivePlan>,
    earlier: &Observation,
    later: &Observation,
    observer: StatusObserver<'_>,
) -> Status {
    let comparison = compare(plan, earlier, later, observer.process);
    let cpus = cpus::all(&comparison);
    let findings = check_state(&comparison, &cpus);
    Status {
        schema_version: STATUS_SCHEMA_VERSION,
        tool_version: observer.tool_version.to_owned(),
        host_name: later.host_name.clone(),
        interval: comparison.interval(),
        isolation: later.isolation.clone(),
        division: match plan {
            Some(_) => None,
            None => real_time_cpus(&later.isolation.sources, &later.online).map(|found| {
                StatusDivision {
                    chosen_by: found.words(),
                    real_time: comparison.real_time.clone(),
                    housekeeping: comparison.housekeeping.clone(),
                }
            }),
        },
        domains: plan
            .map(|plan| domains::all(&comparison, plan, &findings))
            .unwrap_or_default(),
        plan: plan.map(|plan| StatusPlan {
            file: plan.file.clone(),
            state: plan.state,
            applied_at: plan.applied_at,
            fingerprint: plan.resolved.fingerprint.clone(),
            housekeeping: plan.resolved.housekeeping.clone(),
            real_time: plan.resolved.real_time.clone(),
            not_effective: plan.findings.clone(),
        }),
        cpus,
        findings,
    }
}
