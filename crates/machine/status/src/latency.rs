// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Wakeup latencies of each CPU while a low-rate meter runs there.

use std::collections::{BTreeMap, VecDeque};

use rampart_model::{Block, CpuId, Distribution, Nanos, Phase};

/// How many blocks are recent. At a block a second these are the last seconds.
const RECENT: usize = 10;

/// The latencies of one CPU.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CpuLatency {
    /// Everything since the meter began.
    pub all: Distribution,
    recent: VecDeque<Distribution>,
}

impl CpuLatency {
    /// Median and maximum of the last seconds; none without samples.
    #[must_use]
    pub fn recent(&self) -> Option<(Nanos, Nanos)> {
        let mut together = Distribution::default();
        for block in &self.recent {
            together.merge(block);
        }
        Some((together.quantile(0.5)?, together.max?))
    }
}

/// The latencies of all CPUs that are measured.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Latencies(BTreeMap<CpuId, CpuLatency>);

impl Latencies {
    /// Takes up a block of the meter. Its first series is how late the thread woke.
    pub fn add(&mut self, block: &Block) {
        let Some(series) = block
            .series
            .first()
            .filter(|_| block.phase == Phase::Measured)
        else {
            return;
        };
        let latency = self.0.entry(block.cpu).or_default();
        latency.all.merge(&series.seen);
        latency.recent.push_back(series.seen.clone());
        if latency.recent.len() > RECENT {
            latency.recent.pop_front();
        }
    }

    /// That of one CPU.
    #[must_use]
    pub fn of(&self, cpu: CpuId) -> Option<&CpuLatency> {
        self.0.get(&cpu)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (CpuId, &CpuLatency)> {
        self.0.iter().map(|(cpu, latency)| (*cpu, latency))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rampart_model::{Series, SeriesBlock};

    fn block(phase: Phase, value: u64) -> Block {
        Block {
            cpu: CpuId(1),
            phase,
            at: Nanos::ZERO,
            length: Nanos::SECOND,
            series: vec![SeriesBlock {
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
    fn old_blocks_are_in_the_whole_alone() {
        let mut latencies = Latencies::default();
        latencies.add(&block(Phase::WarmUp, 9_000));
        latencies.add(&block(Phase::Measured, 1_000));
        for _ in 0..RECENT {
            latencies.add(&block(Phase::Measured, 100));
        }
        let latency = latencies.of(CpuId(1)).expect("measured");
        assert_eq!(latency.recent(), Some((Nanos(100), Nanos(100))));
        assert_eq!(latency.all.max, Some(Nanos(1_000)));
        assert_eq!(latencies.of(CpuId(0)), None);
    }
}
