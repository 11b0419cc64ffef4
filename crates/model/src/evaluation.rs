// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The evaluation document, from which every report is rendered.

use serde::{Deserialize, Serialize};

use crate::{
    Availability, Bench, Condition, CpuSet, CrashRecord, Disturbance, DomainKind, DomainSelection,
    Finding, LoadKind, Machine, MeterKind, MeterSettings, Nanos, PlanChange, PlanEffects,
    PlanVariant, Record, SchedulingPolicy, TransferRecord, TransferSettings, Verdict,
    VerdictOutcome,
};

/// Version of the document. A reader refuses a newer version; within a version fields are only
/// added.
pub const EVALUATION_SCHEMA_VERSION: u32 = 1;

/// Progress of an evaluation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum EvaluationState {
    /// Written before each run; in a file without a running evaluation it means that the evaluation
    /// was killed.
    Running,
    /// Ended early on request, with all results until then.
    EndedEarly,
    /// All runs are complete.
    Complete,
}

/// One domain of the matrix.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct EvaluatedDomain {
    /// Its name: the kind's name, unless a kind occurs twice.
    pub name: String,
    /// Kind and variant.
    pub selection: DomainSelection,
    /// The measured CPUs.
    pub cpus: CpuSet,
    /// Its isolation and runtime on this machine, in a sentence.
    pub description: String,
    /// The policy of its measuring threads, if the plan of the machine sets one; else that of the
    /// meter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<SchedulingPolicy>,
    /// Its own deadline, if the plan of the machine sets one; else the common deadline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Nanos>,
}

/// The plan of the machine that was measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct MeasuredPlan {
    /// Its file.
    pub file: String,
    /// The topology that it was resolved on.
    pub fingerprint: String,
    /// Whether it was active during the whole evaluation. Otherwise each domain was isolated for
    /// its runs, or the plan was applied and released in turn ([`EvaluationSettings::variants`]).
    pub active: bool,
}

/// One compared variant: the machine with the plan, without it, or without a part of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct VariantSettings {
    /// The variant.
    pub variant: PlanVariant,
    /// Number of visits in each repetition.
    pub visits: u32,
}

/// The settings of an evaluation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct EvaluationSettings {
    /// The CPUs for ordinary work.
    pub housekeeping: CpuSet,
    /// The domains in the order of the report.
    pub domains: Vec<EvaluatedDomain>,
    /// The meters; the report starts with the first.
    pub meters: Vec<MeterSettings>,
    /// The conditions in the order of the report.
    pub conditions: Vec<Condition>,
    /// Number of repetitions of each entry of the matrix; repetitions of different entries
    /// alternate.
    pub repetitions: u32,
    /// Measured time of one repetition.
    pub run_duration: Nanos,
    /// The deadline that verdicts use.
    pub deadline: Nanos,
    /// Whether the user set it; otherwise it is the meter's period.
    pub deadline_from_user: bool,
    /// Requested total time.
    pub total: Nanos,
    /// Most time for measuring on after `total` until all comparisons are decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_decided: Option<Nanos>,
    /// The look at open comparisons, from 1, of which the verdicts are: the risks of error are divided
    /// among looks.
    #[serde(default)]
    pub look: u32,
    /// Seed of the order of runs and of the resampling.
    pub seed: u64,
    /// The settings of disturbances; `None` if they are not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transfer: Option<TransferSettings>,
    /// The measured plan of the machine; `None` if the domains were proposed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<MeasuredPlan>,
    /// The compared variants, [`PlanVariant::After`] first; empty without a comparison.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub variants: Vec<VariantSettings>,
    /// Limits of this machine, for example a single CPU.
    pub findings: Vec<Finding>,
}

impl EvaluationSettings {
    /// Returns the deadline of a domain.
    #[must_use]
    pub fn deadline_of(&self, domain: &str) -> Nanos {
        self.own_deadline(domain).unwrap_or(self.deadline)
    }

    /// Returns whether the user set that deadline, on the command line or in the plan.
    #[must_use]
    pub fn deadline_is_named(&self, domain: &str) -> bool {
        self.deadline_from_user || self.own_deadline(domain).is_some()
    }

    fn own_deadline(&self, domain: &str) -> Option<Nanos> {
        self.domains
            .iter()
            .find(|plan| plan.name == domain)
            .and_then(|plan| plan.deadline)
    }
}

/// A part of an evaluation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum EvaluationPart {
    /// The domain with this name.
    Domain(String),
    /// The domain with this name, from its second failure on.
    DomainAfterFailures(String),
    /// A meter in a domain.
    Meter {
        /// The domain.
        domain: String,
        /// The meter.
        meter: MeterKind,
    },
    /// A load as a condition.
    Load(LoadKind),
    /// The loads of `stress-ng`, which those of the meter replace.
    LoadsOfStressNg,
    /// All disturbances between domains.
    Disturbances,
    /// One disturbance between domains.
    Disturbance(Disturbance),
    /// The record with this id.
    Record(String),
    /// A round, for some of its domains.
    Round {
        /// `DISTURBANCE/GROUP`, or `quiet/GROUP`.
        id: String,
        /// The domains.
        domains: Vec<String>,
    },
    /// A change of the plan in the comparison of its effects.
    Change(PlanChange),
}

