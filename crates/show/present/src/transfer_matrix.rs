// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The transfer matrix: disturbances, measured domains, and the entries that are controls instead of
//! verdicts.

use rampart_model::{Disturbance, Evaluation, Question, Side, Verdict, VerdictOutcome};

/// Returns every disturbance that was planned, made or judged: blocks first, then each load, each
/// in the order of the plan's domains.
pub(crate) fn disturbances(evaluation: &Evaluation) -> Vec<&Disturbance> {
    let planned = evaluation.settings.transfer.iter();
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
        let domains = &evaluation.settings.domains;
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
    let plan = &evaluation.settings.domains;
    let position = |name: &str| plan.iter().position(|domain| domain.name == name);
    all.sort_by_key(|name| (position(name).unwrap_or(plan.len()), *name));
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
/// the positive control: a block without an effect in its own domain proves nothing elsewhere.
pub(crate) fn is_own(verdict: &Verdict) -> bool {
    let by = verdict.disturbance.as_ref();
    by.is_some_and(|by| by.domain == verdict.domain && by.side == Side::Inside)
}

/// Returns whether a block affected the watched domain: the verdict on its transfer is a leak. Loads
/// do not count, because they are no control.
pub(crate) fn is_affected(verdict: &Verdict) -> bool {
    verdict.question == Question::Transfer && verdict.outcome == VerdictOutcome::Leaks
}

/// Returns whether the verdict is a positive control.
pub(crate) fn is_control(verdict: &Verdict) -> bool {
    verdict.question == Question::Transfer && is_own(verdict)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transfers() -> Evaluation {
        let text = include_str!("../tests/documents/transfers.json");
        serde_json::from_str(text).expect("an evaluation")
    }

    #[test]
    fn orders_blocks_before_loads_and_both_by_the_plan() {
        let evaluation = transfers();
        let names = disturbances(&evaluation)
            .into_iter()
            .map(ToString::to_string);
        let domains = ["host", "task", "container", "vm"];
        let mut expected = domains.map(|domain| format!("block:{domain}")).to_vec();
        expected.push("block:under:vm".to_owned());
        for load in ["cpu", "cache"] {
            expected.extend(domains.map(|domain| format!("{load}:{domain}")));
        }
        assert_eq!(names.collect::<Vec<_>>(), expected);
        assert_eq!(watched(&evaluation), domains);
    }

    #[test]
    fn lists_watched_domains_that_the_plan_does_not_name() {
        let mut evaluation = transfers();
        "other".clone_into(&mut evaluation.transfers[0].watched[0].domain);
        assert_eq!(watched(&evaluation).last(), Some(&"other"));
    }

    #[test]
    fn only_a_block_inside_the_domain_is_its_control() {
        let evaluation = transfers();
        let of = |by: &str, domain: &str| {
            let by = by.parse().expect(by);
            verdict(&evaluation, &by, domain)
                .expect("a verdict")
                .clone()
        };
        assert!(is_control(&of("block:vm", "vm")) && is_affected(&of("block:vm", "vm")));
        assert!(!is_own(&of("block:under:vm", "vm")));
        assert!(!is_own(&of("block:vm", "host")));
        let load = of("cache:task", "task");
        assert!(is_own(&load) && !is_control(&load) && !is_affected(&load));
    }
}
