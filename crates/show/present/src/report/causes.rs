// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The worst samples with their causes.

use rampart_model::{Cause, CauseKind, ExplainedWorst, Nanos, Record};

use super::Report;
use super::interval::percent;
use crate::element::{
    Column, ColumnKind, Drawing, Element, Entry, Row, Share, SpanStyle, Table, TableStyle, Text,
};
use crate::format;

/// Samples shown.
const ROWS: usize = 10;

/// Returns a table of the ten worst samples with their causes.
/// `started` is the moment that times are counted from, on the clock of the samples. Empty without
/// samples.
pub(crate) fn explained(all: &[ExplainedWorst], started: Nanos) -> Vec<Element> {
    let rows = all.iter().map(|of| (of, started, Vec::new()));
    table(Vec::new(), rows.collect())
}

/// Returns the causes of the worst samples of these records.
pub(super) fn causes(report: &Report<'_>, records: &[&Record]) -> Vec<Element> {
    let mut rows = Vec::new();
    for record in records {
        for run in record.runs.iter().filter(|run| run.invalid.is_empty()) {
            rows.extend(run.explained.iter().map(|of| {
                let names = vec![
                    Entry::from(report.name(&record.domain)),
                    record.condition.to_string().into(),
                ];
                (of, run.started_monotonic, names)
            }));
        }
    }
    let names = ["domain", "condition"].map(|name| Column::new(ColumnKind::Text, name));
    table(names.into(), rows)
}

fn table(
    mut columns: Vec<Column>,
    mut all: Vec<(&ExplainedWorst, Nanos, Vec<Entry>)>,
) -> Vec<Element> {
    if all.is_empty() {
        return Vec::new();
    }
    all.sort_by_key(|(of, ..)| std::cmp::Reverse(of.event.value));
    let rows = all
        .into_iter()
        .take(ROWS)
        .map(|(of, started, mut entries)| {
            let after = of.event.at.saturating_sub(started).as_secs_f64();
            entries.extend([
                Text::of(SpanStyle::Strong, format::time(of.event.value)).into(),
                of.cpu.to_string().into(),
                format!("{after:.6}\u{a0}s").into(),
                Entry {
                    text: words(of).into(),
                    drawing: Some(shares(of)),
                    ..Entry::default()
                },
            ]);
            Row::new(entries)
        });
    let rows = rows.collect();
    columns
        .extend(["value", "CPU", "after start"].map(|name| Column::new(ColumnKind::Figure, name)));
    columns.push(Column::new(ColumnKind::Text, "causes"));
    let title = "Worst samples and their causes";
    vec![
        Element::heading(3, title),
        Element::Table(Table::new(TableStyle::Figures, title, columns, rows).class("causes")),
        Element::remark(
            "Causes as the kernel's tracers recorded them, the longest first, each with its time within the sample, \
             without its interruptions.",
        ),
    ]
}

fn parted(of: &ExplainedWorst) -> (Vec<&Cause>, Vec<&str>) {
    let (unseen, seen): (Vec<&Cause>, Vec<&Cause>) = of
        .causes
        .iter()
        .partition(|cause| cause.kind == CauseKind::Unseen);
    (
        seen,
        unseen.iter().map(|cause| cause.name.as_str()).collect(),
    )
}

/// Returns the causes in a line, with the unexplained time.
fn words(of: &ExplainedWorst) -> String {
    let (seen, unseen) = parted(of);
    let mut parts: Vec<String> = seen.iter().map(|one| cause(one)).collect();
    parts.extend(unexplained(of, seen.is_empty(), &unseen));
    parts.join(", ")
}

fn unexplained(of: &ExplainedWorst, nothing_seen: bool, unseen: &[&str]) -> Option<String> {
    let names = unseen.join(", ");
    if nothing_seen && !names.is_empty() {
        return Some(names);
    }
    if of.unexplained == Nanos::ZERO && !nothing_seen {
        return None;
    }
    let rest = format!("unexplained\u{a0}{}", format::time(of.unexplained));
    Some(if names.is_empty() {
        rest
    } else {
        format!("{rest} ({names})")
    })
}

/// Returns a drawing of the sample's time with the share of each cause.
fn shares(of: &ExplainedWorst) -> Drawing {
    let (seen, unseen) = parted(of);
    let mut from = 0.0;
    let mut parts: Vec<Share> = seen
        .iter()
        .map(|one| {
            let share = percent(one.duration.0 as f64 / of.event.value.0.max(1) as f64);
            let part = Share {
                from,
                width: share.min(100.0 - from).max(0.0),
                class: class(one.kind),
                hint: cause(one),
            };
            from += part.width;
            part
        })
        .collect();
    parts.extend(unexplained(of, seen.is_empty(), &unseen).map(|hint| Share {
        from,
        width: 0.0,
        class: "rest",
        hint,
    }));
    Drawing::Shares {
        label: rampart_model::plural(seen.len(), "cause"),
        parts,
    }
}

fn cause(of: &Cause) -> String {
    if of.kind == CauseKind::Limit {
        return format!("{}: {}", of.name, format::time(of.duration));
    }
    format!(
        "{}\u{a0}{} {}",
        kind(of.kind),
        of.name,
        format::time(of.duration)
    )
}

const fn kind(kind: CauseKind) -> &'static str {
    match kind {
        CauseKind::Nmi => "NMI",
        CauseKind::Interrupt => "interrupt",
        CauseKind::Softirq => "softirq",
        CauseKind::Thread => "thread",
        CauseKind::Limit => "limit",
        CauseKind::Unseen => "unseen",
    }
}

const fn class(kind: CauseKind) -> &'static str {
    match kind {
        CauseKind::Nmi => "nmi",
        CauseKind::Interrupt => "interrupt",
        CauseKind::Softirq => "softirq",
        CauseKind::Thread => "thread",
        CauseKind::Limit => "limit",
        CauseKind::Unseen => "unseen",
    }
}
