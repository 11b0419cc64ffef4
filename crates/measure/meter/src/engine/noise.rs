// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `noise`: gaps in a loop that only reads the counter.
//!
//! A turn is one read, one subtraction and one comparison. The loop checks all other conditions
//! once in [`TURNS_A_CHECK`] turns. The shorter the turn, the shorter the gap that can be
//! distinguished from the loop itself.

use rampart_model::Nanos;

use super::{Clock, Counter, Processor, ProcessorWatch, Sample, Sink, Stop};
use crate::timescale::Timescale;

/// Turns between two checks of the end and of the stop request: some microseconds.
pub const TURNS_A_CHECK: u32 = 128;

/// Totals of one run. Lengths in ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NoiseTotals {
    /// Turns of the loop.
    pub turns: u64,
    /// Gaps that reached the threshold.
    pub gaps: u64,
    /// Sum of the lengths of all gaps.
    pub stolen: u64,
    /// Time spent on recording gaps, in which the loop did not observe.
    pub recording: u64,
    /// The shortest turn, or `None` without turns.
    pub shortest: Option<u64>,
    /// Length of the run.
    pub length: u64,
}

/// The loop.
#[derive(Debug, Clone, Copy)]
pub struct Noise {
    /// The shortest gap that is kept, in ticks; at least 1.
    threshold: u64,
}

/// Returns the loop's own period in ticks, times 1024: the mean turn of the least disturbed of
/// several short runs that record no gap.
pub fn own_period<E>(environment: &mut E, scale: &Timescale) -> u64
where
    E: Counter + Clock + Processor + Stop + Sink,
{
    const RUNS: u32 = 32;
    const LENGTH: Nanos = Nanos::from_micros(100);
    let mut watch = ProcessorWatch::default();
    (0..RUNS)
        .map(|_| {
            let until = environment.now() + LENGTH;
            let totals = Noise::new(u64::MAX).run(environment, &mut watch, scale, until);
            totals.length.saturating_mul(1024) / totals.turns.max(1)
        })
        .min()
        .unwrap_or(0)
}

impl Noise {
    /// Creates a loop that records gaps of at least `threshold` ticks.
    #[must_use]
    pub const fn new(threshold: u64) -> Self {
        Self {
            threshold: if threshold == 0 { 1 } else { threshold },
        }
    }

    /// Returns the shortest gap that is recorded, in ticks.
    #[must_use]
    pub const fn threshold(&self) -> u64 {
        self.threshold
    }

    /// Spins until `until`, or until a stop is requested. Samples carry counter ticks: the gap, and
    /// the counter at its end. `scale` only estimates the remaining time; the clock decides whether
    /// the end has come.
    pub fn run<E>(
        &self,
        environment: &mut E,
        watch: &mut ProcessorWatch,
        scale: &Timescale,
        until: Nanos,
    ) -> NoiseTotals
    where
        E: Counter + Clock + Processor + Stop + Sink,
    {
        let mut totals = NoiseTotals::default();
        let mut shortest = u64::MAX;
        watch.note(environment.processor());
        let mut left = scale.ticks(until.saturating_sub(environment.now()));
        let start = environment.read();
        let mut previous = start;
        loop {
            for _ in 0..TURNS_A_CHECK {
                let now = environment.read();
                let gap = now.wrapping_sub(previous);
                shortest = if gap < shortest { gap } else { shortest };
                previous = now;
                if gap >= self.threshold {
                    previous = self.keep(environment, watch, &mut totals, now, gap);
                }
            }
            totals.turns += u64::from(TURNS_A_CHECK);
            if environment.stop_requested() {
                break;
            }
            if previous.wrapping_sub(start) >= left {
                let remaining = until.saturating_sub(environment.now());
                if remaining == Nanos::ZERO {
                    break;
                }
                left = previous
                    .wrapping_sub(start)
                    .saturating_add(scale.ticks(remaining));
            }
        }
        totals.length = previous.wrapping_sub(start);
        totals.shortest = (totals.turns > 0).then_some(shortest);
        totals
    }

