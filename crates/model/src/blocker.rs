// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Blocks: injected disturbances of known length, and the protocol of the program that makes them
//! (`rampart-meter block`): JSON lines, as in the protocol of meters.

use serde::{Deserialize, Serialize};

use crate::{CpuId, CpuSet, Finding, Nanos, Refusal, Severity};

/// Version of the protocol of a blocker. Both sides must have the same version.
pub const BLOCKER_PROTOCOL_VERSION: u32 = 1;

/// The means of stopping a CPU.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum BlockKind {
    /// The kernel module `blocksys`, with interrupts and preemption disabled.
    Module,
    /// A spinning thread under FIFO 99. Interrupts and `SCHED_DEADLINE` threads still run, and
    /// real-time throttling may interrupt the block.
    Spin,
    /// The program of a cell without an operating system, which masks its interrupts.
    Cell,
}

impl BlockKind {
    /// Returns its name in documents and messages.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Module => "module",
            Self::Spin => "spin",
            Self::Cell => "cell",
        }
    }
}

impl std::fmt::Display for BlockKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.word())
    }
}

/// The distribution of blocks over time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum BlockSpread {
    /// The interval between starts is constant.
    Even,
    /// The pause between the end of a block and the start of the next is drawn uniformly from
    /// half to one and a half times the mean.
    Random,
}

/// The settings of a blocker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BlockSettings {
    /// The CPUs to stop, all at the same times.
    pub cpus: CpuSet,
    /// Length of one block.
    pub length: Nanos,
    /// Number of blocks.
    pub count: u32,
    /// Mean pause between the end of a block and the start of the next; also before the first.
    pub pause: Nanos,
    /// Their distribution over time.
    pub spread: BlockSpread,
    /// Seed of random pauses.
    pub seed: u64,
    /// The means; `None` for the module if it is available, else the spinning thread.
    pub kind: Option<BlockKind>,
}

impl BlockSettings {
    /// The maximum length of a block; a blocker's own limit may be lower.
    pub const LONGEST: Nanos = Nanos::SECOND;
    /// The shortest mean pause: pending interrupts and a tick must be handled between blocks.
    pub const SHORTEST_PAUSE: Nanos = Nanos::from_micros(100);
    /// The longest mean pause.
    pub const LONGEST_PAUSE: Nanos = Nanos::from_secs(3600);
    /// The maximum number of blocks.
    pub const MOST_BLOCKS: u32 = 1_000_000;

    /// Returns the errors of these settings that do not depend on the machine.
    #[must_use]
    pub fn findings(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        let mut problem = |bad: bool, location: &str, what: &str, present: String, needed: &str| {
            if bad {
                findings
                    .push(Finding::new(Severity::Error, location, what).values(present, needed));
            }
        };
        problem(
            self.cpus.is_empty(),
            "cpus",
            "there is no CPU to stop",
            "empty".to_owned(),
            "at least one CPU",
        );
        problem(
            self.length == Nanos::ZERO || self.length > Self::LONGEST,
            "length",
            "no block can be so long",
            self.length.to_string(),
            "more than 0, and 1 s or less",
        );
        problem(
            self.count == 0 || self.count > Self::MOST_BLOCKS,
            "count",
            "so many blocks cannot be made",
            self.count.to_string(),
            "1 to 1000000",
        );
        problem(
            self.pause < Self::SHORTEST_PAUSE || self.pause > Self::LONGEST_PAUSE,
            "pause",
            "no pause between blocks can be so long",
            self.pause.to_string(),
            "100 µs to 1 h",
        );
        findings
    }

    /// Returns the part of the time that the blocks take, in percent, rounded up.
    #[must_use]
    pub fn share_percent(&self) -> u32 {
        let whole = u128::from(self.length.0) + u128::from(self.pause.0);
        (u128::from(self.length.0) * 100).div_ceil(whole.max(1)) as u32
    }

