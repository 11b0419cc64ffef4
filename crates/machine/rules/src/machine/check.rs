// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compares one machine with the whole catalogue.

use std::collections::BTreeMap;

use rampart_model::{
    CHECK_SCHEMA_VERSION, Check, CheckCounts, CheckFinding, CheckState, CheckedMachine, CpuSet,
    DetachDriver, Machine, NotRead, Severity,
};

use crate::changes::is_set_by_plan;
use crate::entry::{choice, effect};
use crate::machine::assess::assess;
use crate::machine::compare::expected_text;
use crate::machine::facts::Judgement;
use crate::machine::fix::fix;
use crate::machine::harm::harm_order;
use crate::{Expected, Isolation, Knob, Readings, Unread};

/// A machine and the values read from it.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    /// The machine.
    pub machine: &'a Machine,
    /// The values at the locations of the catalogue.
    pub readings: &'a Readings,
}

impl Subject<'_> {
    /// Returns the division of this machine into these CPUs and all others, without a plan.
    #[must_use]
    pub fn isolation(&self, real_time: CpuSet) -> Isolation {
        Isolation {
            housekeeping: self.machine.topology.online.difference(&real_time),
            has_guests: self.readings.hosts_guests,
            real_time,
            ..Isolation::default()
        }
    }
}

/// Compares a machine with the catalogue. `chosen_by` describes how the CPUs were chosen.
#[must_use]
pub fn check(
    subject: Subject<'_>,
    isolation: &Isolation,
    chosen_by: &str,
    detach_driver: Option<DetachDriver>,
    tool_version: &str,
) -> Check {
    let mut unread: BTreeMap<Unread, Vec<String>> = BTreeMap::new();
    let mut findings: Vec<CheckFinding> = crate::all()
        .map(|knob| finding(knob, &subject, isolation, &mut unread))
        .collect();
    // Stable: within a state the order of the catalogue stays, which is by group.
    findings.sort_by_key(|finding| finding.state);
    let mut counts = CheckCounts::default();
    for finding in &findings {
        *match finding.state {
            CheckState::Error => &mut counts.errors,
            CheckState::Warning => &mut counts.warnings,
            CheckState::Ok => &mut counts.ok,
            CheckState::Informational => &mut counts.informational,
            CheckState::NotRead => &mut counts.not_read,
            CheckState::NotApplicable => &mut counts.not_applicable,
        } += 1;
    }
    let machine = subject.machine;
    Check {
        schema_version: CHECK_SCHEMA_VERSION,
        tool_version: tool_version.to_owned(),
        machine: CheckedMachine {
            host_name: machine.host_name.clone(),
            processor: machine.processor.clone(),
            online: machine.topology.online.clone(),
            architecture: machine.architecture.clone(),
            distribution: machine.distribution.clone(),
            kernel_release: machine.kernel_release.clone(),
            preemption: machine.preemption,
            hypervisor: machine.virtualisation.hypervisor.clone(),
        },
        real_time: isolation.real_time.clone(),
        housekeeping: isolation.housekeeping.clone(),
        chosen_by: chosen_by.to_owned(),
        counts,
        first: first(&findings),
        findings,
        not_read: unread
            .into_iter()
            .map(|(why, knobs)| {
                let (why, fix) = why.words();
                NotRead {
                    why: why.to_owned(),
                    fix: fix.to_owned(),
                    rules: knobs,
                }
            })
            .collect(),
        detached: crate::detach_problems(machine, detach_driver),
    }
}

/// Number of deviations that a check shows before all others.
const FIRST: usize = 3;

/// Returns the rules of the deviations that matter most: errors before warnings, then by the latency that they can cause.
fn first(findings: &[CheckFinding]) -> Vec<String> {
    let deviates =
        |finding: &&CheckFinding| matches!(finding.state, CheckState::Error | CheckState::Warning);
    let mut all: Vec<&CheckFinding> = findings.iter().filter(deviates).collect();
    all.sort_by_key(|finding| (finding.state, harm_order(Some(&finding.rule))));
    let all = all.iter().take(FIRST);
    all.map(|finding| finding.rule.clone()).collect()
}

fn finding(
    knob: &Knob,
    subject: &Subject<'_>,
    isolation: &Isolation,
    unread: &mut BTreeMap<Unread, Vec<String>>,
) -> CheckFinding {
    let expected = knob.expected_by(isolation);
    let mut finding = CheckFinding {
        rule: knob.name.to_owned(),
        title: knob.title.to_owned(),
        group: knob.group,
        state: CheckState::NotApplicable,
        found: String::new(),
        expected: expected_text(expected, Some(isolation)),
        locations: Vec::new(),
        reason: knob.reason.to_owned(),
        fix: None,
        by_plan: false,
        effect: effect(knob),
        disruptive: knob.disruptive.map(str::to_owned),
        cost: knob.cost.to_owned(),
        source: knob.source.to_owned(),
        choices: knob
            .choices
            .iter()
            .map(|one| choice(one, Some(isolation)))
            .collect(),
    };
    match assess(knob, subject, isolation) {
        Judgement::NotApplicable(why) => finding.reason = why,
        Judgement::Unread(why) => {
            finding.state = CheckState::NotRead;
            unread.entry(why).or_default().push(knob.name.to_owned());
        }
        Judgement::Is {
            found,
            satisfied,
            locations,
        } => {
            finding.found = found;
            // An informational choice overrules a fact that judges.
            let satisfied = satisfied.filter(|_| expected != Expected::Informational);
            finding.state = match satisfied {
                Some(true) => CheckState::Ok,
                Some(false) if knob.severity == Severity::Error => CheckState::Error,
                Some(false) => CheckState::Warning,
                None => CheckState::Informational,
            };
            if satisfied == Some(false) {
                finding.fix = fix(knob, expected, &locations, subject, isolation);
                finding.by_plan = is_set_by_plan(knob, expected, subject, isolation);
            }
            finding.locations = locations;
        }
    }
    finding
}
