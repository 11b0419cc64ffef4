// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a program in a cell stands on where there is no operating system: its beginning, the
//! interrupt controller, the timer, and a page that the root reads.
//!
//! A program defines `cell_main` and `cell_exception`. It begins at `0x4000_0000`,
//! where its loadable memory must be, and finds the page at [`SHARED`]. Its MMU stays off, so that
//! what it writes is in memory at once; a program that measures caches needs more than this.
#![no_std]

#[cfg(target_os = "none")]
mod bare;
#[cfg(target_os = "none")]
pub use bare::*;

/// Where the page is that the root reads.
pub const SHARED: u64 = 0x5000_0000;

/// The words of that page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Word {
    /// Grows when the program has begun.
    Begun = 0,
    /// Interrupts that were handled.
    Interrupts = 1,
    /// Exceptions that were none.
    Exceptions = 2,
    /// What the program found, by its own rules.
    Result = 3,
    /// Interrupts that nobody had asked for.
    Unexpected = 4,
}
