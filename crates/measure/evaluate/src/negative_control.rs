// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The negative control: one domain is judged as if it were two. Where that raises an alarm, the
//! comparisons of the evaluation decide nothing. Pure.

use rampart_model::{
    Condition, EvaluationSettings, NegativeControl, Record, Verdict, VerdictFigures, VerdictOutcome,
};
use rampart_stats::{Visit, compare};
use rand::seq::SliceRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

use crate::judge::{VisitsByRecord, visits_of};
use crate::questions;
use crate::statements;

/// Judges the control: on the idle record of the first meter with the most slices, of the host if
/// several have as many. Returns `None` if it cannot be dealt to two sides.
pub(crate) fn judge(
    settings: &EvaluationSettings,
    records: &[Record],
    visits: &VisitsByRecord<'_>,
) -> Option<NegativeControl> {
    let meter = settings.meters.first()?.meter;
    let slices = |record: &Record| -> usize {
        let visits = visits_of(visits, record);
        visits.iter().map(|visit| visit.slices.len()).sum()
    };
    let record = records
        .iter()
        .filter(|record| {
            record.exposure.runs > 0
                && record.settings.meter == meter
                && record.condition == Condition::IDLE
        })
        .max_by_key(|record| (slices(record), record.kind.is_housekeeping()))?;
    let (one, other) = deal(visits_of(visits, record), settings.seed);
    let asked = questions::same_as_host(settings, &record.settings, &record.domain);
    let forwards = compare(&one, &other, &asked)?;
    let backwards = compare(&other, &one, &asked)?;
    let found = if backwards.outcome == asked.alarm {
        backwards
    } else {
        forwards
    };
    Some(NegativeControl {
        record: record.id.clone(),
        outcome: found.outcome,
        statement: statements::control(&found, asked.tolerance),
    })
}

/// Deals the slices of every visit to two sides at random, as evenly as their number allows.
fn deal(visits: &[Visit], seed: u64) -> (Vec<Visit>, Vec<Visit>) {
    let mut generator = Pcg64Mcg::seed_from_u64(seed);
    let (mut one, mut other) = (Vec::new(), Vec::new());
    for visit in visits {
        let mut slices = visit.slices.clone();
        slices.shuffle(&mut generator);
        let mut half = slices.len() / 2;
        if slices.len() % 2 == 1 && generator.random::<bool>() {
            half += 1;
        }
        let rest = slices.split_off(half);
        for (side, slices) in [(&mut one, slices), (&mut other, rest)] {
            if !slices.is_empty() {
                side.push(Visit { slices, ..*visit });
            }
        }
    }
    (one, other)
}

/// Takes the decision out of a comparison if the control raised an alarm.
pub(crate) fn apply(control: &NegativeControl, verdict: &mut Verdict) {
    if control.outcome != VerdictOutcome::Fails {
        return;
    }
    let figures = verdict.figures.as_mut();
    if let Some(answers) = figures.and_then(VerdictFigures::answers_mut) {
        for outcome in [
            VerdictOutcome::Holds,
            VerdictOutcome::Fails,
            VerdictOutcome::Leaks,
        ] {
            answers.withdraw(outcome);
        }
    }
    if verdict.outcome != VerdictOutcome::Inconclusive {
        verdict.outcome = VerdictOutcome::Inconclusive;
        verdict.statement.push_str(&format!(
            ". This decides nothing, because {} differs from itself in this evaluation",
            control.record
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rampart_model::{Distribution, Exposure, MeterKind, Nanos, Question};

    #[test]
    fn deals_every_slice_once() {
        let visits: Vec<Visit> = (0..40)
            .map(|number| {
                let slices = (0..3u64)
                    .map(|slice| Distribution::from_values([Nanos(u64::from(number) * 3 + slice)]));
                Visit::of(number, slices.collect())
            })
            .collect();
        let (one, other) = deal(&visits, 1);
        let values = |side: &[Visit]| -> Vec<Nanos> {
            let slices = side.iter().flat_map(|visit| &visit.slices);
            slices.filter_map(|slice| slice.seen.max).collect()
        };
        let (ours, theirs) = (values(&one), values(&other));
        let mut all = [ours.clone(), theirs].concat();
        all.sort_unstable();
        assert_eq!(all, (0..120).map(Nanos).collect::<Vec<_>>());
        // The odd slice goes to either side.
        assert!((50..70).contains(&ours.len()), "{}", ours.len());
        assert_ne!(deal(&visits, 2).0, one, "another seed deals differently");
    }

    #[test]
    fn a_domain_that_differs_from_itself_decides_nothing() {
        let verdict = Verdict {
            id: String::new(),
            question: Question::SameAsHost,
            domain: "task".to_owned(),
            meter: MeterKind::Wakeup,
            condition: Condition::IDLE,
            disturbance: None,
            outcome: VerdictOutcome::Holds,
            statement: "p50 ×1.00".to_owned(),
            figures: None,
            exposure: Exposure::default(),
            records: Vec::new(),
        };
        let judged = |outcome| {
            let control = NegativeControl {
                record: "host/wakeup/idle".to_owned(),
                outcome,
                statement: String::new(),
            };
            let mut verdict = verdict.clone();
            apply(&control, &mut verdict);
            verdict
        };
        assert_eq!(judged(VerdictOutcome::Holds), verdict);
        assert_eq!(judged(VerdictOutcome::Inconclusive), verdict);
        let undecided = judged(VerdictOutcome::Fails);
        assert_eq!(undecided.outcome, VerdictOutcome::Inconclusive);
        assert!(undecided.statement.contains("differs from itself"));
    }
}
