// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Turns the samples of one thread into distributions per batch, the worst samples, and totals.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use rampart_model::{
    Batch, CpuId, MeterKind, MeterSettings, Nanos, Phase, Series, WarmUp, WorstEvent,
};

use super::batch_line::SeriesCounts;
use super::console::Console;
use super::slots::Slots;
use super::thread::Boundary;
use super::worst::Worst;
use crate::engine::Sample;
use crate::engine::control_loop::Periods;
use crate::histogram::Histogram;
use crate::linux::counter::CounterKind;
use crate::ring::Consumer;
use crate::throttling::Gap;
use crate::timescale::{Anchor, Timescale};

/// A sample that ended this long ago is in the ring, unless its thread was delayed; then it counts
/// into the next batch.
const GRACE: Nanos = Nanos::from_millis(2);

/// Gaps of at least this length may be throttling. They are kept up to [`LONG_GAPS`].
const LONG_GAP: Nanos = Nanos::from_millis(5);
const LONG_GAPS: usize = 4096;

/// Converts the counter of `noise` to moments and lengths.
///
/// Lengths use the line from the first to the latest anchor, whose precision grows with every
/// anchor. Moments use the line through the last two anchors, which follows the NTP corrections of
/// the clock.
#[derive(Debug)]
pub(super) struct CounterClock {
    counter: CounterKind,
    first: Anchor,
    latest: Anchor,
    lengths: Timescale,
    moments: Timescale,
}

impl CounterClock {
    /// Creates the conversion from a first scale, exact to some parts per million.
    pub(super) fn new(counter: CounterKind, scale: Timescale) -> Self {
        let anchor = counter.anchor();
        Self {
            counter,
            first: anchor,
            latest: anchor,
            lengths: scale,
            moments: scale,
        }
    }

    /// Adds a new anchor. Call it after the samples that are converted next were taken.
    pub(super) fn update(&mut self) {
        /// Anchors closer together would give a worse line than the present one.
        const APART: Nanos = Nanos::from_millis(10);
        let anchor = self.counter.anchor();
        if anchor.at.saturating_sub(self.latest.at) < APART {
            return;
        }
        if let Some(lengths) = Timescale::through(self.first, anchor) {
            self.lengths = lengths;
        }
        if let Some(moments) = Timescale::through(self.latest, anchor) {
            self.moments = moments;
        }
        self.latest = anchor;
    }

    /// Returns the scale of lengths.
    pub(super) const fn lengths(&self) -> &Timescale {
        &self.lengths
    }
}

fn empty_counts(series: Series) -> SeriesCounts {
    SeriesCounts {
        series,
        // Greater values make it grow. Below, it never does, so that allocations do not disturb the
        // measured CPUs.
        seen: Histogram::with_room_for(Nanos::SECOND),
        missing: Histogram::with_room_for(Nanos::ZERO),
    }
}

/// Totals of the measurement.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Totals {
    pub(super) samples: u64,
    pub(super) missed: u64,
    pub(super) over_deadline: u64,
    pub(super) lost: u64,
    /// `loop` only.
    pub(super) worst_start: Nanos,
    /// `loop` only.
    pub(super) worst_late: Nanos,
    /// `loop` only.
    pub(super) worst_early: Nanos,
}

/// The reader of one thread's samples.
#[derive(Debug)]
pub(super) struct Collector {
    consumer: Consumer,
    state: State,
}

#[derive(Debug)]
struct State {
    meter: MeterKind,
    interval: Nanos,
    work: Nanos,
    /// In `loop`, the interval if the plan has no deadline.
    deadline: Nanos,
    batch_length: Nanos,
    boundary: Arc<Boundary>,
    measured_from: Nanos,
    /// The planned end of the measurement.
    measured_until: Nanos,
    phase: Phase,
    batch_start: Nanos,
    batch_end: Nanos,
    /// Samples taken so far.
    read: u64,
    /// `read` at the start of the measurement.
    read_before: u64,
    /// A sample that ended before this moment, and whose value does not exceed the limit below, is
    /// only counted; every other sample is examined.
    quick_until: u64,
    quick_most: u64,
    primary: SeriesCounts,
    /// The other series: of `loop`, start jitter, late and early periods; of `mmio`, mapped
    /// accesses.
    others: Vec<SeriesCounts>,
    /// Totals of the present batch.
    batch: Totals,
    lost_told: u64,
    totals: Totals,
    warm_up: WarmUp,
    worst: Worst,
    /// The worst sample in each slot of the present batch; `None` without a timeline.
    slots: Option<Slots>,
    long_gaps: Vec<Gap>,
    periods: Periods,
    /// Header of the present batch; its series are in `primary` and `others`.
    event: Batch,
}

