// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Collects the batches of runs: merged into records for the document, and as slices for the
//! statistics.

use std::collections::BTreeMap;

use rampart_model::{
    Batch, CpuId, CpuRecord, Distribution, Exposure, Finding, LocatedWorst, Nanos, Phase, Record,
    Run, Series, SeriesBatch, SeriesRecord, Severity,
};
use rampart_stats::{Slice, Visit};

/// The collected data of one run.
#[derive(Debug, Clone, Default)]
pub(crate) struct Collected {
    cpus: BTreeMap<CpuId, CollectedCpu>,
    /// The compared series of all CPUs together, one entry per batch. `None` if only the sum is
    /// needed, whose memory does not grow with time.
    slices: Option<BTreeMap<Nanos, Slice>>,
}

#[derive(Debug, Clone, Default)]
struct CollectedCpu {
    series: BTreeMap<usize, SeriesRecord>,
    over_deadline: u64,
    missed: u64,
    warm_up_max: Option<Nanos>,
}

/// Returns the slot of a batch: batches of different CPUs that begin in the same slot belong
/// together.
fn slot(batch: &Batch) -> Nanos {
    Nanos(batch.at.0 / batch.length.0.max(1))
}

/// Returns the series that domains are compared by: the primary one, but for `loop`, whose response
/// consists of its own work for the most part, the lateness of its start.
fn compared(series: &[SeriesBatch]) -> Option<&SeriesBatch> {
    series
        .iter()
        .find(|part| part.series == Series::StartJitter)
        .or(series.first())
}

impl Collected {
    /// Creates a collector that also keeps single batches, for statistics.
    #[must_use]
    pub(crate) fn with_slices() -> Self {
        Self {
            slices: Some(BTreeMap::new()),
            ..Self::default()
        }
    }

    /// Adds a batch.
    pub(crate) fn add(&mut self, batch: &Batch) {
        let cpu = self.cpus.entry(batch.cpu).or_default();
        if batch.phase == Phase::WarmUp {
            let max = batch.series.first().and_then(|series| series.seen.max);
            cpu.warm_up_max = cpu.warm_up_max.max(max);
            return;
        }
        cpu.over_deadline += batch.over_deadline;
        cpu.missed += batch.missed;
        for (index, part) in batch.series.iter().enumerate() {
            match cpu.series.get_mut(&index) {
                None => {
                    let record = SeriesRecord {
                        series: part.series,
                        seen: part.seen.clone(),
                        corrected: part.corrected.clone(),
                    };
                    cpu.series.insert(index, record);
                }
                Some(record) => merge(record, &part.seen, part.corrected.as_ref()),
            }
        }
        if let (Some(slices), Some(compared)) = (&mut self.slices, compared(&batch.series)) {
            slices.entry(slot(batch)).or_default().merge(&Slice {
                seen: compared.seen.clone(),
                corrected: compared.corrected.clone(),
                observed: batch.length,
            });
        }
    }
}

impl Collected {
    /// Returns the distributions by CPU, in ascending order.
    #[must_use]
    pub(crate) fn into_cpus(self) -> Vec<CpuRecord> {
        self.cpus
            .into_iter()
            .map(|(cpu, part)| CpuRecord {
                cpu,
                series: part.series.into_values().collect(),
                over_deadline: part.over_deadline,
                missed: part.missed,
                warm_up_max: part.warm_up_max,
            })
            .collect()
    }
}

/// Adds a part to a series: to the samples as taken and to those corrected for missed periods. If
/// one part is corrected, the whole series is; parts without a correction count as measured.
pub(crate) fn merge_part(
    (seen, corrected): (&mut Distribution, &mut Option<Distribution>),
    part: &Distribution,
    part_corrected: Option<&Distribution>,
) {
    if corrected.is_some() || part_corrected.is_some() {
        corrected
            .get_or_insert_with(|| seen.clone())
            .merge(part_corrected.unwrap_or(part));
    }
    seen.merge(part);
}

fn merge(record: &mut SeriesRecord, seen: &Distribution, corrected: Option<&Distribution>) {
    merge_part((&mut record.seen, &mut record.corrected), seen, corrected);
}

/// Builds a record run by run.
#[derive(Debug, Clone)]
pub(crate) struct RecordCollector {
    /// The present record.
    pub(crate) record: Record,
    /// The compared series, by valid run.
    pub(crate) visits: Vec<Visit>,
    /// The number of the next visit. The runs of one turn of the schedule have the same.
    pub(crate) next_number: u32,
}

impl RecordCollector {
    /// Starts from a record without runs.
    #[must_use]
    pub(crate) fn new(record: Record) -> Self {
        Self {
            record,
            visits: Vec::new(),
            next_number: 0,
        }
    }

    /// Adds a run. An invalid run is recorded with its reasons and is in no figure.
    pub(crate) fn add(&mut self, run: Run, collected: Collected) {
        let worst_kept = self.record.settings.worst as usize;
        let number = self.next_number;
        self.next_number += 1;
        if run.invalid.is_empty() {
            self.record.exposure = extended(self.record.exposure, &run);
            self.visits.push(Visit {
                number,
                started: run.started_monotonic,
                slices: collected
                    .slices
                    .iter()
                    .flat_map(BTreeMap::values)
                    .cloned()
                    .collect(),
            });
            for cpu in collected.into_cpus() {
                self.merge_cpu(cpu);
            }
            for thread in &run.threads {
                self.record
                    .worst
                    .extend(thread.worst.iter().map(|event| LocatedWorst {
                        cpu: thread.cpu,
                        run: run.order,
                        since_start: event.at.saturating_sub(run.started_monotonic),
                        at: event.at,
                        value: event.value,
                    }));
            }
            self.record
                .worst
                .sort_by_key(|event| std::cmp::Reverse((event.value, event.at)));
            self.record.worst.truncate(worst_kept);
        }
        self.record.runs.push(run);
        self.record.invalid = if self.record.runs.iter().all(|run| !run.invalid.is_empty()) {
            vec![Finding::new(
                Severity::Error,
                self.record.id.clone(),
                "none of its runs is valid, see the reasons of each run",
            )]
        } else {
            Vec::new()
        };
    }

