// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Meters: the settings of a measurement, and the protocol of the program `rampart-meter`.
//!
//! The protocol has one JSON object per line: [`MeterRequest`] on the program's standard input,
//! [`MeterEvent`] on its standard output. It is the same in a process, in a container and, over a
//! serial line, in a guest.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::nearest_word::did_you_mean;
use crate::{
    CellPayload, CpuId, CpuSet, Distribution, DomainSelection, Finding, Nanos, SchedulingPolicy,
    ThreadOutcome,
};

/// Version of the protocol. A program refuses any other version.
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
    /// Timer to thread: lateness of the wakeup from an absolute sleep.
    Wakeup,
    /// Gaps in a loop that only reads the counter.
    Noise,
    /// Time of a fixed amount of work, repeatedly.
    Fwq,
    /// A periodic control loop with work and a deadline.
    Loop,
    /// Timer to interrupt handler, without an operating system.
    Irq,
    /// Reads of a device register, on a mapped page and on a page that traps.
    Mmio,
}

/// Error of parsing the name of a meter.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown meter `{0}`{near}; the meters are wakeup, noise, fwq, loop, irq and mmio",
    near = did_you_mean(.0, MeterKind::ALL.map(MeterKind::word))
)]
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

    /// Returns the name of the meter.
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

    /// Returns the series that verdicts and the worst events are based on.
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

    /// Returns whether the meter takes its samples at planned times, [`MeterSettings::interval`] apart.
    #[must_use]
    pub const fn is_periodic(self) -> bool {
        match self {
            Self::Wakeup | Self::Loop | Self::Irq | Self::Mmio => true,
            Self::Noise | Self::Fwq => false,
        }
    }

    /// Returns whether the meter needs a CPU without an operating system, since only a kernel handles
    /// interrupts and maps device pages.
    #[must_use]
    pub const fn needs_bare_metal(self) -> bool {
        match self {
            Self::Irq | Self::Mmio => true,
            Self::Wakeup | Self::Noise | Self::Fwq | Self::Loop => false,
        }
    }

    /// Returns whether the meter can measure in this domain.
    #[must_use]
    pub fn measures_in(self, domain: &DomainSelection) -> bool {
        !self.needs_bare_metal() || domain.cell == Some(CellPayload::BareMetal)
    }

    /// Returns the finding that it measures only in a cell without an operating system.
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

/// A measured quantity. All quantities are durations.
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
    /// `wakeup`: the time of waking minus the planned time.
    Lateness,
    /// `noise`: time between two consecutive reads of the counter, if over the threshold.
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
    /// `mmio`: one read of a register on a page that traps, the mean of 64 reads.
    TrappedAccess,
    /// `mmio`: one read of a register on a mapped page, the mean of 64 reads.
    MappedAccess,
}

impl Series {
    /// Returns the series as one word, as in documents.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Lateness => "lateness",
            Self::Gap => "gap",
            Self::Excess => "excess",
            Self::StartJitter => "start-jitter",
            Self::Response => "response",
            Self::PeriodLate => "period-late",
            Self::PeriodEarly => "period-early",
            Self::Delivery => "delivery",
            Self::TrappedAccess => "trapped-access",
            Self::MappedAccess => "mapped-access",
        }
    }
}

/// The setter of CPU and policy of the measuring threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PlacedBy {
    /// The program itself, with its own privileges.
    Itself,
    /// The caller, between [`MeterEvent::Ready`] and [`MeterRequest::Go`], so that the program
    /// needs no privilege. The program verifies the result.
    Outside,
}

