// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The effects of a plan, measured on the simulated machine: which changes are active in which run, by the
//! machine's files, and that the machine is as before, also after a kill or an interrupt.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use rampart_model::{
    EffectOutcome, Evaluation, EvaluationState, IsolationMechanism, PlanVariant, Question, Run,
    VerdictOutcome,
};
use rampart_tests::disturbance::stop;
use rampart_tests::documents::assert_valid;
use rampart_tests::inside::{
    is_inside, machine_for_inside, report_completion, report_time, run_inside,
};
use rampart_tests::limited::{Limited as _, ended, finished, wait_until};
use rampart_tests::machine_state::{MachineState, read_trimmed as read};
use rampart_tests::programs::{directory, evaluation, exit_code, rampart, stderr, stdout};
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

/// Three changes, so that "all but one" differs from "only one".
const PLAN: &str = r#"
[machine]
housekeeping = "0,2"

[[domain]]
name = "press"
kind = "task"
cpus = "1"
policy = { fifo = 10 }

[host]
default = "skip"
swappiness = "apply"
dirty-limit = "apply"
"#;

/// The CPU of the plan's domain.
const CPU: usize = 1;
const PARTITION: &str = "/sys/fs/cgroup/rampart-press/cpuset.cpus.partition";
/// The knobs of the plan, with their files.
const KNOBS: [(&str, &str); 2] = [
    ("swappiness", "/proc/sys/vm/swappiness"),
    ("dirty-limit", "/proc/sys/vm/dirty_ratio"),
];
/// The shortest time for so many variants; it is planned for slower machines.
const SHORT: [&str; 3] = ["--ablate", "--for", "229s"];
/// Runs of three seconds, each with more than one block.
const LONGER: [&str; 2] = ["--for", "3m"];
/// Time limit for a state of an evaluation.
const LIMIT: Duration = Duration::from_secs(200);

#[test]
fn a_plan_is_switched_between_runs_and_always_reverted() {
    let Some(_machine) = machine_for_inside("effects of a plan") else {
        return;
    };
    run_inside(
        "effects::variants_are_applied_and_reverted",
        &["--cpus", "3", "--real-time-cpus", "none"],
        Duration::from_secs(700),
    );
}

/// Runs in the simulated machine only.
#[test]
fn variants_are_applied_and_reverted() {
    if !is_inside() {
        return;
    }
    let bench = Bench::create();
    bench.compare_variants();
    bench.kill_an_evaluation();
    bench.interrupt_an_evaluation();
    report_completion();
}

/// A directory for evaluations, and the state of the machine before them.
struct Bench {
    directory: tempfile::TempDir,
    before: MachineState,
    values: BTreeMap<&'static str, String>,
}

