// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether everything that was planned was measured. Pure.

use rampart_model::{Disturbance, Evaluation, EvaluationState, TransferGroup};

/// Whether an evaluation came to its end with a valid run of each cell of its matrix, and with a
/// valid round for each domain of each group, quiet and under each disturbance. What failed once
/// and was made again with success is complete.
#[must_use]
pub fn is_complete(evaluation: &Evaluation) -> bool {
    evaluation.state == EvaluationState::Complete
        && has_every_record(evaluation)
        && has_every_comparison(evaluation)
        && has_every_round(evaluation)
}

fn has_every_record(evaluation: &Evaluation) -> bool {
    let plan = &evaluation.plan;
    plan.domains.iter().all(|domain| {
        plan.meters.iter().all(|meter| {
            plan.conditions.iter().all(|condition| {
                evaluation.records.iter().any(|record| {
                    record.domain == domain.name
                        && record.plan.meter == meter.meter
                        && record.condition == *condition
                        && record.exposure.runs > 0
                })
            })
        })
    })
}

/// Each leg that is compared with the whole plan has a valid run of each cell too.
fn has_every_comparison(evaluation: &Evaluation) -> bool {
    let plan = &evaluation.plan;
    let cells = plan.domains.len() * plan.meters.len() * plan.conditions.len();
    plan.legs.iter().skip(1).all(|leg| {
        let records = evaluation.plan_effects.iter().flat_map(|all| &all.records);
        let valid = records.filter(|one| one.leg == leg.leg && one.record.exposure.runs > 0);
        valid.count() == cells
    })
}

fn has_every_round(evaluation: &Evaluation) -> bool {
    let groups = evaluation
        .plan
        .transfer
        .iter()
        .flat_map(|plan| &plan.groups);
    groups.enumerate().all(|(number, group)| {
        let disturbed = group.disturbances.iter().map(Some);
        std::iter::once(None)
            .chain(disturbed)
            .all(|disturbance| has_round(evaluation, number, group, disturbance))
    })
}

fn has_round(
    evaluation: &Evaluation,
    number: usize,
    group: &TransferGroup,
    disturbance: Option<&Disturbance>,
) -> bool {
    group.participants.iter().all(|participant| {
        evaluation.transfers.iter().any(|round| {
            let mut watched = round
                .watched
                .iter()
                .filter(|watched| watched.domain == participant.domain)
                .peekable();
            round.group as usize == number
                && round.disturbance.as_ref() == disturbance
                && round.invalid.is_empty()
                && watched.peek().is_some()
                && watched.all(|watched| watched.invalid.is_empty())
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a made-up evaluation on a simulated machine holds, as the page is tested with.
    fn walls() -> Evaluation {
        let text = include_str!("../../../web/fixtures/walls.json");
        let mut evaluation: Evaluation = serde_json::from_str(text).expect("an evaluation");
        for round in &mut evaluation.transfers {
            round.invalid.clear();
        }
        evaluation.state = EvaluationState::Complete;
        evaluation
    }

    fn why() -> rampart_model::Finding {
        rampart_model::Finding::new(rampart_model::Severity::Problem, "x", "it did not answer")
    }

    #[test]
    fn what_failed_once_and_was_made_again_is_complete() {
        let mut evaluation = walls();
        assert!(is_complete(&evaluation));
        let place = evaluation
            .transfers
            .iter()
            .position(|round| round.disturbance.is_some())
            .expect("a disturbance");
        let sound = evaluation.transfers[place].clone();
        evaluation.transfers[place].invalid = vec![why()];
        assert!(!is_complete(&evaluation), "none counts");
        let mut partly = sound.clone();
        partly.watched[1].invalid = vec![why()];
        evaluation.transfers.push(partly);
        assert!(!is_complete(&evaluation), "one domain is missing");
        evaluation.transfers.push(sound);
        assert!(is_complete(&evaluation), "the repeat counts");
    }

    #[test]
    fn a_cell_without_a_valid_run_is_missing() {
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
}
