// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compares rates of rare events: stalls, gaps.
//!
//! Events come in bursts, so their number varies more than Poisson's law allows.
//!
//! - For a ratio, the excess is estimated from the visits of a side (P. McCullagh and J. A. Nelder,
//!   "Generalized Linear Models", 1989, §6.2.3), and counts are divided by it.
//! - For a bound, bursts are counted and not events: a visit has one or none. Visits are independent
//!   whatever happens within one, so the limits are exact.

use rampart_model::{Interval, Nanos, VerdictOutcome};

use crate::beta::{inverse_regularised_beta, regularised_beta};
use crate::bounds::clopper_pearson;
use crate::risk::Risk;

/// A rate that grows by less than this many bursts a second counts as unchanged, however small the
/// other one is. A load that adds a stall each second is at this limit: "holds" is then false, and has
/// at most the probability [`Risk::hold`].
pub const ADDED_EVENTS: f64 = 1.0;
/// The same for stalls that may skip a single cycle, as a part of the cycles, if that is more. Control
/// loops tolerate single skipped cycles, and not several in a row (G. Bernat, A. Burns and A. Llamosí,
/// "Weakly hard real-time systems", IEEE Transactions on Computers 50, 2001).
pub const ADDED_SKIPS: f64 = 1e-3;
/// A "holds" needs at least this probability of as many events by chance.
const DOUBT: f64 = 0.01;
/// Stalls over this many periods skip several cycles in a row.
const SEVERAL_CYCLES: u64 = 4;

/// A length above which a sample is a stall, and how many more of them are tolerated.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StallLength {
    /// The length.
    pub over: Nanos,
    /// Bursts of stalls a second by which a rate may grow.
    pub tolerated: f64,
}

impl StallLength {
    /// The number of lengths of a meter with a period.
    pub const OF_A_PERIOD: usize = 2;

    /// Returns a length over which [`ADDED_EVENTS`] more are tolerated.
    #[must_use]
    pub const fn over(over: Nanos) -> Self {
        Self {
            over,
            tolerated: ADDED_EVENTS,
        }
    }

    /// Returns the lengths of a meter with this period: stalls that skip a cycle, and several.
    #[must_use]
    pub fn of_period(period: Nanos) -> [Self; Self::OF_A_PERIOD] {
        let cycles = 1.0 / period.as_secs_f64().max(1e-9);
        [
            Self {
                over: period,
                tolerated: ADDED_EVENTS.max(ADDED_SKIPS * cycles),
            },
            Self::over(Nanos(period.0.saturating_mul(SEVERAL_CYCLES))),
        ]
    }
}

/// The events of one side, by visit.
#[derive(Debug, Clone, Default)]
pub(crate) struct Events {
    /// Events and observed seconds of each visit.
    visits: Vec<(f64, f64)>,
}

impl Events {
    pub(crate) fn new(visits: impl IntoIterator<Item = (u64, Nanos)>) -> Self {
        Self {
            visits: visits
                .into_iter()
                .map(|(events, observed)| (events as f64, observed.as_secs_f64()))
                .filter(|(_, observed)| *observed > 0.0)
                .collect(),
        }
    }

    fn events(&self) -> f64 {
        self.visits.iter().map(|visit| visit.0).sum()
    }

    fn seconds(&self) -> f64 {
        self.visits.iter().map(|visit| visit.1).sum()
    }

    fn observed(&self) -> Nanos {
        Nanos((self.seconds() * 1e9).round() as u64)
    }

    fn rate(&self) -> f64 {
        self.events() / self.seconds().max(1e-12)
    }

    /// Returns Pearson's sum of squares of the visits, and its degrees of freedom.
    fn pearson(&self) -> (f64, f64) {
        let rate = self.rate();
        if rate <= 0.0 || self.visits.len() < 2 {
            return (0.0, 0.0);
        }
        let sum = self
            .visits
            .iter()
            .map(|(events, seconds)| (events - rate * seconds).powi(2) / (rate * seconds))
            .sum();
        (sum, self.visits.len() as f64 - 1.0)
    }

    /// Returns the rate of bursts per second and its two one-sided limits, from the number of visits
    /// with an event. `None` if each visit has one, and for fewer than two visits.
    ///
    /// The limits of the share p of such visits are exact (C. J. Clopper and E. S. Pearson,
    /// Biometrika 26, 1934); bursts that follow Poisson's law have the rate −ln(1 − p) ÷ the time of a
    /// visit.
    fn bursts(&self, risk: f64) -> Option<Limits> {
        let visits = self.visits.len() as u64;
        let with = self.visits.iter().filter(|visit| visit.0 > 0.0).count() as u64;
        if visits < 2 || with == visits {
            return None;
        }
        let share = clopper_pearson(with, visits, 1.0 - 2.0 * risk)?;
        let rate = |share: f64| -(-share).ln_1p() * visits as f64 / self.seconds().max(1e-12);
        Some(Limits {
            rate: rate(share.estimate),
            low: rate(share.low),
            high: rate(share.high),
        })
    }

