// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Chooses the length of blocks from the quiet latency of the machine. Pure.

use rampart_model::{
    BlockSettings, BlockSpread, CpuSet, Finding, Nanos, Severity, TransferRecord, TransferSettings,
};

/// The longest block that the kernel module allows by default.
const LONGEST: Nanos = Nanos::from_millis(100);
/// Slots of the timeline per block, so that windows fit closely.
const SLOTS_A_BLOCK: u64 = 10;
/// Shortest slot of a timeline.
const SHORTEST_SLOT: Nanos = Nanos::from_millis(1);
/// Mean pause in windows. Pauses last 0.5 to 1.5 of it, enough for one or two quiet windows.
const PAUSE_WINDOWS: u64 = 4;
/// Fewest blocks of a round, whatever their length. On an emulated machine 17 windows without a late one
/// are needed for "holds" ([`rampart_stats::PART_TOLERANCE_EMULATED`]), and some windows are lost.
const FEWEST_BLOCKS: u64 = 20;
/// Blocks for which a long block is shortened: without a late window among so many, the share of
/// blocks that cross is bounded closely enough for "holds" ([`rampart_stats::CROSSED`]). A plan of fewer
/// blocks does not reach this bound, so its blocks keep their length.
const WANTED_BLOCKS: u32 = 40;
/// Shortened blocks are at least this many times as long as the worst quiet latency, so that they differ
/// from it.
const LEAST_FACTOR: u64 = 3;

/// The length of a round's blocks, and the quiet latency from which it is derived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BlockLength {
    /// The length.
    pub(crate) length: Nanos,
    /// The length without limits.
    wanted: Nanos,
    /// The worst quiet latency of all domains of the group.
    quiet: Nanos,
}

impl BlockLength {
    /// Derives the length from the preceding quiet round: its worst latency times the plan's
    /// factor, within the limits, and shorter if a round of about `duration` would have too few
    /// blocks. Returns `None` if the quiet round is not valid.
    pub(crate) fn of(
        plan: &TransferSettings,
        quiet: &TransferRecord,
        duration: Nanos,
    ) -> Option<Self> {
        if !quiet.invalid.is_empty() {
            return None;
        }
        let worst = quiet
            .watched
            .iter()
            .filter(|watched| watched.invalid.is_empty())
            .filter_map(|watched| watched.seen.max)
            .max()?;
        let wanted = Nanos(worst.0.saturating_mul(plan.block_factor.into()));
        let mut block = Self {
            length: wanted.min(LONGEST).max(plan.shortest_block),
            wanted,
            quiet: worst,
        };
        let least = plan
            .shortest_block
            .max(Nanos(worst.0.saturating_mul(LEAST_FACTOR)));
        while plan.blocks >= WANTED_BLOCKS
            && block.length > least
            && block.fitting(plan, duration) < WANTED_BLOCKS.into()
        {
            block.length = Nanos(block.length.0 / 10 * 9).max(least);
        }
        Some(block)
    }

    /// Returns the mean pause between two blocks.
    fn pause(self, plan: &TransferSettings) -> Nanos {
        Nanos(self.window(plan).0 * PAUSE_WINDOWS)
    }

    /// Returns how many blocks fit in this time.
    fn fitting(self, plan: &TransferSettings, duration: Nanos) -> u64 {
        duration.0 / (self.length + self.pause(plan)).0.max(1)
    }

    /// Returns the length of a slot of the timeline.
    pub(crate) fn slot(self) -> Nanos {
        let whole = self.length.0 / SLOTS_A_BLOCK / SHORTEST_SLOT.0 * SHORTEST_SLOT.0;
        Nanos(whole).max(SHORTEST_SLOT)
    }

    /// Returns the time after a block in which its effect may end a sample: the wakeup of the
    /// period in which the block ends, plus the worst quiet latency.
    pub(crate) fn after(self, plan: &TransferSettings) -> Nanos {
        plan.interval + self.quiet.min(self.length)
    }

    /// Returns the length of a window without the uncertainty of the clocks.
    pub(crate) fn window(self, plan: &TransferSettings) -> Nanos {
        self.length + self.after(plan) + self.slot()
    }

    /// Returns the blocks of a round of about `duration`.
    pub(crate) fn plan(
        self,
        cpus: &CpuSet,
        plan: &TransferSettings,
        duration: Nanos,
        seed: u64,
    ) -> BlockSettings {
        let count = self
            .fitting(plan, duration)
            .clamp(FEWEST_BLOCKS, u64::from(plan.blocks).max(FEWEST_BLOCKS));
        BlockSettings {
            cpus: cpus.clone(),
            length: self.length,
            count: u32::try_from(count).unwrap_or(u32::MAX),
            pause: self.pause(plan),
            spread: BlockSpread::Random,
            seed,
            kind: None,
        }
    }