    /// Returns the average total duration, with pauses.
    #[must_use]
    pub fn duration(&self) -> Nanos {
        let one = self.length.0.saturating_add(self.pause.0);
        Nanos(one.saturating_mul(self.count.into()))
    }
}

/// One block of one CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct BlockSpan {
    /// The CPU, as numbered by the blocked kernel.
    pub cpu: CpuId,
    /// Number of the block, from 0; blocks of several CPUs at once share it.
    pub sequence: u32,
    /// Start (`CLOCK_MONOTONIC` of the kernel that was blocked).
    pub start: Nanos,
    /// End, on the same clock.
    pub end: Nanos,
}

impl BlockSpan {
    /// Returns its length.
    #[must_use]
    pub fn length(&self) -> Nanos {
        self.end.saturating_sub(self.start)
    }
}

/// A request to the blocker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum BlockerRequest {
    /// The first line: prepare these blocks.
    Prepare {
        /// The caller's [`BLOCKER_PROTOCOL_VERSION`].
        protocol: u32,
        /// The settings.
        settings: BlockSettings,
    },
    /// Start the blocks.
    Go {},
    /// Stop after the present block and report. The end of the input has the same effect.
    Stop {},
}

/// An event of the blocker: one `Ready`, any number of `Blocked`, one `Finished`; a `Refused` in
/// place of any of them is the last line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum BlockerEvent {
    /// The blocker waits for `Go`.
    Ready {
        /// [`BLOCKER_PROTOCOL_VERSION`] of the program.
        protocol: u32,
        /// The means of stopping the CPUs.
        kind: BlockKind,
        /// The longest block that it makes.
        longest: Nanos,
        /// Limits of the chosen kind, and the reason for the choice.
        findings: Vec<Finding>,
    },
    /// Completed blocks.
    Blocked {
        /// The blocks, in chronological order.
        spans: Vec<BlockSpan>,
    },
    /// The end of the blocks.
    Finished {
        /// Number of blocks that were made on every CPU of the settings.
        made: u32,
        /// Warnings, for example about interrupted or late blocks.
        findings: Vec<Finding>,
    },
    /// The request is refused; no further event follows.
    Refused(Refusal),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> BlockSettings {
        BlockSettings {
            cpus: CpuSet::single(CpuId(1)),
            length: Nanos::from_millis(4),
            count: 50,
            pause: Nanos::from_millis(16),
            spread: BlockSpread::Random,
            seed: 1,
            kind: None,
        }
    }

    #[test]
    fn reports_invalid_settings_with_their_location() {
        let locations = |change: &dyn Fn(&mut BlockSettings)| -> Vec<String> {
            let mut plan = plan();
            change(&mut plan);
            plan.findings()
                .into_iter()
                .map(|finding| finding.location)
                .collect()
        };
        assert_eq!(locations(&|_| {}), [""; 0]);
        assert_eq!(locations(&|plan| plan.cpus = CpuSet::new()), ["cpus"]);
        assert_eq!(locations(&|plan| plan.length = Nanos::ZERO), ["length"]);
        assert_eq!(
            locations(&|plan| plan.length = Nanos(1_000_000_001)),
            ["length"]
        );
        assert_eq!(locations(&|plan| plan.count = 0), ["count"]);
        assert_eq!(locations(&|plan| plan.count = 1_000_001), ["count"]);
        assert_eq!(locations(&|plan| plan.pause = Nanos(99_999)), ["pause"]);
        assert_eq!(locations(&|plan| plan.pause = Nanos(u64::MAX)), ["pause"]);
    }

    #[test]
    fn computes_share_and_duration() {
        assert_eq!(plan().share_percent(), 20);
        assert_eq!(plan().duration(), Nanos::SECOND);
        let half = BlockSettings {
            length: Nanos(100_001),
            pause: Nanos(100_000),
            ..plan()
        };
        assert_eq!(half.share_percent(), 51);
    }
}
