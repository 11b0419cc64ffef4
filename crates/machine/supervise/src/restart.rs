// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether and when a program that ended is started again. Pure: what ended when goes in, the
//! decision comes out.

use rampart_model::{Nanos, Restart};

/// The pause before the first restart.
pub(crate) const FIRST_PAUSE: Nanos = Nanos::from_millis(100);
/// The pause doubles with each restart, up to this.
pub(crate) const LONGEST_PAUSE: Nanos = Nanos::from_secs(30);
/// A program that ran so long has started well: the pause begins anew.
pub(crate) const STEADY: Nanos = Nanos::from_secs(60);
/// So many restarts within [`WINDOW`]; one more, and it is given up.
pub(crate) const MOST_RESTARTS: usize = 10;
/// The time within which restarts are counted.
pub(crate) const WINDOW: Nanos = Nanos::from_secs(600);

/// One end of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunEnd {
    /// When, on any clock that goes on steadily.
    pub at: Nanos,
    /// How long it had run.
    pub ran: Nanos,
    /// Whether it ended with success.
    pub success: bool,
}

/// What follows an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// The plan does not have it started again.
    Stay,
    /// It is started again after this pause.
    Restart(Nanos),
    /// It was started again too often: so many restarts within the time.
    GiveUp(usize),
}

/// What follows the last of these ends, the oldest first.
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

    /// Ends at these seconds, each after so many seconds.
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
    fn the_rule_decides_by_how_it_ended() {
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
    fn the_pause_doubles_up_to_its_longest() {
        let mut at = Vec::new();
        let mut pauses = Vec::new();
        for number in 0..11 {
            // So far apart that no limit is met.
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
    fn a_long_run_begins_anew() {
        let mut all = endings(&[1, 2, 3], 0, false);
        all.extend(endings(&[100], 97, false));
        assert_eq!(
            decide(Restart::OnFailure, &all),
            Decision::Restart(FIRST_PAUSE)
        );
    }

    #[test]
    fn too_many_restarts_in_the_time_are_enough() {
        let quick: Vec<u64> = (0..=10).collect();
        assert_eq!(
            decide(Restart::Always, &endings(&quick[..10], 1, false)),
            Decision::Restart(LONGEST_PAUSE)
        );
        assert_eq!(
            decide(Restart::Always, &endings(&quick, 1, false)),
            Decision::GiveUp(10)
        );
        // The same number spread over more than the time goes on.
        let slow: Vec<u64> = (0..=20).map(|number| number * 61).collect();
        assert!(matches!(
            decide(Restart::Always, &endings(&slow, 61, false)),
            Decision::Restart(_)
        ));
    }
}
