// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Updates the document with the results so far.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rampart_model::{
    Condition, EvaluatedDomain, Evaluation, EvaluationPart, Exposure, Finding, MeterSettings,
    NotMeasured, Record, Severity, VariantRecord, VariantSettings,
};

use crate::calendar_time::{since_epoch, timestamp};
use crate::collect::RecordCollector;
use crate::completeness::{Missing, missing};
use crate::effects::judge::judge_effects;
use crate::failures::Failures;
use crate::judge::{Evidence, Judging};
use crate::store::ResultDirectory;
use crate::{EvaluateError, MatrixEntry};

/// Largest part of the elapsed time for judging between runs and rounds (1 in this many). The
/// verdicts in the document may be a little behind its records.
const SHARE_FOR_JUDGING: u32 = 50;

/// Largest part of the elapsed time for collecting and writing the document (1 in this many): it
/// takes time from a housekeeping CPU, which may be measured.
const SHARE_FOR_WRITING: u32 = 50;

/// Updates a document after runs and rounds.
#[derive(Debug)]
pub(crate) struct DocumentUpdates {
    /// The parts that the settings left out.
    planned: Vec<NotMeasured>,
    began: Instant,
    /// The time used for judging.
    spent: Duration,
    /// The time used for collecting and writing.
    spent_writing: Duration,
    /// Number of runs in the document.
    runs: usize,
    judging: Judging,
    /// Number of runs on which the effects of the plan's changes rest.
    effects_of: Option<usize>,
}

impl DocumentUpdates {
    /// Creates the state for a document that has only the settings.
    pub(crate) fn new(evaluation: &Evaluation) -> Self {
        Self {
            planned: evaluation.not_measured.clone(),
            began: Instant::now(),
            spent: Duration::ZERO,
            spent_writing: Duration::ZERO,
            runs: 0,
            judging: Judging::default(),
            effects_of: None,
        }
    }

    /// Updates and writes the document after a run or a round, as far as the time allows or `always`,
    /// and its verdicts, as far as the time allows.
    pub(crate) fn between(
        &mut self,
        evaluation: &mut Evaluation,
        collectors: &BTreeMap<MatrixEntry, RecordCollector>,
        failures: &Failures,
        (directory, always): (&ResultDirectory, bool),
    ) -> Result<(), EvaluateError> {
        let elapsed = self.began.elapsed();
        if !always && self.spent_writing > elapsed / SHARE_FOR_WRITING {
            return Ok(());
        }
        let begin = Instant::now();
        self.collect(evaluation, collectors, failures);
        self.spent_writing += begin.elapsed();
        if self.spent <= elapsed / SHARE_FOR_JUDGING {
            self.judge(evaluation, collectors);
        }
        let begin = Instant::now();
        let written = directory.write(evaluation);
        self.spent_writing += begin.elapsed();
        written
    }

    /// Updates records and verdicts at the end.
    pub(crate) fn finish(
        &mut self,
        evaluation: &mut Evaluation,
        collectors: &BTreeMap<MatrixEntry, RecordCollector>,
        failures: &Failures,
    ) {
        self.collect(evaluation, collectors, failures);
        self.judge(evaluation, collectors);
    }

