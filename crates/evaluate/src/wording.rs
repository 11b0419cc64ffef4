// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Verdicts in words, each with the figures it rests on.

use rampart_model::{Exposure, Interval, VerdictFigures, VerdictOutcome};

/// A share as people say it: `1 in 9 986`.
fn one_in(share: f64) -> String {
    format!("1 in {}", grouped((1.0 / share.max(1e-18)).floor() as u64))
}

/// A count with thin groups of three digits.
pub(crate) fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// The name of a quantile: `p99.9`.
pub(crate) fn quantile_name(quantile: f64) -> String {
    let percent = format!("{:.4}", quantile * 100.0);
    format!("p{}", percent.trim_end_matches('0').trim_end_matches('.'))
}

/// What a deadline's figures say.
pub(crate) fn deadline(figures: &VerdictFigures, exposure: &Exposure, emulated: bool) -> String {
    let VerdictFigures::Deadline {
        deadline,
        cycles,
        exceedances,
        upper_bound,
        confidence,
        time_between_violations,
        max,
    } = figures
    else {
        return String::new();
    };
    if emulated {
        return "the machine is emulated in software: its times mean nothing, and no deadline is judged".to_owned();
    }
    let confidence = confidence * 100.0;
    let seen = format!(
        "{} of {} cycles in {} exceeded {deadline}, worst {max}",
        grouped(*exceedances),
        grouped(*cycles),
        exposure.duration,
    );
    match time_between_violations {
        Some(between) => format!(
            "{seen}: at {confidence:.0} % confidence at most {} cycles does, and violations are at least {between} apart on average",
            one_in(*upper_bound)
        ),
        None => format!(
            "{seen}: at {confidence:.0} % confidence up to {} cycles does",
            one_in(*upper_bound)
        ),
    }
}

/// What ratios of quantiles say. `whose` completes "p99 is 1.2 times …".
pub(crate) fn ratios(
    whose: &str,
    ratios: &[(f64, Interval)],
    outcome: VerdictOutcome,
    tolerance: f64,
    runs_compared: bool,
) -> String {
    let figures: Vec<String> = ratios
        .iter()
        .map(|(quantile, interval)| {
            format!(
                "{} ×{} ({} to {})",
                quantile_name(*quantile),
                factor(interval.estimate),
                factor(interval.low),
                factor(interval.high)
            )
        })
        .collect();
    let conclusion = match outcome {
        VerdictOutcome::Holds => format!("all within ×{tolerance}"),
        VerdictOutcome::Fails | VerdictOutcome::Leaks => format!("beyond ×{tolerance}"),
        VerdictOutcome::Inconclusive if !runs_compared => {
            "a single run does not tell how runs differ".to_owned()
        }
        VerdictOutcome::Inconclusive => {
            format!("the intervals do not decide about ×{tolerance}; measure longer")
        }
    };
    format!("{} {whose}: {conclusion}", figures.join(", "))
}

/// Where nothing can be compared.
pub(crate) fn too_little(exposure: &Exposure) -> String {
    format!(
        "{} samples in {} {} over {} are too little to compare",
        grouped(exposure.samples),
        exposure.runs,
        if exposure.runs == 1 { "run" } else { "runs" },
        exposure.duration
    )
}

/// A factor with the digits that matter.
pub(crate) fn factor(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_read_as_people_write_them() {
        assert_eq!(grouped(1_234_567), "1 234 567");
        assert_eq!(grouped(999), "999");
        assert_eq!(one_in(1e-4), "1 in 10 000");
        assert_eq!(quantile_name(0.999), "p99.9");
        assert_eq!(quantile_name(0.5), "p50");
        assert_eq!(factor(123.4), "123");
    }
}
