// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Records: what one meter measured in one domain under one condition.

use serde::{Deserialize, Serialize};

use crate::{
    CellExitReport, Condition, CpuId, CpuSet, Distribution, DomainKind, EffectiveSettings, Finding,
    GuestReport, MeterSettings, Nanos, SchedulingPolicy, Series, ShieldReport, UnwantedActivity,
};

/// What one measuring thread got and saw, told by the meter at its end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ThreadOutcome {
    /// The CPU asked for.
    pub cpu: CpuId,
    /// Placement as read back from the kernel.
    pub placement: EffectivePlacement,
    /// The kernel's own counts over the measurement, warm-up apart.
    pub counters: ThreadCounters,
    /// Length of the measurement.
    pub duration: Nanos,
    /// Samples of the primary series (for `noise`: gaps over the threshold).
    pub samples: u64,
    /// Periods that passed without a sample.
    pub missed: u64,
    /// Samples over the plan's deadline.
    pub over_deadline: u64,
    /// Samples lost because the ring was full.
    pub lost: u64,
    /// The worst samples of the primary series, worst first.
    pub worst: Vec<WorstEvent>,
    /// What came before.
    pub warm_up: WarmUp,
    /// What only this meter knows.
    pub detail: MeterDetail,
}

/// Placement that was verified, not assumed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct EffectivePlacement {
    /// Policy and priority, from `sched_getattr(2)` at the start and at the end.
    pub policy: SchedulingPolicy,
    /// Affinity, from `sched_getaffinity(2)`.
    pub affinity: CpuSet,
    /// CPUs that samples were taken on.
    pub cpus_seen: CpuSet,
    /// Samples that were taken on another CPU than the one before.
    pub migrations: u64,
    /// Whether all memory was locked.
    pub memory_locked: bool,
    /// Where the rest of the program ran.
    pub housekeeping: CpuSet,
    /// The clock source of the kernel that the thread ran on.
    pub clock_source: String,
}

/// The kernel's counts for the thread and its CPU.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema,
)]
pub struct ThreadCounters {
    /// Times the thread went to sleep.
    pub voluntary_switches: u64,
    /// Times it was made to let go of the CPU.
    pub involuntary_switches: u64,
    /// Page faults served from memory.
    pub minor_faults: u64,
    /// Page faults served from a disk.
    pub major_faults: u64,
    /// Time that the hypervisor under this machine gave to others, on this CPU, from
    /// `/proc/stat`; none where it is not to be read.
    pub steal: Option<Nanos>,
    /// CPU time of the measuring thread.
    pub cpu_time: Nanos,
    /// CPU time of all the program's threads.
    pub process_cpu_time: Nanos,
}

/// What kept a thread from its CPU.
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
pub enum CauseKind {
    /// A non-maskable interrupt.
    Nmi,
    /// An interrupt.
    Interrupt,
    /// A softirq.
    Softirq,
    /// Another thread.
    Thread,
    /// The CPU was in an idle state, or the hypervisor under the machine had it: the kernel saw
    /// nothing. Or what it saw is lost, which the name says.
    Unseen,
}

/// One cause of one sample, as the kernel's osnoise events tell it (kernel document
/// `trace/osnoise-tracer.rst`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Cause {
    /// What sort.
    pub kind: CauseKind,
    /// Its name: `local_timer:236`, `TIMER:1`, `ksoftirqd/1:23`.
    pub name: String,
    /// When it began (`CLOCK_MONOTONIC`), which may be before the sample did. Where it came several
    /// times, the first of them.
    pub start: Nanos,
    /// How much of the sample's time it took, all its times together, what interrupted it taken
    /// off.
    pub duration: Nanos,
}

/// One of the worst samples with what caused it, the longest cause first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ExplainedWorst {
    /// The CPU.
    pub cpu: CpuId,
    /// The sample.
    pub event: WorstEvent,
    /// What lay in its time, each name once. [`CauseKind::Unseen`] alone where the kernel saw
    /// nothing.
    pub causes: Vec<Cause>,
    /// How much of `event.value`, the meter's own work taken off, no cause other than an unseen
    /// one accounts for.
    pub unexplained: Nanos,
}

/// One of the worst samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct WorstEvent {
    /// When it ended (`CLOCK_MONOTONIC`); it began `value` before.
    pub at: Nanos,
    /// How long or how late.
    pub value: Nanos,
    /// Number of the sample, from 0 at the start of the measurement.
    pub sequence: u64,
}

