// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Quantiles of every record, with their exposure.

use rampart_model::{
    Distribution, IsolationMechanism, MeterKind, MeterSettings, Nanos, Record, Run, Series,
    ThreadOutcome,
};

use super::findings::findings;
use super::latency::{has_corrected, key, of_cpu, of_record};
use super::{Report, once};
use crate::element::{
    Column, ColumnKind, Element, Entry, Outcome, Pair, Row, RowGroup, SpanStyle, Table, TableStyle,
    Text,
};
use crate::format;

const QUANTILES: [f64; 7] = [0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999, 0.999999];

/// Quantiles that every medium shows, whether or not enough samples are above them.
const LEADING: [f64; 3] = [0.5, 0.99, 0.999];

/// Returns one table for each quantity, its rows grouped by condition, so that domains are below each
/// other.
pub(super) fn figures(report: &Report<'_>) -> Vec<Element> {
    let mut elements = vec![Element::section("figures", "Figures", "Figures")];
    if report.evaluation.records.is_empty() {
        elements.push(Element::paragraph("Nothing was measured."));
        return elements;
    }
    for (meter, series) in &report.quantities {
        for corrected in [false, true] {
            if corrected && !has_corrected(report, *meter, *series) {
                continue;
            }
            let view = View {
                meter: *meter,
                series: *series,
                corrected,
                primary: *series == meter.primary_series(),
            };
            elements.push(Element::Switched {
                views: vec![key(*meter, *series, corrected)],
                condition: None,
                leading: view.primary && !corrected,
                elements: view.elements(report),
            });
        }
    }
    elements.push(Element::remark(
        "All CPUs of a domain together, without the warm-up. A dash: fewer than 10 samples are above that quantile.",
    ));
    elements
}

/// Returns whether a run is part of its record's figures.
pub(super) fn counts(run: &Run) -> bool {
    run.invalid.is_empty()
}

/// One quantity, as seen or corrected.
#[derive(Clone, Copy)]
struct View {
    meter: MeterKind,
    series: Series,
    corrected: bool,
    primary: bool,
}

impl View {
    fn elements(self, report: &Report<'_>) -> Vec<Element> {
        let records: Vec<&Record> = report
            .evaluation
            .records
            .iter()
            .filter(|record| record.settings.meter == self.meter)
            .collect();
        let Some(first) = records.first() else {
            return Vec::new();
        };
        let emulated = records
            .iter()
            .all(|record| format::is_emulated(report.evaluation, record));
        let mark = if emulated { "EMULATED " } else { "" };
        let how = match (self.corrected, self.primary) {
            (true, _) => ", corrected for missed periods",
            (false, true) => "",
            (false, false) => ", as seen",
        };
        let title = if self.primary {
            title(&first.settings)
        } else {
            format!("{}: {}", self.meter, format::series_words(self.series))
        };
        let backed: Vec<f64> = QUANTILES
            .into_iter()
            .filter(|quantile| {
                LEADING.contains(quantile)
                    || records.iter().any(|record| {
                        of_record(record, self.series, self.corrected)
                            .backed_quantile(*quantile)
                            .is_some()
                    })
            })
            .collect();
        let groups = report.conditions.iter().filter_map(|condition| {
            let records = report.records(self.meter, *condition);
            let rows = records
                .iter()
                .flat_map(|record| self.rows(report, record, &backed));
            (!records.is_empty()).then(|| RowGroup {
                name: condition.to_string(),
                about: load_words(&records),
                condition: Some(condition.to_string()),
                detail: false,
                rows: rows.collect(),
            })
        });
        let table = Table {
            caption: "Quantiles with their exposure".to_owned(),
            class: "figures".to_owned(),
            style: TableStyle::Figures,
            columns: self.columns(&backed),
            groups: groups.collect(),
        };
        vec![
            Element::heading(3, format!("{mark}{title}{how}")),
            Element::Table(table),
        ]
    }

