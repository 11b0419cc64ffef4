// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a plan changes, measured on the simulated machine: which part of the plan stands in which run,
//! by the machine's own files, and that the machine is as before, whatever ends the evaluation.

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
use rampart_tests::inside::{is_inside, report_completion, run_inside};
use rampart_tests::limited::{Limited as _, ended, finished};
use rampart_tests::machine_state::MachineState;
use rampart_tests::programs::{
    directory, evaluation, exit_code, machine, rampart, starts_inside, stdout,
};
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

/// Three changes, so that all but one is another plan than one alone.
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
/// The knobs of the plan, each with its file.
const KNOBS: [(&str, &str); 2] = [
    ("swappiness", "/proc/sys/vm/swappiness"),
    ("dirty-limit", "/proc/sys/vm/dirty_ratio"),
];
/// As short as so many legs may be compared: so it is planned, for machines that are slower than this.
const SHORT: [&str; 3] = ["--ablate", "--for", "504s"];
/// Runs of three seconds, each with more than one block.
const LONGER: [&str; 2] = ["--for", "3m"];
/// How long an evaluation may take to come so far.
const PATIENCE: Duration = Duration::from_secs(200);

#[test]
fn a_plan_is_switched_between_runs_and_always_reverted() {
    let name = "a_plan_is_switched_between_runs";
    let Some(_machine) = machine(name, 2) else {
        return;
    };
    if !starts_inside(name) {
        return;
    }
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
    let location = Place::make();
    location.measures_with_and_without();
    location.is_killed();
    location.is_interrupted();
    report_completion();
}

/// Where evaluations are made, and what the machine was before any of them.
struct Place {
    directory: tempfile::TempDir,
    before: MachineState,
    values: BTreeMap<&'static str, String>,
}

impl Place {
    fn make() -> Self {
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

    fn call(&self, arguments: &[&str]) -> Command {
        rampart(&self.path("state"), arguments)
    }

    /// An evaluation whose results go there.
    fn evaluate(&self, results: &Path, more: &[&str]) -> Command {
        let plan = self.path("plan.toml");
        let plan = plan.to_str().expect("a path");
        let results = results.to_str().expect("a path");
        let usual = ["evaluate", "--plan", plan, "--out", results];
        let usual = [&usual[..], &["--before-after", "--domains", "press"]].concat();
        let short = ["--loads", "idle", "--show-progress=none"];
        self.call(&[&usual[..], &short, more].concat())
    }

    fn measures_with_and_without(&self) {
        let began = Instant::now();
        let results = self.path("results");
        let mut command = self.evaluate(&results, &SHORT);
        let over = AtomicBool::new(false);
        let (output, seen) = thread::scope(|scope| {
            let looking = scope.spawn(|| self.look(&results, &over));
            // It panics where it waits in vain, and who looks is to end all the same.
            let limit = Duration::from_secs(500);
            let run = AssertUnwindSafe(|| command.finish_within(limit, Vec::new()));
            let output = catch_unwind(run);
            over.store(true, Ordering::Relaxed);
            (output, looking.join())
        });
        let output = output.expect("it ends").expect("rampart starts");
        let text = stdout(&output, 0);
        told("the whole comparison", began);
        self.is_as_before("the comparison");
        let document = evaluation(&results);
        assert_eq!(document.state, EvaluationState::Complete);
        assert_valid(&document);
        told("the document is valid", began);
        legs_alternate(&document);
        each_leg_is_what_it_says(&document, &seen.expect("it looks"));
        verdicts_say_what_they_can(&document, &text);
        told("everything of it", began);
    }

    /// Looks which part of the plan stands in which run, by the name of its histogram log, and goes to
    /// the domain's CPU whenever the kernel lets it.
    fn look(&self, results: &Path, over: &AtomicBool) -> BTreeMap<String, BTreeSet<Seen>> {
        let mut seen = BTreeMap::<String, BTreeSet<Seen>>::new();
        while !over.load(Ordering::Relaxed) {
            if let Some(log) = Log::newest(results) {
                let what = self.seen();
                if log.is_open(results) {
                    seen.entry(log.name).or_default().insert(what);
                }
            }
            // Seldom enough to be little of the work of an emulated machine.
            thread::sleep(Duration::from_millis(100));
        }
        seen
    }

    fn seen(&self) -> Seen {
        let intrudes = intrude();
        Seen {
            stands: self.stands(),
            intrudes,
        }
    }

    /// The changes that stand now.
    fn stands(&self) -> BTreeSet<&'static str> {
        let isolation = fs::read_to_string(PARTITION).is_ok_and(|text| text.trim() == "isolated");
        let knobs = KNOBS
            .into_iter()
            .filter(|(name, file)| read(file) != self.values[name]);
        let isolation = isolation.then_some("press").into_iter();
        isolation.chain(knobs.map(|(name, _)| name)).collect()
    }

