// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What measuring costs, on a real machine and on an emulated one. Only used to share out the time
//! and to choose what is measured unless the user says otherwise; nothing relies on it.

use rampart_model::{LoadKind, Nanos};

/// The figures that differ between the two.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct MeasuringCosts {
    /// The whole evaluation, unless asked otherwise.
    pub(crate) total: Nanos,
    /// Period of the periodic meters, unless asked otherwise.
    pub(crate) interval: Nanos,
    /// What one run costs besides its measured time: raising and lowering the wall, starting a
    /// container and a load, warming up.
    pub(crate) run_overhead: Nanos,
    /// What applying a plan, or taking it back, costs.
    pub(crate) switch: Nanos,
    /// What a round costs besides its own time: walls, meters, a load, warming up.
    pub(crate) round_overhead: Nanos,
    /// Percent of the time that disturbances get where they are measured, below 100.
    pub(crate) disturbance_percent: u64,
    /// The loads of the standard matrix.
    pub(crate) loads: &'static [LoadKind],
    /// The loads in one domain at a time, unless asked otherwise.
    pub(crate) disturbing_loads: &'static [LoadKind],
    /// Blocks in a round, where the time is enough for so many.
    pub(crate) blocks: u32,
    /// The length of a block over the worst quiet latency.
    pub(crate) block_factor: u32,
}

impl MeasuringCosts {
    /// Two minutes: long enough for five repetitions of the standard matrix, short enough to wait;
    /// and a period that shows a quantile of 99.9 % in every cell of it. Disturbances get half:
    /// they are the answer to one of the four questions, and the matrix to two. A tenth of a block,
    /// up to which a wall counts as holding, is half of the worst quiet latency.
    pub(crate) const REAL: Self = Self {
        total: Nanos::from_secs(120),
        interval: Nanos::from_micros(500),
        run_overhead: Nanos::from_millis(500),
        switch: Nanos::from_secs(1),
        round_overhead: Nanos::from_millis(1300),
        disturbance_percent: 50,
        loads: &[LoadKind::Cpu, LoadKind::Cache],
        disturbing_loads: &[LoadKind::Cache, LoadKind::Cpu],
        blocks: 40,
        block_factor: 5,
    };

    /// There starting a program takes a second, and everything but the measured time several times
    /// as long. A guest of its own spends most of a millisecond on a wakeup: a meter with a short
    /// period would leave nothing of its processor to what has to report, and no verdict there
    /// rests on a quantile anyway, nor on much else of the matrix. Loads on all other CPUs slow the
    /// measured one down however good the wall; loads in one domain at a time are among the
    /// disturbances. A stopped CPU takes time from the others, which should stay small beside a
    /// block; blocks last a tenth of a second and more, and the pauses between them with them.
    pub(crate) const EMULATED: Self = Self {
        total: Nanos::from_secs(240),
        interval: Nanos::from_millis(4),
        run_overhead: Nanos::from_secs(4),
        switch: Nanos::from_secs(8),
        round_overhead: Nanos::from_secs(5),
        disturbance_percent: 70,
        loads: &[],
        disturbing_loads: &[LoadKind::Cache],
        blocks: 20,
        block_factor: 10,
    };

    /// Those of a machine.
    pub(crate) const fn of(emulated: bool) -> &'static Self {
        if emulated {
            &Self::EMULATED
        } else {
            &Self::REAL
        }
    }

    /// What disturbances get of this time.
    pub(crate) fn disturbance_budget(&self, total: Nanos) -> Nanos {
        Nanos(part(total.0, self.disturbance_percent, 100))
    }

    /// The shortest time of which the matrix and the disturbances get so much.
    pub(crate) fn total_for(&self, matrix: Nanos, disturbances: Nanos) -> Nanos {
        let share = self.disturbance_percent;
        let for_matrix = part(matrix.0, 100, 100 - share) + 1;
        let for_disturbances = part(disturbances.0, 100, share) + 1;
        Nanos(for_matrix.max(for_disturbances))
    }
}

/// `value` × `times` ÷ `over`, rounded down.
fn part(value: u64, times: u64, over: u64) -> u64 {
    let exact = u128::from(value) * u128::from(times) / u128::from(over);
    u64::try_from(exact).unwrap_or(u64::MAX - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_shortest_total_is_enough_for_both(matrix in 0u64..1 << 50, disturbances in 0u64..1 << 50) {
            for costs in [MeasuringCosts::REAL, MeasuringCosts::EMULATED] {
                let total = costs.total_for(Nanos(matrix), Nanos(disturbances));
                let budget = costs.disturbance_budget(total);
                prop_assert!(budget.0 >= disturbances);
                prop_assert!(total.saturating_sub(budget).0 >= matrix);
                let wasted = |part: u64, percent: u64| part.abs_diff(total.0 * percent / 100) > 2;
                let share = costs.disturbance_percent;
                prop_assert!(!wasted(disturbances, share) || !wasted(matrix, 100 - share));
            }
        }
    }
}