    fn merge_cpu(&mut self, addition: CpuRecord) {
        let Some(known) = self
            .record
            .cpus
            .iter_mut()
            .find(|known| known.cpu == addition.cpu)
        else {
            self.record.cpus.push(addition);
            self.record.cpus.sort_by_key(|record| record.cpu);
            return;
        };
        known.over_deadline += addition.over_deadline;
        known.missed += addition.missed;
        known.warm_up_max = known.warm_up_max.max(addition.warm_up_max);
        for part in addition.series {
            match known
                .series
                .iter_mut()
                .find(|record| record.series == part.series)
            {
                Some(record) => merge(record, &part.seen, part.corrected.as_ref()),
                None => known.series.push(part),
            }
        }
    }
}

fn extended(exposure: Exposure, run: &Run) -> Exposure {
    Exposure {
        samples: exposure.samples + run.threads.iter().map(|thread| thread.samples).sum::<u64>(),
        duration: exposure.duration + run.duration,
        cpus: u32::try_from(run.threads.len()).unwrap_or(u32::MAX),
        runs: exposure.runs + 1,
        missed: exposure.missed + run.threads.iter().map(|thread| thread.missed).sum::<u64>(),
    }
}

/// Returns the distribution of a series over all CPUs of a record: measured, and corrected if that
/// differs.
#[must_use]
pub(crate) fn whole_series(record: &Record, series: Series) -> Option<SeriesRecord> {
    let mut parts = record
        .cpus
        .iter()
        .flat_map(|cpu| &cpu.series)
        .filter(|part| part.series == series);
    let mut whole = parts.next()?.clone();
    for part in parts {
        merge(&mut whole, &part.seen, part.corrected.as_ref());
    }
    Some(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(cpu: u32, phase: Phase, seen: &[u64], corrected: Option<&[u64]>) -> Batch {
        let distribution =
            |values: &[u64]| Distribution::from_values(values.iter().copied().map(Nanos));
        Batch {
            timeline: Vec::new(),
            cpu: CpuId(cpu),
            phase,
            at: Nanos::SECOND,
            length: Nanos::SECOND,
            series: vec![SeriesBatch {
                series: Series::Lateness,
                seen: distribution(seen),
                corrected: corrected.map(distribution),
            }],
            missed: corrected.map_or(0, |corrected| (corrected.len() - seen.len()) as u64),
            over_deadline: 0,
            lost: 0,
        }
    }

    #[test]
    fn keeps_warm_up_apart_from_the_samples() {
        let mut collected = Collected::default();
        collected.add(&batch(1, Phase::WarmUp, &[900], None));
        collected.add(&batch(1, Phase::Measured, &[5, 6], None));
        let cpu = &collected.cpus[&CpuId(1)];
        assert_eq!(cpu.warm_up_max, Some(Nanos(900)));
        assert_eq!(cpu.series[&0].seen.max, Some(Nanos(6)));
    }

    #[test]
    fn one_corrected_batch_makes_the_whole_series_corrected() {
        let mut collected = Collected::default();
        collected.add(&batch(1, Phase::Measured, &[5, 6], None));
        collected.add(&batch(1, Phase::Measured, &[30], Some(&[30, 20, 10])));
        collected.add(&batch(1, Phase::Measured, &[7], None));
        let series = &collected.cpus[&CpuId(1)].series[&0];
        assert_eq!(
            series.seen,
            Distribution::from_values([5, 6, 30, 7].map(Nanos))
        );
        assert_eq!(
            series.corrected,
            Some(Distribution::from_values([5, 6, 30, 20, 10, 7].map(Nanos)))
        );
    }

    /// The response of a loop is mostly its own work, and lateness of its start is the machine's.
    #[test]
    fn loops_are_compared_by_their_start() {
        let mut collected = Collected::with_slices();
        let mut both = batch(1, Phase::Measured, &[700], None);
        let mut start = both.series[0].clone();
        start.series = Series::StartJitter;
        start.seen = Distribution::from_values([Nanos(5)]);
        both.series[0].series = Series::Response;
        both.series.push(start);
        collected.add(&both);
        let slices = collected.slices.expect("slices");
        let seen: Vec<Option<Nanos>> = slices.values().map(|slice| slice.seen.max).collect();
        assert_eq!(seen, [Some(Nanos(5))]);
    }

    #[test]
    fn merges_simultaneous_batches_of_two_cpus() {
        let mut collected = Collected::with_slices();
        collected.add(&batch(1, Phase::Measured, &[5], None));
        collected.add(&batch(2, Phase::Measured, &[9], None));
        let slices = collected.slices.expect("slices");
        let samples: Vec<(u64, Nanos)> = slices
            .into_values()
            .map(|slice| (slice.seen.samples, slice.observed))
            .collect();
        assert_eq!(samples, [(2, Nanos::from_secs(2))]);
    }
}