    fn columns(self, backed: &[f64]) -> Vec<Column> {
        let figure = |name: &str| Column::new(ColumnKind::Figure, name);
        let mut columns = vec![Column::new(ColumnKind::Text, "")];
        columns.extend(["samples", "time", "runs"].map(figure));
        columns.push(figure("min").detail());
        columns.extend(backed.iter().map(|quantile| {
            let column = figure(&format::quantile_name(*quantile));
            if LEADING.contains(quantile) {
                column
            } else {
                column.detail()
            }
        }));
        columns.push(figure("max"));
        columns.extend(self.primary.then(|| figure("over")));
        columns.push(figure("missed"));
        columns.push(figure("warm-up max").detail());
        columns.push(Column::new(ColumnKind::Text, "isolation").detail());
        columns
    }

    fn rows(self, report: &Report<'_>, record: &Record, backed: &[f64]) -> Vec<Row> {
        let of = of_record(record, self.series, self.corrected);
        let invalid = !record.invalid.is_empty();
        let name = if invalid {
            Text::from(&record.domain).and(SpanStyle::Wrong, " INVALID")
        } else {
            report.name(&record.domain)
        };
        let mut entries = vec![
            name.into(),
            format::count(of.samples).into(),
            format::time(record.exposure.duration).into(),
            record.exposure.runs.to_string().into(),
        ];
        entries.extend(quantiles(&of, backed));
        entries.extend(self.primary.then(|| nonzero(format::over_deadline(record))));
        entries.push(nonzero(record.exposure.missed));
        let warm_up = record.cpus.iter().filter_map(|cpu| cpu.warm_up_max).max();
        entries.push(format::time_or_dash(warm_up).into());
        entries.push(mechanisms(record).into());
        let mut rows = vec![Row {
            invalid,
            detail: self.detail(record, backed),
            ..Row::new(entries)
        }];
        if self.meter == MeterKind::Mmio && self.primary && !self.corrected {
            rows.push(mapped_row(record, backed));
        }
        rows
    }

    fn detail(self, record: &Record, backed: &[f64]) -> Vec<Element> {
        let mut elements = findings(&record.invalid, "");
        if record.cpus.len() > 1 {
            let figure = |name: &str| Column::new(ColumnKind::Figure, name);
            let mut columns = vec![Column::new(ColumnKind::Text, "CPU")];
            columns.extend(["samples", "min"].map(figure));
            columns.extend(backed.iter().map(|of| figure(&format::quantile_name(*of))));
            columns.extend(["max", "over", "missed", "warm-up max"].map(figure));
            let rows = record.cpus.iter().map(|cpu| {
                let of = of_cpu(cpu, self.series, self.corrected)
                    .cloned()
                    .unwrap_or_default();
                let mut entries = vec![
                    format!("CPU {}", cpu.cpu).into(),
                    format::count(of.samples).into(),
                ];
                entries.extend(quantiles(&of, backed));
                entries.push(format::grouped(cpu.over_deadline).into());
                entries.push(format::grouped(cpu.missed).into());
                entries.push(format::time_or_dash(cpu.warm_up_max).into());
                Row::new(entries)
            });
            let rows = rows.collect();
            elements.push(Element::Table(Table::new(
                TableStyle::Figures,
                "Each CPU",
                columns,
                rows,
            )));
        }
        elements.push(rests_on(record));
        elements.push(runs(&record.runs));
        elements
    }
}

/// Returns the results of `mmio` besides the page that traps.
fn mapped_row(record: &Record, backed: &[f64]) -> Row {
    let of = of_record(record, Series::MappedAccess, false);
    let mut entries = vec![
        "\u{a0}\u{a0}page mapped".into(),
        format::count(of.samples).into(),
        "".into(),
        "".into(),
    ];
    entries.extend(quantiles(&of, backed));
    entries.extend(["", "", "", ""].map(Entry::from));
    Row::new(entries)
}

