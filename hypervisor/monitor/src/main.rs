// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The partitioning hypervisor's thin metal: entry, exceptions, registers and the state of each CPU.
//! What it decides is in `rampart-hypervisor-core`. `make hypervisor` builds it for
//! `aarch64-unknown-none-softfloat`, as the bytes that `kernel/rampart` copies into memory.
//!
//! **Invariants:** no CPU waits for another without a limit; every way of failing ends with this CPU
//! parked and the cell's failure recorded; nothing that a cell or the root says makes it panic.
#![no_std]
#![no_main]

mod aborts;
mod cells;
mod cpu;
mod exits;
mod gic;
mod guest;
mod hypercalls;
mod launch;
mod log;
mod machine;
mod manager;
mod park;
mod registers;
mod root;
mod smc;
mod stage1;
mod stage2_memory;
mod vectors;

/// A mistake of ours: what it was doing is given up, as after a fault.
#[panic_handler]
fn panic(information: &core::panic::PanicInfo<'_>) -> ! {
    exits::panicked(information)
}
