// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Cuts a domain's latencies at the blocks of another: windows with a block, and quiet windows of
//! the same length in the pauses. Pure.

use rampart_model::{BlockSpan, ClockRelation, Nanos, Timeline, Window};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// Most quiet windows between two blocks. Adjacent windows depend on each other, so blocks and
/// quiet windows must alternate.
const QUIET_WINDOWS_EACH: u64 = 2;

/// The relation of a domain's clock to the host's clock over a round.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Clock<'a>(pub(crate) &'a [ClockRelation]);

impl Clock<'_> {
    /// Converts a time of the host's clock to the domain's clock. The offset is interpolated
    /// linearly between exchanges, and constant before the first and after the last.
    pub(crate) fn inside(self, host: Nanos) -> Nanos {
        shifted(host, self.offset_at(host))
    }

    /// Converts a time of the domain's clock to the host's clock.
    pub(crate) fn outside(self, inside: Nanos) -> Nanos {
        // The offset drifts by parts per million, so a small error of the time at which it is read
        // does no harm; the second step removes even that error.
        let first = shifted(inside, -self.offset_at(inside));
        let guess = shifted(inside, -self.offset_at(first));
        shifted(inside, -self.offset_at(guess))
    }

    /// Returns the largest error of a conversion, from the uncertainty of the exchanges.
    pub(crate) fn uncertainty(self) -> Nanos {
        self.0
            .iter()
            .map(|relation| relation.uncertainty)
            .max()
            .unwrap_or_default()
    }

    fn offset_at(self, host: Nanos) -> i64 {
        let (Some(first), Some(last)) = (self.0.first(), self.0.last()) else {
            return 0;
        };
        if host <= first.at || last.at <= first.at {
            return first.offset.0;
        }
        let after = self.0.iter().position(|relation| relation.at >= host);
        let Some(index) = after.filter(|index| *index > 0) else {
            return last.offset.0;
        };
        let (one, two) = (&self.0[index - 1], &self.0[index]);
        let part = (host.0 - one.at.0) as f64 / (two.at.0 - one.at.0).max(1) as f64;
        one.offset.0 + ((two.offset.0 - one.offset.0) as f64 * part).round() as i64
    }
}

fn shifted(moment: Nanos, by: i64) -> Nanos {
    Nanos(moment.0.saturating_add_signed(by))
}

/// A block on the victim's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) sequence: u32,
    pub(crate) start: Nanos,
    pub(crate) end: Nanos,
}

/// Returns the blocks of a round on the clock of `victim`. Simultaneous blocks of several CPUs are
/// merged, from the first start to the last end.
pub(crate) fn spans_on(made: &[BlockSpan], source: Clock<'_>, victim: Clock<'_>) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::new();
    for block in made {
        let (start, end) = (
            victim.inside(source.outside(block.start)),
            victim.inside(source.outside(block.end)),
        );
        match spans
            .iter_mut()
            .find(|span| span.sequence == block.sequence)
        {
            Some(span) => {
                span.start = span.start.min(start);
                span.end = span.end.max(end);
            }
            None => spans.push(Span {
                sequence: block.sequence,
                start,
                end,
            }),
        }
    }
    spans.sort_by_key(|span| span.start);
    spans
}

/// The extent of windows beyond their blocks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Margins {
    /// Uncertainty of the clocks: windows begin this much before the block and end this much later.
    pub(crate) uncertainty: Nanos,
    /// One period of the victim's meter plus its worst quiet latency: the first sample after the
    /// block ends within it.
    pub(crate) after: Nanos,
}