    /// Returns the rate of events per second and its limits.
    fn limits(&self, dispersion: f64, risk: f64) -> Limits {
        Limits {
            rate: self.rate(),
            low: self.lower(dispersion, risk),
            high: self.upper(dispersion, risk),
        }
    }

    /// Returns the one-sided upper bound of the rate per second.
    fn upper(&self, dispersion: f64, risk: f64) -> f64 {
        dispersion * poisson_upper(self.events() / dispersion, risk) / self.seconds().max(1e-12)
    }

    /// Returns the one-sided lower bound of the rate per second.
    fn lower(&self, dispersion: f64, risk: f64) -> f64 {
        dispersion * poisson_lower(self.events() / dispersion, risk) / self.seconds().max(1e-12)
    }
}

/// A rate per second with two one-sided limits.
#[derive(Debug, Clone, Copy)]
struct Limits {
    rate: f64,
    low: f64,
    high: f64,
}

/// Returns the upper bound of the excess of one rate over another: both sides together in the worse
/// direction (G. Y. Zou and A. Donner, Statistics in Medicine 27, 2008).
fn added_at_most(above: Limits, below: Limits) -> f64 {
    let margin = (above.high - above.rate).hypot(below.rate - below.low);
    above.rate - below.rate + margin
}

/// Returns the variance of the counts of visits divided by that of Poisson's law, at least 1.
fn dispersion(one: &Events, other: &Events) -> f64 {
    let ((a, free_a), (b, free_b)) = (one.pearson(), other.pearson());
    if free_a + free_b > 0.0 {
        ((a + b) / (free_a + free_b)).max(1.0)
    } else {
        1.0
    }
}

/// Approximates infinitely many cycles, of which any number of events is a negligible part.
const MANY: f64 = 1e9;

/// Returns the mean of Poisson's law at which `events` or fewer occur with the probability `risk`.
pub(crate) fn poisson_upper(events: f64, risk: f64) -> f64 {
    MANY * inverse_regularised_beta(events + 1.0, MANY, 1.0 - risk, risk)
}

/// Returns the mean of Poisson's law at which `events` or more occur with the probability `risk`.
fn poisson_lower(events: f64, risk: f64) -> f64 {
    if events <= 0.0 {
        return 0.0;
    }
    MANY * inverse_regularised_beta(events, MANY, risk, 1.0 - risk)
}

/// Two rates compared.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RateRatio {
    /// Events of both sides.
    pub events: (u64, u64),
    /// Observed time of both sides.
    pub observed: (Nanos, Nanos),
    /// The first side has at most this many bursts of events per second more, one-sided. All events
    /// of a visit are one burst.
    pub added_at_most: f64,
    /// Whether the first side is shown to have fewer bursts, by more than the tolerance.
    pub fewer: bool,
    /// The ratio of the rates; `None` if its interval has no information.
    pub ratio: Option<Interval>,
    /// The outcome of this question.
    pub outcome: VerdictOutcome,
}

