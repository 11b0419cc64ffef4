// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Records: the results of one meter in one domain under one condition.

use serde::{Deserialize, Serialize};

use crate::{
    CellExitReport, Condition, CpuId, CpuSet, DetachedCounts, Distribution, DomainKind,
    EffectiveSettings, Finding, GuestReport, MeterSettings, Nanos, SchedulingPolicy, Series,
    ShieldReport, UnwantedActivity,
};

/// The effective settings and the results of one measuring thread, as the meter reports them at its
/// end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ThreadOutcome {
    /// The requested CPU.
    pub cpu: CpuId,
    /// Placement as read back from the kernel.
    pub placement: EffectivePlacement,
    /// The kernel's counters during the measurement, without the warm-up.
    pub counters: ThreadCounters,
    /// Length of the measurement.
    pub duration: Nanos,
    /// Samples of the primary series (for `noise`: gaps over the threshold).
    pub samples: u64,
    /// Periods that passed without a sample.
    pub missed: u64,
    /// Samples over the deadline of the settings.
    pub over_deadline: u64,
    /// Samples lost because the ring was full.
    pub lost: u64,
    /// The worst samples of the primary series, worst first.
    pub worst: Vec<WorstEvent>,
    /// The warm-up.
    pub warm_up: WarmUp,
    /// Results that only this meter has.
    pub detail: MeterDetail,
}

/// Verified placement of a thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct EffectivePlacement {
    /// Policy and priority, from `sched_getattr(2)` at the start and at the end.
    pub policy: SchedulingPolicy,
    /// Affinity, from `sched_getaffinity(2)`.
    pub affinity: CpuSet,
    /// CPUs of the samples.
    pub cpus_seen: CpuSet,
    /// Samples on another CPU than the previous sample.
    pub migrations: u64,
    /// Whether all memory was locked.
    pub memory_locked: bool,
    /// CPUs of the program's other threads.
    pub housekeeping: CpuSet,
    /// The clock source of the thread's kernel.
    pub clock_source: String,
}

/// The kernel's counters of the thread and its CPU.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema,
)]
pub struct ThreadCounters {
    /// Number of times that the thread slept.
    pub voluntary_switches: u64,
    /// Number of times that it was preempted.
    pub involuntary_switches: u64,
    /// Page faults without disk access.
    pub minor_faults: u64,
    /// Page faults with disk access.
    pub major_faults: u64,
    /// Steal time of this CPU, from `/proc/stat`; `None` if it is not readable.
    pub steal: Option<Nanos>,
    /// CPU time of the measuring thread.
    pub cpu_time: Nanos,
    /// CPU time of all threads of the program.
    pub process_cpu_time: Nanos,
    /// Whether the program was stopped by a signal and continued meanwhile.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub continued: bool,
}

/// The kind of a cause that delayed a thread.
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
    /// A limit of the scheduler for real-time threads: the CPU was idle, and the thread was not allowed to run.
    Limit,
    /// A cause that the kernel did not observe: an idle state, or the hypervisor under the machine.
    /// The name shows if events were lost.
    Unseen,
}

/// One cause of one sample, from the kernel's osnoise events (kernel document
/// `trace/osnoise-tracer.rst`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Cause {
    /// Its kind.
    pub kind: CauseKind,
    /// Its name: `local_timer:236`, `TIMER:1`, `ksoftirqd/1:23`.
    pub name: String,
    /// Start (`CLOCK_MONOTONIC`), possibly before the sample; of several occurrences the first.
    pub start: Nanos,
    /// Time that it took from the sample, summed over its occurrences, without the time of its
    /// interruptions.
    pub duration: Nanos,
}

/// One of the worst samples with its causes, the longest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ExplainedWorst {
    /// The CPU.
    pub cpu: CpuId,
    /// The sample.
    pub event: WorstEvent,
    /// The causes within its time, each name once; only [`CauseKind::Unseen`] if the kernel
    /// observed none.
    pub causes: Vec<Cause>,
    /// The part of `event.value`, without the meter's own work, that no observed cause explains.
    pub unexplained: Nanos,
}

/// One of the worst samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct WorstEvent {
    /// End (`CLOCK_MONOTONIC`); it started `value` earlier.
    pub at: Nanos,
    /// The sample's value.
    pub value: Nanos,
    /// Index of the sample, from 0 at the start of the measurement.
    pub sequence: u64,
}

