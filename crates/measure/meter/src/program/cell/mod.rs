// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs the conversations for a cell without an operating system, which measures or blocks its CPU
//! with its own loops ([`crate::cell`]).
//!
//! To the rest of the program, the cell looks like a measuring thread on a CPU that does not belong
//! to this kernel: a thread reads what the cell writes, converts its times to the clock of the
//! root, and forwards the samples.

mod blocks;
mod clock;
mod load;
mod memory;
mod relay;
#[cfg(test)]
mod tests;

use rampart_model::{Finding, MeterSettings, Refusal, RefusalKind, Severity};

pub(super) use blocks::{CellBlocks, LONGEST, SHARE};
pub(super) use load::CellLoad;
pub(super) use memory::CellMemory;
pub use memory::CellMemoryLocation;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(super) use memory::map;
pub(super) use relay::relay;

/// The counter of a cell's clock (Arm ARM D24.10.24).
pub(super) const COUNTER: &str = "cntvct_el0";

/// Refuses a plan with more CPUs than such a cell has.
pub(super) fn too_many_cpus(settings: &MeterSettings) -> Option<Refusal> {
    (settings.cpus.len() > 1).then(|| Refusal {
        kind: RefusalKind::BadPlan,
        finding: Finding::new(
            Severity::Error,
            "cpus",
            "a cell without an operating system measures on one CPU",
        )
        .values(settings.cpus.to_string(), "one CPU"),
    })
}
