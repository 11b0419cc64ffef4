// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A meter in a cell without an operating system. It runs the loops of [`crate::engine`] and
//! exchanges orders and results with the root through shared memory.
//!
//! - [`memory`]: the layout of that memory.
//! - [`orders`]: orders, written by the root and read by the cell.
//! - [`records`]: results, written by the cell and read by the root.
//! - [`program`]: carries out orders to measure.
//! - [`blocks`]: carries out orders to block the CPU, in an interrupt handler.
//! - [`loads`]: carries out orders to load the CPU or the memory, in the time that measuring
//!   leaves.
//!
//! Moments are on the cell's clock: the counter of its processor since 0, in nanoseconds
//! ([`Timescale::of_frequency`](crate::timescale::Timescale::of_frequency)). Machines that support
//! cells have one such counter for all CPUs (CNTVCT_EL0, Arm ARM D11.1.2), so the root can convert
//! these moments to its own clock.

pub mod blocks;
pub mod loads;
pub mod memory;
pub mod orders;
pub mod program;
pub mod records;

/// The register that `mmio` reads on the trapped page: the hypervisor mediates the distributor for
/// every cell.
pub const TRAPPED_REGISTER: &str = "GICD_TYPER";
/// The register that `mmio` reads on the mapped page. A cell may have no device; its shared memory
/// is accessed uncached like a device's registers, so it replaces one.
pub const MAPPED_REGISTER: &str = "a word of shared memory, past the caches";

#[cfg(test)]
mod tests;
