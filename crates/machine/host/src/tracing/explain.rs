// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Finds the intervals of a CPU that explain a sample.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use rampart_model::{Cause, CauseKind, CpuId, ExplainedWorst, Nanos, WorstEvent};

use super::{TraceInterval, TraceSpan};

/// The thread that took a sample, which is no cause of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measurer {
    /// The measuring thread of that CPU.
    Meter,
    /// The thread with this id, which runs the virtual CPU of the guest with the meter.
    VirtualCpu(u32),
}

impl Measurer {
    /// Returns whether a thread, as the trace names it (`NAME:ID`), is this one on `cpu`.
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

    /// Returns the name of the measurer's time after the sample should have ended.
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
    /// The measurer.
    pub measurer: Measurer,
    /// The CPU.
    pub cpu: CpuId,
    /// The sample, on the clock of this kernel.
    pub event: WorstEvent,
    /// Length of the time before its end that the sample covers.
    pub window: Nanos,
    /// Length of the measuring thread's own work in that time.
    pub work: Nanos,
}

/// The kernel writes times in microseconds, so an interval may be off by this much.
const RESOLUTION: Nanos = Nanos::from_micros(1);

/// Name of the time whose events were lost.
const LOST: &str = "the trace of that time is lost";

/// Returns the causes of a sample: the intervals of its CPU that overlap it, without what interrupted
/// them, each name once, the longest first.
///
/// The measuring thread is no cause of its own latency; if it had the CPU longer than its work takes,
/// the rest was spent where the kernel does not see it: in the hypervisor below the machine, in
/// firmware, or waiting for memory. The thread of a virtual CPU is no cause either: while it runs, so
/// does the guest, whose kernel is not traced. That time, the idle loop, and time of `lost` events
/// are [`CauseKind::Unseen`].
#[must_use]
pub fn explain<'a>(
    sample: &TracedSample,
    intervals: impl IntoIterator<Item = &'a TraceInterval>,
    lost: &[TraceSpan],
) -> ExplainedWorst {
    let end = sample.event.at + RESOLUTION;
    let start = sample.event.at.saturating_sub(sample.window + RESOLUTION);
    let overlapping: Vec<&TraceInterval> = intervals
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
    // A small part of it is the path from the kernel's switch to the meter's clock read.
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

/// A limit of the scheduler for real-time threads (Documentation/scheduler/sched-rt-group.rst).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SchedulerLimit {
    /// Its name, with its setting: `real-time throttling, 50 ms in each 1 s`.
    pub(super) name: String,
    /// Time that it takes from real-time threads in each period.
    pub(super) taken: Nanos,
}

/// Names the limit that took the CPU from the measuring thread: the CPU was idle for as long as the limit takes, up to
/// the tick that ends it, though the thread should have run. No idle state takes this long to leave.
pub(super) fn name_limit(explained: &mut ExplainedWorst, limits: &[SchedulerLimit]) {
    for cause in &mut explained.causes {
        if cause.kind != CauseKind::Unseen || cause.name != super::assemble::IDLE {
            continue;
        }
        // The accounting happens at ticks, at most 10 ms apart.
        let fits = |limit: &&SchedulerLimit| {
            let slack = (limit.taken.0 / 5).max(5_000_000);
            cause.duration >= SHORTEST_LIMIT && cause.duration.0.abs_diff(limit.taken.0) <= slack
        };
        if let Some(limit) = limits.iter().find(fits) {
            cause.kind = CauseKind::Limit;
            cause.name.clone_from(&limit.name);
            explained.unexplained = explained.unexplained.saturating_sub(cause.duration);
        }
    }
}

/// Shortest time that is taken for a limit.
const SHORTEST_LIMIT: Nanos = Nanos::from_millis(10);

/// Returns a span from the first lost time between `start` and `end`, as long as all lost times between
/// them, or `None` without lost events.
fn lost_in(lost: &[TraceSpan], start: Nanos, end: Nanos) -> Option<TraceSpan> {
    let mut found: Option<TraceSpan> = None;
    for gap in lost {
        let (from, until) = (gap.start.max(start), gap.end.min(end));
        if from < until {
            let length = until.saturating_sub(from);
            match &mut found {
                Some(all) => all.end += length,
                None => {
                    found = Some(TraceSpan {
                        start: from,
                        end: until,
                    });
                }
            }
        }
    }
    found
}

/// Returns for each interval its own time between `start` and `end`. At every moment the innermost
/// interval has the CPU: the one of the highest rank, and among equals the one that began last.
fn shares_of_time(intervals: &[&TraceInterval], start: Nanos, end: Nanos) -> Vec<(usize, Nanos)> {
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

/// Returns the rank of a kind: a higher one interrupts a lower one.
const fn rank(kind: CauseKind) -> u8 {
    match kind {
        CauseKind::Unseen | CauseKind::Limit | CauseKind::Thread => 0,
        CauseKind::Softirq => 1,
        CauseKind::Interrupt => 2,
        CauseKind::Nmi => 3,
    }
}