impl Bench {
    fn create() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        fs::write(directory.path().join("plan.toml"), PLAN).expect("plan");
        let value = |(name, file)| (name, read(file));
        Self {
            directory,
            before: MachineState::whole(),
            values: KNOBS.map(value).into(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn rampart(&self, arguments: &[&str]) -> Command {
        rampart(&self.path("state"), arguments)
    }

    /// Returns the command of an evaluation with this result directory.
    fn evaluate(&self, results: &Path, more: &[&str]) -> Command {
        let plan = self.path("plan.toml");
        let plan = plan.to_str().expect("a path");
        let results = results.to_str().expect("a path");
        let usual = ["evaluate", "--plan", plan, "--out", results];
        let usual = [&usual[..], &["--before-after", "--domains", "press"]].concat();
        let short = ["--loads", "idle", "--show-progress=none"];
        self.rampart(&[&usual[..], &short, more].concat())
    }

    fn compare_variants(&self) {
        let began = Instant::now();
        let results = self.path("results");
        let mut command = self.evaluate(&results, &SHORT);
        let over = AtomicBool::new(false);
        let (output, seen) = thread::scope(|scope| {
            let observer = scope.spawn(|| self.observe(&results, &over));
            // Reaching the limit panics; the observer has to end then, too.
            let limit = Duration::from_secs(500);
            let run = AssertUnwindSafe(|| command.finish_within(limit, Vec::new()));
            let output = catch_unwind(run);
            over.store(true, Ordering::Relaxed);
            (output, observer.join())
        });
        let output = output.expect("an end").expect("rampart starts");
        let text = stdout(&output, 0);
        report_time("the comparison", began);
        self.assert_restored("the comparison");
        let document = evaluation(&results);
        assert_eq!(document.state, EvaluationState::Complete);
        assert_valid(&document);
        assert_variants_alternate(&document);
        assert_variants_active(&document, &seen.expect("observations"));
        assert_verdicts(&document, &text);
    }

    /// Records the active changes in each run, by the name of its histogram log, and runs on the domain's CPU
    /// whenever the kernel permits it.
    fn observe(
        &self,
        results: &Path,
        over: &AtomicBool,
    ) -> BTreeMap<String, BTreeSet<Observation>> {
        let mut seen = BTreeMap::<String, BTreeSet<Observation>>::new();
        while !over.load(Ordering::Relaxed) {
            if let Some(log) = Log::newest(results) {
                let observation = self.observation();
                if log.is_open(results) {
                    seen.entry(log.name).or_default().insert(observation);
                }
            }
            // Rarely enough to add little work to an emulated machine.
            thread::sleep(Duration::from_millis(100));
        }
        seen
    }

    fn observation(&self) -> Observation {
        let can_enter = enter_domain_cpu();
        Observation {
            active: self.active(),
            can_enter,
        }
    }

    /// Returns the changes that are active now.
    fn active(&self) -> BTreeSet<&'static str> {
        let isolation = fs::read_to_string(PARTITION).is_ok_and(|text| text.trim() == "isolated");
        let knobs = KNOBS
            .into_iter()
            .filter(|(name, file)| read(file) != self.values[name]);
        let isolation = isolation.then_some("press").into_iter();
        isolation.chain(knobs.map(|(name, _)| name)).collect()
    }

    fn assert_restored(&self, after: &str) {
        assert_eq!(
            self.before.differences(&MachineState::whole()),
            [""; 0],
            "{after}"
        );
        let state = self.path("state");
        assert!(
            !state.join("plan.json").exists(),
            "{after}: a plan is active"
        );
        let journals = fs::read_dir(state.join("journal")).expect("journals");
        assert_eq!(journals.count(), 0, "{after}");
    }

    /// Starts an evaluation, and stops it (SIGSTOP) in a run with the whole plan after a measured batch, with at
    /// least `runs` runs before it.
    fn stopped_with_the_plan(&self, results: &Path, runs: u32) -> Child {
        let mut child = self
            .evaluate(results, &LONGER)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("rampart starts");
        let process = Pid::from_child(&child);
        let end = Instant::now() + LIMIT;
        loop {
            assert!(Instant::now() < end, "no run with the whole plan");
            if child.try_wait().expect("a child").is_some() {
                panic!("{:?}", finished(child));
            }
            let is_reached = || {
                let log = Log::newest(results).filter(|log| log.is_open(results));
                log.is_some_and(|log| {
                    log.is_of_the_plan() && log.number() >= runs && log.length > 0
                })
            };
            if is_reached() {
                stop(process);
                if is_reached() {
                    return child;
                }
                kill_process(process, Signal::CONT).expect("a signal");
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn kill_an_evaluation(&self) {
        let began = Instant::now();
        let results = self.path("killed");
        let mut child = self.stopped_with_the_plan(&results, 1);
        child.kill().expect("a signal");
        ended(&mut child);
        wait_until("the meter ends with the evaluation", || meters() == 0);
        assert_eq!(self.active(), all(), "the plan stays active");
        // Another evaluation is refused meanwhile.
        let refused = self.evaluate(&self.path("refused"), &LONGER).finish();
        let refused = refused.expect("rampart starts");
        assert_eq!(exit_code(&refused), 4);
        let refusal = stderr(&refused);
        assert!(refusal.contains("rampart release"), "{refusal}");
        self.measure_the_active_plan();
        // The document has what was measured.
        let document = evaluation(&results);
        assert_eq!(document.state, EvaluationState::Running);
        let (done, planned) = document.runs;
        assert!(done >= 1 && done < planned, "{done} of {planned}");
        let effects = document.plan_effects.as_ref().expect("effects");
        let others = effects.records.iter().map(|variant| &variant.record);
        let mut records = document.records.iter().chain(others);
        assert!(records.any(|record| record.exposure.samples > 0));
        let results = results.to_str().expect("a path");
        let report = self
            .rampart(&["report", results])
            .finish()
            .expect("rampart");
        let text = stdout(&report, 0);
        assert!(
            text.contains(&format!("{done} of {planned} runs")),
            "{text}"
        );

        let release = || self.rampart(&["release"]).finish().expect("rampart");
        let restored = stdout(&release(), 0);
        assert!(restored.contains("/proc/sys/vm/swappiness"), "{restored}");
        self.assert_restored("a kill and a release");
        assert!(stdout(&release(), 0).contains("Nothing to restore"));
        report_time("a kill", began);
    }

    /// Measures in the isolation of the active plan, whose CPU this process may not use.
    fn measure_the_active_plan(&self) {
        let results = self.path("active");
        let paths = [self.path("plan.toml"), results.clone()];
        let [plan, out] = paths.each_ref().map(|path| path.to_str().expect("a path"));
        let arguments = ["evaluate", "--plan", plan, "--out", out, "--for", "6s"];
        let domain = ["--domains", "press", "--loads", "idle"];
        let measured = self.rampart(&[&arguments[..], &domain].concat()).finish();
        let _ = stdout(&measured.expect("rampart starts"), 0);
        let document = evaluation(&results);
        let measured = document.settings.measured.as_ref();
        assert!(measured.is_some_and(|plan| plan.active), "{measured:?}");
        let run = &document.records[0].runs[0];
        let shield = run.shield.as_ref().expect("a shield");
        assert_eq!(
            shield.isolation,
            IsolationMechanism::IsolatedPartition,
            "{run:?}"
        );
        assert_eq!(self.active(), all(), "the plan stays active");
    }

    fn interrupt_an_evaluation(&self) {
        let began = Instant::now();
        let results = self.path("interrupted");
        let child = self.stopped_with_the_plan(&results, 0);
        assert_eq!(self.active(), all());
        let process = Pid::from_child(&child);
        for signal in [Signal::INT, Signal::CONT] {
            kill_process(process, signal).expect("a signal");
        }
        let output = finished(child);
        let _ = stdout(&output, 5);
        assert_eq!(evaluation(&results).state, EvaluationState::EndedEarly);
        self.assert_restored("an interrupt");
        report_time("an interrupt", began);
    }
}

/// An observation of the plan during a run.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Observation {
    active: BTreeSet<&'static str>,
    /// Whether the kernel let another program run on the domain's CPU.
    can_enter: bool,
}

/// Returns all changes of the plan.
fn all() -> BTreeSet<&'static str> {
    let knobs = KNOBS.into_iter().map(|(name, _)| name);
    knobs.chain(["press"]).collect()
}

/// Returns the changes that are active in a variant.
fn changes(variant: &PlanVariant) -> BTreeSet<&'static str> {
    let mut changes = all();
    match variant {
        PlanVariant::After => {}
        PlanVariant::Before => changes.clear(),
        PlanVariant::Without(change) => assert!(changes.remove(&*change.name), "{change:?}"),
    }
    changes
}

/// Works for a millisecond on the domain's CPU, and returns whether the kernel permits it.
fn enter_domain_cpu() -> bool {
    let mut affinity = CpuSet::new();
    affinity.set(CPU);
    let is_permitted = sched_setaffinity(None, &affinity).is_ok();
    let used = || {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
    };
    let enough = used() + Duration::from_millis(1);
    while is_permitted && used() < enough {}
    is_permitted
}

/// The histogram log of a run, created when the changes of its variant are active.
#[derive(Debug)]
struct Log {
    name: String,
    written: SystemTime,
    length: u64,
}

impl Log {
    fn newest(results: &Path) -> Option<Self> {
        let logs = fs::read_dir(results.join("histograms")).ok()?;
        let log = logs.flatten().max_by_key(|entry| entry.file_name())?;
        let metadata = log.metadata().ok()?;
        Some(Self {
            name: format!("histograms/{}", log.file_name().to_str()?),
            written: metadata.modified().ok()?,
            length: metadata.len(),
        })
    }

