// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Why a configuration is refused, and where in it.

use crate::format::Refusal;
use crate::interface::NO_CELL;

/// A refusal with its place: what goes back in x1 to x3.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused {
    /// Why.
    pub refusal: Refusal,
    /// Of the entry in its table, from 0.
    pub index: u32,
    /// The cell that it clashes with, or [`NO_CELL`].
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

/// What must hold, and what is said where it does not.
pub(super) fn ensure(holds: bool, refused: Refused) -> Result<(), Refused> {
    holds.then_some(()).ok_or(refused)
}
