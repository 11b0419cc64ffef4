// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Causes of the worst samples: planted ones are named, and what tracing changed is taken back.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rampart_model::{BlockSpan, CauseKind, CpuId, ExplainedWorst, Measurement, Nanos};
use rampart_tests::disturbance::hold;
use rampart_tests::limited::{Limited as _, ended};
use rampart_tests::programs::{
    directory, exit_code, machine, measure, rampart, stdout, usable_cpus,
};
use serde_json::Value;

/// Far longer than anything here takes; only a failure waits for it.
const PATIENCE: Duration = Duration::from_secs(60);

fn last_cpu() -> CpuId {
    usable_cpus().iter().next_back().expect("a CPU")
}

/// The explained samples that a block took more than half of, and the part of each that its longest
/// cause took.
fn blocked<'a>(
    measurement: &'a Measurement,
    blocks: &[(Nanos, Nanos)],
) -> Vec<(&'a ExplainedWorst, f64)> {
    measurement
        .explained
        .iter()
        .filter(|worst| {
            let begin = worst.event.at.saturating_sub(worst.event.value);
            blocks.iter().any(|(from, to)| {
                let common = worst.event.at.min(*to).saturating_sub(begin.max(*from));
                common.0 * 2 > worst.event.value.0
            })
        })
        .map(|worst| {
            let longest = worst.causes[0].duration;
            (worst, longest.0 as f64 / worst.event.value.0 as f64)
        })
        .collect()
}

fn consistent(measurement: &Measurement) {
    for worst in &measurement.explained {
        let seen: Nanos = worst
            .causes
            .iter()
            .filter(|cause| cause.kind != CauseKind::Unseen)
            .map(|cause| cause.duration)
            .sum();
        // Moments of the trace are told to the microsecond.
        let told = seen + worst.unexplained;
        assert!(told.0.abs_diff(worst.event.value.0) <= 2_000, "{worst:?}");
    }
}

/// Where tracefs is mounted, if it is.
fn tracefs() -> Option<PathBuf> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("mounts");
    mounts.lines().find_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        let point = left.split(' ').nth(4)?;
        right.starts_with("tracefs ").then(|| point.into())
    })
}

/// Tracing instances of ours.
fn instances() -> Vec<PathBuf> {
    let Some(root) = tracefs() else {
        return Vec::new();
    };
    std::fs::read_dir(root.join("instances"))
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| {
            let name = path.file_name().and_then(|name| name.to_str());
            name.is_some_and(|name| name.starts_with("rampart-"))
        })
        .collect()
}

#[test]
fn identifies_a_planted_thread() {
    let Some(_machine) = machine("identifies_a_planted_thread", 2) else {
        return;
    };
    let state = tempfile::tempdir().expect("a directory");
    let (cpu, before) = (last_cpu(), tracefs());
    let planted = hold(
        cpu,
        Duration::from_millis(60),
        16,
        Duration::from_millis(240),
    );
    // Its name is this thread's, which the kernel cuts off.
    let name = std::fs::read_to_string("/proc/thread-self/comm").expect("a name");
    let cpus = cpu.to_string();
    let measurement = measure(
        state.path(),
        &["wakeup", "--cpus", &cpus, "--for", "4s", "--explain"],
    );
    let held: Vec<(Nanos, Nanos)> = planted
        .join()
        .expect("it held the CPU")
        .iter()
        .map(|held| (held.from, held.to))
        .collect();
    assert_eq!(
        measurement.explained.len(),
        10,
        "{:?}",
        measurement.findings
    );
    consistent(&measurement);
    let found = blocked(&measurement, &held);
    assert!(!found.is_empty(), "{:?}", measurement.explained);
    for (worst, share) in found {
        let cause = &worst.causes[0];
        assert_eq!(cause.kind, CauseKind::Thread, "{worst:?}");
        assert!(cause.name.starts_with(name.trim()), "{name} in {worst:?}");
        assert!(share > 0.5, "{worst:?}");
    }
    // It says what the trace was made of and that it was not free.
    assert!(
        measurement
            .findings
            .iter()
            .any(|finding| finding.what.contains("traced")),
        "{:?}",
        measurement.findings
    );
    assert_eq!((tracefs(), instances()), (before, Vec::new()));
}