/// The warm-up, reported separately.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema,
)]
pub struct WarmUp {
    /// Its length.
    pub duration: Nanos,
    /// Samples of the primary series in it.
    pub samples: u64,
    /// The worst of these samples.
    pub max: Option<Nanos>,
}

/// Results of one meter only.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum MeterDetail {
    /// `wakeup`, without further results.
    Wakeup {},
    /// `noise`.
    Noise {
        /// Turns of the loop.
        turns: u64,
        /// The shortest turn.
        shortest_turn: Nanos,
        /// Mean turn over the part of the run without gaps, in thousandths of a nanosecond.
        mean_turn_picos: u64,
        /// Minimum length of a recorded gap.
        threshold: Nanos,
        /// Sum of all gaps, in which the loop did not run.
        stolen: Nanos,
    },
    /// `fwq`.
    Fwq {
        /// Turns of the inner loop in one quantum.
        turns: u64,
        /// The shortest quantum, from which the excess is counted.
        shortest: Nanos,
        /// Total decrease of the shortest quantum during the measurement, which bounds the error of
        /// an excess.
        lowered: Nanos,
    },
    /// `loop`.
    Loop {
        /// Turns of the inner loop in one piece of work.
        turns: u64,
        /// The deadline, counted from the planned start.
        deadline: Nanos,
        /// Periods whose work ended after the deadline; `missed` counts periods that did not start.
        deadlines_missed: u64,
        /// The largest amount by which a period was too short.
        worst_early: Nanos,
        /// The largest amount by which a period was too long.
        worst_late: Nanos,
        /// The latest start.
        worst_start: Nanos,
    },
    /// `irq`, without further results.
    Irq {},
    /// `mmio`.
    Mmio {
        /// Number of accesses between two readings of the counter; a sample is their mean.
        accesses: u64,
        /// The register on the page that traps.
        trapped: String,
        /// The register on the page that is mapped.
        mapped: String,
    },
}

/// A load that ran.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct LoadRecord {
    /// The program and its version, for example `stress-ng 0.15.06`; empty for idle.
    pub version: String,
    /// The started programs.
    pub stressors: Vec<StressorRecord>,
    /// Whether all programs ran from before the warm-up until after the measurement.
    pub ran: bool,
}

impl LoadRecord {
    /// Returns the record of an idle condition.
    #[must_use]
    pub const fn idle() -> Self {
        Self {
            version: String::new(),
            stressors: Vec::new(),
            ran: true,
        }
    }

    /// Returns the failures of its programs; `None` if all ran throughout.
    #[must_use]
    pub fn failures(&self) -> Option<String> {
        let failures: Vec<&str> = self
            .stressors
            .iter()
            .filter_map(|stressor| stressor.failure.as_deref())
            .collect();
        (!self.ran).then(|| match failures[..] {
            [] => "the load did not start".to_owned(),
            _ => format!("the load did not run throughout: {}", failures.join("; ")),
        })
    }
}

/// One started load program.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct StressorRecord {
    /// The complete command line.
    pub command: Vec<String>,
    /// Its affinity, read back from the kernel.
    pub cpus: CpuSet,
    /// CPU time that it used.
    pub cpu_time: Nanos,
    /// Its output if it did not start or ended early.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

/// One repetition.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Run {
    /// Its index in the order of the evaluation, from 0.
    pub order: u32,
    /// Start of its warm-up, RFC 3339.
    pub started: String,
    /// Start of its warm-up on `CLOCK_MONOTONIC`, the clock of the events.
    pub started_monotonic: Nanos,
    /// Length of the measurement.
    pub duration: Nanos,
    /// The effective settings and results of each thread.
    pub threads: Vec<ThreadOutcome>,
    /// The load during the run.
    pub load: LoadRecord,
    /// The shield that was in effect.
    pub shield: Option<ShieldReport>,
    /// Effective settings of the domain: capabilities, limits, groups.
    pub effective_settings: EffectiveSettings,
    /// The guest, if the domain is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guest: Option<GuestReport>,
    /// The cell, if the domain is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cell: Option<CellExitReport>,
    /// What happened on its CPU during the measurement, if the CPU was taken for a detached thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detached: Option<DetachedCounts>,
    /// The worst samples with their causes, if the kernel was traced.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub explained: Vec<ExplainedWorst>,
    /// Unwanted activity on its CPUs, if variants of a plan are compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unwanted_activity: Option<UnwantedActivity>,
    /// File of the histogram log in the result directory, with every batch.
    pub histogram_log: String,
    /// The reasons why this run is invalid; empty for a valid run.
    pub invalid: Vec<Finding>,
    /// Warnings that do not invalidate the figures.
    pub findings: Vec<Finding>,
}

