// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How the time of the rounds is shared out. Pure.

use rampart_model::Nanos;

/// The quiet round from whose worst latency the length of the blocks follows.
const SHORTEST_QUIET: Nanos = Nanos::from_secs(2);
const LONGEST_QUIET: Nanos = Nanos::from_secs(10);
/// A round under a load, or of blocks: shorter ones would show no tail, or too few blocks.
const SHORTEST_ROUND: Nanos = Nanos::from_secs(2);
const LONGEST_ROUND: Nanos = Nanos::from_secs(10);
/// A round of blocks takes as long as enough of them need, which is not known before the quiet
/// round; this much is set aside.
pub(super) const USUAL_BLOCK_ROUND: Nanos = Nanos::from_secs(5);
/// Rounds of one load: two are the fewest that tell how rounds differ, three tell it better.
const REPETITIONS: [usize; 2] = [3, 2];

/// How the time is shared out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Times {
    pub(crate) quiet: Nanos,
    pub(crate) round: Nanos,
    /// How often each load comes.
    pub(crate) repetitions: usize,
    /// What a round costs besides.
    overhead: Nanos,
}

impl Times {
    fn needed(&self, groups: usize, blocks: usize, loads: usize) -> Nanos {
        let with_overhead =
            |time: Nanos, rounds: usize| Nanos((time + self.overhead).0 * rounds as u64);
        // Under loads each repetition has a quiet round too; the first is the one before.
        let quiet_beside = if loads > 0 {
            groups * (self.repetitions - 1)
        } else {
            0
        };
        with_overhead(self.quiet, groups)
            + with_overhead(self.round.max(USUAL_BLOCK_ROUND), blocks)
            + with_overhead(self.round, loads * self.repetitions + quiet_beside)
    }

    fn shortest(repetitions: usize, overhead: Nanos) -> Self {
        Self {
            overhead,
            quiet: SHORTEST_QUIET,
            round: SHORTEST_ROUND,
            repetitions,
        }
    }

    /// The least time that would do.
    pub(crate) fn least(groups: usize, blocks: usize, loads: usize, overhead: Nanos) -> Nanos {
        let fewest = REPETITIONS.into_iter().min().unwrap_or(1);
        Self::shortest(fewest, overhead).needed(groups, blocks, loads)
    }

    /// The most repetitions that fit, then the longest rounds.
    pub(crate) fn share(
        budget: Nanos,
        groups: usize,
        blocks: usize,
        loads: usize,
        overhead: Nanos,
    ) -> Option<Self> {
        let fits = |times: &Self| times.needed(groups, blocks, loads) <= budget;
        let mut times = REPETITIONS
            .into_iter()
            .map(|repetitions| Self::shortest(repetitions, overhead))
            .find(|times| fits(times))?;
        let step = Nanos::from_millis(500);
        loop {
            let longer = Self {
                quiet: (times.quiet + step).min(LONGEST_QUIET),
                round: (times.round + step).min(LONGEST_ROUND),
                ..times
            };
            if longer == times || !fits(&longer) {
                return Some(times);
            }
            times = longer;
        }
    }
}