/// The warm-up: shown, not mixed in.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema,
)]
pub struct WarmUp {
    /// Its length.
    pub duration: Nanos,
    /// Samples of the primary series in it.
    pub samples: u64,
    /// The worst of them.
    pub max: Option<Nanos>,
}

/// What only one meter knows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum MeterDetail {
    /// `wakeup` has nothing to add.
    Wakeup {},
    /// `noise`.
    Noise {
        /// Turns of the loop.
        turns: u64,
        /// The shortest turn.
        shortest_turn: Nanos,
        /// Mean turn over the part of the run without gaps, in thousandths of a nanosecond.
        mean_turn_picos: u64,
        /// Gaps at least this long were kept.
        threshold: Nanos,
        /// Sum of all gaps: time in which the loop did not run.
        stolen: Nanos,
    },
    /// `fwq`.
    Fwq {
        /// Turns of the inner loop in one quantum.
        turns: u64,
        /// The shortest quantum seen; excess is counted from it.
        shortest: Nanos,
        /// By how much the shortest was lowered during the measurement: no excess is too small
        /// by more than this.
        lowered: Nanos,
    },
    /// `loop`.
    Loop {
        /// Turns of the inner loop in one piece of work.
        turns: u64,
        /// The deadline, counted from the planned start.
        deadline: Nanos,
        /// Periods whose work ended after the deadline; periods never started are in `missed`.
        deadlines_missed: u64,
        /// The most that a period was too short.
        worst_early: Nanos,
        /// The most that a period was too long.
        worst_late: Nanos,
        /// The latest start.
        worst_start: Nanos,
    },
    /// `irq` has nothing to add.
    Irq {},
    /// `mmio`.
    Mmio {
        /// Accesses between two readings of the counter; a sample is their mean.
        accesses: u64,
        /// The register on the page that traps.
        trapped: String,
        /// What is read on the page that is mapped.
        mapped: String,
    },
}

/// A load as it ran.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct LoadRecord {
    /// The program and its version, for example `stress-ng 0.15.06`; empty for idle.
    pub version: String,
    /// What was started.
    pub stressors: Vec<StressorRecord>,
    /// Whether all of it ran from before the warm-up until after the measurement.
    pub ran: bool,
}

impl LoadRecord {
    /// The record of no load at all.
    #[must_use]
    pub const fn idle() -> Self {
        Self {
            version: String::new(),
            stressors: Vec::new(),
            ran: true,
        }
    }

    /// That it did not run throughout, with what its programs said; none where it did.
    #[must_use]
    pub fn failures(&self) -> Option<String> {
        let failures: Vec<&str> = self
            .stressors
            .iter()
            .filter_map(|stressor| stressor.failure.as_deref())
            .collect();
        (!self.ran).then(|| format!("the load did not run throughout: {}", failures.join("; ")))
    }
}

/// One started load program.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct StressorRecord {
    /// The complete command line.
    pub command: Vec<String>,
    /// The CPUs it was bound to, read back.
    pub cpus: CpuSet,
    /// CPU time that it used up while it ran: a load that used none was none.
    pub cpu_time: Nanos,
    /// What it said if it did not start or died.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

/// One repetition.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Run {
    /// Its place in the order of the whole evaluation, from 0.
    pub order: u32,
    /// When its warm-up began, RFC 3339.
    pub started: String,
    /// The same on `CLOCK_MONOTONIC`, which the moments of events are on.
    pub started_monotonic: Nanos,
    /// Length of the measurement.
    pub duration: Nanos,
    /// What each thread got and saw.
    pub threads: Vec<ThreadOutcome>,
    /// The load beside it.
    pub load: LoadRecord,
    /// The wall that stood.
    pub shield: Option<ShieldReport>,
    /// What the domain was granted: capabilities, limits, groups.
    pub effective_settings: EffectiveSettings,
    /// The guest, where the domain is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guest: Option<GuestReport>,
    /// The cell, where the domain is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cell: Option<CellExitReport>,
    /// The worst samples with their causes, where the kernel was asked for them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub explained: Vec<ExplainedWorst>,
    /// What came to its CPUs that was not of the evaluation; where a plan is compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unwanted_activity: Option<UnwantedActivity>,
    /// File of the histogram log in the result directory, with every batch.
    pub histogram_log: String,
    /// Why this run does not count; empty for a valid one.
    pub invalid: Vec<Finding>,
    /// Weaknesses that leave the figures standing.
    pub findings: Vec<Finding>,
}

