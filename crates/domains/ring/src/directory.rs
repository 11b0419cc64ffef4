// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the shared regions of a cell are called: a page that the root writes before the cell starts, so
//! that a program without an operating system finds a region by its name.
//!
//! ```text
//! word 0     MAGIC, written last
//! word 1     how many entries follow
//! from 2 on  entries of 8 words: the name in 32 bytes, the first one lowest, padded with 0;
//!            where the cell sees the region; its size in bytes; 1 if the cell writes it; 0
//! ```

use core::sync::atomic::{AtomicU64, Ordering};

/// The first word.
pub const MAGIC: u64 = u64::from_le_bytes(*b"rampdir1");
/// The longest name, in bytes.
pub const NAME_BYTES: usize = 32;
/// Of the page.
pub const DIRECTORY_BYTES: usize = 4096;
/// Entries that a page has room for.
pub const MOST_ENTRIES: usize = (DIRECTORY_BYTES / 8 - FIRST) / ENTRY_WORDS;

const FIRST: usize = 2;
const ENTRY_WORDS: usize = 8;
const NAME_WORDS: usize = NAME_BYTES / 8;

/// A region with a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'a> {
    /// 1 to [`NAME_BYTES`] bytes without a 0.
    pub name: &'a str,
    /// Where the cell sees it.
    pub start: u64,
    /// Its size in bytes.
    pub bytes: u64,
    /// Whether the cell writes it; else it reads.
    pub writable: bool,
}

/// Where a region is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    /// Where the cell sees it.
    pub start: u64,
    /// Its size in bytes.
    pub bytes: u64,
    /// Whether the cell writes it.
    pub writable: bool,
}

/// A name as words; `None` where it is empty, too long or has a 0.
fn packed(name: &str) -> Option<[u64; NAME_WORDS]> {
    let name = name.as_bytes();
    if name.is_empty() || name.len() > NAME_BYTES || name.contains(&0) {
        return None;
    }
    let mut words = [0; NAME_WORDS];
    for (word, bytes) in words.iter_mut().zip(name.chunks(8)) {
        for (location, byte) in bytes.iter().enumerate() {
            *word |= u64::from(*byte) << (8 * location);
        }
    }
    Some(words)
}

/// Writes all entries; whether they are names and have room.
pub fn write(memory: &[AtomicU64], entries: &[Entry<'_>]) -> bool {
    if memory.len() < FIRST + entries.len() * ENTRY_WORDS || entries.len() > MOST_ENTRIES {
        return false;
    }
    // Nobody finds what is half written.
    memory[0].store(0, Ordering::Release);
    for (entry, words) in entries.iter().zip(memory[FIRST..].chunks(ENTRY_WORDS)) {
        let Some(name) = packed(entry.name) else {
            return false;
        };
        for (word, value) in words.iter().zip(name) {
            word.store(value, Ordering::Relaxed);
        }
        let location = [entry.start, entry.bytes, entry.writable.into(), 0];
        for (word, value) in words[NAME_WORDS..].iter().zip(location) {
            word.store(value, Ordering::Relaxed);
        }
    }
    memory[1].store(entries.len() as u64, Ordering::Relaxed);
    memory[0].store(MAGIC, Ordering::Release);
    true
}

/// The region of this name; `None` where there is no directory, or none of this name.
#[must_use]
pub fn find(memory: &[AtomicU64], name: &str) -> Option<Found> {
    let name = packed(name)?;
    if memory.first()?.load(Ordering::Acquire) != MAGIC {
        return None;
    }
    let count = memory.get(1)?.load(Ordering::Relaxed);
    let count = usize::try_from(count).map_or(MOST_ENTRIES, |count| count.min(MOST_ENTRIES));
    let mut entries = memory[FIRST..].chunks_exact(ENTRY_WORDS).take(count);
    let is_it = |words: &&[AtomicU64]| {
        let mut all = words.iter().zip(name);
        all.all(|(word, wanted)| word.load(Ordering::Relaxed) == wanted)
    };
    let words = entries.find(is_it)?;
    let word = |location: usize| words[NAME_WORDS + location].load(Ordering::Relaxed);
    Some(Found {
        start: word(0),
        bytes: word(1),
        writable: word(2) == 1,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(words: usize) -> Vec<AtomicU64> {
        (0..words).map(|_| AtomicU64::new(0)).collect()
    }

    const LONGEST: &str = "abcdefghijklmnopqrstuvwxyz012345";

    #[test]
    fn regions_are_found_by_whole_names() {
        let memory = page(DIRECTORY_BYTES / 8);
        let entry = |name, start, writable| Entry {
            name,
            start,
            bytes: 4096,
            writable,
        };
        let entries = [
            entry("records", 0x5000_0000, true),
            entry("records-2", 0x5000_1000, false),
            entry(LONGEST, 0x5000_2000, false),
        ];
        assert_eq!(find(&memory, "records"), None);
        assert!(write(&memory, &entries));
        for entry in &entries {
            let found = find(&memory, entry.name).expect("it is there");
            assert_eq!((found.start, found.bytes), (entry.start, 4096));
            assert_eq!(found.writable, entry.writable);
        }
        for other in ["record", "records-", "", "abcdefgh"] {
            assert_eq!(find(&memory, other), None, "{other}");
        }
    }

    #[test]
    fn what_has_no_room_or_is_no_name_is_refused() {
        let entry = |name| Entry {
            name,
            start: 0,
            bytes: 1,
            writable: false,
        };
        assert!(!write(&page(9), &[entry("a")]));
        let memory = page(DIRECTORY_BYTES / 8);
        for wrong in ["", "a\0", "abcdefghijklmnopqrstuvwxyz0123456"] {
            assert!(!write(&memory, &[entry(wrong)]), "{wrong:?}");
            assert_eq!(find(&memory, wrong), None);
        }
        assert!(write(&memory, &[entry("a"); MOST_ENTRIES]));
        assert!(!write(&memory, &[entry("a"); MOST_ENTRIES + 1]));
    }

    #[test]
    fn any_memory_can_be_searched() {
        for words in [0, 1, 2, 3, 9, 10, 511] {
            let memory = page(words);
            for value in [0, 1, u64::MAX, MAGIC] {
                for word in &memory {
                    word.store(value, Ordering::Relaxed);
                }
                if let Some(first) = memory.first() {
                    first.store(MAGIC, Ordering::Relaxed);
                }
                let _ = find(&memory, "a");
            }
        }
    }
}
