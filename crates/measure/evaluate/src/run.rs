// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Makes one run: isolation, meter, load, measurement, cleanup. A fault is recorded as a reason why
//! the run does not count and never ends the evaluation.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rampart_domain::{Domain, DomainError, Running, Start};
use rampart_host::Shield;
use rampart_load::{Load, LoadProgram};
use rampart_model::{
    Condition, CpuSet, DetachedCounts, DomainKind, EffectiveSettings, Finding, LoadRecord,
    MeterEvent, MeterSettings, Nanos, Run, Severity, ThreadOutcome, plural,
};

use crate::collect::Collected;
use crate::explain::Explaining;
use crate::kept_meters::KeptMeters;
use crate::outside_influence::MeasuredDomain;
use crate::steal;
use crate::store::HistogramLog;
use crate::unwanted_activity;

/// Time that a meter may be silent after the end of its plan before it counts as lost.
const TIMEOUT: Duration = Duration::from_secs(20);
/// The same for a meter in a guest. In an emulated machine with a busy host it takes tens of
/// seconds to begin.
pub(crate) const GUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// Interval between calls of the observer during a run.
const TICK: Duration = Duration::from_millis(200);

/// Returns the limit for a kind of domain.
pub(crate) const fn timeout(kind: DomainKind) -> Duration {
    if kind.starts_first() {
        GUEST_TIMEOUT
    } else {
        TIMEOUT
    }
}

/// The parameters of a run.
pub(crate) struct RunRequest<'a> {
    pub(crate) order: u32,
    pub(crate) record: &'a str,
    pub(crate) domain: &'a dyn Domain,
    /// The domain's index in the settings.
    pub(crate) index: usize,
    /// The domain's name.
    pub(crate) name: &'a str,
    /// Whether a guest or cell may stay up for its next run.
    pub(crate) stay_up: bool,
    /// Whether meter and load stay up for the next run.
    pub(crate) keep: bool,
    pub(crate) settings: &'a MeterSettings,
    pub(crate) condition: Condition,
    pub(crate) others: &'a CpuSet,
    pub(crate) housekeeping: &'a CpuSet,
    pub(crate) meter: &'a Path,
    pub(crate) load_program: &'a LoadProgram,
    pub(crate) scratch: &'a Path,
    pub(crate) explain: bool,
    /// Whether to count unwanted activity on its CPUs.
    pub(crate) unwanted_activity: bool,
    pub(crate) log: (String, HistogramLog),
}

/// The collected messages of the meter.
#[derive(Default)]
struct MeterOutput {
    record: String,
    started: Option<(Nanos, Nanos)>,
    threads: Vec<ThreadOutcome>,
    findings: Vec<Finding>,
    collected: Collected,
}

/// The result of a run.
pub(crate) struct RunMade {
    pub(crate) run: Run,
    pub(crate) collected: Collected,
    /// Why the domain did not start, or was lost while it measured. `None` if it measured to the
    /// end, or if the run was stopped.
    pub(crate) failed: Option<Finding>,
}

/// Why the messages of a meter ended early.
#[derive(Debug)]
enum CutOff {
    /// The domain did not respond, was lost or refused the request.
    ByDomain(Finding),
    /// Its messages could not be stored.
    Here(Finding),
}