    fn collect(
        &mut self,
        evaluation: &mut Evaluation,
        collectors: &BTreeMap<MatrixEntry, RecordCollector>,
        failures: &Failures,
    ) {
        let runs = collectors
            .values()
            .map(|collector| collector.record.runs.len())
            .sum();
        if runs != self.runs {
            self.runs = runs;
            // Entries are sorted by variant, domain, meter, condition: the order of the report.
            let made = |record: &Record| !record.runs.is_empty();
            evaluation.records = collectors
                .iter()
                .filter(|(entry, _)| entry.variant == 0)
                .map(|(_, collector)| collector.record.clone())
                .filter(made)
                .collect();
            if let Some(effects) = &mut evaluation.plan_effects {
                effects.records = collectors
                    .iter()
                    .filter(|(entry, _)| entry.variant > 0)
                    .filter_map(|(entry, collector)| {
                        Some(VariantRecord {
                            variant: evaluation
                                .settings
                                .variants
                                .get(entry.variant)?
                                .variant
                                .clone(),
                            record: collector.record.clone(),
                        })
                    })
                    .filter(|variant| made(&variant.record))
                    .collect();
            }
        }
        let missing = missing(evaluation);
        let matters = |domain: &str| missing.iter().any(|one| one.is_of(domain));
        evaluation.not_measured = [
            self.planned.clone(),
            failures.not_measured(matters),
            gaps(missing, failures, !evaluation.settings.variants.is_empty()),
        ]
        .concat();
        evaluation.written = timestamp(since_epoch());
    }

    fn judge(
        &mut self,
        evaluation: &mut Evaluation,
        collectors: &BTreeMap<MatrixEntry, RecordCollector>,
    ) {
        let begin = Instant::now();
        let visits = collectors
            .values()
            .map(|collector| (collector.record.id.clone(), collector.visits.as_slice()))
            .collect();
        let evidence = Evidence {
            settings: &evaluation.settings,
            records: &evaluation.records,
            visits: &visits,
            transfers: &evaluation.transfers,
            emulated: evaluation.machine.virtualisation.emulated,
        };
        let judged = self.judging.judge(&evidence);
        if let Some(effects) = &mut evaluation.plan_effects
            && self.effects_of != Some(self.runs)
        {
            judge_effects(effects, &evidence);
            self.effects_of = Some(self.runs);
        }
        evaluation.verdicts = judged.verdicts;
        evaluation.comparison = judged.comparison;
        self.spent += begin.elapsed();
    }
}

/// Returns the missing parts, each with its reasons.
fn gaps(missing: Vec<Missing>, failures: &Failures, compared: bool) -> Vec<NotMeasured> {
    let with_reasons = |one: Missing| {
        let left_out = one.unexplained.iter().map(|name| failures.left_out(name));
        let mut findings = one.reasons;
        findings.extend(left_out.flatten());
        if findings.is_empty() {
            let what = if compared {
                "the evaluation ended before it, or its variant of the plan could not be applied"
            } else {
                "the evaluation ended before its turn came"
            };
            let location = match &one.part {
                EvaluationPart::Record(id) | EvaluationPart::Round { id, .. } => id.as_str(),
                _ => "",
            };
            findings.push(
                Finding::new(Severity::Note, location, what).fix(
                    "let it run to its end, or give it more time with --for, or fewer --domains, --loads or --meters",
                ),
            );
        }
        NotMeasured {
            part: one.part,
            findings,
        }
    };
    missing.into_iter().map(with_reasons).collect()
}

/// Returns the id of an entry or domain in a variant, with the variant as prefix if there are
/// several.
pub(crate) fn id_in_variant(variant: Option<&VariantSettings>, entry: String) -> String {
    match variant {
        Some(variant) => format!("{}{entry}", variant.variant.prefix()),
        None => entry,
    }
}

/// Returns `DOMAIN/METER/CONDITION`.
pub(crate) fn record_id(
    domain: &EvaluatedDomain,
    meter: &MeterSettings,
    condition: Condition,
) -> String {
    format!("{}/{}/{condition}", domain.name, meter.meter)
}

