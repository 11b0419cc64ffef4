// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One measurement, and its distributions as CSV.

use std::fmt::Write as _;

use rampart_model::{
    Bucket, Distribution, Measurement, MeterDetail, MeterSettings, Nanos, ThreadOutcome, plural,
};

use crate::element::{
    Column, ColumnKind, Element, Entry, ListItem, Row, SpanStyle, Table, TableStyle, Text,
};
use crate::format;
use crate::plan_picture::item;
use crate::report::explained;

/// Quantiles of a table, as parts of all samples.
pub(crate) const QUANTILES: [f64; 4] = [0.5, 0.99, 0.999, 0.9999];

/// Returns a measurement: distributions, then counters and worst samples of each CPU, then the causes
/// of the worst samples.
#[must_use]
pub fn measurement(measurement: &Measurement) -> Vec<Element> {
    let duration = measurement.threads.iter().map(|thread| thread.duration);
    let settings = &measurement.settings;
    let mut elements = vec![Element::paragraph(format!(
        "{} in {}, {}, {} measured after {} of warm-up",
        settings.meter,
        measurement.domain,
        settings.policy,
        duration.max().unwrap_or_default(),
        settings.warm_up,
    ))];
    let mut rows = Vec::new();
    for cpu in &measurement.cpus {
        for series in &cpu.series {
            let name = series.series.word().replace('-', " ");
            rows.push(row(cpu.cpu.to_string(), name, &series.seen));
            if let Some(corrected) = &series.corrected {
                rows.push(row(String::new(), "  corrected".to_owned(), corrected));
            }
        }
    }
    elements.push(distributions("CPU", rows));
    let items = measurement.threads.iter().map(|thread| {
        let mut lines = lines(thread, settings, measurement.started_monotonic).into_iter();
        ListItem {
            items: lines.clone().skip(1).map(|line| item("", line)).collect(),
            ..item(
                format!("CPU {}", thread.cpu),
                lines.next().unwrap_or_default(),
            )
        }
    });
    elements.push(Element::List {
        items: items.collect(),
    });
    if let Some(counts) = measurement.detached {
        elements.push(Element::paragraph(format!(
            "Its CPU was taken from Linux: {}, {}, {}, {}, {} flushes.",
            plural(counts.interrupts, "interrupt"),
            plural(counts.system_calls, "system call"),
            plural(counts.faults, "fault"),
            plural(counts.kicks, "kick"),
            counts.flushes,
        )));
    }
    elements.extend(explained(
        &measurement.explained,
        measurement.started_monotonic,
    ));
    elements
}

/// Returns a table of distributions. The rows begin with a name and a series.
pub(crate) fn distributions(name: &str, rows: Vec<Row>) -> Element {
    let mut columns = vec![
        Column::new(ColumnKind::Name, name),
        Column::new(ColumnKind::Name, "series"),
    ];
    let quantiles = QUANTILES.map(format::quantile_name);
    let figures = quantiles.iter().map(String::as_str).chain(["max", "n"]);
    columns.extend(figures.map(|name| Column::new(ColumnKind::Figure, name)));
    Element::Table(Table::new(
        TableStyle::Figures,
        "Distributions",
        columns,
        rows,
    ))
}

fn row(cpu: String, series: String, distribution: &Distribution) -> Row {
    let mut entries: Vec<Entry> = vec![cpu.into(), series.replace(' ', "\u{a0}").into()];
    let quantiles = QUANTILES.map(|quantile| distribution.backed_quantile(quantile));
    entries.extend(quantiles.map(|value| Entry::from(format::time_or_dash(value))));
    entries.push(Text::of(SpanStyle::Strong, format::time_or_dash(distribution.max)).into());
    entries.push(distribution.samples.to_string().into());
    Row::new(entries)
}

