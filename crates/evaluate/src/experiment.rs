// SPDX-License-Identifier: Apache-2.0 OR MIT
//! All runs of an evaluation, in order, with the document on disk after each.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rampart_host::{MachineRoot, processor_times, read_machine, read_smi_count};
use rampart_model::{
    Condition, DomainPlan, EVALUATION_SCHEMA_VERSION, Evaluation, EvaluationState, Exposure,
    Finding, LoadKind, MeterPlan, Nanos, NotMeasured, Record, Run, SchedulingPolicy, Severity,
};

use crate::collect::RecordCollector;
use crate::run::{RunRequest, make_run};
use crate::store::ResultDirectory;
use crate::{Cell, EvaluateError, Proposal, Request, judge, propose, schedule};

/// A cell whose runs failed this often is not tried again.
const FAILURES_BEFORE_GIVING_UP: usize = 2;

/// Where and with what an evaluation runs.
#[derive(Debug)]
pub struct Context<'a> {
    /// The static meter program.
    pub meter: &'a Path,
    /// The result directory to make.
    pub output: &'a Path,
    /// Whether to name the causes of the worst samples of each run, from the kernel's own trace.
    pub explain: bool,
    /// The command line, for the document.
    pub command: Vec<String>,
    /// Version of the tool, for the document.
    pub tool_version: &'a str,
}

/// How far an evaluation is.
#[derive(Debug, Clone)]
pub struct Progress {
    /// The run being made, from 0, and how many there are.
    pub run: (u32, u32),
    /// `DOMAIN/METER/CONDITION` of it.
    pub record: String,
    /// How much of the whole is done, 0 to 1.
    pub done: f64,
    /// How long the rest will take, judged from the runs made.
    pub remaining: Duration,
}

/// Hears how an evaluation goes.
pub trait Observer {
    /// The matrix, before the first run.
    fn planned(&mut self, evaluation: &Evaluation);
    /// A few times a second.
    fn progress(&mut self, progress: &Progress);
    /// A run is over.
    fn run_made(&mut self, record: &str, run: &Run);
}

/// Evaluates this machine: makes the runs of the proposed matrix and writes the document before
/// the first and after each.
///
/// Set `stop` to end early; what was measured is kept and judged.
///
/// # Errors
/// If nothing can be measured or written. A failing run is part of the document instead.
pub fn evaluate(
    request: &Request,
    context: &Context<'_>,
    observer: &mut dyn Observer,
    stop: &AtomicBool,
) -> Result<Evaluation, EvaluateError> {
    let root = MachineRoot::system();
    let mut machine = read_machine(&root);
    machine.system_management_interrupts.at_start = read_smi_count();
    let availability = rampart_domain::availability(&machine);
    let refused = own_real_time_refusal(request);
    let request = &Request {
        policy: refused
            .as_ref()
            .map(|_| SchedulingPolicy::Other)
            .or(request.policy),
        ..request.clone()
    };
    let Proposal {
        mut plan,
        not_measured,
    } = propose(&machine, &availability, request)?;
    plan.findings.extend(refused);
    let load_needed = plan
        .conditions
        .iter()
        .find(|condition| condition.load != LoadKind::Idle);
    if let Some(condition) = load_needed {
        rampart_load::check(*condition)?;
    }
    let directory = ResultDirectory::create(context.output)?;
    let scratch = tempfile::tempdir_in(context.output).map_err(|source| EvaluateError::Output {
        path: context.output.to_owned(),
        source,
    })?;

    let order = schedule(&plan);
    let now = timestamp(since_epoch());
    let planned_runs = u32::try_from(order.len()).unwrap_or(u32::MAX);
    let mut evaluation = Evaluation {
        bench: rampart_model::Bench::Local,
        crash: None,
        transfers: Vec::new(),
        schema_version: EVALUATION_SCHEMA_VERSION,
        tool_version: context.tool_version.to_owned(),
        command: context.command.clone(),
        started: now.clone(),
        written: now,
        state: EvaluationState::Running,
        runs: (0, planned_runs),
        findings: Vec::new(),
        machine,
        plan,
        availability,
        records: Vec::new(),
        verdicts: Vec::new(),
        comparison: Default::default(),
        not_measured,
    };
    directory.write(&evaluation)?;
    observer.planned(&evaluation);

    let mut collectors = BTreeMap::<Cell, RecordCollector>::new();
    let times_at_start = processor_times(&root);
    let began = Instant::now();
    for (number, cell) in order.iter().enumerate() {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let number = u32::try_from(number).unwrap_or(u32::MAX);
        let collector = collectors
            .entry(*cell)
            .or_insert_with(|| RecordCollector::new(empty_record(&evaluation, *cell)));
        let id = collector.record.id.clone();
        let failures = collector
            .record
            .runs
            .iter()
            .filter(|run| !run.invalid.is_empty())
            .count();
        if failures >= FAILURES_BEFORE_GIVING_UP && failures == collector.record.runs.len() {
            continue;
        }
        let domain_plan = &evaluation.plan.domains[cell.domain];
        let domain = rampart_domain::domain(domain_plan.selection);
        let others = evaluation
            .machine
            .topology
            .online
            .intersection(&evaluation.machine.topology.allowed)
            .difference(&collector.record.plan.cpus);
        let runs_left = f64::from(planned_runs - number);
        let mut tick = || {
            let elapsed = began.elapsed();
            // Before a run is over there is only the plan to judge from.
            let per_run = if number == 0 {
                Duration::from(evaluation.plan.total).div_f64(f64::from(planned_runs))
            } else {
                elapsed.div_f64(f64::from(number) + 0.5)
            };
            let whole = per_run.mul_f64(f64::from(planned_runs));
            let remaining = whole
                .saturating_sub(elapsed)
                .min(per_run.mul_f64(runs_left));
            observer.progress(&Progress {
                run: (number, planned_runs),
                record: id.clone(),
                done: (elapsed.as_secs_f64() / (elapsed + remaining).as_secs_f64().max(1e-9))
                    .min(1.0),
                remaining,
            });
        };
        tick();
        let (run, collected) = make_run(
            RunRequest {
                order: number,
                record: &id,
                domain: domain.as_ref(),
                plan: &collector.record.plan,
                condition: collector.record.condition,
                others: &others,
                housekeeping: &evaluation.plan.housekeeping,
                meter: context.meter,
                scratch: scratch.path(),
                explain: context.explain,
                log: directory.histogram_log(number, &id)?,
            },
            &mut tick,
            stop,
        );
        if stop.load(Ordering::Relaxed) && !run.invalid.is_empty() {
            // Cut off before it had a sample: it never was a run.
            break;
        }
        observer.run_made(&id, &run);
        collector.add(run, collected);
        evaluation.runs.0 = number + 1;
        conclude(&mut evaluation, &collectors);
        directory.write(&evaluation)?;
    }
    evaluation.machine.system_management_interrupts.at_end = read_smi_count();
    evaluation.machine.virtualisation.steal = match (processor_times(&root), times_at_start) {
        (Some(end), Some(start)) => end.steal_since(&start),
        _ => None,
    };
    evaluation.findings.extend(steal_finding(&evaluation));
    evaluation.state = if evaluation.runs.0 == planned_runs && !stop.load(Ordering::Relaxed) {
        EvaluationState::Complete
    } else {
        EvaluationState::EndedEarly
    };
    conclude(&mut evaluation, &collectors);
    directory.write(&evaluation)?;
    Ok(evaluation)
}

