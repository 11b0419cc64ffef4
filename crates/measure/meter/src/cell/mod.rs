// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A meter in a cell without an operating system. Its loops are those of [`crate::engine`]; what to
//! measure, and what was measured, goes through memory that it shares with the root.
//!
//! - [`memory`]: where what stands in that memory.
//! - [`orders`]: what the root wants; it writes, the cell reads.
//! - [`records`]: what the cell found; it writes, the root reads.
//! - [`program`]: carries out orders to measure.
//! - [`blocks`]: carries out orders to stop the CPU, from an interrupt.
//! - [`loads`]: carries out orders to load it, in the time that measuring leaves.
//!
//! Moments in it are on the cell's clock: its processor's counter since it was 0, in nanoseconds
//! ([`Timescale::of_frequency`](crate::timescale::Timescale::of_frequency)). Machines that a cell runs
//! on have one such counter for all CPUs (CNTVCT_EL0, Arm ARM D11.1.2), so the root's side can relate
//! it to its own clock without a word from the cell.

pub mod blocks;
pub mod loads;
pub mod memory;
pub mod orders;
pub mod program;
pub mod records;

/// What `mmio` reads on the page that traps: the hypervisor mediates the distributor for every cell.
pub const TRAPPED_REGISTER: &str = "GICD_TYPER";
/// What it reads on the page that is mapped. A cell need not have a device; its shared memory is
/// reached past the caches, as a device's registers are, so it stands for one.
pub const MAPPED_REGISTER: &str = "a word of shared memory, past the caches";

#[cfg(test)]
mod tests;