/// Answers whether the rate of `above` is at most `tolerance` times that of `below`, or its bursts
/// exceed those of `below` by at most `tolerated` a second.
pub(crate) fn compare(
    above: &Events,
    below: &Events,
    (tolerance, tolerated): (f64, f64),
    alarm: VerdictOutcome,
    risk: &Risk,
) -> RateRatio {
    let dispersion = dispersion(above, below);
    let (a, b) = (above.events() / dispersion, below.events() / dispersion);
    // The ratio ρ of the rates is in the share of the first side's events (J. Przyborowski and
    // H. Wilenski, Biometrika 31, 1940): p = ρ t ÷ (1 + ρ t), t the ratio of the times.
    let times = above.seconds() / below.seconds().max(1e-12);
    let ratio_of = |share: f64| share / (1.0 - share).max(1e-12) / times;
    let lower = |risk: f64| {
        if a <= 0.0 {
            0.0
        } else {
            ratio_of(inverse_regularised_beta(a, b + 1.0, risk, 1.0 - risk))
        }
    };
    let upper = |risk: f64| {
        if b <= 0.0 {
            f64::INFINITY
        } else {
            ratio_of(inverse_regularised_beta(a + 1.0, b, 1.0 - risk, risk))
        }
    };
    // Where bursts cannot be counted, events bound them.
    let limits = match (above.bursts(risk.hold), below.bursts(risk.hold)) {
        (Some(above), Some(below)) => (above, below),
        _ => (
            above.limits(dispersion, risk.hold),
            below.limits(dispersion, risk.hold),
        ),
    };
    let added_at_most = added_at_most(limits.0, limits.1);
    let by_chance = if a <= 0.0 {
        1.0
    } else {
        regularised_beta(a, b + 1.0, times / (1.0 + times)).0
    };
    let outcome = if lower(risk.alarm) > tolerance {
        alarm
    } else if upper(risk.hold) <= tolerance || (added_at_most <= tolerated && by_chance >= DOUBT) {
        VerdictOutcome::Holds
    } else {
        VerdictOutcome::Inconclusive
    };
    let (low, high) = (lower(risk.hold), upper(risk.hold));
    let ratio = Interval {
        estimate: above.rate() / below.rate(),
        low,
        high,
        confidence: risk.confidence(),
    };
    RateRatio {
        events: (above.events() as u64, below.events() as u64),
        observed: (above.observed(), below.observed()),
        added_at_most,
        fewer: limits.0.high * tolerance < limits.1.low,
        ratio: (low > 0.0 && high <= low * 100.0).then_some(ratio),
        outcome,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::risk::Look;

    /// Returns the answer on events of visits of half a second.
    fn judged(above: &[u64], below: &[u64]) -> RateRatio {
        let events =
            |counts: &[u64]| Events::new(counts.iter().map(|of| (*of, Nanos::from_millis(500))));
        let (above, below) = (events(above), events(below));
        compare(
            &above,
            &below,
            (1.25, ADDED_EVENTS),
            VerdictOutcome::Fails,
            &Risk::of(52, Look::ONLY),
        )
    }

    /// Many events in one burst show as little as one event. As many that are spread are an alarm.
    #[test]
    fn events_of_a_burst_count_as_one() {
        let none = [0; 12];
        let (mut burst, mut one) = (none, none);
        burst[7] = 42;
        one[3] = 1;
        assert_eq!(judged(&[3; 12], &none).outcome, VerdictOutcome::Fails);
        let (burst, one) = (judged(&burst, &none), judged(&one, &none));
        assert_eq!(burst.outcome, VerdictOutcome::Inconclusive);
        assert_eq!(burst.added_at_most, one.added_at_most);
    }

    /// An excess below the tolerated rate that hardly comes by chance does not hold.
    #[test]
    fn a_small_excess_that_is_no_chance_does_not_hold() {
        let visits = |events: usize| -> Vec<u64> {
            (0..200).map(|visit| u64::from(visit < events)).collect()
        };
        // 9 of 9 events on one side: 0.2 % by chance. 8 of 9: 2 %.
        let found = judged(&visits(9), &visits(0));
        assert!(found.added_at_most < ADDED_EVENTS, "{found:?}");
        assert_eq!(found.outcome, VerdictOutcome::Inconclusive);
        assert_eq!(
            judged(&visits(8), &visits(1)).outcome,
            VerdictOutcome::Holds
        );
    }

    #[test]
    fn single_skipped_cycles_have_their_own_limit() {
        let of = |micros| StallLength::of_period(Nanos::from_micros(micros)).map(|of| of.tolerated);
        assert_eq!(of(500), [2.0, 1.0]);
        // Slow loops: one in a thousand cycles is less than one a second.
        assert_eq!(of(10_000), [1.0, 1.0]);
        // One more burst in 0.75 s is tolerated by one of them.
        let visits = |events: usize| -> Events {
            Events::new((0..80).map(|visit| (u64::from(visit < events), Nanos::from_millis(500))))
        };
        let judged = |tolerated| {
            let tolerated = (1.25, tolerated);
            let risk = Risk::of(52, Look::ONLY);
            let alarm = VerdictOutcome::Fails;
            compare(&visits(22), &visits(20), tolerated, alarm, &risk)
        };
        let added = judged(1.0).added_at_most;
        assert!(added > 0.4 && added < 1.0, "{added}");
        assert_eq!(judged(added * 1.01).outcome, VerdictOutcome::Holds);
        assert_eq!(judged(added * 0.99).outcome, VerdictOutcome::Inconclusive);
    }

    /// 0 of 44 visits against 20: at most 0.2 bursts a second against at least 0.7.
    #[test]
    fn clearly_fewer_bursts_are_shown() {
        let visits = |with: usize| -> Vec<u64> {
            (0..44).map(|visit| 4 * u64::from(visit < with)).collect()
        };
        assert!(judged(&visits(0), &visits(20)).fewer);
        assert!(!judged(&visits(8), &visits(20)).fewer);
        assert!(!judged(&visits(20), &visits(0)).fewer);
    }

    /// Without an event the bound is that of Poisson's law: 4.6 events.
    #[test]
    fn no_event_has_a_bound() {
        let found = judged(&[0; 14], &[0; 14]);
        assert!(
            (found.added_at_most - 4.605_17 / 7.0).abs() < 1e-4,
            "{found:?}"
        );
        assert_eq!(found.outcome, VerdictOutcome::Holds);
        assert_eq!(
            judged(&[0; 9], &[0; 9]).outcome,
            VerdictOutcome::Inconclusive
        );
    }
}