/// Makes one run. Calls `tick` a few times a second and once at the end; the code that sets `stop`
/// sets it from there.
pub(crate) fn make_run(
    request: RunRequest<'_>,
    kept: &mut KeptMeters,
    tick: &mut dyn FnMut(),
    stop: &AtomicBool,
) -> RunMade {
    let mut invalid = Vec::new();
    let problem = |what: String| Finding::new(Severity::Error, request.record, what);
    let mut received = MeterOutput {
        record: request.record.to_owned(),
        collected: Collected::with_slices(),
        ..MeterOutput::default()
    };
    let mut load_record = LoadRecord {
        ran: request.condition == Condition::IDLE,
        ..LoadRecord::idle()
    };
    let mut failed = None;
    let mut effective_settings = EffectiveSettings::default();
    let mut guest = None;
    let mut cell = None;
    let mut detached = None;
    let mut shield = None;
    let mut unwanted_activity = None;
    let RunRequest {
        log: (histogram_log, mut log),
        ..
    } = request;

    let start = Start {
        meter: request.meter,
        settings: request.settings,
        housekeeping: request.housekeeping,
        name: request.name,
        stay_up: request.stay_up,
    };
    let explaining = Explaining::start(
        request.explain,
        request.domain.selection().kind,
        request.settings,
        request.housekeeping,
    );
    match kept.take(request.index, request.domain, &start) {
        Err(error) => {
            let why = reason(request.record, &error);
            failed = Some(why.clone());
            invalid.push(why);
        }
        Ok(mut running) => {
            let load = match kept.take_load(request.condition, &request.settings.cpus) {
                Some(load) => Ok(load),
                None => {
                    let shields = kept.shields();
                    let shields: Vec<&Shield> =
                        running.shield().into_iter().chain(shields).collect();
                    Load::start(
                        request.load_program,
                        request.condition,
                        &request.settings.cpus,
                        request.others,
                        &shields,
                        request.scratch,
                    )
                }
            };
            match load {
                Err(error) => invalid.push(problem(error.to_string())),
                Ok(mut load) => {
                    load.share_with(&running.measuring_threads());
                    let domain = MeasuredDomain::of(running.as_ref(), &request.settings.cpus);
                    let mut outside_influence = kept.take_observer(request.index);
                    outside_influence.watch(vec![domain]);
                    let earlier = request
                        .unwanted_activity
                        .then(unwanted_activity::observe_now);
                    let result = read_messages(
                        running.as_mut(),
                        &mut load,
                        (request.settings, timeout(request.domain.selection().kind)),
                        &mut log,
                        &mut received,
                        &mut || {
                            outside_influence.look();
                            tick();
                        },
                        stop,
                    );
                    invalid.extend(outside_influence.findings());
                    if request.condition == Condition::IDLE {
                        received.findings.extend(outside_influence.others_finding());
                    }
                    if request.keep {
                        kept.keep_observer(request.index, outside_influence);
                    }
                    unwanted_activity = earlier.map(|earlier| {
                        let cpus = &request.settings.cpus;
                        unwanted_activity::between(
                            &earlier,
                            &unwanted_activity::observe_now(),
                            cpus,
                            std::process::id(),
                        )
                    });
                    effective_settings = running.effective_settings();
                    guest = running.guest();
                    cell = running.cell();
                    detached = running.detached();
                    load_record = load.record();
                    if request.keep && load_record.ran {
                        kept.keep_load(request.condition, &request.settings.cpus, load);
                    } else {
                        drop(load);
                    }
                    match result {
                        Ok(()) => {}
                        Err(CutOff::ByDomain(why)) => {
                            failed = Some(why.clone());
                            invalid.push(why);
                        }
                        Err(CutOff::Here(why)) => invalid.push(why),
                    }
                    invalid.extend(load_record.failures().map(problem));
                }
            }
            let finished = if request.keep && failed.is_none() && !stop.load(Ordering::Relaxed) {
                let report = running.isolation();
                kept.keep(request.index, running);
                Ok(report)
            } else {
                kept.end_with(running)
            };
            match finished {
                Ok(report) => shield = report,
                Err(error) => received.findings.push(
                    Finding::new(Severity::Warning, request.record, error.to_string())
                        .fix("rampart release"),
                ),
            }
        }
    }
    let (explained, notes) = explaining.finish(request.settings, &received.threads, guest.as_ref());
    received.findings.extend(notes);
    for thread in &received.threads {
        invalid.extend(thread_problems(request.record, thread));
        if thread.samples == 0 && request.settings.meter != rampart_model::MeterKind::Noise {
            invalid.push(problem(format!("CPU {}: there is no sample", thread.cpu)));
        }
        received.findings.extend(steal::of_thread(thread));
    }
    received
        .findings
        .extend(disturbed_core(request.record, detached));
    let (started_monotonic, offset) = received.started.unwrap_or_default();
    let run = Run {
        explained,
        guest,
        cell,
        detached,
        unwanted_activity,
        order: request.order,
        started: crate::calendar_time::timestamp(started_monotonic + offset),
        started_monotonic,
        duration: received
            .threads
            .iter()
            .map(|thread| thread.duration)
            .max()
            .unwrap_or_default(),
        threads: received.threads,
        load: load_record,
        shield,
        effective_settings,
        histogram_log,
        invalid,
        findings: received.findings,
    };
    // A program that was ended by the same Ctrl-C as this process did not fail.
    tick();
    RunMade {
        run,
        collected: received.collected,
        failed: failed.filter(|_| !stop.load(Ordering::Relaxed)),
    }
}

/// Returns a warning if something else than the driver interrupted a CPU that was taken from Linux.
fn disturbed_core(record: &str, counts: Option<DetachedCounts>) -> Option<Finding> {
    let interrupts = counts.filter(|counts| counts.interrupts > 0)?.interrupts;
    Some(
        Finding::new(
            Severity::Warning,
            record,
            "the CPU was interrupted although Linux does not have it",
        )
        .values(plural(interrupts as usize, "interrupt"), "none")
        .fix(
            "look in the kernel log for machine checks and other interrupts that cannot be masked",
        ),
    )
}

