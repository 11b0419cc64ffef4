// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A directory of a cell's shared regions: a page that the root writes before the cell starts, so
//! that a program without an operating system finds a region by name.
//!
//! ```text
//! word 0     MAGIC, written last
//! word 1     number of entries
//! from 2 on  entries of 8 words: the name in 32 bytes, the first one lowest, padded with 0; the
//!            region's start in the cell's address space; its size in bytes; 1 if the cell may
//!            write it, otherwise 0; a value by the kind of region, 0 for most
//! ```

use core::sync::atomic::{AtomicU64, Ordering};

/// The first word of a directory.
pub const MAGIC: u64 = u64::from_le_bytes(*b"rampdir1");
/// Maximum length of a name in bytes.
pub const NAME_BYTES: usize = 32;
/// Size of the page.
pub const DIRECTORY_BYTES: usize = 4096;
/// Maximum number of entries in a page.
pub const MAXIMUM_ENTRIES: usize = (DIRECTORY_BYTES / 8 - FIRST) / ENTRY_WORDS;

const FIRST: usize = 2;
const ENTRY_WORDS: usize = 8;
const NAME_WORDS: usize = NAME_BYTES / 8;

/// A region with a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirectoryEntry<'a> {
    /// 1 to [`NAME_BYTES`] bytes without a 0.
    pub name: &'a str,
    /// Start address of the region in the cell's address space.
    pub start: u64,
    /// Size in bytes.
    pub bytes: u64,
    /// Whether the cell may write the region; otherwise it may only read.
    pub writable: bool,
    /// A value by the kind of region; 0 for most. For the sections of a network see [`network_value`].
    pub value: u64,
}

/// The location of a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    /// Start address of the region in the cell's address space.
    pub start: u64,
    /// Size in bytes.
    pub bytes: u64,
    /// Whether the cell may write the region.
    pub writable: bool,
    /// See [`DirectoryEntry::value`].
    pub value: u64,
}

/// Returns the value of both sections of a network: the cell's MAC address in the lower 48 bits; above it, for the
/// section that the cell writes, the index of its doorbell that rings the other side, and for the other one the
/// interrupt by which the other side rings.
#[must_use]
pub const fn network_value(address: [u8; 6], number: u16) -> u64 {
    let [a, b, c, d, e, f] = address;
    u64::from_le_bytes([a, b, c, d, e, f, 0, 0]) | (number as u64) << 48
}

/// Returns a name as words, or `None` if it is empty, too long or contains a 0.
fn packed(name: &str) -> Option<[u64; NAME_WORDS]> {
    let name = name.as_bytes();
    if name.is_empty() || name.len() > NAME_BYTES || name.contains(&0) {
        return None;
    }
    let mut words = [0; NAME_WORDS];
    for (word, bytes) in words.iter_mut().zip(name.chunks(8)) {
        for (index, byte) in bytes.iter().enumerate() {
            *word |= u64::from(*byte) << (8 * index);
        }
    }
    Some(words)
}

/// Writes all entries. Returns `false` if a name is invalid or the page is too small.
pub fn write(memory: &[AtomicU64], entries: &[DirectoryEntry<'_>]) -> bool {
    if memory.len() < FIRST + entries.len() * ENTRY_WORDS || entries.len() > MAXIMUM_ENTRIES {
        return false;
    }
    // Hides the directory while it is incomplete.
    memory[0].store(0, Ordering::Release);
    for (entry, words) in entries.iter().zip(memory[FIRST..].chunks(ENTRY_WORDS)) {
        let Some(name) = packed(entry.name) else {
            return false;
        };
        for (word, value) in words.iter().zip(name) {
            word.store(value, Ordering::Relaxed);
        }
        let location = [entry.start, entry.bytes, entry.writable.into(), entry.value];
        for (word, value) in words[NAME_WORDS..].iter().zip(location) {
            word.store(value, Ordering::Relaxed);
        }
    }
    memory[1].store(entries.len() as u64, Ordering::Relaxed);
    memory[0].store(MAGIC, Ordering::Release);
    true
}

/// Returns the region with this name, or `None` if there is no directory or no such region.
#[must_use]
pub fn find(memory: &[AtomicU64], name: &str) -> Option<Found> {
    let name = packed(name)?;
    if memory.first()?.load(Ordering::Acquire) != MAGIC {
        return None;
    }
    let count = memory.get(1)?.load(Ordering::Relaxed);
    let count = usize::try_from(count).map_or(MAXIMUM_ENTRIES, |count| count.min(MAXIMUM_ENTRIES));
    let mut entries = memory[FIRST..].chunks_exact(ENTRY_WORDS).take(count);
    let matches = |words: &&[AtomicU64]| {
        let mut all = words.iter().zip(name);
        all.all(|(word, wanted)| word.load(Ordering::Relaxed) == wanted)
    };
    let words = entries.find(matches)?;
    let word = |index: usize| words[NAME_WORDS + index].load(Ordering::Relaxed);
    Some(Found {
        start: word(0),
        bytes: word(1),
        writable: word(2) == 1,
        value: word(3),
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
    fn finds_regions_by_whole_names() {
        let memory = page(DIRECTORY_BYTES / 8);
        let entry = |name, start, writable| DirectoryEntry {
            name,
            start,
            bytes: 4096,
            writable,
            value: start + 1,
        };
        let entries = [
            entry("records", 0x5000_0000, true),
            entry("records-2", 0x5000_1000, false),
            entry(LONGEST, 0x5000_2000, false),
        ];
        assert_eq!(find(&memory, "records"), None);
        assert!(write(&memory, &entries));
        for entry in &entries {
            let found = find(&memory, entry.name).expect("an entry");
            assert_eq!((found.start, found.bytes), (entry.start, 4096));
            assert_eq!(found.writable, entry.writable);
            assert_eq!(found.value, entry.value);
        }
        for other in ["record", "records-", "", "abcdefgh"] {
            assert_eq!(find(&memory, other), None, "{other}");
        }
    }

    #[test]
    fn refuses_invalid_names_and_too_many_entries() {
        let entry = |name| DirectoryEntry {
            name,
            start: 0,
            bytes: 1,
            writable: false,
            value: 0,
        };
        assert!(!write(&page(9), &[entry("a")]));
        let memory = page(DIRECTORY_BYTES / 8);
        for invalid in ["", "a\0", "abcdefghijklmnopqrstuvwxyz0123456"] {
            assert!(!write(&memory, &[entry(invalid)]), "{invalid:?}");
            assert_eq!(find(&memory, invalid), None);
        }
        assert!(write(&memory, &[entry("a"); MAXIMUM_ENTRIES]));
        assert!(!write(&memory, &[entry("a"); MAXIMUM_ENTRIES + 1]));
    }

    #[test]
    fn searches_any_memory_safely() {
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