/// A part that was not measured, with the reason.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct NotMeasured {
    /// The part.
    pub part: EvaluationPart,
    /// The reasons, with their fixes.
    pub findings: Vec<Finding>,
}

/// One answer of the comparison.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ComparisonEntry {
    /// The domain.
    pub domain: String,
    /// A word or two: `yes`, `no`, `not always`, `limited`, `not measured` …
    pub answer: String,
    /// The outcome, by which reports colour the answer. `None` if it is neither good nor bad, and
    /// in documents of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<VerdictOutcome>,
    /// The sentence that explains it.
    pub reason: String,
    /// The verdicts behind it; empty for an answer that follows from the properties of the kind.
    pub verdicts: Vec<String>,
}

/// One question, answered for every domain.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ComparisonRow {
    /// The question.
    pub question: String,
    /// One entry for each domain, in the order of the settings.
    pub entries: Vec<ComparisonEntry>,
}

/// What a record shows where the user gave no deadline.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ReachedDeadlines {
    /// The record.
    pub record: String,
    /// The worst sample.
    pub worst: Nanos,
    /// Cycles: samples and missed periods.
    pub cycles: u64,
    /// Bursts of samples that are worse than the worst are at least this far apart on average,
    /// one-sided.
    pub between: Nanos,
    /// Confidence of that bound.
    pub confidence: f64,
    /// Round deadlines with their exceedances, ascending, up to the first without one.
    pub deadlines: Vec<(Nanos, u64)>,
}

/// One domain judged as if it were two: its slices were dealt at random to two sides, which were
/// compared like two domains.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct NegativeControl {
    /// The record.
    pub record: String,
    /// The outcome. After [`VerdictOutcome::Fails`] the comparisons of this evaluation decide
    /// nothing.
    pub outcome: VerdictOutcome,
    /// The figures in a sentence.
    pub statement: String,
}

/// The comparison of the domains.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Comparison {
    /// One sentence for each domain, in the order of the settings: domain name, sentence.
    pub sentences: Vec<(String, String)>,
    /// The table.
    pub rows: Vec<ComparisonRow>,
    /// What the records of the domains without a deadline from the user show.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reached: Vec<ReachedDeadlines>,
    /// The negative control; `None` if there was too little data for it, and in documents of older
    /// versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control: Option<NegativeControl>,
    /// Estimated total time after which all comparisons would be decided; `None` if they are, or if
    /// it cannot be estimated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided_after: Option<Nanos>,
}

/// All measurements and conclusions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Evaluation {
    /// [`EVALUATION_SCHEMA_VERSION`].
    pub schema_version: u32,
    /// Version of the tool that wrote it.
    pub tool_version: String,
    /// The command line that created it.
    pub command: Vec<String>,
    /// Start time, RFC 3339.
    pub started: String,
    /// Time of writing, RFC 3339.
    pub written: String,
    /// Progress.
    pub state: EvaluationState,
    /// Number of completed and of planned runs.
    pub runs: (u32, u32),
    /// The machine that it ran on.
    #[serde(default)]
    pub bench: Bench,
    /// The machine.
    pub machine: Machine,
    /// The settings.
    pub settings: EvaluationSettings,
    /// The domains that this machine can host, of every kind.
    pub availability: Vec<Availability>,
    /// The records.
    pub records: Vec<Record>,
    /// The effects of the plan and of its parts; `None` if they were not compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan_effects: Option<PlanEffects>,
    /// Rounds of disturbances, with the latencies of all domains.
    #[serde(default)]
    pub transfers: Vec<TransferRecord>,
    /// The behaviour of the domains during a crash of the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crash: Option<CrashRecord>,
    /// The verdicts.
    pub verdicts: Vec<Verdict>,
    /// The comparison of the domains.
    pub comparison: Comparison,
    /// Parts that were not measured, with the reasons.
    pub not_measured: Vec<NotMeasured>,
    /// Findings that affect all records; those of the machine and of the settings are in these
    /// fields.
    pub findings: Vec<Finding>,
}

impl Evaluation {
    /// Returns the record with this id.
    #[must_use]
    pub fn record(&self, id: &str) -> Option<&Record> {
        self.records.iter().find(|record| record.id == id)
    }

    /// Returns the kind of the domain with this name.
    #[must_use]
    pub fn kind_of(&self, domain: &str) -> Option<DomainKind> {
        self.settings
            .domains
            .iter()
            .find(|plan| plan.name == domain)
            .map(|plan| plan.selection.kind)
    }
}
