// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The planned moments of a periodic meter.

use rampart_model::Nanos;

/// Equidistant planned moments, some of which are skipped.
///
/// A moment that has already passed is skipped and counted, never made up for: the next sample is
/// on the grid again. The distribution that such a loop measures is too good (coordinated
/// omission), therefore each sample carries the number of moments that it skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grid {
    next: Nanos,
    interval: Nanos,
}

impl Grid {
    /// Creates the grid from `first` on. An interval of 0 is taken as 1 ns.
    #[must_use]
    pub const fn new(first: Nanos, interval: Nanos) -> Self {
        let interval = if interval.0 == 0 { Nanos(1) } else { interval };
        Self {
            next: first,
            interval,
        }
    }

    /// Returns the next planned moment.
    #[must_use]
    pub const fn next(&self) -> Nanos {
        self.next
    }

    /// Returns the interval.
    #[must_use]
    pub const fn interval(&self) -> Nanos {
        self.interval
    }

    /// Advances to the first moment after the present one that has not passed at `lateness`, and
    /// returns how many moments were skipped: ⌊L ÷ I⌋ for lateness L and interval I. Moments from
    /// `until` on belong to the next run and are neither skipped nor counted.
    #[inline(always)]
    pub fn advance(&mut self, lateness: Nanos, until: Nanos) -> u64 {
        let (planned, lateness) = (self.next.0, lateness.0);
        // No overflow: the end of the range is 584 years away.
        self.next = Nanos(planned.wrapping_add(self.interval.0));
        if lateness < self.interval.0 {
            0
        } else {
            self.skip(planned, lateness, until)
        }
    }

    #[cold]
    fn skip(&mut self, planned: u64, lateness: u64, until: Nanos) -> u64 {
        let left = until.0.saturating_sub(planned).saturating_sub(1) / self.interval.0;
        let skipped = (lateness / self.interval.0).min(left);
        self.next = Nanos(planned.saturating_add(self.interval.0.saturating_mul(skipped + 1)));
        skipped
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn skips_one_moment_per_whole_interval_of_lateness() {
        for (now, missed, next) in [
            (1_000, 0, 1_100),
            (1_099, 0, 1_100),
            (1_100, 1, 1_200),
            (1_355, 3, 1_400),
        ] {
            let mut grid = Grid::new(Nanos(1_000), Nanos(100));
            let lateness = Nanos(now - 1_000);
            assert_eq!(grid.advance(lateness, Nanos(9_999)), missed, "{now}");
            assert_eq!(grid.next(), Nanos(next), "{now}");
        }
    }

    #[test]
    fn leaves_moments_of_the_next_run() {
        let mut grid = Grid::new(Nanos(1_000), Nanos(100));
        assert_eq!(grid.advance(Nanos(950), Nanos(1_300)), 2);
        assert_eq!(grid.next(), Nanos(1_300));
    }

    proptest! {
        #[test]
        fn samples_and_missed_moments_add_up_to_all(interval in 1u64..1_000, latenesses in proptest::collection::vec(0u64..5_000, 1..50)) {
            let until = Nanos(100_000);
            let mut grid = Grid::new(Nanos(0), Nanos(interval));
            let (mut samples, mut missed) = (0, 0);
            let mut stalls = latenesses.into_iter();
            while grid.next() < until {
                missed += grid.advance(Nanos(stalls.next().unwrap_or(0)), until);
                samples += 1;
            }
            prop_assert_eq!(samples + missed, until.0.div_ceil(interval));
            prop_assert_eq!(grid.next().0 % interval, 0);
        }
    }
}
