// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The statements of verdicts, each with the figures that it rests on.

use rampart_model::{
    BlockKind, Exposure, Nanos, VerdictFigures, VerdictOutcome, factor, grouped, quantile_name,
};
use rampart_stats::{
    Compared, FEWEST_WINDOWS, RateRatio, StolenShare, TRANSFER_TOLERANCE, Transfer,
};

/// Returns the statement on a deadline.
pub(crate) fn deadline(figures: &VerdictFigures, exposure: &Exposure, emulated: bool) -> String {
    let VerdictFigures::Deadline {
        deadline,
        cycles,
        exceedances,
        visits,
        confidence,
        time_between_violations,
        max,
        ..
    } = figures
    else {
        return String::new();
    };
    if emulated {
        return "the deadline is not judged on an emulated machine".to_owned();
    }
    let confidence = confidence * 100.0;
    let bursts = match visits {
        Some((with, all)) if *exceedances > 0 => format!(", in {with} of {all} visits"),
        _ => String::new(),
    };
    let seen = format!(
        "{} of {} cycles in {} exceeded {deadline}{bursts}, worst {max}",
        grouped(*exceedances),
        grouped(*cycles),
        exposure.duration,
    );
    match time_between_violations {
        Some(between) => format!(
            "{seen}. At {confidence:.0} % confidence bursts of exceedances are at least {between} apart on average"
        ),
        None => seen,
    }
}

/// Returns the statement on the negative control.
pub(crate) fn control(found: &Compared, tolerance: f64) -> String {
    comparison("of the other half", found, tolerance)
}

/// Returns the statement on a comparison. `whose` completes "p99 ×1.2 …".
fn comparison(whose: &str, found: &Compared, tolerance: f64) -> String {
    let mut figures: Vec<String> = found
        .quantiles
        .iter()
        .map(|answer| match &answer.ratio {
            Some(ratio) => format!(
                "{} ×{} ({} to {})",
                quantile_name(answer.quantile),
                factor(ratio.estimate),
                factor(ratio.low),
                factor(ratio.high)
            ),
            None => format!(
                "{} too few visits ({})",
                quantile_name(answer.quantile),
                found.visits.0.min(found.visits.1)
            ),
        })
        .collect();
    if let Some(last) = figures.last_mut() {
        *last = format!("{last} {whose}");
    }
    figures.extend(found.stolen.as_ref().map(stolen));
    figures.extend(
        found
            .stalls
            .iter()
            .map(|(length, rates)| stalls(length.over, rates, found.stolen.is_some())),
    );
    format!("{}: {}", figures.join(", "), conclusion(found, tolerance))
}

/// Returns the answer of each question in words: which are beyond the tolerance, or undecided.
fn conclusion(found: &Compared, tolerance: f64) -> String {
    let named = |outcome: VerdictOutcome| -> String {
        let quantiles = found
            .quantiles
            .iter()
            .filter(|answer| answer.outcome == outcome)
            .map(|answer| quantile_name(answer.quantile));
        let stolen = found
            .stolen
            .iter()
            .filter(|answer| answer.outcome == outcome)
            .map(|_| "stolen time".to_owned());
        let stalls = found
            .stalls
            .iter()
            .filter(|(_, rates)| rates.outcome == outcome)
            .map(|(length, _)| {
                format!(
                    "{} over {}",
                    event_word(found.stolen.is_some()),
                    length.over
                )
            });
        let all: Vec<String> = quantiles.chain(stolen).chain(stalls).collect();
        all.join(", ")
    };
    match found.outcome {
        VerdictOutcome::Holds if found.stolen.is_some() => {
            format!("stolen time and gaps within ×{tolerance}, or no more than the bounds above")
        }
        VerdictOutcome::Holds => {
            format!("quantiles within ×{tolerance}, and no more stalls than the bounds above")
        }
        VerdictOutcome::Fails | VerdictOutcome::Leaks => {
            format!("beyond ×{tolerance}: {}", named(found.outcome))
        }
        VerdictOutcome::Inconclusive => {
            format!(
                "not enough data to decide about {}",
                named(VerdictOutcome::Inconclusive)
            )
        }
    }
}

/// Names the samples above a length: of meters that observe gaps, and of others.
fn event_word(gaps: bool) -> &'static str {
    if gaps { "gaps" } else { "stalls" }
}

/// Returns the figures on samples above a length.
fn stalls(over: Nanos, rates: &RateRatio, gaps: bool) -> String {
    let what = event_word(gaps);
    let (ours, theirs) = rates.events;
    let counts = format!(
        "{} {what} over {over} in {} against {} in {}",
        grouped(ours),
        rates.observed.0,
        grouped(theirs),
        rates.observed.1
    );
    match bound(rates.added_at_most) {
        Some(bound) => format!("{counts} ({bound})"),
        None => counts,
    }
}

/// Returns a bound on the added bursts of events per second: `at most one more burst in 1.9 s`.
pub(crate) fn bound(added_at_most: f64) -> Option<String> {
    (added_at_most > 0.0 && added_at_most <= 100.0).then(|| {
        let apart = Nanos((1e9 / added_at_most) as u64);
        format!("at most one more burst in {apart}")
    })
}