    /// Returns whether its run continues: the document is written before any change is reverted.
    fn is_open(&self, results: &Path) -> bool {
        let document = fs::metadata(results.join("evaluation.json"));
        let document = document.and_then(|metadata| metadata.modified());
        document.is_ok_and(|document| document < self.written)
    }

    fn parts(&self) -> (&str, &str) {
        let name = self.name.trim_start_matches("histograms/");
        name.split_once('-').expect("a number and a name")
    }

    fn number(&self) -> u32 {
        self.parts().0.parse().expect("a number")
    }

    fn is_of_the_plan(&self) -> bool {
        self.parts().1.starts_with("press-")
    }
}

/// Returns every run with its variant, in the order in time.
fn runs(document: &Evaluation) -> Vec<(PlanVariant, &Run)> {
    let effects = document.plan_effects.as_ref().expect("effects");
    let mut runs: Vec<(PlanVariant, &Run)> = Vec::new();
    for record in &document.records {
        runs.extend(record.runs.iter().map(|run| (PlanVariant::After, run)));
    }
    for record in &effects.records {
        let variant = || record.variant.clone();
        runs.extend(record.record.runs.iter().map(|run| (variant(), run)));
    }
    runs.sort_by_key(|(_, run)| run.order);
    runs
}

/// Checks that each repetition visits all variants, and every second one in the reverse order of the one before.
fn assert_variants_alternate(document: &Evaluation) {
    let variants = &document.settings.variants;
    let turns: Vec<PlanVariant> = runs(document)
        .into_iter()
        .map(|(variant, _)| variant)
        .collect();
    let each: u32 = variants.iter().map(|variant| variant.visits).sum();
    assert_eq!(turns.len(), (document.settings.repetitions * each) as usize);
    assert!(document.settings.repetitions >= 4, "{turns:?}");
    assert_eq!(variants.len(), 2 + all().len(), "{variants:?}");
    let repetitions: Vec<&[PlanVariant]> = turns.chunks(each as usize).collect();
    for repetition in &repetitions {
        for planned in variants {
            let visits = repetition
                .iter()
                .filter(|variant| **variant == planned.variant)
                .count();
            assert_eq!(visits, planned.visits as usize, "{turns:?}");
        }
    }
    for pair in repetitions.chunks_exact(2) {
        assert!(pair[0].iter().eq(pair[1].iter().rev()), "{turns:?}");
    }
}

/// Checks the active changes of each run, by the machine's files during the run and by its recorded shield.
fn assert_variants_active(document: &Evaluation, seen: &BTreeMap<String, BTreeSet<Observation>>) {
    let mut observed = BTreeSet::new();
    for (variant, run) in runs(document) {
        let active = changes(&variant);
        let has_isolation = active.contains("press");
        if let Some(seen) = seen.get(&run.histogram_log) {
            let can_enter = !has_isolation;
            assert_eq!(
                *seen,
                [Observation { active, can_enter }].into(),
                "{variant}: {run:?}"
            );
            observed.insert(variant.clone());
        }
        if run.invalid.is_empty() {
            let shield = run.shield.as_ref().expect("a shield");
            let isolation = match has_isolation {
                true => IsolationMechanism::IsolatedPartition,
                false => IsolationMechanism::AffinityOnly,
            };
            assert_eq!(shield.isolation, isolation, "{variant}: {run:?}");
        }
    }
    let variants = document
        .settings
        .variants
        .iter()
        .map(|plan| plan.variant.clone());
    assert_eq!(observed, variants.collect(), "each variant was observed");
}

/// Checks the verdicts of a short evaluation on an emulated machine.
fn assert_verdicts(document: &Evaluation, text: &str) {
    let effects = document.plan_effects.as_ref().expect("effects");
    assert_eq!(effects.effects.len(), document.settings.variants.len() - 1);
    for effect in &effects.effects {
        assert!(effect.statement.contains("emulated"), "{effect:?}");
        if effect.outcome == EffectOutcome::Inconclusive {
            let reasons = [
                "measure longer",
                "too few samples",
                "needs at least two runs",
            ];
            let is_given = |reason: &&str| effect.statement.contains(*reason);
            assert!(reasons.iter().any(is_given), "{effect:?}");
        }
        // The isolation keeps a program away; the knobs do not.
        let (with, without) = effect.unwanted_activity.expect("counted");
        assert_eq!(with.programs.0, 0, "{effect:?}");
        let has_isolation = changes(&effect.variant).contains("press");
        assert_eq!(without.programs.0 == 0, has_isolation, "{effect:?}");
    }
    let ablated = effects.ablation.iter().map(|effect| &*effect.change.name);
    assert_eq!(ablated.collect::<BTreeSet<_>>(), all());
    for verdict in &document.verdicts {
        if verdict.question == Question::Deadline {
            assert_eq!(verdict.outcome, VerdictOutcome::Inconclusive, "{verdict:?}");
        }
    }
    for part in [
        "Emulated machine",
        "Latency is not judged",
        "Effects of the plan",
        "Unwanted activity on the domains' CPUs",
        "Which changes of the plan mattered",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

/// Returns how many meters of the tested programs run.
fn meters() -> usize {
    let meter = directory().join("rampart-meter");
    let processes = fs::read_dir("/proc").expect("processes").flatten();
    processes
        .filter(|process| fs::read_link(process.path().join("exe")).is_ok_and(|exe| exe == meter))
        .count()
}
