// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compares rates of rare events: stalls, gaps.
//!
//! Events come in bursts, so their number varies more than Poisson's law allows. The excess is
//! estimated from the visits of a side (P. McCullagh and J. A. Nelder, "Generalized Linear Models",
//! 1989, §6.2.3), and counts are divided by it: a burst counts as one event.

use rampart_model::{Interval, Nanos, VerdictOutcome};

use crate::beta::{inverse_regularised_beta, regularised_beta};
use crate::risk::Risk;

/// A rate that grows by at most this many events a second counts as unchanged, however small the
/// other one is: a load that adds a stall each second never does.
pub const ADDED_EVENTS: f64 = 0.9;
/// A "holds" needs at least this probability of as many events by chance.
const DOUBT: f64 = 0.05;

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

    /// Returns the one-sided upper bound of the rate per second.
    fn upper(&self, dispersion: f64, risk: f64) -> f64 {
        dispersion * poisson_upper(self.events() / dispersion, risk) / self.seconds().max(1e-12)
    }

    /// Returns the one-sided lower bound of the rate per second.
    fn lower(&self, dispersion: f64, risk: f64) -> f64 {
        dispersion * poisson_lower(self.events() / dispersion, risk) / self.seconds().max(1e-12)
    }
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
fn poisson_upper(events: f64, risk: f64) -> f64 {
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
    /// The first rate exceeds the second by at most this many events per second, one-sided.
    pub added_at_most: f64,
    /// The ratio of the rates; `None` if its interval has no information.
    pub ratio: Option<Interval>,
    /// The outcome of this question.
    pub outcome: VerdictOutcome,
}

/// Answers whether the rate of `above` is at most `tolerance` times that of `below`, or exceeds it
/// by at most [`ADDED_EVENTS`].
pub(crate) fn compare(
    above: &Events,
    below: &Events,
    tolerance: f64,
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
    // Both sides together in the worse direction (G. Y. Zou and A. Donner, Statistics in Medicine
    // 27, 2008).
    let added = above.rate() - below.rate();
    let added_at_most = added
        + ((above.upper(dispersion, risk.hold) - above.rate()).powi(2)
            + (below.rate() - below.lower(dispersion, risk.hold)).powi(2))
        .sqrt();
    let by_chance = if a <= 0.0 {
        1.0
    } else {
        regularised_beta(a, b + 1.0, times / (1.0 + times)).0
    };
    let outcome = if lower(risk.alarm) > tolerance {
        alarm
    } else if upper(risk.hold) <= tolerance || (added_at_most <= ADDED_EVENTS && by_chance >= DOUBT)
    {
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
        ratio: (low > 0.0 && high <= low * 100.0).then_some(ratio),
        outcome,
    }
}
