// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Exits of cells to the hypervisor.

use std::collections::BTreeMap;

use rampart_model::{CellExitReport, CellPayload, Evaluation, Nanos, plural};

use super::Report;
use super::findings::findings;
use crate::element::{
    Column, ColumnKind, Element, Entry, Outcome, Pair, Row, SpanStyle, Table, TableStyle, Text,
};
use crate::format;

/// The sum of a cell's reports: those of its valid runs and of its valid parts of rounds.
#[derive(Debug)]
struct CellSum<'a> {
    domain: &'a str,
    last: &'a CellExitReport,
    reports: usize,
    observed: Nanos,
    exits: BTreeMap<&'a str, u64>,
    interrupt_exits: u64,
    /// `None` if one of the reports has no count.
    interrupts: Option<u64>,
    failures: Vec<&'a str>,
}

impl CellSum<'_> {
    /// Exits because of interrupts, for each interrupt.
    fn exits_per_interrupt(&self) -> Option<f64> {
        let interrupts = self.interrupts.filter(|count| *count > 0)?;
        Some(self.interrupt_exits as f64 / interrupts as f64)
    }
}

fn sum<'a>(evaluation: &'a Evaluation, domain: &'a str) -> Option<CellSum<'a>> {
    let runs = evaluation
        .records
        .iter()
        .filter(|record| record.domain == domain)
        .flat_map(|record| &record.runs)
        .filter(|run| run.invalid.is_empty())
        .filter_map(|run| run.cell.as_ref());
    let rounds = evaluation
        .transfers
        .iter()
        .flat_map(|round| &round.watched)
        .filter(|watched| watched.domain == domain && watched.invalid.is_empty())
        .filter_map(|watched| watched.cell.as_ref());
    let all: Vec<&CellExitReport> = runs.chain(rounds).collect();
    let mut sum = CellSum {
        domain,
        last: all.last()?,
        reports: all.len(),
        observed: Nanos::ZERO,
        exits: BTreeMap::new(),
        interrupt_exits: 0,
        interrupts: Some(0),
        failures: Vec::new(),
    };
    for report in all {
        sum.observed += report.observed;
        sum.interrupt_exits += report.interrupt_exits;
        sum.interrupts = sum.interrupts.zip(report.interrupts).map(|(a, b)| a + b);
        for exits in &report.exits {
            *sum.exits.entry(&exits.reason).or_default() += exits.count;
        }
        sum.failures.extend(report.failure.as_deref());
    }
    Some(sum)
}

/// Returns one row for each cell: interrupts, exits because of them, all exits by reason.
pub(super) fn cells(report: &Report<'_>) -> Vec<Element> {
    let domains = report.evaluation.settings.domains.iter();
    let sums: Vec<CellSum<'_>> = domains
        .filter_map(|domain| sum(report.evaluation, &domain.name))
        .collect();
    if sums.is_empty() {
        return Vec::new();
    }
    let rows = sums.iter().map(|sum| {
        let each = sum.exits_per_interrupt();
        let outcome = each.map(|each| {
            if each == 0.0 {
                Outcome::Holds
            } else {
                Outcome::Leaks
            }
        });
        let interrupts = sum.interrupts.map(format::grouped);
        Row::new(vec![
            report.name(sum.domain).into(),
            format::time(sum.observed).into(),
            interrupts
                .unwrap_or_else(|| "not counted".to_owned())
                .into(),
            format::grouped(sum.interrupt_exits).into(),
            Entry::outcome(outcome, each.map_or_else(|| "–".to_owned(), per_interrupt)),
            by_reason(sum).into(),
        ])
    });
    let rows = rows.collect();
    let mut columns = vec![Column::new(ColumnKind::Name, "cell")];
    let figures = ["time", "interrupts", "exits for them"];
    columns.extend(figures.map(|name| Column::new(ColumnKind::Figure, name)));
    columns.push(Column::new(ColumnKind::Outcome, "for each"));
    columns.push(Column::new(ColumnKind::Text, "all exits"));
    let title = "Exits of the cells to the hypervisor while they measured";
    let mut elements = vec![
        Element::section("cells", title, "Cells"),
        Element::detail(vec![Element::remark(
            "Counted by the hypervisor. A cell that takes its interrupts itself has no exit for them.",
        )]),
        Element::Table(Table::new(TableStyle::Lines, title, columns, rows)),
    ];
    for sum in &sums {
        let last = sum.last;
        elements.push(Element::heading(3, report.name(sum.domain)));
        let payload = match last.payload {
            CellPayload::BareMetal => "no operating system",
            CellPayload::Linux => "Linux",
        };
        let mut pairs = vec![
            Pair::new("runs", format!("{payload}: {}", last.program)),
            Pair::new("own memory", format::bytes(last.memory_bytes)),
            Pair::new("CPUs", last.cpus.to_string()),
            Pair::new(
                "hypervisor interface",
                format!("revision {}", last.revision),
            ),
            Pair::new("rests on", plural(sum.reports, "measurement")),
        ];
        if !sum.failures.is_empty() {
            let failures = sum
                .failures
                .iter()
                .map(|of| Text::of(SpanStyle::Wrong, *of));
            pairs.push(Pair::lines("failed", failures.collect()));
        }
        elements.push(Element::Pairs { pairs });
        elements.extend(findings(&last.findings, ""));
    }
    elements
}

