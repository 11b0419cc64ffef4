// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Judges by which factor a load slows a domain: for loads of the matrix and for loads in one
//! domain while others are watched. Pure.

use rampart_model::{
    Answers, Finding, Interval, OtherPrograms, QuantileAnswer, StallAnswer, StolenAnswer,
    VerdictFigures, VerdictOutcome,
};
use rampart_stats::{Compared, Questions, Visit, compare};

use crate::outside_influence::not_idle;
use crate::statements;

/// The measurements of a domain without the load, in chronological order.
#[derive(Debug, Default)]
pub(crate) struct IdleSide<'a> {
    /// The record that the document names.
    pub(crate) record: &'a str,
    visits: Vec<Visit>,
    /// That programs of others used the CPUs, for each visit.
    busy: Vec<Option<&'a Finding>>,
}

impl<'a> IdleSide<'a> {
    /// Puts visits together, each with the findings of its measurement.
    pub(crate) fn new(
        record: &'a str,
        visits: impl IntoIterator<Item = (Visit, &'a [Finding])>,
    ) -> Self {
        let with_busy = |(visit, findings)| (visit, not_idle(findings));
        let (visits, busy) = visits.into_iter().map(with_busy).unzip();
        Self {
            record,
            visits,
            busy,
        }
    }

    /// Returns the visits during which no program of others used the CPUs.
    fn idle(&self) -> Vec<Visit> {
        let of_each = self.visits.iter().zip(&self.busy);
        let idle = of_each.filter(|(_, busy)| busy.is_none());
        idle.map(|(visit, _)| visit.clone()).collect()
    }
}

/// Returns outcome, statement and figures, or `None` if there is too little data to compare.
///
/// A load adds little to programs of others that use the CPUs already. So isolation is judged against the
/// measurements without the load that were idle. If at least half of them were not, and those that were
/// decide nothing, the verdict is on what the load adds to these programs, and says so.
pub(crate) fn judge_interference(
    loaded: &[Visit],
    quiet: &IdleSide<'_>,
    asked: &Questions,
    emulated: bool,
) -> Option<(VerdictOutcome, String, VerdictFigures)> {
    let judged = |against: &[Visit]| {
        let found = compare(loaded, against, asked)?;
        let (outcome, statement) = statements::interference(&found, asked.tolerance, emulated);
        let figures = VerdictFigures::Interference {
            idle: quiet.record.to_owned(),
            factors: ratios(&found),
            tolerance: asked.tolerance,
            batches: (slices_in(loaded), slices_in(against)),
            answers: Some(answers(&found, asked)),
        };
        Some((outcome, statement, figures))
    };
    let all = judged(&quiet.visits)?;
    let Some(busy) = quiet.busy.iter().flatten().next() else {
        return Some(all);
    };
    let idle = quiet.idle();
    let count = |visits: &[Visit]| u32::try_from(visits.len()).unwrap_or(u32::MAX);
    let others = OtherPrograms {
        measurements: count(&quiet.visits) - count(&idle),
        of: count(&quiet.visits),
        programs: busy.found.clone().unwrap_or_else(|| "unknown".to_owned()),
    };
    let mostly_busy = others.measurements.saturating_mul(2) >= others.of;
    let leaks = all.0 == VerdictOutcome::Leaks;
    let of_idle = judged(&idle)
        .filter(|(outcome, ..)| !leaks && (*outcome == VerdictOutcome::Holds || !mostly_busy));
    if let Some((outcome, statement, mut figures)) = of_idle {
        let statement = format!(
            "{statement}. Left out: {} of {} measurements without a load, because other programs used the CPUs ({})",
            others.measurements, others.of, others.programs
        );
        let answers = figures.answers_mut()?;
        // What slows a domain more than when it was idle may be the programs of others beside the load.
        answers.withdraw(VerdictOutcome::Leaks);
        answers.left_out = Some(others);
        let outcome = match outcome {
            VerdictOutcome::Leaks => VerdictOutcome::Inconclusive,
            decided => decided,
        };
        return Some((outcome, statement, figures));
    }
    let (outcome, statement, mut figures) = all;
    let statement = format!(
        "{statement}. Beside other programs, which used the CPUs in {} of {} measurements without a load ({})",
        others.measurements, others.of, others.programs
    );
    figures.answers_mut()?.beside = Some(others);
    Some((outcome, statement, figures))
}

/// Returns the quantiles whose ratios have an interval.
pub(crate) fn ratios(found: &Compared) -> Vec<(f64, Interval)> {
    found
        .quantiles
        .iter()
        .filter_map(|answer| Some((answer.quantile, answer.ratio?)))
        .collect()
}

/// Returns the answer on each question, for the document.
pub(crate) fn answers(found: &Compared, asked: &Questions) -> Answers {
    let confidence = 1.0 - asked.risk.hold;
    Answers {
        quantiles: found
            .quantiles
            .iter()
            .map(|answer| QuantileAnswer {
                quantile: answer.quantile,
                outcome: answer.outcome,
            })
            .collect(),
        stalls: found
            .stalls
            .iter()
            .map(|(length, rates)| StallAnswer {
                over: length.over,
                events: rates.events,
                observed: rates.observed,
                added_at_most: rates.added_at_most,
                tolerated: length.tolerated,
                fewer: rates.fewer,
                confidence,
                outcome: rates.outcome,
            })
            .collect(),
        stolen: found.stolen.map(|stolen| StolenAnswer {
            shares: stolen.shares,
            added_at_most: Some(stolen.added_at_most).filter(|bound| bound.is_finite()),
            confidence,
            outcome: stolen.outcome,
        }),
        visits: found.visits,
        left_out: None,
        beside: None,
    }
}

/// Returns the number of slices of all visits.
pub(crate) fn slices_in(visits: &[Visit]) -> u32 {
    let slices = visits.iter().map(|visit| visit.slices.len()).sum::<usize>();
    u32::try_from(slices).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rampart_model::{Distribution, Nanos, Severity};
    use rampart_stats::{INTERFERENCE_TOLERANCE, Look, Risk};

    /// Returns visits whose samples are `factor` times 9 to 11 µs.
    fn visits(factor: impl Fn(u32) -> u64) -> Vec<Visit> {
        let visit = |number| {
            let values = (0..300).map(|sample| Nanos(factor(number) * (9_000 + sample * 7)));
            Visit::of(number, vec![Distribution::from_values(values)])
        };
        (0..40).map(visit).collect()
    }

    /// Judges visits; programs of others were busy in those of the idle side for which `busy` is true.
    fn judged(
        loaded: &[Visit],
        quiet: &[Visit],
        busy: impl Fn(u32) -> bool,
    ) -> (VerdictOutcome, String) {
        let what =
            "programs outside the experiment used the CPUs during a measurement without a load";
        let other = Finding::new(Severity::Warning, "CPU 1", "steal");
        let finding = Finding::new(Severity::Warning, "idle measurement", what)
            .values("`make`, all together about a CPU", "at most 0.25 CPUs");
        let findings = [vec![other.clone()], vec![other, finding]];
        let side = quiet.iter().map(|visit| {
            (
                visit.clone(),
                findings[usize::from(busy(visit.number))].as_slice(),
            )
        });
        let asked = Questions {
            quantiles: true,
            stolen: false,
            lengths: Vec::new(),
            tolerance: INTERFERENCE_TOLERANCE,
            alarm: VerdictOutcome::Leaks,
            risk: Risk::of(12, Look { number: 1, of: 1 }),
        };
        let side = IdleSide::new("idle", side);
        let (outcome, statement, figures) =
            judge_interference(loaded, &side, &asked, false).expect("data");
        let answers = figures.answers().expect("answers");
        let expected = quiet.iter().filter(|visit| busy(visit.number)).count();
        let others = answers.left_out.as_ref().or(answers.beside.as_ref());
        let named = others.map_or(0, |others| others.measurements);
        assert_eq!(named as usize, expected, "{statement}");
        assert_eq!(answers.quantiles[0].outcome, outcome, "{statement}");
        assert_eq!(
            answers.beside.is_some(),
            statement.contains("Beside other programs"),
            "{statement}"
        );
        (outcome, statement)
    }

    #[test]
    fn a_load_is_compared_with_what_was_idle() {
        let same = visits(|_| 1);
        let (outcome, statement) = judged(&same, &same, |_| false);
        assert_eq!(outcome, VerdictOutcome::Holds, "{statement}");
        assert!(!statement.contains("make"), "{statement}");

        let (outcome, statement) = judged(&same, &same, |number| number % 4 != 0);
        assert_eq!(outcome, VerdictOutcome::Holds, "{statement}");
        assert!(
            statement.contains("Left out: 30 of 40 measurements"),
            "{statement}"
        );
        assert!(statement.contains("(`make`, all together"), "{statement}");

        // The programs of others slow it now and then, with the load and without it.
        let slow = visits(|_| 3);
        let mixed = visits(|number| if number % 8 < 3 { 3 } else { 1 });
        let (outcome, statement) = judged(&mixed, &mixed, |number| number % 8 < 3);
        assert_eq!(outcome, VerdictOutcome::Holds, "{statement}");
        assert!(statement.contains("Left out: 15 of 40"), "{statement}");
        // The load slows it even beside them.
        let (outcome, statement) = judged(&slow, &mixed, |number| number % 8 < 3);
        assert_eq!(outcome, VerdictOutcome::Leaks, "{statement}");
        assert!(
            statement.contains("in 15 of 40 measurements"),
            "{statement}"
        );
    }

    #[test]
    fn without_an_idle_measurement_a_load_is_compared_with_other_programs() {
        let same = visits(|_| 1);
        for idle in [0, 1] {
            let (outcome, statement) = judged(&same, &same, |number| number >= idle);
            assert_eq!(outcome, VerdictOutcome::Holds, "{statement}");
            let text = format!(
                "Beside other programs, which used the CPUs in {} of 40 measurements without a load (`make`",
                40 - idle
            );
            assert!(statement.contains(&text), "{statement}");
        }
        let (outcome, statement) = judged(&visits(|_| 3), &same, |_| true);
        assert_eq!(outcome, VerdictOutcome::Leaks, "{statement}");
        assert!(statement.contains("in 40 of 40"), "{statement}");
    }
}