/// The exposure of a record.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema,
)]
pub struct Exposure {
    /// Samples of the primary series on all CPUs.
    pub samples: u64,
    /// Measured time, summed over repetitions, not over CPUs.
    pub duration: Nanos,
    /// Number of CPUs measured simultaneously.
    pub cpus: u32,
    /// Number of valid repetitions.
    pub runs: u32,
    /// Periods that passed without a sample.
    pub missed: u64,
}

/// The results of one meter in one domain under one condition, over all repetitions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Record {
    /// `DOMAIN/METER/CONDITION`, unique in its evaluation.
    pub id: String,
    /// Name of the domain.
    pub domain: String,
    /// Its kind.
    pub kind: DomainKind,
    /// Whether its instructions, or the whole machine, were emulated in software, so that its times
    /// are not meaningful.
    #[serde(default)]
    pub emulated: bool,
    /// The settings of the meter.
    pub settings: MeterSettings,
    /// The condition.
    pub condition: Condition,
    /// Its exposure, from valid repetitions only.
    pub exposure: Exposure,
    /// The distributions of the valid repetitions, one entry for each measured CPU.
    pub cpus: Vec<CpuRecord>,
    /// The worst samples of all CPUs and valid repetitions, worst first.
    pub worst: Vec<LocatedWorst>,
    /// Every repetition, including invalid ones.
    pub runs: Vec<Run>,
    /// The reasons why the record has no verdict; empty for a valid record.
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
    /// The quantity.
    pub series: Series,
    /// The distribution of the samples as taken.
    pub seen: Distribution,
    /// The distribution corrected for missed periods; `None` if it equals `seen` or the series has
    /// no period.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub corrected: Option<Distribution>,
}

/// One of the worst samples with its location.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct LocatedWorst {
    /// The CPU.
    pub cpu: CpuId,
    /// `order` of the run.
    pub run: u32,
    /// End, relative to the start of that run's warm-up.
    pub since_start: Nanos,
    /// End on `CLOCK_MONOTONIC`.
    pub at: Nanos,
    /// The sample's value.
    pub value: Nanos,
}

/// Version of the [`Measurement`] document.
pub const MEASUREMENT_SCHEMA_VERSION: u32 = 1;

/// The results of `rampart measure`: one meter, one run, no verdict.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Measurement {
    /// [`MEASUREMENT_SCHEMA_VERSION`].
    pub schema_version: u32,
    /// Version of the tool that wrote it.
    pub tool_version: String,
    /// Start of the warm-up, RFC 3339.
    pub started: String,
    /// Start of its warm-up on `CLOCK_MONOTONIC`, the clock of the events.
    pub started_monotonic: Nanos,
    /// Whether it ended before the requested time.
    pub ended_early: bool,
    /// The domain.
    pub domain: String,
    /// The settings of the meter.
    pub settings: MeterSettings,
    /// The distributions, one entry for each measured CPU.
    pub cpus: Vec<CpuRecord>,
    /// The effective settings and results of each thread.
    pub threads: Vec<ThreadOutcome>,
    /// The shield that was in effect.
    pub shield: Option<ShieldReport>,
    /// Effective settings of the domain.
    pub effective_settings: EffectiveSettings,
    /// The guest, if the domain is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guest: Option<GuestReport>,
    /// The cell, if the domain is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cell: Option<CellExitReport>,
    /// What happened on its CPU during the measurement, if the CPU was taken for a detached thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detached: Option<DetachedCounts>,
    /// The worst samples with their causes, if the kernel was traced.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub explained: Vec<ExplainedWorst>,
    /// Warnings that do not invalidate the figures.
    pub findings: Vec<Finding>,
}
