// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Cells: their payload, and their exits to the hypervisor.

use serde::{Deserialize, Serialize};

use crate::{CpuSet, Finding, Nanos};

/// Payload of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CellPayload {
    /// A program without an operating system: a plain binary that begins with its first instruction. In
    /// an evaluation it has the measuring loops, on one CPU.
    BareMetal,
    /// A Linux kernel. In an evaluation its only program is the meter.
    Linux,
}

impl CellPayload {
    /// Returns the name of the payload.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::BareMetal => "bare metal",
            Self::Linux => "Linux",
        }
    }
}

/// Number of exits for one reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct CellExits {
    /// Reason of the exits: `psci`, `distributor`, `software-interrupt` …
    pub reason: String,
    /// Number of exits.
    pub count: u64,
}

/// Exits of a cell during a measurement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct CellExitReport {
    /// Its payload.
    pub payload: CellPayload,
    /// The program or kernel image, with its version.
    pub program: String,
    /// Revision of the interface between hypervisor and root.
    pub revision: u32,
    /// Its CPUs, as the host numbers them.
    pub cpus: CpuSet,
    /// Its own memory in bytes.
    pub memory_bytes: u64,
    /// Observed time: from before the warm-up until after the measurement.
    pub observed: Nanos,
    /// Exits of its CPUs in that time, by reason; reasons without exits are left out.
    pub exits: Vec<CellExits>,
    /// Exits caused by interrupts that were taken or deactivated at the hypervisor's level.
    pub interrupt_exits: u64,
    /// Interrupts that it handled in that time by its own count; `None` if it was not queried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interrupts: Option<u64>,
    /// Reason and address of its failure, if it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// Warnings about its isolation.
    pub findings: Vec<Finding>,
}

impl CellExitReport {
    /// Returns the number of all exits.
    #[must_use]
    pub fn all_exits(&self) -> u64 {
        self.exits.iter().map(|exits| exits.count).sum()
    }

    /// Returns the interrupt exits for each interrupt, or `None` if no interrupt was counted.
    #[must_use]
    pub fn exits_per_interrupt(&self) -> Option<f64> {
        let interrupts = self.interrupts.filter(|count| *count > 0)?;
        Some(self.interrupt_exits as f64 / interrupts as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(interrupt_exits: u64, interrupts: Option<u64>) -> CellExitReport {
        let exits = |reason: &str, count| CellExits {
            reason: reason.to_owned(),
            count,
        };
        CellExitReport {
            payload: CellPayload::BareMetal,
            program: String::new(),
            revision: 1,
            cpus: CpuSet::new(),
            memory_bytes: 0,
            observed: Nanos::SECOND,
            exits: vec![exits("psci", 3), exits("interrupt", interrupt_exits)],
            interrupt_exits,
            interrupts,
            failure: None,
            findings: Vec::new(),
        }
    }

    #[test]
    fn exits_for_each_interrupt_need_interrupts() {
        assert_eq!(report(0, Some(500)).exits_per_interrupt(), Some(0.0));
        assert_eq!(report(250, Some(500)).exits_per_interrupt(), Some(0.5));
        assert_eq!(report(0, Some(0)).exits_per_interrupt(), None);
        assert_eq!(report(0, None).exits_per_interrupt(), None);
        assert_eq!(report(7, None).all_exits(), 10);
    }
}
