// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Verdicts in words, each with the figures it rests on.

use rampart_model::{BlockKind, Exposure, Interval, Nanos, VerdictFigures, VerdictOutcome};
use rampart_stats::{Basis, FEWEST_WINDOWS, Factors, TRANSFER_TOLERANCE, Transfer};

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

/// The outcome and the sentence of interference factors. On an emulated machine a load anywhere
/// takes time from the emulation of all CPUs: that it holds means something there, that it leaks
/// does not.
pub(crate) fn interference(
    found: &Factors,
    tolerance: f64,
    emulated: bool,
) -> (VerdictOutcome, String) {
    let statement = ratios(
        "of the idle ones",
        &found.factors,
        found.outcome,
        tolerance,
        found.basis == Basis::Runs,
    );
    if emulated && found.outcome == VerdictOutcome::Leaks {
        return (
            VerdictOutcome::Inconclusive,
            format!(
                "{statement}; but the machine is emulated, and a load anywhere slows the emulation of all its CPUs, so nothing follows about the wall"
            ),
        );
    }
    (found.outcome, statement)
}

/// What windows with and without blocks say.
pub(crate) fn transfer(
    found: &Transfer,
    length: Nanos,
    kind: BlockKind,
    windows: (usize, usize),
) -> String {
    let interval = &found.transfer;
    let part = |value: f64| format!("{value:.3}");
    let figures = format!(
        "τ {} ({} to {}) of blocks of {length} ({kind}), p {}, {} windows with a block and {} without",
        part(interval.estimate),
        part(interval.low),
        part(interval.high),
        probability(found.p_value),
        windows.0,
        windows.1,
    );
    let conclusion = match found.outcome {
        VerdictOutcome::Leaks if found.is_partial() => format!(
            "some blocks cross: {} of {} windows with one are worse by far more than others, against {} of {}",
            found.crossed.0, windows.0, found.crossed.1, windows.1
        ),
        VerdictOutcome::Leaks => "blocks cross".to_owned(),
        VerdictOutcome::Holds => format!(
            "no block crosses; a τ of {}, or one block in {:.0}, would have been seen",
            part(found.smallest_detectable),
            1.0 / found.part_not_seen.max(1e-9)
        ),
        _ if windows.0.min(windows.1) < FEWEST_WINDOWS => {
            format!("fewer than {FEWEST_WINDOWS} windows of a sort decide nothing; measure longer")
        }
        _ => format!(
            "the windows do not decide about a τ of {TRANSFER_TOLERANCE}; measure longer, or on a quieter machine"
        ),
    };
    format!("{figures}: {conclusion}")
}

/// A chance with the digits that matter.
fn probability(value: f64) -> String {
    if value < 0.01 {
        format!("{value:.4}")
    } else {
        format!("{value:.2}")
    }
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
