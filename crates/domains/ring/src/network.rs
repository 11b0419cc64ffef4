// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Ethernet frames in both directions between two sides, for example the root and a cell. Each side has a
//! section that only it writes. `kernel/net/ring.h` is the same in C; a test compares both.
//!
//! The layout of a section, in words of 64 bits, little-endian:
//!
//! ```text
//! 0     MAGIC
//! 1     the number of this side's session, 0 while it is down
//! 2     the number of the other side's session that it answers, 0 for none
//! 16    frames written to this section
//! 32    frames taken from the other section
//! 48    receive mark: ring this side when the frames written to the other section exceed it
//! 64    send mark: ring this side when the frames taken from this section exceed it
//! 512   slots, a power of two of them, each of 256 words: the length of a frame in bytes, its bytes
//! ```
//!
//! **States of a side**, by what it reads in the other section:
//!
//! ```text
//! Absent     the other side has no number                     → Waiting when it has one
//! Waiting    it has one, which this side answers, with its    → Connected when it answers
//!            own counts set to 0 before
//! Connected  both answer each other; frames are exchanged     → Absent, Waiting when it has no or a new number
//!                                                             → Refused after impossible counts
//! Refused    this side does not answer that number            → Absent, Waiting when it has no or a new number
//! ```
//!
//! Counts are read only while connected. A side that restarts takes a number that it never had before, so no
//! count of an earlier session is read as one of the present session.
//!
//! **Rings.** A side that finds nothing to do sets its mark, then looks again, and only then sleeps. The other
//! side changes its count, then looks at the mark, and rings if the count has just exceeded it. Both have a full
//! barrier between, so one of them sees the other. A mark causes one ring at most.
//!
//! **Neither side trusts the other.** Each call makes a bounded number of accesses inside the sections. Own
//! counts are never read back. A length is loaded once and checked before it is used.

use core::num::NonZeroU64;
use core::sync::atomic::{AtomicU64, Ordering, fence};

/// The first word: "RMPNETW" and the revision.
pub const MAGIC: u64 = u64::from_le_bytes(*b"RMPNETW\x01");
/// Index of the number of a session.
pub const NUMBER: usize = 1;
/// Index of the answered number.
pub const ANSWERED: usize = 2;
/// Index of the count of written frames.
pub const WRITTEN: usize = 16;
/// Index of the count of taken frames.
pub const TAKEN: usize = 32;
/// Index of the receive mark.
pub const RECEIVE_MARK: usize = 48;
/// Index of the send mark.
pub const SEND_MARK: usize = 64;
/// Index of the first slot.
pub const HEADER_WORDS: usize = 512;
/// Length of a slot in words.
pub const SLOT_WORDS: usize = 256;
/// Minimum length of a frame in bytes: an Ethernet header.
pub const LEAST_FRAME: usize = 14;
/// Maximum length of a frame in bytes.
pub const MOST_FRAME: usize = (SLOT_WORDS - 1) * 8;
/// Maximum number of slots: a section of 16 MiB and its header.
pub const MOST_SLOTS: u64 = 8192;

/// A section. Implementations other than that for `[AtomicU64]` are for tests.
pub trait Section {
    /// Returns the number of words.
    fn words(&self) -> usize;
    /// Loads a word with this index, which is less than the number of words.
    fn load(&self, index: usize, order: Ordering) -> u64;
    /// Stores a word.
    fn store(&self, index: usize, value: u64, order: Ordering);
    /// Orders all earlier accesses before all later ones.
    fn full_barrier(&self) {
        fence(Ordering::SeqCst);
    }
}

impl Section for &[AtomicU64] {
    fn words(&self) -> usize {
        self.len()
    }
    fn load(&self, index: usize, order: Ordering) -> u64 {
        self[index].load(order)
    }
    fn store(&self, index: usize, value: u64, order: Ordering) {
        self[index].store(value, order);
    }
}

/// The state of a side, see the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LinkState {
    /// The other side is down.
    Absent,
    /// The other side has not answered yet.
    Waiting,
    /// Frames are exchanged.
    Connected,
    /// The other side wrote impossible counts.
    Refused,
}

