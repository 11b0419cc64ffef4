// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bounds on how often a limit is exceeded.

use rampart_model::{Interval, Nanos, VerdictOutcome};

use crate::beta::inverse_regularised_beta;

/// One-sided confidence of the bound in a verdict on a deadline. 95 % is customary and gives the
/// "rule of three": no event in n cycles bounds the probability at 3/n.
pub const DEADLINE_CONFIDENCE: f64 = 0.95;

/// A deadline holds only if the bound on the probability of an exceedance per cycle is at most
/// this. Without an exceedance, 2 995 cycles are needed: three seconds at 1 kHz.
pub const DEADLINE_RISK: f64 = 1e-3;

/// Returns the upper bound of the probability that a cycle exceeds the limit, after `exceedances`
/// in `cycles`: the true probability is at most this in the part `confidence` (over 0, under 1) of
/// all experiments. One-sided and exact (Clopper and Pearson, Biometrika 26, 1934). Returns `None`
/// without cycles, with more exceedances than cycles, or with an invalid confidence.
///
/// The bound assumes independent cycles. Disturbances come in bursts, so cycles are not, and a
/// verdict bounds visits instead ([`time_between_bursts`]).
#[must_use]
pub fn exceedance_bound(exceedances: u64, cycles: u64, confidence: f64) -> Option<f64> {
    if cycles == 0 || exceedances > cycles || !(confidence > 0.0 && confidence < 1.0) {
        return None;
    }
    Some(upper(exceedances, cycles, 1.0 - confidence))
}

/// Returns the two-sided interval for that probability, with the part (1 − `confidence`)/2 on
/// either side (Clopper and Pearson 1934). Returns `None` in the same cases as
/// [`exceedance_bound`].
#[must_use]
pub fn clopper_pearson(exceedances: u64, cycles: u64, confidence: f64) -> Option<Interval> {
    exceedance_bound(exceedances, cycles, confidence)?;
    let tail = (1.0 - confidence) / 2.0;
    Some(Interval {
        estimate: exceedances as f64 / cycles as f64,
        low: lower(exceedances, cycles, tail),
        high: upper(exceedances, cycles, tail),
        confidence,
    })
}

/// Returns the probability per cycle at which at most `exceedances` occur in the part `tail` of
/// experiments.
fn upper(exceedances: u64, cycles: u64, tail: f64) -> f64 {
    if exceedances == cycles {
        return 1.0;
    }
    if exceedances == 0 {
        // 1 − tail^(1/n), without cancellation.
        return -(tail.ln() / cycles as f64).exp_m1();
    }
    let (k, rest) = (exceedances as f64, (cycles - exceedances) as f64);
    inverse_regularised_beta(k + 1.0, rest, 1.0 - tail, tail)
}

/// Returns the probability per cycle at which at least `exceedances` occur in the part `tail` of
/// experiments.
fn lower(exceedances: u64, cycles: u64, tail: f64) -> f64 {
    if exceedances == 0 {
        return 0.0;
    }
    if exceedances == cycles {
        return (tail.ln() / cycles as f64).exp();
    }
    let (k, rest) = (exceedances as f64, (cycles - exceedances) as f64);
    inverse_regularised_beta(k, rest + 1.0, tail, 1.0 - tail)
}

/// Returns the lower bound of the mean time between violations after `exposure` without a
/// violation, at the given confidence (over 0, under 1): exposure ÷ −ln(1 − confidence), a third of
/// the exposure at 95 %. It assumes a Poisson process; a higher measuring rate does not raise it.
/// Returns zero for an invalid confidence.
#[must_use]
pub fn time_between_violations(exposure: Nanos, confidence: f64) -> Nanos {
    if !(confidence > 0.0 && confidence < 1.0) {
        return Nanos::ZERO;
    }
    // Round down, because this is a lower bound; the conversion saturates.
    Nanos((exposure.0 as f64 / -(-confidence).ln_1p()) as u64)
}

