// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Computes when blocks begin. The kernel module (`kernel/blocksys`) uses the same algorithm, so
//! that a seed gives the same moments with every mechanism of blocking.

use rampart_model::Nanos;

/// The distribution of blocks in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spacing {
    /// Length of one block.
    pub length: Nanos,
    /// Mean pause between the end of a block and the start of the next.
    pub pause: Nanos,
    /// Whether pauses are random, uniformly distributed from half to one and a half times the mean.
    pub random: bool,
    /// Seed of the random pauses.
    pub seed: u64,
}

/// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).
#[derive(Debug, Clone, Copy)]
struct SplitMix64(u64);

impl SplitMix64 {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// The moments of the blocks of one CPU. All CPUs have the same moments and need no
/// synchronization.
#[derive(Debug, Clone, Copy)]
pub struct Schedule {
    random: SplitMix64,
    spacing: Spacing,
    /// The moment of the next block in the undelayed schedule.
    planned: Nanos,
    /// The moment at which the next block can begin: later than planned if the previous block was
    /// late.
    next: Nanos,
}

impl Schedule {
    /// Creates a schedule whose first block begins one pause after `base`.
    #[must_use]
    pub fn new(spacing: Spacing, base: Nanos) -> Self {
        let mut schedule = Self {
            random: SplitMix64(spacing.seed),
            spacing,
            planned: base,
            next: base,
        };
        schedule.planned = base + schedule.draw();
        schedule.next = schedule.planned;
        schedule
    }

    /// Returns the moment of the next block.
    #[must_use]
    pub const fn next(&self) -> Nanos {
        self.next
    }

    /// Returns the lateness of a block that began at `start`.
    #[must_use]
    pub const fn lateness(&self, start: Nanos) -> Nanos {
        start.saturating_sub(self.planned)
    }

    /// Advances to the next block; the present one ended at `end`. After a late block at least half
    /// the mean pause remains.
    pub fn advance(&mut self, end: Nanos) {
        let pause = self.draw();
        self.planned += self.spacing.length + pause;
        self.next = self.planned.max(end + Nanos(self.spacing.pause.0 / 2));
    }

    fn draw(&mut self) -> Nanos {
        let pause = self.spacing.pause;
        if !self.spacing.random {
            return pause;
        }
        let part = (u128::from(self.random.next()) * u128::from(pause.0)) >> 64;
        Nanos(pause.0 / 2 + part as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spacing(random: bool) -> Spacing {
        Spacing {
            length: Nanos(1000),
            pause: Nanos(10_000),
            random,
            seed: 7,
        }
    }

    #[test]
    fn generator_equals_the_published_one() {
        // First values of the reference implementation for this seed.
        let mut random = SplitMix64(1_234_567);
        assert_eq!(random.next(), 6_457_827_717_110_365_317);
        assert_eq!(random.next(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn regular_blocks_have_equal_distances() {
        let mut schedule = Schedule::new(spacing(false), Nanos(500));
        assert_eq!(schedule.next(), Nanos(10_500));
        schedule.advance(Nanos(11_600));
        assert_eq!(schedule.next(), Nanos(21_500));
        assert_eq!(schedule.lateness(Nanos(21_600)), Nanos(100));
    }

    #[test]
    fn random_pauses_are_between_half_and_one_and_a_half_times_the_mean() {
        let mut schedule = Schedule::new(spacing(true), Nanos::ZERO);
        let (mut shortest, mut longest, mut sum) = (u64::MAX, 0, 0);
        let mut end = Nanos::ZERO;
        for _ in 0..10_000 {
            let pause = schedule.next().0 - end.0;
            shortest = shortest.min(pause);
            longest = longest.max(pause);
            sum += pause;
            end = schedule.next() + Nanos(1000);
            schedule.advance(end);
        }
        assert!((5_000..5_100).contains(&shortest), "{shortest}");
        assert!((14_900..=15_000).contains(&longest), "{longest}");
        assert!((9_900..10_100).contains(&(sum / 10_000)), "{sum}");
    }

    #[test]
    fn keeps_half_a_pause_after_a_late_block_and_returns_to_the_schedule() {
        let mut schedule = Schedule::new(spacing(false), Nanos::ZERO);
        schedule.advance(Nanos(40_000));
        assert_eq!(schedule.next(), Nanos(45_000));
        assert_eq!(schedule.lateness(Nanos(45_000)), Nanos(24_000));
        schedule.advance(Nanos(46_000));
        schedule.advance(Nanos(47_000));
        schedule.advance(Nanos(48_000));
        assert_eq!(schedule.next(), Nanos(54_000));
    }
}
