// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rampart evaluate` on this machine: completed, interrupted, killed, without root, with one CPU.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::serialization::Deserializer;
use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
use rampart_model::{
    Evaluation, EvaluationPart, EvaluationState, Nanos, Question, SchedulingPolicy, VerdictFigures,
    VerdictOutcome,
};
use rampart_tests::documents::assert_valid;
use rampart_tests::limited::{self, Limited as _, ended};
use rampart_tests::machine_state::MachineState;
use rampart_tests::processes::send;
use rampart_tests::programs::{
    Scratch, copy_programs_for_everyone, directory, evaluation, exit_code, last_cpu, rampart,
    stderr, stdout,
};
use rustix::process::Signal;

use crate::measuring::measuring;
use crate::preferred::machine;

fn evaluate(state: &Path, results: &Path, options: &[&str]) -> Output {
    let results = results.to_str().expect("a path in UTF-8");
    let arguments = [
        &["evaluate", "--out", results, "--show-progress", "lines"],
        options,
    ]
    .concat();
    rampart(state, &arguments).finish().expect("rampart starts")
}

fn report(state: &Path, results: &Path, format: &str) -> String {
    let results = results.to_str().expect("a path in UTF-8");
    let output = rampart(state, &["report", results, "--format", format])
        .finish()
        .expect("rampart starts");
    stdout(&output, 0)
}

/// Every figure has its exposure, in the document and in every rendering.
#[test]
fn the_standard_matrix_is_measured_and_rendered() {
    let Some(_machine) = machine("the_standard_matrix_is_measured_and_rendered", 2) else {
        return;
    };
    let Scratch {
        directory: _directory,
        state,
        results,
    } = Scratch::create();
    let before = MachineState::take();
    // Two short runs of each record.
    let output = evaluate(&state, &results, &["--for", "7s"]);
    let text = stdout(&output, 0);
    assert_eq!(
        before.differences(&MachineState::take()),
        Vec::<String>::new()
    );

    let evaluation = evaluation(&results);
    assert_eq!(evaluation.state, EvaluationState::Complete);
    assert_eq!(evaluation.runs.0, evaluation.runs.1);
    let measured: BTreeSet<String> = evaluation
        .records
        .iter()
        .map(|record| record.id.clone())
        .collect();
    for domain in ["host", "task", "container"] {
        for condition in ["idle", "cpu@others", "cache@others"] {
            assert!(
                measured.contains(&format!("{domain}/wakeup/{condition}")),
                "{measured:?}"
            );
        }
    }
    check_records(&evaluation, &results);
    check_verdicts(&evaluation);
    assert_valid(&evaluation);

    for domain in ["host", "task", "container"] {
        assert!(text.contains(domain), "{text}");
    }
    assert!(results.join("report.html").is_file());
    let page = fs::read_to_string(results.join("report.html")).expect("page");
    let rendered_again = report(&state, &results, "html");
    assert!(
        page.trim_end() == rendered_again.trim_end(),
        "the page differs when it is rendered again"
    );
    let again: Evaluation = serde_json::from_str(&report(&state, &results, "json")).expect("json");
    assert_eq!(again, evaluation);
    let junit = report(&state, &results, "junit");
    let cases = junit.matches("<testcase").count();
    assert!(cases >= evaluation.verdicts.len(), "{junit}");
}

