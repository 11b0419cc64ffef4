// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The samples of a record in the order in which they were taken: visits, each with its slices.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

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
pub(crate) fn by_number(visits: &[Visit]) -> BTreeMap<u32, Slice> {
    let mut whole = BTreeMap::<u32, Slice>::new();
    for visit in visits {
        for slice in &visit.slices {
            if slice.seen.samples > 0 || slice.observed > Nanos::ZERO {
                whole.entry(visit.number).or_default().merge(slice);
            }
        }
    }
    whole
}

/// Returns the visits of either side that have a neighbour in time on the other, or all if most have none. Of
/// those without one, influences that last longer than a visit do not cancel: a record is measured on for one
/// comparison, and is part of others.
pub(crate) fn neighbours<'a>(
    above: &'a [Visit],
    below: &'a [Visit],
) -> (Cow<'a, [Visit]>, Cow<'a, [Visit]>) {
    let numbers = |visits: &[Visit]| -> BTreeSet<u32> { by_number(visits).into_keys().collect() };
    let (one, other) = (numbers(above), numbers(below));
    let both: BTreeSet<u32> = one.intersection(&other).copied().collect();
    let all_have_one = one.len().max(other.len()) == both.len();
    if all_have_one || 2 * both.len() < one.len().min(other.len()) {
        return (above.into(), below.into());
    }
    let with_neighbour = |visits: &[Visit]| -> Vec<Visit> {
        let kept = visits.iter().filter(|visit| both.contains(&visit.number));
        kept.cloned().collect()
    };
    (with_neighbour(above).into(), with_neighbour(below).into())
}

/// Returns the numbers of the visits of either side in groups. Those of one group are closer in time
/// to each other than to their counterparts on the other side, so that an influence that lasts as
/// long as the distance of the sides is common to the group: it is left out as a whole.
///
/// Visits of domains in turn are groups of one. If conditions change after several visits, these are
/// a group.
pub(crate) fn groups(above: &[Visit], below: &[Visit]) -> Vec<Vec<u32>> {
    let started = |visits: &[Visit]| -> BTreeMap<u32, Nanos> {
        let measured = visits.iter().filter(|visit| {
            let mut slices = visit.slices.iter();
            slices.any(|slice| slice.seen.samples > 0 || slice.observed > Nanos::ZERO)
        });
        measured
            .map(|visit| (visit.number, visit.started))
            .collect()
    };
    let sides = [started(above), started(below)];
    let numbers: BTreeSet<u32> = sides.iter().flat_map(|side| side.keys().copied()).collect();
    let apart = |number: &u32| -> Option<u64> {
        Some(sides[0].get(number)?.0.abs_diff(sides[1].get(number)?.0))
    };
    let mut groups: Vec<Vec<u32>> = Vec::new();
    for number in numbers {
        let last = groups.last().and_then(|group| group.last()).copied();
        let is_close = last.is_some_and(|last| {
            let distance = apart(&last).max(apart(&number)).unwrap_or(0);
            let steps = sides
                .iter()
                .filter_map(|side| Some(side.get(&number)?.0.abs_diff(side.get(&last)?.0)));
            steps.max().is_some_and(|step| step < distance)
        });
        match groups.last_mut() {
            Some(group) if is_close => group.push(number),
            _ => groups.push(vec![number]),
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns visits that start at these seconds.
    fn visits(starts: &[u64]) -> Vec<Visit> {
        let slice = Slice::from(Distribution::from_values([Nanos(1)]));
        (0u32..)
            .zip(starts)
            .map(|(number, start)| Visit {
                number,
                started: Nanos::from_secs(*start),
                slices: vec![slice.clone()],
            })
            .collect()
    }

    #[test]
    fn visits_without_a_neighbour_in_time_are_not_compared() {
        let (more, fewer) = (visits(&[0, 3, 6, 30]), visits(&[1, 4, 7]));
        let (one, other) = neighbours(&more, &fewer);
        assert_eq!((&*one, &*other), (&more[..3], &fewer[..]));
        let (other, one) = neighbours(&fewer, &more);
        assert_eq!((&*one, &*other), (&more[..3], &fewer[..]));
        // Most have none: all are compared.
        let elsewhere: Vec<Visit> = visits(&[9, 12, 15])
            .into_iter()
            .map(|visit| Visit {
                number: visit.number + 3,
                ..visit
            })
            .collect();
        let (one, other) = neighbours(&more, &elsewhere);
        assert_eq!((&*one, &*other), (&more[..], &elsewhere[..]));
    }

    #[test]
    fn visits_in_turn_are_groups_of_one() {
        let groups = groups(&visits(&[0, 3, 6, 30]), &visits(&[1, 4, 7, 31]));
        assert_eq!(groups, [[0], [1], [2], [3]]);
    }

    #[test]
    fn visits_of_a_phase_are_a_group() {
        // Two visits idle, two loaded, and in the opposite order.
        let groups = groups(&visits(&[0, 3, 24, 27]), &visits(&[8, 11, 16, 19]));
        assert_eq!(groups, [[0, 1], [2, 3]]);
    }

    #[test]
    fn visits_of_unknown_time_are_groups_of_one() {
        assert_eq!(groups(&visits(&[0; 3]), &visits(&[0; 2])), [[0], [1], [2]]);
        assert!(groups(&[], &[]).is_empty());
    }
}
