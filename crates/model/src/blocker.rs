// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Blocks: injected disturbances of known length, and the conversation with the program that
//! makes them (`rampart-meter block`): JSON lines, the same way a meter is spoken with.

use serde::{Deserialize, Serialize};

use crate::{CpuId, CpuSet, Nanos, Refusal};

/// Version of the conversation with a blocker. Both sides must have the same.
pub const BLOCKER_PROTOCOL_VERSION: u32 = 1;

/// What stops the CPU.
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
    /// The kernel module `blocksys`: interrupts and preemption off.
    Module,
    /// A thread of FIFO 99 that spins. Interrupts, and threads of the deadline class, still get
    /// through, and the kernel's real-time throttling may cut it.
    Spin,
}

impl BlockKind {
    /// The word for it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Module => "module",
            Self::Spin => "spin",
        }
    }
}

impl std::fmt::Display for BlockKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.word())
    }
}

/// How blocks lie in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum BlockSpread {
    /// Start to start always the same.
    Even,
    /// The pause between the end of a block and the start of the next is drawn uniformly from
    /// half to one and a half times the mean.
    Random,
}

/// What a blocker is to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BlockPlan {
    /// The CPUs to stop. All of them at the same moments.
    pub cpus: CpuSet,
    /// Length of one block.
    pub length: Nanos,
    /// How many blocks.
    pub count: u32,
    /// Mean pause between the end of a block and the start of the next; also before the first.
    pub pause: Nanos,
    /// How they lie in time.
    pub spread: BlockSpread,
    /// Seed of random pauses.
    pub seed: u64,
    /// By what; none: the module where it is to be had, otherwise the spinning thread.
    pub kind: Option<BlockKind>,
}

/// One CPU stopped once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct BlockSpan {
    /// The CPU, as the kernel that was blocked numbers it.
    pub cpu: CpuId,
    /// Number of the block, from 0; blocks of several CPUs at once share it.
    pub sequence: u32,
    /// Start (`CLOCK_MONOTONIC` of the kernel that was blocked).
    pub start: Nanos,
    /// End, on the same clock.
    pub end: Nanos,
}

impl BlockSpan {
    /// How long it lasted.
    #[must_use]
    pub fn length(&self) -> Nanos {
        self.end.saturating_sub(self.start)
    }
}

/// To the blocker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum BlockerRequest {
    /// The first line: get ready. The number is [`BLOCKER_PROTOCOL_VERSION`].
    Prepare {
        /// The caller's protocol version.
        protocol: u32,
        /// What to do.
        plan: BlockPlan,
    },
    /// Begin.
    Go {},
    /// Make no further block; end with what was made. The end of the input means the same.
    Stop {},
}

/// From the blocker: one `Ready`, any number of `Blocked`, one `Finished`; a `Refused` in place of
/// any of them is the last line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum BlockerEvent {
    /// It waits for `Go`.
    Ready {
        /// [`BLOCKER_PROTOCOL_VERSION`] of the program.
        protocol: u32,
        /// What will stop the CPUs.
        kind: BlockKind,
        /// The longest block that it makes.
        longest: Nanos,
        /// Its weaknesses: what the weaker kind cannot do, and why it was taken.
        findings: Vec<crate::Finding>,
    },
    /// Blocks that are over.
    Blocked {
        /// In the order of time.
        spans: Vec<BlockSpan>,
    },
    /// No more blocks come.
    Finished {
        /// How many blocks were made.
        made: u32,
        /// Weaknesses, for example blocks that were cut or late.
        findings: Vec<crate::Finding>,
    },
    /// The plan cannot be carried out as asked; nothing more comes.
    Refused(Refusal),
}
