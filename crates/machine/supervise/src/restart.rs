// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Decides whether and when a program that ended is restarted. Pure.

use rampart_model::{Nanos, Restart};

/// The pause before the first restart.
pub(crate) const FIRST_PAUSE: Nanos = Nanos::from_millis(100);
/// The longest pause; the pause doubles with each restart up to this value.
pub(crate) const LONGEST_PAUSE: Nanos = Nanos::from_secs(30);
/// A program that ran at least this long resets the pause.
pub(crate) const STEADY: Nanos = Nanos::from_secs(60);
/// Restarts allowed within [`WINDOW`]; at the next end the supervisor gives up.
pub(crate) const MOST_RESTARTS: usize = 10;
/// The time within which restarts are counted.
pub(crate) const WINDOW: Nanos = Nanos::from_secs(600);

/// The end of one run of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunEnd {
    /// Time of the end, on a monotonic clock.
    pub at: Nanos,
    /// Duration of the run.
    pub ran: Nanos,
    /// Whether the program ended successfully.
    pub success: bool,
}

/// The action that follows the end of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// No restart, as the plan specifies.
    Stay,
    /// A restart after this pause.
    Restart(Nanos),
    /// No restart: the program was restarted this many times within `WINDOW`.
    GiveUp(usize),
}

/// Returns the action that follows the last of these ends, which are ordered by time.
#[must_use]
pub fn decide(rule: Restart, endings: &[RunEnd]) -> Decision {
    let Some(last) = endings.last() else {
        return Decision::Stay;
    };
    match rule {
        Restart::Never => return Decision::Stay,
        Restart::OnFailure if last.success => return Decision::Stay,
        Restart::OnFailure | Restart::Always => {}
    }
    // Each end but the last was followed by a restart.
    let restarts = endings
        .iter()
        .rev()
        .skip(1)
        .take_while(|ending| last.at.saturating_sub(ending.at) < WINDOW)
        .count();
    if restarts >= MOST_RESTARTS {
        return Decision::GiveUp(restarts);
    }
    let hasty = endings
        .iter()
        .rev()
        .take_while(|ending| ending.ran < STEADY)
        .count();
    let doublings = u32::try_from(hasty.saturating_sub(1)).unwrap_or(u32::MAX);
    let pause = FIRST_PAUSE
        .0
        .saturating_mul(1u64.checked_shl(doublings).unwrap_or(u64::MAX));
    Decision::Restart(Nanos(pause.min(LONGEST_PAUSE.0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns ends at these times, each after a run of `ran` seconds.
    fn endings(at: &[u64], ran: u64, success: bool) -> Vec<RunEnd> {
        at.iter()
            .map(|at| RunEnd {
                at: Nanos::from_secs(*at),
                ran: Nanos::from_secs(ran),
                success,
            })
            .collect()
    }

    #[test]
    fn restarts_by_the_rule_and_the_exit() {
        let failed = endings(&[5], 5, false);
        let done = endings(&[5], 5, true);
        let again = Decision::Restart(FIRST_PAUSE);
        for (rule, after_failure, after_success) in [
            (Restart::Never, Decision::Stay, Decision::Stay),
            (Restart::OnFailure, again, Decision::Stay),
            (Restart::Always, again, again),
        ] {
            assert_eq!(decide(rule, &failed), after_failure, "{rule:?}");
            assert_eq!(decide(rule, &done), after_success, "{rule:?}");
        }
        assert_eq!(decide(Restart::Always, &[]), Decision::Stay);
    }

    #[test]
    fn doubles_the_pause_up_to_its_limit() {
        let mut at = Vec::new();
        let mut pauses = Vec::new();
        for number in 0..11 {
            // Far enough apart that the limit of restarts is not reached.
            at.push(number * 1000);
            match decide(Restart::Always, &endings(&at, 0, false)) {
                Decision::Restart(pause) => pauses.push(pause.0 / 1_000_000),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(
            pauses,
            [
                100, 200, 400, 800, 1600, 3200, 6400, 12800, 25600, 30000, 30000
            ]
        );
    }

    #[test]
    fn a_long_run_resets_the_pause() {
        let mut all = endings(&[1, 2, 3], 0, false);
        all.extend(endings(&[100], 97, false));
        assert_eq!(
            decide(Restart::OnFailure, &all),
            Decision::Restart(FIRST_PAUSE)
        );
    }

    #[test]
    fn gives_up_after_too_many_restarts_within_the_window() {
        let quick: Vec<u64> = (0..=10).collect();
        assert_eq!(
            decide(Restart::Always, &endings(&quick[..10], 1, false)),
            Decision::Restart(LONGEST_PAUSE)
        );
        assert_eq!(
            decide(Restart::Always, &endings(&quick, 1, false)),
            Decision::GiveUp(10)
        );
        // The same number of restarts over a longer time is allowed.
        let slow: Vec<u64> = (0..=20).map(|number| number * 61).collect();
        assert!(matches!(
            decide(Restart::Always, &endings(&slow, 61, false)),
            Decision::Restart(_)
        ));
    }
}