fn check_records(evaluation: &Evaluation, results: &Path) {
    for record in &evaluation.records {
        let id = &record.id;
        assert!(
            record.exposure.samples > 0 && record.exposure.duration > Nanos::ZERO,
            "{id}"
        );
        let seen: u64 = record
            .cpus
            .iter()
            .map(|cpu| cpu.series[0].seen.samples)
            .sum();
        assert_eq!(
            seen, record.exposure.samples,
            "{id}: distribution and exposure differ"
        );
        let max = record
            .cpus
            .iter()
            .filter_map(|cpu| cpu.series[0].seen.max)
            .max();
        assert_eq!(
            max,
            record.worst.first().map(|worst| worst.value),
            "{id}: the maximum has no time"
        );
        for run in &record.runs {
            assert!(run.invalid.is_empty(), "{id}: {:?}", run.invalid);
            for thread in &run.threads {
                assert_eq!(thread.placement.policy, record.settings.policy, "{id}");
                assert_eq!(
                    thread.placement.cpus_seen.to_string(),
                    thread.cpu.to_string(),
                    "{id}"
                );
            }
            if record.condition.to_string() != "idle" {
                assert!(run.load.ran && !run.load.stressors.is_empty(), "{id}");
                assert!(
                    run.load.version.contains("stress-ng"),
                    "{}",
                    run.load.version
                );
            }
            let logged = histogram_log_samples(&results.join(&run.histogram_log));
            let samples: u64 = run.threads.iter().map(|thread| thread.samples).sum();
            assert_eq!(logged, samples, "{}", run.histogram_log);
            match record.domain.as_str() {
                "host" => assert!(run.shield.is_none(), "{id}"),
                _ => {
                    let shield = run.shield.as_ref().expect("a shield");
                    assert_eq!(shield.cpus, record.settings.cpus, "{id}");
                    assert!(
                        shield.isolation > rampart_model::IsolationMechanism::None,
                        "{id}"
                    );
                }
            }
            if record.domain == "container" {
                // Without CAP_SYS_RESOURCE, which raises the limit, locking memory needs CAP_IPC_LOCK.
                let least = run
                    .effective_settings
                    .capabilities
                    .iter()
                    .all(|name| name == "CAP_IPC_LOCK");
                assert!(least, "{:?}", run.effective_settings);
                assert_eq!(run.effective_settings.placed_by, "outside");
                assert!(
                    run.effective_settings.namespaces.len() >= 4,
                    "{:?}",
                    run.effective_settings
                );
            }
        }
    }
}

/// Returns the samples of the uncorrected series in a histogram log, read as another tool would read it.
fn histogram_log_samples(path: &Path) -> u64 {
    let text = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut samples = 0;
    for entry in IntervalLogIterator::new(&text) {
        let LogEntry::Interval(interval) = entry.expect("a log line") else {
            continue;
        };
        if interval
            .tag()
            .is_some_and(|tag| tag.as_str().ends_with("corrected"))
        {
            continue;
        }
        let encoded = interval.encoded_histogram();
        let bytes = from_base64(encoded);
        let histogram: hdrhistogram::Histogram<u64> = Deserializer::new()
            .deserialize(&mut bytes.as_slice())
            .expect("a histogram");
        samples += histogram.len();
    }
    samples
}

/// Decodes Base64 (RFC 4648 §4), as the library leaves that to its caller.
fn from_base64(text: &str) -> Vec<u8> {
    let value = |byte: u8| match byte {
        b'A'..=b'Z' => u32::from(byte - b'A'),
        b'a'..=b'z' => u32::from(byte - b'a') + 26,
        b'0'..=b'9' => u32::from(byte - b'0') + 52,
        b'+' => 62,
        b'/' => 63,
        other => panic!("{other} is not base64"),
    };
    let digits: Vec<u32> = text.trim_end_matches('=').bytes().map(value).collect();
    let mut bytes = Vec::new();
    for group in digits.chunks(4) {
        let word = group.iter().fold(0, |word, digit| word << 6 | digit) << (6 * (4 - group.len()));
        bytes.extend_from_slice(&word.to_be_bytes()[1..group.len()]);
    }
    bytes
}

fn check_verdicts(evaluation: &Evaluation) {
    for record in &evaluation.records {
        let of = |question: Question| {
            evaluation
                .verdicts
                .iter()
                .filter(|verdict| {
                    verdict.question == question && verdict.records.first() == Some(&record.id)
                })
                .count()
        };
        let named = evaluation.settings.deadline_is_named(&record.domain);
        assert_eq!(of(Question::Deadline), usize::from(named), "{}", record.id);
        let mut reached = evaluation.comparison.reached.iter();
        assert_eq!(
            reached.any(|of| of.record == record.id),
            !named,
            "{}",
            record.id
        );
        assert_eq!(
            of(Question::SameAsHost),
            usize::from(record.domain != "host"),
            "{}",
            record.id
        );
        assert_eq!(
            of(Question::Interference),
            usize::from(record.condition.to_string() != "idle"),
            "{}",
            record.id
        );
    }
    for verdict in &evaluation.verdicts {
        assert!(
            verdict.exposure.samples > 0 && !verdict.statement.is_empty(),
            "{verdict:?}"
        );
    }
    assert_eq!(
        evaluation.comparison.sentences.len(),
        evaluation.settings.domains.len()
    );
}

