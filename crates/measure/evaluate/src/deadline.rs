// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Judges the deadline that the user gave, and without one, which deadlines a record would have met.
//! Pure.

use rampart_model::{
    Distribution, EvaluationSettings, Exposure, Nanos, Question, ReachedDeadlines, Record, Verdict,
    VerdictFigures, VerdictOutcome,
};
use rampart_stats::{
    DEADLINE_CONFIDENCE, Visit, deadline_outcome, exceedance_bound, time_between_bursts,
};

use crate::collect::whole_series;
use crate::judge::verdict;
use crate::statements;

/// The deadlines that a record without one is held against.
const ROUND_DEADLINES: [Nanos; 13] = [
    Nanos::from_micros(10),
    Nanos::from_micros(20),
    Nanos::from_micros(50),
    Nanos::from_micros(100),
    Nanos::from_micros(250),
    Nanos::from_micros(500),
    Nanos::from_millis(1),
    Nanos::from_micros(2_500),
    Nanos::from_millis(5),
    Nanos::from_millis(10),
    Nanos::from_millis(25),
    Nanos::from_millis(50),
    Nanos::from_millis(100),
];

/// Judges the deadline. Every period is a cycle, sampled or missed. A missed cycle exceeds the
/// deadline if its corrected lateness does.
pub(crate) fn judge(
    settings: &EvaluationSettings,
    record: &Record,
    visits: &[Visit],
    emulated: bool,
) -> Verdict {
    let whole = whole_series(record, record.settings.meter.primary_series());
    let deadline = settings.deadline_of(&record.domain);
    let (max, missed_late) = whole.as_ref().map_or((Nanos::ZERO, 0), |series| {
        let late = |distribution: &Distribution| distribution.count_above(deadline);
        let missed_late = series.corrected.as_ref().map_or(0, |corrected| {
            late(corrected).saturating_sub(late(&series.seen))
        });
        (series.seen.max.unwrap_or_default(), missed_late)
    });
    let cycles = cycles(record);
    let seen: u64 = record.cpus.iter().map(|cpu| cpu.over_deadline).sum();
    let exceedances = (seen + missed_late).min(cycles);
    let (with, all) = visits_with_exceedance(record, visits, deadline, exceedances);
    // Exceedances come in bursts, so cycles are not independent. Visits are, since other
    // measurements lie between them. Measuring several CPUs at once does not lengthen the exposure:
    // the same events disturb them.
    let upper_bound = exceedance_bound(with.into(), all.into(), DEADLINE_CONFIDENCE).unwrap_or(1.0);
    let outcome = if emulated {
        VerdictOutcome::Inconclusive
    } else {
        deadline_outcome(exceedances, cycles)
    };
    let figures = VerdictFigures::Deadline {
        deadline,
        cycles,
        exceedances,
        visits: Some((with, all)),
        upper_bound,
        confidence: DEADLINE_CONFIDENCE,
        time_between_violations: time_between_bursts(
            with,
            all,
            record.exposure.duration,
            DEADLINE_CONFIDENCE,
        ),
        max,
    };
    let statement = statements::deadline(&figures, &record.exposure, emulated);
    verdict(
        Question::Deadline,
        record,
        outcome,
        statement,
        Some(figures),
        vec![record.id.clone()],
    )
}

/// Returns the number of visits with an exceedance, and of all visits.
fn visits_with_exceedance(
    record: &Record,
    visits: &[Visit],
    deadline: Nanos,
    exceedances: u64,
) -> (u32, u32) {
    let runs = record.runs.iter().filter(|run| run.invalid.is_empty());
    let by_run: Vec<bool> = runs
        .map(|run| run.threads.iter().any(|thread| thread.over_deadline > 0))
        .collect();
    let late = if by_run.is_empty() {
        visits
            .iter()
            .map(|visit| {
                let mut slices = visit.slices.iter();
                slices.any(|slice| slice.seen.count_above(deadline) > 0)
            })
            .collect()
    } else {
        by_run
    };
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let with = count(late.iter().filter(|late| **late).count());
    // Samples in the bucket of the deadline itself are only in the exact count.
    (
        with.max(u32::from(exceedances > 0)),
        count(late.len()).max(1),
    )
}

/// Returns the number of observed cycles. For `noise`, whose samples are only the gaps, a cycle is
/// a window of the deadline's length; there are at least as many cycles as gaps, and as runs.
fn cycles(record: &Record) -> u64 {
    let Exposure {
        samples,
        missed,
        runs,
        ..
    } = record.exposure;
    match record.settings.meter {
        rampart_model::MeterKind::Noise => {
            // The loop measures without pauses.
            let deadline = record
                .settings
                .deadline
                .map_or(1, |deadline| deadline.0.max(1));
            let windows = record.exposure.duration.0 / deadline * u64::from(record.exposure.cpus);
            windows.max(samples).max(u64::from(runs))
        }
        _ => samples + missed,
    }
}

/// Returns which round deadlines a record would have met; `None` without samples.
pub(crate) fn reached(record: &Record) -> Option<ReachedDeadlines> {
    let whole = whole_series(record, record.settings.meter.primary_series())?;
    let worst = whole.seen.max?;
    let samples = whole.corrected.as_ref().unwrap_or(&whole.seen);
    let mut deadlines = Vec::new();
    for deadline in ROUND_DEADLINES {
        // The exact maximum decides within the bucket of the deadline.
        let exceedances = samples
            .count_above(deadline)
            .max(u64::from(worst > deadline));
        deadlines.push((deadline, exceedances));
        if exceedances == 0 {
            break;
        }
    }
    Some(ReachedDeadlines {
        record: record.id.clone(),
        worst,
        cycles: cycles(record),
        between: time_between_bursts(
            0,
            record.exposure.runs,
            record.exposure.duration,
            DEADLINE_CONFIDENCE,
        )?,
        confidence: DEADLINE_CONFIDENCE,
        deadlines,
    })
}
