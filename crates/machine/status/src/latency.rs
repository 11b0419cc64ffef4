// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Wakeup latencies of each CPU while a low-rate meter runs there.

use std::collections::{BTreeMap, VecDeque};

use rampart_model::{Batch, CpuId, Distribution, Nanos, Phase};

/// Number of recent batches, one for each second.
const RECENT: usize = 10;

/// The latencies of one CPU.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CpuLatency {
    /// All latencies since the meter started.
    pub all: Distribution,
    recent: VecDeque<Distribution>,
}

impl CpuLatency {
    /// Returns median and maximum of the last seconds, or `None` without samples.
    #[must_use]
    pub fn recent(&self) -> Option<(Nanos, Nanos)> {
        let mut merged = Distribution::default();
        for batch in &self.recent {
            merged.merge(batch);
        }
        Some((merged.quantile(0.5)?, merged.max?))
    }
}

/// The latencies of all measured CPUs.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Latencies(BTreeMap<CpuId, CpuLatency>);

impl Latencies {
    /// Adds a batch of the meter. Its first series are wakeup latencies.
    pub fn add(&mut self, batch: &Batch) {
        let Some(series) = batch
            .series
            .first()
            .filter(|_| batch.phase == Phase::Measured)
        else {
            return;
        };
        let latency = self.0.entry(batch.cpu).or_default();
        latency.all.merge(&series.seen);
        latency.recent.push_back(series.seen.clone());
        if latency.recent.len() > RECENT {
            latency.recent.pop_front();
        }
    }

    /// Returns the latencies of one CPU.
    #[must_use]
    pub fn of(&self, cpu: CpuId) -> Option<&CpuLatency> {
        self.0.get(&cpu)
    }

    /// Returns the latencies of all CPUs.
    pub fn iter(&self) -> impl Iterator<Item = (CpuId, &CpuLatency)> {
        self.0.iter().map(|(cpu, latency)| (*cpu, latency))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rampart_model::{Series, SeriesBatch};

    fn batch(phase: Phase, value: u64) -> Batch {
        Batch {
            cpu: CpuId(1),
            phase,
            at: Nanos::ZERO,
            length: Nanos::SECOND,
            series: vec![SeriesBatch {
                series: Series::Lateness,
                seen: Distribution::from_values([Nanos(value)]),
                corrected: None,
            }],
            missed: 0,
            over_deadline: 0,
            lost: 0,
            timeline: Vec::new(),
        }
    }

    #[test]
    fn old_batches_are_only_in_all() {
        let mut latencies = Latencies::default();
        latencies.add(&batch(Phase::WarmUp, 9_000));
        latencies.add(&batch(Phase::Measured, 1_000));
        for _ in 0..RECENT {
            latencies.add(&batch(Phase::Measured, 100));
        }
        let latency = latencies.of(CpuId(1)).expect("measured");
        assert_eq!(latency.recent(), Some((Nanos(100), Nanos(100))));
        assert_eq!(latency.all.max, Some(Nanos(1_000)));
        assert_eq!(latencies.of(CpuId(0)), None);
    }
}
