// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a program in a cell stands on where there is no operating system: its beginning, the
//! interrupt controller, the timer, a page that the root reads and one that it writes.
//!
//! A program defines `cell_main(argument)` and `cell_exception(now)`; `src/bin/example.rs` is the smallest,
//! `src/bin/meter.rs` the one that measures. `cell_exception` is called for every exception, with the
//! counter (CNTVCT_EL0) as it was when the exception was taken; interrupts are its only business, for a
//! program that faults ends there. A program begins at `0x4000_0000`,
//! where its loadable memory must be, and finds the pages at [`SHARED`] and, where its configuration
//! has one, [`ORDERS`]. Its MMU stays off, so that what it writes is in memory at once; a program that
//! needs caches says for which memory (`cacheable`), and the rest stays as it is. Without caches there
//! are no atomic read-modify-writes either: each word has one CPU that writes it.
//!
//! `scripts/hypervisor` builds them; `rampart cell create`, `load` and `start` run one.
//!
//! A further CPU is started by `start_cpu`, on a stack of its own.
#![no_std]

#[cfg(target_os = "none")]
mod bare;
#[cfg(target_os = "none")]
mod translation;
#[cfg(target_os = "none")]
pub use bare::*;
#[cfg(target_os = "none")]
pub use translation::cacheable;

/// Where the page is that the root reads.
pub const SHARED: u64 = 0x5000_0000;
/// Where the names of shared regions are (`rampart_ring::directory`), if the cell was made with any.
pub const DIRECTORY: u64 = 0x4fff_f000;
/// Where the page is that the root writes: what the program is to do next.
pub const ORDERS: u64 = 0x5000_1000;
/// Where a neighbour's page is, which the neighbour writes.
pub const NEIGHBOUR: u64 = 0x5000_2000;
/// Where memory is that is the cell's own and not loaded.
pub const PRIVATE: u64 = 0x6000_0000;
/// Its size in bytes, in the tests.
pub const PRIVATE_BYTES: u64 = 1 << 20;
/// Where the loadable memory ends, in the tests.
pub const LOADABLE_END: u64 = 0x4020_0000;
/// From this word of the shared page on, records of what happened in each second (`rampart-ring`:
/// its records): [`RECORD_SECOND`].
pub const RECORDS: usize = 64;
/// Kind of a record: CNTVCT_EL0, the interrupts of the timer so far, the longest time between two of
/// them in this second, in ticks; 64 bits each.
pub const RECORD_SECOND: u32 = 1;

/// The words of that page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Word {
    /// Grows when the program has begun.
    Begun = 0,
    /// Interrupts of the timer that were handled.
    Interrupts = 1,
    /// Exceptions that were none.
    Exceptions = 2,
    /// What the program found, by its own rules.
    Result = 3,
    /// Interrupts that nobody had asked for.
    Unexpected = 4,
    /// Interrupts of the program's device, or of its bell.
    Device = 5,
    /// How far the program is: the number of the order that is done.
    Done = 6,
    /// Software-generated interrupts that came.
    Software = 7,
    /// What a neighbour is to read.
    Message = 8,
    /// As `Begun`, of the second CPU.
    SecondBegun = 16,
    /// As `Interrupts`, of the second CPU.
    SecondInterrupts = 17,
    /// As `Software`, of the second CPU.
    SecondSoftware = 18,
}

/// The words of the page that the root writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Order {
    /// What to do, by the program's own numbers; 0 for nothing.
    Number = 0,
    /// What it needs.
    First = 1,
    /// What it needs.
    Second = 2,
    /// What it needs.
    Third = 3,
}