/// No machine wakes within a nanosecond, and none takes ten seconds.
#[test]
fn a_deadline_fails_or_holds_with_its_bound() {
    let Some(_machine) = machine("a_deadline_fails_or_holds_with_its_bound", 1) else {
        return;
    };
    for (deadline, code, outcome) in [
        ("1ns", 3, VerdictOutcome::Fails),
        ("10s", 0, VerdictOutcome::Holds),
    ] {
        let directory = tempfile::tempdir().expect("a directory");
        let results = directory.path().join("results");
        let options = [
            "--for",
            "2s",
            "--domains",
            "host",
            "--loads",
            "idle",
            "--deadline",
            deadline,
            "--interval",
            "250us",
        ];
        let output = evaluate(&directory.path().join("state"), &results, &options);
        let _ = stdout(&output, code);
        let evaluation = evaluation(&results);
        let verdict = evaluation
            .verdicts
            .iter()
            .find(|verdict| verdict.question == Question::Deadline)
            .expect("a verdict");
        assert_eq!(verdict.outcome, outcome, "{verdict:?}");
        let Some(VerdictFigures::Deadline {
            cycles,
            exceedances,
            visits,
            time_between_violations,
            ..
        }) = verdict.figures
        else {
            panic!("{verdict:?}");
        };
        assert!(cycles > 1_000, "{cycles}");
        if outcome == VerdictOutcome::Holds {
            assert_eq!(exceedances, 0);
            assert!(
                visits.is_some_and(|(with, all)| with == 0 && all > 0),
                "{visits:?}"
            );
            let third = verdict.exposure.duration.0 / 3;
            assert!(
                time_between_violations
                    .is_some_and(|between| between.0.abs_diff(third) < third / 100)
            );
        } else {
            assert_eq!(exceedances, cycles);
            assert!(time_between_violations.is_none());
        }
    }
}

