// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Records in shared memory, from one writer to one reader, for example the lines of a console or the
//! results of a meter.
//!
//! Only the writer writes the memory, and the reader only reads it. The writer has no information
//! about the reader and never waits, so a reader cannot block it. Records that are not read in time
//! are overwritten, and the reader returns the number of lost words. The reader trusts no data:
//! whatever the memory contains, and however it changes meanwhile, each call ends after a bounded
//! number of reads inside the memory, and returns a record of at most the size of the caller's
//! buffer.
//!
//! The layout in words of 64 bits: [`MAGIC`]; the position up to which data is committed; the
//! position up to which data is being written; the position of the oldest record that is still
//! whole (all three in words since the writer began); the number of writers that have begun; three
//! words of 0; then the words of the ring, whose number is a power of two. A record is a word with
//! its length in bytes in the lower half and its kind in the upper half, then its bytes, padded with
//! zeros to whole words.

use core::sync::atomic::{AtomicU64, Ordering, fence};

/// The first word: "RMPRING" and the revision.
pub const MAGIC: u64 = u64::from_le_bytes(*b"RMPRING\x01");
/// Length of the header before the ring, in words.
pub const HEADER_WORDS: usize = 8;
/// Maximum length of a record, in bytes.
pub const MAXIMUM_RECORD_BYTES: usize = 4096;

const COMMITTED: usize = 1;
const RESERVED: usize = 2;
const OLDEST: usize = 3;
const WRITERS: usize = 4;

/// Returns the words of the ring: the largest power of two that fits.
fn ring(memory: &[AtomicU64]) -> Option<&[AtomicU64]> {
    let available = memory.len().checked_sub(HEADER_WORDS)?;
    let words = 1 << available.checked_ilog2()?;
    memory.get(HEADER_WORDS..HEADER_WORDS + words)
}

#[inline]
fn slot(ring: &[AtomicU64], position: u64) -> &AtomicU64 {
    // The length is a power of two and smaller than the address space.
    &ring[position as usize & (ring.len() - 1)]
}

/// Returns the length in words of a record with this first word.
const fn words_of(first: u64) -> u64 {
    1 + (first & 0xffff_ffff).div_ceil(8)
}

/// The writing side. There may be only one.
#[derive(Debug)]
pub struct RecordWriter<'a> {
    memory: &'a [AtomicU64],
    ring: &'a [AtomicU64],
    position: u64,
    oldest: u64,
}

/// The error for a record longer than [`MAXIMUM_RECORD_BYTES`] or than half of the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooLong;

impl<'a> RecordWriter<'a> {
    /// Creates an empty ring in this memory. Returns `None` if the memory is too small.
    #[must_use]
    pub fn begin(memory: &'a [AtomicU64]) -> Option<Self> {
        let ring = ring(memory)?;
        // A reader detects the change, whatever the position of the previous writer was.
        let writers = memory[WRITERS].load(Ordering::Relaxed).wrapping_add(1);
        memory[0].store(0, Ordering::Relaxed);
        fence(Ordering::Release);
        for word in &memory[1..HEADER_WORDS] {
            word.store(0, Ordering::Relaxed);
        }
        memory[WRITERS].store(writers, Ordering::Relaxed);
        memory[0].store(MAGIC, Ordering::Release);
        Some(Self {
            memory,
            ring,
            position: 0,
            oldest: 0,
        })
    }

    /// Writes a record and overwrites the oldest ones if necessary.
    ///
    /// # Errors
    /// Returns [`TooLong`] for a record that is too long.
    pub fn write(&mut self, kind: u32, record: &[u8]) -> Result<(), TooLong> {
        let words = 1 + record.len().div_ceil(8);
        if record.len() > MAXIMUM_RECORD_BYTES || words > self.ring.len() / 2 {
            return Err(TooLong);
        }
        let end = self.position.wrapping_add(words as u64);
        while end.wrapping_sub(self.oldest) > self.ring.len() as u64 {
            let first = slot(self.ring, self.oldest).load(Ordering::Relaxed);
            // The first word of the writer's own record; if another program overwrote it, no old
            // record is whole.
            let whole = self.position.wrapping_sub(self.oldest);
            self.oldest = self.oldest.wrapping_add(words_of(first).min(whole));
        }
        self.memory[OLDEST].store(self.oldest, Ordering::Relaxed);
        self.memory[RESERVED].store(end, Ordering::Relaxed);
        // A reader that sees any of the following words also sees the position up to which data is
        // being written.
        fence(Ordering::Release);
        let first = u64::from(kind) << 32 | record.len() as u64;
        slot(self.ring, self.position).store(first, Ordering::Relaxed);
        for (index, bytes) in record.chunks(8).enumerate() {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            let at = self.position.wrapping_add(1 + index as u64);
            slot(self.ring, at).store(u64::from_le_bytes(word), Ordering::Relaxed);
        }
        self.memory[COMMITTED].store(end, Ordering::Release);
        self.position = end;
        Ok(())
    }
}

