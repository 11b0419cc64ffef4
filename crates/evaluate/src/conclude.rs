// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Brings the document up to date with what was measured.

use std::collections::BTreeMap;

use rampart_model::{
    Condition, DomainPlan, Evaluation, Exposure, Finding, GuestRole, MeterPlan, NotMeasured,
    Record, Severity,
};

use crate::collect::RecordCollector;
use crate::experiment::{since_epoch, timestamp};
use crate::{Cell, Evidence, judge};

/// Brings records and verdicts of the document up to date.
pub(crate) fn conclude(evaluation: &mut Evaluation, collectors: &BTreeMap<Cell, RecordCollector>) {
    // A cell's order is domain, meter, condition: the order of the report.
    evaluation.records = collectors
        .values()
        .map(|collector| collector.record.clone())
        .filter(|record| !record.runs.is_empty())
        .collect();
    let blocks = collectors
        .values()
        .map(|collector| (collector.record.id.clone(), collector.blocks.clone()))
        .collect();
    let judged = judge(&Evidence {
        plan: &evaluation.plan,
        records: &evaluation.records,
        blocks: &blocks,
        transfers: &evaluation.transfers,
        crash: evaluation.crash.as_ref(),
        emulated: evaluation.machine.virtualisation.emulated,
    });
    evaluation.verdicts = judged.verdicts;
    evaluation.comparison = judged.comparison;
    evaluation
        .not_measured
        .retain(|gap| !gap.what.starts_with("record ") && !gap.what.starts_with("round "));
    let gaps = gaps(evaluation, collectors);
    let rounds = rounds_that_do_not_count(evaluation);
    evaluation
        .not_measured
        .extend(gaps.into_iter().chain(rounds));
    evaluation.written = timestamp(since_epoch());
}

/// Cells of the matrix without a valid run.
fn gaps(evaluation: &Evaluation, collectors: &BTreeMap<Cell, RecordCollector>) -> Vec<NotMeasured> {
    let mut gaps = Vec::new();
    for (domain, domain_plan) in evaluation.plan.domains.iter().enumerate() {
        for (meter, meter_plan) in evaluation.plan.meters.iter().enumerate() {
            for (condition, load) in evaluation.plan.conditions.iter().enumerate() {
                let id = record_id(domain_plan, meter_plan, *load);
                let findings = match collectors.get(&Cell {
                    domain,
                    meter,
                    condition,
                }) {
                    Some(collector) if collector.record.exposure.runs > 0 => continue,
                    Some(collector) if !collector.record.runs.is_empty() => collector
                        .record
                        .runs
                        .iter()
                        .flat_map(|run| run.invalid.clone())
                        .collect(),
                    _ => vec![Finding::new(
                        Severity::Note,
                        id.clone(),
                        "the evaluation ended before its turn came",
                    )],
                };
                gaps.push(NotMeasured {
                    what: format!("record {id}"),
                    findings,
                });
            }
        }
    }
    gaps
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
        id: record_id(domain, meter, condition),
        domain: domain.name.clone(),
        kind: domain.selection.kind,
        plan: MeterPlan {
            cpus: domain.cpus.clone(),
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

/// Steal above this part of all CPU time is named.
const STEAL_WORTH_NAMING: f64 = 0.01;

pub(crate) fn steal_finding(evaluation: &Evaluation) -> Option<Finding> {
    let steal = evaluation.machine.virtualisation.steal?;
    (steal > STEAL_WORTH_NAMING).then(|| {
        Finding::new(
            Severity::Warning,
            "steal",
            "the hypervisor under this machine gave CPU time to others; the figures contain it",
        )
        .values(format!("{:.1} % of all CPU time", steal * 100.0), "0 %")
    })
}
