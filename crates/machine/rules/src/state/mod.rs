// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rules of states: the machine as it is now, compared with its active plan, or with the isolation
//! that its settings intend if no plan is active.

mod caches;
mod colocation;
mod comparison;
mod drift;
mod interrupts;
mod pile_up;
mod threads;
mod unwanted_activity;

use rampart_model::{CpuStatus, ObservedThread, Severity, StatusFinding, StatusSubject};

use crate::{Rule, RuleBook};

pub use comparison::StateComparison;
pub use threads::supervisor_gone;

/// A rule of states with its subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StateRule {
    /// The rule.
    pub rule: Rule,
    /// The subject of its findings.
    pub subject: StatusSubject,
    /// Whether a finding means that the domain's isolation is not in effect.
    pub breaks_isolation: bool,
}

/// Defaults of the rules of states.
const STATE_RULE: Rule = Rule {
    id: "",
    book: RuleBook::State,
    severity: Severity::Error,
    title: "",
    reason: "",
    source: "Rampart",
    waivable: false,
};

impl StateRule {
    const fn drift(rule: Rule) -> Self {
        Self {
            rule,
            subject: StatusSubject::Drift,
            breaks_isolation: false,
        }
    }

    const fn isolation(rule: Rule) -> Self {
        Self {
            rule,
            subject: StatusSubject::Drift,
            breaks_isolation: true,
        }
    }

    const fn colocation(rule: Rule) -> Self {
        Self {
            rule,
            subject: StatusSubject::Colocation,
            breaks_isolation: false,
        }
    }

    const fn unwanted_activity(rule: Rule) -> Self {
        Self {
            rule,
            subject: StatusSubject::UnwantedActivity,
            breaks_isolation: false,
        }
    }

    /// Returns a finding of this rule.
    fn finding(
        &self,
        domain: Option<&str>,
        location: impl Into<String>,
        what: impl Into<String>,
    ) -> StatusFinding {
        StatusFinding {
            subject: self.subject,
            domain: domain.map(str::to_owned),
            finding: self.rule.finding(location, what),
        }
    }
}

/// The rules of states, in the order of their checks.
pub const STATE_RULES: [StateRule; 28] = [
    drift::PLAN_INCOMPLETE,
    drift::KERNEL_RESTARTED,
    drift::PLAN_EDITED,
    drift::DOMAIN_CPU_OFFLINE,
    drift::GROUP_GONE,
    drift::GROUP_CPUS,
    drift::PARTITION_INVALID,
    drift::VALUE_CHANGED,
    caches::CACHE_WAYS_SHARED,
    interrupts::INTERRUPT_MOVED,
    threads::THREAD_CPU,
    threads::THREAD_POLICY,
    threads::PROGRAM_GONE,
    threads::SUPERVISOR_GONE,
    colocation::FOREIGN_REAL_TIME,
    colocation::KERNEL_THREAD_STARVED,
    colocation::SPINNING_THREAD,
    colocation::UNBOUND_WORK,
    pile_up::THREADS_PILE_UP,
    colocation::BUSY_SIBLINGS,
    colocation::HOUSEKEEPING_OVERLOADED,
    unwanted_activity::PROCESS,
    unwanted_activity::INTERRUPT,
    interrupts::INTERRUPT_ROUTED,
    unwanted_activity::KERNEL_THREAD,
    unwanted_activity::CPU_THREAD,
    unwanted_activity::SOFTIRQ,
    unwanted_activity::CROSS_CALL,
];

/// Returns the rule of states with this id.
#[must_use]
pub fn state_rule(id: &str) -> Option<StateRule> {
    STATE_RULES.into_iter().find(|rule| rule.rule.id == id)
}

/// Returns all findings about a machine, the most severe first.
#[must_use]
pub fn check_state(comparison: &StateComparison<'_>, cpus: &[CpuStatus]) -> Vec<StatusFinding> {
    let mut findings = Vec::new();
    match comparison.plan {
        Some(plan) => {
            drift::check(comparison, plan, &mut findings);
            threads::check(comparison, plan, &mut findings);
        }
        // With a plan, interrupts that moved are drift.
        None => interrupts::routed(comparison, &mut findings),
    }
    colocation::check(comparison, cpus, &mut findings);
    pile_up::check(comparison, cpus, &mut findings);
    unwanted_activity::check(comparison, cpus, &mut findings);
    // The sort is stable and keeps the order of the checks within one severity.
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.finding.severity));
    findings
}

/// Returns the name of a thread with its number.
fn named(thread: &ObservedThread) -> String {
    format!("{} ({})", thread.name, thread.thread)
}

/// Returns one command for each item, all on one line; at most as many as [`first_few`] names.
fn commands(items: impl IntoIterator<Item = String>) -> String {
    let commands: Vec<String> = items.into_iter().take(SHOWN).collect();
    commands.join(" && ")
}

/// Number of items that a finding names.
const SHOWN: usize = 4;

/// Returns the first few names, and the number of the others.
fn first_few(names: &[String]) -> String {
    let shown: Vec<&str> = names.iter().take(SHOWN).map(String::as_str).collect();
    match names.len().saturating_sub(SHOWN) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}