/// The position of a reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Mark {
    /// Number of the writer; no writer has the number 0.
    writer: u64,
    /// Position in words since the writer began.
    position: u64,
}

/// The reading side.
#[derive(Debug)]
pub struct Reader<'a> {
    memory: &'a [AtomicU64],
    ring: &'a [AtomicU64],
    writer: u64,
    position: u64,
}

/// The result of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Read {
    /// A record. Its bytes are in the caller's buffer.
    Record {
        /// Kind, as set by the writer.
        kind: u32,
        /// Length; at most that of the buffer.
        bytes: usize,
    },
    /// There is no new record.
    Nothing,
    /// This number of words was overwritten before they were read. The next read continues after
    /// them.
    Lost(u64),
    /// The memory contains no ring, or not yet.
    NoRing,
    /// Another writer has begun. The next read continues with its first record; unread records of
    /// the previous writer are lost.
    Began,
    /// The data is invalid. The next read continues after it.
    Damaged,
}

impl<'a> Reader<'a> {
    /// Creates a reader of this memory. Returns `None` if the memory is too small for a ring.
    #[must_use]
    pub fn new(memory: &'a [AtomicU64]) -> Option<Self> {
        Self::resume(memory, Mark::default())
    }

    /// Creates a reader that continues at the position of another one. Returns `None` if the memory
    /// is too small for a ring.
    #[must_use]
    pub fn resume(memory: &'a [AtomicU64], mark: Mark) -> Option<Self> {
        Some(Self {
            memory,
            ring: ring(memory)?,
            writer: mark.writer,
            position: mark.position,
        })
    }

    /// Returns the position of the reader.
    #[must_use]
    pub const fn mark(&self) -> Mark {
        Mark {
            writer: self.writer,
            position: self.position,
        }
    }

    /// Reads the next record into `buffer`.
    pub fn read(&mut self, buffer: &mut [u8; MAXIMUM_RECORD_BYTES]) -> Read {
        if self.memory[0].load(Ordering::Acquire) != MAGIC {
            return Read::NoRing;
        }
        let writer = self.memory[WRITERS].load(Ordering::Relaxed);
        if writer != self.writer {
            let first = self.writer == 0;
            (self.writer, self.position) = (writer, 0);
            if !first {
                return Read::Began;
            }
        }
        let size = self.ring.len() as u64;
        let committed = self.memory[COMMITTED].load(Ordering::Acquire);
        let unread = committed.wrapping_sub(self.position);
        if unread == 0 {
            return Read::Nothing;
        }
        if unread > size {
            return self.skip(committed);
        }
        let first = slot(self.ring, self.position).load(Ordering::Relaxed);
        let bytes = (first & 0xffff_ffff) as usize;
        let words = words_of(first);
        if self.was_overwritten() {
            return self.skip(committed);
        }
        if bytes > MAXIMUM_RECORD_BYTES || words > unread {
            self.position = committed;
            return Read::Damaged;
        }
        for (index, bytes) in buffer[..bytes].chunks_mut(8).enumerate() {
            let at = self.position.wrapping_add(1 + index as u64);
            let word = slot(self.ring, at).load(Ordering::Relaxed).to_le_bytes();
            bytes.copy_from_slice(&word[..bytes.len()]);
        }
        if self.was_overwritten() {
            return self.skip(committed);
        }
        self.position = self.position.wrapping_add(words);
        Read::Record {
            kind: (first >> 32) as u32,
            bytes,
        }
    }

    /// Returns whether the writer may have overwritten the data that was just read.
    fn was_overwritten(&self) -> bool {
        fence(Ordering::Acquire);
        let reserved = self.memory[RESERVED].load(Ordering::Relaxed);
        reserved.wrapping_sub(self.position) > self.ring.len() as u64
    }

    /// Continues at the oldest record if its position is valid, otherwise at the position of the
    /// writer: between them the start of a record is unknown.
    fn skip(&mut self, committed: u64) -> Read {
        let oldest = self.memory[OLDEST].load(Ordering::Relaxed);
        let ahead = oldest.wrapping_sub(self.position);
        let after = committed.wrapping_sub(oldest);
        let valid = ahead != 0
            && ahead <= committed.wrapping_sub(self.position)
            && after <= self.ring.len() as u64;
        let to = if valid { oldest } else { committed };
        let lost = to.wrapping_sub(self.position);
        self.position = to;
        Read::Lost(lost)
    }
}
