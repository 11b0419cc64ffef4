// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The matrix of walls as the renderings share it: who was disturbed by what, who was watched,
//! and which cells are no wall at all.

use rampart_model::{Disturbance, Evaluation, Question, Side, Verdict, VerdictOutcome};

/// Every disturbance that was planned, made or judged: blocks first, then each load, each in the
/// order of the plan's domains.
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

/// Every domain that was watched, in the order of the plan.
pub(crate) fn watched(evaluation: &Evaluation) -> Vec<&str> {
    let seen = |name: &str| {
        let rounds = evaluation.transfers.iter().flat_map(|round| &round.watched);
        rounds.map(|of| of.domain.as_str()).any(|of| of == name)
            || evaluation
                .verdicts
                .iter()
                .any(|verdict| verdict.disturbance.is_some() && verdict.domain == name)
    };
    let domains = evaluation
        .plan
        .domains
        .iter()
        .map(|domain| domain.name.as_str());
    domains.filter(|name| seen(name)).collect()
}

/// The verdict on one domain while this was done to that one.
pub(crate) fn verdict<'a>(
    evaluation: &'a Evaluation,
    disturbance: &Disturbance,
    domain: &str,
) -> Option<&'a Verdict> {
    evaluation.verdicts.iter().find(|verdict| {
        verdict.domain == domain && verdict.disturbance.as_ref() == Some(disturbance)
    })
}

/// Whether this is no wall but the domain's own disturbance, from inside. Of a block it is the
/// positive control: a block that is not felt where it is made proves nothing elsewhere.
pub(crate) fn is_own(verdict: &Verdict) -> bool {
    let by = verdict.disturbance.as_ref();
    by.is_some_and(|by| by.domain == verdict.domain && by.side == Side::Inside)
}

/// Of a positive control: whether the block was felt there, as the verdict says.
pub(crate) fn is_felt(verdict: &Verdict) -> bool {
    verdict.outcome == VerdictOutcome::Leaks
}

/// Whether the verdict is a positive control.
pub(crate) fn is_control(verdict: &Verdict) -> bool {
    verdict.question == Question::Transfer && is_own(verdict)
}
