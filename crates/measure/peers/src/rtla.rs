// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Parses the output of `rtla timerlat hist` and `rtla osnoise hist` (kernel documents
//! `tools/rtla/`).

use std::collections::BTreeSet;

use rampart_model::{Finding, Nanos, Severity};

use crate::table::Column;
use crate::{PeerError, PeerMeasurement};

const EXPECTED: &str = "histogram of rtla";

/// Parts into which a bucket is divided at most to find out whether it is one.
const MOST_PARTS: u64 = 1 << 20;

/// Parses the text of `rtla timerlat hist` or `rtla osnoise hist` with its header.
///
/// The header defines the columns, since CPUs without samples have none. Totals over all CPUs,
/// which later versions add, are ignored: they mix separate measurements.
///
/// The text does not contain the width of its buckets. It is the distance of adjacent rows only if
/// the rows of zeros are printed or the rows are dense, otherwise a note reports it. The lines below the
/// rows are written last: a text without them is incomplete and is reported as such.
///
/// # Errors
/// Returns an error if the header is missing, or a row does not match it.
pub fn read(text: &str) -> Result<PeerMeasurement, PeerError> {
    let title = title(text)?;
    let unit = unit(text)?;
    let table = Table::read(text)?;
    let mut findings = table.findings(title, text);
    let (width, width_finding) = table.width(title, unit);
    findings.extend(width_finding);
    let end = table.edges.iter().copied().max().unwrap_or(0);
    let mut series = Vec::with_capacity(table.columns.len());
    for column in table.columns {
        if column.beyond.is_none() {
            findings.push(Finding::new(
                Severity::Warning,
                format!("{}-{:03}", column.name, column.number),
                "the number of samples beyond the last bucket is not reported",
            ));
        }
        let (one, problems) = column.finish(unit, width, end);
        series.push(one);
        findings.extend(problems);
    }
    Ok(PeerMeasurement {
        tool: format!("rtla {title} hist"),
        duration: text
            .lines()
            .find_map(|line| line.strip_prefix("# Duration:"))
            .and_then(duration),
        bucket: Nanos(width.saturating_mul(unit)),
        series,
        findings,
    })
}

const fn missing(what: &'static str, fix: &'static str) -> PeerError {
    PeerError::NotThisTool {
        expected: EXPECTED,
        what,
        fix,
    }
}

/// Returns `timerlat` or `osnoise`.
fn title(text: &str) -> Result<&str, PeerError> {
    text.lines()
        .find_map(|line| line.strip_prefix("# RTLA ")?.strip_suffix(" histogram"))
        .ok_or(missing(
            "there is no line `# RTLA … histogram`",
            "run `rtla timerlat hist` or `rtla osnoise hist` without --no-header",
        ))
}

/// Returns the nanoseconds of a time unit.
fn unit(text: &str) -> Result<u64, PeerError> {
    text.lines()
        .find_map(|line| line.strip_prefix("# Time unit is "))
        .and_then(|unit| match unit.split(' ').next()? {
            "microseconds" => Some(1_000),
            "nanoseconds" => Some(1),
            _ => None,
        })
        .ok_or(missing(
            "the text has no time unit",
            "run rtla without --no-header",
        ))
}

/// Parses the columns of the line `Index`.
fn columns(header: &str) -> Result<Vec<Column>, PeerError> {
    header
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
        .ok_or(missing(
            "the columns have no CPU numbers",
            "do not change the line `Index …`",
        ))
}

/// The lines below the header.
struct Table {
    columns: Vec<Column>,
    /// The lower edges of the buckets.
    edges: Vec<u64>,
    /// The lines below the rows that have a figure for every column.
    footers: BTreeSet<String>,
    /// Whether rtla stopped at a threshold.
    stopped: bool,
}

impl Table {
    fn read(text: &str) -> Result<Self, PeerError> {
        let mut lines = text.lines().enumerate();
        let header = lines
            .find_map(|(_, line)| line.strip_prefix("Index"))
            .ok_or(missing(
                "there is no line that begins with `Index`",
                "run rtla without --no-header and without --no-index",
            ))?;
        let mut table = Self {
            columns: columns(header)?,
            edges: Vec::new(),
            footers: BTreeSet::new(),
            stopped: false,
        };
        if text
            .lines()
            .filter(|line| line.starts_with("# RTLA "))
            .count()
            > 1
        {
            return Err(missing(
                "it has the histograms of several runs",
                "give the output of one run",
            ));
        }
        for (number, line) in lines {
            let parsed = table.parse_line(line).map_err(|what| PeerError::Line {
                line: number + 1,
                what,
                present: line.to_owned(),
            })?;
            if !parsed {
                // The following lines are about all CPUs together, or about the action at a
                // threshold.
                let mut rest = text.lines().skip(number);
                table.stopped = rest.any(|line| line.contains("hit stop tracing"));
                break;
            }
        }
        Ok(table)
    }

