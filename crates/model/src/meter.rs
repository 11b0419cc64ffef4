// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Meters: what is asked of one, and the conversation with the program that carries it.
//!
//! The conversation is one JSON object a line: [`MeterRequest`] on the program's standard input,
//! [`MeterEvent`] on its standard output. It is the same in a process, a container and,
//! over a serial line, a guest.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{
    CellPayload, CpuId, CpuSet, Distribution, DomainSelection, Finding, Nanos, SchedulingPolicy,
    ThreadOutcome,
};

/// Version of the conversation. A program refuses another version than its own.
pub const METER_PROTOCOL_VERSION: u32 = 1;

/// The meters.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum MeterKind {
    /// Timer to thread: how late a thread wakes from an absolute sleep.
    Wakeup,
    /// Gaps in a loop that does nothing but read the counter.
    Noise,
    /// The time that one fixed piece of work takes, again and again.
    Fwq,
    /// A periodic control loop with work and a deadline.
    Loop,
    /// Timer to interrupt handler, where no operating system stands between.
    Irq,
    /// Accesses of a device's register, on a page that is mapped and on one that traps.
    Mmio,
}

/// Why a text names no meter.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no meter `{0}`; the meters are wakeup, noise, fwq, loop, irq and mmio")]
pub struct ParseMeterKindError(pub String);

impl MeterKind {
    /// Every meter.
    pub const ALL: [Self; 6] = [
        Self::Wakeup,
        Self::Noise,
        Self::Fwq,
        Self::Loop,
        Self::Irq,
        Self::Mmio,
    ];

    /// The word for it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Wakeup => "wakeup",
            Self::Noise => "noise",
            Self::Fwq => "fwq",
            Self::Loop => "loop",
            Self::Irq => "irq",
            Self::Mmio => "mmio",
        }
    }

    /// The series that verdicts rest on and that the worst events come from.
    #[must_use]
    pub const fn primary_series(self) -> Series {
        match self {
            Self::Wakeup => Series::Lateness,
            Self::Noise => Series::Gap,
            Self::Fwq => Series::Excess,
            Self::Loop => Series::Response,
            Self::Irq => Series::Delivery,
            Self::Mmio => Series::TrappedAccess,
        }
    }

    /// Whether it takes its samples at planned moments, [`MeterSettings::interval`] apart.
    #[must_use]
    pub const fn is_periodic(self) -> bool {
        match self {
            Self::Wakeup | Self::Loop | Self::Irq | Self::Mmio => true,
            Self::Noise | Self::Fwq => false,
        }
    }

    /// Whether it needs the processor without an operating system: handlers of interrupts and
    /// pages of devices are a kernel's own.
    #[must_use]
    pub const fn needs_bare_metal(self) -> bool {
        match self {
            Self::Irq | Self::Mmio => true,
            Self::Wakeup | Self::Noise | Self::Fwq | Self::Loop => false,
        }
    }

    /// Whether it can measure in this domain.
    #[must_use]
    pub fn measures_in(self, domain: &DomainSelection) -> bool {
        !self.needs_bare_metal() || domain.cell == Some(CellPayload::BareMetal)
    }

    /// Why it measures nothing at a place that is not a cell without an operating system.
    #[must_use]
    pub fn not_here(self, location: &str) -> Finding {
        let needs = match self {
            Self::Irq => "handles an interrupt of the timer itself",
            _ => "reads pages of devices itself",
        };
        Finding::new(
            crate::Severity::Note,
            location,
            format!(
                "`{self}` is not measured here, because it {needs}, which an operating system does not let it"
            ),
        )
        .values(
            "an operating system",
            "a cell without an operating system, on arm64",
        )
        .fix("--domains cell")
    }
}

impl fmt::Display for MeterKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

impl FromStr for MeterKind {
    type Err = ParseMeterKindError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.word() == text)
            .ok_or_else(|| ParseMeterKindError(text.to_owned()))
    }
}

