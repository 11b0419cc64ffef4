// SPDX-License-Identifier: Apache-2.0 OR MIT
//! CPUs that are taken from Linux for detached threads.

use serde::{Deserialize, Serialize};

use crate::CpuId;

/// Where the driver of detached threads is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DetachDriver {
    /// It is loaded.
    Loaded,
    /// It is installed for the running kernel.
    Installed,
    /// It is not installed for the running kernel.
    NotInstalled,
    /// The running kernel loads no modules.
    NoModules,
}

/// The state of a taken CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DetachedState {
    /// It is taken, and no thread uses it.
    Taken,
    /// A thread runs on it.
    Running,
    /// Its thread is in Linux: a system call or a page fault.
    Stopped,
    /// It did not answer and was halted.
    Failed,
}

impl DetachedState {
    /// Returns the word for the state.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Taken => "taken",
            Self::Running => "running",
            Self::Stopped => "stopped",
            Self::Failed => "failed",
        }
    }
}

/// A process or thread, with its name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct DetachedHolder {
    /// Its number.
    pub process: u32,
    /// Its name in `/proc`.
    pub name: String,
}

/// Events on a taken CPU since it was taken.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema,
)]
pub struct DetachedCounts {
    /// System calls of detached threads.
    pub system_calls: u64,
    /// Page faults and other exceptions.
    pub faults: u64,
    /// Non-maskable interrupts by the driver: starts, stops, flushes.
    pub kicks: u64,
    /// Flushes of translations, because the process changed its memory.
    pub flushes: u64,
    /// Other interrupts; expected: 0.
    pub interrupts: u64,
}

impl DetachedCounts {
    /// Returns the events of both.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            system_calls: self.system_calls.saturating_add(other.system_calls),
            faults: self.faults.saturating_add(other.faults),
            kicks: self.kicks.saturating_add(other.kicks),
            flushes: self.flushes.saturating_add(other.flushes),
            interrupts: self.interrupts.saturating_add(other.interrupts),
        }
    }

    /// Returns the events after an earlier reading.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        Self {
            system_calls: self.system_calls.saturating_sub(earlier.system_calls),
            faults: self.faults.saturating_sub(earlier.faults),
            kicks: self.kicks.saturating_sub(earlier.kicks),
            flushes: self.flushes.saturating_sub(earlier.flushes),
            interrupts: self.interrupts.saturating_sub(earlier.interrupts),
        }
    }
}

/// A CPU that is taken from Linux.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct DetachedCpu {
    /// Its number.
    pub cpu: CpuId,
    /// Its state.
    pub state: DetachedState,
    /// The processes that have its open file. Empty if they belong to another user.
    pub holders: Vec<DetachedHolder>,
    /// The thread that uses it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<DetachedHolder>,
    /// Its counts; `None` if the holder belongs to another user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counts: Option<DetachedCounts>,
}