/// Minimum, quantiles, maximum.
fn quantiles(of: &Distribution, backed: &[f64]) -> Vec<Entry> {
    let mut entries = vec![format::time_or_dash(of.min).into()];
    entries.extend(
        backed
            .iter()
            .map(|quantile| format::time_or_dash(of.backed_quantile(*quantile)).into()),
    );
    entries.push(Text::of(SpanStyle::Strong, format::time_or_dash(of.max)).into());
    entries
}

/// A count that should be zero.
fn nonzero(value: u64) -> Entry {
    let style = if value > 0 {
        SpanStyle::Wrong
    } else {
        SpanStyle::Plain
    };
    Text::of(style, format::count(value)).into()
}

fn title(settings: &MeterSettings) -> String {
    let what = match settings.meter {
        MeterKind::Wakeup => "how late a thread wakes from a timer",
        MeterKind::Noise => "gaps in a loop that only reads the counter",
        MeterKind::Fwq => "by how much a fixed piece of work takes longer",
        MeterKind::Loop => "end of the work of a control loop after its planned start",
        MeterKind::Irq => "from the timer to the handler of its interrupt",
        MeterKind::Mmio => "one read of a register on a page that traps",
    };
    let every = if settings.meter.is_periodic() {
        format!(", every {}", format::time(settings.interval))
    } else {
        String::new()
    };
    if settings.meter.needs_bare_metal() {
        return format!("{}: {what}{every}, no operating system", settings.meter);
    }
    format!(
        "{}: {what}{every}, policy {}",
        settings.meter, settings.policy
    )
}

/// The mechanisms that isolated the runs of a record; more than one is worth a question.
fn mechanisms(record: &Record) -> String {
    let all = once(record.runs.iter().filter(|run| counts(run)).map(|run| {
        let isolation = run.shield.as_ref().map(|shield| shield.isolation);
        format::isolation(isolation.unwrap_or(IsolationMechanism::None))
    }));
    if all.is_empty() {
        "–".to_owned()
    } else {
        all.join(", ")
    }
}

fn load_words(records: &[&Record]) -> Text {
    let runs = || records.iter().flat_map(|record| &record.runs);
    let Some(version) = runs()
        .map(|run| &run.load.version)
        .find(|version| !version.is_empty())
    else {
        return "no load started".into();
    };
    let commands = once(
        runs()
            .flat_map(|run| &run.load.stressors)
            .map(|one| format::shell(&one.command)),
    );
    let mut text = Text::from(version);
    if let Some(first) = commands.first() {
        text = text.and(SpanStyle::Plain, ": ").and(SpanStyle::Code, first);
    }
    match commands.len() {
        0 | 1 => text,
        several => text.and(SpanStyle::Plain, format!(" and {} more", several - 1)),
    }
}

