// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Converts counter ticks to nanoseconds and back.
//!
//! A scale is the line through two anchors: moments at which counter and clock were read together.
//! The error of a converted length is at most that of the two anchors (some tens of nanoseconds),
//! whatever the length, because a longer length only occurs with anchors further apart. No nominal
//! frequency is used.

use rampart_model::Nanos;

/// Fractional bits of the multiplier. With 48, the rounding error is below 1 ns in a day.
const SHIFT: u32 = 48;

/// A reading of the counter and a reading of the clock at the same moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Anchor {
    /// Value of the counter.
    pub ticks: u64,
    /// Value of the clock.
    pub at: Nanos,
}

/// A linear conversion between counter ticks and nanoseconds, defined by two anchors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timescale {
    origin: Anchor,
    /// Nanoseconds per tick, times 2^[`SHIFT`].
    multiplier: u128,
}

impl Timescale {
    /// The scale of a counter that counts the nanoseconds of the clock.
    pub const IDENTITY: Self = Self {
        origin: Anchor {
            ticks: 0,
            at: Nanos::ZERO,
        },
        multiplier: 1 << SHIFT,
    };

    /// Returns the scale of a counter with this frequency in hertz, whose moments count from
    /// counter value 0. Returns `None` if a tick is 2^16 ns or longer.
    #[must_use]
    pub fn of_frequency(hertz: u64) -> Option<Self> {
        let zero = Anchor {
            ticks: 0,
            at: Nanos::ZERO,
        };
        let second = Anchor {
            ticks: hertz,
            at: Nanos::SECOND,
        };
        let scale = Self::through(zero, second)?;
        Some(Self {
            origin: zero,
            ..scale
        })
    }

    /// Returns the line through both anchors. Returns `None` if the counter or the clock did not
    /// advance, or if a tick is 2^16 ns or longer.
    #[must_use]
    pub fn through(first: Anchor, second: Anchor) -> Option<Self> {
        let ticks = u128::from(second.ticks.checked_sub(first.ticks)?);
        let nanos = u128::from(second.at.0.checked_sub(first.at.0)?);
        // The limit keeps the products within 128 bits.
        if ticks == 0 || nanos == 0 || nanos / ticks >= 1 << 16 {
            return None;
        }
        Some(Self {
            origin: second,
            multiplier: (nanos << SHIFT) / ticks,
        })
    }

    /// Returns the length of `ticks`, rounded to the nearest nanosecond.
    #[must_use]
    pub const fn length(&self, ticks: u64) -> Nanos {
        Nanos(((ticks as u128 * self.multiplier + (1 << (SHIFT - 1))) >> SHIFT) as u64)
    }

    /// Returns the length of `ticks` in picoseconds, rounded down.
    #[must_use]
    pub const fn picos(&self, ticks: u64) -> u64 {
        ((ticks as u128 * 1_000 * (self.multiplier >> 16)) >> (SHIFT - 16)) as u64
    }

    /// Returns the moment at which the counter showed `ticks`, before or after the anchors.
    #[must_use]
    pub const fn moment(&self, ticks: u64) -> Nanos {
        let distance = ticks.wrapping_sub(self.origin.ticks) as i64;
        let length = self.length(distance.unsigned_abs()).0;
        Nanos(if distance < 0 {
            self.origin.at.0.saturating_sub(length)
        } else {
            self.origin.at.0.saturating_add(length)
        })
    }

    /// Returns the largest number of ticks that fits into `length`.
    #[must_use]
    pub const fn ticks(&self, length: Nanos) -> u64 {
        let ticks = ((length.0 as u128) << SHIFT) / self.multiplier;
        if ticks > u64::MAX as u128 {
            u64::MAX
        } else {
            ticks as u64
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn anchor(ticks: u64, at: u64) -> Anchor {
        Anchor {
            ticks,
            at: Nanos(at),
        }
    }

    #[test]
    fn refuses_anchors_that_do_not_advance() {
        for (first, second) in [
            (anchor(5, 5), anchor(5, 9)),
            (anchor(5, 5), anchor(9, 5)),
            (anchor(9, 5), anchor(5, 9)),
            (anchor(0, 0), anchor(1, 1 << 20)),
        ] {
            assert_eq!(Timescale::through(first, second), None);
        }
    }

    #[test]
    fn scale_of_a_frequency_starts_at_zero() {
        let scale = Timescale::of_frequency(62_500_000).expect("a counter");
        assert_eq!(scale.moment(0), Nanos::ZERO);
        assert_eq!(scale.moment(62_500_000 * 3_600), Nanos::from_secs(3_600));
        assert_eq!(scale.length(1), Nanos(16));
        assert_eq!(scale.ticks(Nanos(160)), 10);
        assert_eq!(Timescale::of_frequency(0), None);
    }

    #[test]
    fn rounds_to_the_nearest_nanosecond() {
        assert_eq!(Timescale::IDENTITY.length(5), Nanos(5));
        let thirds = Timescale::through(anchor(0, 0), anchor(3_000, 1_000)).expect("moves");
        let lengths = [0, 1, 2, 3, 4, 5].map(|ticks| thirds.length(ticks).0);
        assert_eq!(lengths, [0, 0, 1, 1, 1, 2]);
    }

    #[test]
    fn converts_a_day_exactly_at_2_1_gigahertz() {
        let day = 86_400_000_000_000u64;
        let scale = Timescale::through(anchor(1_000, 77), anchor(1_000 + day / 10 * 21, 77 + day))
            .expect("moves");
        assert_eq!(scale.length(day / 10 * 21), Nanos(day));
        assert_eq!(scale.moment(1_000), Nanos(77));
        assert_eq!(scale.length(2_100), Nanos(1_000));
        assert_eq!(scale.picos(21), 9_999); // rounded down
    }

    proptest! {
        #[test]
        fn moments_lie_on_the_line(kilohertz in 1_000u64..6_000_000, start: u32, seconds in 1u64..100_000, part in 0.0f64..2.0) {
            let second = kilohertz * 1_000;
            let start = u64::from(start);
            let scale = Timescale::through(anchor(start, start), anchor(start + seconds * second, start + seconds * 1_000_000_000)).expect("moves");
            let ticks = (part * (seconds * second) as f64) as u64;
            let exact = start + (u128::from(ticks) * 1_000_000_000 / u128::from(second)) as u64;
            let found = scale.moment(start + ticks).0;
            prop_assert!(found.abs_diff(exact) <= 2, "{found} {exact}");
            prop_assert!(scale.ticks(scale.length(ticks)).abs_diff(ticks) <= second / 1_000_000_000 + 2);
        }
    }
}