fn start(state: &Path, results: &Path, options: &[&str]) -> Child {
    let results = results.to_str().expect("a path in UTF-8");
    let arguments = [
        &["evaluate", "--out", results, "--show-progress", "lines"],
        options,
    ]
    .concat();
    rampart(state, &arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("rampart starts")
}

/// Waits until the document on disk satisfies `enough`.
fn wait_for(results: &Path, enough: impl Fn(&Evaluation) -> bool) {
    let limit = Instant::now() + Duration::from_secs(90);
    while Instant::now() < limit {
        if results.join("evaluation.json").is_file() && enough(&evaluation(results)) {
            return;
        }
        thread::sleep(Duration::from_millis(50));
    }
    panic!("the evaluation does not reach the state");
}

/// After a kill in a run with isolation, one command restores the machine, no started program survives, and the
/// results can be rendered.
#[test]
fn a_killed_evaluation_leaves_a_readable_result_and_a_restorable_machine() {
    let Some(_machine) = machine(
        "a_killed_evaluation_leaves_a_readable_result_and_a_restorable_machine",
        2,
    ) else {
        return;
    };
    // While the isolation is up, this test may not use that CPU.
    let cpu = last_cpu();
    for domains in ["task", "container"] {
        let Scratch {
            directory: _directory,
            state,
            results,
        } = Scratch::create();
        let before = MachineState::take();
        let options = [
            "--for",
            "20s",
            "--domains",
            domains,
            "--loads",
            "idle,cpu@others",
        ];
        let mut child = start(&state, &results, &options);
        wait_for(&results, |evaluation| evaluation.runs.0 >= 2);
        // In the middle of the next run.
        let _ = measuring(cpu);
        child.kill().expect("kill");
        ended(&mut child);

        let output = rampart(&state, &["release"])
            .finish()
            .expect("rampart starts");
        let restored = stdout(&output, 0);
        assert_eq!(
            before.differences(&MachineState::take()),
            Vec::<String>::new(),
            "{restored}"
        );
        let left = left_running(&state, &results);
        assert!(left.is_empty(), "still running: {left:?}");
        let text = report(&state, &results, "terminal");
        let document = evaluation(&results);
        assert_eq!(document.state, EvaluationState::Running);
        assert!(document.runs.0 >= 2 && document.runs.0 < document.runs.1);
        assert!(
            document
                .records
                .iter()
                .any(|record| record.exposure.samples > 0)
        );
        assert!(text.contains(domains), "{text}");
        assert!(report(&state, &results, "html").contains("</html>"));
        let again = rampart(&state, &["release"])
            .finish()
            .expect("rampart starts");
        assert!(stdout(&again, 0).contains("Nothing to restore"));
    }
}

/// Returns the programs of the evaluation that still run after five seconds.
fn left_running(state: &Path, results: &Path) -> Vec<String> {
    let meter = directory().join("rampart-meter");
    let named = [meter.as_path(), state, results].map(|path| path.to_string_lossy().into_owned());
    // In a container the meter is the only file.
    let is_started = |command: &str| {
        command.starts_with("/rampart-meter") || named.iter().any(|name| command.contains(name))
    };
    let mut left = Vec::new();
    for _ in 0..50 {
        left = fs::read_dir("/proc")
            .expect("/proc")
            .flatten()
            .filter_map(|entry| fs::read(entry.path().join("cmdline")).ok())
            .map(|command| String::from_utf8_lossy(&command).replace('\0', " "))
            .filter(|command| is_started(command))
            .collect();
        if left.is_empty() {
            break;
        }
        thread::sleep(Duration::from_millis(100));
    }
    left
}

/// Also in those of comparisons that are measured on.
#[test]
fn meters_stay_up_between_runs() {
    let Some(_machine) = machine("meters_stay_up_between_runs", 2) else {
        return;
    };
    let Scratch {
        directory: scratch,
        state,
        results,
    } = Scratch::create();
    let starts = scratch.path().join("starts");
    let meter = scratch.path().join("meter");
    // Loads are made by the same program, with arguments.
    let script = format!(
        "#!/bin/sh\n[ $# -gt 0 ] || echo start >>'{}'\nexec '{}' \"$@\"\n",
        starts.display(),
        directory().join("rampart-meter").display()
    );
    fs::write(&meter, script).expect("written");
    fs::set_permissions(&meter, fs::Permissions::from_mode(0o755)).expect("executable");
    // An order of runs in which meters that are started one by one would end each other.
    let output = rampart(&state, &["evaluate", "--domains", "host,task", "--seed=3"])
        .args(["--for", "5s", "--until-decided=10s", "--disturb", "none"])
        .args(["--loads", "idle,cpu@others", "--show-progress", "none"])
        .arg("--out")
        .arg(&results)
        .env("RAMPART_METER", &meter)
        .finish()
        .expect("rampart starts");
    assert_eq!(exit_code(&output), 0, "{}", stderr(&output));
    let document = evaluation(&results);
    let runs = document.records.iter().map(|record| record.runs.len());
    let runs: usize = runs.sum();
    let starts = fs::read_to_string(&starts).expect("starts").lines().count();
    assert!(runs >= 12, "{runs}");
    assert!(starts * 2 <= runs, "{starts} starts for {runs} runs");
}

#[test]
fn an_interrupted_evaluation_keeps_what_it_measured() {
    let Some(_machine) = machine("an_interrupted_evaluation_keeps_what_it_measured", 1) else {
        return;
    };
    let Scratch {
        directory: _directory,
        state,
        results,
    } = Scratch::create();
    let before = MachineState::take();
    let child = start(
        &state,
        &results,
        &["--for", "20s", "--domains", "host,task", "--loads", "idle"],
    );
    wait_for(&results, |evaluation| evaluation.runs.0 >= 2);
    send(child.id(), Signal::INT);
    let output = limited::finished(child);
    assert_eq!(exit_code(&output), 5, "{}", stderr(&output));
    let document = evaluation(&results);
    assert_eq!(document.state, EvaluationState::EndedEarly);
    assert!(
        document.runs.0 >= 2 && document.runs.0 < document.runs.1,
        "{:?}",
        document.runs
    );
    assert!(
        document
            .records
            .iter()
            .all(|record| record.runs.iter().all(|run| run.invalid.is_empty()))
    );
    assert!(results.join("report.html").is_file());
    assert_eq!(
        before.differences(&MachineState::take()),
        Vec::<String>::new()
    );
}

#[test]
fn a_load_that_dies_makes_the_record_invalid() {
    let Some(_machine) = machine("a_load_that_dies_makes_the_record_invalid", 2) else {
        return;
    };
    let Scratch {
        directory: _directory,
        state,
        results,
    } = Scratch::create();
    let mut child = start(
        &state,
        &results,
        &["--for", "4s", "--domains", "host", "--loads", "cpu@others"],
    );
    // It has found stress-ng. Without it the meter would make the loads.
    wait_for(&results, |_| true);
    let limit = Instant::now() + Duration::from_secs(60);
    // More often than runs begin, also on a busy machine: in no run of this condition the load lives, if it
    // starts at all.
    let run_as = |policy| {
        let own = rustix::thread::gettid().as_raw_nonzero().get();
        rampart_host::set_thread_policy(own.unsigned_abs(), policy).expect("its policy");
    };
    run_as(SchedulingPolicy::Fifo(1));
    while Instant::now() < limit && child.try_wait().expect("its state").is_none() {
        kill_all("stress-ng");
        thread::sleep(Duration::from_millis(50));
    }
    run_as(SchedulingPolicy::Other);
    let output = limited::finished(child);
    let document = evaluation(&results);
    let record = document
        .records
        .iter()
        .find(|record| record.condition.to_string() == "cpu@others")
        .expect("the loaded record");
    assert_eq!(exit_code(&output), 5, "{}", stderr(&output));
    assert!(
        record
            .runs
            .iter()
            .any(|run| !run.invalid.is_empty() && !run.load.ran),
        "{:?}",
        record.runs
    );
    let text = report(&state, &results, "terminal").to_lowercase();
    assert!(text.contains("load"), "{text}");
    assert!(
        text.contains("invalid") || text.contains("runs that do not count"),
        "{text}"
    );
}

/// Kills every process whose name starts with `name`.
fn kill_all(name: &str) {
    let processes = fs::read_dir("/proc")
        .expect("/proc")
        .flatten()
        .filter_map(|entry| {
            let command = fs::read_to_string(entry.path().join("comm")).ok()?;
            let process: i32 = entry.file_name().to_str()?.parse().ok()?;
            command.starts_with(name).then_some(process)
        });
    for process in processes.filter_map(rustix::process::Pid::from_raw) {
        // It may have ended already.
        let _ = rustix::process::kill_process(process, Signal::KILL);
    }
}

#[test]
fn measures_a_single_cpu_and_reports_the_limitation() {
    let Some(_machine) = machine("measures_a_single_cpu_and_reports_the_limitation", 1) else {
        return;
    };
    let Scratch {
        directory: _directory,
        state,
        results,
    } = Scratch::create();
    let rampart = rampart(
        &state,
        &["evaluate", "--for", "5s", "--loads", "idle,cpu@same"],
    );
    let cpu = last_cpu().to_string();
    let output = std::process::Command::new("taskset")
        .args(["--cpu-list", &cpu])
        .arg(rampart.get_program())
        .args(rampart.get_args())
        .arg("--out")
        .arg(&results)
        .env("RAMPART_STATE_DIR", &state)
        .finish()
        .expect("taskset starts");
    let _ = stdout(&output, 0);
    let document = evaluation(&results);
    let reports = |finding: &rampart_model::Finding| finding.what.contains("without a shield");
    assert!(
        document.settings.findings.iter().any(reports),
        "{:?}",
        document.settings.findings
    );
    assert_eq!(document.records.len(), 6);
    for record in &document.records {
        assert_eq!(record.settings.cpus.to_string(), cpu);
        assert!(record.exposure.samples > 0, "{}", record.id);
    }
}

#[test]
fn measures_as_much_as_possible_without_root() {
    let Some(_machine) = machine("measures_as_much_as_possible_without_root", 1) else {
        return;
    };
    let directory = tempfile::tempdir().expect("a directory");
    copy_programs_for_everyone(directory.path());
    // A nice value stays: only a privileged program may lower it.
    let output = std::process::Command::new("nice")
        .args([
            "-n",
            // 3, as the test itself has -10.
            "13",
            "setpriv",
            "--reuid",
            "65534",
            "--regid",
            "65534",
            "--clear-groups",
        ])
        .arg(directory.path().join("rampart"))
        .args([
            "evaluate", "--for", "3s", "--loads", "idle", "--out", "results",
        ])
        .current_dir(directory.path())
        .env("RAMPART_STATE_DIR", directory.path().join("state"))
        .finish()
        .expect("nice starts");
    let _ = stdout(&output, 0);
    let document = evaluation(&directory.path().join("results"));
    let reports = |finding: &rampart_model::Finding| finding.what.contains("time-sharing policy");
    assert!(
        document.settings.findings.iter().any(reports),
        "{:?}",
        document.settings.findings
    );
    let record = document.record("host/wakeup/idle").expect("the host");
    assert!(record.exposure.samples > 0);
    assert_eq!(record.settings.policy.to_string(), "other");
    let container = document
        .not_measured
        .iter()
        .find(|gap| gap.part == EvaluationPart::Domain("container".to_owned()));
    assert!(
        container.is_some_and(|gap| gap.findings[0].fix.is_some()),
        "{container:?}"
    );
}
