// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bytes both ways between a side that calls and one that answers. Each side has a section that it
//! alone writes: how far it has written, how far it has taken what the other one wrote, and a ring
//! with its bytes. Nothing is lost: who has no room is told so and tries again.
//!
//! A section, in words of 64 bits: [`MAGIC`]; the number of this side's conversation, 0 for none; the
//! number of the other side's that it answers, 0 for none; bytes written; bytes taken; three of 0; then
//! the words of the ring, a power of two of them.
//!
//! The caller takes a new number. Who answers sees a call that answers nobody yet, takes a number of
//! its own and names the caller's; the caller then names that. Whichever side goes away or begins
//! anew has another number from then on, and the other one notices: a conversation is never
//! continued by somebody who does not know it.
//!
//! Nothing that the other side wrote is believed: each call ends after a bounded number of accesses
//! inside the sections, and counts that cannot be end the conversation as [`Lost::Damaged`].

use core::num::NonZeroU64;
use core::sync::atomic::{AtomicU64, Ordering, fence};

/// The first word: "RMPSTRM" and the revision.
pub const MAGIC: u64 = u64::from_le_bytes(*b"RMPSTRM\x01");
/// Before the ring, in words.
pub const HEADER_WORDS: usize = 8;

const NUMBER: usize = 1;
const ANSWERED: usize = 2;
const WRITTEN: usize = 3;
const TAKEN: usize = 4;

/// Why a conversation is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lost {
    /// The other side ended it, or began another one.
    Gone,
    /// The other side's section says what cannot be.
    Damaged,
}

impl core::fmt::Display for Lost {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Gone => "the other side of the shared memory ended the conversation",
            Self::Damaged => "the other side of the shared memory wrote what cannot be",
        })
    }
}

impl core::error::Error for Lost {}

/// A side's memory: its header, and its ring of so many words as are a power of two.
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

    /// The word of the ring that has the byte at this position of the stream.
    fn word(&self, position: u64) -> &'a AtomicU64 {
        // The length is a power of two, and less than an address space has bytes.
        &self.ring[(position / 8) as usize & (self.ring.len() - 1)]
    }

    /// Begins a conversation; the other side sees it with its number, last.
    fn begin(&self, number: NonZeroU64, answered: u64) {
        self.header[NUMBER].store(0, Ordering::Relaxed);
        // Nobody may take the new counts for the old conversation's.
        fence(Ordering::Release);
        self.header[WRITTEN].store(0, Ordering::Relaxed);
        self.header[TAKEN].store(0, Ordering::Relaxed);
        self.header[ANSWERED].store(answered, Ordering::Relaxed);
        self.store(0, MAGIC);
        self.store(NUMBER, number.get());
    }

    /// The number of its conversation.
    fn number(&self) -> Option<NonZeroU64> {
        if self.load(0) != MAGIC {
            return None;
        }
        NonZeroU64::new(self.load(NUMBER))
    }
}

/// One side of a conversation. It ends when this is dropped.
#[derive(Debug)]
pub struct Side<'a> {
    own: Section<'a>,
    other: Section<'a>,
    number: NonZeroU64,
    /// The other side's number, once it has answered.
    partner: Option<NonZeroU64>,
    written: u64,
    taken: u64,
}

impl<'a> Side<'a> {
    /// Calls, under a number that no earlier call had; `None` if a section has no room for a ring.
    /// What is written before an answer waits for it.
    #[must_use]
    pub fn call(own: &'a [AtomicU64], other: &'a [AtomicU64], number: NonZeroU64) -> Option<Self> {
        let (own, other) = (Section::new(own)?, Section::new(other)?);
        own.begin(number, 0);
        Some(Self::new(own, other, number, None))
    }

    /// Answers a call that nobody has answered, under a number that no earlier answer had; `None` if
    /// there is no such call, or a section has no room for a ring.
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

