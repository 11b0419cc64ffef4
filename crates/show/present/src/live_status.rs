// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A status that is shown again and again on a terminal, with latencies and keys.

use rampart_model::{CpuStatus, Nanos, Status, StatusSubject};

use crate::element::{Column, ColumnKind, Element, Entry, Pair, Row, Table, TableStyle};
use crate::report::findings;
use crate::status::{busiest_threads, cpu_entries};

/// A column that the CPUs can be sorted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CpuColumn {
    /// The number of the CPU.
    Cpu,
    /// Its owner.
    Owner,
    /// The part of the time that it was not idle.
    Busy,
    /// Interrupts per second.
    Interrupts,
    /// Softirqs per second.
    Softirqs,
    /// Median of recent latencies.
    Median,
    /// Maximum of recent latencies.
    Maximum,
    /// Kinds of noise sources.
    NoiseSources,
}

impl CpuColumn {
    /// All columns, from left to right.
    pub const ALL: [Self; 8] = [
        Self::Cpu,
        Self::Owner,
        Self::Busy,
        Self::Interrupts,
        Self::Softirqs,
        Self::Median,
        Self::Maximum,
        Self::NoiseSources,
    ];

    const fn title(self) -> &'static str {
        match self {
            Self::Cpu => "CPU",
            Self::Owner => "owner",
            Self::Busy => "busy",
            Self::Interrupts => "irq/s",
            Self::Softirqs => "soft/s",
            Self::Median => "p50",
            Self::Maximum => "max",
            Self::NoiseSources => "noise",
        }
    }
}

/// A CPU and the median and maximum of its recent latencies.
pub type CpuWithLatency<'a> = (&'a CpuStatus, Option<(Nanos, Nanos)>);

/// Returns the plan and the numbers of findings, a table of these CPUs, and the findings.
#[must_use]
pub fn live_status(
    status: &Status,
    cpus: &[CpuWithLatency<'_>],
    (sorted_by, descending): (CpuColumn, bool),
    paused: bool,
    remarks: &[String],
) -> Vec<Element> {
    let plan = match &status.plan {
        Some(plan) => format!("plan {} {}", plan.file, plan.state),
        None => "no plan is active".to_owned(),
    };
    let paused = if paused { "  PAUSED" } else { "" };
    let count = |subject| status.of(subject).count();
    let mut elements = vec![
        Element::heading(1, format!("{}: {plan}{paused}", status.host_name)),
        Element::paragraph(format!(
            "drift {}, colocations {}, unwanted activity {}; over {}",
            count(StatusSubject::Drift),
            count(StatusSubject::Colocation),
            count(StatusSubject::UnwantedActivity),
            status.interval
        )),
    ];
    elements.extend(remarks.iter().map(Element::paragraph));
    let mark = |column| match (column == sorted_by, descending) {
        (true, false) => "↑",
        (true, true) => "↓",
        _ => "",
    };
    let names = CpuColumn::ALL.map(|column| format!("{}{}", column.title(), mark(column)));
    let columns = names.into_iter().chain(["threads".to_owned()]);
    let columns = columns.map(|name| Column::new(ColumnKind::Text, name));
    let rows = cpus.iter().map(|(cpu, latency)| {
        let or_dash =
            |value: Option<Nanos>| value.map_or("–".to_owned(), |value| value.to_string());
        let noise = match cpu.noise_sources.len() {
            0 => String::new(),
            count => count.to_string(),
        };
        let last = [
            or_dash(latency.map(|(median, _)| median)),
            or_dash(latency.map(|(_, maximum)| maximum)),
            noise,
            busiest_threads(cpu, 2),
        ];
        Row {
            entries: cpu_entries(cpu)
                .into_iter()
                .chain(last)
                .map(Entry::from)
                .collect(),
            ..Row::default()
        }
    });
    elements.push(Element::Table(Table::new(
        TableStyle::Figures,
        "CPUs",
        columns.collect(),
        rows.collect(),
    )));
    let found = status.findings.iter().map(|finding| &finding.finding);
    elements.extend(findings(found, ""));
    elements
}

/// The keys of the live status, on one line.
pub const LIVE_STATUS_KEYS: &str = " q quit  p pause  ←→ column  ↑↓ order  PgUp PgDn CPUs  ? help";

/// Returns the meaning of the columns and keys of the live status.
#[must_use]
pub fn live_status_help() -> Vec<Element> {
    let pairs = [
        ("busy", "part of the time that the CPU was not idle"),
        ("irq/s, soft/s", "interrupts and softirqs per second"),
        (
            "p50, max",
            "wakeup latency of a timer in the last ten seconds; one thread on each CPU, 100 times per second, with policy fifo:1 if the kernel allows it",
        ),
        (
            "noise",
            "kinds of noise sources: activity on a real-time CPU that does not belong to its domain",
        ),
        ("threads", "the busiest threads; [kernel threads]"),
        ("← →", "column to sort by"),
        ("↑ ↓", "ascending, descending"),
        ("p, q", "pause, quit"),
    ];
    let pairs = pairs.map(|(name, meaning)| Pair::new(name, meaning));
    vec![Element::Pairs {
        pairs: pairs.into(),
    }]
}
