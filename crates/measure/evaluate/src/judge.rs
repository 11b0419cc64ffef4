// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Derives the verdicts from the records. Pure; the formulae are in `rampart-stats` and explained
//! in `docs/verdicts.md`.

use std::collections::BTreeMap;

use rampart_model::{
    Comparison, Condition, CrashRecord, Distribution, Evaluation, EvaluationSettings, Exposure,
    Nanos, Question, Record, TransferRecord, Verdict, VerdictFigures, VerdictOutcome,
};
use rampart_stats::{
    DEADLINE_CONFIDENCE, QUANTILES, Resampling, SAME_AS_HOST_TOLERANCE, deadline_outcome,
    exceedance_bound, same_as, time_between_violations,
};

use crate::collect::whole_series;
use crate::comparison::compare;
use crate::crash_verdicts::judge_crash;
use crate::interference::{batches_in, judge_interference};
use crate::statements;
use crate::transfer::judge::TransferVerdicts;

/// Batches of the primary series by record: its valid runs, each in chronological order.
pub type BatchesByRecord<'a> = BTreeMap<String, &'a [Vec<Distribution>]>;

/// The data from which verdicts are derived.
#[derive(Debug, Clone, Copy)]
pub struct Evidence<'a> {
    /// The settings of the evaluation.
    pub plan: &'a EvaluationSettings,
    /// The records of the matrix.
    pub records: &'a [Record],
    /// The samples of the records in batches of about a second.
    pub batches: &'a BatchesByRecord<'a>,
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
    evaluation.comparison = compare(
        &evaluation.settings,
        &evaluation.records,
        &evaluation.verdicts,
        evaluation.machine.virtualisation.emulated,
    );
}

/// Judges the evidence. Times of an emulated machine are not judged: no deadline holds or fails,
/// and no domain is as good as the host or worse.
#[must_use]
pub fn judge(evidence: &Evidence<'_>) -> Judged {
    Judging::default().judge(evidence)
}

/// Judges a growing evaluation repeatedly. Verdicts are cached as long as no run or round is added
/// to their evidence.
#[derive(Debug, Default)]
pub(crate) struct Judging {
    /// The verdicts on the matrix, and the number of runs that they rest on.
    matrix: Option<(usize, Vec<Verdict>)>,
    transfers: TransferVerdicts,
}

impl Judging {
    /// Judges like [`judge`]. The evidence includes all evidence of the last call.
    pub(crate) fn judge(&mut self, evidence: &Evidence<'_>) -> Judged {
        let Evidence {
            plan,
            records,
            batches,
            transfers,
            emulated,
        } = *evidence;
        let runs = records.iter().map(|record| record.runs.len()).sum();
        let mut verdicts = match self.matrix.take() {
            Some((known, drawn)) if known == runs => drawn,
            _ => judge_records(plan, records, batches, emulated),
        };
        self.matrix = Some((runs, verdicts.clone()));
        verdicts.extend(self.transfers.judge(plan, transfers, emulated));
        let comparison = compare(plan, records, &verdicts, emulated);
        Judged {
            verdicts,
            comparison,
        }
    }
}

/// Returns the verdicts on the records of the matrix.
fn judge_records(
    plan: &EvaluationSettings,
    records: &[Record],
    batches: &BatchesByRecord<'_>,
    emulated: bool,
) -> Vec<Verdict> {
    let resampling = Resampling {
        seed: plan.seed,
        ..Resampling::default()
    };
    let mut verdicts = Vec::new();
    for record in records.iter().filter(|record| record.exposure.runs > 0) {
        let emulated = emulated || record.emulated;
        verdicts.push(judge_deadline(plan, record, emulated));
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
        if !record.kind.is_housekeeping()
            && let Some(host) = partner(true, record.condition)
        {
            let emulated = emulated || host.emulated;
            verdicts.push(judge_same_as_host(
                record,
                host,
                batches,
                &resampling,
                emulated,
            ));
        }
        if record.condition != Condition::IDLE
            && let Some(idle) = partner(false, Condition::IDLE)
        {
            verdicts.push(judge_load(record, idle, batches, &resampling, emulated));
        }
    }
    verdicts
}

