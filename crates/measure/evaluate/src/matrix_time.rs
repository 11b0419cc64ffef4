// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Shares out the time of the matrix. Pure.

use rampart_model::Nanos;

use crate::EvaluateError;
use crate::measuring_costs::MeasuringCosts;

/// Longest run, so that a killed evaluation loses little and repetitions stay interleaved.
const LONGEST_RUN: Nanos = Nanos::from_secs(60);
/// The limits of runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct RunLimits {
    /// The shortest run.
    pub(crate) shortest: Nanos,
    /// Usual repetitions; with fewer, the spread between runs is hardly known.
    pub(crate) repetitions: u64,
    /// Time of a run besides its measured time.
    pub(crate) overhead: Nanos,
}

impl RunLimits {
    /// Returns the limits of runs that each start a meter. Shorter ones would be mostly warm-up.
    pub(crate) const fn of_new_meters(costs: &MeasuringCosts) -> Self {
        Self {
            shortest: Nanos::SECOND,
            repetitions: 5,
            overhead: costs.run_overhead,
        }
    }

    /// Returns the limits of runs whose meters stay up if `stay_up`, otherwise those of runs that
    /// each start a meter.
    pub(crate) const fn of(costs: &MeasuringCosts, stay_up: bool) -> Self {
        if stay_up {
            Self {
                shortest: Nanos::from_millis(250),
                repetitions: 20,
                overhead: costs.repeated_run_overhead,
            }
        } else {
            Self::of_new_meters(costs)
        }
    }
}

/// Returns the shortest time for this many entries: one short run of each.
pub(crate) fn least_time(entries: u64, limits: RunLimits) -> Nanos {
    let each = limits.shortest + limits.overhead;
    Nanos(entries.max(1).saturating_mul(each.0))
}

/// Returns the number of repetitions and the measured time of each run.
///
/// Runs of one entry differ more than the seconds within a run, so comparisons depend on
/// repetitions: the usual number if each run still has the shortest length, otherwise fewer. With
/// more time both grow: the fewest repetitions for which a run lasts at most as many seconds as
/// there are repetitions, or twelfths of a second if meters stay up.
pub(crate) fn share_time(
    total: Nanos,
    entries: u64,
    limits: RunLimits,
) -> Result<(u32, Nanos), EvaluateError> {
    let entries = entries.max(1);
    let RunLimits {
        shortest, overhead, ..
    } = limits;
    let run_for =
        |repetitions: u64| Nanos(total.0 / (entries * repetitions)).saturating_sub(overhead);
    let mut repetitions = limits.repetitions;
    while repetitions > 1 && run_for(repetitions) < shortest {
        repetitions -= 1;
    }
    if run_for(repetitions) < shortest {
        return Err(EvaluateError::TooShort {
            total,
            entries,
            needed: least_time(entries, limits),
        });
    }
    let longest = |repetitions: u64| {
        let of_a_repetition = if shortest < Nanos::SECOND {
            Nanos(Nanos::SECOND.0 / 12)
        } else {
            Nanos::SECOND
        };
        LONGEST_RUN.min(Nanos(of_a_repetition.0 * repetitions))
    };
    while repetitions >= limits.repetitions && run_for(repetitions) > longest(repetitions) {
        repetitions += 1;
    }
    // Round down to a tenth of a second, a short run to a hundredth.
    let unit = if shortest < Nanos::SECOND {
        10_000_000
    } else {
        100_000_000
    };
    let run = Nanos(run_for(repetitions).0 / unit * unit);
    Ok((
        u32::try_from(repetitions).unwrap_or(u32::MAX),
        run.min(LONGEST_RUN),
    ))
}

/// Returns the time for this many repetitions of these runs; `each` includes the overhead of a run.
pub(crate) fn time_needed(runs: u64, repetitions: u64, each: Nanos) -> Nanos {
    Nanos(runs.saturating_mul(repetitions).saturating_mul(each.0))
}

/// Returns the length of the batches of a run: halves of a short run, equal parts of about a second,
/// in long runs up to ten seconds.
pub(crate) fn batch_of(run: Nanos) -> Nanos {
    if run < Nanos::SECOND {
        return Nanos(run.0 / 2);
    }
    let wanted = (run.0 / 6).clamp(1_000_000_000, 10_000_000_000);
    Nanos(run.0 / (run.0 / wanted).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const COSTS: &MeasuringCosts = &MeasuringCosts::REAL;

    proptest! {
        #[test]
        fn never_exceeds_the_time(
            seconds in 1u64..200_000,
            entries in 1u64..60,
            stay_up: bool,
        ) {
            let limits = RunLimits::of(COSTS, stay_up);
            match share_time(Nanos::from_secs(seconds), entries, limits) {
                Ok((repetitions, run)) => {
                    prop_assert!(run >= limits.shortest && run <= LONGEST_RUN);
                    let batches = run.0 as f64 / batch_of(run).0 as f64;
                    prop_assert!((batches - batches.round()).abs() < 1e-6, "{batches}");
                    let used = (run + limits.overhead).0 * entries * u64::from(repetitions);
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
    fn a_short_evaluation_has_many_short_runs() {
        let matrix = COSTS
            .total
            .saturating_sub(COSTS.disturbance_budget(COSTS.total));
        let limits = RunLimits::of(COSTS, true);
        let (repetitions, run) = share_time(matrix, 9, limits).expect("fits");
        assert!(repetitions >= 20, "{repetitions}");
        // Most of the time is measured.
        assert!(run.0 * 3 > (run + limits.overhead).0 * 2, "{run}");
    }

    #[test]
    fn splits_a_day_into_runs_of_a_minute() {
        let limits = RunLimits::of_new_meters(COSTS);
        let (repetitions, run) = share_time(Nanos::from_secs(86_400), 9, limits).expect("fits");
        assert_eq!((repetitions, run), (159, Nanos::from_millis(59_800)));
    }
}
