// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Positions of estimates and intervals on an axis that all rows of a table share.

use rampart_model::{Interval, Nanos};

use crate::element::{Axis, Drawing, Outcome};
use crate::format;

/// Two names of an axis are at least so far apart, in percent.
const GAP: f64 = 11.0;

/// An axis of ratios, logarithmic.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RatioAxis {
    low: f64,
    high: f64,
    /// The tolerance to draw; 1 for none.
    pub(crate) tolerance: f64,
}

impl RatioAxis {
    /// Returns the axis that holds all intervals and the tolerance.
    pub(crate) fn of<'a>(all: impl Iterator<Item = &'a Interval>, tolerance: f64) -> Self {
        let ends: Vec<f64> = all
            .flat_map(|interval| [interval.low, interval.high])
            .filter(|end| end.is_finite() && *end > 0.0)
            .collect();
        let low = ends
            .iter()
            .copied()
            .fold((1.0 / tolerance).min(0.8), f64::min);
        let high = ends.iter().copied().fold(tolerance.max(1.25), f64::max);
        Self {
            low: low.max(1e-4) / 1.1,
            high: high.min(1e6) * 1.1,
            tolerance,
        }
    }

    /// Returns where a ratio is, 0 to 100; beyond an end it is at the end.
    pub(crate) fn at(self, value: f64) -> f64 {
        percent((value.max(1e-9) / self.low).ln() / (self.high / self.low).ln())
    }

    /// Returns an interval on the axis.
    pub(crate) fn drawing(self, of: &Interval, outcome: Outcome) -> Drawing {
        Drawing::Interval {
            label: label(of),
            estimate: self.at(of.estimate),
            ends: (self.at(of.low), self.at(of.high)),
            tolerance: (self.at(1.0 / self.tolerance), self.at(self.tolerance)),
            no_effect: self.at(1.0),
            outcome,
        }
    }

    /// Returns the names along the axis: 1, then others outwards where there is space.
    pub(crate) fn axis(self) -> Axis {
        let mut candidates = vec![1.0];
        for power in 0..=6 {
            for step in [2.0, 5.0, 10.0] {
                let value: f64 = step * 10f64.powi(power);
                if value <= 1e6 {
                    candidates.extend([value, 1.0 / value]);
                }
            }
        }
        candidates.sort_by(|a: &f64, b: &f64| a.ln().abs().total_cmp(&b.ln().abs()));
        let inside = candidates
            .into_iter()
            .filter(|mark| *mark > self.low && *mark < self.high);
        spaced(inside.map(|mark| (self.at(mark), short(mark))), GAP)
    }
}

fn short(value: f64) -> String {
    if value >= 1000.0 {
        format!("{value:.0e}")
    } else if value >= 1.0 {
        format!("{value:.0}")
    } else if value >= 1e-3 {
        let text = format!("{value:.4}");
        text.trim_end_matches('0').to_owned()
    } else {
        format!("{value:.0e}")
    }
}

/// Returns names that are at least `gap` apart; earlier ones go first.
pub(crate) fn spaced(marks: impl Iterator<Item = (f64, String)>, gap: f64) -> Axis {
    let mut shown: Vec<(f64, String)> = Vec::new();
    for mark in marks {
        if shown.iter().all(|other| (other.0 - mark.0).abs() > gap) {
            shown.push(mark);
        }
    }
    Axis(shown)
}

/// Returns where the part of a block is that crosses.
fn transfer_at(value: f64) -> f64 {
    percent((value + 0.15) / 1.3)
}

/// Returns the part of a block that crosses, with its interval.
pub(crate) fn transfer_drawing(of: &Interval, tolerance: f64, outcome: Outcome) -> Drawing {
    Drawing::Interval {
        label: label(of),
        estimate: transfer_at(of.estimate),
        ends: (transfer_at(of.low), transfer_at(of.high)),
        tolerance: (transfer_at(-0.15), transfer_at(tolerance)),
        no_effect: transfer_at(0.0),
        outcome,
    }
}

/// A logarithmic axis of times.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TimeAxis {
    low: f64,
    high: f64,
}

impl TimeAxis {
    pub(crate) fn of(values: &[Nanos]) -> Self {
        let low = values.iter().map(|value| value.0).min().unwrap_or(1) as f64;
        let high = values.iter().map(|value| value.0).max().unwrap_or(1) as f64;
        Self {
            low: (low / 1.3).max(1.0),
            high: high.max(1.0) * 1.3,
        }
    }

    pub(crate) fn at(self, value: f64) -> f64 {
        percent((value.max(1.0) / self.low).ln() / (self.high / self.low).ln())
    }

    /// Returns round times along the axis.
    pub(crate) fn axis(self) -> Axis {
        let decades = (self.high / self.low).log10();
        let steps: &[f64] = if decades > 3.2 {
            &[1.0]
        } else if decades > 1.2 {
            &[1.0, 2.0, 5.0]
        } else {
            &[1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]
        };
        let powers = self.low.log10().floor() as i32..=self.high.log10().ceil() as i32;
        let marks = powers.flat_map(|power| steps.iter().map(move |step| step * 10f64.powi(power)));
        let inside = marks.filter(|mark| *mark >= self.low && *mark <= self.high);
        spaced(
            inside.map(|mark| (self.at(mark), format::time(Nanos(mark.round() as u64)))),
            14.0,
        )
    }
}

/// Returns a part of the width in percent, within it.
pub(crate) fn percent(part: f64) -> f64 {
    // Four decimals are less than a pixel, and keep the page small.
    (part.clamp(0.0, 1.0) * 1e6).round() / 1e4
}

fn label(of: &Interval) -> String {
    format!(
        "{}, from {} to {}",
        format::factor(of.estimate),
        format::factor(of.low),
        format::factor(of.high)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_hold_every_interval() {
        let interval = |low: f64, high: f64| Interval {
            estimate: f64::midpoint(low, high),
            low,
            high,
            confidence: 0.95,
        };
        let axis = RatioAxis::of([interval(0.5, 3.0), interval(1.0, 40.0)].iter(), 1.5);
        for value in [0.5, 1.0, 40.0] {
            assert!(axis.at(value) > 0.0 && axis.at(value) < 100.0);
        }
        let Axis(marks) = axis.axis();
        assert!(
            marks.iter().any(|(_, name)| name == "1") && marks.len() >= 4,
            "{marks:?}"
        );
        assert!(transfer_at(0.0) > 0.0 && transfer_at(1.0) < 100.0);
        assert!((transfer_at(-9.0), transfer_at(9.0)) == (0.0, 100.0));
    }
}
