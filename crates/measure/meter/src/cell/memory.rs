// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The memory that cell and root share, in words of 64 bits: one region that the cell writes, one
//! that the root writes.

use core::sync::atomic::{AtomicU64, Ordering};

/// Of everything in [`crate::cell`].
pub const REVISION: u64 = 2;
/// The region that the cell writes, in bytes.
pub const OUTPUT_BYTES: usize = 1 << 20;
/// The region that the root writes, in bytes.
pub const ORDERS_BYTES: usize = 4096;

/// Where the program makes loads, as it sees its memory: behind itself.
pub const LOAD_START: u64 = 0x4020_0000;
/// So many bytes: more than caches hold.
pub const LOAD_BYTES: usize = 16 << 20;

/// Where the ring of blocks begins, in words: after a page of single ones.
const BLOCKS: usize = 512;
/// Where the ring of samples begins.
const SAMPLES: usize = 8192;

/// The single words of the cell's region. The first five are those of every program of a cell
/// without an operating system (`hypervisor/cells/src/lib.rs`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Word {
    /// Grows when the program has begun.
    Begun = 0,
    /// Interrupts that were handled.
    Interrupts = 1,
    /// Exceptions that were none.
    Exceptions = 2,
    /// Not used.
    Result = 3,
    /// Interrupts that nobody had asked for.
    Unexpected = 4,
    /// [`REVISION`], written after the frequency.
    Revision = 5,
    /// The counter's frequency in hertz, as the program reads it.
    Frequency = 6,
    /// End of the latest sample on the cell's clock, in nanoseconds: a sign of life.
    LastSample = 7,
    /// Number of the order to load that was taken last.
    LoadBegun = 16,
    /// Number of the order to load that was over last.
    LoadEnded = 17,
    /// Of the order that was taken last: time that the load had so far, in nanoseconds.
    LoadTime = 18,
    /// The same in slices ([`crate::engine::load`]).
    LoadSlices = 19,
}

/// The region that the cell writes.
#[derive(Debug, Clone, Copy)]
pub struct CellOutput<'a>(&'a [AtomicU64]);

impl<'a> CellOutput<'a> {
    /// In this memory; none if it is too small.
    #[must_use]
    pub fn new(words: &'a [AtomicU64]) -> Option<Self> {
        Some(Self(words.get(..OUTPUT_BYTES / 8)?))
    }

    /// A single word.
    #[must_use]
    pub fn read(&self, word: Word) -> u64 {
        self.0[word as usize].load(Ordering::Acquire)
    }

    /// Writes a single word. A store alone: there is one writer, and shared memory knows no more.
    pub fn write(&self, word: Word, value: u64) {
        self.0[word as usize].store(value, Ordering::Release);
    }

    /// One more.
    pub fn count(&self, word: Word) {
        self.write(word, self.read(word).wrapping_add(1));
    }

    /// The memory of the ring of blocks.
    #[must_use]
    pub fn blocks(&self) -> &'a [AtomicU64] {
        &self.0[BLOCKS..SAMPLES]
    }

    /// The memory of the ring of samples.
    #[must_use]
    pub fn samples(&self) -> &'a [AtomicU64] {
        &self.0[SAMPLES..]
    }
}