#[test]
fn tracing_of_a_killed_run_is_reverted() {
    let Some(_machine) = machine("what_a_killed_run_traced", 2) else {
        return;
    };
    let state = tempfile::tempdir().expect("a directory");
    let before = tracefs();
    let cpu = last_cpu().to_string();
    let arguments = [
        "measure",
        "wakeup",
        "--cpus",
        &cpu,
        "--for",
        "1h",
        "--explain",
    ];
    let mut killed = rampart(state.path(), &arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("starts");
    let begin = Instant::now();
    while instances().is_empty() {
        assert!(begin.elapsed() < PATIENCE, "nothing is traced");
        thread::sleep(Duration::from_millis(20));
    }
    killed.kill().expect("killed");
    ended(&mut killed);
    assert_eq!(instances().len(), 1);
    let released = rampart(state.path(), &["release"])
        .finish()
        .expect("starts");
    let text = stdout(&released, 0);
    assert!(text.contains("/instances/rampart-"), "{text}");
    assert_eq!((tracefs(), instances()), (before, Vec::new()));
}

#[test]
fn reports_missing_permission_to_trace_and_still_measures() {
    let Some(_machine) = machine("who_may_not_trace", 1) else {
        return;
    };
    let home = tempfile::tempdir().expect("a directory");
    // Where anybody may read them.
    let programs = tempfile::tempdir().expect("a directory");
    for name in ["rampart", "rampart-meter"] {
        std::fs::copy(directory().join(name), programs.path().join(name)).expect("a copy");
    }
    for directory in [home.path(), programs.path()] {
        let mut permissions = std::fs::metadata(directory).expect("there").permissions();
        std::os::unix::fs::PermissionsExt::set_mode(&mut permissions, 0o777);
        std::fs::set_permissions(directory, permissions).expect("opened");
    }
    let cpu = last_cpu().to_string();
    let output = Command::new("setpriv")
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
        .arg(programs.path().join("rampart"))
        .args(["measure", "wakeup", "--policy", "other", "--no-memory-lock"])
        .args(["--cpus", &cpu, "--for", "300ms", "--explain", "--json"])
        .env("RAMPART_STATE_DIR", home.path())
        .finish()
        .expect("setpriv starts");
    let measurement: Measurement = serde_json::from_str(&stdout(&output, 0)).expect("a document");
    assert!(measurement.explained.is_empty());
    let told = measurement
        .findings
        .iter()
        .find(|finding| finding.what.contains("only root"));
    assert!(
        told.is_some_and(|finding| finding.what.contains("sudo")),
        "{:?}",
        measurement.findings
    );
}

#[test]
fn peers_are_read_from_their_own_text() {
    let state = tempfile::tempdir().expect("a directory");
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures");
    let import = |tool: &str, file: &str, more: &[&str]| -> Output {
        let file = fixtures.join(file);
        let file = file.to_str().expect("text");
        let arguments = [&["import", tool, file], more].concat();
        rampart(state.path(), &arguments).finish().expect("starts")
    };
    let text = stdout(&import("rtla", "rtla/timerlat-hist.txt", &[]), 0);
    assert!(text.contains("n 5992"), "{text}");
    assert!(text.contains("> 256 µs"), "{text}");
    assert!(text.contains("547 samples"), "{text}");
    let json = import("cyclictest", "cyclictest/h-two-threads.txt", &["--json"]);
    let document: Value = serde_json::from_str(&stdout(&json, 0)).expect("a document");
    assert_eq!(document["series"].as_array().map(Vec::len), Some(2));
    let wrong = import("rtla", "cyclictest/h-two-threads.txt", &[]);
    assert_eq!(exit_code(&wrong), 2);
    let words = String::from_utf8_lossy(&wrong.stderr).into_owned();
    assert!(
        words.contains("h-two-threads.txt") && words.contains("fix:"),
        "{words}"
    );
}

/// Blocks a CPU of the simulated machine in both ways while it is measured with `--explain`, kills
/// such a measurement, and tells of it all in lines of JSON.
const IN_THE_MACHINE: &str = r#"
set -e
cd "$(mktemp -d)" && tar -x
# What is started in the machine begins on its housekeeping CPU.
taskset -pc 0-1 $$ > told
# On one line, as strings hold no line feed of their own.
line() { tr -d '\n' < "$1"; echo; }
for kind in module spin; do
    ./rampart block --cpus 1 --length 60ms --count 400 --pause 240ms --kind $kind --json --show-progress none > blocks 2> told &
    blocker=$!
    ./rampart measure wakeup --cpus 1 --housekeeping 0 --for 4s --explain --json --show-progress none > measured
    kill -INT $blocker
    wait $blocker || true
    line measured
    line blocks
done
T=/sys/kernel/tracing
cat $T/osnoise/options $T/osnoise/cpus > before
./rampart measure wakeup --cpus 1 --housekeeping 0 --for 1h --explain --show-progress none > killed &
killed=$!
until grep -qs osnoise $T/instances/rampart-*/current_tracer; do kill -0 $killed; sleep 0.1; done
cat $T/osnoise/options >&2
kill -KILL $killed
./rampart release > released
cat released >&2
cat $T/osnoise/options $T/osnoise/cpus > after
cmp before after && ls $T/instances && echo '{"restored":true}'
# A CPU of the host is taken from a guest, for longer than the clocks of both leave open.
rmmod blocksys
insmod /usr/lib/modules/$(uname -r)/extra/blocksys.ko longest_us=500000
./rampart block --cpus 1 --length 400ms --count 400 --pause 1600ms --kind module --show-progress none > told 2>&1 &
blocker=$!
./rampart measure wakeup --domain vm --cpus 1 --housekeeping 0 --interval 10ms --for 8s --explain --json --show-progress none > measured
kill -INT $blocker || cat told >&2
wait $blocker || true
line measured
"#;

#[test]
fn the_osnoise_tracer_identifies_planted_noise_in_the_simulated_machine() {
    let programs = directory();
    let archive = Command::new("tar")
        .arg("-c")
        .arg("-C")
        .arg(&programs)
        .args(["rampart", "rampart-meter"])
        .finish()
        .expect("tar");
    assert!(archive.status.success(), "{archive:?}");
    let output = Command::new(programs.join("rampart"))
        .args([
            "sim",
            "run",
            "--own",
            "--cpus",
            "2",
            "--",
            "timeout",
            "550",
            "bash",
            "-c",
            IN_THE_MACHINE,
        ])
        .env_remove("RAMPART_METER")
        .finish_within(Duration::from_secs(600), archive.stdout)
        .expect("starts");
    let text = stdout(&output, 0);
    let documents: Vec<&str> = text.lines().collect();
    let [
        by_module,
        module_blocks,
        by_thread,
        thread_blocks,
        restored,
        guest,
    ] = documents.as_slice()
    else {
        panic!("{text}");
    };
    for (measured, blocks, kind) in [
        (by_module, module_blocks, CauseKind::Interrupt),
        (by_thread, thread_blocks, CauseKind::Thread),
    ] {
        let measurement: Measurement = serde_json::from_str(measured).expect("a measurement");
        let spans = spans(blocks);
        assert!(
            measurement
                .findings
                .iter()
                .any(|finding| finding.what.contains("osnoise tracer)")),
            "{:?}",
            measurement.findings
        );
        consistent(&measurement);
        let found = blocked(&measurement, &spans);
        assert!(found.len() >= 3, "{:?}", measurement.explained);
        for (worst, share) in found {
            let cause = &worst.causes[0];
            assert_eq!(cause.kind, kind, "{worst:?}");
            assert!(share > 0.5, "{worst:?}");
            if kind == CauseKind::Interrupt {
                // The interrupt that the module asks for from its timer.
                assert!(cause.name.starts_with("irq_work:"), "{worst:?}");
            }
        }
    }
    assert_eq!(*restored, r#"{"restored":true}"#, "{output:?}");
    what_takes_its_cpu_from_a_guest_is_named(guest);
}

/// The blocks of a document, each from when to when.
fn spans(blocks: &str) -> Vec<(Nanos, Nanos)> {
    let blocks: Value = serde_json::from_str(blocks).expect("blocks");
    let spans: Vec<BlockSpan> =
        serde_json::from_value(blocks["made"]["spans"].clone()).expect("spans");
    spans.iter().map(|span| (span.start, span.end)).collect()
}

/// By the trace of its host: the thread of a virtual CPU is the guest, and no cause.
fn what_takes_its_cpu_from_a_guest_is_named(measured: &str) {
    let measurement: Measurement = serde_json::from_str(measured).expect("a measurement");
    assert!(measurement.guest.is_some(), "{measured}");
    assert_eq!(measurement.explained.len(), 10);
    let mut found = 0;
    for worst in &measurement.explained {
        let cause = &worst.causes[0];
        let share = cause.duration.0 as f64 / worst.event.value.0 as f64;
        // The interrupt that the module asks for from its timer.
        found += usize::from(cause.name.starts_with("irq_work:") && share > 0.5);
        for cause in &worst.causes {
            let own = cause.kind == CauseKind::Thread && cause.name.contains("/KVM:");
            assert!(!own, "{worst:?}");
        }
    }
    assert!(found >= 2, "{:?}", measurement.explained);
    let mut findings = measurement.findings.iter();
    assert!(
        findings.any(|finding| finding.what.contains("guest's host")),
        "{:?}",
        measurement.findings
    );
}
