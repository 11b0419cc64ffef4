// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The crash of the host, and the survival of each domain.

use rampart_model::{CrashWitness, Nanos, Question, RecordedAfter, SignedNanos, VerdictOutcome};

use super::Report;
use super::findings::findings;
use super::interval::{percent, spaced};
use crate::element::{
    Axis, Column, ColumnKind, Drawing, Element, Entry, Outcome, Pair, Row, SpanStyle, Table,
    TableStyle, Text,
};
use crate::format;

/// Within this of the crash the axis is about even, further out logarithmic, in ns.
const NEAR: f64 = 5e6;

/// An axis that shows milliseconds before and seconds after the crash.
#[derive(Clone, Copy)]
struct LifeAxis {
    earliest: f64,
    observed: f64,
}

impl LifeAxis {
    fn at(self, nanos: f64) -> f64 {
        let bent = |nanos: f64| nanos.signum() * (nanos.abs() / NEAR).ln_1p();
        let (from, to) = (bent(self.earliest), bent(self.observed));
        percent((bent(nanos) - from) / (to - from))
    }

    fn axis(self) -> Axis {
        let mut marks = vec![(self.at(0.0), "crash".to_owned())];
        for power in (6..=9).rev() {
            let near = 10f64.powi(power);
            for (mark, sign) in [(near, '+'), (-near, '−'), (near * 100.0, '+')] {
                if mark > self.earliest && mark <= self.observed {
                    let time = format::time(Nanos(mark.abs() as u64));
                    marks.push((self.at(mark), format!("{sign}{time}")));
                }
            }
        }
        spaced(marks.into_iter(), 9.0)
    }
}

/// Returns one row for each domain.
pub(super) fn crash(report: &Report<'_>) -> Vec<Element> {
    let Some(crash) = &report.evaluation.crash else {
        return Vec::new();
    };
    let first = |of: &CrashWitness| of.lived.unwrap_or_default().0 as f64 - of.uncertainty.0 as f64;
    let earliest = crash.witnesses.iter().map(first).fold(-1e7, f64::min) * 3.0;
    let axis = LifeAxis {
        earliest,
        observed: crash.observed.0 as f64,
    };
    let rows = crash.witnesses.iter().map(|witness| {
        let verdict = report.evaluation.verdicts.iter().find(|verdict| {
            verdict.domain == witness.domain && verdict.question == Question::Crash
        });
        let outcome = verdict.map(|verdict| verdict.outcome);
        let word = match outcome {
            Some(VerdictOutcome::Holds) => "survived",
            Some(VerdictOutcome::Fails | VerdictOutcome::Leaks) => "ended",
            Some(VerdictOutcome::Inconclusive) => "inconclusive",
            None => "not judged",
        };
        let outcome = outcome.map(Outcome::from);
        let lived = last_sample(witness, crash.observed);
        let drawing = Drawing::Life {
            label: format!("{}: {lived}", witness.domain),
            until: witness.lived.map(|SignedNanos(lived)| {
                let (lived, unsure) = (lived as f64, witness.uncertainty.0 as f64);
                (
                    axis.at(lived - unsure),
                    axis.at(lived),
                    axis.at(lived + unsure),
                )
            }),
            event: axis.at(0.0),
            outcome: outcome.unwrap_or(Outcome::Inconclusive),
        };
        let after = witness.after.map(recorded_after).unwrap_or_default();
        let why = witness.invalid.first().map(ToString::to_string);
        let mut note = Entry::from(why.unwrap_or(after));
        if witness.invalid.len() > 1 {
            note.detail = findings(witness.invalid.iter().skip(1), "");
        }
        Row {
            id: verdict.and_then(|verdict| report.anchor(verdict)),
            hint: verdict.map_or_else(String::new, |verdict| verdict.statement.clone()),
            ..Row::new(vec![
                report.name(&witness.domain).into(),
                Entry::outcome(outcome, word),
                Entry {
                    drawing: Some(drawing),
                    ..Entry::default()
                },
                lived.into(),
                format!("±\u{a0}{}", format::time(witness.uncertainty)).into(),
                note,
            ])
        }
    });
    let rows = rows.collect();
    let columns = vec![
        Column::new(ColumnKind::Text, "domain"),
        Column::new(ColumnKind::Outcome, ""),
        Column {
            axis: Some(axis.axis()),
            ..Column::new(ColumnKind::Text, "").detail()
        },
        Column::new(ColumnKind::Figure, "last sample"),
        Column::new(ColumnKind::Figure, "uncertainty"),
        Column::new(ColumnKind::Text, ""),
    ];
    let caption = "Survival of each domain";
    let confirmed = match &crash.confirmed {
        Some(confirmed) => Text::prose(confirmed),
        None => Text::of(
            SpanStyle::Wrong,
            "nothing: it is not certain that it crashed",
        ),
    };
    vec![
        Element::section(
            "crash",
            "Crash of the host: survival of each domain",
            "Crash",
        ),
        Element::detail(vec![Element::remark(
            "Every domain measured while the host's kernel was made to panic. A bar ends with the domain's last sign of life; \
             the lighter part is not certain.",
        )]),
        Element::Table(Table::new(TableStyle::Figures, caption, columns, rows).class("lives")),
        Element::Pairs {
            pairs: vec![
                Pair::new("crashed by", Text::prose(&crash.how)),
                Pair::new("confirmed by", confirmed),
                Pair::new("watched after it", format::time(crash.observed)),
            ],
        },
    ]
}

fn last_sample(witness: &CrashWitness, observed: Nanos) -> String {
    let Some(SignedNanos(lived)) = witness.lived else {
        return "never measured".to_owned();
    };
    let last = i128::from(lived) + i128::from(witness.uncertainty.0);
    if last >= i128::from(observed.0) {
        return format!("still measuring {} after", format::time(observed));
    }
    let time = format::time(Nanos(lived.unsigned_abs()));
    format!("{time} {}", if lived < 0 { "before" } else { "after" })
}

/// `2 527 samples after it, worst 11.8 ms, without a gap`
fn recorded_after(after: RecordedAfter) -> String {
    let gap = if after.without_gap {
        "without a gap"
    } else {
        "with gaps"
    };
    let lost = match after.lost {
        0 => String::new(),
        lost => format!(", {} lost", format::grouped(lost)),
    };
    format!(
        "{} samples recorded after it, worst {}, {gap}{lost}",
        format::grouped(after.samples),
        format::time(after.worst)
    )
}
