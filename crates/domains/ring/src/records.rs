// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Records through shared memory, from one writer to one reader: a console's text, a meter's results.
//!
//! The memory is the writer's to write and the reader's to read, nothing more: the writer learns
//! nothing of the reader and never waits, so a reader cannot hold it up; what is not read in time is
//! overwritten, and the reader is told how much it lost. The reader believes nothing that it reads:
//! whatever the memory says, and however it changes meanwhile, each call ends after a bounded number
//! of reads inside the memory, and gives a record of at most the caller's room.
//!
//! In words of 64 bits: [`MAGIC`], how far has been written for sure, how far is being written, where
//! the oldest record begins that is still whole (all three in words since the beginning), how often a
//! writer has begun here, three of 0, then the words of the ring, whose number is a power of two. A record is a word with its length in bytes below and its kind above, then its bytes, filled
//! up with zeros to whole words.

use core::sync::atomic::{AtomicU64, Ordering, fence};

/// The first word: "RMPRING" and the revision.
pub const MAGIC: u64 = u64::from_le_bytes(*b"RMPRING\x01");
/// Before the ring, in words.
pub const HEADER_WORDS: usize = 8;
/// The longest record, in bytes.
pub const MAXIMUM_RECORD_BYTES: usize = 4096;

const COMMITTED: usize = 1;
const RESERVED: usize = 2;
const OLDEST: usize = 3;
const BEGINNINGS: usize = 4;

/// The words of the ring: a power of two of them, as many as there is room for.
fn ring(memory: &[AtomicU64]) -> Option<&[AtomicU64]> {
    let room = memory.len().checked_sub(HEADER_WORDS)?;
    let words = 1 << room.checked_ilog2()?;
    memory.get(HEADER_WORDS..HEADER_WORDS + words)
}

#[inline]
fn slot(ring: &[AtomicU64], position: u64) -> &AtomicU64 {
    // The length is a power of two and no more than an address space has words.
    &ring[position as usize & (ring.len() - 1)]
}

/// The length of a record with this first word, in words.
const fn words_of(first: u64) -> u64 {
    1 + (first & 0xffff_ffff).div_ceil(8)
}

/// The side that writes. Only one may there be.
#[derive(Debug)]
pub struct Writer<'a> {
    memory: &'a [AtomicU64],
    ring: &'a [AtomicU64],
    position: u64,
    oldest: u64,
}

/// A record that is longer than [`MAXIMUM_RECORD_BYTES`], or than half of the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooLong;

impl<'a> Writer<'a> {
    /// Begins an empty ring in this memory; `None` if it has no room for one.
    #[must_use]
    pub fn begin(memory: &'a [AtomicU64]) -> Option<Self> {
        let ring = ring(memory)?;
        // A reader notices by this, wherever the last writer stood.
        let beginnings = memory[BEGINNINGS].load(Ordering::Relaxed).wrapping_add(1);
        memory[0].store(0, Ordering::Relaxed);
        fence(Ordering::Release);
        for word in &memory[1..HEADER_WORDS] {
            word.store(0, Ordering::Relaxed);
        }
        memory[BEGINNINGS].store(beginnings, Ordering::Relaxed);
        memory[0].store(MAGIC, Ordering::Release);
        Some(Self {
            memory,
            ring,
            position: 0,
            oldest: 0,
        })
    }

    /// Writes a record; the oldest are overwritten.
    ///
    /// # Errors
    /// [`TooLong`].
    pub fn write(&mut self, kind: u32, record: &[u8]) -> Result<(), TooLong> {
        let words = 1 + record.len().div_ceil(8);
        if record.len() > MAXIMUM_RECORD_BYTES || words > self.ring.len() / 2 {
            return Err(TooLong);
        }
        let end = self.position.wrapping_add(words as u64);
        while end.wrapping_sub(self.oldest) > self.ring.len() as u64 {
            let first = slot(self.ring, self.oldest).load(Ordering::Relaxed);
            // Its own word, unless somebody else wrote there: then nothing old is whole.
            let whole = self.position.wrapping_sub(self.oldest);
            self.oldest = self.oldest.wrapping_add(words_of(first).min(whole));
        }
        self.memory[OLDEST].store(self.oldest, Ordering::Relaxed);
        self.memory[RESERVED].store(end, Ordering::Relaxed);
        // A reader that sees any word below also sees how far is being written.
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

/// How far a reader has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Mark {
    /// Of the writer that it reads; none has the number 0.
    beginning: u64,
    /// In words since then.
    position: u64,
}

/// The side that reads.
#[derive(Debug)]
pub struct Reader<'a> {
    memory: &'a [AtomicU64],
    ring: &'a [AtomicU64],
    beginning: u64,
    position: u64,
}

/// What a look into the ring gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Read {
    /// A record: its kind and its length; the bytes are in the caller's room.
    Record {
        /// As the writer said.
        kind: u32,
        /// At most as long as the room.
        bytes: usize,
    },
    /// Nothing new.
    Nothing,
    /// So many words were overwritten before they were read; the next look begins after them.
    Lost(u64),
    /// No ring is there (yet).
    NoRing,
    /// A writer began anew; the next look begins with its first record. What the last one wrote and
    /// was not read is gone.
    Began,
    /// What is there makes no sense; the next look begins after it.
    Damaged,
}

impl<'a> Reader<'a> {
    /// A reader of what this memory will hold; `None` if it has no room for a ring.
    #[must_use]
    pub fn new(memory: &'a [AtomicU64]) -> Option<Self> {
        Self::resume(memory, Mark::default())
    }

    /// A reader that goes on where another one stood.
    #[must_use]
    pub fn resume(memory: &'a [AtomicU64], mark: Mark) -> Option<Self> {
        Some(Self {
            memory,
            ring: ring(memory)?,
            beginning: mark.beginning,
            position: mark.position,
        })
    }

    /// Where it stands.
    #[must_use]
    pub const fn mark(&self) -> Mark {
        Mark {
            beginning: self.beginning,
            position: self.position,
        }
    }

    /// The next record, into `room`.
    pub fn read(&mut self, room: &mut [u8; MAXIMUM_RECORD_BYTES]) -> Read {
        if self.memory[0].load(Ordering::Acquire) != MAGIC {
            return Read::NoRing;
        }
        let beginning = self.memory[BEGINNINGS].load(Ordering::Relaxed);
        if beginning != self.beginning {
            let first = self.beginning == 0;
            (self.beginning, self.position) = (beginning, 0);
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
        for (index, bytes) in room[..bytes].chunks_mut(8).enumerate() {
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

    /// Whether the writer has come so far around that it may have touched what was just read.
    fn was_overwritten(&self) -> bool {
        fence(Ordering::Acquire);
        let reserved = self.memory[RESERVED].load(Ordering::Relaxed);
        reserved.wrapping_sub(self.position) > self.ring.len() as u64
    }

    /// Goes on where the oldest record begins, if that can be, else where the writer stands: between
    /// them nobody can tell where a record begins.
    fn skip(&mut self, committed: u64) -> Read {
        let oldest = self.memory[OLDEST].load(Ordering::Relaxed);
        let ahead = oldest.wrapping_sub(self.position);
        let after = committed.wrapping_sub(oldest);
        let sensible = ahead != 0
            && ahead <= committed.wrapping_sub(self.position)
            && after <= self.ring.len() as u64;
        let to = if sensible { oldest } else { committed };
        let lost = to.wrapping_sub(self.position);
        self.position = to;
        Read::Lost(lost)
    }
}
