// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Derives the verdicts from the records. Pure; the formulae are in `rampart-stats` and explained
//! in `docs/verdicts.md`.

use std::collections::BTreeMap;

use rampart_model::{
    Comparison, Condition, CrashRecord, Evaluation, EvaluationSettings, NegativeControl, Question,
    ReachedDeadlines, Record, TransferRecord, Verdict, VerdictFigures, VerdictOutcome,
};
use rampart_stats::{Visit, compare as compare_visits};

use crate::comparison::compare;
use crate::crash_verdicts::judge_crash;
use crate::deadline;
use crate::decided_after::decided_after;
use crate::interference::{IdleSide, answers, judge_interference, ratios, slices_in};
use crate::negative_control;
use crate::questions;
use crate::statements;
use crate::transfer::judge::TransferVerdicts;

/// The samples by record: its valid visits in chronological order. Visits of different records with
/// the same number are adjacent in time.
pub type VisitsByRecord<'a> = BTreeMap<String, &'a [Visit]>;

/// The data from which verdicts are derived.
#[derive(Debug, Clone, Copy)]
pub struct Evidence<'a> {
    /// The settings of the evaluation.
    pub settings: &'a EvaluationSettings,
    /// The records of the matrix.
    pub records: &'a [Record],
    /// The samples of the records in short slices.
    pub visits: &'a VisitsByRecord<'a>,
    /// The rounds with disturbances.
    pub transfers: &'a [TransferRecord],
    /// Whether the machine is emulated, so that its times are not judged.
    pub emulated: bool,
}

/// The result of judging.
#[derive(Debug, Clone, PartialEq)]
pub struct Judged {
    /// All verdicts, by domain, meter and condition in the order of the records.
    pub verdicts: Vec<Verdict>,
    /// The comparison of the domains.
    pub comparison: Comparison,
}

/// Adds the record of a host crash and its verdicts to a judged document. The other verdicts
/// remain, and the comparison is derived again from all of them.
pub fn add_crash(evaluation: &mut Evaluation, crash: CrashRecord) {
    evaluation
        .verdicts
        .retain(|verdict| verdict.question != Question::Crash);
    let judged = judge_crash(&evaluation.settings, &crash);
    evaluation.verdicts.extend(judged);
    evaluation.crash = Some(crash);
    let before = std::mem::take(&mut evaluation.comparison);
    evaluation.comparison = Comparison {
        control: before.control,
        decided_after: before.decided_after,
        ..compare(
            &evaluation.settings,
            &evaluation.records,
            &evaluation.verdicts,
            before.reached,
            evaluation.machine.virtualisation.emulated,
        )
    };
}

/// Judges the evidence. Times of an emulated machine are not judged: no deadline holds or fails,
/// and no domain is as good as the host or worse.
#[must_use]
pub fn judge(evidence: &Evidence<'_>) -> Judged {
    Judging::default().judge(evidence)
}

/// Judges a growing evaluation repeatedly. Verdicts are cached as long as no run or round is added
/// to their evidence, within a look.
#[derive(Debug, Default)]
pub(crate) struct Judging {
    /// The verdicts on the matrix, with the number of runs that they rest on, and the look.
    matrix: Option<((usize, u32), Matrix)>,
    transfers: TransferVerdicts,
}

impl Judging {
    /// Judges like [`judge`]. The evidence includes all evidence of the last call.
    pub(crate) fn judge(&mut self, evidence: &Evidence<'_>) -> Judged {
        let Evidence {
            settings,
            records,
            visits,
            transfers,
            emulated,
        } = *evidence;
        let runs = records.iter().map(|record| record.runs.len()).sum();
        let rests_on = (runs, settings.look);
        let matrix = match self.matrix.take() {
            Some((known, drawn)) if known == rests_on => drawn,
            _ => judge_matrix(settings, records, visits, emulated),
        };
        let Matrix {
            mut verdicts,
            reached,
            control,
        } = matrix.clone();
        self.matrix = Some((rests_on, matrix));
        let mut of_rounds = self.transfers.judge(settings, transfers, emulated);
        // Blocks have positive controls of their own.
        if let Some(control) = &control {
            for verdict in &mut of_rounds {
                if verdict.question == Question::Interference {
                    negative_control::apply(control, verdict);
                }
            }
        }
        verdicts.extend(of_rounds);
        let decided_after =
            (!emulated).then(|| decided_after(settings, records, transfers, &verdicts));
        let comparison = Comparison {
            control,
            decided_after: decided_after.flatten(),
            ..compare(settings, records, &verdicts, reached, emulated)
        };
        Judged {
            verdicts,
            comparison,
        }
    }
}

/// The conclusions from the records of the matrix.
#[derive(Debug, Clone)]
struct Matrix {
    verdicts: Vec<Verdict>,
    reached: Vec<ReachedDeadlines>,
    control: Option<NegativeControl>,
}

