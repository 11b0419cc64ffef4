// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The fixed piece of work: integer arithmetic in which each step depends on the one before, so
//! that its length depends neither on the issue width of the processor nor on memory.

use rampart_model::Nanos;

use super::{Clock, Work};

/// Does `turns` turns. A turn is a step of a linear congruential generator (multiplier and
/// increment from Knuth, MMIX) with a shift, about 6 processor cycles.
#[inline(never)]
pub fn arithmetic(turns: u64) {
    let mut value = core::hint::black_box(0x9e37_79b9_7f4a_7c15_u64);
    for _ in 0..turns {
        value = value
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        value ^= value >> 29;
    }
    core::hint::black_box(value);
}

/// Returns how many turns take `target` on the calling thread without disturbance. The shortest of
/// several trials counts, because a disturbance only lengthens a trial.
///
/// Takes at most some tens of milliseconds, whatever the target.
pub fn calibrate<E: Clock + Work>(environment: &E, target: Nanos) -> u64 {
    /// Long compared with the time of a clock reading.
    const SHORTEST_TRIAL: u64 = 50_000;
    const LONGEST_TRIAL: u64 = 1_000_000;
    const TRIALS: u32 = 12;
    let time = |turns: u64| {
        let start = environment.now();
        environment.work(turns);
        environment.now().saturating_sub(start).0
    };
    let trial = target.0.clamp(SHORTEST_TRIAL, LONGEST_TRIAL);
    let mut turns = 1_000;
    while time(turns) < trial && turns < 1 << 40 {
        turns *= 2;
    }
    let shortest = (0..TRIALS).map(|_| time(turns)).min().unwrap_or(1).max(1);
    let wanted = u128::from(turns) * u128::from(target.0) / u128::from(shortest);
    u64::try_from(wanted).unwrap_or(u64::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::simulation::Simulation;

    #[test]
    fn calibration_is_exact_despite_stalls() {
        for target in [1_000, 100_000, 10_000_000_000] {
            let mut machine = Simulation::new(0);
            machine.turn_cost = 3;
            machine.stall(50_000, 20_000_000);
            assert_eq!(calibrate(&machine, Nanos(target)), target / 3, "{target}");
        }
    }
}