/// `0`, `0.25`; one exit in a million interrupts is still shown.
fn per_interrupt(exits: f64) -> String {
    if exits == 0.0 {
        "0".to_owned()
    } else {
        format!("{exits:.6}").trim_end_matches('0').to_owned()
    }
}

fn by_reason(sum: &CellSum<'_>) -> String {
    if sum.exits.is_empty() {
        return "0".to_owned();
    }
    let reasons = sum.exits.iter();
    let reasons = reasons.map(|(reason, count)| format!("{} {reason}", format::grouped(*count)));
    let all = sum.exits.values().sum();
    format!(
        "{}: {}",
        format::grouped(all),
        reasons.collect::<Vec<_>>().join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use rampart_model::{CellExits, Finding, Severity};

    fn report(
        exits: &[(&str, u64)],
        interrupt_exits: u64,
        interrupts: Option<u64>,
    ) -> CellExitReport {
        let exits = exits.iter().map(|(reason, count)| CellExits {
            reason: (*reason).to_owned(),
            count: *count,
        });
        CellExitReport {
            payload: CellPayload::BareMetal,
            program: "meter".to_owned(),
            revision: 1,
            cpus: "3".parse().expect("CPUs"),
            memory_bytes: 2 << 20,
            observed: Nanos::SECOND,
            exits: exits.collect(),
            interrupt_exits,
            interrupts,
            failure: None,
            findings: Vec::new(),
        }
    }

    /// Two runs, of which the second is invalid, and one round.
    fn evaluation(runs: [CellExitReport; 2], round: CellExitReport) -> Evaluation {
        let text = include_str!("../../tests/documents/transfers.json");
        let mut evaluation: Evaluation = serde_json::from_str(text).expect("an evaluation");
        let mut record = evaluation.records.remove(0);
        record.domain = "task".to_owned();
        record.runs.truncate(2);
        for (run, report) in record.runs.iter_mut().zip(runs) {
            run.cell = Some(report);
            run.invalid.clear();
        }
        record.runs[1].invalid = vec![Finding::new(Severity::Error, "run", "it is invalid")];
        evaluation.records = vec![record];
        evaluation.transfers.truncate(1);
        for watched in &mut evaluation.transfers[0].watched {
            watched.cell = (watched.domain == "task").then(|| round.clone());
        }
        evaluation
    }

    #[test]
    fn sums_exits_over_valid_runs_and_rounds() {
        let runs = [
            report(&[("psci", 2)], 0, Some(500)),
            report(&[("psci", 99)], 99, Some(1)),
        ];
        let round = report(&[("psci", 1), ("interrupt", 5)], 5, Some(1_500));
        let evaluation = evaluation(runs, round);
        let sum = sum(&evaluation, "task").expect("a cell");
        assert_eq!(sum.exits, BTreeMap::from([("interrupt", 5), ("psci", 3)]));
        assert_eq!((sum.reports, sum.interrupts), (2, Some(2_000)));
        assert_eq!(sum.observed, Nanos::from_secs(2));
        assert_eq!(sum.exits_per_interrupt(), Some(0.0025));
    }

    #[test]
    fn has_no_interrupts_if_one_report_has_none() {
        let runs = [report(&[], 0, Some(500)), report(&[], 0, None)];
        let evaluation = evaluation(runs, report(&[], 0, None));
        let sum = sum(&evaluation, "task").expect("a cell");
        assert_eq!((sum.interrupts, sum.exits_per_interrupt()), (None, None));
    }
}
