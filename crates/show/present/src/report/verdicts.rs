// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Verdicts with their figures.

use rampart_model::{Interval, Question, Verdict, VerdictFigures};

use super::Report;
use super::interval::RatioAxis;
use crate::element::{
    Column, ColumnKind, Element, Entry, Outcome, Row, SpanStyle, Table, TableStyle, Text,
};
use crate::format;

/// Returns the verdicts on a question; those on disturbances are in the matrix.
fn asked<'a>(report: &Report<'a>, question: Question) -> Vec<&'a Verdict> {
    let verdicts = report.evaluation.verdicts.iter();
    verdicts
        .filter(|verdict| verdict.question == question && verdict.disturbance.is_none())
        .collect()
}

fn several_meters(verdicts: &[&Verdict]) -> bool {
    verdicts
        .windows(2)
        .any(|pair| pair[0].meter != pair[1].meter)
}

/// The columns that name a verdict.
fn name_columns(several_meters: bool) -> Vec<Column> {
    let text = |name| Column::new(ColumnKind::Text, name);
    let mut columns = vec![text("domain"), text("condition")];
    columns.extend(several_meters.then(|| text("meter")));
    columns.push(Column::new(ColumnKind::Outcome, "verdict"));
    columns
}

/// Returns the entries of a verdict. Without figures the statement follows the outcome.
fn names(report: &Report<'_>, verdict: &Verdict, several_meters: bool, bare: bool) -> Vec<Entry> {
    let mut entries = vec![
        report.name(&verdict.domain).into(),
        verdict.condition.to_string().into(),
    ];
    entries.extend(several_meters.then(|| verdict.meter.word().into()));
    let (outcome, word) = report.outcome(verdict);
    let mut entry = Entry::outcome(Some(outcome), word);
    if bare {
        entry.detail = vec![Element::remark(format::prose(&verdict.statement))];
    }
    entries.push(entry);
    entries
}

fn row(report: &Report<'_>, verdict: &Verdict, entries: Vec<Entry>) -> Row {
    Row {
        id: report.anchor(verdict),
        hint: format!(
            "{} ({})",
            verdict.statement,
            format::exposure(&verdict.exposure)
        ),
        entries,
        ..Row::default()
    }
}

/// Deadline: exceedances, the bound of their chance, the exposure.
pub(super) fn deadline(report: &Report<'_>) -> Vec<Element> {
    let verdicts = asked(report, Question::Deadline);
    if verdicts.is_empty() {
        return Vec::new();
    }
    let plan = &report.evaluation.settings;
    let own = plan.domains.iter().any(|one| one.deadline.is_some());
    let title = if own {
        "of each domain".to_owned()
    } else {
        format::time(plan.deadline)
    };
    let several = several_meters(&verdicts);
    let figure = |name| Column::new(ColumnKind::Figure, name);
    let mut columns = name_columns(several);
    columns.extend(own.then(|| figure("deadline")));
    columns.extend(["over", "cycles"].map(figure));
    columns.push(figure("worst").detail());
    columns.extend(["chance", "between", "sure"].map(figure));
    columns.push(Column::new(ColumnKind::Text, "exposure").detail());
    let rows = verdicts.into_iter().map(|verdict| {
        let bare = verdict.figures.is_none();
        let mut entries = names(report, verdict, several, bare);
        entries.extend(own.then(|| format::time(plan.deadline_of(&verdict.domain)).into()));
        if let Some(VerdictFigures::Deadline {
            cycles,
            exceedances,
            upper_bound,
            confidence,
            time_between_violations,
            max,
            ..
        }) = &verdict.figures
        {
            let between =
                time_between_violations.map(|time| format!("≥\u{a0}{}", format::time(time)));
            entries.extend([
                format::grouped(*exceedances).into(),
                format::count(*cycles).into(),
                format::time(*max).into(),
                Text::of(
                    SpanStyle::Strong,
                    format!("≤\u{a0}{}", format::chance(*upper_bound)),
                )
                .into(),
                Text::of(SpanStyle::Strong, between.unwrap_or_else(|| "–".to_owned())).into(),
                format!("{:.0}\u{a0}%", confidence * 100.0).into(),
            ]);
        } else {
            entries.extend(["–"; 6].map(Entry::from));
        }
        entries.push(format::exposure(&verdict.exposure).into());
        row(report, verdict, entries)
    });
    let rows = rows.collect();
    let caption = "Verdicts on the deadline";
    vec![
        Element::section(
            "deadline",
            format!(
                "Deadline {title}: the chance that a cycle misses it, and how long between misses"
            ),
            "Deadline",
        ),
        Element::detail(vec![Element::remark(
            "A miss is a sample over the deadline, or a missed period whose corrected lateness is over it. \
             No miss in n cycles only shows that the chance is less than about 3/n, and no miss in a time T that \
             misses are at least about T/3 apart. A longer run shows more.",
        )]),
        Element::Table(Table::new(TableStyle::Figures, caption, columns, rows).class("verdicts")),
    ]
}

fn intervals(verdict: &Verdict) -> &[(f64, Interval)] {
    match &verdict.figures {
        Some(VerdictFigures::Interference { factors, .. }) => factors,
        Some(VerdictFigures::SameAsHost { ratios, .. }) => ratios,
        _ => &[],
    }
}

fn tolerance(verdict: &Verdict) -> Option<f64> {
    match &verdict.figures {
        Some(
            VerdictFigures::Interference { tolerance, .. }
            | VerdictFigures::SameAsHost { tolerance, .. },
        ) => Some(*tolerance),
        _ => None,
    }
}

