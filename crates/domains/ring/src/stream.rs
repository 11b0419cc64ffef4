// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bytes in both directions between a calling and an answering side. Each side has a section that
//! only it writes: the number of bytes written, the number of bytes taken from the other side, and a
//! ring with its bytes. Nothing is lost: a write returns the number of bytes that fit, and the caller
//! repeats it with the rest.
//!
//! The layout of a section in words of 64 bits: [`MAGIC`]; the number of this side's conversation,
//! 0 for none; the number of the other side's conversation that it answers, 0 for none; bytes
//! written; bytes taken; three words of 0; then the words of the ring, whose number is a power of
//! two.
//!
//! The caller takes a new number. The answering side finds a call without an answer, takes a number
//! of its own and writes the caller's number as the answered one; then the caller writes the number
//! of the answering side. A side that ends or restarts has another number from then on, which the
//! other side detects: a restarted side never continues an old conversation.
//!
//! Neither side trusts the other: each call ends after a bounded number of accesses inside the
//! sections, and impossible counts end the conversation with [`Lost::Damaged`].

use core::num::NonZeroU64;
use core::sync::atomic::{AtomicU64, Ordering, fence};

/// The first word: "RMPSTRM" and the revision.
pub const MAGIC: u64 = u64::from_le_bytes(*b"RMPSTRM\x01");
/// Length of the header before the ring, in words.
pub const HEADER_WORDS: usize = 8;

const NUMBER: usize = 1;
const ANSWERED: usize = 2;
const WRITTEN: usize = 3;
const TAKEN: usize = 4;

/// The reason why a conversation is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lost {
    /// The other side ended the conversation, or began another one.
    Gone,
    /// The other side's section contains invalid counts.
    Damaged,
}

impl core::fmt::Display for Lost {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Gone => "the other side of the shared memory ended the conversation",
            Self::Damaged => "the other side of the shared memory wrote invalid counts",
        })
    }
}

impl core::error::Error for Lost {}

/// The memory of a side: its header, and its ring, whose length is a power of two.
#[derive(Debug, Clone, Copy)]
struct Section<'a> {
    header: &'a [AtomicU64],
    ring: &'a [AtomicU64],
}

impl<'a> Section<'a> {
    fn new(memory: &'a [AtomicU64]) -> Option<Self> {
        let (header, rest) = memory.split_at_checked(HEADER_WORDS)?;
        let words = 1 << rest.len().checked_ilog2()?;
        Some(Self {
            header,
            ring: &rest[..words],
        })
    }

    const fn bytes(&self) -> u64 {
        self.ring.len() as u64 * 8
    }

    fn load(&self, field: usize) -> u64 {
        self.header[field].load(Ordering::Acquire)
    }

    fn store(&self, field: usize, value: u64) {
        self.header[field].store(value, Ordering::Release);
    }

    /// Returns the word of the ring with the byte at this position of the stream.
    fn word(&self, position: u64) -> &'a AtomicU64 {
        // The length is a power of two and smaller than the address space.
        &self.ring[(position / 8) as usize & (self.ring.len() - 1)]
    }

    /// Begins a conversation. The number is written last, because it makes the conversation
    /// visible.
    fn begin(&self, number: NonZeroU64, answered: u64) {
        self.header[NUMBER].store(0, Ordering::Relaxed);
        // The new counts must not be read as those of the old conversation.
        fence(Ordering::Release);
        self.header[WRITTEN].store(0, Ordering::Relaxed);
        self.header[TAKEN].store(0, Ordering::Relaxed);
        self.header[ANSWERED].store(answered, Ordering::Relaxed);
        self.store(0, MAGIC);
        self.store(NUMBER, number.get());
    }

    /// Returns the number of the conversation, or `None` if the section has none.
    fn number(&self) -> Option<NonZeroU64> {
        if self.load(0) != MAGIC {
            return None;
        }
        NonZeroU64::new(self.load(NUMBER))
    }
}

/// One side of a conversation. Dropping it ends the conversation.
#[derive(Debug)]
pub struct StreamSide<'a> {
    own: Section<'a>,
    other: Section<'a>,
    number: NonZeroU64,
    /// The other side's number, once known.
    partner: Option<NonZeroU64>,
    written: u64,
    taken: u64,
}

impl<'a> StreamSide<'a> {
    /// Calls with a number that no earlier call had. Returns `None` if a section is too small for a
    /// ring. Bytes that are written before an answer are kept for it.
    #[must_use]
    pub fn call(own: &'a [AtomicU64], other: &'a [AtomicU64], number: NonZeroU64) -> Option<Self> {
        let (own, other) = (Section::new(own)?, Section::new(other)?);
        own.begin(number, 0);
        Some(Self::new(own, other, number, None))
    }

    /// Answers a call without an answer, with a number that no earlier answer had. Returns `None`
    /// if there is no such call, or if a section is too small for a ring.
    #[must_use]
    pub fn answer(
        own: &'a [AtomicU64],
        other: &'a [AtomicU64],
        number: NonZeroU64,
    ) -> Option<Self> {
        let (own, other) = (Section::new(own)?, Section::new(other)?);
        let caller = other.number()?;
        if other.load(ANSWERED) != 0 {
            return None;
        }
        own.begin(number, caller.get());
        Some(Self::new(own, other, number, Some(caller)))
    }