/// The result of a call that transfers a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameTransfer {
    /// A frame of this length was transferred.
    Frame {
        /// Length in bytes.
        bytes: usize,
        /// Whether the other side must be rung.
        ring: bool,
    },
    /// The other side wrote a frame of an impossible length, which was skipped.
    Skipped {
        /// Whether the other side must be rung.
        ring: bool,
    },
    /// There is no frame, or no space for one. The mark is set: this side can sleep until it is rung.
    Nothing,
    /// The sides are not connected, or not any more.
    Down,
}

/// One side of a link. Dropping it ends its session.
#[derive(Debug)]
pub struct Link<Own: Section, Other: Section> {
    own: Own,
    other: Other,
    slots: u64,
    number: NonZeroU64,
    /// The number of the other side that this side answers; 0 for none.
    partner: u64,
    state: LinkState,
    written: u64,
    taken: u64,
}

/// Returns the number of slots of a section with this number of words, or `None` if it is too small.
#[must_use]
pub fn slots(words: usize) -> Option<u64> {
    let all = words.checked_sub(HEADER_WORDS)? / SLOT_WORDS;
    let slots = 1 << all.checked_ilog2()?;
    (slots >= 2).then_some(u64::min(slots, MOST_SLOTS))
}

/// Returns whether a count that grew from `old` to `new` has exceeded the mark by that.
const fn exceeds(mark: u64, old: u64, new: u64) -> bool {
    mark.wrapping_sub(old) < new.wrapping_sub(old)
}

impl<Own: Section, Other: Section> Link<Own, Other> {
    /// Begins a session with a number that this side never had before, for example the time. Returns `None` if a
    /// section is too small, or if both have different numbers of slots. The other side must be rung.
    #[must_use]
    pub fn open(own: Own, other: Other, number: NonZeroU64) -> Option<Self> {
        let slots = slots(own.words()).filter(|count| slots(other.words()) == Some(*count))?;
        let mut link = Self {
            own,
            other,
            slots,
            number,
            partner: 0,
            state: LinkState::Absent,
            written: 0,
            taken: 0,
        };
        link.own.store(NUMBER, 0, Ordering::Relaxed);
        link.answer(0);
        link.own.store(0, MAGIC, Ordering::Relaxed);
        link.own.store(NUMBER, number.get(), Ordering::Release);
        Some(link)
    }

    /// Sets the counts to 0, then answers a number.
    fn answer(&mut self, partner: u64) {
        self.own.store(ANSWERED, 0, Ordering::Relaxed);
        self.own.full_barrier();
        (self.written, self.taken, self.partner) = (0, 0, partner);
        self.own.store(WRITTEN, 0, Ordering::Relaxed);
        self.own.store(TAKEN, 0, Ordering::Relaxed);
        self.own.store(RECEIVE_MARK, 0, Ordering::Relaxed);
        // No count of a session reaches it.
        self.own.store(SEND_MARK, u64::MAX, Ordering::Relaxed);
        self.own.store(ANSWERED, partner, Ordering::Release);
    }

    /// Looks at the other side's numbers. Returns the state, and whether the other side must be rung because this
    /// side has answered a new number.
    pub fn update(&mut self) -> (LinkState, bool) {
        let mut number = self.other.load(NUMBER, Ordering::Acquire);
        if self.other.load(0, Ordering::Relaxed) != MAGIC {
            number = 0;
        }
        let mut ring = false;
        if number != self.partner {
            self.answer(number);
            self.state = LinkState::Waiting;
            ring = number != 0;
        }
        self.state = if number == 0 {
            LinkState::Absent
        } else if self.state == LinkState::Refused {
            LinkState::Refused
        } else if self.other.load(ANSWERED, Ordering::Acquire) == self.number.get() {
            LinkState::Connected
        } else {
            LinkState::Waiting
        };
        (self.state, ring)
    }

    /// Decides what an impossible count means: the other side restarted meanwhile, or it is refused.
    fn damaged(&mut self) -> FrameTransfer {
        let partner = self.partner;
        if self.update().0 == LinkState::Connected && self.partner == partner {
            self.own.store(ANSWERED, 0, Ordering::Release);
            self.state = LinkState::Refused;
        }
        FrameTransfer::Down
    }