    fn is_as_before(&self, what: &str) {
        assert_eq!(
            self.before.differences(&MachineState::whole()),
            [""; 0],
            "{what}"
        );
        let state = self.path("state");
        assert!(
            !state.join("plan.json").exists(),
            "{what}: no plan is active"
        );
        let journals = fs::read_dir(state.join("journal")).expect("journals");
        assert_eq!(journals.count(), 0, "{what}");
    }

    /// Begins an evaluation and stops it where it stands: in a run in all of the plan with at least a
    /// block measured, and so many runs before it.
    fn stopped_in_the_plan(&self, results: &Path, runs: u32) -> Child {
        let mut child = self
            .evaluate(results, &LONGER)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("rampart starts");
        let process = Pid::from_child(&child);
        let end = Instant::now() + PATIENCE;
        loop {
            assert!(Instant::now() < end, "it comes to a run in the plan");
            if child.try_wait().expect("a child").is_some() {
                panic!("{:?}", finished(child));
            }
            let is_there = || {
                let log = Log::newest(results).filter(|log| log.is_open(results));
                log.is_some_and(|log| {
                    log.is_of_the_plan() && log.number() >= runs && log.length > 0
                })
            };
            if is_there() {
                stop(process);
                if is_there() {
                    return child;
                }
                kill_process(process, Signal::CONT).expect("a signal");
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn is_killed(&self) {
        let began = Instant::now();
        let results = self.path("killed");
        let mut child = self.stopped_in_the_plan(&results, 1);
        child.kill().expect("a signal");
        ended(&mut child);
        let end = Instant::now() + PATIENCE;
        while meters() > 0 {
            assert!(Instant::now() < end, "its meter ends with it");
            thread::sleep(Duration::from_millis(50));
        }
        assert_eq!(self.stands(), all(), "nobody takes it back");
        // None begins while it stands.
        let refused = self.evaluate(&self.path("refused"), &LONGER).finish();
        let refused = refused.expect("rampart starts");
        assert_eq!(exit_code(&refused), 4);
        let refusal = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(refusal.contains("rampart release"), "{refusal}");
        self.is_measured_where_it_stands();
        // What was measured can be read.
        let document = evaluation(&results);
        assert_eq!(document.state, EvaluationState::Running);
        let (made, planned) = document.runs;
        assert!(made >= 1 && made < planned, "{made} of {planned}");
        let effects = document.plan_effects.as_ref().expect("effects");
        let others = effects.records.iter().map(|variant| &variant.record);
        let mut records = document.records.iter().chain(others);
        assert!(records.any(|record| record.exposure.samples > 0));
        let results = results.to_str().expect("a path");
        let report = self.call(&["report", results]).finish().expect("rampart");
        let text = stdout(&report, 0);
        assert!(
            text.contains(&format!("{made} of {planned} runs")),
            "{text}"
        );

        let release = || self.call(&["release"]).finish().expect("rampart");
        let restored = stdout(&release(), 0);
        assert!(restored.contains("/proc/sys/vm/swappiness"), "{restored}");
        self.is_as_before("a kill and a release");
        assert!(stdout(&release(), 0).contains("Nothing to restore"));
        told("a kill", began);
    }

    /// Behind its own wall, whose CPU is not of this process any more.
    fn is_measured_where_it_stands(&self) {
        let results = self.path("standing");
        let paths = [self.path("plan.toml"), results.clone()];
        let [plan, out] = paths.each_ref().map(|path| path.to_str().expect("a path"));
        let arguments = ["evaluate", "--plan", plan, "--out", out, "--for", "6s"];
        let domain = ["--domains", "press", "--loads", "idle"];
        let measured = self.call(&[&arguments[..], &domain].concat()).finish();
        let _ = stdout(&measured.expect("rampart starts"), 0);
        let document = evaluation(&results);
        let measured = document.plan.measured.as_ref();
        assert!(measured.is_some_and(|plan| plan.stands), "{measured:?}");
        let run = &document.records[0].runs[0];
        let shield = run.shield.as_ref().expect("its wall");
        assert_eq!(
            shield.isolation,
            IsolationMechanism::IsolatedPartition,
            "{run:?}"
        );
        assert_eq!(self.stands(), all(), "it is left as it stands");
    }

    fn is_interrupted(&self) {
        let began = Instant::now();
        let results = self.path("interrupted");
        let child = self.stopped_in_the_plan(&results, 0);
        assert_eq!(self.stands(), all());
        let process = Pid::from_child(&child);
        for signal in [Signal::INT, Signal::CONT] {
            kill_process(process, signal).expect("a signal");
        }
        let output = finished(child);
        let _ = stdout(&output, 5);
        assert_eq!(evaluation(&results).state, EvaluationState::EndedEarly);
        self.is_as_before("an interrupt");
        told("an interrupt", began);
    }
}

/// What is seen of a plan at a moment.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Seen {
    stands: BTreeSet<&'static str>,
    /// Whether a program from elsewhere came to the domain's CPU.
    intrudes: bool,
}

/// All changes of the plan.
fn all() -> BTreeSet<&'static str> {
    let knobs = KNOBS.into_iter().map(|(name, _)| name);
    knobs.chain(["press"]).collect()
}

/// The changes that stand in a leg.
fn changes(variant: &PlanVariant) -> BTreeSet<&'static str> {
    let mut changes = all();
    match variant {
        PlanVariant::After => {}
        PlanVariant::Before => changes.clear(),
        PlanVariant::Without(change) => assert!(changes.remove(&*change.name), "{change:?}"),
    }
    changes
}