/// Returns the lower bound of the mean time between bursts of exceedances, of which `with` of
/// `visits` had at least one, after `exposure` over all visits, at the given confidence. `None` if
/// every visit may have one, and for invalid input.
///
/// Visits are independent of each other, whatever happens within one: the share of visits with an
/// exceedance has the exact bound [`exceedance_bound`], and a Poisson process of that share has this
/// rate. Without an exceedance it is [`time_between_violations`], a third of the exposure at 95 %.
#[must_use]
pub fn time_between_bursts(
    with: u32,
    visits: u32,
    exposure: Nanos,
    confidence: f64,
) -> Option<Nanos> {
    if with == 0 {
        return (visits > 0).then(|| time_between_violations(exposure, confidence));
    }
    let share = exceedance_bound(with.into(), visits.into(), confidence)?;
    let visit = exposure.0 as f64 / f64::from(visits);
    (share < 1.0).then(|| Nanos((visit / -(-share).ln_1p()) as u64))
}

/// Returns the verdict on a deadline: [`VerdictOutcome::Fails`] after any exceedance,
/// [`VerdictOutcome::Holds`] without one in enough cycles to bound the probability at
/// [`DEADLINE_RISK`], otherwise [`VerdictOutcome::Inconclusive`].
#[must_use]
pub fn deadline_outcome(exceedances: u64, cycles: u64) -> VerdictOutcome {
    match exceedance_bound(exceedances, cycles, DEADLINE_CONFIDENCE) {
        Some(_) if exceedances > 0 => VerdictOutcome::Fails,
        Some(bound) if bound <= DEADLINE_RISK => VerdictOutcome::Holds,
        _ => VerdictOutcome::Inconclusive,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn close(found: f64, expected: f64, tolerance: f64) {
        assert!(
            (found / expected - 1.0).abs() < tolerance,
            "found {found}, expected {expected}"
        );
    }

    #[test]
    fn no_exceedance_gives_the_rule_of_three() {
        for cycles in [100, 10_000, 1_000_000_000_000] {
            let bound = exceedance_bound(0, cycles, 0.95).expect("a bound");
            close(bound * cycles as f64, 2.995_732, 0.02);
            assert!(bound < 3.0 / cycles as f64);
        }
        close(exceedance_bound(0, 1, 0.95).expect("a bound"), 0.95, 1e-15);
    }

    /// Two-sided 95 % limits as printed in tables of the binomial distribution.
    #[test]
    fn agrees_with_published_tables() {
        for (k, n, low, high) in [
            (0, 10, 0.0, 0.3085),
            (1, 10, 0.0025, 0.4450),
            (2, 10, 0.0252, 0.5561),
            (5, 10, 0.1871, 0.8129),
            (10, 10, 0.6915, 1.0),
            (1, 20, 0.0013, 0.2487),
            (10, 100, 0.0490, 0.1762),
        ] {
            let interval = clopper_pearson(k, n, 0.95).expect("an interval");
            assert!((interval.low - low).abs() < 6e-5, "{k}/{n} {interval:?}");
            assert!((interval.high - high).abs() < 6e-5, "{k}/{n} {interval:?}");
        }
    }

    /// For rare events the limit is that of the Poisson distribution, in any statistical table:
    /// 95 % one-sided upper limits of a mean after k events.
    #[test]
    fn rare_events_in_many_cycles_reach_the_poisson_limits() {
        let cycles = 1_000_000_000_000;
        for (k, limit) in [
            (1, 4.743_865),
            (2, 6.295_794),
            (3, 7.753_657),
            (5, 10.513_03),
            (10, 16.962_22),
        ] {
            let bound = exceedance_bound(k, cycles, 0.95).expect("a bound");
            close(bound * cycles as f64, limit, 1e-6);
        }
    }

    /// For many events the beta distribution is nearly normal, and the first two terms of the
    /// expansion of Cornish and Fisher give the limit to about k^(-3/2).
    #[test]
    fn many_events_in_many_cycles_reach_the_normal_limit() {
        let z = 1.644_853_626_951_472_6;
        for (k, n) in [
            (1_000_000u64, 1_000_000_000_000u64),
            (100_000_000_000, 1_000_000_000_000),
        ] {
            let (a, b) = (k as f64 + 1.0, (n - k) as f64);
            let sum = a + b;
            let deviation = (a * b / (sum + 1.0)).sqrt() / sum;
            let skewness = 2.0 * (b - a) * (sum + 1.0).sqrt() / ((sum + 2.0) * (a * b).sqrt());
            let expected = a / sum + deviation * (z + skewness * (z * z - 1.0) / 6.0);
            let bound = exceedance_bound(k, n, 0.95).expect("a bound");
            close(bound, expected, 5e-9);
        }
    }

    #[test]
    fn returns_none_for_invalid_input() {
        assert_eq!(exceedance_bound(0, 0, 0.95), None);
        assert_eq!(exceedance_bound(2, 1, 0.95), None);
        for confidence in [0.0, 1.0, -1.0, 2.0, f64::NAN] {
            assert_eq!(exceedance_bound(1, 2, confidence), None);
            assert_eq!(
                time_between_violations(Nanos::SECOND, confidence),
                Nanos::ZERO
            );
        }
    }

    #[test]
    fn time_between_violations_is_a_third_of_the_exposure() {
        let found = time_between_violations(Nanos::from_secs(86_400), 0.95);
        close(found.as_secs_f64() / 3600.0, 8.011, 1e-4);
        assert!(time_between_violations(Nanos(u64::MAX), 0.01) > Nanos(u64::MAX / 2));
    }

    #[test]
    fn bursts_are_counted_by_visits() {
        let between = |with, visits| {
            time_between_bursts(with, visits, Nanos::from_secs(60), 0.95)
                .map(|time| time.as_secs_f64())
        };
        close(between(0, 12).expect("a bound"), 20.03, 1e-3);
        close(between(0, 1).expect("a bound"), 20.03, 1e-3);
        // One of two visits: at most 97.5 % of visits have one (0.95^½).
        close(
            between(1, 2).expect("a bound"),
            30.0 / -(1.0 - 0.95f64.sqrt()).ln(),
            1e-9,
        );
        assert_eq!(between(2, 2), None);
        assert_eq!(between(0, 0), None);
    }

    #[test]
    fn a_deadline_needs_exposure_to_hold_and_one_exceedance_to_fail() {
        assert_eq!(deadline_outcome(0, 0), VerdictOutcome::Inconclusive);
        assert_eq!(deadline_outcome(0, 2_994), VerdictOutcome::Inconclusive);
        assert_eq!(deadline_outcome(0, 2_995), VerdictOutcome::Holds);
        assert_eq!(deadline_outcome(1, 1), VerdictOutcome::Fails);
        assert_eq!(
            deadline_outcome(1, 1_000_000_000_000),
            VerdictOutcome::Fails
        );
    }

    proptest! {
        #[test]
        fn bounds_are_probabilities_and_grow_with_exceedances(cycles in 1u64..1_000_000_000_000, part in 0.0f64..1.0, confidence in 0.5f64..0.999) {
            let k = ((cycles as f64).powf(part) as u64).min(cycles - 1).min(1_000_000);
            let bound = exceedance_bound(k, cycles, confidence).expect("a bound");
            let more = exceedance_bound(k + 1, cycles, confidence).expect("a bound");
            let longer = exceedance_bound(k, cycles * 2, confidence).expect("a bound");
            let surer = exceedance_bound(k, cycles, confidence + (1.0 - confidence) / 2.0).expect("a bound");
            prop_assert!(bound >= k as f64 / cycles as f64 && bound <= 1.0);
            prop_assert!(more > bound, "{more} {bound}");
            prop_assert!(longer < bound);
            prop_assert!(surer > bound);
        }

        #[test]
        fn interval_limits_are_symmetric(cycles in 1u64..100_000, part in 0.0f64..=1.0) {
            let k = (cycles as f64 * part) as u64;
            let interval = clopper_pearson(k, cycles, 0.95).expect("an interval");
            let mirrored = clopper_pearson(cycles - k, cycles, 0.95).expect("an interval");
            prop_assert!(interval.low <= interval.estimate && interval.estimate <= interval.high);
            prop_assert!((interval.low - (1.0 - mirrored.high)).abs() < 1e-9);
        }
    }
}
