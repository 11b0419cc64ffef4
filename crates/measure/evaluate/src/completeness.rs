// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Checks whether everything that was planned was measured. Pure.

use rampart_model::{
    Disturbance, Evaluation, EvaluationPart, EvaluationState, Finding, TransferGroup,
    TransferRecord,
};

use crate::document_updates::{id_in_variant, record_id};

/// Returns whether an evaluation ended with a valid run of each entry of its matrix, and with a
/// valid round for each domain of each group, quiet and under each disturbance. A failed run or
/// round does not count as missing if it was repeated successfully.
#[must_use]
pub fn is_complete(evaluation: &Evaluation) -> bool {
    evaluation.state == EvaluationState::Complete && missing(evaluation).is_empty()
}

/// A planned record or round without a valid run.
#[derive(Debug)]
pub(crate) struct Missing {
    pub(crate) part: EvaluationPart,
    /// The domains for which it is missing, named as in the failure counts: per variant
    /// ([`id_in_variant`]).
    domains: Vec<String>,
    /// Why the runs or rounds that were made do not count.
    pub(crate) reasons: Vec<Finding>,
    /// The domains for which nothing was made.
    pub(crate) unexplained: Vec<String>,
}

impl Missing {
    /// Returns whether it is missing for this domain.
    pub(crate) fn is_of(&self, domain: &str) -> bool {
        self.domains.iter().any(|one| one == domain)
    }
}

/// Returns everything that was planned and not measured: entries of the matrix, then rounds.
pub(crate) fn missing(evaluation: &Evaluation) -> Vec<Missing> {
    let mut missing = missing_entries(evaluation);
    let plan = evaluation.settings.transfer.iter();
    for (number, group) in plan.flat_map(|plan| &plan.groups).enumerate() {
        missing.extend(missing_round(evaluation, number, group, None));
        for (index, disturbance) in group.disturbances.iter().enumerate() {
            // A load is planned several times; one valid round is enough.
            if !group.disturbances[..index].contains(disturbance) {
                missing.extend(missing_round(evaluation, number, group, Some(disturbance)));
            }
        }
    }
    missing
}

/// Returns the missing entries of the matrix, in each variant.
fn missing_entries(evaluation: &Evaluation) -> Vec<Missing> {
    let plan = &evaluation.settings;
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
    let id = id_in_variant(evaluation.settings.variants.get(variant), entry);
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
        part: EvaluationPart::Record(id),
        unexplained: if reasons.is_empty() {
            name.clone()
        } else {
            Vec::new()
        },
        domains: name,
        reasons,
    })
}

/// Returns the domains that no valid round of this disturbance watched, or `None` if all were
/// watched.
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
        part: EvaluationPart::Round {
            id: format!("{by}/{number}"),
            domains: domains.clone(),
        },
        domains,
        reasons,
        unexplained,
    })
}

/// Returns whether the round is valid and its part of this domain is valid on all CPUs.
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

    /// Returns the web page's test evaluation, on a simulated machine.
    fn simulated() -> Evaluation {
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
    fn a_repeated_run_is_complete() {
        let mut evaluation = simulated();
        assert!(is_complete(&evaluation));
        let index = evaluation
            .transfers
            .iter()
            .position(|round| round.disturbance.is_some())
            .expect("a disturbance");
        let sound = evaluation.transfers[index].clone();
        evaluation.transfers[index].invalid = vec![why()];
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
        let mut evaluation = simulated();
        let failed = evaluation.records[0].runs[0].clone();
        evaluation.records[0].runs.push(rampart_model::Run {
            invalid: vec![why()],
            ..failed
        });
        assert!(is_complete(&evaluation), "one run of several");
        evaluation.records[0].exposure.runs = 0;
        assert!(!is_complete(&evaluation));
        let mut ended = simulated();
        ended.state = EvaluationState::EndedEarly;
        assert!(!is_complete(&ended));
    }
    #[test]
    fn reports_missing_entries_per_variant() {
        let mut evaluation = simulated();
        for variant in [PlanVariant::After, PlanVariant::Before] {
            evaluation
                .settings
                .variants
                .push(VariantSettings { variant, visits: 1 });
        }
        let missing = missing(&evaluation);
        let host = &evaluation.settings.domains[0].name;
        let is_of = |domain: &str| missing.iter().any(|one| one.is_of(domain));
        assert!(is_of(&format!("before/{host}")), "{missing:?}");
        assert!(!is_of(host), "{missing:?}");
    }
}
