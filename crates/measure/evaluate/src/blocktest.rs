// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Judges which CPUs are affected by blocks, without domains, for `rampart blocktest`. Uses the
//! windows and rules of an evaluation. Pure.

use std::collections::BTreeMap;

use rampart_model::{
    Batch, BlockSpan, BlocksMade, BlocktestCpu, BlocktestTransfer, CpuId, CpuSet, Nanos, Phase,
    SignedNanos, Timeline, VerdictOutcome,
};
use rampart_stats::{Look, Resampling, Risk, transfer};

use crate::statements;
use crate::transfer::group::append;
use crate::transfer::judge::{crossed, crossing, stops};
use crate::transfer::windows::{Clock, Margins, filled, spans_on, windows};

/// Longest time from the end of a block to the end of a latency that it causes, besides the meter's
/// period: the wakeup and a delayed timer.
const AFTERMATH: Nanos = Nanos::from_millis(2);

/// The worst latencies of each watched CPU over time, as reported by a meter.
#[derive(Debug)]
pub(crate) struct BlocktestLatencies {
    slot: Nanos,
    timelines: BTreeMap<CpuId, Timeline>,
}

impl BlocktestLatencies {
    /// Creates an empty record for a meter whose timeline has slots of this length.
    #[must_use]
    pub(crate) const fn new(slot: Nanos) -> Self {
        Self {
            slot,
            timelines: BTreeMap::new(),
        }
    }

    /// Adds a batch of the meter on this kernel, unless it is warm-up.
    pub(crate) fn hear(&mut self, batch: &Batch) {
        if batch.phase == Phase::WarmUp {
            return;
        }
        let timeline = self.timelines.entry(batch.cpu).or_insert_with(|| Timeline {
            start: batch.at,
            slot: self.slot,
            worst: Vec::new(),
        });
        append(timeline, batch);
    }

    /// Returns the end of the data, or `None` if there is none.
    #[must_use]
    pub(crate) fn end(&self) -> Option<Nanos> {
        self.timelines
            .values()
            .map(|timeline| timeline.start + Nanos(timeline.slot.0 * timeline.worst.len() as u64))
            .max()
    }

    /// Judges for each CPU the effect of the blocks that were `made` of the CPUs `stopped`,
    /// measured with a period of `interval`. A stopped CPU that is watched is the positive control:
    /// if no stopped CPU shows its blocks, nothing follows about the others.
    #[must_use]
    pub(crate) fn judge(
        &self,
        made: &BlocksMade,
        stopped: &CpuSet,
        interval: Nanos,
        emulated: bool,
        seed: u64,
    ) -> Vec<BlocktestCpu> {
        let mut lengths: Vec<Nanos> = made.spans.iter().map(BlockSpan::length).collect();
        lengths.sort_unstable();
        let length = lengths.get(lengths.len() / 2).copied().unwrap_or_default();
        let spans = spans_on(&made.spans, Clock::default(), Clock::default());
        let margins = Margins {
            uncertainty: Nanos::ZERO,
            after: interval + AFTERMATH,
        };
        let resampling = Resampling {
            seed,
            ..Resampling::default()
        };
        let pairs = u32::try_from(self.timelines.len()).unwrap_or(u32::MAX);
        let risk = Risk::of(pairs, Look::ONLY);
        let mut cpus: Vec<BlocktestCpu> = self
            .timelines
            .iter()
            .map(|(cpu, timeline)| {
                let cut = windows(&spans, &[timeline], margins, seed ^ u64::from(cpu.0));
                let (with, without): (Vec<_>, Vec<_>) = filled(&cut, timeline)
                    .into_iter()
                    .partition(|window| window.block.is_some());
                let worst = |of: Vec<rampart_model::Window>| -> Vec<Nanos> {
                    of.into_iter().filter_map(|window| window.worst).collect()
                };
                let (with_block, without_block) = (worst(with), worst(without));
                let found = transfer(
                    &with_block,
                    &without_block,
                    length,
                    crossing(emulated),
                    &risk,
                    &resampling,
                );
                let counts = (with_block.len(), without_block.len());
                BlocktestCpu {
                    cpu: *cpu,
                    stopped: stopped.contains(*cpu),
                    with_block,
                    without_block,
                    transfer: found.map(|found| BlocktestTransfer {
                        outcome: found.outcome,
                        statement: statements::transfer(&found, length, made.kind, counts),
                        interval: found.transfer,
                        excess: SignedNanos(found.excess.round() as i64),
                        p_value: found.p_value,
                        crossed: crossed(&found),
                    }),
                }
            })
            .collect();
        check_against_control(&mut cpus);
        cpus
    }
}