    const fn new(
        own: Section<'a>,
        other: Section<'a>,
        number: NonZeroU64,
        partner: Option<NonZeroU64>,
    ) -> Self {
        Self {
            own,
            other,
            number,
            partner,
            written: 0,
            taken: 0,
        }
    }

    /// Returns whether the other side is connected; `false` until a call is answered.
    ///
    /// # Errors
    /// Returns an error if the conversation is over.
    pub fn is_connected(&mut self) -> Result<bool, Lost> {
        let present = self.other.number();
        // A caller writes the number of its partner with a short delay; the answering side knows
        // the caller from the start.
        let is_answered = || self.other.load(ANSWERED) == self.number.get();
        match (self.partner, present) {
            (Some(partner), Some(present)) if partner == present => Ok(true),
            (Some(_), _) => Err(Lost::Gone),
            (None, Some(present)) if is_answered() => {
                self.partner = Some(present);
                self.own.store(ANSWERED, present.get());
                Ok(true)
            }
            (None, _) => Ok(false),
        }
    }

    /// Writes as many bytes as fit and returns their number.
    ///
    /// # Errors
    /// Returns an error if the conversation is over.
    pub fn write(&mut self, bytes: &[u8]) -> Result<usize, Lost> {
        let taken = if self.is_connected()? {
            self.other.load(TAKEN)
        } else {
            0
        };
        let waiting = self.written.wrapping_sub(taken);
        let free = self.own.bytes().checked_sub(waiting).ok_or_else(|| {
            // Invalid counts are no damage if the conversation has ended meanwhile.
            self.reason()
        })?;
        let count = bytes.len().min(free as usize);
        let mut rest = &bytes[..count];
        while !rest.is_empty() {
            let within = (self.written % 8) as usize;
            let (now, later) = rest.split_at(rest.len().min(8 - within));
            let word = self.own.word(self.written);
            let mut word_bytes = word.load(Ordering::Relaxed).to_le_bytes();
            word_bytes[within..within + now.len()].copy_from_slice(now);
            word.store(u64::from_le_bytes(word_bytes), Ordering::Relaxed);
            self.written = self.written.wrapping_add(now.len() as u64);
            rest = later;
        }
        self.own.store(WRITTEN, self.written);
        Ok(count)
    }

    /// Reads as many bytes as are available and fit, and returns their number.
    ///
    /// # Errors
    /// Returns an error if the conversation is over.
    pub fn read(&mut self, buffer: &mut [u8]) -> Result<usize, Lost> {
        if !self.is_connected()? {
            return Ok(0);
        }
        let waiting = self.other.load(WRITTEN).wrapping_sub(self.taken);
        if waiting > self.other.bytes() {
            return Err(self.reason());
        }
        let count = buffer.len().min(waiting as usize);
        let mut position = self.taken;
        let mut rest = &mut buffer[..count];
        while !rest.is_empty() {
            let within = (position % 8) as usize;
            let (now, later) = rest.split_at_mut(rest.len().min(8 - within));
            let word_bytes = self
                .other
                .word(position)
                .load(Ordering::Relaxed)
                .to_le_bytes();
            now.copy_from_slice(&word_bytes[within..within + now.len()]);
            position = position.wrapping_add(now.len() as u64);
            rest = later;
        }
        // A side that restarted meanwhile may have overwritten the bytes that were read here.
        fence(Ordering::Acquire);
        self.is_connected()?;
        self.taken = position;
        self.own.store(TAKEN, self.taken);
        Ok(count)
    }

    /// Returns whether the other side has taken all bytes.
    ///
    /// # Errors
    /// Returns an error if the conversation is over.
    pub fn is_taken(&mut self) -> Result<bool, Lost> {
        Ok(self.is_connected()? && self.other.load(TAKEN) == self.written)
    }

    /// Returns the reason for invalid counts: the other side ended the conversation, or its section
    /// is damaged.
    fn reason(&mut self) -> Lost {
        self.is_connected().err().unwrap_or(Lost::Damaged)
    }
}

impl Drop for StreamSide<'_> {
    fn drop(&mut self) {
        // Another owner of the same section may have begun a conversation.
        if self.own.load(NUMBER) == self.number.get() {
            self.own.store(NUMBER, 0);
        }
    }
}

/// Passes the last bytes that the owner of a section wrote, as many as the ring still contains,
/// oldest first, to `take`. Returns the number of bytes written in this conversation. For reading
/// the memory after both sides have ended. Returns `None` if the memory is not a section.
pub fn leftover(memory: &[AtomicU64], mut take: impl FnMut(u8)) -> Option<u64> {
    let section = Section::new(memory)?;
    if section.load(0) != MAGIC {
        return None;
    }
    let written = section.load(WRITTEN);
    let first = written.saturating_sub(section.bytes());
    for position in first..written {
        let word_bytes = section.word(position).load(Ordering::Relaxed).to_le_bytes();
        take(word_bytes[(position % 8) as usize]);
    }
    Some(written)
}
