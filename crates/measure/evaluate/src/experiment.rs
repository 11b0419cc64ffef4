// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Makes all runs of an evaluation in order, and writes the document after each.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use rampart_domain::Start;
use rampart_host::{
    MachineRoot, StateDirectory, active_plan_of_this_boot, processor_times, read_figure_findings,
    read_machine, read_smi_count,
};
use rampart_load::LoadProgram;
use rampart_model::{
    CpuSet, DisturbanceKind, EVALUATION_SCHEMA_VERSION, Evaluation, EvaluationSettings,
    EvaluationState, Finding, LoadKind, Nanos, Run, SchedulingPolicy, Severity, TransferRecord,
};
use rampart_supervise::PlanFile;

use crate::active_plan;
use crate::calendar_time::{since_epoch, timestamp};
use crate::collect::RecordCollector;
use crate::crash_host;
use crate::document_updates::{DocumentUpdates, empty_record, id_in_variant};
use crate::domains::{Domains, NoisyGuests};
use crate::effects::switching::Switching;
use crate::effects::{AppliedToThisMachine, PlanSwitch};
use crate::failures::Failures;
use crate::kept_meters::{KeptMeters, have_own_cpus, meters_stay_up};
use crate::load_program;
use crate::measuring_costs::MeasuringCosts;
use crate::open_verdicts::{SHARE_OF_OPEN_ROUNDS, open_disturbances, open_entries, open_rounds};
use crate::progress_estimate::ProgressEstimate;
use crate::questions;
use crate::run::{RunMade, RunRequest, make_run};
use crate::schedule::more as more_runs;
use crate::steal;
use crate::stop_condition::{StopCondition, longest};
use crate::store::{ResultDirectory, ResultStream};
use crate::transfer::group::RunningGroup;
use crate::transfer::session::{self, Environment, PlannedRound, Repeats};
use crate::{EvaluateError, MatrixEntry, Proposal, Request, propose, schedule};

/// An entry whose runs failed this often is not tried again.
const FAILURES_BEFORE_GIVING_UP: usize = 6;

/// The environment of an evaluation: programs, output, options.
#[derive(Debug)]
pub struct Context<'a> {
    /// The static meter program.
    pub meter: &'a Path,
    /// The result directory to create.
    pub output: &'a Path,
    /// A stream that receives a copy of everything written to `output`.
    pub stream: Option<ResultStream>,
    /// Whether to make this machine's kernel panic at the end, to see which domains survive. Only
    /// for machines that another machine watches and that has received all results by then.
    pub crash_host: bool,
    /// Whether to explain the worst samples of each run from a kernel trace.
    pub explain: bool,
    /// The plan file of the request. A comparison applies and reverts it.
    pub plan: Option<&'a PlanFile>,
    /// The command line, for the document.
    pub command: Vec<String>,
    /// Version of the tool, for the document.
    pub tool_version: &'a str,
}

/// The progress of an evaluation.
#[derive(Debug, Clone)]
pub struct Progress {
    /// Index of the present run, from 0, and the number of runs.
    pub run: (u32, u32),
    /// `DOMAIN/METER/CONDITION` of the present run.
    pub record: String,
    /// Completed part of the evaluation, 0 to 1.
    pub done: f64,
    /// Estimated remaining time, from the runs made.
    pub remaining: Duration,
}

/// Receives the progress of an evaluation.
pub trait Observer {
    /// Called with the matrix before the first run.
    fn planned(&mut self, evaluation: &Evaluation);
    /// Called a few times a second.
    fn progress(&mut self, progress: &Progress);
    /// Called after each run.
    fn run_made(&mut self, record: &str, run: &Run);
    /// Called before open comparisons are measured on, until this time since the beginning.
    fn measured_on(&mut self, evaluation: &Evaluation, until: Nanos);
    /// Called after each round, in which one domain or none was disturbed and all were watched.
    fn round_made(&mut self, round: &TransferRecord);
}