fn stolen(found: &StolenShare) -> String {
    let percent = |share: f64| format!("{:.3} %", share * 100.0);
    let shares = format!(
        "stolen time {} against {}",
        percent(found.shares.0),
        percent(found.shares.1)
    );
    if found.added_at_most.is_finite() {
        format!(
            "{shares} (at most {} more, without unseen gaps over {})",
            percent(found.added_at_most.max(0.0)),
            found.unseen_up_to
        )
    } else {
        shares
    }
}

/// Returns the outcome and the statement on a comparison with the host.
///
/// Ratios of emulated times decide nothing: the costs of emulation are not those of hardware.
pub(crate) fn same_as_host(
    found: &Compared,
    tolerance: f64,
    emulated: bool,
) -> (VerdictOutcome, String) {
    let statement = comparison("of the host's", found, tolerance);
    if emulated {
        return (
            VerdictOutcome::Inconclusive,
            format!("{statement}. Latency is not judged on an emulated machine"),
        );
    }
    (found.outcome, statement)
}

/// Returns the outcome and the statement on the interference of a load.
///
/// On an emulated machine every load slows the emulation of all CPUs. A factor within the tolerance
/// is evidence there, a larger one is not.
pub(crate) fn interference(
    found: &Compared,
    tolerance: f64,
    emulated: bool,
) -> (VerdictOutcome, String) {
    let statement = comparison("of the idle ones", found, tolerance);
    if emulated && found.outcome == VerdictOutcome::Leaks {
        return (
            VerdictOutcome::Inconclusive,
            format!(
                "{statement}. This does not show missing isolation: on an emulated machine every load slows all CPUs"
            ),
        );
    }
    (found.outcome, statement)
}

/// Returns the statement on windows with and without blocks.
pub(crate) fn transfer(
    found: &Transfer,
    length: Nanos,
    kind: BlockKind,
    windows: (usize, usize),
) -> String {
    let interval = &found.transfer;
    // A value that rounds to zero has no sign.
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
            format!("not isolated from some blocks: {}", crossed(found, windows))
        }
        VerdictOutcome::Leaks => "not isolated from blocks".to_owned(),
        VerdictOutcome::Holds if found.crossed.0 == 0 => format!(
            "isolated: no block crosses by more than {} of its length. A τ of {}, or one block in {:.0}, would have been detected",
            found.crossing,
            part(found.smallest_detectable),
            1.0 / found.part_at_most.max(1e-9)
        ),
        VerdictOutcome::Holds => format!(
            "isolated: with blocks no more windows are late than may be without. {}. At most one block in {:.1} crosses, and a τ of {} would have been detected",
            crossed(found, windows),
            1.0 / found.part_at_most.max(1e-9),
            part(found.smallest_detectable),
        ),
        _ if windows.0.min(windows.1) < FEWEST_WINDOWS => {
            format!(
                "not enough data: fewer than {FEWEST_WINDOWS} windows with or without a block, measure longer"
            )
        }
        _ if found.transfer.high < TRANSFER_TOLERANCE => format!(
            "not enough data: the median is isolated, but {} ({} and {} by more than half). Up to one block in {:.1} may cross. Measure longer",
            crossed(found, windows),
            found.crossed_whole.0,
            found.crossed_whole.1,
            1.0 / found.part_at_most.max(1e-9)
        ),
        _ => format!(
            "not enough data to decide about a τ of {TRANSFER_TOLERANCE}, measure longer or on a quieter machine"
        ),
    };
    format!("{figures}: {conclusion}")
}

/// Returns how many windows with and without a block are late by a part of a block.
fn crossed(found: &Transfer, windows: (usize, usize)) -> String {
    format!(
        "{} of {} windows with a block, and {} of {} without, are late by more than {} of a block",
        found.crossed.0, windows.0, found.crossed.1, windows.1, found.crossing
    )
}

/// Formats a probability with its significant digits.
fn probability(value: f64) -> String {
    if value < 0.01 {
        format!("{value:.4}")
    } else {
        format!("{value:.2}")
    }
}

/// Returns the statement of a comparison that lacks data.
pub(crate) fn too_little(exposure: &Exposure) -> String {
    format!(
        "not enough data: {} samples in {} {} over {}",
        grouped(exposure.samples),
        exposure.runs,
        if exposure.runs == 1 { "run" } else { "runs" },
        exposure.duration
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_how_many_windows_are_late_although_the_verdict_holds() {
        let windows = |late: usize| -> Vec<Nanos> {
            (0..100)
                .map(|index| Nanos(if index < late { 900 } else { 5 }))
                .collect()
        };
        let statement = |with: usize, without: usize| {
            let found = rampart_stats::transfer(
                &windows(with),
                &windows(without),
                Nanos(1000),
                rampart_stats::CROSSED,
                &rampart_stats::Risk::SINGLE,
                &rampart_stats::Resampling::default(),
            )
            .expect("windows");
            (
                found.outcome,
                transfer(&found, Nanos(1000), BlockKind::Module, (100, 100)),
            )
        };
        let (outcome, text) = statement(0, 0);
        assert_eq!(outcome, VerdictOutcome::Holds);
        assert!(text.contains("no block crosses by more than 0.1"), "{text}");
        let (outcome, text) = statement(3, 3);
        assert_eq!(outcome, VerdictOutcome::Holds);
        assert!(!text.contains("no block crosses"), "{text}");
        assert!(text.contains("3 of 100 windows with a block"), "{text}");
        let (outcome, text) = statement(3, 0);
        assert_eq!(outcome, VerdictOutcome::Inconclusive);
        assert!(text.contains("Up to one block in 10.3"), "{text}");
    }
}
