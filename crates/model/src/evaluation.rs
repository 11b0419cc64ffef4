// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The evaluation document: the one source from which every report is rendered.

use serde::{Deserialize, Serialize};

use crate::{
    Availability, Bench, Condition, CpuSet, CrashRecord, DomainKind, DomainSelection, Finding,
    Machine, MeterSettings, Nanos, PlanEffects, PlanVariant, Record, SchedulingPolicy,
    TransferRecord, TransferSettings, Verdict, VerdictOutcome,
};

/// Version of the document. A reader refuses a newer one; fields are only added within one.
pub const EVALUATION_SCHEMA_VERSION: u32 = 1;

/// How far an evaluation came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum EvaluationState {
    /// Written before each run: found in a file, it means that the evaluation was killed.
    Running,
    /// Ended early on request, everything measured is in it.
    EndedEarly,
    /// All runs were made.
    Complete,
}

/// One domain of the matrix.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct EvaluatedDomain {
    /// Its name; the kind's word, unless one kind occurs twice.
    pub name: String,
    /// What it is.
    pub selection: DomainSelection,
    /// The CPUs it measures on.
    pub cpus: CpuSet,
    /// What it would be here, in a sentence.
    pub description: String,
    /// The policy of its measuring threads, where the plan of the machine says one; otherwise that
    /// of the meter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<SchedulingPolicy>,
    /// Its own deadline, where the plan of the machine says one; otherwise that of all.
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
    /// Whether it stood applied all the time; otherwise each domain got a wall for its runs, or
    /// the plan was applied and taken back in turn ([`EvaluationSettings::legs`]).
    pub stands: bool,
}

/// One thing that is compared: the machine with the plan, without it, or without a part of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct VariantSettings {
    /// What stands in it.
    pub variant: PlanVariant,
    /// How often its turn comes in each repetition.
    pub visits: u32,
}

/// What an evaluation sets out to do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct EvaluationSettings {
    /// The CPUs that ordinary work keeps.
    pub housekeeping: CpuSet,
    /// The domains in the order of the report.
    pub domains: Vec<EvaluatedDomain>,
    /// The meters; the first is the one that the page leads with.
    pub meters: Vec<MeterSettings>,
    /// The conditions in the order of the report.
    pub conditions: Vec<Condition>,
    /// How often each cell of the matrix is measured; repetitions of different cells alternate.
    pub repetitions: u32,
    /// Measured time of one repetition.
    pub run_duration: Nanos,
    /// The deadline that verdicts use.
    pub deadline: Nanos,
    /// Whether the user named it; otherwise it is the meter's own period.
    pub deadline_from_user: bool,
    /// Total time asked for.
    pub total: Nanos,
    /// Seed of the order of runs and of the resampling.
    pub seed: u64,
    /// How disturbances are measured; none if they are not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transfer: Option<TransferSettings>,
    /// The plan of the machine that is measured; none where the domains were proposed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<MeasuredPlan>,
    /// What is compared with what, [`PlanVariant::After`] first; empty where nothing is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub variants: Vec<VariantSettings>,
    /// What this machine makes weaker than it could be, for example a single CPU.
    pub findings: Vec<Finding>,
}

impl EvaluationSettings {
    /// The deadline that a domain is judged by.
    #[must_use]
    pub fn deadline_of(&self, domain: &str) -> Nanos {
        self.own_deadline(domain).unwrap_or(self.deadline)
    }

    /// Whether a person named that deadline, on the command line or in the plan.
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

/// Something that was not measured, and why.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct NotMeasured {
    /// A domain, a condition or a cell of the matrix.
    pub what: String,
    /// The reasons, with what would change them.
    pub findings: Vec<Finding>,
}

/// One answer of the comparison.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ComparisonEntry {
    /// The domain.
    pub domain: String,
    /// A word or two: `yes`, `no`, `not always`, `limited`, `not measured` …
    pub answer: String,
    /// What the answer amounts to, set where the word is chosen: reports colour it so. None where
    /// it is neither good nor bad, and in documents of versions that did not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<VerdictOutcome>,
    /// The sentence that explains it.
    pub reason: String,
    /// The verdicts it rests on; empty for an answer that follows from how the kind is built.
    pub verdicts: Vec<String>,
}

/// One question asked of every domain.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ComparisonRow {
    /// The question.
    pub question: String,
    /// One cell for each domain of the plan, in its order.
    pub cells: Vec<ComparisonEntry>,
}

/// The answers at a glance.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Comparison {
    /// One sentence for each domain, in the plan's order: domain name, sentence.
    pub sentences: Vec<(String, String)>,
    /// The table.
    pub rows: Vec<ComparisonRow>,
}

/// Everything that was measured and concluded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Evaluation {
    /// [`EVALUATION_SCHEMA_VERSION`].
    pub schema_version: u32,
    /// Version of the tool that wrote it.
    pub tool_version: String,
    /// The command line that made it.
    pub command: Vec<String>,
    /// When it began, RFC 3339.
    pub started: String,
    /// When this document was written, RFC 3339.
    pub written: String,
    /// How far it came.
    pub state: EvaluationState,
    /// Runs made and runs planned.
    pub runs: (u32, u32),
    /// Where it ran.
    #[serde(default)]
    pub bench: Bench,
    /// The machine.
    pub machine: Machine,
    /// What was set out to do.
    pub plan: EvaluationSettings,
    /// What this machine can host, every kind.
    pub availability: Vec<Availability>,
    /// What was measured.
    pub records: Vec<Record>,
    /// What the plan changed, and which parts of it mattered; none where that was not asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan_effects: Option<PlanEffects>,
    /// Who was disturbed, and what the others saw of it.
    #[serde(default)]
    pub transfers: Vec<TransferRecord>,
    /// What became of the domains when their host crashed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crash: Option<CrashRecord>,
    /// What follows from it.
    pub verdicts: Vec<Verdict>,
    /// The answers at a glance.
    pub comparison: Comparison,
    /// What was not measured, and why.
    pub not_measured: Vec<NotMeasured>,
    /// What came up while it was made and weakens all records; those of the machine and of the
    /// plan stand there.
    pub findings: Vec<Finding>,
}

impl Evaluation {
    /// The record with this id.
    #[must_use]
    pub fn record(&self, id: &str) -> Option<&Record> {
        self.records.iter().find(|record| record.id == id)
    }

    /// The kind of the domain with this name.
    #[must_use]
    pub fn kind_of(&self, domain: &str) -> Option<DomainKind> {
        self.plan
            .domains
            .iter()
            .find(|plan| plan.name == domain)
            .map(|plan| plan.selection.kind)
    }
}