/// The settings of a measurement. Times without another statement are durations on
/// `CLOCK_MONOTONIC`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MeterSettings {
    /// The meter.
    pub meter: MeterKind,
    /// One measuring thread for each of these CPUs.
    pub cpus: CpuSet,
    /// CPUs of the other threads: reader of the rings, output. Empty: all CPUs that the program
    /// may use and that are not measured; if there are none, a measured CPU, with a warning.
    pub housekeeping: CpuSet,
    /// Policy of the measuring threads.
    pub policy: SchedulingPolicy,
    /// The setter of CPU and policy.
    pub placed_by: PlacedBy,
    /// Duration of the measurement, without the warm-up.
    pub duration: Nanos,
    /// Duration of the warm-up, which is reported separately from the figures.
    pub warm_up: Nanos,
    /// Periodic meters ([`MeterKind::is_periodic`]): the period, at least 20 µs.
    pub interval: Nanos,
    /// Periodic meters: the period of each thread, in the order of `cpus`. Empty: `interval` for
    /// all.
    #[serde(default)]
    pub intervals: Vec<Nanos>,
    /// Periodic meters: all threads wake at the same times instead of spread over the period.
    pub aligned: bool,
    /// `noise`: the shortest recorded gap. `None` for three turns of the loop, at least 200 ns.
    pub threshold: Option<Nanos>,
    /// `fwq`: length of the quantum; `loop`: length of the work, both when undisturbed.
    pub work: Nanos,
    /// The deadline, above which samples of the primary series are counted exactly.
    pub deadline: Option<Nanos>,
    /// Number of the worst samples that each thread keeps with their times.
    pub worst: u32,
    /// Length of a batch, for which a distribution is reported.
    pub batch: Nanos,
    /// Length of a slot of the timeline, which keeps the worst sample of the primary series in each
    /// slot; `None` for no timeline. At least 1 ms, and `batch` is a multiple of it, so that all
    /// slots of the measurement are on one grid from its start. The warm-up has a separate grid
    /// from its own start.
    #[serde(default)]
    pub timeline: Option<Nanos>,
    /// Whether to lock all memory. Page faults are always counted.
    pub lock_memory: bool,
}

impl MeterSettings {
    /// The shortest accepted interval.
    pub const SHORTEST_INTERVAL: Nanos = Nanos::from_micros(20);

    /// Returns the default settings of `meter`: FIFO 80 if the meter sleeps between samples, the
    /// time-sharing policy if it never yields the CPU.
    #[must_use]
    pub fn new(meter: MeterKind, cpus: CpuSet) -> Self {
        let policy = match meter {
            MeterKind::Wakeup | MeterKind::Loop => SchedulingPolicy::Fifo(80),
            // Bare metal has no policy.
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

    /// Returns the period of the thread on the CPU with this index, from 0.
    #[must_use]
    pub fn interval_of(&self, location: usize) -> Nanos {
        self.intervals
            .get(location)
            .copied()
            .unwrap_or(self.interval)
    }

    /// Returns the errors of these settings that do not depend on the machine.
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
                "no CPU to measure",
                "empty".to_owned(),
                "at least one CPU",
            );
        }
        if self.duration == Nanos::ZERO {
            problem(
                "duration",
                "the duration is zero",
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
                "the number of intervals does not match the CPUs",
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

/// A request to the program.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[expect(
    clippy::large_enum_variant,
    reason = "one request of a measurement carries the plan"
)]
pub enum MeterRequest {
    /// The first line: prepare this measurement. The number is [`METER_PROTOCOL_VERSION`]. It may come
    /// again after `Finished`, for another measurement by the same process.
    Prepare {
        /// The caller's protocol version.
        protocol: u32,
        /// The settings of the measurement.
        settings: MeterSettings,
    },
    /// Verify the placement, and measure.
    Go {},
    /// End the measurement and report it. The end of the input has the same effect and ends the
    /// program. Between two measurements it is ignored.
    Stop {},
}

/// An event from the program, for each measurement in this order: one `Ready`, one `Started`, any number of
/// `Batch`, one `Finished`; a `Refused` in place of any of them is the last line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum MeterEvent {
    /// The threads exist and wait.
    Ready(MeterReady),
    /// Placement was verified; warm-up begins at this moment (`CLOCK_MONOTONIC`).
    Started {
        /// Start of the warm-up (`CLOCK_MONOTONIC`).
        at: Nanos,
        /// `CLOCK_REALTIME` minus `CLOCK_MONOTONIC` at that time.
        realtime_offset: Nanos,
    },
    /// Samples of one thread over a period of time.
    Batch(Batch),
    /// The end: the effective settings and the totals of each thread.
    Finished {
        /// One for each CPU of the settings, in rising order.
        threads: Vec<ThreadOutcome>,
        /// Warnings that do not invalidate the figures, for example about the clock source.
        findings: Vec<Finding>,
    },
    /// The measurement is refused; no further event follows.
    Refused(Refusal),
}

