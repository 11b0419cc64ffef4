// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What other tools measured, read from their own text, so that it can stand beside ours.
//!
//! The tools count in buckets of a fixed width up to a last one and only count what lies beyond.
//! That is kept apart: no quantile is told from there.
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
    /// The tool's own word for it: `IRQ`, `Thr`, `CPU`, `T`.
    pub name: String,
    /// The number that the tool gives: of a CPU, but of a thread for `cyclictest`.
    pub number: CpuId,
    /// The samples within the buckets. Each counts as the longest that its bucket holds, and the
    /// extremes are those of the buckets.
    pub seen: Distribution,
    /// Samples beyond the last bucket; none where the tool was told not to say.
    pub beyond: Option<u64>,
    /// From there on they are beyond: the end of the last bucket with a sample or of the last
    /// that was printed, whichever is later.
    pub buckets_end: Nanos,
    /// The least sample as the tool tells it.
    pub min: Option<Nanos>,
    /// The mean as the tool tells it, cut to whole units.
    pub mean: Option<Nanos>,
    /// The greatest sample as the tool tells it, with those beyond the buckets.
    pub max: Option<Nanos>,
}

/// A quantile as far as a histogram with an end can tell it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PeerQuantile {
    /// At most this.
    AtMost(Nanos),
    /// It is not in the buckets, which end here.
    Beyond(Nanos),
}

/// What a peer measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PeerMeasurement {
    /// The tool and its mode.
    pub tool: String,
    /// How long it measured, where its text says so.
    pub duration: Option<Nanos>,
    /// Width of a bucket, or a multiple of it where most buckets are empty.
    pub bucket: Nanos,
    /// The histograms in the tool's order.
    pub series: Vec<PeerSeries>,
    /// What has to be known about the figures.
    pub findings: Vec<Finding>,
}

/// Why a text is not what a tool writes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PeerError {
    /// It does not begin as the tool's text does.
    #[error("the text is no {expected}: {what}; fix: {fix}")]
    NotThisTool {
        /// What was expected.
        expected: &'static str,
        /// What is missing.
        what: &'static str,
        /// What fixes it.
        fix: &'static str,
    },
    /// A line cannot be read.
    #[error("line {line}: {what} (is `{present}`)")]
    Line {
        /// Its number, from 1.
        line: usize,
        /// What is wrong.
        what: &'static str,
        /// The line.
        present: String,
    },
}

pub use cyclictest::read as read_cyclictest;
pub use rtla::read as read_rtla;

impl PeerSeries {
    /// All samples.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.seen.samples.saturating_add(self.beyond.unwrap_or(0))
    }

    /// The time that at least the part `quantile` (0 to 1) of all samples does not exceed; none
    /// without samples.
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
            let told = self.max.map_or(longest, |max| longest.min(max));
            (counted >= rank).then_some(PeerQuantile::AtMost(told))
        })
    }
}
