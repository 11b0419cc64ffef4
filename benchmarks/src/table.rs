// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The table of results, for the terminal, as JSON and as a document.

use std::fmt::Write as _;

use rampart_model::Interval;
use rampart_stats::median_interval;
use serde::Serialize;

use crate::machine::Facts;

/// What a ratio ours ÷ theirs is held against.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Aim {
    /// The interval of the ratio reaches this or less.
    IntervalReaches(f64),
    /// The median of the ratio is at most this.
    MedianAtMost(f64),
    /// The median of the ratio is at least this.
    MedianAtLeast(f64),
}

impl Aim {
    fn reached(self, ratio: &Interval) -> bool {
        match self {
            Self::IntervalReaches(limit) => ratio.low <= limit,
            Self::MedianAtMost(limit) => ratio.estimate <= limit,
            Self::MedianAtLeast(limit) => ratio.estimate >= limit,
        }
    }

    fn text(self) -> String {
        match self {
            Self::IntervalReaches(limit) => format!("interval reaches {limit:.2}"),
            Self::MedianAtMost(limit) => format!("≤ {limit:.2}"),
            Self::MedianAtLeast(limit) => format!("≥ {limit:.2}"),
        }
    }
}

/// One line of the table.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Row {
    /// What was measured, with its unit.
    pub(crate) measure: String,
    /// With which program it was compared.
    pub(crate) peer: &'static str,
    /// Median of our figures.
    pub(crate) ours: f64,
    /// Median of theirs.
    pub(crate) theirs: f64,
    /// Median of the ratios within pairs, with its interval.
    pub(crate) ratio: Interval,
    /// Pairs that it rests on.
    pub(crate) pairs: usize,
    /// What the ratio is to be.
    pub(crate) aim: Aim,
    /// Whether it is.
    pub(crate) reached: bool,
    /// What must be known to read the line; may be empty.
    pub(crate) note: String,
}

impl Row {
    /// From the figures of each pair (ours, theirs), of which the second must not be 0. None
    /// without pairs.
    pub(crate) fn new(
        measure: impl Into<String>,
        peer: &'static str,
        pairs: &[(f64, f64)],
        aim: Aim,
        note: impl Into<String>,
    ) -> Option<Self> {
        let median = |values: Vec<f64>| median_interval(&values, 0.95);
        let ours = median(pairs.iter().map(|pair| pair.0).collect())?;
        let theirs = median(pairs.iter().map(|pair| pair.1).collect())?;
        let ratio = median(pairs.iter().map(|pair| pair.0 / pair.1).collect())?;
        Some(Self {
            measure: measure.into(),
            peer,
            ours: ours.estimate,
            theirs: theirs.estimate,
            ratio,
            pairs: pairs.len(),
            aim,
            reached: aim.reached(&ratio),
            note: note.into(),
        })
    }

    /// The cells, in the order of [`HEADINGS`].
    fn cells(&self) -> [String; 8] {
        [
            self.measure.clone(),
            self.peer.to_owned(),
            figure(self.ours),
            figure(self.theirs),
            format!("{:.2}", self.ratio.estimate),
            if self.pairs > 1 {
                format!("{:.2} to {:.2}", self.ratio.low, self.ratio.high)
            } else {
                "–".to_owned()
            },
            self.aim.text(),
            if self.reached { "yes" } else { "no" }.to_owned(),
        ]
    }
}

const HEADINGS: [&str; 8] = [
    "measure", "beside", "ours", "theirs", "ratio", "interval", "aim", "reached",
];

/// Four significant digits, without an exponent.
fn figure(value: f64) -> String {
    let before_point = value.abs().max(1.0).log10().floor() as usize;
    format!("{value:.*}", 3usize.saturating_sub(before_point))
}

/// All that one run of the benchmarks found.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Results {
    /// When it began, RFC 3339.
    pub(crate) date: String,
    /// The command that does it again.
    pub(crate) command: String,
    /// The machine.
    pub(crate) machine: Facts,
    /// Programs and their versions.
    pub(crate) versions: Vec<(String, String)>,
    /// The table.
    pub(crate) rows: Vec<Row>,
    /// What fits into no row.
    pub(crate) remarks: Vec<String>,
}

/// The note below every rendering about what an interval is.
fn interval_note(rows: &[Row]) -> String {
    let rows = || rows.iter().filter(|row| row.pairs > 1);
    let pairs = rows().map(|row| row.pairs);
    let confidence = rows()
        .map(|row| row.ratio.confidence)
        .fold(f64::INFINITY, f64::min);
    match (pairs.clone().min(), pairs.max()) {
        (Some(fewest), Some(most)) => {
            let pairs = if fewest == most {
                fewest.to_string()
            } else {
                format!("{fewest} to {most}")
            };
            format!(
                "Ratio: ours ÷ theirs, the median over {pairs} pairs run in turn; interval: of that median, from the order of the ratios, at a confidence of at least {:.1} %.",
                confidence * 100.0
            )
        }
        _ => "No measure has two pairs, and so none an interval.".to_owned(),
    }
}

