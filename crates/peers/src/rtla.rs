// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtla timerlat hist` and `rtla osnoise hist` (kernel documents `tools/rtla/`).

use rampart_model::{Finding, Nanos, Severity};

use crate::table::{Column, width};
use crate::{PeerError, PeerMeasurement};

const EXPECTED: &str = "histogram of rtla";

/// Reads the text of `rtla timerlat hist` or `rtla osnoise hist` with its header.
///
/// Columns are told by the header, since CPUs without samples have none. Totals over all CPUs,
/// which later versions add, are left out: they mix what is measured apart.
///
/// # Errors
/// If the header is missing, or a row does not fit to it.
pub fn read(text: &str) -> Result<PeerMeasurement, PeerError> {
    let missing = |what, mend| PeerError::NotThisTool {
        expected: EXPECTED,
        what,
        mend,
    };
    let title = text
        .lines()
        .find_map(|line| line.strip_prefix("# RTLA ")?.strip_suffix(" histogram"))
        .ok_or_else(|| {
            missing(
                "there is no line `# RTLA … histogram`",
                "run `rtla timerlat hist` or `rtla osnoise hist` without --no-header",
            )
        })?;
    let unit = text
        .lines()
        .find_map(|line| line.strip_prefix("# Time unit is "))
        .and_then(|unit| match unit.split(' ').next()? {
            "microseconds" => Some(1_000),
            "nanoseconds" => Some(1),
            _ => None,
        })
        .ok_or_else(|| missing("its time unit is not told", "run it without --no-header"))?;
    let duration = text
        .lines()
        .find_map(|line| line.strip_prefix("# Duration:"))
        .and_then(duration);
    let mut lines = text.lines().enumerate();
    let header = lines
        .find_map(|(_, line)| line.strip_prefix("Index"))
        .ok_or_else(|| {
            missing(
                "there is no line that begins with `Index`",
                "run it without --no-header and without --no-index",
            )
        })?;
    let mut columns = header
        .split_whitespace()
        .map(|word| {
            let (name, number) = word.rsplit_once('-')?;
            Some(Column {
                name: name.to_owned(),
                number: number.parse().ok()?,
                ..Column::default()
            })
        })
        .collect::<Option<Vec<Column>>>()
        .ok_or_else(|| {
            missing(
                "its columns have no CPU",
                "keep the line `Index …` as it is",
            )
        })?;
    let mut edges = Vec::new();
    let mut findings = Vec::new();
    let mut rest = Vec::new();
    for (number, line) in lines {
        let wrong = |what| PeerError::Line {
            line: number + 1,
            what,
            present: line.to_owned(),
        };
        let mut words = line.split_whitespace();
        let Some(first) = words.next() else { continue };
        if let Ok(edge) = first.parse::<u64>() {
            let cells: Vec<&str> = words.collect();
            if cells.len() != columns.len() {
                return Err(wrong("it has not as many counts as the header has columns"));
            }
            edges.push(edge);
            for (column, cell) in columns.iter_mut().zip(cells) {
                let count = cell.parse().map_err(|_| wrong("a count is no number"))?;
                column.counts.push((edge, count));
            }
            continue;
        }
        let Some(target) = footer(first) else {
            rest.push(line);
            // What follows tells of all CPUs together, or of what was done at a threshold.
            rest.extend(text.lines().skip(number + 1));
            break;
        };
        // A column without samples has a dash; with no column at all there may be a lone 0.
        for (column, cell) in columns.iter_mut().zip(words) {
            *target(column) = match cell {
                "-" => None,
                cell => Some(cell.parse().map_err(|_| wrong("a figure is no number"))?),
            };
        }
    }
    if rest.iter().any(|line| line.contains("hit stop tracing")) {
        findings.push(Finding::new(
            Severity::Warning,
            format!("rtla {title} hist"),
            "it ended at a threshold of its own, so its duration is not the one asked for",
        ));
    }
    if columns.is_empty() {
        findings.push(Finding::new(
            Severity::Warning,
            format!("rtla {title} hist"),
            "it has no column: no CPU had a sample, or all samples lay beyond the last bucket, which some versions of rtla do not tell apart",
        ));
    }
    if title == "osnoise" {
        findings.push(Finding::new(
            Severity::Note,
            "rtla osnoise hist",
            "its least, mean and greatest sample are lower edges of buckets",
        ));
    }
    let width = width(edges.iter().copied());
    let end = edges.iter().copied().max().unwrap_or(0);
    let mut series = Vec::with_capacity(columns.len());
    for column in columns {
        if column.beyond.is_none() {
            findings.push(Finding::new(
                Severity::Warning,
                format!("{}-{:03}", column.name, column.number),
                "how many samples lay beyond the last bucket is not told",
            ));
        }
        let (one, amiss) = column.finish(unit, width, end);
        series.push(one);
        findings.extend(amiss);
    }
    Ok(PeerMeasurement {
        tool: format!("rtla {title} hist"),
        duration,
        bucket: Nanos(width.saturating_mul(unit)),
        series,
        findings,
    })
}

/// Where a line below the rows goes.
fn footer(word: &str) -> Option<fn(&mut Column) -> &mut Option<u64>> {
    Some(match word {
        "over:" => |column| &mut column.beyond,
        "count:" => |column| &mut column.told,
        "min:" => |column| &mut column.min,
        "avg:" => |column| &mut column.mean,
        "max:" => |column| &mut column.max,
        _ => return None,
    })
}

/// Reads `DAYS HOURS:MINUTES:SECONDS`.
fn duration(text: &str) -> Option<Nanos> {
    let (days, time) = text.trim().split_once(' ')?;
    let mut parts = time.trim().split(':').map(str::parse::<u64>);
    let mut part = || parts.next()?.ok();
    let (hours, minutes, seconds) = (part()?, part()?, part()?);
    let days = days.parse::<u64>().ok()?;
    let whole = days
        .checked_mul(86_400)?
        .checked_add(hours.checked_mul(3_600)?)?
        .checked_add(minutes.checked_mul(60)?)?
        .checked_add(seconds)?;
    whole.checked_mul(1_000_000_000).map(Nanos)
}