    /// Records a gap and returns the counter value from which the next turn counts, so that the
    /// recording is not itself a gap. A recording that took twice the threshold was disturbed and
    /// is recorded as a gap too.
    #[cold]
    #[inline(never)]
    fn keep<E>(
        &self,
        environment: &mut E,
        watch: &mut ProcessorWatch,
        totals: &mut NoiseTotals,
        mut now: u64,
        mut gap: u64,
    ) -> u64
    where
        E: Counter + Processor + Sink,
    {
        loop {
            // The counter ran backwards, as between the counters of two CPUs: not a gap.
            if gap <= u64::MAX / 2 {
                totals.gaps += 1;
                totals.stolen = totals.stolen.saturating_add(gap);
                environment.push(Sample {
                    at: now,
                    value: gap,
                    ..Sample::default()
                });
            }
            watch.note(environment.processor());
            let after = environment.read();
            gap = after.wrapping_sub(now);
            now = after;
            if gap < self.threshold.saturating_mul(2) || gap > u64::MAX / 2 {
                totals.recording += gap.min(self.threshold.saturating_mul(2));
                return after;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::simulation::Simulation;

    #[test]
    fn records_end_and_length_of_each_gap() {
        let mut machine = Simulation::new(0);
        machine.stall(1_010, 5_000); // during the read that began at 1 000
        machine.stall(20_003, 100); // below the threshold
        machine.stall(30_003, 181); // just above it, including the turn
        let mut watch = ProcessorWatch::default();
        let totals = Noise::new(200).run(
            &mut machine,
            &mut watch,
            &Timescale::IDENTITY,
            Nanos(100_000),
        );
        let seen: Vec<_> = machine
            .samples()
            .iter()
            .map(|sample| (sample.at, sample.value))
            .collect();
        assert_eq!(seen, [(6_020, 5_020), (30_201, 201)]);
        assert_eq!(
            (totals.gaps, totals.stolen, totals.shortest),
            (2, 5_221, Some(20))
        );
        assert!(totals.length >= 99_900, "{totals:?}");
        let undisturbed = totals.length - totals.stolen - totals.recording;
        // 100 ns of it are the stall below the threshold.
        assert_eq!(undisturbed, (totals.turns - totals.gaps) * 20 + 100);
    }

    #[test]
    fn length_does_not_depend_on_the_scale() {
        let scale = Timescale::through(
            crate::timescale::Anchor {
                ticks: 0,
                at: Nanos(0),
            },
            crate::timescale::Anchor {
                ticks: 500,
                at: Nanos(1_000),
            },
        )
        .expect("moves");
        let mut machine = Simulation::new(0);
        Noise::new(200).run(
            &mut machine,
            &mut ProcessorWatch::default(),
            &scale,
            Nanos(1_000_000),
        );
        let end = machine.now();
        assert!(end >= Nanos(1_000_000) && end < Nanos(1_010_000), "{end:?}");
    }

    #[test]
    fn ends_on_a_stop_request() {
        let mut machine = Simulation::new(0);
        machine.stop_at(50_000);
        let totals = Noise::new(200).run(
            &mut machine,
            &mut ProcessorWatch::default(),
            &Timescale::IDENTITY,
            Nanos(1_000_000),
        );
        assert!(totals.length < 60_000, "{totals:?}");
    }

    #[test]
    fn disturbed_recording_is_a_separate_gap() {
        let mut machine = Simulation::new(0);
        machine.stall(1_010, 1_000); // The gap ends at 2 020; recording reads at 2 040.
        machine.stall(2_030, 700);
        let totals = Noise::new(200).run(
            &mut machine,
            &mut ProcessorWatch::default(),
            &Timescale::IDENTITY,
            Nanos(50_000),
        );
        assert_eq!((totals.gaps, totals.stolen), (2, 1_020 + 720));
    }

    #[test]
    fn own_period_is_that_of_the_least_disturbed_run() {
        let mut machine = Simulation::new(0);
        machine.stall(1_000, 50_000);
        let period = own_period(&mut machine, &Timescale::IDENTITY);
        assert_eq!(period, 20 * 1024);
        assert!(machine.samples().is_empty());
    }
}