    /// Parses a row or a line below the rows. Returns `false` if it is neither.
    fn parse_line(&mut self, line: &str) -> Result<bool, &'static str> {
        let mut words = line.split_whitespace();
        let Some(first) = words.next() else {
            return Ok(true);
        };
        if let Ok(edge) = first.parse::<u64>() {
            let entries: Vec<&str> = words.collect();
            if entries.len() != self.columns.len() {
                return Err("the number of counts differs from the header's columns");
            }
            self.edges.push(edge);
            for (column, entry) in self.columns.iter_mut().zip(entries) {
                let count = entry.parse().map_err(|_| "a count is not a number")?;
                column.counts.push((edge, count));
            }
            return Ok(true);
        }
        let Some(target) = footer(first) else {
            return Ok(false);
        };
        // A column without samples has a dash; without any column there may be a single 0.
        let mut figures = 0;
        for (column, entry) in self.columns.iter_mut().zip(words) {
            *target(column) = match entry {
                "-" => None,
                entry => Some(entry.parse().map_err(|_| "a figure is not a number")?),
            };
            figures += 1;
        }
        if figures == self.columns.len() {
            self.footers.insert(first.to_owned());
        }
        Ok(true)
    }

    /// Returns the width of a bucket, and a note if the rows do not define it.
    ///
    /// The lower edges are multiples of the width, so their greatest common divisor is one too, and
    /// quantiles by that divisor are upper bounds. It is the width itself if rows of zeros are
    /// printed, since then no bucket is left out, or if each smaller divisor is refuted by an
    /// extreme that lies further above the edge of its bucket.
    fn width(&self, title: &str, unit: u64) -> (u64, Option<Finding>) {
        let widest = common_divisor(self.edges.iter().copied());
        let has_zeros = (0..self.edges.len()).any(|row| {
            let mut columns = self.columns.iter();
            columns.all(|column| column.counts[row].1 == 0)
        });
        let above_edge = self.columns.iter().flat_map(|column| {
            let mut edges = column
                .counts
                .iter()
                .filter(|row| row.1 > 0)
                .map(|row| row.0);
            let (first, last) = (edges.next(), edges.next_back());
            let last = last.or(first).filter(|_| column.beyond == Some(0));
            let beyond = |extreme: Option<u64>, edge: Option<u64>| extreme?.checked_sub(edge?);
            [beyond(column.min, first), beyond(column.max, last)]
        });
        let least = above_edge.flatten().max().unwrap_or(0).saturating_add(1);
        // The largest smaller divisor decides. An absurdly wide bucket counts as unknown.
        let parts =
            (2..=widest.isqrt().min(MOST_PARTS)).find(|parts| widest.is_multiple_of(*parts));
        let is_known = has_zeros
            || widest == 1
            || match parts {
                Some(parts) => widest / parts < least,
                None => (2..=MOST_PARTS * MOST_PARTS).contains(&widest) && 1 < least,
            };
        let note = (!is_known && !self.edges.is_empty()).then(|| {
            let width = Nanos(widest.saturating_mul(unit));
            Finding::new(
                Severity::Note,
                format!("rtla {title} hist"),
                format!(
                    "the text does not include the width of its buckets; {width}, the widest that fits its rows, is taken, so quantiles and maxima may be too long",
                ),
            )
        });
        (widest, note)
    }

    /// Returns the findings about the whole table.
    fn findings(&self, title: &str, text: &str) -> Vec<Finding> {
        let finding =
            |severity, what: &str| Finding::new(severity, format!("rtla {title} hist"), what);
        let mut findings = Vec::new();
        let is_complete = ["over:", "count:", "min:", "avg:", "max:"]
            .into_iter()
            .all(|footer| self.footers.contains(footer));
        if !is_complete || !text.ends_with('\n') {
            findings.push(finding(
                Severity::Warning,
                "the text ends before the tool's last line: samples, their count or an extreme may be missing",
            ));
        }
        if self.stopped {
            findings.push(finding(
                Severity::Warning,
                "rtla stopped at a threshold, so the duration is shorter than requested",
            ));
        }
        if self.columns.is_empty() {
            findings.push(finding(
                Severity::Warning,
                "the text has no column: no CPU had a sample, or all samples were beyond the last bucket, which some versions of rtla do not distinguish",
            ));
        }
        if title == "osnoise" {
            findings.push(finding(
                Severity::Note,
                "minimum, mean and maximum are lower edges of buckets",
            ));
        }
        findings
    }
}

/// Returns the greatest common divisor of the lower edges, or 1.
fn common_divisor(edges: impl IntoIterator<Item = u64>) -> u64 {
    let of_two = |mut a: u64, mut b: u64| {
        while b != 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    edges.into_iter().fold(0, of_two).max(1)
}

/// Returns the field for a line below the rows.
fn footer(word: &str) -> Option<fn(&mut Column) -> &mut Option<u64>> {
    Some(match word {
        "over:" => |column| &mut column.beyond,
        "count:" => |column| &mut column.reported,
        "min:" => |column| &mut column.min,
        "avg:" => |column| &mut column.mean,
        "max:" => |column| &mut column.max,
        _ => return None,
    })
}

/// Parses `DAYS HOURS:MINUTES:SECONDS`.
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