impl Collector {
    /// Creates a reader for the thread of `cpu`, whose warm-up began at `start`.
    pub(super) fn new(
        cpu: CpuId,
        settings: &MeterSettings,
        consumer: Consumer,
        boundary: Arc<Boundary>,
    ) -> Self {
        let others: &[Series] = match settings.meter {
            MeterKind::Loop => &[Series::StartJitter, Series::PeriodLate, Series::PeriodEarly],
            MeterKind::Mmio => &[Series::MappedAccess],
            _ => &[],
        };
        let deadline = match (settings.deadline, settings.meter) {
            (Some(deadline), _) => deadline,
            (None, MeterKind::Loop) => settings.interval,
            (None, _) => Nanos(u64::MAX),
        };
        let state = State {
            meter: settings.meter,
            interval: settings.interval,
            work: settings.work,
            deadline,
            batch_length: settings.batch,
            boundary,
            measured_from: Nanos::ZERO,
            measured_until: Nanos::ZERO,
            phase: Phase::WarmUp,
            batch_start: Nanos::ZERO,
            batch_end: Nanos::ZERO,
            read: 0,
            read_before: 0,
            quick_until: 0,
            quick_most: 0,
            primary: empty_counts(settings.meter.primary_series()),
            others: others.iter().copied().map(empty_counts).collect(),
            batch: Totals::default(),
            lost_told: 0,
            totals: Totals::default(),
            warm_up: WarmUp::default(),
            worst: Worst::new(settings.worst),
            slots: settings.timeline.map(Slots::new),
            long_gaps: if settings.meter == MeterKind::Noise {
                Vec::with_capacity(LONG_GAPS)
            } else {
                Vec::new()
            },
            periods: Periods::new(settings.interval),
            event: Batch {
                timeline: Vec::new(),
                cpu,
                phase: Phase::WarmUp,
                at: Nanos::ZERO,
                length: Nanos::ZERO,
                series: Vec::new(),
                missed: 0,
                over_deadline: 0,
                lost: 0,
            },
        };
        Self { consumer, state }
    }

    /// Returns the CPU of the thread.
    pub(super) const fn cpu(&self) -> CpuId {
        self.state.event.cpu
    }

    /// Sets the start of the warm-up.
    pub(super) fn start(&mut self, start: Nanos, settings: &MeterSettings) {
        let state = &mut self.state;
        state.measured_from = start + settings.warm_up;
        state.measured_until = state.measured_from + settings.duration;
        state.begin_batch(start, state.measured_from);
    }

    /// Returns whether the reader has seen the start of the measurement.
    pub(super) fn measuring(&self) -> bool {
        self.state.boundary.samples.load(Ordering::Acquire) != u64::MAX
    }

    /// Reads the ring and sends the batches that were complete at `now`, which the caller read
    /// before the call.
    pub(super) fn read(&mut self, now: Nanos, clock: Option<&CounterClock>, console: &mut Console) {
        let (consumer, state) = (&mut self.consumer, &mut self.state);
        let now = now.min(Nanos(state.boundary.read_until.load(Ordering::Acquire)));
        match clock {
            None => consumer.drain(|samples| state.take(samples, console)),
            Some(clock) => consumer.drain(|samples| {
                for sample in samples {
                    let sample = Sample {
                        at: clock.moments.moment(sample.at).0,
                        value: clock.lengths.length(sample.value).0,
                        ..*sample
                    };
                    state.take(&[sample], console);
                }
            }),
        }
        state.batch.lost = consumer.lost() - state.lost_told;
        state.turn_if_due(console);
        state.close_until(now.saturating_sub(GRACE), console);
    }

    /// Sends the remaining samples; the measurement was `duration` long.
    pub(super) fn finish(&mut self, duration: Nanos, console: &mut Console) {
        let state = &mut self.state;
        let end = state.measured_from + duration;
        state.close_until(end.saturating_sub(Nanos(1)), console);
        if end > state.batch_start || !state.primary.seen.is_empty() || state.batch.lost > 0 {
            state.batch_end = end.max(state.batch_start);
            state.close(console);
        }
        state.totals.samples = state.read - state.read_before;
        state.warm_up.samples = state.read_before;
        let lost = self.consumer.lost();
        state.totals.lost = lost - state.boundary.lost.load(Ordering::Acquire);
    }

