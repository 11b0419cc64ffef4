// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Allocator of pages for tables, a bitmap.

use crate::interface::PAGE_BYTES;

/// Up to `64 * WORDS` contiguous pages.
#[derive(Debug, Clone)]
pub struct PagePool<const WORDS: usize> {
    start: u64,
    pages: usize,
    used: [u64; WORDS],
}

impl<const WORDS: usize> PagePool<WORDS> {
    /// Creates a pool of the pages from physical address `start`; ignores pages beyond its capacity.
    pub const fn new(start: u64, pages: usize) -> Self {
        let capacity = 64 * WORDS;
        Self { start, pages: if pages < capacity { pages } else { capacity }, used: [0; WORDS] }
    }

    fn is_used(&self, page: usize) -> bool {
        self.used[page / 64] >> (page % 64) & 1 != 0
    }

    /// Allocates contiguous pages, aligned to their total size, which must be a power of two. They are not
    /// zeroed. Returns `None` if no such pages are free.
    pub fn allocate(&mut self, count: usize) -> Option<u64> {
        if !count.is_power_of_two() {
            return None;
        }
        let bytes = count as u64 * PAGE_BYTES;
        // The first aligned page, then every `count`-th.
        let first = (self.start.next_multiple_of(bytes) - self.start) / PAGE_BYTES;
        let found = (first as usize..self.pages).step_by(count).find(|page| {
            page + count <= self.pages && (*page..page + count).all(|page| !self.is_used(page))
        })?;
        for page in found..found + count {
            self.used[page / 64] |= 1 << (page % 64);
        }
        Some(self.start + found as u64 * PAGE_BYTES)
    }

    /// Frees pages; ignores pages that are not of this pool.
    pub fn free(&mut self, address: u64, count: usize) {
        let Some(offset) = address.checked_sub(self.start) else { return };
        let first = (offset / PAGE_BYTES) as usize;
        for page in (first..first.saturating_add(count)).take_while(|page| *page < self.pages) {
            self.used[page / 64] &= !(1 << (page % 64));
        }
    }
}