/// Returns the counters of a thread and its worst samples.
fn lines(thread: &ThreadOutcome, settings: &MeterSettings, started: Nanos) -> Vec<String> {
    let mut lines = match &thread.detail {
        MeterDetail::Wakeup {} | MeterDetail::Irq {} => {
            vec![format!("missed periods {}", thread.missed)]
        }
        MeterDetail::Noise {
            turns,
            shortest_turn,
            mean_turn_picos,
            threshold,
            stolen,
        } => {
            let part = 100.0 * stolen.0 as f64 / thread.duration.0.max(1) as f64;
            vec![
                format!(
                    "{} gaps of {threshold} or more took {stolen} ({part:.3} % of the time)",
                    thread.samples
                ),
                format!(
                    "{turns} turns of {:.1} ns (shortest {shortest_turn})",
                    *mean_turn_picos as f64 / 1000.0
                ),
            ]
        }
        MeterDetail::Fwq {
            turns,
            shortest,
            lowered,
        } => {
            let worst = thread.worst.first();
            let excess = worst.map(|worst| worst.value).unwrap_or_default();
            vec![
                format!(
                    "worst excess {excess} = {:.3} % of the shortest quantum",
                    100.0 * excess.0 as f64 / shortest.0.max(1) as f64
                ),
                format!(
                    "shortest quantum {shortest} ({turns} turns, lowered by {lowered} while measuring)"
                ),
            ]
        }
        MeterDetail::Loop {
            deadline,
            deadlines_missed,
            worst_early,
            worst_late,
            worst_start,
            ..
        } => vec![
            format!(
                "deadline {deadline} missed {}, missed periods {}",
                plural(deadlines_missed, "time"),
                thread.missed
            ),
            format!(
                "worst period {worst_early} early and {worst_late} late, latest start {worst_start}"
            ),
        ],
        MeterDetail::Mmio {
            accesses,
            trapped,
            mapped,
        } => vec![format!(
            "trapped {trapped}, mapped {mapped}, each the mean of {accesses} reads; missed periods {}",
            thread.missed
        )],
    };
    if let Some(deadline) = settings.deadline {
        lines.push(format!(
            "over {deadline}: {} of {}",
            thread.over_deadline, thread.samples
        ));
    }
    if let Some(max) = thread.warm_up.max {
        lines.push(format!(
            "warm-up, not included: worst {max} in {}",
            plural(thread.warm_up.samples, "sample")
        ));
    }
    let worst = thread.worst.iter().take(5).map(|event| {
        let after = event.at.saturating_sub(started).as_secs_f64();
        format!("{} at {after:.3} s", event.value)
    });
    let worst: Vec<String> = worst.collect();
    if !worst.is_empty() {
        lines.push(format!("worst: {}", worst.join(", ")));
    }
    let counters = &thread.counters;
    let steal = counters
        .steal
        .map_or_else(|| "unknown".to_owned(), |steal| steal.to_string());
    lines.push(format!(
        "ran as {} on {}, involuntary context switches {}, page faults {}, steal {steal}",
        thread.placement.policy,
        thread.placement.cpus_seen.named(),
        counters.involuntary_switches,
        counters.minor_faults + counters.major_faults,
    ));
    lines
}

/// Returns the distributions of a measurement as CSV, one line for each bucket.
#[must_use]
pub fn measurement_csv(measurement: &Measurement) -> String {
    let mut text = String::from("cpu,series,view,lowest_ns,highest_ns,count\n");
    for cpu in &measurement.cpus {
        for series in &cpu.series {
            let word = series.series.word();
            let views = [
                ("seen", Some(&series.seen)),
                ("corrected", series.corrected.as_ref()),
            ];
            for (view, distribution) in views {
                for Bucket(lowest, count) in distribution.iter().flat_map(|view| &view.buckets) {
                    let highest = Bucket::highest(*lowest);
                    let _ = writeln!(
                        text,
                        "{},{word},{view},{},{},{count}",
                        cpu.cpu, lowest.0, highest.0
                    );
                }
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn omits_quantiles_with_fewer_than_ten_samples_beyond() {
        let thousand = Distribution::from_values((1..=1000).map(Nanos));
        let row = row("1".to_owned(), "gap".to_owned(), &thousand);
        let texts: Vec<String> = row.entries.iter().map(|entry| entry.text.plain()).collect();
        assert_eq!(
            texts.join(" ").replace('\u{a0}', " "),
            "1 gap 500 ns 990 ns – – 1 µs 1000"
        );
    }
}
