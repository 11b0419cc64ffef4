// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The documents of `rampart block` and `rampart blocktest`.

use serde::{Deserialize, Serialize};

use crate::{
    BlockSettings, BlocksMade, CpuId, Crossed, Finding, Interval, Nanos, SignedNanos,
    VerdictOutcome,
};

/// Version of the [`Blocking`] document.
pub const BLOCKING_SCHEMA_VERSION: u32 = 1;

/// Version of the [`Blocktest`] document.
pub const BLOCKTEST_SCHEMA_VERSION: u32 = 1;

/// Output of `rampart block --json`: the blocks that were made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Blocking {
    /// [`BLOCKING_SCHEMA_VERSION`].
    pub schema_version: u32,
    /// Version of the tool that wrote it.
    pub tool_version: String,
    /// The settings.
    pub settings: BlockSettings,
    /// The blocks as they were made.
    pub made: BlocksMade,
    /// Number of blocks that were made on every CPU of the settings.
    pub count: u32,
    /// Warnings that do not invalidate the blocks.
    pub findings: Vec<Finding>,
}

/// Output of `rampart blocktest --json`: the blocks, and latencies on other CPUs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Blocktest {
    /// [`BLOCKTEST_SCHEMA_VERSION`].
    pub schema_version: u32,
    /// Version of the tool that wrote it.
    pub tool_version: String,
    /// The settings.
    pub settings: BlockSettings,
    /// The blocks as they were made.
    pub made: BlocksMade,
    /// Number of blocks that were made on every CPU of the settings.
    pub count: u32,
    /// The latencies of each measured CPU, in rising order.
    pub cpus: Vec<BlocktestCpu>,
    /// Warnings that do not invalidate the figures.
    pub findings: Vec<Finding>,
}

/// The latencies of one CPU during blocks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct BlocktestCpu {
    /// The CPU.
    pub cpu: CpuId,
    /// Whether the blocks stopped this CPU itself: the positive control.
    pub stopped: bool,
    /// The worst latency of each window with a block.
    pub with_block: Vec<Nanos>,
    /// The worst latency of each window without a block.
    pub without_block: Vec<Nanos>,
    /// The result; `None` if there are no windows with or none without a block.
    pub transfer: Option<BlocktestTransfer>,
}

/// Whether blocks reached a CPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct BlocktestTransfer {
    /// The answer.
    pub outcome: VerdictOutcome,
    /// The answer in a sentence, with its figures.
    pub statement: String,
    /// Median excess divided by the length of the blocks: 0 if nothing crosses, 1 if all does.
    pub interval: Interval,
    /// Median of the windows with a block minus median of those without.
    pub excess: SignedNanos,
    /// Probability of at least this difference if blocks have no effect (one-sided permutation
    /// test).
    pub p_value: f64,
    /// Number of windows with crossing blocks.
    pub crossed: Crossed,
}