    /// Returns the totals of the measurement; complete after [`Collector::finish`].
    pub(super) const fn totals(&self) -> Totals {
        self.state.totals
    }

    /// Returns the warm-up.
    pub(super) const fn warm_up(&self) -> WarmUp {
        self.state.warm_up
    }

    /// Returns the deadline that samples were compared with.
    pub(super) const fn deadline(&self) -> Nanos {
        self.state.deadline
    }

    /// Returns the gaps that are long enough to be throttling.
    pub(super) fn long_gaps(&self) -> &[Gap] {
        &self.state.long_gaps
    }

    /// Returns the worst samples, worst first.
    pub(super) fn into_worst(self) -> Vec<WorstEvent> {
        self.state.worst.into_events()
    }
}

impl State {
    /// Takes samples in order. A separate function, so that its short loop can use all registers.
    #[inline(never)]
    fn take(&mut self, mut samples: &[Sample], console: &mut Console) {
        loop {
            let (until, most) = (self.quick_until, self.quick_most);
            let quick = samples.iter().map_while(|sample| {
                (sample.at < until && sample.value <= most).then_some(sample.value)
            });
            let counted = self.primary.seen.record_run(quick);
            self.read += counted as u64;
            let Some((sample, rest)) = samples.get(counted..).and_then(<[_]>::split_first) else {
                return;
            };
            self.look_at(sample, console);
            samples = rest;
        }
    }

    /// Examines one sample completely.
    #[inline(never)]
    fn look_at(&mut self, sample: &Sample, console: &mut Console) {
        self.turn_if_due(console);
        self.close_until(Nanos(sample.at), console);
        let value = Nanos(sample.value);
        self.primary.seen.record(value);
        if value > self.deadline {
            self.batch.over_deadline += 1;
        }
        if let Some(slots) = &mut self.slots {
            slots.take(Nanos(sample.at), value);
        }
        if self.phase == Phase::Measured {
            let sequence = self.read - self.read_before;
            self.worst.offer(Nanos(sample.at), value, sequence);
        } else {
            self.warm_up.max = self.warm_up.max.max(Some(value));
        }
        if sample.missed > 0 {
            self.take_missed(sample);
        }
        match self.meter {
            MeterKind::Loop => self.take_cycle(sample),
            MeterKind::Mmio => self.take_mapped(sample),
            MeterKind::Noise if value >= LONG_GAP => self.take_long_gap(sample),
            _ => {}
        }
        self.read += 1;
        self.set_quick();
    }

    /// Sets the limits below which a sample is only counted: it belongs to the present batch and
    /// slot of the measurement, and is neither among the worst, nor the worst of its slot, nor over
    /// the deadline, nor long enough for a missed period or for throttling.
    fn set_quick(&mut self) {
        let looks = matches!(self.meter, MeterKind::Loop | MeterKind::Mmio);
        if self.phase == Phase::WarmUp || looks {
            self.quick_until = 0;
            return;
        }
        self.quick_until = if self.batch_end < self.phase_end() {
            self.batch_end.0
        } else {
            u64::MAX
        };
        let Some(floor) = self.worst.floor() else {
            self.quick_until = 0;
            return;
        };
        let other = match self.meter {
            MeterKind::Wakeup | MeterKind::Irq => self.interval.0.saturating_sub(1),
            MeterKind::Noise => LONG_GAP.0.saturating_sub(1),
            MeterKind::Fwq | MeterKind::Loop | MeterKind::Mmio => u64::MAX,
        };
        // At most the present maximum, so that counting need not update the maximum.
        let greatest = self.primary.seen.max().unwrap_or_default();
        self.quick_most = floor.0.min(self.deadline.0).min(other).min(greatest.0);
        if let Some((until, most)) = self.slots.as_ref().map(Slots::quick) {
            self.quick_until = self.quick_until.min(until);
            self.quick_most = self.quick_most.min(most);
        }
    }

