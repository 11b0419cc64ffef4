// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The transfer matrix: who was disturbed by what, who was watched, and which entries are controls
//! instead of verdicts.

use rampart_model::{Disturbance, Evaluation, Question, Side, Verdict, VerdictOutcome};

/// Returns every disturbance that was planned, made or judged: blocks first, then each load, each
/// in the order of the plan's domains.
pub(crate) fn disturbances(evaluation: &Evaluation) -> Vec<&Disturbance> {
    let planned = evaluation.plan.transfer.iter();
    let planned = planned.flat_map(|plan| plan.groups.iter().flat_map(|group| &group.disturbances));
    let made = evaluation
        .transfers
        .iter()
        .filter_map(|round| round.disturbance.as_ref());
    let judged = evaluation
        .verdicts
        .iter()
        .filter_map(|verdict| verdict.disturbance.as_ref());
    let mut all: Vec<&Disturbance> = Vec::new();
    for disturbance in planned.chain(made).chain(judged) {
        if !all.contains(&disturbance) {
            all.push(disturbance);
        }
    }
    let location = |name: &str| {
        let domains = &evaluation.plan.domains;
        domains
            .iter()
            .position(|domain| domain.name == name)
            .unwrap_or(domains.len())
    };
    all.sort_by_key(|of| (of.kind, of.side, location(&of.domain)));
    all
}

/// Returns every domain that was watched: those of the plan in its order, then any other.
pub(crate) fn watched(evaluation: &Evaluation) -> Vec<&str> {
    let rounds = evaluation.transfers.iter().flat_map(|round| &round.watched);
    let judged = evaluation
        .verdicts
        .iter()
        .filter(|of| of.disturbance.is_some());
    let mut all: Vec<&str> = rounds
        .map(|watched| watched.domain.as_str())
        .chain(judged.map(|verdict| verdict.domain.as_str()))
        .collect();
    let plan = &evaluation.plan.domains;
    let place = |name: &str| plan.iter().position(|domain| domain.name == name);
    all.sort_by_key(|name| (place(name).unwrap_or(plan.len()), *name));
    all.dedup();
    all
}

/// Returns the verdict on a watched domain under a disturbance.
pub(crate) fn verdict<'a>(
    evaluation: &'a Evaluation,
    disturbance: &Disturbance,
    domain: &str,
) -> Option<&'a Verdict> {
    evaluation.verdicts.iter().find(|verdict| {
        verdict.domain == domain && verdict.disturbance.as_ref() == Some(disturbance)
    })
}

/// Returns whether a domain was watched under its own disturbance, from inside. Of a block this is
/// the positive control: a block that is not felt where it is made proves nothing elsewhere.
pub(crate) fn is_own(verdict: &Verdict) -> bool {
    let by = verdict.disturbance.as_ref();
    by.is_some_and(|by| by.domain == verdict.domain && by.side == Side::Inside)
}

/// Returns whether a block was felt in the watched domain: the verdict on its transfer is a leak.
/// A load is never felt in this sense, because it is no control.
pub(crate) fn is_felt(verdict: &Verdict) -> bool {
    verdict.question == Question::Transfer && verdict.outcome == VerdictOutcome::Leaks
}

/// Returns whether the verdict is a positive control.
pub(crate) fn is_control(verdict: &Verdict) -> bool {
    verdict.question == Question::Transfer && is_own(verdict)
}