/// What a record rests on.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema,
)]
pub struct Exposure {
    /// Samples of the primary series, all CPUs together.
    pub samples: u64,
    /// Time measured, summed over repetitions, not over CPUs.
    pub duration: Nanos,
    /// CPUs measured at once.
    pub cpus: u32,
    /// Valid repetitions.
    pub runs: u32,
    /// Periods that passed without a sample.
    pub missed: u64,
}

/// What one meter measured in one domain under one condition, over all repetitions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Record {
    /// `DOMAIN/METER/CONDITION`, unique in its evaluation.
    pub id: String,
    /// Name of the domain.
    pub domain: String,
    /// Its kind.
    pub kind: DomainKind,
    /// Whether its instructions were emulated in software, so that its times mean nothing; also
    /// where the whole machine is emulated.
    #[serde(default)]
    pub emulated: bool,
    /// What was asked of the meter.
    pub plan: MeterSettings,
    /// Under what.
    pub condition: Condition,
    /// What it rests on: valid repetitions alone.
    pub exposure: Exposure,
    /// The distributions of the valid repetitions, one entry for each measured CPU.
    pub cpus: Vec<CpuRecord>,
    /// The worst samples of all CPUs and valid repetitions, worst first.
    pub worst: Vec<LocatedWorst>,
    /// Every repetition, invalid ones too.
    pub runs: Vec<Run>,
    /// Why the record as a whole carries no verdict; empty for a valid one.
    pub invalid: Vec<Finding>,
}

/// One CPU's part of a record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct CpuRecord {
    /// The CPU.
    pub cpu: CpuId,
    /// The primary series first.
    pub series: Vec<SeriesRecord>,
    /// Samples of the primary series over the deadline.
    pub over_deadline: u64,
    /// Periods that passed without a sample.
    pub missed: u64,
    /// The worst warm-up sample of all repetitions.
    pub warm_up_max: Option<Nanos>,
}

/// One series of one CPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct SeriesRecord {
    /// Which quantity.
    pub series: Series,
    /// As seen.
    pub seen: Distribution,
    /// Corrected for missed periods; none where it equals `seen` or the series knows no period.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub corrected: Option<Distribution>,
}

/// A worst sample with where it happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct LocatedWorst {
    /// The CPU.
    pub cpu: CpuId,
    /// `order` of the run.
    pub run: u32,
    /// When it ended, from the start of that run's warm-up.
    pub since_start: Nanos,
    /// The same on `CLOCK_MONOTONIC`.
    pub at: Nanos,
    /// How long or how late.
    pub value: Nanos,
}

/// Version of the [`Measurement`] document.
pub const MEASUREMENT_SCHEMA_VERSION: u32 = 1;

/// What `rampart measure` found: one meter, one run, no verdict.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Measurement {
    /// [`MEASUREMENT_SCHEMA_VERSION`].
    pub schema_version: u32,
    /// Version of the tool that wrote it.
    pub tool_version: String,
    /// When the warm-up began, RFC 3339.
    pub started: String,
    /// The same on `CLOCK_MONOTONIC`, which the moments of events are on.
    pub started_monotonic: Nanos,
    /// Whether it ended before the time that was asked for.
    pub ended_early: bool,
    /// In which domain.
    pub domain: String,
    /// What was asked of the meter.
    pub plan: MeterSettings,
    /// The distributions, one entry for each measured CPU.
    pub cpus: Vec<CpuRecord>,
    /// What each thread got and saw.
    pub threads: Vec<ThreadOutcome>,
    /// The wall that stood.
    pub shield: Option<ShieldReport>,
    /// What the domain was granted.
    pub effective_settings: EffectiveSettings,
    /// The guest, where the domain is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guest: Option<GuestReport>,
    /// The cell, where the domain is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cell: Option<CellExitReport>,
    /// The worst samples with their causes, where the kernel was asked for them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub explained: Vec<ExplainedWorst>,
    /// Weaknesses that leave the figures standing.
    pub findings: Vec<Finding>,
}
