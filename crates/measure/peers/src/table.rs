// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Converts the printed columns of counts to histograms.

use std::collections::BTreeMap;

use rampart_model::{Bucket, CpuId, Distribution, Finding, Nanos, Severity};

use crate::PeerSeries;

/// A column: counts by the lower edge of their bucket, in the tool's unit.
#[derive(Debug, Default)]
pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) number: u32,
    pub(crate) counts: Vec<(u64, u64)>,
    pub(crate) beyond: Option<u64>,
    /// The number of all samples that the tool reports.
    pub(crate) reported: Option<u64>,
    /// The number of samples in the rows that the tool reports.
    pub(crate) in_rows: Option<u64>,
    pub(crate) min: Option<u64>,
    pub(crate) mean: Option<u64>,
    pub(crate) max: Option<u64>,
}

impl Column {
    /// Returns the histogram with findings about inconsistencies. Buckets are `width` units of
    /// `unit` nanoseconds; `end` is the lower edge of the last one printed.
    pub(crate) fn finish(self, unit: u64, width: u64, end: u64) -> (PeerSeries, Vec<Finding>) {
        let location = format!("{}-{:03}", self.name, self.number);
        let mut findings = Vec::new();
        let nanos = |units: u64| Nanos(units.saturating_mul(unit));
        // A tool truncates samples to whole units, so a bucket reaches up to the edge of the next.
        let longest = |edge: u64| Nanos(nanos(edge.saturating_add(width)).0.saturating_sub(1));
        let mut buckets = BTreeMap::<Nanos, u64>::new();
        let mut samples = 0u64;
        let mut extremes: Option<(u64, u64)> = None;
        for (edge, count) in &self.counts {
            if *count == 0 {
                continue;
            }
            samples = samples.saturating_add(*count);
            let (min, max) = extremes.unwrap_or((*edge, *edge));
            extremes = Some((min.min(*edge), max.max(*edge)));
            let sum = buckets.entry(Bucket::lowest(longest(*edge))).or_default();
            *sum = sum.saturating_add(*count);
        }
        let seen = Distribution {
            samples,
            min: extremes.map(|(min, _)| nanos(min)),
            max: extremes.map(|(_, max)| longest(max)),
            buckets: buckets
                .into_iter()
                .map(|(lowest, count)| Bucket(lowest, count))
                .collect(),
        };
        let counted = samples.saturating_add(self.beyond.unwrap_or(0));
        for (counted, reported, what) in [
            (
                counted,
                self.reported,
                "the rows and the samples beyond them do not add up to the count that the tool reports",
            ),
            (
                samples,
                self.in_rows,
                "the rows do not add up to the total that the tool reports",
            ),
        ] {
            if let Some(reported) = reported.filter(|reported| *reported != counted) {
                findings.push(
                    Finding::new(Severity::Warning, location.clone(), what)
                        .values(counted.to_string(), reported.to_string()),
                );
            }
        }
        let series = PeerSeries {
            name: self.name,
            number: CpuId(self.number),
            buckets_end: nanos(end.saturating_add(width)),
            seen,
            beyond: self.beyond,
            min: self.min.map(nanos),
            mean: self.mean.map(nanos),
            max: self.max.map(nanos),
        };
        (series, findings)
    }
}