impl Results {
    /// For a terminal.
    pub(crate) fn terminal(&self) -> String {
        let mut lines = vec![HEADINGS.map(str::to_owned)];
        lines.extend(self.rows.iter().map(Row::cells));
        let width = |column: usize| {
            let widths = lines.iter().map(|cells| cells[column].chars().count());
            widths.max().unwrap_or(0)
        };
        let mut text = String::new();
        for cells in &lines {
            let padded: Vec<String> = cells
                .iter()
                .enumerate()
                .map(|(column, cell)| match column {
                    2..=4 => format!("{cell:>0$}", width(column)),
                    _ => format!("{cell:<0$}", width(column)),
                })
                .collect();
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{}", padded.join("  ").trim_end());
        }
        let _ = writeln!(text, "\n{}", interval_note(&self.rows));
        for row in self.rows.iter().filter(|row| !row.note.is_empty()) {
            let _ = writeln!(text, "{}: {}", row.measure, row.note);
        }
        for remark in &self.remarks {
            let _ = writeln!(text, "{remark}");
        }
        text
    }

    /// The document `docs/benchmarks.md`.
    pub(crate) fn document(&self) -> String {
        let mut text = String::from(include_str!("introduction.md"));
        let _ = writeln!(text, "\n## What was measured\n");
        let _ = writeln!(
            text,
            "On {}, by\n\n```sh\n{}\n```\n",
            self.date, self.command
        );
        let _ = writeln!(text, "| {} |", HEADINGS.join(" | "));
        let _ = writeln!(text, "|{}", " --- |".repeat(HEADINGS.len()));
        for row in &self.rows {
            let _ = writeln!(text, "| {} |", row.cells().join(" | "));
        }
        let _ = writeln!(text, "\n{}\n", interval_note(&self.rows));
        for row in self.rows.iter().filter(|row| !row.note.is_empty()) {
            let _ = writeln!(text, "- {}: {}", row.measure, row.note);
        }
        for remark in &self.remarks {
            let _ = writeln!(text, "- {remark}");
        }
        let _ = writeln!(text, "\n## On what\n\n| | |\n| --- | --- |");
        for (name, value) in self.machine.iter().chain(&self.versions) {
            let _ = writeln!(text, "| {name} | {value} |");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn results() -> Results {
        let row = |aim| {
            Row::new(
                "thing, ns",
                "cyclictest",
                &[(1.0, 2.0), (3.0, 2.0), (20_000.0, 20_000.0)],
                aim,
                "a note",
            )
            .expect("three pairs")
        };
        Results {
            date: "2026-01-01T00:00:00Z".to_owned(),
            command: "make bench".to_owned(),
            machine: vec![("kernel".to_owned(), "6.1".to_owned())],
            versions: vec![],
            rows: vec![row(Aim::MedianAtMost(1.0)), row(Aim::MedianAtMost(0.9))],
            remarks: vec!["a remark".to_owned()],
        }
    }

    #[test]
    fn takes_medians_of_figures_and_of_ratios() {
        let row = &results().rows[0];
        assert_eq!((row.ours, row.theirs, row.ratio.estimate), (3.0, 2.0, 1.0));
        assert!(row.reached && !results().rows[1].reached);
        let none = Row::new("", "oslat", &[], Aim::MedianAtMost(1.0), "");
        assert_eq!(none, None);
    }

    #[test]
    fn an_interval_reaches_what_a_median_does_not() {
        let pairs: Vec<(f64, f64)> = (0..10).map(|i| (0.95 + f64::from(i) / 50.0, 1.0)).collect();
        let row = |aim| Row::new("", "oslat", &pairs, aim, "").expect("pairs");
        assert!(row(Aim::IntervalReaches(1.0)).reached);
        assert!(!row(Aim::MedianAtMost(1.0)).reached);
        assert!(row(Aim::MedianAtLeast(1.0)).reached);
    }

    #[test]
    fn every_rendering_has_every_row_and_note() {
        let results = results();
        for text in [results.terminal(), results.document()] {
            assert_eq!(text.matches("0.50 to 1.50").count(), 2, "{text}");
            assert_eq!(text.matches("a note").count(), 2);
            assert!(text.contains("a remark"));
        }
        assert!(results.document().contains("make bench"));
    }

    #[test]
    fn figures_have_four_digits() {
        for (value, text) in [
            (0.0, "0.000"),
            (0.1234567, "0.123"),
            (18.5, "18.50"),
            (5123.4, "5123"),
            (987654.3, "987654"),
        ] {
            assert_eq!(figure(value), text);
        }
    }
}