fn verdict(
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

/// Judges the deadline. Every period is a cycle, sampled or missed. A missed cycle exceeds the
/// deadline if its corrected lateness does.
fn judge_deadline(plan: &EvaluationSettings, record: &Record, emulated: bool) -> Verdict {
    let whole = whole_series(record, record.settings.meter.primary_series());
    let deadline = plan.deadline_of(&record.domain);
    let (max, missed_late) = whole.as_ref().map_or((Nanos::ZERO, 0), |series| {
        let late = |distribution: &Distribution| distribution.count_above(deadline);
        let missed_late = series.corrected.as_ref().map_or(0, |corrected| {
            late(corrected).saturating_sub(late(&series.seen))
        });
        (series.seen.max.unwrap_or_default(), missed_late)
    });
    let cycles = cycles(record);
    let seen: u64 = record.cpus.iter().map(|cpu| cpu.over_deadline).sum();
    let exceedances = (seen + missed_late).min(cycles);
    // Measuring several CPUs at once does not lengthen the exposure: the same events disturb them.
    let upper_bound = exceedance_bound(exceedances, cycles, DEADLINE_CONFIDENCE).unwrap_or(1.0);
    let between = (exceedances == 0)
        .then(|| time_between_violations(record.exposure.duration, DEADLINE_CONFIDENCE));
    let outcome = if emulated {
        VerdictOutcome::Inconclusive
    } else {
        deadline_outcome(exceedances, cycles)
    };
    let figures = VerdictFigures::Deadline {
        deadline,
        cycles,
        exceedances,
        upper_bound,
        confidence: DEADLINE_CONFIDENCE,
        time_between_violations: between,
        max,
    };
    let statement = statements::deadline(&figures, &record.exposure, emulated);
    verdict(
        Question::Deadline,
        record,
        outcome,
        statement,
        Some(figures),
        vec![record.id.clone()],
    )
}

/// Returns the number of observed cycles. For `noise`, whose samples are only the gaps, a cycle is
/// a window of the deadline's length; there are at least as many cycles as gaps, and as runs.
fn cycles(record: &Record) -> u64 {
    let Exposure {
        samples,
        missed,
        runs,
        ..
    } = record.exposure;
    match record.settings.meter {
        rampart_model::MeterKind::Noise => {
            // The loop measures without pauses.
            let deadline = record
                .settings
                .deadline
                .map_or(1, |deadline| deadline.0.max(1));
            let windows = record.exposure.duration.0 / deadline * u64::from(record.exposure.cpus);
            windows.max(samples).max(u64::from(runs))
        }
        _ => samples + missed,
    }
}

fn judge_same_as_host(
    record: &Record,
    host: &Record,
    batches: &BatchesByRecord<'_>,
    resampling: &Resampling,
    emulated: bool,
) -> Verdict {
    let rests_on = vec![record.id.clone(), host.id.clone()];
    let (ours, theirs) = (batches_of(batches, record), batches_of(batches, host));
    let found = same_as(ours, theirs, &QUANTILES, SAME_AS_HOST_TOLERANCE, resampling);
    let Some(found) = found else {
        let statement = statements::too_little(&record.exposure);
        return verdict(
            Question::SameAsHost,
            record,
            VerdictOutcome::Inconclusive,
            statement,
            None,
            rests_on,
        );
    };
    let (outcome, statement) = statements::same_as_host(&found, SAME_AS_HOST_TOLERANCE, emulated);
    let figures = VerdictFigures::SameAsHost {
        host: host.id.clone(),
        ratios: found.ratios,
        tolerance: SAME_AS_HOST_TOLERANCE,
        batches: (batches_in(ours), batches_in(theirs)),
        smallest_detectable: found.smallest_detectable,
    };
    verdict(
        Question::SameAsHost,
        record,
        outcome,
        statement,
        Some(figures),
        rests_on,
    )
}

fn judge_load(
    record: &Record,
    idle: &Record,
    batches: &BatchesByRecord<'_>,
    resampling: &Resampling,
    emulated: bool,
) -> Verdict {
    let (loaded, quiet) = (batches_of(batches, record), batches_of(batches, idle));
    let found = judge_interference(loaded, quiet, &idle.id, resampling, emulated);
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

fn batches_of<'a>(batches: &BatchesByRecord<'a>, record: &Record) -> &'a [Vec<Distribution>] {
    batches.get(&record.id).copied().unwrap_or_default()
}
