// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The table of results, for the terminal, as JSON and as a document.

use std::fmt::Write as _;

use rampart_model::Interval;
use rampart_stats::median_interval;
use serde::Serialize;

use crate::machine_facts::Facts;

/// The condition that a ratio ours ÷ theirs must meet.
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
    /// The measured quantity, with its unit.
    pub(crate) measure: String,
    /// The program that it is compared with.
    pub(crate) peer: &'static str,
    /// Median of our figures.
    pub(crate) ours: f64,
    /// Median of theirs.
    pub(crate) theirs: f64,
    /// Median of the ratios within pairs, with its interval.
    pub(crate) ratio: Interval,
    /// Number of pairs.
    pub(crate) pairs: usize,
    /// Expected ratio.
    pub(crate) aim: Aim,
    /// Whether the ratio is as expected.
    pub(crate) reached: bool,
    /// How the figures were measured; may be empty.
    pub(crate) note: String,
}

impl Row {
    /// Computes a row from the figures of each pair (ours, theirs); theirs must not be 0. Returns
    /// `None` without pairs.
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

    /// Returns the entries in the order of [`HEADINGS`].
    fn entries(&self) -> [String; 8] {
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
    "measure", "peer", "ours", "theirs", "ratio", "interval", "aim", "reached",
];

/// Formats a value with four significant digits, without an exponent.
fn figure(value: f64) -> String {
    let before_point = value.abs().max(1.0).log10().floor() as usize;
    format!("{value:.*}", 3usize.saturating_sub(before_point))
}

/// The results of one run of the benchmarks.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Results {
    /// Start time, UTC.
    pub(crate) date: String,
    /// The command that repeats the run.
    pub(crate) command: String,
    /// Properties of the machine.
    pub(crate) machine: Facts,
    /// Programs and their versions.
    pub(crate) versions: Vec<(String, String)>,
    /// The table.
    pub(crate) rows: Vec<Row>,
    /// Remarks that belong to no row.
    pub(crate) remarks: Vec<String>,
}

/// Returns the note that explains ratio and interval.
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
                "Ratio: the median of ours ÷ theirs over {pairs} pairs. Interval: the confidence interval of that median, from the order of the ratios, at a confidence of at least {:.1} %.",
                confidence * 100.0
            )
        }
        _ => "No measure has two pairs, so none has an interval.".to_owned(),
    }
}

impl Results {
    /// Renders the results for a terminal.
    pub(crate) fn terminal(&self) -> String {
        let mut lines = vec![HEADINGS.map(str::to_owned)];
        lines.extend(self.rows.iter().map(Row::entries));
        let width = |column: usize| {
            let widths = lines.iter().map(|entries| entries[column].chars().count());
            widths.max().unwrap_or(0)
        };
        let mut text = String::new();
        for entries in &lines {
            let padded: Vec<String> = entries
                .iter()
                .enumerate()
                .map(|(column, entry)| match column {
                    2..=4 => format!("{entry:>0$}", width(column)),
                    _ => format!("{entry:<0$}", width(column)),
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

    /// Renders the document `docs/benchmarks.md`.
    pub(crate) fn document(&self) -> String {
        let mut text = String::from(include_str!("introduction.md"));
        let _ = writeln!(text, "\n## Results\n");
        let _ = writeln!(
            text,
            "Measured on {} with:\n\n```sh\n{}\n```\n",
            self.date, self.command
        );
        let _ = writeln!(text, "| {} |", HEADINGS.join(" | "));
        let _ = writeln!(text, "|{}", " --- |".repeat(HEADINGS.len()));
        for row in &self.rows {
            let _ = writeln!(text, "| {} |", row.entries().join(" | "));
        }
        let _ = writeln!(text, "\n{}\n", interval_note(&self.rows));
        for row in self.rows.iter().filter(|row| !row.note.is_empty()) {
            let _ = writeln!(text, "- {}: {}", row.measure, row.note);
        }
        for remark in &self.remarks {
            let _ = writeln!(text, "- {remark}");
        }
        let _ = writeln!(text, "\n## Environment\n\n| | |\n| --- | --- |");
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
    fn computes_medians_of_figures_and_of_ratios() {
        let row = &results().rows[0];
        assert_eq!((row.ours, row.theirs, row.ratio.estimate), (3.0, 2.0, 1.0));
        assert!(row.reached && !results().rows[1].reached);
        let none = Row::new("", "oslat", &[], Aim::MedianAtMost(1.0), "");
        assert_eq!(none, None);
    }

    #[test]
    fn an_interval_can_meet_an_aim_that_its_median_misses() {
        let pairs: Vec<(f64, f64)> = (0..10).map(|i| (0.95 + f64::from(i) / 50.0, 1.0)).collect();
        let row = |aim| Row::new("", "oslat", &pairs, aim, "").expect("pairs");
        assert!(row(Aim::IntervalReaches(1.0)).reached);
        assert!(!row(Aim::MedianAtMost(1.0)).reached);
        assert!(row(Aim::MedianAtLeast(1.0)).reached);
    }

    #[test]
    fn every_rendering_contains_every_row_and_note() {
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
