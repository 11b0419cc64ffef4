// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Data of the charts that only the page draws. Zooming sorts samples into other bins, so the page
//! gets buckets; all else is ready to be drawn.

use serde::Serialize;

use crate::element::{Drawing, Element, Outcome, Text};

/// Latencies as histograms, with switches.
#[derive(Debug, Clone, PartialEq, Default, Serialize, schemars::JsonSchema)]
pub struct LatencyChart {
    /// The distributions of each CPU; curves refer to them by number.
    pub distributions: Vec<Buckets>,
    /// The views to choose from, the initial one first.
    pub views: Vec<LatencyView>,
}

/// Samples by time.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Buckets {
    /// Number of samples.
    pub samples: u64,
    /// The smallest, in ns.
    pub min: Option<u64>,
    /// The largest, in ns.
    pub max: Option<u64>,
    /// Lowest value in ns and samples of each bucket, rising.
    pub buckets: Vec<(u64, u64)>,
}

/// One quantity, as seen or corrected.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct LatencyView {
    /// Unique; [`Element::Switched`] refers to it.
    pub key: String,
    /// Meter and series.
    pub quantity: String,
    /// The series in words, for the axis.
    pub series: String,
    /// Whether missed periods are added.
    pub corrected: bool,
    /// The deadline that the series is compared with, in ns.
    pub deadline: Option<u64>,
    /// The deadline as its line is labelled.
    pub deadline_label: String,
    /// Remark about the chart.
    pub note: String,
    /// The meanings that a curve can have.
    pub groupings: Vec<Grouping>,
}

/// The curves, if each is a domain, a CPU or a condition.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Grouping {
    /// Meaning of a curve: a domain, a CPU or a condition.
    pub name: &'static str,
    /// Meaning of a chart.
    pub facet: &'static str,
    /// Whether a chart is a condition, which the tables follow.
    pub by_condition: bool,
    /// The charts.
    pub facets: Vec<Facet>,
}

/// One chart.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Facet {
    /// Its name.
    pub name: String,
    /// Its curves.
    pub curves: Vec<Curve>,
}

/// One curve.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Curve {
    /// Its name.
    pub label: String,
    /// Numbers of its distributions, which are added.
    pub parts: Vec<usize>,
    /// Its maximum in ns.
    pub max: Option<u64>,
    /// The maximum as text.
    pub max_text: String,
    /// Number of samples as text.
    pub samples_text: String,
}

/// The transfer matrix: rows are disturbances, columns measured domains.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Matrix {
    /// The entry above the rows and left of the columns.
    pub corner: String,
    /// The measured domains.
    pub columns: Vec<Text>,
    /// Rows of one kind of disturbance.
    pub groups: Vec<MatrixGroup>,
    /// Latencies in time; pairs refer to these by number.
    pub traces: Vec<Trace>,
    /// Row, counted over all groups, and column of the pair that is shown first.
    pub selected: Option<(usize, usize)>,
}

/// Rows of one kind of disturbance.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct MatrixGroup {
    /// Its heading.
    pub title: Text,
    /// Its name on the page.
    pub name: String,
    /// Description of the figures.
    pub about: String,
    /// Remark about the figures.
    pub remark: Text,
    /// The rows.
    pub rows: Vec<MatrixRow>,
}

/// One disturbance.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct MatrixRow {
    /// Its name.
    pub name: String,
    /// Description of the disturbance, on the page.
    pub about: Vec<Text>,
    /// One for each column.
    pub entries: Vec<MatrixEntry>,
}

/// One pair: a disturbance and a measured domain.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct MatrixEntry {
    /// Anchor of the verdict.
    pub id: Option<String>,
    /// The measured domain.
    pub domain: String,
    /// Its colour; `None` without a verdict.
    pub outcome: Option<Outcome>,
    /// Its sign.
    pub sign: &'static str,
    /// The outcome.
    pub word: String,
    /// The leading figure; may be empty.
    pub figure: String,
    /// The ends of its interval; may be empty.
    pub ends: String,
    /// The interval.
    pub drawing: Option<Drawing>,
    /// The whole statement, for a hint.
    pub hint: String,
    /// Details of the pair; `None` if it was not measured.
    pub pair: Option<PairDetail>,
}

/// The details of a pair: verdict and rounds.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct PairDetail {
    /// The pair.
    pub title: Text,
    /// The verdict in a sentence.
    pub statement: Text,
    /// The rounds of the pair.
    pub rounds: Vec<PairRound>,
}

/// One round of a pair.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct PairRound {
    /// Its name.
    pub id: String,
    /// Name of the choice of `pair`.
    pub pair_name: &'static str,
    /// The domain alone, or with and without the load.
    pub pair: Vec<TraceLine>,
    /// All domains of the round.
    pub everyone: Vec<TraceLine>,
    /// Colour or shade, and meaning.
    pub legend: Vec<(String, String)>,
    /// Elements below the charts.
    pub elements: Vec<Element>,
}

/// A chart of a pair.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct TraceLine {
    /// Its title.
    pub title: String,
    /// Number of the trace.
    pub trace: usize,
}

/// Latencies in time, on the host's clock, in seconds from the start of the round.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Trace {
    /// Number of the curve whose colour it has.
    pub curve: usize,
    /// Length of a slot in seconds.
    pub slot: f64,
    /// The worst sample that ended in each slot, in ns.
    pub worst: Vec<Option<u64>>,
    /// The blocks.
    pub blocks: Vec<TraceBlock>,
    /// Windows that were compared.
    pub windows: Vec<TraceWindow>,
    /// Blocks and latencies may be this much further apart or nearer, in seconds.
    pub uncertainty: f64,
}

/// A block in time.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct TraceBlock {
    /// Begin in seconds.
    pub from: f64,
    /// End in seconds.
    pub to: f64,
    /// Its number; blocks of several CPUs at once share one.
    pub sequence: u32,
    /// Its CPU.
    pub cpu: u32,
}

/// A window in time.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct TraceWindow {
    /// Begin in seconds.
    pub from: f64,
    /// End in seconds.
    pub to: f64,
    /// Number of its block; `None` for a control window.
    pub block: Option<u32>,
    /// The worst sample in ns.
    pub worst: Option<u64>,
}
