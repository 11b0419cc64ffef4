// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Quantiles of Student's t distribution.

use crate::beta::{inverse_regularised_beta, regularised_beta};

/// Returns the value below which Student's t with `freedom` degrees of freedom (at least 1, not
/// necessarily an integer) is with the given `probability` (½ to under 1). Freedom is limited to
/// 10^9.
///
/// P(|T| > t) = I_x(freedom/2, ½) with x = freedom/(freedom + t²) (Abramowitz and Stegun 26.7.1).
pub(crate) fn student_quantile(probability: f64, freedom: f64) -> f64 {
    let freedom = freedom.clamp(1.0, 1e9);
    let outside = 2.0 * (1.0 - probability);
    if outside >= 1.0 {
        return 0.0;
    }
    // Solve for 1 − x, which keeps its digits if the freedom is large.
    let rest = inverse_regularised_beta(0.5, freedom / 2.0, 1.0 - outside, outside);
    (freedom * rest / (1.0 - rest)).sqrt()
}

/// Returns the probability that Student's t with `freedom` degrees of freedom is further from 0
/// than `t`, by the same formula.
pub(crate) fn student_two_sided(t: f64, freedom: f64) -> f64 {
    let freedom = freedom.clamp(1.0, 1e9);
    if !t.is_finite() {
        return 0.0;
    }
    // Use the upper tail of 1 − x, for the same reason.
    regularised_beta(0.5, freedom / 2.0, t * t / (freedom + t * t)).1
}

#[cfg(test)]
mod tests {
    use super::*;
    use statrs::distribution::{ContinuousCDF, StudentsT};

    /// The columns 0.95, 0.975 and 0.995 of the usual printed table.
    #[test]
    fn follows_the_printed_table() {
        for (freedom, expected) in [
            (1.0, [6.314, 12.706, 63.657]),
            (2.0, [2.920, 4.303, 9.925]),
            (4.0, [2.132, 2.776, 4.604]),
            (10.0, [1.812, 2.228, 3.169]),
            (30.0, [1.697, 2.042, 2.750]),
            (1e9, [1.645, 1.960, 2.576]),
        ] {
            for (probability, expected) in [0.95, 0.975, 0.995].into_iter().zip(expected) {
                let found = student_quantile(probability, freedom);
                assert!(
                    (found - expected).abs() < 6e-4,
                    "{freedom} {probability}: {found}"
                );
            }
        }
    }

    #[test]
    fn two_sided_probabilities_invert_the_quantiles() {
        for freedom in [1.0, 2.7, 8.0, 33.3] {
            for probability in [0.6, 0.9, 0.975, 0.9999] {
                let t = student_quantile(probability, freedom);
                let found = student_two_sided(t, freedom);
                assert!((found - 2.0 * (1.0 - probability)).abs() < 1e-9, "{found}");
            }
        }
        assert_eq!(student_two_sided(f64::INFINITY, 3.0), 0.0);
        assert_eq!(student_two_sided(0.0, 3.0), 1.0);
    }

    #[test]
    fn inverts_the_distribution_for_fractional_freedom() {
        for freedom in [1.3, 2.7, 5.9, 33.3] {
            let t = StudentsT::new(0.0, 1.0, freedom).expect("a valid distribution");
            for probability in [0.5, 0.8, 0.99, 0.9999] {
                let found = t.cdf(student_quantile(probability, freedom));
                assert!((found - probability).abs() < 1e-9);
            }
        }
    }
}