    /// Returns a finding if a limit shortened the length.
    pub(crate) fn findings(self) -> Vec<Finding> {
        if self.wanted <= self.length {
            return Vec::new();
        }
        vec![
            Finding::new(
                Severity::Warning,
                "length of the blocks",
                format!(
                    "the worst quiet latency was {}, and blocks are not much longer, so that the intervals are wide",
                    self.quiet
                ),
            )
            .values(format!("blocks of {}", self.length), self.wanted.to_string())
            .fix("measure on a quieter machine"),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rampart_model::{CpuId, Distribution, SchedulingPolicy, Timeline, Watched};

    fn plan() -> TransferSettings {
        TransferSettings {
            groups: Vec::new(),
            interval: Nanos::from_micros(500),
            policy: SchedulingPolicy::Fifo(80),
            quiet: Nanos::SECOND,
            loaded: Nanos::SECOND,
            blocks: 40,
            block_factor: 5,
            shortest_block: Nanos::from_millis(5),
            findings: Vec::new(),
        }
    }

    fn quiet(worst: &[Nanos]) -> TransferRecord {
        let watched = |worst: &Nanos| Watched {
            domain: "host".to_owned(),
            cpu: CpuId(0),
            clock: Vec::new(),
            timeline: Timeline {
                start: Nanos::ZERO,
                slot: Nanos::SECOND,
                worst: Vec::new(),
            },
            windows: Vec::new(),
            seen: Distribution::from_values([*worst]),
            corrected: None,
            missed: 0,
            guest: None,
            cell: None,
            detached: None,
            invalid: Vec::new(),
            findings: Vec::new(),
        };
        TransferRecord {
            id: "quiet/0/0".to_owned(),
            group: 0,
            order: 0,
            disturbance: None,
            started: String::new(),
            duration: Nanos::SECOND,
            blocks: None,
            load: None,
            watched: worst.iter().map(watched).collect(),
            invalid: Vec::new(),
            findings: Vec::new(),
        }
    }

    fn of(worst_micros: u64) -> BlockLength {
        let record = quiet(&[Nanos::from_micros(3), Nanos::from_micros(worst_micros)]);
        BlockLength::of(&plan(), &record, Nanos::from_secs(60)).expect("a length")
    }

    #[test]
    fn blocks_exceed_the_quiet_latency_within_their_limits() {
        assert_eq!(of(4_000).length, Nanos::from_millis(20));
        assert_eq!(of(40).length, Nanos::from_millis(5));
        assert!(of(4_000).findings().is_empty() && of(40).findings().is_empty());
        let cut = of(60_000);
        assert_eq!(cut.length, Nanos::from_millis(100));
        assert_eq!(cut.findings().len(), 1);
        assert_eq!(of(4_000).slot(), Nanos::from_millis(2));
        assert_eq!(of(40).slot(), Nanos::from_millis(1));
    }

    #[test]
    fn long_blocks_are_shortened_until_a_round_has_enough() {
        let record = quiet(&[Nanos::from_millis(8)]);
        let of = |seconds| {
            let duration = Nanos::from_secs(seconds);
            let block = BlockLength::of(&plan(), &record, duration).expect("a length");
            (
                block,
                block
                    .plan(&CpuSet::single(CpuId(1)), &plan(), duration, 1)
                    .count,
            )
        };
        assert_eq!(of(60).0.length, Nanos::from_millis(40));
        let (block, count) = of(7);
        assert!(
            block.length < Nanos::from_millis(30) && count >= 40,
            "{block:?} {count}"
        );
        assert_eq!(block.findings().len(), 1);
        assert_eq!(of(1).0.length, Nanos::from_millis(24));
    }

    #[test]
    fn an_invalid_round_yields_no_length() {
        assert_eq!(BlockLength::of(&plan(), &quiet(&[]), Nanos::SECOND), None);
        let mut bad = quiet(&[Nanos::SECOND]);
        bad.watched[0].invalid = vec![Finding::new(Severity::Error, "x", "y")];
        assert_eq!(BlockLength::of(&plan(), &bad, Nanos::SECOND), None);
    }

    #[test]
    fn plans_as_many_blocks_as_fit_but_not_too_few() {
        let cpus = CpuSet::single(CpuId(1));
        let blocks = |length: BlockLength, seconds| {
            let made = length.plan(&cpus, &plan(), Nanos::from_secs(seconds), 1);
            assert!(made.findings().is_empty(), "{:?}", made.findings());
            assert!(made.share_percent() < 30);
            made.count
        };
        assert_eq!(blocks(of(40), 10), 40);
        assert_eq!(blocks(of(60_000), 2), 20);
        assert_eq!(blocks(of(4_000), 3), 23);
    }
}