/// Reads the messages of the meter to their end.
fn read_messages(
    running: &mut dyn Running,
    load: &mut Load,
    (plan, timeout): (&MeterSettings, Duration),
    log: &mut HistogramLog,
    received: &mut MeterOutput,
    tick: &mut dyn FnMut(),
    stop: &AtomicBool,
) -> Result<(), CutOff> {
    let record = received.record.clone();
    let failed = |error: DomainError| CutOff::ByDomain(reason(&record, &error));
    running.go().map_err(failed)?;
    let deadline = Instant::now() + Duration::from(plan.duration + plan.warm_up) + timeout;
    let problem = |what: String| Finding::new(Severity::Error, record.as_str(), what);
    let mut stopped = false;
    loop {
        if stop.load(Ordering::Relaxed) && !stopped {
            running.stop();
            stopped = true;
        }
        match running.next_event(TICK).map_err(failed)? {
            Some(MeterEvent::Started {
                at,
                realtime_offset,
            }) => received.started = Some((at, realtime_offset)),
            Some(MeterEvent::Batch(batch)) => {
                log.append(
                    &batch,
                    received
                        .started
                        .map_or((batch.at, Nanos::ZERO), |(at, offset)| (at, at + offset)),
                )
                .map_err(|error| {
                    let what = format!("the histogram log cannot be written: {error}");
                    CutOff::Here(problem(what))
                })?;
                received.collected.add(&batch);
            }
            Some(MeterEvent::Finished { threads, findings }) => {
                received.threads = threads;
                received.findings = findings;
                return Ok(());
            }
            Some(MeterEvent::Refused(refusal)) => {
                return Err(CutOff::ByDomain(refusal.finding));
            }
            Some(MeterEvent::Ready(_)) | None => {}
        }
        if Instant::now() > deadline {
            return Err(CutOff::ByDomain(problem(format!(
                "the meter did not end within {} s after its time and was killed",
                timeout.as_secs()
            ))));
        }
        // Stopping the load reports whether it died.
        let _ = load.alive();
        tick();
    }
}

/// Returns a failure of the domain as a reason, with its own location and fix if it has them.
pub(crate) fn reason(location: &str, error: &DomainError) -> Finding {
    match error {
        DomainError::Refused(refusal) => refusal.finding.clone(),
        DomainError::Unavailable(finding) => finding.clone(),
        other => Finding::new(Severity::Error, location, other.to_string()),
    }
}

