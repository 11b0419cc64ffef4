// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Time as a type. Usable without an operating system.

/// A length of time, or a moment on a stated clock, in whole nanoseconds.
///
/// 64 bits are enough for 584 years, so that sums over any run fit; subtraction saturates at zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[cfg_attr(
    feature = "std",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema)
)]
#[cfg_attr(feature = "std", serde(transparent))]
pub struct Nanos(pub u64);

/// A signed difference of two moments in whole nanoseconds: negative is early.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[cfg_attr(
    feature = "std",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema)
)]
#[cfg_attr(feature = "std", serde(transparent))]
pub struct SignedNanos(pub i64);

impl Nanos {
    /// Zero.
    pub const ZERO: Self = Self(0);
    /// One second.
    pub const SECOND: Self = Self(1_000_000_000);

    /// Returns `value` microseconds.
    #[must_use]
    pub const fn from_micros(value: u64) -> Self {
        Self(value * 1_000)
    }

    /// Returns `value` milliseconds.
    #[must_use]
    pub const fn from_millis(value: u64) -> Self {
        Self(value * 1_000_000)
    }

    /// Returns `value` seconds.
    #[must_use]
    pub const fn from_secs(value: u64) -> Self {
        Self(value * 1_000_000_000)
    }

    /// Returns the length in seconds, for display and statistics.
    #[must_use]
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// Returns `self - other`, or zero if `other` is greater.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// Returns `self - earlier` with its sign.
    #[must_use]
    pub const fn signed_since(self, earlier: Self) -> SignedNanos {
        SignedNanos(self.0.wrapping_sub(earlier.0) as i64)
    }
}

impl core::ops::Add for Nanos {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl core::ops::AddAssign for Nanos {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl core::iter::Sum for Nanos {
    fn sum<I: Iterator<Item = Self>>(values: I) -> Self {
        values.fold(Self::ZERO, |sum, value| sum + value)
    }
}