/// Returns a record without runs.
pub(crate) fn empty_record(evaluation: &Evaluation, entry: MatrixEntry) -> Record {
    let domain = &evaluation.settings.domains[entry.domain];
    let meter = &evaluation.settings.meters[entry.meter];
    let condition = evaluation.settings.conditions[entry.condition];
    Record {
        emulated: evaluation.machine.virtualisation.emulated || domain.selection.is_emulated(),
        id: id_in_variant(
            evaluation.settings.variants.get(entry.variant),
            record_id(domain, meter, condition),
        ),
        domain: domain.name.clone(),
        kind: domain.selection.kind,
        settings: MeterSettings {
            cpus: domain.cpus.clone(),
            policy: domain.policy.unwrap_or(meter.policy),
            deadline: domain.deadline.or(meter.deadline),
            ..meter.clone()
        },
        condition,
        exposure: Exposure::default(),
        cpus: Vec::new(),
        worst: Vec::new(),
        runs: Vec::new(),
        invalid: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::is_complete;
    use rampart_model::EvaluationState;

    /// Returns the web page's complete test evaluation.
    fn complete() -> Evaluation {
        let text = include_str!("../../../show/present/tests/documents/transfers.json");
        let mut evaluation: Evaluation = serde_json::from_str(text).expect("an evaluation");
        for round in &mut evaluation.transfers {
            round.invalid.clear();
        }
        evaluation.not_measured.clear();
        evaluation.state = EvaluationState::Complete;
        evaluation
    }

    fn why() -> Finding {
        Finding::new(Severity::Error, "vm", "it did not answer")
    }

    fn round(domains: &[&str]) -> EvaluationPart {
        EvaluationPart::Round {
            id: "block:host/0".to_owned(),
            domains: domains.iter().map(|&domain| domain.to_owned()).collect(),
        }
    }

    /// Returns everything that was not measured, each with its first reason. The result must agree
    /// with the exit code.
    fn gaps_of(mut evaluation: Evaluation, failures: &Failures) -> Vec<(EvaluationPart, String)> {
        DocumentUpdates::new(&evaluation).collect(&mut evaluation, &BTreeMap::new(), failures);
        let gaps = &evaluation.not_measured;
        assert_eq!(is_complete(&evaluation), gaps.is_empty(), "{gaps:?}");
        let first = |gap: &NotMeasured| (gap.part.clone(), gap.findings[0].what.clone());
        gaps.iter().map(first).collect()
    }

    #[test]
    fn gaps_agree_with_the_exit_code() {
        let none = Failures::default();
        assert!(gaps_of(complete(), &none).is_empty());

        let mut repeated = complete();
        let mut failed = repeated.transfers[1].clone();
        failed.invalid = vec![why()];
        repeated.transfers.insert(1, failed);
        assert!(gaps_of(repeated, &none).is_empty(), "made again");

        let mut partly = complete();
        let watched = &mut partly.transfers[1].watched;
        let vm = watched.iter_mut().find(|one| one.domain == "vm");
        vm.expect("the guest").invalid = vec![why()];
        assert_eq!(
            gaps_of(partly, &none),
            [(round(&["vm"]), "it did not answer".to_owned())]
        );

        let mut cut = complete();
        cut.transfers.truncate(1);
        let all = gaps_of(cut, &none);
        assert!(all.len() > 4, "{all:?}");
        let ended = "the evaluation ended before its turn came".to_owned();
        assert_eq!(all[0], (round(&["host", "task", "container", "vm"]), ended));
    }

    #[test]
    fn reports_a_left_out_domain_only_if_a_part_is_missing() {
        let mut failures = Failures::default();
        failures.failed("vm", &why());
        failures.failed("vm", &why());
        assert!(
            gaps_of(complete(), &failures).is_empty(),
            "nothing is missing"
        );
        let mut without = complete();
        without
            .records
            .retain(|record| record.id != "vm/wakeup/idle");
        let all = gaps_of(without, &failures);
        assert_eq!(all.len(), 2, "{all:?}");
        assert_eq!(
            all[0].0,
            EvaluationPart::DomainAfterFailures("vm".to_owned())
        );
        assert_eq!(
            all[1].0,
            EvaluationPart::Record("vm/wakeup/idle".to_owned())
        );
        assert!(all[1].1.starts_with("it failed 2 times"), "{all:?}");
    }
}
