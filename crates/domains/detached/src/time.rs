// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Times of the counter that detached and attached threads read without a system call.

use std::ops::{Add, Sub};
use std::time::Duration;

/// A time of the time stamp counter, in nanoseconds since the counter was 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

impl Time {
    /// Returns the time so many nanoseconds after the counter was 0.
    #[must_use]
    pub const fn from_nanoseconds(nanoseconds: u64) -> Self {
        Self(nanoseconds)
    }

    /// Returns the nanoseconds since the counter was 0.
    #[must_use]
    pub const fn as_nanoseconds(self) -> u64 {
        self.0
    }
}

impl Add<Duration> for Time {
    type Output = Self;

    /// Saturates after 584 years.
    fn add(self, duration: Duration) -> Self {
        Self(
            self.0
                .saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)),
        )
    }
}

impl Sub for Time {
    type Output = Duration;

    /// Returns the time between both, zero if `earlier` is the later one.
    fn sub(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_durations_add_up_and_saturate() {
        let start = Time::from_nanoseconds(5);
        let end = start + Duration::from_micros(2);
        assert_eq!(end.as_nanoseconds(), 2005);
        assert_eq!(end - start, Duration::from_nanos(2000));
        assert_eq!(start - end, Duration::ZERO);
        assert_eq!(end + Duration::MAX, Time::from_nanoseconds(u64::MAX));
    }
}