/// Returns the windows of a round on the victim's clock, in chronological order: one for each
/// block, and up to two quiet ones in each pause that is long enough. Quiet windows have the median
/// length of the others, at random positions derived from `seed`. All windows are within the common
/// time of `timelines` (one for each CPU of the victim).
pub(crate) fn windows(
    spans: &[Span],
    timelines: &[&Timeline],
    margins: Margins,
    seed: u64,
) -> Vec<Window> {
    let start = timelines.iter().map(|timeline| timeline.start).max();
    let end = timelines.iter().map(|timeline| end_of(timeline)).min();
    let slot = timelines.iter().map(|timeline| timeline.slot).max();
    let (Some(start), Some(end), Some(slot)) = (start, end, slot) else {
        return Vec::new();
    };
    let bare = |start: Nanos, end: Nanos, block: Option<u32>| Window {
        start,
        end,
        block,
        worst: None,
    };
    let blocked: Vec<Window> = spans
        .iter()
        .map(|span| {
            bare(
                span.start.saturating_sub(margins.uncertainty),
                span.end + margins.uncertainty + margins.after,
                Some(span.sequence),
            )
        })
        .filter(|window| window.start >= start && window.end <= end)
        .collect();
    let mut lengths: Vec<u64> = blocked
        .iter()
        .map(|window| window.end.0 - window.start.0)
        .collect();
    lengths.sort_unstable();
    let Some(length) = lengths
        .get(lengths.len() / 2)
        .copied()
        .filter(|one| *one > 0)
    else {
        return Vec::new();
    };
    let mut generator = Pcg64Mcg::seed_from_u64(seed);
    let mut all = Vec::new();
    // A slot holds samples that ended in it and so events near it. Quiet windows therefore stay one
    // slot away from every block, also from blocks whose windows are cut off by the ends of the
    // round.
    let mut free_from = start;
    let every = spans.iter().map(|span| {
        (
            span.start.saturating_sub(margins.uncertainty + slot),
            span.end + margins.uncertainty + margins.after + slot,
        )
    });
    for (busy_from, busy_to) in every.chain([(end, end)]) {
        let free = busy_from.saturating_sub(free_from).0;
        let count = (free / length).min(QUIET_WINDOWS_EACH);
        if count > 0 {
            let shift = generator.random_range(0..=free - count * length);
            all.extend((0..count).map(|index| {
                let start = free_from + Nanos(shift + index * length);
                bare(start, start + Nanos(length), None)
            }));
        }
        free_from = free_from.max(busy_to);
    }
    all.extend(blocked);
    all.sort_by_key(|window| window.start);
    all
}

/// Returns the same windows with the worst latency of each CPU's timeline in them.
pub(crate) fn filled(windows: &[Window], timeline: &Timeline) -> Vec<Window> {
    windows
        .iter()
        .map(|window| Window {
            worst: worst_in(timeline, window.start, window.end),
            ..*window
        })
        .collect()
}

fn end_of(timeline: &Timeline) -> Nanos {
    Nanos(timeline.start.0 + timeline.slot.0.saturating_mul(timeline.worst.len() as u64))
}

