// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Estimates how long an evaluation has to measure until its open comparisons are decided. Pure.

use std::collections::BTreeSet;

use rampart_model::{
    Answers, Crossed, EvaluationSettings, Interval, Nanos, Record, TransferRecord, Verdict,
    VerdictFigures, VerdictOutcome,
};
use rampart_stats::PART_TOLERANCE;

use crate::open_verdicts::open_disturbances;

/// More data than this many times those of now are no answer.
const MOST: f64 = 100.0;
/// Measuring takes longer than what is measured.
const OVERHEAD: f64 = 1.25;

/// Returns the total time after which the open comparisons and rounds would be decided if the
/// machine stays as it was. `None` if none is open, or if none can be estimated.
pub(crate) fn decided_after(
    settings: &EvaluationSettings,
    records: &[Record],
    rounds: &[TransferRecord],
    verdicts: &[Verdict],
) -> Option<Nanos> {
    let disturbances = open_disturbances(verdicts);
    let open = verdicts.iter().filter(|verdict| {
        let by = verdict.disturbance.as_ref();
        verdict.outcome == VerdictOutcome::Inconclusive
            && by.is_none_or(|by| disturbances.contains(by))
    });
    let mut times: Option<f64> = None;
    let mut needed = BTreeSet::new();
    for verdict in open {
        let Some(more) = verdict.figures.as_ref().and_then(times_the_data) else {
            continue;
        };
        times = Some(times.unwrap_or(1.0).max(more));
        needed.extend(&verdict.records);
    }
    let times = times.filter(|times| *times <= MOST)?;
    let of_records = records
        .iter()
        .map(|record| (&record.id, record.exposure.duration));
    let of_rounds = rounds.iter().map(|round| (&round.id, round.duration));
    let measured: f64 = of_records
        .chain(of_rounds)
        .filter(|(id, _)| needed.contains(id))
        .map(|(_, time)| time.as_secs_f64())
        .sum();
    let more = measured * (times - 1.0) * OVERHEAD;
    Some(settings.total.max(lasted(records)) + Nanos((more * 1e9) as u64))
}

/// Returns the time from the first run to the end of the last.
fn lasted(records: &[Record]) -> Nanos {
    let runs = || records.iter().flat_map(|record| &record.runs);
    let first = runs().map(|run| run.started_monotonic).min();
    let last = runs().map(|run| run.started_monotonic + run.duration).max();
    last.unwrap_or_default()
        .saturating_sub(first.unwrap_or_default())
}

/// Returns by how much the data have to grow, at least 1, for all questions of a comparison. An
/// interval shrinks with the root of the data.
fn times_the_data(figures: &VerdictFigures) -> Option<f64> {
    let (ratios, tolerance, answers) = match figures {
        VerdictFigures::Transfer {
            transfer,
            tolerance,
            with_block,
            without_block,
            crossed: Some(crossed),
            ..
        } => {
            let of_median = growth(
                &(transfer.estimate, (transfer.high - transfer.low) / 2.0),
                *tolerance,
            );
            let of_part = growth_of_windows(crossed, (*with_block, *without_block));
            return Some(of_median.max(of_part));
        }
        VerdictFigures::SameAsHost {
            ratios,
            tolerance,
            answers: Some(answers),
            ..
        } => (ratios, tolerance, answers),
        VerdictFigures::Interference {
            factors,
            tolerance,
            answers: Some(answers),
            ..
        } => (factors, tolerance, answers),
        _ => return None,
    };
    let of_quantiles = open_quantiles(answers).map(|quantile| {
        let (_, ratio) = ratios.iter().find(|(known, _)| *known == quantile)?;
        Some(growth(&logarithms(ratio), tolerance.ln()))
    });
    let of_stalls = answers
        .stalls
        .iter()
        .filter(|answer| answer.outcome == VerdictOutcome::Inconclusive)
        .map(|answer| {
            let rate = |events: u64, time: Nanos| events as f64 / time.as_secs_f64().max(1e-9);
            let added =
                rate(answer.events.0, answer.observed.0) - rate(answer.events.1, answer.observed.1);
            let bound = answer.added_at_most;
            Some(growth(&(added, bound - added), answer.tolerated))
        });
    of_quantiles
        .chain(of_stalls)
        .try_fold(1.0_f64, |most, one| Some(most.max(one?)))
}

fn open_quantiles(answers: &Answers) -> impl Iterator<Item = f64> {
    let open = answers
        .quantiles
        .iter()
        .filter(|answer| answer.outcome == VerdictOutcome::Inconclusive);
    open.map(|answer| answer.quantile)
}

/// Returns the logarithm of an estimate, and half the width of its interval.
fn logarithms(ratio: &Interval) -> (f64, f64) {
    (ratio.estimate.ln(), (ratio.high / ratio.low).ln() / 2.0)
}

/// Returns by how much the windows have to grow until few enough blocks can cross. The margin shrinks with
/// the windows if none is late, otherwise with their root.
fn growth_of_windows(crossed: &Crossed, windows: (u32, u32)) -> f64 {
    let part = |late: u32, of: u32| f64::from(late) / f64::from(of.max(1));
    let with = part(crossed.with_block, windows.0);
    let added = (with - part(crossed.without_block, windows.1)).max(0.0);
    if crossed.with_block == 0 {
        (crossed.at_most / PART_TOLERANCE).max(1.0)
    } else {
        growth(&(added, crossed.at_most - added), PART_TOLERANCE)
    }
}

/// Returns by how much the data have to grow until an interval no longer contains the limit.
fn growth((estimate, half): &(f64, f64), limit: f64) -> f64 {
    (half / (limit - estimate).abs().max(1e-6)).powi(2).max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn a_narrow_gap_to_the_limit_needs_more_data() {
        // Half of 0.4 wide, 0.1 from the limit: four times the data.
        assert!((growth(&(0.0, 0.2), 0.1) - 4.0).abs() < 1e-9);
        assert!((growth(&(0.2, 0.2), 0.1) - 4.0).abs() < 1e-9);
        // Decided by what is there.
        assert!((growth(&(0.0, 0.05), 0.1) - 1.0).abs() < 1e-9);
        // On the limit: not decided by any amount that someone would wait for.
        assert!(growth(&(0.1, 0.2), 0.1) > MOST);
    }

    #[test]
    fn blocks_need_as_many_windows_as_bound_the_part_that_crosses() {
        let crossed = |with_block, without_block, at_most| Crossed {
            level: 0.1,
            with_block,
            without_block,
            at_most,
        };
        // 0 of 20: twice the windows have half the limit.
        assert!((growth_of_windows(&crossed(0, 0, 0.25), (20, 40)) - 2.0).abs() < 1e-9);
        // 2 of 40 are late, 0.05 ± 0.15: four times the windows are 0.05 ± 0.075.
        assert!((growth_of_windows(&crossed(2, 0, 0.2), (40, 80)) - 4.0).abs() < 1e-9);
        // As many are late without a block.
        assert!((growth_of_windows(&crossed(2, 4, 0.125), (40, 80)) - 1.0).abs() < 1e-9);
    }
}