/// Returns the requested and the effective settings of the meter.
fn rests_on(record: &Record) -> Element {
    let plan = &record.settings;
    let what = match plan.meter {
        MeterKind::Wakeup | MeterKind::Irq | MeterKind::Mmio => {
            format!("every {}", format::time(plan.interval))
        }
        MeterKind::Loop => format!(
            "every {}, {} of work",
            format::time(plan.interval),
            format::time(plan.work)
        ),
        MeterKind::Fwq => format!("quanta of {}", format::time(plan.work)),
        MeterKind::Noise => plan.threshold.map_or_else(
            || "gaps over the loop's own period".to_owned(),
            |threshold| format!("gaps over {}", format::time(threshold)),
        ),
    };
    let mut pairs = vec![Pair::new(
        "requested",
        format!(
            "{} on {}, {}, {what}, warm-up {}",
            plan.meter,
            plan.cpus.named(),
            plan.policy,
            format::time(plan.warm_up)
        ),
    )];
    let threads: Vec<&ThreadOutcome> = record.runs.iter().flat_map(|run| &run.threads).collect();
    if !threads.is_empty() {
        let unique = |of: &dyn Fn(&ThreadOutcome) -> String| {
            once(threads.iter().map(|thread| of(thread))).join(", ")
        };
        let total = |of: &dyn Fn(&ThreadOutcome) -> u64| -> u64 {
            threads.iter().map(|thread| of(thread)).sum()
        };
        let locked = threads.iter().all(|thread| thread.placement.memory_locked);
        pairs.push(Pair::lines(
            "placement read back",
            vec![
                format!("policy {}", unique(&|of| of.placement.policy.to_string())).into(),
                format!(
                    "on {}",
                    unique(&|of| of.placement.cpus_seen.named().to_string())
                )
                .into(),
                format!("memory {}", if locked { "locked" } else { "not locked" }).into(),
                format!("clock {}", unique(&|of| of.placement.clock_source.clone())).into(),
                format!(
                    "rest of the program on {}",
                    unique(&|of| of.placement.housekeeping.named().to_string())
                )
                .into(),
            ],
        ));
        let mut counted = vec![
            format!(
                "{} migrations",
                format::grouped(total(&|of| of.placement.migrations))
            )
            .into(),
            format!(
                "{} involuntary switches",
                format::grouped(total(&|of| of.counters.involuntary_switches))
            )
            .into(),
            format!(
                "{} page faults",
                format::grouped(total(
                    &|of| of.counters.minor_faults + of.counters.major_faults
                ))
            )
            .into(),
        ];
        if threads.iter().any(|of| of.counters.steal.is_some()) {
            let steal = total(&|of| of.counters.steal.unwrap_or_default().0);
            let steal = format::time(Nanos(steal));
            counted.push(format!("{steal} stolen by the hypervisor below").into());
        }
        pairs.push(Pair::lines("disturbances counted", counted));
        let used = total(&|of| of.counters.cpu_time.0);
        let share = used as f64 / total(&|of| of.duration.0).max(1) as f64;
        pairs.push(Pair::new(
            "CPU time of the meter",
            format!(
                "{} ({} of the measured time)",
                format::time(Nanos(used)),
                format::percent(share)
            ),
        ));
    }
    Element::Pairs { pairs }
}

fn runs(runs: &[Run]) -> Element {
    let rows = runs.iter().map(|run| {
        let mut name = Entry::from(run.order.to_string());
        if !counts(run) {
            name = Entry::outcome(
                Some(Outcome::Fails),
                format!("{} does not count", run.order),
            );
        }
        let stressors = &run.load.stressors;
        let mut load: Entry = if stressors.is_empty() {
            "none".into()
        } else {
            let all: Vec<String> = stressors
                .iter()
                .map(|one| format::shell(&one.command))
                .collect();
            Text::of(SpanStyle::Code, all.join(" ")).into()
        };
        if let Some(failures) = run.load.failures() {
            let text = Text::of(SpanStyle::Wrong, failures);
            load.detail.push(Element::paragraph(text));
        }
        load.detail.extend(findings(&run.invalid, ""));
        let cpu_time: Nanos = stressors.iter().map(|one| one.cpu_time).sum();
        let samples = run.threads.iter().map(|thread| thread.samples).sum();
        Row::new(vec![
            name,
            format::moment(&run.started, Nanos::ZERO, false).into(),
            format::time(run.duration).into(),
            format::grouped(samples).into(),
            load,
            if stressors.is_empty() {
                "–".into()
            } else {
                format::time(cpu_time).into()
            },
            Text::of(SpanStyle::Code, &run.histogram_log).into(),
        ])
    });
    let columns = [
        ("run", ColumnKind::Outcome),
        ("began", ColumnKind::Text),
        ("time", ColumnKind::Figure),
        ("samples", ColumnKind::Figure),
        ("load", ColumnKind::Text),
        ("its CPU time", ColumnKind::Figure),
        ("histogram", ColumnKind::Text),
    ];
    let columns = columns.map(|(name, kind)| Column::new(kind, name));
    let rows = rows.collect();
    Element::Table(Table::new(TableStyle::Figures, "Runs", columns.into(), rows).class("runs"))
}