/// Returns the worst sample that ended in a slot that the window touches. The next sample that
/// ended later also counts, because it may have begun within the window if the thread did not run
/// for the rest of it.
fn worst_in(timeline: &Timeline, start: Nanos, end: Nanos) -> Option<Nanos> {
    let slot = timeline.slot.0.max(1);
    let index = |moment: Nanos| moment.saturating_sub(timeline.start).0 / slot;
    let count = timeline.worst.len();
    let first = (index(start) as usize).min(count);
    let last = (index(Nanos(end.0.saturating_sub(1))) as usize + 1).min(count);
    let within = timeline.worst[first..last].iter().flatten().max().copied();
    let next = timeline.worst[last..]
        .iter()
        .position(Option::is_some)
        .and_then(|offset| {
            let index = last + offset;
            let slot_end = timeline.start.0 + (index as u64 + 1) * slot;
            timeline.worst[index].filter(|late| slot_end.saturating_sub(late.0) < end.0)
        });
    within.max(next)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rampart_model::{CpuId, SignedNanos};

    const MS: u64 = 1_000_000;

    fn relation(at: u64, offset: i64) -> ClockRelation {
        ClockRelation {
            at: Nanos(at),
            offset: SignedNanos(offset),
            uncertainty: Nanos(7),
            exchanges: 10,
        }
    }

    fn timeline(worst: Vec<Option<u64>>) -> Timeline {
        Timeline {
            start: Nanos(1000 * MS),
            slot: Nanos(MS),
            worst: worst.into_iter().map(|one| one.map(Nanos)).collect(),
        }
    }

    fn span(sequence: u32, start: u64, end: u64) -> Span {
        Span {
            sequence,
            start: Nanos(start * MS),
            end: Nanos(end * MS),
        }
    }

    const MARGINS: Margins = Margins {
        uncertainty: Nanos(100_000),
        after: Nanos(MS),
    };

    #[test]
    fn follows_a_drifting_clock_between_exchanges() {
        let relations = [relation(1_000_000, 500), relation(3_000_000, 700)];
        let clock = Clock(&relations);
        assert_eq!(clock.inside(Nanos(2_000_000)), Nanos(2_000_600));
        assert_eq!(clock.inside(Nanos(500_000)), Nanos(500_500));
        assert_eq!(clock.inside(Nanos(4_000_000)), Nanos(4_000_700));
        assert_eq!(clock.outside(Nanos(2_000_600)), Nanos(2_000_000));
        assert_eq!(clock.uncertainty(), Nanos(7));
        let own = Clock(&[]);
        assert_eq!(
            (own.inside(Nanos(5)), own.outside(Nanos(5))),
            (Nanos(5), Nanos(5))
        );
    }

    #[test]
    fn merges_blocks_of_several_cpus_on_the_victims_clock() {
        let (source, victim) = ([relation(0, 1000)], [relation(0, -200)]);
        let block = |cpu, sequence, start, end| BlockSpan {
            cpu: CpuId(cpu),
            sequence,
            start: Nanos(start),
            end: Nanos(end),
        };
        let made = [
            block(0, 0, 6000, 9000),
            block(1, 0, 5900, 8800),
            block(0, 1, 20_000, 23_000),
        ];
        let spans = spans_on(&made, Clock(&source), Clock(&victim));
        assert_eq!(
            spans,
            [
                Span {
                    sequence: 0,
                    start: Nanos(4700),
                    end: Nanos(7800)
                },
                Span {
                    sequence: 1,
                    start: Nanos(18_800),
                    end: Nanos(21_800)
                },
            ]
        );
    }

    #[test]
    fn a_sample_that_ends_after_its_window_counts() {
        // A thread was stopped from 1002 to 1009: no sample ends before slot 9.
        let mut worst = vec![Some(5); 20];
        worst[3..9].fill(None);
        worst[9] = Some(7 * MS);
        let timeline = timeline(worst);
        let at = |start: u64, end: u64| worst_in(&timeline, Nanos(start * MS), Nanos(end * MS));
        assert_eq!(at(1002, 1006), Some(Nanos(7 * MS)));
        assert_eq!(at(1008, 1012), Some(Nanos(7 * MS)));
        assert_eq!(at(1000, 1002), Some(Nanos(5)));
        assert_eq!(at(1012, 1016), Some(Nanos(5)));
    }

    #[test]
    fn returns_no_windows_without_data() {
        let empty = timeline(Vec::new());
        assert!(windows(&[span(0, 1, 2)], &[&empty], MARGINS, 1).is_empty());
        assert!(windows(&[], &[&empty], MARGINS, 1).is_empty());
        assert!(windows(&[span(0, 1, 2)], &[], MARGINS, 1).is_empty());
        assert_eq!(worst_in(&empty, Nanos(0), Nanos(u64::MAX)), None);
    }

    proptest! {
        #[test]
        fn quiet_windows_touch_no_block(
            pauses in proptest::collection::vec(1u64..60, 1..30),
            seed in any::<u64>(),
        ) {
            let timeline = timeline(vec![Some(1); 2000]);
            let mut at = 1000;
            let mut spans = Vec::new();
            for (sequence, pause) in pauses.iter().enumerate() {
                at += pause;
                spans.push(span(sequence as u32, at, at + 5));
                at += 5;
            }
            let found = windows(&spans, &[&timeline], MARGINS, seed);
            prop_assert!(found.is_sorted_by_key(|window| window.start));
            let with_block = found.iter().filter(|window| window.block.is_some()).count();
            prop_assert!(with_block <= spans.len() && with_block + 2 >= spans.len());
            let (busy, quiet): (Vec<Window>, Vec<Window>) =
                found.into_iter().partition(|window| window.block.is_some());
            for window in &quiet {
                prop_assert!(window.start >= timeline.start && window.end <= end_of(&timeline));
                let touches = spans.iter().any(|span| {
                    window.end.0 + MS > span.start.0 && window.start.0 < span.end.0 + MS
                });
                prop_assert!(!touches);
                prop_assert_eq!(window.end.0 - window.start.0, busy[0].end.0 - busy[0].start.0);
            }
            for (one, other) in quiet.iter().zip(&quiet[1.min(quiet.len())..]) {
                prop_assert!(one.end <= other.start);
            }
        }
    }
}
