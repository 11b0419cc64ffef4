// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Brings the document up to date with what was measured.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rampart_model::{
    Condition, DomainPlan, Evaluation, Exposure, Finding, GuestRole, LegRecord, MeterPlan,
    NotMeasured, Record, Severity, Verdict,
};

use crate::Cell;
use crate::collect::RecordCollector;
use crate::comparison::compare;
use crate::effects::judge::judge_effects;
use crate::experiment::{since_epoch, timestamp};
use crate::failures::Failures;
use crate::judge::{Evidence, judge_records};
use crate::steal;
use crate::transfer::judge::TransferVerdicts;

/// Judging between runs and rounds may take this part of the time that passed. The document is
/// then a little behind with its verdicts; with its records never.
const SHARE_FOR_JUDGING: u32 = 50;

/// Keeps a document up to date with what was measured.
#[derive(Debug)]
pub(crate) struct Concluding {
    /// What the plan left out.
    planned: Vec<NotMeasured>,
    began: Instant,
    judging: Duration,
    /// Runs that are in the document.
    runs: usize,
    /// The verdicts on the matrix, and on how many runs they rest.
    matrix: (usize, Vec<Verdict>),
    transfers: TransferVerdicts,
}

impl Concluding {
    /// For a document in which only the plan stands.
    pub(crate) fn new(evaluation: &Evaluation) -> Self {
        Self {
            planned: evaluation.not_measured.clone(),
            began: Instant::now(),
            judging: Duration::ZERO,
            runs: 0,
            matrix: (0, Vec::new()),
            transfers: TransferVerdicts::default(),
        }
    }

    /// After a run or a round: records always, verdicts while they take little of the time.
    pub(crate) fn between(
        &mut self,
        evaluation: &mut Evaluation,
        collectors: &BTreeMap<Cell, RecordCollector>,
        failures: &Failures,
    ) {
        self.collect(evaluation, collectors, failures);
        if self.judging <= self.began.elapsed() / SHARE_FOR_JUDGING {
            self.judge(evaluation, collectors);
        }
    }

    /// At the end: records and verdicts.
    pub(crate) fn finish(
        &mut self,
        evaluation: &mut Evaluation,
        collectors: &BTreeMap<Cell, RecordCollector>,
        failures: &Failures,
    ) {
        self.collect(evaluation, collectors, failures);
        self.judge(evaluation, collectors);
    }

    fn collect(
        &mut self,
        evaluation: &mut Evaluation,
        collectors: &BTreeMap<Cell, RecordCollector>,
        failures: &Failures,
    ) {
        let runs = collectors
            .values()
            .map(|collector| collector.record.runs.len())
            .sum();
        if runs != self.runs {
            self.runs = runs;
            // A cell's order is leg, domain, meter, condition: the order of the report.
            let made = |record: &Record| !record.runs.is_empty();
            evaluation.records = collectors
                .iter()
                .filter(|(cell, _)| cell.leg == 0)
                .map(|(_, collector)| collector.record.clone())
                .filter(made)
                .collect();
            if let Some(effects) = &mut evaluation.plan_effects {
                effects.records = collectors
                    .iter()
                    .filter(|(cell, _)| cell.leg > 0)
                    .filter_map(|(cell, collector)| {
                        Some(LegRecord {
                            leg: evaluation.plan.legs.get(cell.leg)?.leg.clone(),
                            record: collector.record.clone(),
                        })
                    })
                    .filter(|leg| made(&leg.record))
                    .collect();
            }
        }
        evaluation.not_measured = [
            self.planned.clone(),
            failures.not_measured(),
            gaps(evaluation, collectors, failures),
            rounds_that_do_not_count(evaluation),
        ]
        .concat();
        evaluation.written = timestamp(since_epoch());
    }