/// Brings records and verdicts of the document up to date.
fn conclude(evaluation: &mut Evaluation, collectors: &BTreeMap<Cell, RecordCollector>) {
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
    let judged = judge(
        &evaluation.plan,
        &evaluation.records,
        &blocks,
        evaluation.machine.virtualisation.emulated,
    );
    evaluation.verdicts = judged.verdicts;
    evaluation.comparison = judged.comparison;
    evaluation
        .not_measured
        .retain(|gap| !gap.what.starts_with("record "));
    evaluation.not_measured.extend(gaps(evaluation, collectors));
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

fn record_id(domain: &DomainPlan, meter: &MeterPlan, condition: Condition) -> String {
    format!("{}/{}/{condition}", domain.name, meter.meter)
}

fn empty_record(evaluation: &Evaluation, cell: Cell) -> Record {
    let domain = &evaluation.plan.domains[cell.domain];
    let meter = &evaluation.plan.meters[cell.meter];
    let condition = evaluation.plan.conditions[cell.condition];
    Record {
        emulated: false,
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

/// Why the meters get the time-sharing policy although real-time policies are usual: this process
/// may not give them one, and the user did not insist.
fn own_real_time_refusal(request: &Request) -> Option<Finding> {
    if request.policy.is_some() {
        return None;
    }
    let thread = u32::try_from(rustix::thread::gettid().as_raw_nonzero().get()).ok()?;
    rampart_host::diagnose_real_time_policy(thread).map(|finding| Finding {
        severity: Severity::Warning,
        what: format!(
            "{}; the meters run under the time-sharing policy instead, which says little about \
             real-time work",
            finding.what
        ),
        ..finding
    })
}

/// Steal above this part of all CPU time is named.
const STEAL_WORTH_NAMING: f64 = 0.01;

fn steal_finding(evaluation: &Evaluation) -> Option<Finding> {
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

fn since_epoch() -> Nanos {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map(Nanos::from)
        .unwrap_or_default()
}

/// The present moment as a part of a file name, `20260131-235959`, in UTC.
#[must_use]
pub fn file_name_of_now() -> String {
    jiff::Timestamp::now().strftime("%Y%m%d-%H%M%S").to_string()
}

/// RFC 3339 of a moment given as nanoseconds since 1970.
pub(crate) fn timestamp(since_epoch: Nanos) -> String {
    jiff::Timestamp::from_nanosecond(i128::from(since_epoch.0))
        .map(|timestamp| timestamp.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_written_as_rfc_3339() {
        assert_eq!(
            timestamp(Nanos::from_secs(86_400)),
            "1970-01-02T00:00:00.000Z"
        );
    }
}
