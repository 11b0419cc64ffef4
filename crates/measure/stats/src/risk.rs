// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How sure a verdict must be.

/// Probability of any false alarm ("fails", "leaks") in a whole evaluation, at most.
pub const ALARM_RISK: f64 = 0.01;

/// Probability that a single "holds" is false, at most.
pub const HOLD_RISK: f64 = 0.01;

/// The probabilities of error of one question, both one-sided.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Risk {
    /// Of a false alarm.
    pub alarm: f64,
    /// Of a false "holds".
    pub hold: f64,
}

impl Risk {
    /// Divides [`ALARM_RISK`] among all `questions` of an evaluation (Bonferroni), and both risks
    /// among `looks`: how often an evaluation may ask whether it has decided enough to end.
    #[must_use]
    pub fn of(questions: u32, looks: u32) -> Self {
        let looks = f64::from(looks.max(1));
        Self {
            alarm: ALARM_RISK / f64::from(questions.max(1)) / looks,
            hold: HOLD_RISK / looks,
        }
    }

    /// Returns the confidence of a two-sided interval whose ends are each wrong with the
    /// probability of a false "holds".
    #[must_use]
    pub fn confidence(&self) -> f64 {
        1.0 - 2.0 * self.hold
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn divides_risks_among_questions_and_looks() {
        let close = |found: f64, expected: f64| assert!((found / expected - 1.0).abs() < 1e-12);
        let one = Risk::of(1, 1);
        close(one.alarm, 0.01);
        close(one.hold, 0.01);
        close(one.confidence(), 0.98);
        // All questions together have the risk of an alarm, each has that of a false "holds".
        let all = Risk::of(52, 2);
        close(all.alarm, 0.01 / 104.0);
        close(all.hold, 0.005);
        close(all.confidence(), 0.99);
    }
}
