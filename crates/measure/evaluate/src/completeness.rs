// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether everything that was planned was measured. Pure.

use rampart_model::{
    Disturbance, Evaluation, EvaluationState, Finding, TransferGroup, TransferRecord,
};

use crate::document_updates::{id_in_variant, record_id};

/// Whether an evaluation came to its end with a valid run of each entry of its matrix, and with a
/// valid round for each domain of each group, quiet and under each disturbance. What failed once
/// and was made again with success is complete.
#[must_use]
pub fn is_complete(evaluation: &Evaluation) -> bool {
    evaluation.state == EvaluationState::Complete && missing(evaluation).is_empty()
}

/// Something that was planned and that no valid run or round measured.
#[derive(Debug)]
pub(crate) struct Missing {
    /// `record DOMAIN/METER/CONDITION`, or `round DISTURBANCE/GROUP in DOMAIN, DOMAIN`.
    pub(crate) what: String,
    /// The domains of which it is missing, each as its failures are counted: in each leg by itself
    /// ([`id_in_variant`]).
    domains: Vec<String>,
    /// Why what was made of it does not count.
    pub(crate) reasons: Vec<Finding>,
    /// Those of the domains of which nothing was made.
    pub(crate) unexplained: Vec<String>,
}

impl Missing {
    /// Whether it is missing of this domain.
    pub(crate) fn is_of(&self, domain: &str) -> bool {
        self.domains.iter().any(|one| one == domain)
    }
}

/// Everything that was planned and not measured: entries of the matrix, then rounds.
pub(crate) fn missing(evaluation: &Evaluation) -> Vec<Missing> {
    let mut missing = missing_entries(evaluation);
    let plan = evaluation.plan.transfer.iter();
    for (number, group) in plan.flat_map(|plan| &plan.groups).enumerate() {
        missing.extend(missing_round(evaluation, number, group, None));
        for (location, disturbance) in group.disturbances.iter().enumerate() {
            // A load is planned several times, and once is enough.
            if !group.disturbances[..location].contains(disturbance) {
                missing.extend(missing_round(evaluation, number, group, Some(disturbance)));
            }
        }
    }
    missing
}

/// Cells of the matrix, and of each leg that is compared with the whole plan.
fn missing_entries(evaluation: &Evaluation) -> Vec<Missing> {
    let plan = &evaluation.plan;
    let mut missing = Vec::new();
    for variant in 0..plan.variants.len().max(1) {
        for domain in &plan.domains {
            let measuring = plan
                .meters
                .iter()
                .filter(|meter| meter.meter.measures_in(&domain.selection));
            for meter in measuring {
                for condition in &plan.conditions {
                    let entry = record_id(domain, meter, *condition);
                    let domain = id_in_variant(plan.variants.get(variant), domain.name.clone());
                    missing.extend(missing_entry(evaluation, variant, entry, domain));
                }
            }
        }
    }
    missing
}

fn missing_entry(
    evaluation: &Evaluation,
    variant: usize,
    entry: String,
    domain: String,
) -> Option<Missing> {
    let id = id_in_variant(evaluation.plan.variants.get(variant), entry);
    let others = evaluation.plan_effects.iter().flat_map(|all| &all.records);
    let record = evaluation
        .records
        .iter()
        .chain(others.map(|one| &one.record))
        .find(|record| record.id == id);
    if record.is_some_and(|record| record.exposure.runs > 0) {
        return None;
    }
    let runs = record.iter().flat_map(|record| &record.runs);
    let reasons: Vec<Finding> = runs.flat_map(|run| run.invalid.clone()).collect();
    let name = vec![domain];
    Some(Missing {
        what: format!("record {id}"),
        unexplained: if reasons.is_empty() {
            name.clone()
        } else {
            Vec::new()
        },
        domains: name,
        reasons,
    })
}

