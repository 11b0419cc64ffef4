// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Estimates of the time that measuring costs on a real and on an emulated machine. They only share
//! out the time and set the defaults of the matrix; no verdict depends on them.

use rampart_model::{LoadKind, Nanos};

/// The figures that differ between real and emulated machines.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct MeasuringCosts {
    /// Default total time of an evaluation.
    pub(crate) total: Nanos,
    /// Default period of the periodic meters.
    pub(crate) interval: Nanos,
    /// Time of a run besides its measured time: isolation, container and load start, warm-up.
    pub(crate) run_overhead: Nanos,
    /// The same if meters and loads stay up between runs.
    pub(crate) repeated_run_overhead: Nanos,
    /// Time to apply or revert a plan.
    pub(crate) switch: Nanos,
    /// Time of a round besides its measured time: isolation, meters, load, warm-up.
    pub(crate) round_overhead: Nanos,
    /// Percentage of the time for disturbances if they are measured, below 100.
    pub(crate) disturbance_percent: u64,
    /// The loads of the standard matrix.
    pub(crate) loads: &'static [LoadKind],
    /// Default loads in one domain at a time.
    pub(crate) disturbing_loads: &'static [LoadKind],
    /// Blocks in a round, if the time is enough for that many.
    pub(crate) blocks: u32,
    /// The length of a block as a multiple of the worst quiet latency.
    pub(crate) block_factor: u32,
}

impl MeasuringCosts {
    /// The costs on a real machine.
    ///
    /// Two minutes are enough for twenty repetitions of the standard matrix. Disturbances get a good
    /// third of the time: they answer one of the four questions, the matrix answers two. A tenth of a
    /// block, the tolerance of an isolation that holds, is half of the worst quiet latency.
    pub(crate) const REAL: Self = Self {
        total: Nanos::from_secs(120),
        interval: Nanos::from_micros(500),
        run_overhead: Nanos::from_millis(500),
        repeated_run_overhead: Nanos::from_millis(90),
        switch: Nanos::from_secs(1),
        round_overhead: Nanos::from_millis(700),
        disturbance_percent: 36,
        loads: &[LoadKind::Cpu, LoadKind::Cache],
        disturbing_loads: &[LoadKind::Cache, LoadKind::Cpu],
        blocks: 80,
        block_factor: 5,
    };

    /// The costs on an emulated machine.
    ///
    /// Starting a program takes a second, and everything except the measured time takes several
    /// times as long. An emulated guest spends most of a millisecond on a wakeup, so a short period
    /// would leave its CPU no time to report; no verdict uses a quantile of emulated times. Loads
    /// slow every CPU down whatever the isolation and are not judged, so they run on request only: the
    /// time goes to blocks. A stopped CPU takes time from the others, which must stay
    /// small compared with a block; so blocks are longer in relation to the worst quiet latency.
    pub(crate) const EMULATED: Self = Self {
        total: Nanos::from_secs(170),
        interval: Nanos::from_millis(4),
        run_overhead: Nanos::from_millis(2500),
        repeated_run_overhead: Nanos::from_millis(2500),
        switch: Nanos::from_secs(3),
        round_overhead: Nanos::from_millis(3500),
        disturbance_percent: 70,
        loads: &[],
        disturbing_loads: &[],
        blocks: 20,
        block_factor: 10,
    };

    /// Returns the costs of a real or an emulated machine.
    pub(crate) const fn of(emulated: bool) -> &'static Self {
        if emulated {
            &Self::EMULATED
        } else {
            &Self::REAL
        }
    }

    /// Returns the part of this time for disturbances.
    pub(crate) fn disturbance_budget(&self, total: Nanos) -> Nanos {
        Nanos(part(total.0, self.disturbance_percent, 100))
    }

    /// Returns the shortest total time that leaves these parts for the matrix and the disturbances.
    pub(crate) fn total_for(&self, matrix: Nanos, disturbances: Nanos) -> Nanos {
        let share = self.disturbance_percent;
        let for_matrix = part(matrix.0, 100, 100 - share) + 1;
        let for_disturbances = part(disturbances.0, 100, share) + 1;
        Nanos(for_matrix.max(for_disturbances))
    }
}

/// Returns `value` × `times` ÷ `over`, rounded down.
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
        fn shortest_total_is_enough_for_both(matrix in 0u64..1 << 50, disturbances in 0u64..1 << 50) {
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
