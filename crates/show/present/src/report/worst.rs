// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The worst events with their times: a strip for each run, and a table.

use rampart_model::{Condition, LocatedWorst, MeterKind, Record};

use super::causes::causes;
use super::interval::percent;
use super::latency::key;
use super::{Report, once};
use crate::element::{
    Axis, Column, ColumnKind, Drawing, Element, Entry, Row, SpanStyle, Table, TableStyle, Text,
};
use crate::format;

/// Rows of the table.
const ROWS: usize = 10;
const STRIPS: usize = 60;

/// Returns the worst events of each meter, over all conditions and under each.
pub(super) fn worst(report: &Report<'_>) -> Vec<Element> {
    let meters = once(report.quantities.iter().map(|(meter, _)| *meter));
    let mut switched = Vec::new();
    for (index, meter) in meters.into_iter().enumerate() {
        let mut views = Vec::new();
        for (_, series) in report.quantities.iter().filter(|(of, _)| *of == meter) {
            views.extend([false, true].map(|corrected| key(meter, *series, corrected)));
        }
        let conditions = report.conditions.iter().copied().map(Some);
        for condition in std::iter::once(None).chain(conditions) {
            let elements = events(report, meter, condition);
            if !elements.is_empty() {
                switched.push(Element::Switched {
                    views: views.clone(),
                    condition: Some(
                        condition.map_or_else(String::new, |condition| condition.to_string()),
                    ),
                    leading: index == 0 && condition.is_none(),
                    elements,
                });
            }
        }
    }
    if switched.is_empty() {
        return Vec::new();
    }
    let mut elements = vec![Element::section("worst", "Worst events", "Worst")];
    elements.extend(switched);
    elements
}

fn events(report: &Report<'_>, meter: MeterKind, condition: Option<Condition>) -> Vec<Element> {
    let conditions = condition.map_or_else(|| report.conditions.clone(), |one| vec![one]);
    let records: Vec<&Record> = conditions
        .into_iter()
        .flat_map(|condition| report.records(meter, condition))
        .collect();
    let mut events: Vec<(&Record, &LocatedWorst)> = records
        .iter()
        .flat_map(|record| record.worst.iter().map(move |event| (*record, event)))
        .collect();
    events.sort_by_key(|(_, event)| std::cmp::Reverse(event.value));
    let under = condition.map_or_else(|| "all conditions".to_owned(), |of| of.to_string());
    if events.is_empty() {
        return Vec::new();
    }
    let rows = events.iter().take(ROWS).map(|(record, event)| {
        let run = record.runs.iter().find(|run| run.order == event.run);
        Row::new(vec![
            report.name(&record.domain).into(),
            record.condition.to_string().into(),
            Text::of(SpanStyle::Strong, format::time(event.value)).into(),
            event.cpu.to_string().into(),
            event.run.to_string().into(),
            format!("{:.6}\u{a0}s", event.since_start.as_secs_f64()).into(),
            run.map_or_else(
                || "–".to_owned(),
                |run| format::moment(&run.started, event.since_start, true),
            )
            .into(),
        ])
    });
    let figure = |name| Column::new(ColumnKind::Figure, name);
    let mut columns = ["domain", "condition"]
        .map(|name| Column::new(ColumnKind::Text, name))
        .to_vec();
    columns.extend(["value", "CPU", "run", "after start", "ended at"].map(figure));
    let table = Table::new(TableStyle::Figures, "Worst events", columns, rows.collect());
    let mut elements = vec![
        Element::heading(3, format!("{meter}, {under}")),
        Element::detail(vec![
            Element::remark(
                "In the strips, one for each run, every event is at its time; its height is its logarithm. Events at even \
                 distances have a clock as their cause.",
            ),
            strips(report, &records, &events),
        ]),
        Element::Table(table),
    ];
    elements.extend(causes(report, &records));
    elements
}

fn strips(
    report: &Report<'_>,
    records: &[&Record],
    events: &[(&Record, &LocatedWorst)],
) -> Element {
    let mut lanes: Vec<_> = records
        .iter()
        .flat_map(|record| record.runs.iter().map(move |run| (*record, run)))
        .collect();
    lanes.sort_by_key(|(record, run)| (report.curve(&record.domain), run.order));
    lanes.truncate(STRIPS);
    let length =
        |(record, run): &(&Record, &rampart_model::Run)| record.settings.warm_up + run.duration;
    let longest = lanes.iter().map(length).max().unwrap_or_default();
    let part = |of: rampart_model::Nanos| percent(of.0 as f64 / longest.0.max(1) as f64);
    let log = |of: u64| (of.max(1) as f64).log10();
    let values = || events.iter().map(|(_, event)| event.value.0);
    let low = log(values().min().unwrap_or(1)) - 0.3;
    let high = log(values().max().unwrap_or(1)).max(1.0);
    let several = records
        .windows(2)
        .any(|pair| pair[0].condition != pair[1].condition);
    let rows = lanes.iter().map(|lane| {
        let (record, run) = lane;
        let own = events
            .iter()
            .filter(|(of, event)| of.id == record.id && event.run == run.order);
        let marks: Vec<(f64, f64, String)> = own
            .map(|(_, event)| {
                let height =
                    (3.0 + 16.0 * (log(event.value.0) - low) / (high - low).max(0.1)) / 20.0;
                let hint = format!(
                    "{} on CPU {}, {:.3}\u{a0}s after the start",
                    format::time(event.value),
                    event.cpu,
                    event.since_start.as_secs_f64()
                );
                (part(event.since_start), percent(height), hint)
            })
            .collect();
        let condition = match several {
            true => format!(" {}", record.condition),
            false => String::new(),
        };
        let invalid = if run.invalid.is_empty() { "" } else { " ✗" };
        let label = format!("{}{condition} · run {}{invalid}", record.domain, run.order);
        Row::new(vec![
            label.clone().into(),
            Entry {
                drawing: Some(Drawing::Events {
                    label: format!("{label}: {} of the worst events", marks.len()),
                    curve: report.curve(&record.domain),
                    warm_up: part(record.settings.warm_up),
                    end: part(length(lane)),
                    events: marks,
                }),
                ..Entry::default()
            },
        ])
    });
    let rows = rows.collect();
    let axis = Axis(vec![
        (0.0, "0 s (shaded: warm-up)".to_owned()),
        (100.0, format::time(longest)),
    ]);
    let columns = vec![
        Column::new(ColumnKind::Name, "run"),
        Column {
            axis: Some(axis),
            ..Column::new(ColumnKind::Text, "")
        },
    ];
    Element::Table(
        Table::new(TableStyle::Drawings, "Worst events in time", columns, rows).class("strips"),
    )
}
