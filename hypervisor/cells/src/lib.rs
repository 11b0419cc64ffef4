// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The runtime of programs in a cell without an operating system: entry, interrupt controller, timer, a page
//! that the root reads and one that it writes.
//!
//! A program defines `cell_main(argument)` and `cell_exception(now)`. `src/bin/example.rs` is the smallest
//! program, `src/bin/meter.rs` the one that measures. `cell_exception` is called for every exception, with the
//! counter (CNTVCT_EL0) at the time when the exception was taken. It handles only interrupts: a program that
//! faults ends there. A program starts at `0x4000_0000`, where its loadable memory must be, and finds the pages
//! at [`SHARED`] and, if its configuration has it, [`ORDERS`]. Its MMU stays off, so writes go to memory at
//! once; a program that needs caches enables them for a range (`cacheable`). Without caches there are no atomic
//! read-modify-writes: each word has one CPU that writes it.
//!
//! `scripts/hypervisor` builds the programs; `rampart cell create`, `load` and `start` run one. `start_cpu` starts
//! a further CPU, on a stack of its own.
#![no_std]

#[cfg(target_os = "none")]
mod bare;
#[cfg(target_os = "none")]
pub mod gicv2;
#[cfg(target_os = "none")]
pub mod launch;
#[cfg(target_os = "none")]
pub mod network;
#[cfg(target_os = "none")]
pub mod random;
pub mod remote;
#[cfg(target_os = "none")]
mod translation;
#[cfg(target_os = "none")]
pub use bare::*;
#[cfg(target_os = "none")]
pub use translation::cacheable;

/// Address of the page that the root reads.
pub const SHARED: u64 = 0x5000_0000;
/// Address of the names of shared regions (`rampart_ring::directory`), if the cell was created with names.
pub const DIRECTORY: u64 = 0x4fff_f000;
/// Address of the page that the root writes, with orders to the program.
pub const ORDERS: u64 = 0x5000_1000;
/// Address of the page that another cell writes.
pub const OTHER_CELL: u64 = 0x5000_2000;
/// Address of private memory of the cell that is not loaded.
pub const PRIVATE: u64 = 0x6000_0000;
/// Size of [`PRIVATE`] in bytes, in the tests.
pub const PRIVATE_BYTES: u64 = 1 << 20;
/// The end of the loadable memory, in the tests.
pub const LOADABLE_END: u64 = 0x4020_0000;
/// Index of the first word of the shared page with records (`rampart-ring`), one per second: [`RECORD_SECOND`].
pub const RECORDS: usize = 64;
/// A kind of record: CNTVCT_EL0, the number of timer interrupts, the longest time between two of them in this
/// second, in ticks; 64 bits each.
pub const RECORD_SECOND: u32 = 1;

/// The words of the page that the root reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Word {
    /// Incremented when the program has started.
    Begun = 0,
    /// Handled interrupts of the timer.
    Interrupts = 1,
    /// Exceptions that were not interrupts.
    Exceptions = 2,
    /// The result, defined by the program.
    Result = 3,
    /// Unexpected interrupts.
    Unexpected = 4,
    /// Interrupts of the program's device, or of its doorbell.
    Device = 5,
    /// Progress: the number of the last completed order.
    Done = 6,
    /// Software-generated interrupts received.
    Software = 7,
    /// A number that another cell reads.
    Message = 8,
    /// The number of the latest unexpected interrupt.
    UnexpectedNumber = 9,
    /// `Begun` of the second CPU.
    SecondBegun = 16,
    /// `Interrupts` of the second CPU.
    SecondInterrupts = 17,
    /// `Software` of the second CPU.
    SecondSoftware = 18,
}

/// The words of the page that the root writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Order {
    /// The order, with numbers defined by the program; 0 for none.
    Number = 0,
    /// First argument of the order.
    First = 1,
    /// Second argument of the order.
    Second = 2,
    /// Third argument of the order.
    Third = 3,
}
