// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Judges by which factor a load slows a domain: for loads of the matrix and for loads in one
//! domain while others are watched. Pure.

use rampart_model::{
    Answers, Finding, Interval, QuantileAnswer, StallAnswer, StolenAnswer, VerdictFigures,
    VerdictOutcome,
};
use rampart_stats::{Compared, Questions, Visit, compare};

use crate::outside_influence::not_idle;
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

/// Takes back that a load does not reach a domain if other programs used the CPUs in half of the
/// measurements of the idle side, so that the load added little to theirs. `idle` are the findings of each measurement on that side. A load that
/// reaches the domain nevertheless does so.
pub(crate) fn require_idle<'a>(
    (outcome, statement): (VerdictOutcome, String),
    idle: impl Iterator<Item = &'a [Finding]>,
) -> (VerdictOutcome, String) {
    let busy: Vec<Option<&Finding>> = idle.map(not_idle).collect();
    let count = busy.iter().flatten().count();
    match busy.iter().flatten().next() {
        Some(first) if outcome == VerdictOutcome::Holds && 2 * count >= busy.len() => {
            let found = first.found.as_deref().unwrap_or("unknown");
            let statement = format!(
                "{statement}. This decides nothing: in {count} of {} measurements without a load, {} \
                 ({found})",
                busy.len(),
                first.what
            );
            (VerdictOutcome::Inconclusive, statement)
        }
        _ => (outcome, statement),
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use rampart_model::Severity;

    #[test]
    fn only_holds_needs_an_idle_side() {
        let what =
            "programs outside the experiment used the CPUs during a measurement without a load";
        let busy = Finding::new(Severity::Warning, "idle measurement", what)
            .values("`make` 0.70 CPUs", "at most 0.25 CPUs");
        let other = Finding::new(Severity::Warning, "CPU 1", "steal");
        let idle = [vec![other.clone()], vec![other, busy.clone()], vec![busy]];
        let of = |outcome, idle: &[Vec<Finding>]| {
            let idle = idle.iter().map(Vec::as_slice);
            require_idle((outcome, "p99 ×1.01".to_owned()), idle)
        };
        let (outcome, statement) = of(VerdictOutcome::Holds, &idle);
        assert_eq!(outcome, VerdictOutcome::Inconclusive);
        assert!(
            statement.starts_with("p99 ×1.01. This decides nothing: in 2 of 3"),
            "{statement}"
        );
        assert!(statement.contains("(`make` 0.70 CPUs)"), "{statement}");
        assert_eq!(
            of(VerdictOutcome::Holds, &idle[..1]).0,
            VerdictOutcome::Holds
        );
        let mostly = [Vec::new(), Vec::new(), idle[2].clone()];
        assert_eq!(of(VerdictOutcome::Holds, &mostly).0, VerdictOutcome::Holds);
        for outcome in [VerdictOutcome::Leaks, VerdictOutcome::Inconclusive] {
            assert_eq!(of(outcome, &idle), (outcome, "p99 ×1.01".to_owned()));
        }
    }
}
