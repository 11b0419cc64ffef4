// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Judges by which factor a load slows a domain: for loads of the matrix and for loads in one
//! domain while others are watched. Pure.

use rampart_model::{
    Answers, Interval, QuantileAnswer, StallAnswer, StolenAnswer, VerdictFigures, VerdictOutcome,
};
use rampart_stats::{Compared, Questions, Visit, compare};

use crate::statements;

/// Returns outcome, statement and figures, or `None` if there is too little data to compare. `idle`
/// names the record of `quiet`.
pub(crate) fn judge_interference(
    loaded: &[Visit],
    quiet: &[Visit],
    idle: &str,
    asked: &Questions,
    emulated: bool,
) -> Option<(VerdictOutcome, String, VerdictFigures)> {
    let found = compare(loaded, quiet, asked)?;
    let (outcome, statement) = statements::interference(&found, asked.tolerance, emulated);
    let figures = VerdictFigures::Interference {
        idle: idle.to_owned(),
        factors: ratios(&found),
        tolerance: asked.tolerance,
        batches: (slices_in(loaded), slices_in(quiet)),
        answers: Some(answers(&found, asked)),
    };
    Some((outcome, statement, figures))
}

/// Returns the quantiles whose ratios have an interval.
pub(crate) fn ratios(found: &Compared) -> Vec<(f64, Interval)> {
    found
        .quantiles
        .iter()
        .filter_map(|answer| Some((answer.quantile, answer.ratio?)))
        .collect()
}

/// Returns the answer on each question, for the document.
pub(crate) fn answers(found: &Compared, asked: &Questions) -> Answers {
    let confidence = 1.0 - asked.risk.hold;
    Answers {
        quantiles: found
            .quantiles
            .iter()
            .map(|answer| QuantileAnswer {
                quantile: answer.quantile,
                outcome: answer.outcome,
            })
            .collect(),
        stalls: found
            .stalls
            .iter()
            .map(|(over, rates)| StallAnswer {
                over: *over,
                events: rates.events,
                observed: rates.observed,
                added_at_most: rates.added_at_most,
                confidence,
                outcome: rates.outcome,
            })
            .collect(),
        stolen: found.stolen.map(|stolen| StolenAnswer {
            shares: stolen.shares,
            added_at_most: Some(stolen.added_at_most).filter(|bound| bound.is_finite()),
            confidence,
            outcome: stolen.outcome,
        }),
        visits: found.visits,
    }
}

/// Returns the number of slices of all visits.
pub(crate) fn slices_in(visits: &[Visit]) -> u32 {
    let slices = visits.iter().map(|visit| visit.slices.len()).sum::<usize>();
    u32::try_from(slices).unwrap_or(u32::MAX)
}
