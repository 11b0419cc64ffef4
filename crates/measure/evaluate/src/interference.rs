// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Judges by which factor a load slows a domain: for loads of the matrix and for loads in one
//! domain while others are watched. Pure.

use rampart_model::{
    Answers, Finding, Interval, QuantileAnswer, StallAnswer, StolenAnswer, Verdict, VerdictFigures,
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
/// measurements of the idle side, so that the load added little to theirs. `idle` are the findings of
/// each measurement on that side. A load that reaches the domain nevertheless does so.
pub(crate) fn require_idle<'a>(verdict: &mut Verdict, idle: impl Iterator<Item = &'a [Finding]>) {
    let busy: Vec<Option<&Finding>> = idle.map(not_idle).collect();
    let count = busy.iter().flatten().count();
    let Some(first) = busy.iter().flatten().next() else {
        return;
    };
    if 2 * count < busy.len() {
        return;
    }
    if let Some(answers) = verdict
        .figures
        .as_mut()
        .and_then(VerdictFigures::answers_mut)
    {
        answers.withdraw(VerdictOutcome::Holds);
    }
    if verdict.outcome == VerdictOutcome::Holds {
        verdict.outcome = VerdictOutcome::Inconclusive;
        verdict.statement = format!(
            "{}. This decides nothing: in {count} of {} measurements without a load, {} ({})",
            verdict.statement,
            busy.len(),
            first.what,
            first.found.as_deref().unwrap_or("unknown"),
        );
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
            .map(|(length, rates)| StallAnswer {
                over: length.over,
                events: rates.events,
                observed: rates.observed,
                added_at_most: rates.added_at_most,
                tolerated: length.tolerated,
                fewer: rates.fewer,
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
    use rampart_model::{Condition, Exposure, MeterKind, Question, Severity};

    #[test]
    fn only_holds_needs_an_idle_side() {
        let what =
            "programs outside the experiment used the CPUs during a measurement without a load";
        let busy = Finding::new(Severity::Warning, "idle measurement", what)
            .values("`make` 0.70 CPUs", "at most 0.25 CPUs");
        let other = Finding::new(Severity::Warning, "CPU 1", "steal");
        let idle = [vec![other.clone()], vec![other, busy.clone()], vec![busy]];
        let answers = Answers {
            quantiles: vec![QuantileAnswer {
                quantile: 0.5,
                outcome: VerdictOutcome::Holds,
            }],
            ..Answers::default()
        };
        let before = |outcome| Verdict {
            id: String::new(),
            question: Question::Interference,
            domain: "task".to_owned(),
            meter: MeterKind::Wakeup,
            condition: Condition::IDLE,
            disturbance: None,
            outcome,
            statement: "p99 ×1.01".to_owned(),
            figures: Some(VerdictFigures::Interference {
                idle: String::new(),
                factors: Vec::new(),
                tolerance: 1.5,
                batches: (1, 1),
                answers: Some(answers.clone()),
            }),
            exposure: Exposure::default(),
            records: Vec::new(),
        };
        let of = |outcome, idle: &[Vec<Finding>]| {
            let mut verdict = before(outcome);
            require_idle(&mut verdict, idle.iter().map(Vec::as_slice));
            verdict
        };
        let taken_back = of(VerdictOutcome::Holds, &idle);
        assert_eq!(taken_back.outcome, VerdictOutcome::Inconclusive);
        let statement = taken_back.statement;
        assert!(
            statement.starts_with("p99 ×1.01. This decides nothing: in 2 of 3"),
            "{statement}"
        );
        assert!(statement.contains("(`make` 0.70 CPUs)"), "{statement}");
        let holds = before(VerdictOutcome::Holds);
        assert_eq!(of(VerdictOutcome::Holds, &idle[..1]), holds);
        let mostly = [Vec::new(), Vec::new(), idle[2].clone()];
        assert_eq!(of(VerdictOutcome::Holds, &mostly), holds);
        // What is open stays open, without its first answers.
        for outcome in [VerdictOutcome::Leaks, VerdictOutcome::Inconclusive] {
            let verdict = of(outcome, &idle);
            assert_eq!(verdict.outcome, outcome);
            assert_eq!(verdict.statement, "p99 ×1.01");
            let answers = verdict.figures.as_ref().and_then(VerdictFigures::answers);
            let first = answers.expect("answers").quantiles[0];
            assert_eq!(first.outcome, VerdictOutcome::Inconclusive);
        }
    }
}