/// Evaluates this machine: makes the runs of the proposed matrix, and writes the document before the
/// first and after each. Set `stop` to end early: what was measured is kept and judged.
///
/// # Errors
/// Returns an error if nothing can be measured or written. A failing run is part of the document
/// instead.
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
    // Check this first: another active plan changes the machine.
    let state = StateDirectory::standard();
    let active = active_plan_of_this_boot(&state)?;
    active_plan::refuse_comparison(active.as_ref(), request.plan.as_ref())?;
    let refused = own_real_time_refusal(request);
    let request = &Request {
        policy: refused
            .as_ref()
            .map(|_| SchedulingPolicy::Other)
            .or(request.policy),
        ..request.clone()
    };
    let Proposal {
        mut settings,
        noisy_guests,
        mut not_measured,
        plan_effects,
    } = propose(
        &active_plan::with_reachable_cpus(&machine, active.as_ref()),
        &availability,
        request,
    )?;
    settings.findings.extend(refused);
    active_plan::note_isolation(&mut settings, active.as_ref(), &state)?;
    let load_program = LoadProgram::find(context.meter);
    if makes_loads(&settings) {
        not_measured.extend(load_program::replacement(&machine, &load_program));
    }
    let directory = ResultDirectory::create(context.output)?.streamed(context.stream.clone());
    let scratch = tempfile::tempdir_in(context.output).map_err(|source| EvaluateError::Output {
        path: context.output.to_owned(),
        source,
    })?;

    rampart_meter::run_before_loads();
    let order = schedule(&settings);
    let rounds = settings
        .transfer
        .as_ref()
        .map(|transfer| session::order(transfer, settings.seed))
        .unwrap_or_default();
    let real_time = settings
        .domains
        .iter()
        .fold(CpuSet::new(), |all, domain| all.union(&domain.cpus))
        .difference(&settings.housekeeping);
    machine.findings = read_figure_findings(&root, &machine, &real_time);
    let emulated = machine.virtualisation.emulated;
    let mut estimate = ProgressEstimate::new(
        &settings,
        order.len(),
        &rounds,
        MeasuringCosts::of(emulated),
    );
    let now = timestamp(since_epoch());
    let mut evaluation = Evaluation {
        bench: rampart_model::Bench::Local,
        crash: None,
        plan_effects,
        transfers: Vec::new(),
        schema_version: EVALUATION_SCHEMA_VERSION,
        tool_version: context.tool_version.to_owned(),
        command: context.command.clone(),
        started: now.clone(),
        written: now,
        state: EvaluationState::Running,
        runs: (0, estimate.planned()),
        findings: Vec::new(),
        machine,
        settings,
        availability,
        records: Vec::new(),
        verdicts: Vec::new(),
        comparison: Default::default(),
        not_measured,
    };
    directory.write(&evaluation)?;
    observer.planned(&evaluation);

    let domains = evaluation.settings.domains.iter().chain(&noisy_guests);
    let settings = &evaluation.settings;
    let planned = settings.until_decided.unwrap_or(settings.total).into();
    let stop_condition = StopCondition::new(stop, longest(planned, domains, emulated));
    let environment = RunEnvironment {
        context,
        load_program: &load_program,
        directory: &directory,
        scratch: scratch.path(),
        stop_condition: &stop_condition,
    };
    let mut updates = DocumentUpdates::new(&evaluation);
    let mut collectors = BTreeMap::<MatrixEntry, RecordCollector>::new();
    let times_at_start = processor_times(&root);
    let mut noisy_guests = NoisyGuests::start(
        &noisy_guests,
        context.meter,
        &evaluation.settings.housekeeping,
        &mut evaluation.findings,
    );
    // Dropped after everything that runs in the plan's isolation.
    let switch = context.plan.map(|plan| AppliedToThisMachine {
        plan,
        tool_version: context.tool_version,
    });
    let switch = switch.as_ref().map(|switch| switch as &dyn PlanSwitch);
    let mut switching = Switching::new(switch, &evaluation.settings.variants);
    let mut kept_domains = Domains::new(&evaluation.settings.domains);
    // Dropped before the kept domains.
    let mut kept_meters = KeptMeters::default();
    let mut running = RunningGroup::default();
    let mut state_of_runs = RunState {
        estimate: &mut estimate,
        observer,
        noisy_guests: &mut noisy_guests,
        running: &mut running,
        kept_meters: &mut kept_meters,
        updates: &mut updates,
    };
    let began = stop_condition.elapsed();
    environment.runs(
        (0, &order),
        &mut evaluation,
        &mut collectors,
        (&mut kept_domains, &mut switching),
        &mut state_of_runs,
    )?;
    state_of_runs.kept_meters.end();
    let each_run = stop_condition.elapsed().saturating_sub(began).0 / order.len().max(1) as u64;
    evaluation
        .findings
        .extend(state_of_runs.kept_meters.findings());
    if !evaluation.settings.variants.is_empty() {
        kept_domains.renew(&evaluation.settings.domains);
        switching.revert();
        evaluation.findings.extend(switching.findings());
    }
    environment.rounds(
        &rounds,
        &mut evaluation,
        &collectors,
        &mut kept_domains,
        &mut state_of_runs,
    )?;
    environment.measure_on(
        Nanos(each_run),
        &mut evaluation,
        &mut collectors,
        (&mut kept_domains, &mut switching),
        &mut state_of_runs,
    )?;
    let ended_early = stop_condition.is_over();
    let crash = context.crash_host && !ended_early;
    if !crash || !have_own_cpus(&evaluation.settings.domains) {
        // The domains that are up are not those to watch.
        running.end();
        kept_domains.renew(&evaluation.settings.domains);
    }
    evaluation.findings.extend(running.findings());
    evaluation.findings.extend(noisy_guests.finish());
    evaluation.machine.system_management_interrupts.at_end = read_smi_count();
    evaluation.machine.virtualisation.steal = match (processor_times(&root), times_at_start) {
        (Some(end), Some(start)) => end.steal_since(&start),
        _ => None,
    };
    let steal = evaluation.machine.virtualisation.steal;
    let stolen = steal.and_then(|part| steal::finding("all CPUs together", part));
    evaluation.findings.extend(stolen);
    evaluation.findings.extend(stop_condition.finding());
    let made_all = evaluation.runs.0 == evaluation.runs.1;
    evaluation.state = if made_all && !ended_early {
        EvaluationState::Complete
    } else {
        EvaluationState::EndedEarly
    };
    updates.finish(&mut evaluation, &collectors, &running.failures);
    directory.write(&evaluation)?;
    if crash && evaluation.state == EvaluationState::Complete {
        let survived = crash_host::crash_host(
            &evaluation.settings,
            context.meter,
            &directory,
            (&kept_domains, &mut running),
            stop,
        );
        evaluation.findings.push(survived);
        directory.write(&evaluation)?;
    }
    Ok(evaluation)
}