fn check_against_control(cpus: &mut [BlocktestCpu]) {
    let is_stopped = |cpu: &BlocktestCpu| {
        let found = cpu.transfer.as_ref();
        cpu.stopped && found.is_some_and(|found| stops(&found.interval, found.p_value))
    };
    if cpus.iter().any(is_stopped) {
        return;
    }
    let is_watched = cpus.iter().any(|cpu| cpu.stopped);
    let why = if is_watched {
        "no stopped CPU shows the blocks"
    } else {
        "no stopped CPU was watched"
    };
    for cpu in cpus {
        let Some(found) = &mut cpu.transfer else {
            continue;
        };
        // A CPU that leaks has shown the blocks.
        if found.outcome == VerdictOutcome::Leaks && !is_watched {
            continue;
        }
        found.outcome = VerdictOutcome::Inconclusive;
        found.statement = format!("nothing follows, because {why}: {}", found.statement);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rampart_model::BlockKind;

    const MILLI: u64 = 1_000_000;
    const SLOT: Nanos = Nanos(MILLI);

    /// Judges forty blocks of 4 ms in 2 s on CPU 1, which shows them if `affected`.
    fn judged(watched: &[u32], affected: bool) -> Vec<BlocktestCpu> {
        let spans: Vec<BlockSpan> = (0..40)
            .map(|sequence| {
                let start = Nanos((100 + u64::from(sequence) * 40) * MILLI);
                BlockSpan {
                    cpu: CpuId(1),
                    sequence,
                    start,
                    end: start + Nanos(4 * MILLI),
                }
            })
            .collect();
        let mut latencies = BlocktestLatencies::new(SLOT);
        for cpu in watched {
            let timeline = (0..2000u64).map(|slot| {
                let late = spans.iter().any(|span| span.end == Nanos(slot * MILLI));
                let quiet = 10_000 + slot * 7919 % 5_000;
                Some(Nanos(if late && affected && *cpu == 1 {
                    3_900_000
                } else {
                    quiet
                }))
            });
            latencies.hear(&Batch {
                cpu: CpuId(*cpu),
                phase: Phase::Measured,
                at: Nanos::ZERO,
                length: Nanos::from_secs(2),
                series: Vec::new(),
                missed: 0,
                over_deadline: 0,
                lost: 0,
                timeline: timeline.collect(),
            });
        }
        assert_eq!(latencies.end(), Some(Nanos::from_secs(2)));
        let made = BlocksMade {
            kind: BlockKind::Module,
            length: Nanos(4 * MILLI),
            clock: Vec::new(),
            spans,
        };
        latencies.judge(&made, &CpuSet::single(CpuId(1)), SLOT, false, 1)
    }

    fn outcomes(cpus: &[BlocktestCpu]) -> Vec<VerdictOutcome> {
        cpus.iter()
            .map(|cpu| cpu.transfer.as_ref().expect("compared").outcome)
            .collect()
    }

    #[test]
    fn only_stopped_cpus_show_blocks() {
        let cpus = judged(&[1, 2], true);
        assert_eq!(
            outcomes(&cpus),
            [VerdictOutcome::Leaks, VerdictOutcome::Holds]
        );
        assert!(cpus[0].stopped && !cpus[1].stopped);
        let found = cpus[0].transfer.as_ref().expect("compared");
        assert!((found.interval.estimate - 0.97).abs() < 0.02, "{found:?}");
        assert_eq!(found.crossed.with_block, 40);
    }

    #[test]
    fn blocks_without_effect_are_inconclusive() {
        for (watched, printed) in [
            (&[1, 2][..], "no stopped CPU shows"),
            (&[2][..], "no stopped CPU was watched"),
        ] {
            for cpu in judged(watched, false) {
                let found = cpu.transfer.expect("compared");
                assert_eq!(found.outcome, VerdictOutcome::Inconclusive);
                assert!(found.statement.contains(printed), "{}", found.statement);
            }
        }
    }

    #[test]
    fn judges_nothing_without_data() {
        assert_eq!(BlocktestLatencies::new(SLOT).end(), None);
        let made = BlocksMade {
            kind: BlockKind::Spin,
            length: SLOT,
            clock: Vec::new(),
            spans: Vec::new(),
        };
        let none = BlocktestLatencies::new(SLOT);
        assert!(none.judge(&made, &CpuSet::new(), SLOT, true, 1).is_empty());
    }
}