/// Returns the problems that make a thread's samples worthless, whatever their values.
pub(crate) fn thread_problems(location: &str, thread: &ThreadOutcome) -> Vec<Finding> {
    let problem = |what: String| Finding::new(Severity::Error, location, what);
    let mut problems = Vec::new();
    if thread.lost > 0 {
        problems.push(problem(format!(
            "CPU {}: {} samples were lost because the reader was starved",
            thread.cpu, thread.lost
        )));
    }
    if thread.counters.continued {
        let what = format!(
            "CPU {}: the meter was stopped by a signal (SIGSTOP) and continued",
            thread.cpu
        );
        problems.push(problem(what).fix("find the program that sent the signal"));
    }
    if thread.placement.affinity.len() == 1 && thread.placement.migrations > 0 {
        problems.push(problem(format!(
            "CPU {}: the thread was moved {} times",
            thread.cpu, thread.placement.migrations
        )));
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;
    use rampart_model::{DomainSelection, Machine, MeterKind, Refusal, RefusalKind, ShieldReport};

    use crate::stop_condition::StopCondition;

    /// The fault of a simulated domain.
    #[derive(Debug, Clone, Copy, PartialEq)]
    enum Fault {
        DoesNotStart,
        EndsEarly,
        Refuses,
        SaysNothing,
    }

    fn refusal() -> Refusal {
        Refusal {
            kind: RefusalKind::BadPlan,
            finding: Finding::new(Severity::Error, "vm", "it refused"),
        }
    }

    /// A domain with a fault. If it has a flag, its calls set it to end the evaluation.
    #[derive(Debug)]
    struct Faulty<'a>(Fault, Option<&'a AtomicBool>);

    impl Domain for Faulty<'_> {
        fn selection(&self) -> DomainSelection {
            DomainSelection::of(DomainKind::Task)
        }

        fn availability(&self, _: &Machine) -> rampart_model::Availability {
            unreachable!("not called")
        }

        fn start(&self, _: &Start<'_>) -> Result<Box<dyn Running>, DomainError> {
            if let Some(asked) = self.1 {
                asked.store(true, Ordering::Relaxed);
            }
            match self.0 {
                Fault::DoesNotStart => Err(DomainError::Refused(refusal())),
                fault => Ok(Box::new(Up(fault))),
            }
        }
    }

    #[derive(Debug)]
    struct Up(Fault);

    impl Running for Up {
        fn go(&mut self) -> Result<(), DomainError> {
            Ok(())
        }

        fn next_event(&mut self, _: Duration) -> Result<Option<MeterEvent>, DomainError> {
            match self.0 {
                Fault::EndsEarly => Err(DomainError::Unavailable(refusal().finding)),
                Fault::Refuses => Ok(Some(MeterEvent::Refused(refusal()))),
                _ => Ok(None),
            }
        }

        fn stop(&mut self) {}

        fn rearm(&mut self, _: &MeterSettings) -> Result<bool, DomainError> {
            Ok(false)
        }

        fn shield(&self) -> Option<&Shield> {
            None
        }

        fn effective_settings(&self) -> EffectiveSettings {
            EffectiveSettings::default()
        }

        fn isolation(&self) -> Option<ShieldReport> {
            None
        }

        fn finish(self: Box<Self>) -> Result<Option<ShieldReport>, DomainError> {
            Ok(None)
        }
    }

    fn no_program() -> LoadProgram {
        LoadProgram::StressNg {
            path: "/nowhere".into(),
            version: String::new(),
        }
    }

    fn plan() -> MeterSettings {
        MeterSettings {
            duration: Nanos::ZERO,
            warm_up: Nanos::ZERO,
            ..MeterSettings::new(MeterKind::Wakeup, CpuSet::new())
        }
    }

    fn made(domain: &dyn Domain, stop_condition: &StopCondition<'_>) -> RunMade {
        let directory = tempfile::tempdir().expect("a directory");
        let none = CpuSet::new();
        let log = HistogramLog::create(&directory.path().join("log")).expect("a log");
        let request = RunRequest {
            order: 0,
            record: "vm/wakeup/idle",
            domain,
            index: 0,
            name: "vm",
            stay_up: false,
            keep: false,
            settings: &plan(),
            condition: Condition::IDLE,
            others: &none,
            housekeeping: &none,
            meter: Path::new("/nowhere"),
            load_program: &no_program(),
            scratch: directory.path(),
            explain: false,
            unwanted_activity: false,
            log: (String::new(), log),
        };
        let mut look = || {
            stop_condition.check();
        };
        let mut kept = KeptMeters::default();
        make_run(request, &mut kept, &mut look, stop_condition.flag())
    }

    /// A guest that is lost after its start fails like one that does not start.
    #[test]
    fn a_domain_that_is_lost_while_measuring_has_failed() {
        let asked = AtomicBool::new(false);
        for fault in [Fault::DoesNotStart, Fault::EndsEarly, Fault::Refuses] {
            let stop_condition = StopCondition::new(&asked, Duration::from_secs(600));
            let made = made(&Faulty(fault, None), &stop_condition);
            let why = made.failed.expect("a failure");
            assert_eq!(why.what, "it refused", "{fault:?}");
            assert_eq!(made.run.invalid, [why]);
        }
    }

    /// Ctrl-C also reaches the programs of a domain, between two checks of the flag.
    #[test]
    fn a_domain_that_ends_with_the_evaluation_has_not_failed() {
        for fault in [Fault::DoesNotStart, Fault::EndsEarly] {
            let asked = AtomicBool::new(false);
            let stop_condition = StopCondition::new(&asked, Duration::from_secs(600));
            let made = made(&Faulty(fault, Some(&asked)), &stop_condition);
            assert_eq!(made.failed, None, "{fault:?}");
            assert!(!made.run.invalid.is_empty());
        }
    }

    #[test]
    fn a_silent_domain_has_failed() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut log = HistogramLog::create(&directory.path().join("log")).expect("a log");
        let none = CpuSet::new();
        let program = no_program();
        let load = Load::start(
            &program,
            Condition::IDLE,
            &none,
            &none,
            &[],
            directory.path(),
        );
        let cut = read_messages(
            &mut Up(Fault::SaysNothing),
            &mut load.expect("no load"),
            (&plan(), Duration::ZERO),
            &mut log,
            &mut MeterOutput::default(),
            &mut || {},
            &AtomicBool::new(false),
        );
        let Err(CutOff::ByDomain(why)) = cut else {
            panic!("{cut:?}");
        };
        assert!(why.what.contains("did not end within"), "{why}");
    }
}