/// Returns whether a condition or a disturbance of the plan has a load.
fn makes_loads(settings: &EvaluationSettings) -> bool {
    let groups = settings
        .transfer
        .iter()
        .flat_map(|transfer| &transfer.groups);
    settings
        .conditions
        .iter()
        .any(|condition| condition.load != LoadKind::Idle)
        || groups
            .flat_map(|group| &group.disturbances)
            .any(|disturbance| matches!(disturbance.kind, DisturbanceKind::Load(_)))
}

/// The state beside the runs and rounds: noisy guests, running domains.
struct RunState<'a> {
    estimate: &'a mut ProgressEstimate,
    observer: &'a mut dyn Observer,
    noisy_guests: &'a mut NoisyGuests,
    running: &'a mut RunningGroup,
    kept_meters: &'a mut KeptMeters,
    updates: &'a mut DocumentUpdates,
}

/// The environment of the runs and rounds.
struct RunEnvironment<'a> {
    context: &'a Context<'a>,
    load_program: &'a LoadProgram,
    directory: &'a ResultDirectory,
    scratch: &'a Path,
    stop_condition: &'a StopCondition<'a>,
}

impl RunEnvironment<'_> {
    /// Makes runs of the matrix; the first has this number.
    fn runs(
        &self,
        (first, order): (u32, &[MatrixEntry]),
        evaluation: &mut Evaluation,
        collectors: &mut BTreeMap<MatrixEntry, RecordCollector>,
        (kept_domains, switching): (&mut Domains, &mut Switching<'_>),
        state_of_runs: &mut RunState<'_>,
    ) -> Result<(), EvaluateError> {
        let RunState {
            estimate,
            observer,
            noisy_guests,
            running,
            kept_meters,
            updates,
        } = state_of_runs;
        let usable = evaluation.machine.topology.usable();
        // A guest that owns its CPUs may stay up from one of its runs to the next.
        let stay_up = have_own_cpus(&evaluation.settings.domains);
        let emulated = evaluation.machine.virtualisation.emulated;
        let keep = meters_stay_up(&evaluation.settings.domains, emulated);
        for (number, entry) in order.iter().enumerate() {
            if self.stop_condition.check() {
                break;
            }
            let number = first.saturating_add(u32::try_from(number).unwrap_or(u32::MAX));
            let collector = collectors
                .entry(*entry)
                .or_insert_with(|| RecordCollector::new(empty_record(evaluation, *entry)));
            let id = collector.record.id.clone();
            let failures = collector
                .record
                .runs
                .iter()
                .filter(|run| !run.invalid.is_empty())
                .count();
            let hopeless =
                failures >= FAILURES_BEFORE_GIVING_UP && failures == collector.record.runs.len();
            let name = collector.record.domain.clone();
            // A domain that fails without a part of the plan may start with it.
            let counted = id_in_variant(
                evaluation.settings.variants.get(entry.variant),
                name.clone(),
            );
            if hopeless || running.failures.left_out(&counted).is_some() {
                evaluation.runs.0 = number + 1;
                continue;
            }
            if switching.changes(entry.variant) {
                // The running domains have the isolation of the previous variant.
                kept_meters.end();
                kept_domains.renew_with_isolation(&evaluation.settings.domains, &|domain| {
                    switching.isolation(entry.variant, domain)
                });
            }
            let entered = switching.enter(entry.variant);
            evaluation.findings.extend(switching.findings());
            if switching.is_lost() {
                break;
            }
            if !entered {
                evaluation.runs.0 = number + 1;
                continue;
            }
            let others = usable.difference(&collector.record.settings.cpus);
            estimate.begin(number, &id);
            let mut tick = || {
                self.stop_condition.check();
                observer.progress(&estimate.progress());
            };
            tick();
            // A failed run ends all. Started in the order of the runs, each would move those before it.
            if keep && kept_meters.is_empty() && evaluation.settings.variants.is_empty() {
                let failures = &running.failures;
                self.start_meters(order, evaluation, kept_domains, failures, kept_meters);
            }
            let RunMade {
                run,
                collected,
                failed,
            } = make_run(
                RunRequest {
                    order: number,
                    record: &id,
                    domain: kept_domains.of(entry.domain),
                    index: entry.domain,
                    name: &name,
                    stay_up,
                    keep,
                    settings: &collector.record.settings,
                    condition: collector.record.condition,
                    others: &others,
                    housekeeping: &evaluation.settings.housekeeping,
                    meter: self.context.meter,
                    load_program: self.load_program,
                    scratch: self.scratch,
                    explain: self.context.explain,
                    unwanted_activity: !evaluation.settings.variants.is_empty(),
                    log: self.directory.histogram_log(number, &id)?,
                },
                kept_meters,
                &mut tick,
                self.stop_condition.flag(),
            );
            match &failed {
                Some(why) => running.failures.failed(&counted, why),
                None => running.failures.succeeded(&counted),
            }
            if self.stop_condition.check() && !run.invalid.is_empty() {
                // The run ended before its first sample and is not recorded.
                break;
            }
            observer.run_made(&id, &run);
            collector.add(run, collected);
            evaluation.findings.extend(kept_meters.findings());
            evaluation.findings.extend(noisy_guests.update());
            evaluation.runs.0 = number + 1;
            let directory = (self.directory, !keep);
            updates.between(evaluation, collectors, &running.failures, directory)?;
        }
        Ok(())
    }

    /// Starts the meters of the measured domains that are not left out, those on housekeeping CPUs last.
    fn start_meters(
        &self,
        order: &[MatrixEntry],
        evaluation: &Evaluation,
        domains: &Domains,
        failures: &Failures,
        meters: &mut KeptMeters,
    ) {
        let of = |entry: &MatrixEntry| &evaluation.settings.domains[entry.domain];
        let mut measured = order.to_vec();
        measured.retain(|entry| failures.left_out(&of(entry).name).is_none());
        // The first run of each domain.
        measured.sort_by_key(|entry| (of(entry).selection.kind.is_housekeeping(), entry.domain));
        measured.dedup_by_key(|entry| entry.domain);
        for entry in measured {
            let start = Start {
                meter: self.context.meter,
                settings: &empty_record(evaluation, entry).settings,
                housekeeping: &evaluation.settings.housekeeping,
                name: &of(&entry).name,
                stay_up: false,
            };
            meters.start(entry.domain, domains.of(entry.domain), &start);
        }
    }

    /// Measures on what is open, as long as there is time for runs that take as long as each did so far.
    /// Each look at what is open has its part of the risk ([`rampart_stats::Look`]). The last
    /// verdicts have that of the last look, except if all were decided before.
    fn measure_on(
        &self,
        each: Nanos,
        evaluation: &mut Evaluation,
        collectors: &mut BTreeMap<MatrixEntry, RecordCollector>,
        (kept_domains, switching): (&mut Domains, &mut Switching<'_>),
        state_of_runs: &mut RunState<'_>,
    ) -> Result<(), EvaluateError> {
        let settings = evaluation.settings.clone();
        let emulated = evaluation.machine.virtualisation.emulated;
        let looks = questions::looks(&settings);
        if !settings.variants.is_empty() || emulated || self.context.crash_host {
            evaluation.settings.look = looks;
            return Ok(());
        }
        for (look, until) in (2..).zip(questions::times_of_looks(&settings)) {
            let failures = &state_of_runs.running.failures;
            state_of_runs
                .updates
                .finish(evaluation, collectors, failures);
            let open = open_entries(evaluation, collectors);
            let disturbances = open_disturbances(&evaluation.verdicts);
            if open.is_empty() && disturbances.is_empty() || self.stop_condition.check() {
                return Ok(());
            }
            let seed = settings.seed.wrapping_add(look.into());
            let left = || until.saturating_sub(self.stop_condition.elapsed());
            let share = if open.is_empty() {
                1
            } else {
                SHARE_OF_OPEN_ROUNDS
            };
            let rounds = open_rounds(evaluation, disturbances, Nanos(left().0 / share), seed);
            if !rounds.is_empty() {
                state_of_runs.running.end();
                kept_domains.renew(&settings.domains);
                for round in &rounds {
                    let each = round.duration + MeasuringCosts::REAL.round_overhead;
                    state_of_runs.estimate.add(1, each);
                }
                evaluation.runs.1 = state_of_runs.estimate.planned();
                state_of_runs.observer.measured_on(evaluation, until);
                self.rounds(&rounds, evaluation, collectors, kept_domains, state_of_runs)?;
            }
            let times = left().0 / (each.0 * open.len() as u64).max(1);
            if times > 0 && !open.is_empty() {
                let times = u32::try_from(times).unwrap_or(u32::MAX);
                state_of_runs.running.end();
                kept_domains.renew(&settings.domains);
                let order = more_runs(&settings, &open, times, seed);
                // The runs of a turn have the same number in all records.
                let number = collectors.values().map(|one| one.next_number).max();
                for collector in collectors.values_mut() {
                    collector.next_number = number.unwrap_or_default();
                }
                state_of_runs.estimate.add(order.len(), each);
                evaluation.runs.1 = state_of_runs.estimate.planned();
                if rounds.is_empty() {
                    state_of_runs.observer.measured_on(evaluation, until);
                }
                let first = evaluation.runs.0;
                self.runs(
                    (first, &order),
                    evaluation,
                    collectors,
                    (&mut *kept_domains, &mut *switching),
                    state_of_runs,
                )?;
                state_of_runs.kept_meters.end();
                let findings = state_of_runs.kept_meters.findings();
                evaluation.findings.extend(findings);
            } else if rounds.is_empty() {
                continue;
            }
            evaluation.settings.look = look;
        }
        evaluation.settings.look = looks;
        Ok(())
    }

    /// Makes the rounds in which one domain is disturbed and the others are watched.
    fn rounds(
        &self,
        rounds: &[PlannedRound],
        evaluation: &mut Evaluation,
        collectors: &BTreeMap<MatrixEntry, RecordCollector>,
        kept_domains: &mut Domains,
        state_of_runs: &mut RunState<'_>,
    ) -> Result<(), EvaluateError> {
        let RunState {
            estimate,
            observer,
            noisy_guests,
            running,
            updates,
            ..
        } = state_of_runs;
        let settings = evaluation.settings.clone();
        let Some(transfer) = &settings.transfer else {
            return Ok(());
        };
        let own_cpus = have_own_cpus(&settings.domains);
        let runs = estimate.planned() - u32::try_from(rounds.len()).unwrap_or(u32::MAX);
        let before = u32::try_from(evaluation.transfers.len()).unwrap_or(u32::MAX);
        let mut group = None;
        let mut repeats = Repeats::default();
        let mut left: VecDeque<PlannedRound> = rounds.iter().cloned().collect();
        let mut order = 0;
        while let Some(round) = left.pop_front() {
            if self.stop_condition.check() {
                break;
            }
            if !own_cpus && group.replace(round.group) != Some(round.group) {
                // The domains of the previous group block the next one.
                running.end();
                kept_domains.renew(&settings.domains);
            }
            let environment = Environment {
                plan: transfer,
                domains: &settings.domains,
                kept_domains,
                meter: self.context.meter,
                load_program: self.load_program,
                housekeeping: &settings.housekeeping,
                scratch: self.scratch,
                seed: settings.seed,
                stay_up: true,
                emulated: evaluation.machine.virtualisation.emulated,
            };
            let id = round.id();
            estimate.begin(runs + order, &id);
            let mut tick = || {
                self.stop_condition.check();
                observer.progress(&estimate.progress());
            };
            tick();
            let made = environment.make(
                &round,
                before + order,
                &evaluation.transfers,
                running,
                &mut tick,
                self.stop_condition.flag(),
            );
            let Some(record) = made else {
                break;
            };
            observer.round_made(&record);
            let is_left_out = round
                .disturbance
                .as_ref()
                .is_some_and(|by| running.failures.left_out(&by.domain).is_some());
            let repeat = if is_left_out {
                // A repetition would be the same.
                None
            } else {
                repeats.after(&round, &record, rounds.iter().chain(&left))
            };
            if let Some(repeat) = repeat {
                left.push_front(repeat);
                estimate.repeat(runs + order);
                evaluation.runs.1 += 1;
            }
            evaluation.transfers.push(record);
            evaluation.findings.extend(running.findings());
            evaluation.findings.extend(noisy_guests.update());
            order += 1;
            evaluation.runs.0 = runs + order;
            let directory = (self.directory, true);
            updates.between(evaluation, collectors, &running.failures, directory)?;
        }
        Ok(())
    }
}

/// Returns why the meters use the time-sharing policy instead of a real-time policy: this process
/// may not set one, and the user did not request one.
fn own_real_time_refusal(request: &Request) -> Option<Finding> {
    if request.policy.is_some() {
        return None;
    }
    let thread = u32::try_from(rustix::thread::gettid().as_raw_nonzero().get()).ok()?;
    rampart_host::diagnose_real_time_policy(thread).map(|finding| Finding {
        severity: Severity::Warning,
        what: format!(
            "{}. The meters run under the time-sharing policy instead, whose latency differs from \
             that of real-time work",
            finding.what
        ),
        ..finding
    })
}
