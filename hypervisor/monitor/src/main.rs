// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The hardware-dependent part of the partitioning hypervisor: entry, exceptions, registers and per-CPU state.
//! The decisions are in `rampart-hypervisor-core`. `scripts/hypervisor` builds it for
//! `aarch64-unknown-none-softfloat`, as the flat binary that `kernel/rampart` copies into memory.
//!
//! **Invariants:** no CPU waits for another without a limit; every failure ends with this CPU parked and the
//! cell's failure recorded; no input of a cell or the root causes a panic.
#![no_std]
#![no_main]

mod aborts;
mod cells;
mod cpu;
mod exits;
mod features;
#[cfg_attr(feature = "gicv2", path = "gicv2.rs")]
mod gic;
mod guest;
mod hypercalls;
mod launch;
mod log;
mod machine;
mod manager;
mod park;
mod registers;
mod restart;
mod root;
mod smc;
#[cfg_attr(not(feature = "smmu"), path = "no_smmu.rs")]
mod smmu;
mod stage1;
mod stage2_memory;
mod vectors;

/// Handles a panic like a fault of the hypervisor.
#[panic_handler]
fn panic(information: &core::panic::PanicInfo<'_>) -> ! {
    exits::panicked(information)
}
