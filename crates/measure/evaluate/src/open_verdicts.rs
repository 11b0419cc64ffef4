// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is inconclusive and would be decided by more data. Pure.

use std::collections::{BTreeMap, BTreeSet};

use rampart_model::{
    Disturbance, DisturbanceKind, Evaluation, Nanos, Side, Verdict, VerdictOutcome,
};

use crate::MatrixEntry;
use crate::collect::RecordCollector;
use crate::measuring_costs::MeasuringCosts;
use crate::transfer::round_time::MOST_REPETITIONS;
use crate::transfer::session::{PlannedRound, more_rounds};

/// While comparisons are open, rounds get one part in so many of the time until the next look.
pub(crate) const SHARE_OF_OPEN_ROUNDS: u64 = 3;

/// Returns the entries of the matrix on which the open comparisons rest.
pub(crate) fn open_entries(
    evaluation: &Evaluation,
    collectors: &BTreeMap<MatrixEntry, RecordCollector>,
) -> BTreeSet<MatrixEntry> {
    let rests_on: BTreeSet<&String> = evaluation
        .verdicts
        .iter()
        .filter(|verdict| {
            verdict.outcome == VerdictOutcome::Inconclusive && verdict.disturbance.is_none()
        })
        .flat_map(|verdict| &verdict.records)
        .collect();
    collectors
        .iter()
        .filter(|(_, collector)| rests_on.contains(&collector.record.id))
        .map(|(entry, _)| *entry)
        .collect()
}

/// Returns the disturbances with an inconclusive verdict that more rounds may decide: not blocks that do not stop
/// their own domain.
pub(crate) fn open_disturbances(verdicts: &[Verdict]) -> BTreeSet<Disturbance> {
    let of_rounds = || {
        let verdicts = verdicts.iter();
        verdicts.filter_map(|verdict| Some((verdict.disturbance.as_ref()?, verdict)))
    };
    let controlled = |by: &Disturbance| {
        let is_needed = by.kind == DisturbanceKind::Block && by.side == Side::Inside;
        let mut own = of_rounds().filter(|(of, verdict)| *of == by && verdict.domain == by.domain);
        !is_needed || own.any(|(_, verdict)| verdict.outcome == VerdictOutcome::Leaks)
    };
    of_rounds()
        .filter(|(by, verdict)| {
            verdict.outcome == VerdictOutcome::Inconclusive
                && verdict.figures.is_some()
                && controlled(by)
        })
        .map(|(by, _)| by.clone())
        .collect()
}

/// Returns further rounds of the open disturbances, as many as were made, as far as they fit into this time.
pub(crate) fn open_rounds(
    evaluation: &Evaluation,
    mut open: BTreeSet<Disturbance>,
    time: Nanos,
    seed: u64,
) -> Vec<PlannedRound> {
    let Some(plan) = &evaluation.settings.transfer else {
        return Vec::new();
    };
    let of = |by: &Disturbance| {
        let made = evaluation.transfers.iter();
        let made = made.filter(|round| round.disturbance.as_ref() == Some(by));
        let groups: BTreeSet<u32> = made.clone().map(|round| round.group).collect();
        made.count() / groups.len().max(1)
    };
    open.retain(|by| of(by) < MOST_REPETITIONS);
    let longest = evaluation.transfers.iter().map(|round| round.duration);
    let each = longest.max().unwrap_or_default() + MeasuringCosts::REAL.round_overhead;
    let rounds = |turns| more_rounds(plan, &open, turns, &evaluation.transfers, seed);
    let fitting = time.0 / (each.0 * rounds(1).len() as u64).max(1);
    let fewest = open.iter().map(of).min().unwrap_or_default();
    rounds(fewest.min(usize::try_from(fitting).unwrap_or(usize::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rampart_model::Question;

    fn rounds_within(evaluation: &Evaluation, time: Nanos) -> Vec<PlannedRound> {
        open_rounds(evaluation, open_disturbances(&evaluation.verdicts), time, 1)
    }

    #[test]
    fn open_blocks_are_made_again_within_their_time() {
        let text = include_str!("../../../show/present/tests/documents/transfers.json");
        let mut evaluation: Evaluation = serde_json::from_str(text).expect("an evaluation");
        for verdict in &mut evaluation.verdicts {
            if let Some(by) = &verdict.disturbance {
                verdict.outcome = if by.domain == verdict.domain {
                    VerdictOutcome::Leaks
                } else {
                    VerdictOutcome::Holds
                };
            }
        }
        assert!(open_disturbances(&evaluation.verdicts).is_empty());
        assert!(rounds_within(&evaluation, Nanos::from_secs(600)).is_empty());

        let mut others = evaluation.verdicts.iter_mut();
        let other = others.find_map(|verdict| {
            let by = verdict.disturbance.clone()?;
            let is_other = by.domain != verdict.domain && by.side == Side::Inside;
            let with_figures = verdict.figures.is_some();
            (verdict.question == Question::Transfer && is_other && with_figures).then(|| {
                verdict.outcome = VerdictOutcome::Inconclusive;
                by
            })
        });
        let by = other.expect("a verdict on a block");
        assert_eq!(
            open_disturbances(&evaluation.verdicts),
            BTreeSet::from([by.clone()])
        );
        let rounds = rounds_within(&evaluation, Nanos::from_secs(600));
        assert!(!rounds.is_empty());
        assert!(
            rounds
                .iter()
                .all(|round| round.disturbance.as_ref() == Some(&by))
        );
        assert!(rounds_within(&evaluation, Nanos::SECOND).is_empty());

        // Blocks without an effect on their own domain prove nothing, however many there are.
        let mut verdicts = evaluation.verdicts.iter_mut();
        let own = verdicts.find(|verdict| {
            verdict.domain == by.domain && verdict.disturbance.as_ref() == Some(&by)
        });
        own.expect("the control").outcome = VerdictOutcome::Inconclusive;
        assert!(open_disturbances(&evaluation.verdicts).is_empty());
    }
}
