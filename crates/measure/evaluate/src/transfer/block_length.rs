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
/// Fewest blocks of a round, whatever their length.
const FEWEST_BLOCKS: u64 = 16;

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
    /// factor, within the limits. Returns `None` if the round is not valid.
    pub(crate) fn of(plan: &TransferSettings, quiet: &TransferRecord) -> Option<Self> {
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
        Some(Self {
            length: wanted.min(LONGEST).max(plan.shortest_block),
            wanted,
            quiet: worst,
        })
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
        let pause = Nanos(self.window(plan).0 * PAUSE_WINDOWS);
        let fitting = duration.0 / (self.length + pause).0.max(1);
        let count = fitting.clamp(FEWEST_BLOCKS, u64::from(plan.blocks).max(FEWEST_BLOCKS));
        BlockSettings {
            cpus: cpus.clone(),
            length: self.length,
            count: u32::try_from(count).unwrap_or(u32::MAX),
            pause,
            spread: BlockSpread::Random,
            seed,
            kind: None,
        }
    }

    /// Returns a finding if a limit shortened the length.
    pub(crate) fn findings(self, location: &str) -> Vec<Finding> {
        if self.wanted <= self.length {
            return Vec::new();
        }
        vec![
            Finding::new(
                Severity::Warning,
                location,
                format!(
                    "the worst quiet latency was {}, and the longest possible block is not much longer, so that the intervals are wide",
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
        BlockLength::of(&plan(), &record).expect("a length")
    }

    #[test]
    fn blocks_exceed_the_quiet_latency_within_their_limits() {
        assert_eq!(of(4_000).length, Nanos::from_millis(20));
        assert_eq!(of(40).length, Nanos::from_millis(5));
        assert!(of(4_000).findings("x").is_empty() && of(40).findings("x").is_empty());
        let cut = of(60_000);
        assert_eq!(cut.length, Nanos::from_millis(100));
        assert_eq!(cut.findings("x").len(), 1);
        assert_eq!(of(4_000).slot(), Nanos::from_millis(2));
        assert_eq!(of(40).slot(), Nanos::from_millis(1));
    }

    #[test]
    fn an_invalid_round_yields_no_length() {
        assert_eq!(BlockLength::of(&plan(), &quiet(&[])), None);
        let mut bad = quiet(&[Nanos::SECOND]);
        bad.watched[0].invalid = vec![Finding::new(Severity::Error, "x", "y")];
        assert_eq!(BlockLength::of(&plan(), &bad), None);
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
        assert_eq!(blocks(of(60_000), 2), 16);
        assert_eq!(blocks(of(4_000), 3), 23);
    }
}