/// Content of [`MeterEvent::Ready`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct MeterReady {
    /// [`METER_PROTOCOL_VERSION`] of the program.
    pub protocol: u32,
    /// Version of the program.
    pub version: String,
    /// Its process id in its own PID namespace.
    pub process: u32,
    /// Its measuring threads.
    pub threads: Vec<ThreadReady>,
}

/// A measuring thread that waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ThreadReady {
    /// The CPU that it will measure.
    pub cpu: CpuId,
    /// Its name in `/proc/PID/task/TID/comm`, `meter/CPU`, by which other processes find it.
    pub name: String,
    /// Its thread id in the PID namespace of the program.
    pub thread: u32,
}

/// Phase of a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Before the measurement; part of no figure.
    WarmUp,
    /// The measurement.
    Measured,
}

/// Samples of one thread over a period of time.
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
    /// Samples of the primary series over the deadline.
    pub over_deadline: u64,
    /// Samples that were lost because the ring was full; any value but 0 makes the record invalid.
    pub lost: u64,
    /// With `timeline` in the settings: the worst sample of the primary series that ended in each
    /// slot; slot `k` starts at `at` plus `k` slots. `None` if no sample ended in the slot. A batch
    /// has the slots that start within it; the last batch of a phase has more if a sample of the
    /// phase ended later. If the thread was delayed by milliseconds between the end of a sample and
    /// its output, the sample counts in the first slot of the next batch.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub timeline: Vec<Option<Nanos>>,
}

/// One series in one batch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct SeriesBatch {
    /// The quantity.
    pub series: Series,
    /// Distribution of the samples as taken.
    pub seen: Distribution,
    /// Distribution with one sample added for each missed period, with the lateness of a wakeup
    /// planned at that time (Gil Tene, "How NOT to measure latency": coordinated omission). `None`
    /// if it equals `seen`, or if the series has no period.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub corrected: Option<Distribution>,
}

/// Reason why a meter does not measure. Callers report it and exit with
/// [`crate::ExitCode::PreconditionMissing`], or [`crate::ExitCode::Usage`] for a bad plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Refusal {
    /// Kind of the reason.
    pub kind: RefusalKind,
    /// The reason with its location, values and fix.
    pub finding: Finding,
}

/// Kinds of reasons.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RefusalKind {
    /// The plan is invalid or unreadable.
    BadPlan,
    /// The programs of the two sides are of different versions, with different protocols.
    OtherProtocol,
    /// A CPU is not online.
    CpuOffline,
    /// A CPU is outside the cpuset or affinity of the program.
    CpuOutsideCpuset,
    /// A thread does not run on its CPU.
    AffinityNotEffective,
    /// The policy was refused for lack of privilege.
    PolicyNotEffective,
    /// The policy was refused because the cgroup has no real-time budget
    /// (`CONFIG_RT_GROUP_SCHED`).
    NoRealTimeBudget,
    /// Memory could not be locked.
    MemoryNotLocked,
    /// The meter needs a CPU without an operating system.
    NeedsBareMetal,
    /// The clock or counter is unsuitable for measuring.
    ClockUnsuitable,
    /// The operating system refused another request: a bug or a lack of resources.
    System,
}
