// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Parses the output of `cyclictest -h` and `-H` (rt-tests).

use std::collections::BTreeMap;

use rampart_model::{Finding, Nanos, Severity};

use crate::table::Column;
use crate::{PeerError, PeerMeasurement};

/// Parses the text that `cyclictest` prints with `-h` or `-H`. The unit is microseconds, or
/// nanoseconds (`-N`) if `nanoseconds` is set, because the text does not include it.
///
/// A bucket is one unit wide (rt-tests, `cyclictest.c`); rows of zeros are left out since rt-tests
/// 2.7, so the rows do not define the width. The lines below the rows are written last: a text
/// without them is incomplete and is reported as such.
///
/// # Errors
/// Returns an error if the text has no histogram, or a row does not match the others.
pub fn read(text: &str, nanoseconds: bool) -> Result<PeerMeasurement, PeerError> {
    let mut table = Table::read(text)?;
    let mut findings = table.findings(text);
    if table.has_sum() {
        table.columns.pop();
    }
    if !nanoseconds {
        findings.push(table.unit_finding());
    }
    let unit = if nanoseconds { 1 } else { 1_000 };
    let mut series = Vec::with_capacity(table.columns.len());
    for column in table.columns {
        let (one, problems) = column.finish(unit, 1, table.end);
        series.push(one);
        findings.extend(problems);
    }
    Ok(PeerMeasurement {
        tool: "cyclictest".to_owned(),
        duration: None,
        bucket: Nanos(unit),
        series,
        findings,
    })
}

fn finding(severity: Severity, what: &str) -> Finding {
    Finding::new(severity, "cyclictest", what)
}

/// The lines from `# Histogram` on.
#[derive(Default)]
struct Table {
    /// One column for each thread, and with `-H` their sum.
    columns: Vec<Column>,
    /// The number of figures in each line below the rows, by its name.
    footers: BTreeMap<String, usize>,
    /// The lower edge of the last row.
    end: u64,
}

impl Table {
    fn read(text: &str) -> Result<Self, PeerError> {
        let mut table = Self::default();
        let lines = text
            .lines()
            .enumerate()
            .skip_while(|(_, line)| line.trim() != "# Histogram")
            .skip(1);
        for (number, line) in lines {
            table.parse_line(line).map_err(|what| PeerError::Line {
                line: number + 1,
                what,
                present: line.to_owned(),
            })?;
        }
        if table.columns.is_empty() {
            return Err(PeerError::NotThisTool {
                expected: "histogram of cyclictest",
                what: "there is no line `# Histogram` with rows after it",
                fix: "run `cyclictest -q -h 1000`",
            });
        }
        Ok(table)
    }

    /// Parses a row or a line below the rows.
    fn parse_line(&mut self, line: &str) -> Result<(), &'static str> {
        if let Some(footer) = line.strip_prefix("# ") {
            return self.parse_footer(footer);
        }
        let mut words = line.split_whitespace();
        let Some(edge) = words.next() else {
            return Ok(());
        };
        let edge = edge
            .parse::<u64>()
            .map_err(|_| "the line is not a row of counts")?;
        let counts = words
            .map(str::parse::<u64>)
            .collect::<Result<Vec<u64>, _>>()
            .map_err(|_| "a count is not a number")?;
        if self.columns.is_empty() {
            self.columns = (0..counts.len())
                .map(|number| Column {
                    name: "T".to_owned(),
                    number: number as u32,
                    ..Column::default()
                })
                .collect();
        }
        if counts.len() != self.columns.len() {
            return Err("the number of counts differs from the first row");
        }
        self.end = self.end.max(edge);
        for (column, count) in self.columns.iter_mut().zip(counts) {
            column.counts.push((edge, count));
        }
        Ok(())
    }

    fn parse_footer(&mut self, footer: &str) -> Result<(), &'static str> {
        if footer.trim() == "Histogram" {
            return Err("a second histogram begins: give the output of one run");
        }
        let Some((name, figures)) = footer.split_once(':') else {
            return Ok(());
        };
        let target: fn(&mut Column) -> &mut Option<u64> = match name {
            "Min Latencies" => |column| &mut column.min,
            "Avg Latencies" => |column| &mut column.mean,
            "Max Latencies" => |column| &mut column.max,
            "Histogram Overflows" => |column| &mut column.beyond,
            // Without the samples beyond the rows.
            "Total" => |column| &mut column.in_rows,
            // The other lines list cycles.
            _ => return Ok(()),
        };
        let mut number = 0;
        for figure in figures.split_whitespace() {
            let figure = figure.parse().map_err(|_| "a figure is not a number")?;
            if let Some(column) = self.columns.get_mut(number) {
                *target(column) = Some(figure);
            }
            number += 1;
        }
        self.footers.insert(name.to_owned(), number);
        Ok(())
    }

    /// Returns whether the last column is the sum that `-H` adds: it equals the sum of the others in
    /// every row, and has no mean.
    fn has_sum(&self) -> bool {
        let Some((last, others)) = self.columns.split_last() else {
            return false;
        };
        !others.is_empty()
            && last.mean.is_none()
            && last.counts.iter().enumerate().all(|(row, (_, sum))| {
                others
                    .iter()
                    .try_fold(0u64, |total, column| total.checked_add(column.counts[row].1))
                    == Some(*sum)
            })
            // Two equal columns without means may also be two threads.
            && (others.len() > 1 || self.footers.contains_key("Avg Latencies"))
    }

    /// Returns the findings about the whole table.
    fn findings(&self, text: &str) -> Vec<Finding> {
        let mut findings = vec![finding(
            Severity::Note,
            "the tool neither reports nor corrects skipped periods; its numbers are those of threads, not of CPUs",
        )];
        let threads = self.columns.len() - usize::from(self.has_sum());
        let complete = ["Min Latencies", "Avg Latencies", "Max Latencies"]
            .into_iter()
            .chain(["Histogram Overflows"])
            .all(|name| {
                self.footers
                    .get(name)
                    .is_some_and(|number| *number >= threads)
            });
        if !complete || !text.ends_with('\n') {
            findings.push(finding(
                Severity::Warning,
                "the text ends before the tool's last line: samples, the overflow count or a thread may be missing",
            ));
        }
        findings
    }

    /// Returns the finding about the unit, which the text does not include. If no
    /// sample is below 1,000, nanoseconds are more likely.
    fn unit_finding(&self) -> Finding {
        let minimum = self.columns.iter().filter_map(|column| column.min).min();
        if minimum.is_some_and(|minimum| minimum >= 1_000) {
            return finding(
                Severity::Warning,
                "the figures are taken as microseconds, but no sample is below 1000: the tool probably ran with -N",
            )
            .fix("pass --nanoseconds if cyclictest ran with -N");
        }
        finding(
            Severity::Note,
            "the text does not include its unit; the figures are taken as microseconds",
        )
    }
}
