// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads the output of `cyclictest -h` and `-H` (rt-tests).

use rampart_model::{Finding, Nanos, Severity};

use crate::table::{Column, width};
use crate::{PeerError, PeerMeasurement};

/// Parses the text that `cyclictest` prints with `-h` or `-H`. The unit is microseconds, or
/// nanoseconds (`-N`) if `nanoseconds` is set, because the text does not include it.
///
/// # Errors
/// If the text has no histogram, or a row does not match the others.
pub fn read(text: &str, nanoseconds: bool) -> Result<PeerMeasurement, PeerError> {
    let mut columns: Vec<Column> = Vec::new();
    let mut edges = Vec::new();
    let mut findings = Vec::new();
    let lines = text
        .lines()
        .enumerate()
        .skip_while(|(_, line)| line.trim() != "# Histogram")
        .skip(1);
    for (number, line) in lines {
        let wrong = |what| PeerError::Line {
            line: number + 1,
            what,
            present: line.to_owned(),
        };
        if let Some(footer) = line.strip_prefix("# ") {
            read_footer(footer, &mut columns).ok_or_else(|| wrong("a figure is no number"))?;
            continue;
        }
        let mut words = line.split_whitespace();
        let Some(edge) = words.next() else { continue };
        let edge = edge.parse::<u64>().map_err(|_| wrong("it is no row"))?;
        let counts = words
            .map(str::parse::<u64>)
            .collect::<Result<Vec<u64>, _>>()
            .map_err(|_| wrong("a count is no number"))?;
        if edges.is_empty() {
            columns = (0..counts.len())
                .map(|number| Column {
                    name: "T".to_owned(),
                    number: number as u32,
                    ..Column::default()
                })
                .collect();
        }
        if counts.len() != columns.len() {
            return Err(wrong("it has not as many counts as the first row"));
        }
        edges.push(edge);
        for (column, count) in columns.iter_mut().zip(counts) {
            column.counts.push((edge, count));
        }
    }
    if columns.is_empty() {
        return Err(PeerError::NotThisTool {
            expected: "histogram of cyclictest",
            what: "there is no line `# Histogram` with rows after it",
            fix: "run `cyclictest -q -h 1000`",
        });
    }
    // With -H the last column is the sum of the others and has no mean.
    if columns.len() > 1 && columns.last().is_some_and(|last| last.mean.is_none()) {
        columns.pop();
    }
    let unit = if nanoseconds { 1 } else { 1_000 };
    let width = width(edges.iter().copied());
    let end = edges.iter().copied().max().unwrap_or(0);
    findings.push(Finding::new(
        Severity::Note,
        "cyclictest",
        "skipped periods are neither reported nor corrected, and numbers are those of its threads, not of CPUs",
    ));
    let mut series = Vec::with_capacity(columns.len());
    for column in columns {
        let (one, problems) = column.finish(unit, width, end);
        series.push(one);
        findings.extend(problems);
    }
    Ok(PeerMeasurement {
        tool: "cyclictest".to_owned(),
        duration: None,
        bucket: Nanos(width * unit),
        series,
        findings,
    })
}

/// Parses a line below the rows. Returns `None` if it is a line of figures with invalid ones.
fn read_footer(footer: &str, columns: &mut [Column]) -> Option<()> {
    let Some((name, figures)) = footer.split_once(':') else {
        return Some(());
    };
    let target: fn(&mut Column) -> &mut Option<u64> = match name {
        "Min Latencies" => |column| &mut column.min,
        "Avg Latencies" => |column| &mut column.mean,
        "Max Latencies" => |column| &mut column.max,
        "Histogram Overflows" => |column| &mut column.beyond,
        // `Total` only counts the rows; other lines list cycles.
        _ => return Some(()),
    };
    for (column, figure) in columns.iter_mut().zip(figures.split_whitespace()) {
        *target(column) = Some(figure.parse().ok()?);
    }
    Some(())
}
