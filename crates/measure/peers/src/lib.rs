// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Parses the output of other measuring tools, for a comparison with our results.
//!
//! The tools have buckets of a fixed width up to a last one, and only count the samples beyond it.
//! These samples are kept separate; no quantile is derived from them.
//!
//! **Invariant:** pure functions, text in and figures out; no IO.
#![forbid(unsafe_code)]

mod cyclictest;
mod rtla;
mod table;

use rampart_model::{Bucket, CpuId, Distribution, Finding, Nanos};
use serde::Serialize;

/// One histogram of a peer: a thread or a source on a CPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PeerSeries {
    /// The tool's own name of the series: `IRQ`, `Thr`, `CPU`, `T`.
    pub name: String,
    /// The number of the CPU, or for `cyclictest` of the thread.
    pub number: CpuId,
    /// The samples within the buckets. Each counts as the longest of its bucket, and the extremes
    /// are those of the buckets.
    pub seen: Distribution,
    /// Samples beyond the last bucket; `None` if an option of the tool suppressed their count.
    pub beyond: Option<u64>,
    /// The start of the range beyond: the end of the last bucket with a sample or of the last one
    /// printed, whichever is later.
    pub buckets_end: Nanos,
    /// The smallest sample that the tool reports.
    pub min: Option<Nanos>,
    /// The mean that the tool reports, truncated to whole units.
    pub mean: Option<Nanos>,
    /// The largest sample that the tool reports, including those beyond the buckets.
    pub max: Option<Nanos>,
}

/// A quantile of a histogram with a limited range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PeerQuantile {
    /// The quantile is at most this time.
    AtMost(Nanos),
    /// The quantile is beyond the buckets, which end at this time.
    Beyond(Nanos),
}

/// The measurement of another tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PeerMeasurement {
    /// The tool and its mode.
    pub tool: String,
    /// The duration of the measurement, if the text has it.
    pub duration: Option<Nanos>,
    /// Width of a bucket, or a multiple of it if most buckets are empty.
    pub bucket: Nanos,
    /// The histograms in the tool's order.
    pub series: Vec<PeerSeries>,
    /// Findings about the figures.
    pub findings: Vec<Finding>,
}

/// The reason why a text is not the output of a tool.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PeerError {
    /// The text does not begin like the tool's output.
    #[error("the text is not a {expected}: {what}; fix: {fix}")]
    NotThisTool {
        /// The expected text.
        expected: &'static str,
        /// The missing part.
        what: &'static str,
        /// The fix.
        fix: &'static str,
    },
    /// A line is invalid.
    #[error("line {line}: {what} (found `{present}`)")]
    Line {
        /// The number of the line, from 1.
        line: usize,
        /// The problem.
        what: &'static str,
        /// The line.
        present: String,
    },
}

pub use cyclictest::read as read_cyclictest;
pub use rtla::read as read_rtla;

impl PeerSeries {
    /// Returns the number of all samples.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.seen.samples.saturating_add(self.beyond.unwrap_or(0))
    }

    /// Returns an upper bound of the quantile (0 to 1) of all samples, or `None` without samples.
    #[must_use]
    pub fn quantile(&self, quantile: f64) -> Option<PeerQuantile> {
        let samples = self.samples();
        if samples == 0 {
            return None;
        }
        let rank = ((quantile * samples as f64).ceil() as u64).clamp(1, samples);
        if rank > self.seen.samples {
            return Some(PeerQuantile::Beyond(self.buckets_end));
        }
        let mut counted = 0;
        self.seen.buckets.iter().find_map(|bucket| {
            counted += bucket.1;
            let longest = Bucket::highest(bucket.0).min(self.seen.max?);
            let at_most = self.max.map_or(longest, |max| longest.min(max));
            (counted >= rank).then_some(PeerQuantile::AtMost(at_most))
        })
    }
}