/// An estimate with the ends of its interval, drawn on the axis.
pub(super) fn ratio_entry(of: &Interval, axis: RatioAxis, outcome: Outcome, star: &str) -> Entry {
    let ends = format!(" ({}–{})", format::ratio(of.low), format::ratio(of.high));
    Entry {
        text: Text::of(SpanStyle::Strong, format::ratio(of.estimate))
            .and(SpanStyle::Plain, ends + star),
        drawing: Some(axis.drawing(of, outcome)),
        ..Entry::default()
    }
}

/// The columns of quantiles, with the axis of their drawings.
pub(super) fn quantile_columns(quantiles: &[f64], axis: RatioAxis) -> impl Iterator<Item = Column> {
    quantiles.iter().map(move |quantile| Column {
        axis: Some(axis.axis()),
        ..Column::new(ColumnKind::Figure, format::quantile_name(*quantile))
    })
}

fn ratios(report: &Report<'_>, verdicts: &[&Verdict], caption: &str) -> Element {
    let mut quantiles: Vec<f64> = verdicts
        .iter()
        .flat_map(|verdict| intervals(verdict))
        .map(|(quantile, _)| *quantile)
        .collect();
    quantiles.sort_by(f64::total_cmp);
    quantiles.dedup();
    let widest = verdicts.iter().filter_map(|of| tolerance(of));
    let axis = RatioAxis::of(
        verdicts
            .iter()
            .flat_map(|verdict| intervals(verdict))
            .map(|(_, interval)| interval),
        widest.fold(1.0, f64::max),
    );
    let several = several_meters(verdicts);
    let mut columns = name_columns(several);
    columns.extend(quantile_columns(&quantiles, axis));
    columns.extend(
        quantiles
            .is_empty()
            .then(|| Column::new(ColumnKind::Text, "why")),
    );
    let rows = verdicts.iter().map(|verdict| {
        let bare = intervals(verdict).is_empty() && !quantiles.is_empty();
        let mut entries = names(report, verdict, several, bare);
        let mut own = axis;
        own.tolerance = tolerance(verdict).unwrap_or(1.0);
        entries.extend(quantiles.iter().map(|quantile| {
            let interval = intervals(verdict).iter().find(|(of, _)| of == quantile);
            interval.map_or_else(
                || "–".into(),
                |(_, of)| ratio_entry(of, own, verdict.outcome.into(), ""),
            )
        }));
        entries.extend(
            quantiles
                .is_empty()
                .then(|| Entry::from(&verdict.statement)),
        );
        row(report, verdict, entries)
    });
    let rows = rows.collect();
    Element::Table(Table::new(TableStyle::Figures, caption, columns, rows).class("ratios"))
}

/// `95 % `, or nothing without intervals.
fn confidence(verdicts: &[&Verdict]) -> String {
    let first = verdicts.iter().flat_map(|of| intervals(of)).next();
    first.map_or_else(String::new, |(_, interval)| {
        format!("{:.0}\u{a0}% ", interval.confidence * 100.0)
    })
}

/// Interference factors: loaded ÷ idle.
pub(super) fn interference(report: &Report<'_>) -> Vec<Element> {
    let verdicts = asked(report, Question::Interference);
    if verdicts.is_empty() {
        return Vec::new();
    }
    let tolerated = verdicts.iter().find_map(|of| tolerance(of));
    let tolerated = tolerated.map_or_else(String::new, |tolerance| {
        format!(
            " The isolation counts as holding up to {} (shaded).",
            format::ratio(tolerance)
        )
    });
    vec![
        Element::section(
            "interference",
            "Interference factors: loaded ÷ idle, with intervals; 1 is no effect",
            "Interference",
        ),
        Element::detail(vec![Element::remark(format!(
            "A quantile under load divided by the same quantile idle, with its {}interval.{tolerated}",
            confidence(&verdicts)
        ))]),
        ratios(report, &verdicts, "Interference factors"),
    ]
}

/// Ratios to the host.
pub(super) fn same_as_host(report: &Report<'_>) -> Vec<Element> {
    let verdicts = asked(report, Question::SameAsHost);
    if verdicts.is_empty() {
        return Vec::new();
    }
    let detectable = verdicts
        .iter()
        .filter_map(|verdict| match &verdict.figures {
            Some(VerdictFigures::SameAsHost {
                smallest_detectable,
                ..
            }) => Some(*smallest_detectable),
            _ => None,
        });
    let detectable = detectable.max_by(f64::total_cmp);
    let mut remark = format!(
        "A quantile in the domain divided by the same quantile on the host, measured in turn, with its {}interval. \
         Less than 1: the domain is faster.",
        confidence(&verdicts)
    );
    if let Some(tolerance) = verdicts.iter().find_map(|of| tolerance(of)) {
        remark.push_str(&format!(
            " Up to {} counts as the same (shaded).",
            format::ratio(tolerance)
        ));
    }
    if let Some(smallest) = detectable {
        remark.push_str(&format!(
            " This exposure can distinguish a ratio of {} from 1.",
            format::ratio(smallest)
        ));
    }
    vec![
        Element::section(
            "same-as-host",
            "Same as the host: domain ÷ host, with intervals; 1 is the same",
            "Host",
        ),
        Element::detail(vec![Element::remark(remark)]),
        ratios(report, &verdicts, "Ratios to the host"),
    ]
}
