// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Ranges of physical addresses.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A part of the physical address space.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
pub struct AddressSpan {
    /// Start address.
    pub start: u64,
    /// Its size in bytes.
    pub bytes: u64,
}

impl AddressSpan {
    /// Returns the span from `start` up to, but not including, `end`.
    #[must_use]
    pub const fn between(start: u64, end: u64) -> Self {
        Self {
            start,
            bytes: end.saturating_sub(start),
        }
    }

    /// Returns the end address, exclusive.
    #[must_use]
    pub const fn end(&self) -> u64 {
        self.start.saturating_add(self.bytes)
    }

    /// Returns whether the spans overlap.
    #[must_use]
    pub const fn meets(&self, other: &Self) -> bool {
        self.start < other.end() && other.start < self.end()
    }

    /// Returns whether `other` is completely inside.
    #[must_use]
    pub const fn holds(&self, other: &Self) -> bool {
        self.start <= other.start && other.end() <= self.end()
    }
}

impl std::fmt::Display for AddressSpan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:#x}-{:#x}", self.start, self.end().wrapping_sub(1))
    }
}