/// One measured quantity. All are lengths of time.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Series {
    /// `wakeup`: the moment of waking minus the planned moment.
    Lateness,
    /// `noise`: time between two neighbouring reads of the counter, where over the threshold.
    Gap,
    /// `fwq`: time of a quantum minus the shortest seen.
    Excess,
    /// `loop`: start of the work minus the planned start.
    StartJitter,
    /// `loop`: end of the work minus the planned start; compared with the deadline.
    Response,
    /// `loop`: by how much a period (start to start) was longer than planned.
    PeriodLate,
    /// `loop`: by how much a period (start to start) was shorter than planned.
    PeriodEarly,
    /// `irq`: the handler's first reading of the counter minus the timer's compare value.
    Delivery,
    /// `mmio`: one read of a register on a page that traps, the mean of a batch.
    TrappedAccess,
    /// `mmio`: the same on a page that is mapped.
    MappedAccess,
}

/// Who gives the measuring threads their CPU and policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PlacedBy {
    /// The program itself, with its own privileges.
    Itself,
    /// Whoever started it, between [`MeterEvent::Ready`] and [`MeterRequest::Go`], so that the
    /// program needs no privilege. It checks the result all the same.
    Outside,
}

/// What a meter is to do. Times not named otherwise are lengths on `CLOCK_MONOTONIC`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MeterSettings {
    /// Which meter.
    pub meter: MeterKind,
    /// One measuring thread for each of these CPUs.
    pub cpus: CpuSet,
    /// Where everything else of the program runs: reader of the rings, output. Empty: anywhere
    /// the program may run that is not measured; if nothing is left, on a measured CPU, and the
    /// record says so.
    pub housekeeping: CpuSet,
    /// Policy of the measuring threads.
    pub policy: SchedulingPolicy,
    /// Who sets CPU and policy.
    pub placed_by: PlacedBy,
    /// How long to measure, warm-up apart.
    pub duration: Nanos,
    /// How long to run before; shown, not mixed in.
    pub warm_up: Nanos,
    /// Of the periodic meters ([`MeterKind::is_periodic`]): the period, at least 20 µs.
    pub interval: Nanos,
    /// Of the same: a period of its own for each thread, in the order of `cpus`. Empty: all
    /// have `interval`.
    #[serde(default)]
    pub intervals: Vec<Nanos>,
    /// Of the same: all threads at the same moments, instead of spread over the period.
    pub aligned: bool,
    /// `noise`: the shortest gap that is kept; none: three times the loop's own period, and
    /// at least 200 ns.
    pub threshold: Option<Nanos>,
    /// `fwq`: length of the quantum; `loop`: length of the work, both when undisturbed.
    pub work: Nanos,
    /// Samples of the primary series over this are counted exactly.
    pub deadline: Option<Nanos>,
    /// How many of the worst samples to keep with their moments, for each thread.
    pub worst: u32,
    /// Length of the batches in which distributions leave.
    pub batch: Nanos,
    /// Keep the worst sample of the primary series in each slot of this length, so that samples
    /// can be held against what happened in time; none: do not. At least 1 ms, and `batch` is a
    /// multiple of it, so that the slots of the measurement lie on one grid from its start on,
    /// whatever batch they are in. The warm-up has a grid of its own, from its own start on.
    #[serde(default)]
    pub timeline: Option<Nanos>,
    /// Lock all memory. Without it a page fault may be measured; they are counted either way.
    pub lock_memory: bool,
}

impl MeterSettings {
    /// The shortest interval that is accepted.
    pub const SHORTEST_INTERVAL: Nanos = Nanos::from_micros(20);

    /// The plan of `meter` that a user gets without any option: FIFO 80 where the meter waits
    /// between samples, the time-sharing policy where it never would let go of the CPU.
    #[must_use]
    pub fn new(meter: MeterKind, cpus: CpuSet) -> Self {
        let policy = match meter {
            MeterKind::Wakeup | MeterKind::Loop => SchedulingPolicy::Fifo(80),
            // Without an operating system there is no policy.
            MeterKind::Noise | MeterKind::Fwq | MeterKind::Irq | MeterKind::Mmio => {
                SchedulingPolicy::Other
            }
        };
        Self {
            meter,
            cpus,
            housekeeping: CpuSet::new(),
            policy,
            placed_by: PlacedBy::Itself,
            duration: Nanos::from_secs(10),
            warm_up: Nanos::from_millis(500),
            interval: Nanos::from_millis(1),
            intervals: Vec::new(),
            aligned: false,
            threshold: None,
            work: Nanos::from_micros(100),
            deadline: None,
            worst: 20,
            batch: Nanos::SECOND,
            timeline: None,
            lock_memory: true,
        }
    }

