// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which of the things that had a CPU explain a sample. Pure.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use rampart_model::{Cause, CauseKind, CpuId, ExplainedWorst, Nanos, WorstEvent};

use super::{Interval, Span};

/// Whose time on the CPU a sample was taken in, which is no cause of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measurer {
    /// The measuring thread of that CPU.
    Meter,
    /// A guest: the thread of this id runs its virtual CPU, on which the meter is.
    VirtualCpu(u32),
}

impl Measurer {
    /// Whether a thread, as the trace names it (`NAME:ID`), is this one on `cpu`.
    fn is_named(self, name: &str, cpu: CpuId) -> bool {
        match self {
            Self::Meter => name
                .strip_prefix("meter/")
                .and_then(|rest| rest.split_once(':'))
                .is_some_and(|(number, _)| number == cpu.to_string()),
            Self::VirtualCpu(thread) => name
                .rsplit_once(':')
                .is_some_and(|(_, id)| id == thread.to_string()),
        }
    }

    /// What the time of it is called in which the sample should have been over.
    const fn lingering(self) -> &'static str {
        match self {
            Self::Meter => "in the measuring thread",
            Self::VirtualCpu(_) => "in the guest, whose own kernel is not traced",
        }
    }
}

/// A sample to explain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TracedSample {
    /// Who took it.
    pub measurer: Measurer,
    /// The CPU.
    pub cpu: CpuId,
    /// The sample, on the clock of this kernel.
    pub event: WorstEvent,
    /// How long before its end the stretch of time began that it tells of.
    pub window: Nanos,
    /// How much of that stretch the measuring thread itself had to work.
    pub work: Nanos,
}

/// The kernel writes moments to the microsecond, so an interval may be this much off.
const RESOLUTION: Nanos = Nanos::from_micros(1);

/// What the time is called whose events were lost.
const LOST: &str = "the trace of that time is lost";

/// Names the causes of a sample: the intervals of its CPU that overlap it, what interrupted them
/// taken off, each name once, the longest first.
///
/// The measuring thread is no cause of its own latency; where much of its time is more than its
/// work, it went where the kernel does not see: to the hypervisor under the machine, to firmware,
/// to memory that was slow. The thread of a virtual CPU is none either: while it has the CPU the
/// guest runs, and what its kernel does then is not seen. That, the idle loop, and time whose events were `lost`, is
/// [`CauseKind::Unseen`].
#[must_use]
pub fn explain<'a>(
    sample: &TracedSample,
    intervals: impl IntoIterator<Item = &'a Interval>,
    lost: &[Span],
) -> ExplainedWorst {
    let end = sample.event.at + RESOLUTION;
    let start = sample.event.at.saturating_sub(sample.window + RESOLUTION);
    let overlapping: Vec<&Interval> = intervals
        .into_iter()
        .filter(|interval| interval.start < end && interval.end > start)
        .collect();
    let mut shares: BTreeMap<(CauseKind, &str), (Nanos, Nanos)> = BTreeMap::new();
    let mut own_time = Nanos::ZERO;
    for (index, length) in shares_of_time(&overlapping, start, end) {
        let Some(interval) = overlapping.get(index) else {
            continue;
        };
        if interval.kind == CauseKind::Thread
            && sample.measurer.is_named(&interval.name, sample.cpu)
        {
            own_time += length;
            continue;
        }
        let share = shares
            .entry((interval.kind, &*interval.name))
            .or_insert((interval.start, Nanos::ZERO));
        share.0 = share.0.min(interval.start);
        share.1 += length;
    }
    let mut causes: Vec<Cause> = shares
        .into_iter()
        .map(|((kind, name), (start, duration))| Cause {
            kind,
            name: name.to_owned(),
            start,
            duration,
        })
        .collect();
    let begun = sample.event.at.saturating_sub(sample.window);
    let unseen = |name: &str, start, duration| Cause {
        kind: CauseKind::Unseen,
        name: name.to_owned(),
        start,
        duration,
    };
    let disturbed = sample.window.saturating_sub(sample.work);
    // A little of it is the way from the kernel's switch to the meter's own look at the clock.
    let lingered = own_time.saturating_sub(sample.work).min(disturbed);
    if lingered.0 > disturbed.0 / 10 && lingered > RESOLUTION {
        causes.push(unseen(sample.measurer.lingering(), begun, lingered));
    }
    if let Some(gap) = lost_in(lost, begun, sample.event.at) {
        causes.push(unseen(LOST, gap.start, gap.end.saturating_sub(gap.start)));
    }
    let seen = causes
        .iter()
        .filter(|cause| cause.kind != CauseKind::Unseen)
        .map(|cause| cause.duration)
        .sum();
    if causes.is_empty() {
        causes.push(unseen("nothing that the kernel saw", begun, disturbed));
    }
    causes.sort_by(|one, other| {
        (Reverse(one.duration), &one.name).cmp(&(Reverse(other.duration), &other.name))
    });
    ExplainedWorst {
        cpu: sample.cpu,
        event: sample.event,
        causes,
        unexplained: disturbed.saturating_sub(seen),
    }
}

/// The stretch from the first lost moment between `start` and `end` on, as long as all lost time
/// between them; none where nothing is lost.
fn lost_in(lost: &[Span], start: Nanos, end: Nanos) -> Option<Span> {
    let mut found: Option<Span> = None;
    for gap in lost {
        let (from, until) = (gap.start.max(start), gap.end.min(end));
        if from < until {
            let length = until.saturating_sub(from);
            match &mut found {
                Some(all) => all.end += length,
                None => {
                    found = Some(Span {
                        start: from,
                        end: until,
                    });
                }
            }
        }
    }
    found
}

/// For each interval, how much of the time from `start` to `end` was its own: at every moment
/// the innermost has the CPU, which is the one of the highest rank and, among equals, the one
/// that began last.
fn shares_of_time(intervals: &[&Interval], start: Nanos, end: Nanos) -> Vec<(usize, Nanos)> {
    let mut edges: Vec<(Nanos, bool, usize)> = Vec::with_capacity(intervals.len() * 2);
    for (index, interval) in intervals.iter().enumerate() {
        let (from, until) = (interval.start.max(start), interval.end.min(end));
        if from < until {
            edges.push((from, true, index));
            edges.push((until, false, index));
        }
    }
    edges.sort_unstable();
    let mut active = BTreeSet::new();
    let mut shares = Vec::new();
    let mut since = start;
    for (at, begins, index) in edges {
        if let Some((_, _, innermost)) = active.last()
            && at > since
        {
            shares.push((*innermost, at.saturating_sub(since)));
        }
        since = at;
        let Some(interval) = intervals.get(index) else {
            continue;
        };
        let key = (rank(interval.kind), interval.start, index);
        if begins {
            active.insert(key);
        } else {
            active.remove(&key);
        }
    }
    shares
}

/// What can interrupt what.
const fn rank(kind: CauseKind) -> u8 {
    match kind {
        CauseKind::Unseen | CauseKind::Thread => 0,
        CauseKind::Softirq => 1,
        CauseKind::Interrupt => 2,
        CauseKind::Nmi => 3,
    }
}