/// The domains that no valid round of this disturbance watched; none where all were.
fn missing_round(
    evaluation: &Evaluation,
    number: usize,
    group: &TransferGroup,
    disturbance: Option<&Disturbance>,
) -> Option<Missing> {
    let rounds: Vec<&TransferRecord> = evaluation
        .transfers
        .iter()
        .filter(|round| round.group as usize == number && round.disturbance.as_ref() == disturbance)
        .collect();
    let domains: Vec<String> = group
        .participants
        .iter()
        .map(|participant| participant.domain.clone())
        .filter(|domain| !rounds.iter().any(|round| watches(round, domain)))
        .collect();
    if domains.is_empty() {
        return None;
    }
    let mut reasons: Vec<Finding> = Vec::new();
    let mut add = |why: &Finding| {
        if !reasons.contains(why) {
            reasons.push(why.clone());
        }
    };
    let mut unexplained = domains.clone();
    for round in rounds {
        round.invalid.iter().for_each(&mut add);
        for watched in &round.watched {
            if domains.contains(&watched.domain) {
                watched.invalid.iter().for_each(&mut add);
            }
        }
        let explains = |domain: &String| {
            let mut watched = round.watched.iter();
            !round.invalid.is_empty()
                || watched.any(|one| one.domain == *domain && !one.invalid.is_empty())
        };
        unexplained.retain(|domain| !explains(domain));
    }
    let by = disturbance.map_or_else(|| "quiet".to_owned(), ToString::to_string);
    Some(Missing {
        what: format!("round {by}/{number} in {}", domains.join(", ")),
        domains,
        reasons,
        unexplained,
    })
}

/// Whether a round counts, and the part of this domain on all its CPUs.
fn watches(round: &TransferRecord, domain: &str) -> bool {
    let of_it = |watched: &&rampart_model::Watched| watched.domain == domain;
    let mut watched = round.watched.iter().filter(of_it).peekable();
    round.invalid.is_empty()
        && watched.peek().is_some()
        && watched.all(|watched| watched.invalid.is_empty())
}

#[cfg(test)]
mod tests {
    use rampart_model::{PlanVariant, VariantSettings};

    use super::*;

    /// What a made-up evaluation on a simulated machine holds, as the page is tested with.
    fn walls() -> Evaluation {
        let text = include_str!("../../../show/present/tests/documents/transfers.json");
        let mut evaluation: Evaluation = serde_json::from_str(text).expect("an evaluation");
        for round in &mut evaluation.transfers {
            round.invalid.clear();
        }
        evaluation.state = EvaluationState::Complete;
        evaluation
    }

    fn why() -> rampart_model::Finding {
        rampart_model::Finding::new(rampart_model::Severity::Error, "x", "it did not answer")
    }

    #[test]
    fn what_failed_once_and_was_made_again_is_complete() {
        let mut evaluation = walls();
        assert!(is_complete(&evaluation));
        let location = evaluation
            .transfers
            .iter()
            .position(|round| round.disturbance.is_some())
            .expect("a disturbance");
        let sound = evaluation.transfers[location].clone();
        evaluation.transfers[location].invalid = vec![why()];
        assert!(!is_complete(&evaluation), "none counts");
        let mut partly = sound.clone();
        partly.watched[1].invalid = vec![why()];
        evaluation.transfers.push(partly);
        assert!(!is_complete(&evaluation), "one domain is missing");
        evaluation.transfers.push(sound);
        assert!(is_complete(&evaluation), "the repeat counts");
    }

    #[test]
    fn an_entry_without_a_valid_run_is_missing() {
        let mut evaluation = walls();
        let failed = evaluation.records[0].runs[0].clone();
        evaluation.records[0].runs.push(rampart_model::Run {
            invalid: vec![why()],
            ..failed
        });
        assert!(is_complete(&evaluation), "one run of several");
        evaluation.records[0].exposure.runs = 0;
        assert!(!is_complete(&evaluation));
        let mut ended = walls();
        ended.state = EvaluationState::EndedEarly;
        assert!(!is_complete(&ended));
    }
    #[test]
    fn each_leg_is_missing_by_itself() {
        let mut evaluation = walls();
        for variant in [PlanVariant::After, PlanVariant::Before] {
            evaluation
                .plan
                .variants
                .push(VariantSettings { variant, visits: 1 });
        }
        let missing = missing(&evaluation);
        let host = &evaluation.plan.domains[0].name;
        let is_of = |domain: &str| missing.iter().any(|one| one.is_of(domain));
        assert!(is_of(&format!("before/{host}")), "{missing:?}");
        assert!(!is_of(host), "{missing:?}");
    }
}
