// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The pages of a region: all of its range, or those of some colours of a physically indexed cache. Pages of
//! different colours never share a set of the cache, because the set is selected by the bits of the page number.

use core::ops::Range;

use crate::format::{COLOURS, MemoryRegion};
use crate::interface::PAGE_BYTES;

/// Contiguous pages of a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// Guest address.
    pub guest: u64,
    /// Physical address.
    pub physical: u64,
    /// Size.
    pub bytes: u64,
}

impl MemoryRegion {
    /// Returns the colours as bits, also for a region with all pages.
    const fn mask(&self) -> u32 {
        if self.colours == 0 { u32::MAX } else { self.colours }
    }

    /// Returns the size at guest addresses.
    pub const fn guest_bytes(&self) -> u64 {
        self.guest_offset(self.bytes)
    }

    /// Returns the size of the region's own pages below an offset of the physical range.
    const fn guest_offset(&self, physical: u64) -> u64 {
        let page = physical / PAGE_BYTES;
        let below = self.mask() & ((1 << (page % COLOURS)) - 1);
        let pages = page / COLOURS * self.mask().count_ones() as u64 + below.count_ones() as u64;
        pages * PAGE_BYTES
    }

    /// Returns the first contiguous pages of the region between two offsets of the physical range.
    #[inline(never)]
    fn part(&self, from: u64, end: u64) -> Option<Part> {
        let colours = self.mask().rotate_right((from / PAGE_BYTES % COLOURS) as u32);
        let skipped = colours.trailing_zeros();
        let start = from + u64::from(skipped) * PAGE_BYTES;
        let own = u64::from(colours.rotate_right(skipped).trailing_ones()) * PAGE_BYTES;
        let own = if self.colours == 0 { end } else { own };
        let bytes = own.min(end.checked_sub(start)?);
        let guest = self.guest + self.guest_offset(start);
        (bytes != 0).then_some(Part { guest, physical: self.physical + start, bytes })
    }

    /// Returns the region's own pages between two offsets of the physical range, in ascending order.
    pub fn parts(&self, offsets: Range<u64>) -> impl Iterator<Item = Part> {
        let mut next = offsets.start;
        core::iter::from_fn(move || {
            let part = self.part(next, offsets.end)?;
            next = part.physical + part.bytes - self.physical;
            Some(part)
        })
    }

    /// Returns all of the region's own pages.
    pub fn all_parts(&self) -> impl Iterator<Item = Part> {
        self.parts(0..self.bytes)
    }

    /// Returns whether two regions have a page in common. Those with colours begin at a multiple of all colours.
    pub const fn meets(&self, other: &Self) -> bool {
        self.overlaps(other.physical, other.bytes) && self.mask() & other.mask() != 0
    }
}
