// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A measurement of another tool.

use rampart_peers::{PeerMeasurement, PeerQuantile, PeerSeries};

use crate::element::{Column, ColumnKind, Element, Entry, Row, Table, TableStyle};
use crate::format;
use crate::measurement::QUANTILES;
use crate::plan_picture::item;

/// Samples beyond a quantile, fewer of which are noise.
const BEYOND: f64 = rampart_model::SAMPLES_BEYOND as f64;

/// Returns the distributions of a measurement of another tool.
#[must_use]
pub fn peer_measurement(measurement: &PeerMeasurement) -> Vec<Element> {
    let duration = measurement
        .duration
        .map_or_else(String::new, |duration| format!(", {duration}"));
    let mut columns = vec![
        Column::new(ColumnKind::Name, "series"),
        Column::new(ColumnKind::Figure, "min"),
        Column::new(ColumnKind::Figure, "avg"),
    ];
    let quantiles = QUANTILES.map(format::quantile_name);
    let figures = quantiles.iter().map(String::as_str).chain(["max", "n"]);
    columns.extend(figures.map(|name| Column::new(ColumnKind::Figure, name)));
    let rows = measurement.series.iter().map(row).collect();
    let beyond = measurement.series.iter().filter_map(|series| {
        let beyond = series.beyond.filter(|beyond| *beyond > 0)?;
        Some(item(
            name(series),
            format!(
                "{beyond} samples ({:.3} %) are beyond the buckets, which end at {} or later. Only their \
                 maximum is known.",
                beyond as f64 / series.samples() as f64 * 100.0,
                series.buckets_end
            ),
        ))
    });
    vec![
        Element::paragraph(format!(
            "{}{duration}, buckets of {}",
            measurement.tool, measurement.bucket
        )),
        Element::Table(Table::new(
            TableStyle::Figures,
            "Distributions",
            columns,
            rows,
        )),
        Element::List {
            items: beyond.collect(),
        },
    ]
}

fn name(series: &PeerSeries) -> String {
    format!("{}\u{a0}{}", series.name, series.number)
}

fn row(series: &PeerSeries) -> Row {
    let mut entries: Vec<Entry> = vec![
        name(series).into(),
        format::time_or_dash(series.min).into(),
        format::time_or_dash(series.mean).into(),
    ];
    for quantile in QUANTILES {
        let backed = series.samples() as f64 * (1.0 - quantile) >= BEYOND;
        let value = series.quantile(quantile).filter(|_| backed);
        entries.push(Entry::from(match value {
            None => "–".to_owned(),
            Some(PeerQuantile::AtMost(value)) => format::time(value),
            Some(PeerQuantile::Beyond(end)) => format!(">\u{a0}{}", format::time(end)),
        }));
    }
    entries.push(format::time_or_dash(series.max).into());
    entries.push(series.samples().to_string().into());
    Row::new(entries)
}