    /// The period of the thread that measures the `place`-th CPU, from 0.
    #[must_use]
    pub fn interval_of(&self, location: usize) -> Nanos {
        self.intervals
            .get(location)
            .copied()
            .unwrap_or(self.interval)
    }

    /// What makes no sense in this plan, whatever the machine.
    #[must_use]
    pub fn findings(&self) -> Vec<Finding> {
        use crate::Severity::Error;
        let mut findings = Vec::new();
        let mut problem = |location: &str, what: &str, present: String, needed: &str| {
            findings.push(Finding::new(Error, location, what).values(present, needed));
        };
        if self.cpus.is_empty() {
            problem(
                "cpus",
                "there is nothing to measure on",
                "empty".to_owned(),
                "at least one CPU",
            );
        }
        if self.duration == Nanos::ZERO {
            problem(
                "duration",
                "there is no time to measure in",
                self.duration.to_string(),
                "more than 0",
            );
        }
        if self.batch < Nanos::from_millis(10) {
            problem(
                "batch",
                "batches are too short",
                self.batch.to_string(),
                "10 ms or more",
            );
        }
        if self.worst > 10_000 {
            problem(
                "worst",
                "too many worst samples",
                self.worst.to_string(),
                "10000 or fewer",
            );
        }
        if let Some(slot) = self.timeline
            && (slot < Nanos::from_millis(1) || !self.batch.0.is_multiple_of(slot.0))
        {
            problem(
                "timeline",
                "the slots of the timeline do not fit into the batches",
                format!("slots of {slot} in batches of {}", self.batch),
                "slots of 1 ms or more, and batches that are a multiple of them",
            );
        }
        let periodic = self.meter.is_periodic();
        if !self.intervals.is_empty() && self.intervals.len() != self.cpus.len() {
            problem(
                "interval",
                "there is not one interval for each CPU",
                format!("{} for {} CPUs", self.intervals.len(), self.cpus.len()),
                "one for all, or one for each",
            );
        }
        let intervals = [self.intervals.as_slice(), &[self.interval]].concat();
        let shortest = intervals.iter().copied().min().unwrap_or_default();
        let longest = intervals.iter().copied().max().unwrap_or_default();
        if periodic && shortest < Self::SHORTEST_INTERVAL {
            problem(
                "interval",
                "the interval is too short",
                shortest.to_string(),
                "20 µs or more",
            );
        }
        if periodic && longest > Nanos::from_secs(3600) {
            problem(
                "interval",
                "the interval is too long",
                longest.to_string(),
                "an hour or less",
            );
        }
        let works = matches!(self.meter, MeterKind::Fwq | MeterKind::Loop);
        if works && self.work < Nanos::from_micros(1) {
            problem(
                "work",
                "the work is too short to be calibrated",
                self.work.to_string(),
                "1 µs or more",
            );
        }
        if self.meter == MeterKind::Loop && self.work >= shortest {
            problem(
                "work",
                "the work does not fit into the period",
                self.work.to_string(),
                "less than the interval",
            );
        }
        if self.meter == MeterKind::Fwq && self.work > Nanos::from_secs(10) {
            problem(
                "work",
                "the quantum is too long",
                self.work.to_string(),
                "10 s or less",
            );
        }
        findings
    }
}

/// To the program.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[expect(
    clippy::large_enum_variant,
    reason = "one request of a measurement carries the plan"
)]
pub enum MeterRequest {
    /// The first line: get ready for this plan. The number is [`METER_PROTOCOL_VERSION`]. It may come
    /// again after `Finished`, for another measurement by the same process.
    Prepare {
        /// The caller's protocol version.
        protocol: u32,
        /// What to do.
        plan: MeterSettings,
    },
    /// Placement from outside is done; check it and measure.
    Go {},
    /// End now and report what was measured. The end of the input means the same, and ends the
    /// program. Between two measurements it means nothing.
    Stop {},
}

