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

/// One of the times at which an evaluation asks whether it has decided enough to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    /// Its number, from 1.
    pub number: u32,
    /// How often the evaluation may ask at most.
    pub of: u32,
}

impl Look {
    /// The only one.
    pub const ONLY: Self = Self { number: 1, of: 1 };

    /// Returns its part of a risk. The last look, which has most data and all comparisons that are hard to
    /// decide, has three quarters, and the others have the rest in equal parts. Every division that is fixed
    /// before keeps the risk (K. K. G. Lan and D. L. DeMets, "Discrete sequential boundaries for clinical
    /// trials", Biometrika 70, 1983).
    fn part(self) -> f64 {
        match self.of {
            0 | 1 => 1.0,
            of if self.number >= of => 0.75,
            of => 0.25 / f64::from(of - 1),
        }
    }
}

impl Risk {
    /// That of a single question, asked once.
    pub const SINGLE: Self = Self {
        alarm: ALARM_RISK,
        hold: HOLD_RISK,
    };

    /// Divides [`ALARM_RISK`] among all `questions` of an evaluation (Bonferroni), and both risks
    /// among its looks.
    #[must_use]
    pub fn of(questions: u32, look: Look) -> Self {
        Self {
            alarm: ALARM_RISK / f64::from(questions.max(1)) * look.part(),
            hold: HOLD_RISK * look.part(),
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
        let one = Risk::of(1, Look::ONLY);
        assert_eq!(one, Risk::SINGLE);
        close(one.alarm, 0.01);
        close(one.hold, 0.01);
        close(one.confidence(), 0.98);
        // All questions together have the risk of an alarm, each has that of a false "holds".
        let all = Risk::of(52, Look { number: 2, of: 2 });
        close(all.alarm, 0.0075 / 52.0);
        close(all.hold, 0.0075);
        close(all.confidence(), 0.985);
        // Over all looks both risks are what they are without looks.
        for of in 1..9 {
            let holds = (1..=of).map(|number| Risk::of(1, Look { number, of }).hold);
            close(holds.sum(), 0.01);
        }
    }
}