    fn judge(&mut self, evaluation: &mut Evaluation, collectors: &BTreeMap<Cell, RecordCollector>) {
        let begin = Instant::now();
        let emulated = evaluation.machine.virtualisation.emulated;
        if self.matrix.0 != self.runs {
            let blocks = collectors
                .values()
                .map(|collector| (collector.record.id.clone(), collector.blocks.clone()))
                .collect();
            let verdicts = judge_records(&evaluation.plan, &evaluation.records, &blocks, emulated);
            self.matrix = (self.runs, verdicts);
            if let Some(effects) = &mut evaluation.plan_effects {
                let evidence = Evidence {
                    plan: &evaluation.plan,
                    records: &evaluation.records,
                    blocks: &blocks,
                    transfers: &[],
                    crash: None,
                    emulated,
                };
                judge_effects(effects, &evidence);
            }
        }
        evaluation.verdicts.clone_from(&self.matrix.1);
        evaluation.verdicts.extend(self.transfers.judge(
            &evaluation.plan,
            &evaluation.transfers,
            emulated,
        ));
        evaluation.comparison = compare(
            &evaluation.plan,
            &evaluation.records,
            &evaluation.verdicts,
            emulated,
        );
        self.judging += begin.elapsed();
    }
}

/// Cells of the matrix without a valid run.
fn gaps(
    evaluation: &Evaluation,
    collectors: &BTreeMap<Cell, RecordCollector>,
    failures: &Failures,
) -> Vec<NotMeasured> {
    let plan = &evaluation.plan;
    let mut gaps = Vec::new();
    for leg in 0..plan.legs.len().max(1) {
        for domain in 0..plan.domains.len() {
            for meter in 0..plan.meters.len() {
                for condition in 0..plan.conditions.len() {
                    let cell = Cell {
                        leg,
                        domain,
                        meter,
                        condition,
                    };
                    gaps.extend(gap(evaluation, cell, collectors.get(&cell), failures));
                }
            }
        }
    }
    gaps
}

/// A cell without a valid run; none for one with.
fn gap(
    evaluation: &Evaluation,
    cell: Cell,
    collector: Option<&RecordCollector>,
    failures: &Failures,
) -> Option<NotMeasured> {
    let empty;
    let record = match collector {
        Some(collector) => &collector.record,
        None => {
            empty = empty_record(evaluation, cell);
            &empty
        }
    };
    if record.exposure.runs > 0 {
        return None;
    }
    let findings = if record.runs.is_empty() {
        vec![failures.left_out(&record.domain).unwrap_or_else(|| {
            Finding::new(
                Severity::Note,
                record.id.clone(),
                if evaluation.plan.legs.is_empty() {
                    "the evaluation ended before its turn came"
                } else {
                    "its turn did not come, or what it was to be measured in did not stand"
                },
            )
        })]
    } else {
        let runs = record.runs.iter();
        runs.flat_map(|run| run.invalid.clone()).collect()
    };
    Some(NotMeasured {
        what: format!("record {}", record.id),
        findings,
    })
}

/// Rounds that were made and do not count, with their reasons.
fn rounds_that_do_not_count(evaluation: &Evaluation) -> Vec<NotMeasured> {
    evaluation
        .transfers
        .iter()
        .filter(|round| !round.invalid.is_empty())
        .map(|round| NotMeasured {
            what: format!("round {}", round.id),
            findings: round.invalid.clone(),
        })
        .collect()
}

fn record_id(domain: &DomainPlan, meter: &MeterPlan, condition: Condition) -> String {
    format!("{}/{}/{condition}", domain.name, meter.meter)
}

/// A record without runs.
pub(crate) fn empty_record(evaluation: &Evaluation, cell: Cell) -> Record {
    let domain = &evaluation.plan.domains[cell.domain];
    let meter = &evaluation.plan.meters[cell.meter];
    let condition = evaluation.plan.conditions[cell.condition];
    Record {
        emulated: evaluation.machine.virtualisation.emulated
            || domain.selection.guest == Some(GuestRole::Emulated),
        id: format!(
            "{}{}",
            evaluation
                .plan
                .legs
                .get(cell.leg)
                .map_or_else(String::new, |leg| leg.leg.prefix()),
            record_id(domain, meter, condition)
        ),
        domain: domain.name.clone(),
        kind: domain.selection.kind,
        plan: MeterPlan {
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

/// How much of all CPU time was stolen while it ran.
pub(crate) fn steal_finding(evaluation: &Evaluation) -> Option<Finding> {
    steal::finding(
        "all CPUs together",
        evaluation.machine.virtualisation.steal?,
    )
}