    /// Returns the index of the slot of a frame in a section.
    const fn slot(&self, frame: u64) -> usize {
        HEADER_WORDS + (frame & (self.slots - 1)) as usize * SLOT_WORDS
    }

    /// Sends a frame. One of an impossible length is dropped as [`FrameTransfer::Skipped`].
    pub fn send(&mut self, frame: &[u8]) -> FrameTransfer {
        if self.state != LinkState::Connected {
            return FrameTransfer::Down;
        }
        if !(LEAST_FRAME..=MOST_FRAME).contains(&frame.len()) {
            return FrameTransfer::Skipped { ring: false };
        }
        let mut taken = self.other.load(TAKEN, Ordering::Acquire);
        if self.written.wrapping_sub(taken) == self.slots {
            // Half of the slots at once, so that a ring is worth its cost.
            let mark = taken.wrapping_add(self.slots / 2 - 1);
            self.own.store(SEND_MARK, mark, Ordering::Relaxed);
            self.own.full_barrier();
            taken = self.other.load(TAKEN, Ordering::Acquire);
        }
        let used = self.written.wrapping_sub(taken);
        if used > self.slots {
            return self.damaged();
        }
        if used == self.slots {
            return FrameTransfer::Nothing;
        }
        let at = self.slot(self.written);
        self.own.store(at, frame.len() as u64, Ordering::Relaxed);
        for (index, bytes) in (at + 1..).zip(frame.chunks(8)) {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            let word = u64::from_le_bytes(word);
            self.own.store(index, word, Ordering::Relaxed);
        }
        let old = self.written;
        self.written = old.wrapping_add(1);
        self.own.store(WRITTEN, self.written, Ordering::Release);
        self.own.full_barrier();
        let mark = self.other.load(RECEIVE_MARK, Ordering::Relaxed);
        FrameTransfer::Frame {
            bytes: frame.len(),
            ring: exceeds(mark, old, self.written),
        }
    }

    /// Receives a frame into the buffer.
    pub fn receive(&mut self, buffer: &mut [u8; MOST_FRAME]) -> FrameTransfer {
        if self.state != LinkState::Connected {
            return FrameTransfer::Down;
        }
        let mut waiting = self.waiting();
        if waiting == 0 {
            self.own.store(RECEIVE_MARK, self.taken, Ordering::Relaxed);
            self.own.full_barrier();
            waiting = self.waiting();
        }
        if waiting > self.slots {
            return self.damaged();
        }
        if waiting == 0 {
            return FrameTransfer::Nothing;
        }
        let at = self.slot(self.taken);
        let bytes = self.other.load(at, Ordering::Relaxed);
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        let fits = (LEAST_FRAME..=MOST_FRAME).contains(&bytes);
        if fits {
            for (index, bytes) in (at + 1..).zip(buffer[..bytes].chunks_mut(8)) {
                let word = self.other.load(index, Ordering::Relaxed).to_le_bytes();
                bytes.copy_from_slice(&word[..bytes.len()]);
            }
        }
        let old = self.taken;
        self.taken = old.wrapping_add(1);
        self.own.store(TAKEN, self.taken, Ordering::Release);
        self.own.full_barrier();
        let mark = self.other.load(SEND_MARK, Ordering::Relaxed);
        let ring = exceeds(mark, old, self.taken);
        if fits {
            FrameTransfer::Frame { bytes, ring }
        } else {
            FrameTransfer::Skipped { ring }
        }
    }

    fn waiting(&self) -> u64 {
        let written = self.other.load(WRITTEN, Ordering::Acquire);
        written.wrapping_sub(self.taken)
    }

    /// Returns the state that the last call found.
    #[must_use]
    pub const fn state(&self) -> LinkState {
        self.state
    }

    /// Returns whether this section has space for a frame, without setting a mark.
    #[must_use]
    pub fn has_space(&self) -> bool {
        let taken = self.other.load(TAKEN, Ordering::Acquire);
        self.state == LinkState::Connected && self.written.wrapping_sub(taken) < self.slots
    }
}

impl<Own: Section, Other: Section> Drop for Link<Own, Other> {
    fn drop(&mut self) {
        self.own.store(NUMBER, 0, Ordering::Release);
    }
}
