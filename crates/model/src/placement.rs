// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The document of `rampart move`: threads before and after their placement.

use serde::Serialize;

use crate::{CpuSet, Finding, SchedulingPolicy};

/// Effective settings of a thread, as read from the kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ThreadState {
    /// Its name.
    pub name: String,
    /// Its control group in the hierarchy that decides on CPUs, relative to the root of the
    /// hierarchy; `None` if no such hierarchy is mounted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// The CPUs that it may use.
    pub cpus: CpuSet,
    /// Its scheduling policy.
    pub policy: SchedulingPolicy,
    /// Its nice value.
    pub nice: i32,
}

/// A thread before and after its placement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PlacedThread {
    /// Its thread id.
    pub thread: u32,
    /// Its settings before; `None` if it was created meanwhile.
    pub was: Option<ThreadState>,
    /// Its settings after; `None` if it has ended.
    pub is: Option<ThreadState>,
    /// Reason why it was not placed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<Finding>,
    /// Differences from the request.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<Finding>,
}