/// Judges the records of the matrix.
fn judge_matrix(
    settings: &EvaluationSettings,
    records: &[Record],
    visits: &VisitsByRecord<'_>,
    emulated: bool,
) -> Matrix {
    let control = negative_control::judge(settings, records, visits);
    let (mut verdicts, mut reached) = (Vec::new(), Vec::new());
    for record in records.iter().filter(|record| record.exposure.runs > 0) {
        let emulated = emulated || record.emulated;
        if settings.deadline_is_named(&record.domain) {
            let of = visits_of(visits, record);
            verdicts.push(deadline::judge(settings, record, of, emulated));
        } else if !emulated {
            reached.extend(deadline::reached(record));
        }
        let partner = |host: bool, condition: Condition| {
            records.iter().find(|other| {
                other.exposure.runs > 0
                    && if host {
                        other.kind.is_housekeeping()
                    } else {
                        other.domain == record.domain
                    }
                    && other.settings.meter == record.settings.meter
                    && other.condition == condition
            })
        };
        let mut comparisons = Vec::new();
        if !record.kind.is_housekeeping()
            && let Some(host) = partner(true, record.condition)
        {
            let emulated = emulated || host.emulated;
            comparisons.push(judge_same_as_host(
                settings,
                (record, host),
                visits,
                emulated,
            ));
        }
        if record.condition != Condition::IDLE
            && let Some(idle) = partner(false, Condition::IDLE)
        {
            comparisons.push(judge_load(settings, (record, idle), visits, emulated));
        }
        if let Some(control) = &control {
            for verdict in &mut comparisons {
                negative_control::apply(control, verdict);
            }
        }
        verdicts.extend(comparisons);
    }
    Matrix {
        verdicts,
        reached,
        control,
    }
}

pub(crate) fn verdict(
    question: Question,
    record: &Record,
    outcome: VerdictOutcome,
    statement: String,
    figures: Option<VerdictFigures>,
    rests_on: Vec<String>,
) -> Verdict {
    Verdict {
        disturbance: None,
        id: question.id(&record.domain, record.settings.meter, &record.condition),
        question,
        domain: record.domain.clone(),
        meter: record.settings.meter,
        condition: record.condition,
        outcome,
        statement,
        figures,
        exposure: record.exposure,
        records: rests_on,
    }
}

fn judge_same_as_host(
    settings: &EvaluationSettings,
    (record, host): (&Record, &Record),
    visits: &VisitsByRecord<'_>,
    emulated: bool,
) -> Verdict {
    let (ours, theirs) = (visits_of(visits, record), visits_of(visits, host));
    let asked = questions::same_as_host(settings, &record.settings, &record.domain);
    let found = compare_visits(ours, theirs, &asked);
    let (outcome, statement) = match &found {
        Some(found) => statements::same_as_host(found, asked.tolerance, emulated),
        None => (
            VerdictOutcome::Inconclusive,
            statements::too_little(&record.exposure),
        ),
    };
    let figures = found.map(|found| VerdictFigures::SameAsHost {
        host: host.id.clone(),
        ratios: ratios(&found),
        tolerance: asked.tolerance,
        batches: (slices_in(ours), slices_in(theirs)),
        smallest_detectable: found.smallest_detectable,
        answers: Some(answers(&found, &asked)),
    });
    verdict(
        Question::SameAsHost,
        record,
        outcome,
        statement,
        figures,
        vec![record.id.clone(), host.id.clone()],
    )
}

fn judge_load(
    settings: &EvaluationSettings,
    (record, idle): (&Record, &Record),
    visits: &VisitsByRecord<'_>,
    emulated: bool,
) -> Verdict {
    let (loaded, quiet) = (visits_of(visits, record), visits_of(visits, idle));
    let asked = questions::interference(settings, &record.settings, &record.domain);
    // One visit for each valid run.
    let valid = idle.runs.iter().filter(|run| run.invalid.is_empty());
    let findings = valid.map(|run| run.findings.as_slice());
    let findings = findings.chain(std::iter::repeat(&[][..]));
    let quiet = IdleSide::new(&idle.id, quiet.iter().cloned().zip(findings));
    let found = judge_interference(loaded, &quiet, &asked, emulated);
    let (outcome, statement, figures) = match found {
        Some((outcome, statement, figures)) => (outcome, statement, Some(figures)),
        None => (
            VerdictOutcome::Inconclusive,
            statements::too_little(&record.exposure),
            None,
        ),
    };
    verdict(
        Question::Interference,
        record,
        outcome,
        statement,
        figures,
        vec![record.id.clone(), idle.id.clone()],
    )
}

pub(crate) fn visits_of<'a>(visits: &VisitsByRecord<'a>, record: &Record) -> &'a [Visit] {
    visits.get(&record.id).copied().unwrap_or_default()
}