    /// Whether the other side is there; false as long as a call is not answered.
    ///
    /// # Errors
    /// If the conversation is over.
    pub fn is_connected(&mut self) -> Result<bool, Lost> {
        let present = self.other.number();
        // A caller answers its partner only a moment later; who answers knows the caller from the
        // start.
        let knows_us = || self.other.load(ANSWERED) == self.number.get();
        match (self.partner, present) {
            (Some(partner), Some(present)) if partner == present => Ok(true),
            (Some(_), _) => Err(Lost::Gone),
            (None, Some(present)) if knows_us() => {
                self.partner = Some(present);
                self.own.store(ANSWERED, present.get());
                Ok(true)
            }
            (None, _) => Ok(false),
        }
    }

    /// Writes as much as there is room for; how many bytes that was.
    ///
    /// # Errors
    /// If the conversation is over.
    pub fn write(&mut self, bytes: &[u8]) -> Result<usize, Lost> {
        let taken = if self.is_connected()? {
            self.other.load(TAKEN)
        } else {
            0
        };
        let waiting = self.written.wrapping_sub(taken);
        let room = self.own.bytes().checked_sub(waiting).ok_or_else(|| {
            // Counts of a conversation that ended meanwhile are no damage.
            self.blame()
        })?;
        let count = bytes.len().min(room as usize);
        let mut rest = &bytes[..count];
        while !rest.is_empty() {
            let within = (self.written % 8) as usize;
            let (now, later) = rest.split_at(rest.len().min(8 - within));
            let word = self.own.word(self.written);
            let mut eight = word.load(Ordering::Relaxed).to_le_bytes();
            eight[within..within + now.len()].copy_from_slice(now);
            word.store(u64::from_le_bytes(eight), Ordering::Relaxed);
            self.written = self.written.wrapping_add(now.len() as u64);
            rest = later;
        }
        self.own.store(WRITTEN, self.written);
        Ok(count)
    }

    /// Takes as much as has come and fits; how many bytes that was.
    ///
    /// # Errors
    /// If the conversation is over.
    pub fn read(&mut self, room: &mut [u8]) -> Result<usize, Lost> {
        if !self.is_connected()? {
            return Ok(0);
        }
        let waiting = self.other.load(WRITTEN).wrapping_sub(self.taken);
        if waiting > self.other.bytes() {
            return Err(self.blame());
        }
        let count = room.len().min(waiting as usize);
        let mut position = self.taken;
        let mut rest = &mut room[..count];
        while !rest.is_empty() {
            let within = (position % 8) as usize;
            let (now, later) = rest.split_at_mut(rest.len().min(8 - within));
            let eight = self
                .other
                .word(position)
                .load(Ordering::Relaxed)
                .to_le_bytes();
            now.copy_from_slice(&eight[within..within + now.len()]);
            position = position.wrapping_add(now.len() as u64);
            rest = later;
        }
        // Who began anew meanwhile wrote over what was read here.
        fence(Ordering::Acquire);
        self.is_connected()?;
        self.taken = position;
        self.own.store(TAKEN, self.taken);
        Ok(count)
    }

    /// Whether the other side has taken everything.
    ///
    /// # Errors
    /// If the conversation is over.
    pub fn is_taken(&mut self) -> Result<bool, Lost> {
        Ok(self.is_connected()? && self.other.load(TAKEN) == self.written)
    }

    /// Why counts cannot be: the other side went away, or it is mad.
    fn blame(&mut self) -> Lost {
        self.is_connected().err().unwrap_or(Lost::Damaged)
    }
}

impl Drop for Side<'_> {
    fn drop(&mut self) {
        // Another side of the same section may have taken over.
        if self.own.load(NUMBER) == self.number.get() {
            self.own.store(NUMBER, 0);
        }
    }
}

/// The bytes that a section's owner wrote last, as many as its ring still has, oldest first, and how
/// many it ever wrote in this conversation: for who finds the memory when both sides are gone.
/// `None` if it is no section.
pub fn leftover(memory: &[AtomicU64], mut take: impl FnMut(u8)) -> Option<u64> {
    let section = Section::new(memory)?;
    if section.load(0) != MAGIC {
        return None;
    }
    let written = section.load(WRITTEN);
    let first = written.saturating_sub(section.bytes());
    for position in first..written {
        let eight = section.word(position).load(Ordering::Relaxed).to_le_bytes();
        take(eight[(position % 8) as usize]);
    }
    Some(written)
}
