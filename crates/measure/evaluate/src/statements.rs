// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Verdicts in words, each with the figures it rests on.

use rampart_model::{BlockKind, Exposure, Interval, Nanos, VerdictFigures, VerdictOutcome};
use rampart_stats::{Basis, FEWEST_WINDOWS, Factors, SameAs, TRANSFER_TOLERANCE, Transfer};

/// A share as people say it: `1 in 9 986`.
fn one_in(share: f64) -> String {
    format!("1 in {}", grouped((1.0 / share.max(1e-18)).floor() as u64))
}

/// A count with thin groups of three digits.
pub(crate) fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (location, digit) in digits.chars().enumerate() {
        if location > 0 && (digits.len() - location).is_multiple_of(3) {
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

/// The outcome and the sentence of ratios to the host. Of emulated times a ratio is a figure and no
/// more: what the emulation of one path costs against that of another says nothing of real ones.
pub(crate) fn same_as_host(
    found: &SameAs,
    tolerance: f64,
    emulated: bool,
) -> (VerdictOutcome, String) {
    let runs_compared = found.basis == Basis::Runs;
    let statement = ratios(
        "of the host's",
        &found.ratios,
        found.outcome,
        tolerance,
        runs_compared,
    );
    if emulated {
        return (
            VerdictOutcome::Inconclusive,
            format!(
                "{statement}; but these are emulated times, and nothing follows about real ones"
            ),
        );
    }
    (found.outcome, statement)
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
    // A value that rounds to nothing has no sign.
    let part = |value: f64| format!("{value:.3}").replace("-0.000", "0.000");
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
        VerdictOutcome::Leaks if found.is_partial() => {
            format!("some blocks cross: {}", crossed(found, windows))
        }
        VerdictOutcome::Leaks => "blocks cross".to_owned(),
        VerdictOutcome::Holds if found.crossed.0 == 0 => format!(
            "no block crosses by more than {} of its length; a τ of {}, or one block in {:.0}, would have been seen",
            found.crossing,
            part(found.smallest_detectable),
            1.0 / found.part_at_most.max(1e-9)
        ),
        VerdictOutcome::Holds => format!(
            "blocks do no more than may happen without them: {}; at most one block in {:.1} crosses, and a τ of {} would have been seen",
            crossed(found, windows),
            1.0 / found.part_at_most.max(1e-9),
            part(found.smallest_detectable),
        ),
        _ if windows.0.min(windows.1) < FEWEST_WINDOWS => {
            format!("fewer than {FEWEST_WINDOWS} windows of a sort decide nothing; measure longer")
        }
        _ if found.transfer.high < TRANSFER_TOLERANCE => format!(
            "the median holds, but {} ({} and {} by more than half), which may be blocks that cross: up to one in {:.1}; measure longer",
            crossed(found, windows),
            found.crossed_whole.0,
            found.crossed_whole.1,
            1.0 / found.part_at_most.max(1e-9)
        ),
        _ => format!(
            "the windows do not decide about a τ of {TRANSFER_TOLERANCE}; measure longer, or on a quieter machine"
        ),
    };
    format!("{figures}: {conclusion}")
}

/// How many windows are worse by a block's part, with one and without.
fn crossed(found: &Transfer, windows: (usize, usize)) -> String {
    format!(
        "{} of {} windows with a block, and {} of {} without, are worse than usual by more than {} of a block",
        found.crossed.0, windows.0, found.crossed.1, windows.1, found.crossing
    )
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

    /// A verdict that holds although windows are worse says how many, and the level.
    #[test]
    fn what_crossed_is_never_said_to_be_nothing() {
        let windows = |late: usize| -> Vec<Nanos> {
            (0..30)
                .map(|location| Nanos(if location < late { 900 } else { 5 }))
                .collect()
        };
        let said = |with: usize, without: usize| {
            let found = rampart_stats::transfer(
                &windows(with),
                &windows(without),
                Nanos(1000),
                rampart_stats::CROSSED,
                &rampart_stats::Resampling::default(),
            )
            .expect("windows");
            (
                found.outcome,
                transfer(&found, Nanos(1000), BlockKind::Module, (30, 30)),
            )
        };
        let (outcome, text) = said(0, 0);
        assert_eq!(outcome, VerdictOutcome::Holds);
        assert!(text.contains("no block crosses by more than 0.1"), "{text}");
        let (outcome, text) = said(3, 3);
        assert_eq!(outcome, VerdictOutcome::Holds);
        assert!(!text.contains("no block crosses"), "{text}");
        assert!(text.contains("3 of 30 windows with a block"), "{text}");
        let (outcome, text) = said(3, 0);
        assert_eq!(outcome, VerdictOutcome::Inconclusive);
        assert!(text.contains("up to one in 4.2"), "{text}");
    }
}
