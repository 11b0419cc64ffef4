// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Shares out the time of the matrix. Pure.

use rampart_model::Nanos;

use crate::EvaluateError;

/// Longest run, so that a killed evaluation loses little and repetitions stay interleaved.
const LONGEST_RUN: Nanos = Nanos::from_secs(60);
/// Shortest run; shorter ones would be mostly warm-up.
const SHORTEST_RUN: Nanos = Nanos::SECOND;
/// Usual repetitions; with fewer, the spread between runs is hardly known.
const USUAL_REPETITIONS: u64 = 5;

/// Returns the shortest time for this many entries: one short run of each.
pub(crate) fn least_time(entries: u64, overhead: Nanos) -> Nanos {
    Nanos(
        entries
            .max(1)
            .saturating_mul(SHORTEST_RUN.0.saturating_add(overhead.0)),
    )
}

/// Returns the number of repetitions and the measured time of each run.
///
/// Runs of one entry differ more than the seconds within a run, so comparisons depend on
/// repetitions: five if each run still gets a second, otherwise fewer. With more time both grow:
/// the fewest repetitions for which a run lasts at most as many seconds as there are repetitions.
pub(crate) fn share_time(
    total: Nanos,
    entries: u64,
    overhead: Nanos,
) -> Result<(u32, Nanos), EvaluateError> {
    let entries = entries.max(1);
    let run_for =
        |repetitions: u64| Nanos(total.0 / (entries * repetitions)).saturating_sub(overhead);
    let mut repetitions = USUAL_REPETITIONS;
    while repetitions > 1 && run_for(repetitions) < SHORTEST_RUN {
        repetitions -= 1;
    }
    if run_for(repetitions) < SHORTEST_RUN {
        return Err(EvaluateError::TooShort {
            total,
            entries,
            needed: least_time(entries, overhead),
        });
    }
    while repetitions >= USUAL_REPETITIONS
        && run_for(repetitions) > LONGEST_RUN.min(Nanos::from_secs(repetitions))
    {
        repetitions += 1;
    }
    // Round down to a tenth of a second.
    let run = Nanos(run_for(repetitions).0 / 100_000_000 * 100_000_000);
    Ok((
        u32::try_from(repetitions).unwrap_or(u32::MAX),
        run.min(LONGEST_RUN),
    ))
}

/// Returns the time for this many repetitions of these runs; `each` includes the overhead of a run.
pub(crate) fn time_needed(runs: u64, repetitions: u64, each: Nanos) -> Nanos {
    Nanos(runs.saturating_mul(repetitions).saturating_mul(each.0))
}

/// Returns the length of the batches of a run: equal parts of about a second, in long runs up to
/// ten seconds.
pub(crate) fn batch_of(run: Nanos) -> Nanos {
    let wanted = (run.0 / 6).clamp(1_000_000_000, 10_000_000_000);
    Nanos(run.0 / (run.0 / wanted).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measuring_costs::MeasuringCosts;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn never_exceeds_the_time(seconds in 1u64..200_000, entries in 1u64..60) {
            match share_time(Nanos::from_secs(seconds), entries, MeasuringCosts::REAL.run_overhead) {
                Ok((repetitions, run)) => {
                    prop_assert!(run >= SHORTEST_RUN && run <= LONGEST_RUN);
                    let batches = run.0 as f64 / batch_of(run).0 as f64;
                    prop_assert!((batches - batches.round()).abs() < 1e-6, "{batches}");
                    let used = (run + MeasuringCosts::REAL.run_overhead).0 * entries * u64::from(repetitions);
                    prop_assert!(used <= Nanos::from_secs(seconds).0);
                }
                Err(EvaluateError::TooShort { needed, .. }) => {
                    prop_assert!(Nanos::from_secs(seconds) < needed);
                }
                Err(other) => prop_assert!(false, "{other}"),
            }
        }
    }

    #[test]
    fn standard_matrix_gets_five_repetitions_in_two_minutes() {
        let (repetitions, run) = share_time(
            MeasuringCosts::REAL.total,
            9,
            MeasuringCosts::REAL.run_overhead,
        )
        .expect("fits");
        assert_eq!((repetitions, run), (5, Nanos::from_millis(2100)));
        assert_eq!(batch_of(run), Nanos::from_millis(1050));
    }

    #[test]
    fn splits_a_day_into_runs_of_a_minute() {
        let (repetitions, run) = share_time(
            Nanos::from_secs(86_400),
            9,
            MeasuringCosts::REAL.run_overhead,
        )
        .expect("fits");
        assert_eq!((repetitions, run), (159, Nanos::from_millis(59_800)));
    }
}