/// From the program, for each measurement in this order: one `Ready`, one `Started`, any number of
/// `Batch`, one `Finished`; a `Refused` in place of any of them is the last line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum MeterEvent {
    /// The threads exist and wait.
    Ready(MeterReady),
    /// Placement was verified; warm-up begins at this moment (`CLOCK_MONOTONIC`).
    Started {
        /// Start of the warm-up.
        at: Nanos,
        /// `CLOCK_REALTIME` minus `CLOCK_MONOTONIC` at that moment, to tell the time of day.
        realtime_offset: Nanos,
    },
    /// A stretch of one thread's samples.
    Batch(Batch),
    /// The end: what each thread got and saw.
    Finished {
        /// One for each CPU of the plan, in rising order.
        threads: Vec<ThreadOutcome>,
        /// Weaknesses that leave the figures standing, for example a clock source.
        findings: Vec<Finding>,
    },
    /// The plan cannot be carried out as asked; nothing more comes.
    Refused(Refusal),
}

/// What [`MeterEvent::Ready`] says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct MeterReady {
    /// [`METER_PROTOCOL_VERSION`] of the program.
    pub protocol: u32,
    /// Version of the program.
    pub version: String,
    /// Its process, as it sees it itself; in a container this is another number than outside.
    pub process: u32,
    /// Its measuring threads.
    pub threads: Vec<ThreadReady>,
}

/// One measuring thread that waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ThreadReady {
    /// The CPU that it is meant for.
    pub cpu: CpuId,
    /// Its name in `/proc/PID/task/TID/comm`, `meter/CPU`; the way to find it from outside.
    pub name: String,
    /// Its thread id, as the program sees it itself.
    pub thread: u32,
}

/// Whether samples count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Before; shown and not mixed in.
    WarmUp,
    /// The measurement.
    Measured,
}

/// What one thread saw in one stretch of time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Batch {
    /// The thread's CPU.
    pub cpu: CpuId,
    /// Warm-up or measurement.
    pub phase: Phase,
    /// Start of the batch (`CLOCK_MONOTONIC`).
    pub at: Nanos,
    /// Its length.
    pub length: Nanos,
    /// The primary series first.
    pub series: Vec<SeriesBatch>,
    /// Periods that passed without a sample.
    pub missed: u64,
    /// Samples of the primary series over the plan's deadline.
    pub over_deadline: u64,
    /// Samples that found the ring full and are in no distribution; anything but 0 makes the
    /// record invalid.
    pub lost: u64,
    /// With `timeline` in the plan: the worst sample of the primary series that ended in each
    /// slot, slot `k` beginning at `at` plus `k` slots; none where no sample ended. There are as
    /// many as begin within the batch, and further ones only behind the last batch of a phase,
    /// for a sample of the phase that ended after it. Where the thread was held up for
    /// milliseconds between the end of a sample and handing it over, the sample counts into the
    /// first slot of the next batch.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub timeline: Vec<Option<Nanos>>,
}

/// One series in one batch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct SeriesBatch {
    /// Which quantity.
    pub series: Series,
    /// As seen.
    pub seen: Distribution,
    /// With one sample added for each missed period, as late as a wake at its planned moment
    /// would have been (Gil Tene, "How NOT to measure latency": coordinated omission). None
    /// where it equals `seen`, or where the series knows no period.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub corrected: Option<Distribution>,
}

/// Why a meter does not measure. Callers tell the user, and exit with
/// [`crate::ExitCode::PreconditionMissing`], or [`crate::ExitCode::Usage`] for a bad plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Refusal {
    /// The sort of reason.
    pub kind: RefusalKind,
    /// The reason with its place, values and fix.
    pub finding: Finding,
}

/// Sorts of reasons.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RefusalKind {
    /// The plan makes no sense, or cannot be read, or is of another protocol version.
    BadPlan,
    /// A CPU is not online.
    CpuOffline,
    /// A CPU is outside the cpuset or affinity that the program was given.
    CpuOutsideCpuset,
    /// A thread does not run where it was asked to.
    AffinityNotGranted,
    /// The policy was not granted for lack of privilege.
    PolicyNotGranted,
    /// The policy was not granted because the cgroup has no real-time budget
    /// (`CONFIG_RT_GROUP_SCHED`).
    NoRealTimeBudget,
    /// Memory could not be locked.
    MemoryNotLocked,
    /// The meter measures only where there is no operating system.
    NeedsBareMetal,
    /// The clock or counter cannot be measured with.
    ClockUnsuitable,
    /// The operating system refused something else; a bug or a lack of resources.
    System,
}
