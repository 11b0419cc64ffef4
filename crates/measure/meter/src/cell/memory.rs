// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The memory that a cell shares with the root, in words of 64 bits: one region that the cell
//! writes, one that the root writes.

use core::sync::atomic::{AtomicU64, Ordering};

/// Revision of the memory layout and of the protocol in [`crate::cell`].
pub const REVISION: u64 = 2;
/// Size of the region that the cell writes, in bytes.
pub const OUTPUT_BYTES: usize = 1 << 20;
/// Size of the region that the root writes, in bytes.
pub const ORDERS_BYTES: usize = 4096;

/// Address of the memory for loads in the cell's address space, behind the program.
pub const LOAD_START: u64 = 0x4020_0000;
/// Size of the memory for loads in bytes; larger than caches.
pub const LOAD_BYTES: usize = 16 << 20;

/// Start of the ring of blocks in words, after a page of single words.
const BLOCKS: usize = 512;
/// Start of the ring of samples in words.
const SAMPLES: usize = 8192;

/// The single words of the cell's region. The first five are common to all programs of cells
/// without an operating system (`hypervisor/cells/src/lib.rs`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Word {
    /// Incremented when the program begins.
    Begun = 0,
    /// Number of handled interrupts.
    Interrupts = 1,
    /// Number of exceptions other than interrupts.
    Exceptions = 2,
    /// Not used.
    Result = 3,
    /// Number of interrupts that were not requested.
    Unexpected = 4,
    /// [`REVISION`], written after the frequency.
    Revision = 5,
    /// The counter's frequency in hertz, as the program reads it.
    Frequency = 6,
    /// End of the latest sample on the cell's clock, in nanoseconds; shows that the program is
    /// alive.
    LastSample = 7,
    /// Number of the load order that was taken last.
    LoadBegun = 16,
    /// Number of the load order that ended last.
    LoadEnded = 17,
    /// Time that the load of the last order has run so far, in nanoseconds.
    LoadTime = 18,
    /// Slices that it has run so far ([`crate::engine::load`]).
    LoadSlices = 19,
}

/// The region that the cell writes.
#[derive(Debug, Clone, Copy)]
pub struct CellOutput<'a>(&'a [AtomicU64]);

impl<'a> CellOutput<'a> {
    /// Creates the region in this memory. Returns `None` if the memory is too small.
    #[must_use]
    pub fn new(words: &'a [AtomicU64]) -> Option<Self> {
        Some(Self(words.get(..OUTPUT_BYTES / 8)?))
    }

    /// Returns a single word.
    #[must_use]
    pub fn read(&self, word: Word) -> u64 {
        self.0[word as usize].load(Ordering::Acquire)
    }

    /// Writes a single word. A plain store, because there is one writer and no read-modify-write is
    /// needed.
    pub fn write(&self, word: Word, value: u64) {
        self.0[word as usize].store(value, Ordering::Release);
    }

    /// Increments a single word.
    pub fn count(&self, word: Word) {
        self.write(word, self.read(word).wrapping_add(1));
    }

    /// Returns the memory of the ring of blocks.
    #[must_use]
    pub fn blocks(&self) -> &'a [AtomicU64] {
        &self.0[BLOCKS..SAMPLES]
    }

    /// Returns the memory of the ring of samples.
    #[must_use]
    pub fn samples(&self) -> &'a [AtomicU64] {
        &self.0[SAMPLES..]
    }
}