    #[cold]
    fn take_missed(&mut self, sample: &Sample) {
        self.batch.missed += sample.missed;
        let value = Nanos(sample.value);
        let primary = &mut self.primary.missing;
        if self.meter == MeterKind::Mmio {
            // A skipped access would have taken no longer because of the delay.
        } else if let Some(start) = self.others.first_mut() {
            // A skipped period could have begun when this one ended, after its own work.
            primary.record_missed(value + self.work, sample.missed, self.interval);
            start
                .missing
                .record_missed(value, sample.missed, self.interval);
        } else {
            primary.record_missed(value, sample.missed, self.interval);
        }
    }

    /// The field `start` holds the mapped access.
    fn take_mapped(&mut self, sample: &Sample) {
        if let Some(mapped) = self.others.first_mut() {
            mapped.seen.record(Nanos(sample.start));
        }
    }

    fn take_cycle(&mut self, sample: &Sample) {
        let deviation = self.periods.deviation(sample);
        let [start, late, early] = self.others.as_mut_slice() else {
            return;
        };
        let jitter = Nanos(sample.start);
        start.seen.record(jitter);
        let measured = self.phase == Phase::Measured;
        if measured {
            self.totals.worst_start = self.totals.worst_start.max(jitter);
        }
        let Some(deviation) = deviation else {
            return;
        };
        let length = Nanos(deviation.0.unsigned_abs());
        if deviation.0 >= 0 {
            late.seen.record(length);
            if measured {
                self.totals.worst_late = self.totals.worst_late.max(length);
            }
        } else {
            early.seen.record(length);
            if measured {
                self.totals.worst_early = self.totals.worst_early.max(length);
            }
        }
    }

    #[cold]
    fn take_long_gap(&mut self, sample: &Sample) {
        if self.phase == Phase::Measured && self.long_gaps.len() < LONG_GAPS {
            self.long_gaps.push(Gap {
                at: Nanos(sample.at),
                length: Nanos(sample.value),
            });
        }
    }

    /// Switches from the warm-up to the measurement when all samples of the warm-up were taken.
    fn turn_if_due(&mut self, console: &mut Console) {
        if self.phase == Phase::WarmUp && self.read >= self.boundary.samples.load(Ordering::Acquire)
        {
            if self.measured_from > self.batch_start || !self.primary.seen.is_empty() {
                self.batch_end = self.measured_from;
                self.close(console);
            }
            self.phase = Phase::Measured;
            self.read_before = self.read;
            self.begin_batch(self.measured_from, self.measured_until);
            self.set_quick();
        }
    }

    /// Returns the planned end of the present phase.
    fn phase_end(&self) -> Nanos {
        match self.phase {
            Phase::WarmUp => self.measured_from,
            Phase::Measured => self.measured_until,
        }
    }

    /// Sends every batch that ended at `moment` or before, except the last of a phase: it ends when
    /// the thread reports it, and takes late samples. While the output is congested, the present
    /// batch grows instead.
    fn close_until(&mut self, moment: Nanos, console: &mut Console) {
        while moment >= self.batch_end && self.batch_end < self.phase_end() {
            if console.congested() {
                self.batch_end = (self.batch_end + self.batch_length).min(self.phase_end());
                self.set_quick();
            } else {
                self.close(console);
            }
        }
    }

    /// Begins the next batch at `start`; it ends at `phase_end` at the latest.
    fn begin_batch(&mut self, start: Nanos, phase_end: Nanos) {
        self.batch_start = start;
        self.batch_end = (start + self.batch_length).min(phase_end);
        if let Some(slots) = &mut self.slots {
            slots.begin(start);
        }
    }

    fn close(&mut self, console: &mut Console) {
        let event = &mut self.event;
        event.phase = self.phase;
        event.at = self.batch_start;
        event.length = self.batch_end.saturating_sub(self.batch_start);
        (event.missed, event.over_deadline, event.lost) =
            (self.batch.missed, self.batch.over_deadline, self.batch.lost);
        if self.phase == Phase::Measured {
            self.totals.missed += self.batch.missed;
            self.totals.over_deadline += self.batch.over_deadline;
        }
        self.lost_told += self.batch.lost;
        self.batch = Totals::default();
        if let Some(slots) = &mut self.slots {
            event.timeline = slots.leave(event.length);
        }
        self.begin_batch(self.batch_end, self.phase_end());
        let series = std::iter::once(&mut self.primary).chain(&mut self.others);
        console.send_batch(&self.event, series);
        self.set_quick();
    }
}

#[cfg(test)]
mod tests;