/// Works for a moment on the domain's CPU; whether the kernel lets this thread go there.
fn intrude() -> bool {
    let mut there = CpuSet::new();
    there.set(CPU);
    let goes = sched_setaffinity(None, &there).is_ok();
    let used = || {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
    };
    let enough = used() + Duration::from_millis(1);
    while goes && used() < enough {}
    goes
}

/// The histogram log of a run, made when what its leg has of the plan stands.
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
        let about = log.metadata().ok()?;
        Some(Self {
            name: format!("histograms/{}", log.file_name().to_str()?),
            written: about.modified().ok()?,
            length: about.len(),
        })
    }

    /// Whether its run is being made: the document is written before anything is taken back.
    fn is_open(&self, results: &Path) -> bool {
        let document = fs::metadata(results.join("evaluation.json"));
        let document = document.and_then(|about| about.modified());
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

/// Every run with its leg, in the order in which they were made.
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

/// Each repetition goes through all legs, and every second one goes back the way of the one before.
fn legs_alternate(document: &Evaluation) {
    let variants = &document.plan.variants;
    let turns: Vec<PlanVariant> = runs(document)
        .into_iter()
        .map(|(variant, _)| variant)
        .collect();
    let each: u32 = variants.iter().map(|variant| variant.visits).sum();
    assert_eq!(turns.len(), (document.plan.repetitions * each) as usize);
    assert!(document.plan.repetitions >= 4, "{turns:?}");
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

/// By the machine's files while it ran, and by what each run was told of its wall.
fn each_leg_is_what_it_says(document: &Evaluation, seen: &BTreeMap<String, BTreeSet<Seen>>) {
    let mut looked_at = BTreeSet::new();
    for (variant, run) in runs(document) {
        let stands = changes(&variant);
        let has_isolation = stands.contains("press");
        if let Some(seen) = seen.get(&run.histogram_log) {
            let intrudes = !has_isolation;
            assert_eq!(
                *seen,
                [Seen { stands, intrudes }].into(),
                "{variant}: {run:?}"
            );
            looked_at.insert(variant.clone());
        }
        if run.invalid.is_empty() {
            let shield = run.shield.as_ref().expect("what stood around it");
            let isolation = match has_isolation {
                true => IsolationMechanism::IsolatedPartition,
                false => IsolationMechanism::AffinityOnly,
            };
            assert_eq!(shield.isolation, isolation, "{variant}: {run:?}");
        }
    }
    let variants = document
        .plan
        .variants
        .iter()
        .map(|plan| plan.variant.clone());
    assert_eq!(looked_at, variants.collect(), "each leg was looked at");
}

/// On an emulated machine, after a short time.
fn verdicts_say_what_they_can(document: &Evaluation, text: &str) {
    let effects = document.plan_effects.as_ref().expect("effects");
    assert_eq!(effects.effects.len(), document.plan.variants.len() - 1);
    for effect in &effects.effects {
        assert!(effect.statement.contains("emulated"), "{effect:?}");
        if effect.outcome == EffectOutcome::Inconclusive {
            let why = ["measure longer", "too few samples", "one run does not show"];
            let says = |why: &&str| effect.statement.contains(*why);
            assert!(why.iter().any(says), "{effect:?}");
        }
        // The wall keeps a program away, and neither knob does.
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
        "What the plan changed",
        "Unwanted activity on the domains' CPUs",
        "Which changes of the plan mattered",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

/// The meters of the programs that are tested.
fn meters() -> usize {
    let meter = directory().join("rampart-meter");
    let processes = fs::read_dir("/proc").expect("processes").flatten();
    processes
        .filter(|process| fs::read_link(process.path().join("exe")).is_ok_and(|exe| exe == meter))
        .count()
}

fn read(path: &str) -> String {
    fs::read_to_string(path)
        .unwrap_or_else(|error| panic!("{path}: {error}"))
        .trim()
        .to_owned()
}

#[expect(clippy::print_stdout, reason = "where the time of this test goes")]
fn told(what: &str, began: Instant) {
    println!("{:6.1} s  {what}", began.elapsed().as_secs_f64());
}
