// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The reason and location of a refusal.

use crate::format::Refusal;
use crate::interface::NO_CELL;

/// A refusal with its location, returned in x1 to x3.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused {
    /// The reason.
    pub refusal: Refusal,
    /// Index of the entry in its table, from 0.
    pub index: u32,
    /// The conflicting cell, or [`NO_CELL`].
    pub other: u32,
}

impl Refused {
    pub(super) const fn of(refusal: Refusal) -> Self {
        Self::at(refusal, 0)
    }

    pub(super) const fn at(refusal: Refusal, index: usize) -> Self {
        Self::with(refusal, index, NO_CELL)
    }

    pub(super) const fn with(refusal: Refusal, index: usize, other: u32) -> Self {
        let index = index as u32;
        Self { refusal, index, other }
    }
}

/// The result of a check.
pub(super) type Checked = Result<(), Refused>;

/// Returns `refused` as an error unless the condition holds.
pub(super) fn ensure(holds: bool, refused: Refused) -> Checked {
    holds.then_some(()).ok_or(refused)
}
