// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What happened on the CPUs of detached threads while they measured.

use rampart_model::{DetachedCounts, Evaluation, Nanos};

use super::Report;
use crate::element::{Column, ColumnKind, Element, Entry, Outcome, Row, Table, TableStyle};
use crate::format;

/// The sum of a domain's counts: those of its valid runs and of its valid parts of rounds.
fn sum(evaluation: &Evaluation, domain: &str) -> Option<(Nanos, DetachedCounts)> {
    let records = evaluation.records.iter();
    let runs = records
        .filter(|record| record.domain == domain)
        .flat_map(|record| &record.runs)
        .filter(|run| run.invalid.is_empty())
        .filter_map(|run| Some((run.duration, run.detached?)));
    let rounds = evaluation.transfers.iter().flat_map(|round| {
        let watched = round.watched.iter();
        watched
            .filter(|watched| watched.domain == domain && watched.invalid.is_empty())
            .filter_map(|watched| Some((round.duration, watched.detached?)))
    });
    runs.chain(rounds)
        .reduce(|(time, sum), (more, counts)| (time + more, sum.plus(counts)))
}

/// Returns one row for each domain with detached threads: its interrupts, system calls and the rest.
pub(super) fn detached(report: &Report<'_>) -> Vec<Element> {
    let domains = report.evaluation.settings.domains.iter();
    let rows: Vec<Row> = domains
        .filter_map(|domain| {
            let (time, counts) = sum(report.evaluation, &domain.name)?;
            let outcome = match counts.interrupts {
                0 => Outcome::Holds,
                _ => Outcome::Leaks,
            };
            Some(Row::new(vec![
                report.name(&domain.name).into(),
                format::time(time).into(),
                Entry::outcome(Some(outcome), format::grouped(counts.interrupts)),
                format::grouped(counts.system_calls).into(),
                format::grouped(counts.faults).into(),
                format::grouped(counts.kicks).into(),
                format::grouped(counts.flushes).into(),
            ]))
        })
        .collect();
    if rows.is_empty() {
        return Vec::new();
    }
    let mut columns = vec![
        Column::new(ColumnKind::Name, "domain"),
        Column::new(ColumnKind::Figure, "time"),
        Column::new(ColumnKind::Outcome, "interrupts"),
    ];
    let figures = ["system calls", "faults", "kicks", "flushes"];
    columns.extend(figures.map(|name| Column::new(ColumnKind::Figure, name)));
    let title = "CPUs of detached threads while they measured";
    vec![
        Element::section("detached", title, "Detached threads"),
        Element::detail(vec![Element::remark(
            "Counted by the driver. Kicks are its own interrupts: it stops the thread, or makes the CPU flush translations. Interrupts are all others.",
        )]),
        Element::Table(Table::new(TableStyle::Lines, title, columns, rows)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use rampart_model::{Finding, Severity};

    #[test]
    fn sums_counts_over_valid_runs_and_rounds() {
        let text = include_str!("../../tests/documents/transfers.json");
        let mut evaluation: Evaluation = serde_json::from_str(text).expect("an evaluation");
        assert_eq!(sum(&evaluation, "task"), None);
        let counts = |interrupts, kicks| {
            Some(DetachedCounts {
                interrupts,
                kicks,
                ..DetachedCounts::default()
            })
        };
        let mut record = evaluation.records.remove(0);
        record.domain = "task".to_owned();
        record.runs.truncate(2);
        for (run, counts) in record.runs.iter_mut().zip([counts(1, 2), counts(100, 100)]) {
            run.duration = Nanos::SECOND;
            run.detached = counts;
            run.invalid.clear();
        }
        record.runs[1].invalid = vec![Finding::new(Severity::Error, "run", "it is invalid")];
        evaluation.records = vec![record];
        evaluation.transfers.truncate(1);
        let round = &mut evaluation.transfers[0];
        round.duration = Nanos::from_secs(3);
        for watched in &mut round.watched {
            watched.detached = counts(0, 5).filter(|_| watched.domain == "task");
            watched.invalid.clear();
        }
        let (time, sum) = sum(&evaluation, "task").expect("counts");
        assert_eq!(time, Nanos::from_secs(4));
        assert_eq!((sum.interrupts, sum.kicks), (1, 7));
        let elements = detached(&Report::new(&evaluation));
        assert!(matches!(&elements[2], Element::Table(_)));
    }
}
