// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Shares out the time of the rounds. Pure.

use rampart_model::Nanos;

/// Shortest quiet round; its worst latency determines the length of the blocks.
const SHORTEST_QUIET: Nanos = Nanos::from_secs(2);
const LONGEST_QUIET: Nanos = Nanos::from_secs(10);
/// Shortest round under load or of blocks; shorter ones show no tail, or too few blocks.
const SHORTEST_ROUND: Nanos = Nanos::from_secs(2);
const LONGEST_ROUND: Nanos = Nanos::from_secs(10);
/// Time reserved for a round of blocks. Its actual length depends on the number of blocks needed,
/// which is not known before the quiet round.
pub(super) const USUAL_BLOCK_ROUND: Nanos = Nanos::from_secs(5);
/// Rounds of one load: at least two are needed to show how rounds differ, three are better.
const REPETITIONS: [usize; 2] = [3, 2];
/// With much time, every disturbance has at most so many rounds: 30 rounds of 80 blocks bound the
/// part of blocks that cross at one in 500, and a document of more would be too large to read.
pub(crate) const MOST_REPETITIONS: usize = 30;

/// The shares of the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Times {
    pub(crate) quiet: Nanos,
    pub(crate) round: Nanos,
    /// Rounds of each load.
    pub(crate) repetitions: usize,
    /// Rounds of the blocks of each domain.
    pub(crate) block_repetitions: usize,
    /// Time of a round besides its measured time.
    overhead: Nanos,
}

impl Times {
    fn needed(&self, groups: usize, blocks: usize, loads: usize) -> Nanos {
        let with_overhead =
            |time: Nanos, rounds: usize| Nanos((time + self.overhead).0 * rounds as u64);
        // With loads, each repetition also has a quiet round; the first is the initial one.
        let quiet_beside = if loads > 0 {
            groups * (self.repetitions - 1)
        } else {
            0
        };
        with_overhead(self.quiet, groups)
            + with_overhead(
                self.round.max(USUAL_BLOCK_ROUND),
                blocks * self.block_repetitions,
            )
            + with_overhead(self.round, loads * self.repetitions + quiet_beside)
    }

    fn shortest(repetitions: usize, overhead: Nanos) -> Self {
        Self {
            overhead,
            quiet: SHORTEST_QUIET,
            round: SHORTEST_ROUND,
            repetitions,
            block_repetitions: 1,
        }
    }

    /// Returns the shortest sufficient time.
    pub(crate) fn least(groups: usize, blocks: usize, loads: usize, overhead: Nanos) -> Nanos {
        let fewest = REPETITIONS.into_iter().min().unwrap_or(1);
        Self::shortest(fewest, overhead).needed(groups, blocks, loads)
    }

    /// Returns the usual repetitions if they fit, with the longest rounds, and with more time more
    /// repetitions.
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
                break;
            }
            times = longer;
        }
        loop {
            let more = Self {
                repetitions: (times.repetitions + 1).clamp(3, MOST_REPETITIONS),
                block_repetitions: (times.block_repetitions + 1).min(MOST_REPETITIONS),
                ..times
            };
            if times.round < LONGEST_ROUND || more == times || !fits(&more) {
                return Some(times);
            }
            times = more;
        }
    }
}
