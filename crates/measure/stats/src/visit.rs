// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The samples of a record in the order in which they were taken: visits, each with its slices.

use rampart_model::{Distribution, Nanos};

/// A short stretch of one measurement, over all measured CPUs together.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Slice {
    /// The samples as taken. A stall is one of them, whatever its length.
    pub seen: Distribution,
    /// The samples corrected for missed periods; `None` if no period was missed.
    pub corrected: Option<Distribution>,
    /// Measured time, summed over the CPUs.
    pub observed: Nanos,
}

impl Slice {
    /// Returns the samples for quantiles: corrected for missed periods.
    #[must_use]
    pub fn corrected(&self) -> &Distribution {
        self.corrected.as_ref().unwrap_or(&self.seen)
    }

    /// Adds the samples of another CPU, or of a later slice.
    pub fn merge(&mut self, other: &Self) {
        if self.corrected.is_some() || other.corrected.is_some() {
            self.corrected
                .get_or_insert_with(|| self.seen.clone())
                .merge(other.corrected());
        }
        self.seen.merge(&other.seen);
        self.observed += other.observed;
    }
}

impl From<Distribution> for Slice {
    /// Makes a slice of unknown length from samples without missed periods.
    fn from(seen: Distribution) -> Self {
        Self {
            seen,
            ..Self::default()
        }
    }
}

/// A few slices of one domain under one condition, without another domain in between.
///
/// Visits of different records with the same number are adjacent in time: they are compared with
/// each other.
#[derive(Debug, Clone, PartialEq)]
pub struct Visit {
    /// The number of the visit, from 0, the same for all records that are visited in turn.
    pub number: u32,
    /// Its start on `CLOCK_MONOTONIC`.
    pub started: Nanos,
    /// The slices in chronological order.
    pub slices: Vec<Slice>,
}

impl Visit {
    /// Makes a visit from distributions of unknown length, without missed periods.
    #[must_use]
    pub fn of(number: u32, slices: Vec<Distribution>) -> Self {
        Self {
            number,
            started: Nanos::ZERO,
            slices: slices.into_iter().map(Slice::from).collect(),
        }
    }
}

/// Returns the slices of each number together, in the order of the numbers, without numbers that
/// have no samples and no time.
pub(crate) fn by_number(visits: &[Visit]) -> std::collections::BTreeMap<u32, Slice> {
    let mut whole = std::collections::BTreeMap::<u32, Slice>::new();
    for visit in visits {
        for slice in &visit.slices {
            if slice.seen.samples > 0 || slice.observed > Nanos::ZERO {
                whole.entry(visit.number).or_default().merge(slice);
            }
        }
    }
    whole
}
