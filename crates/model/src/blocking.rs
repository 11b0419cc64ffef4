// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What `rampart block` and `rampart blocktest` found.

use serde::{Deserialize, Serialize};

use crate::{
    BlockSettings, BlocksMade, CpuId, Crossed, Finding, Interval, Nanos, SignedNanos,
    VerdictOutcome,
};

/// Version of the [`Blocking`] document.
pub const BLOCKING_SCHEMA_VERSION: u32 = 1;

/// Version of the [`Blocktest`] document.
pub const BLOCKTEST_SCHEMA_VERSION: u32 = 1;

/// Output of `rampart block --json`: CPUs were stopped.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Blocking {
    /// [`BLOCKING_SCHEMA_VERSION`].
    pub schema_version: u32,
    /// Version of the tool that wrote it.
    pub tool_version: String,
    /// What was asked for.
    pub plan: BlockSettings,
    /// The blocks as they were made.
    pub made: BlocksMade,
    /// How many were made on every CPU of the plan.
    pub count: u32,
    /// Weaknesses that leave them standing.
    pub findings: Vec<Finding>,
}

/// Output of `rampart blocktest --json`: CPUs were stopped, and others watched.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Blocktest {
    /// [`BLOCKTEST_SCHEMA_VERSION`].
    pub schema_version: u32,
    /// Version of the tool that wrote it.
    pub tool_version: String,
    /// What was asked for.
    pub plan: BlockSettings,
    /// The blocks as they were made.
    pub made: BlocksMade,
    /// How many were made on every CPU of the plan.
    pub count: u32,
    /// What each watched CPU saw of them, in rising order.
    pub cpus: Vec<BlocktestCpu>,
    /// Weaknesses that leave the figures standing.
    pub findings: Vec<Finding>,
}

/// What one CPU saw of blocks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct BlocktestCpu {
    /// The CPU.
    pub cpu: CpuId,
    /// Whether it was itself stopped: the positive control.
    pub stopped: bool,
    /// The worst latency of each window that holds a block.
    pub with_block: Vec<Nanos>,
    /// The same of windows that hold none.
    pub without_block: Vec<Nanos>,
    /// What follows from them; none where a side has no window.
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
    /// Chance of so large a difference if blocks made none (one-sided permutation test).
    pub p_value: f64,
    /// How many of the blocks crossed, by a count.
    pub crossed: Crossed,
}
