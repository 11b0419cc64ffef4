// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Causes of the worst samples: planted causes are named, and changes for tracing are reverted.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rampart_model::{BlockSpan, CauseKind, ExplainedWorst, Measurement, Nanos};
use rampart_tests::disturbance::hold_while;
use rampart_tests::limited::{Limited as _, ended, wait_until};
use rampart_tests::programs::{
    archive, assert_refused, copy_programs_for_everyone, directory, last_cpu, machine, measure,
    rampart, stdout,
};
use serde_json::Value;

use crate::preferred::simulated_machine;

/// Returns the explained samples of which a block took more than half, with the share of the longest cause.
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

fn assert_consistent(measurement: &Measurement) {
    for worst in &measurement.explained {
        let seen: Nanos = worst
            .causes
            .iter()
            .filter(|cause| cause.kind != CauseKind::Unseen)
            .map(|cause| cause.duration)
            .sum();
        // The trace has a resolution of a microsecond.
        let sum = seen + worst.unexplained;
        assert!(sum.0.abs_diff(worst.event.value.0) <= 2_000, "{worst:?}");
    }
}

/// Returns the mount point of tracefs, if it is mounted.
fn tracefs() -> Option<PathBuf> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("mounts");
    mounts.lines().find_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        let point = left.split(' ').nth(4)?;
        right.starts_with("tracefs ").then(|| point.into())
    })
}

/// Returns the tracing instances of Rampart.
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
    let over = Arc::new(AtomicBool::new(false));
    let continues = {
        let over = Arc::clone(&over);
        move || !over.load(Ordering::Relaxed)
    };
    let planted = hold_while(
        cpu,
        Duration::from_millis(60),
        Duration::from_millis(240),
        continues,
    );
    // The planted thread has the name of this thread, which the kernel truncates.
    let name = std::fs::read_to_string("/proc/thread-self/comm").expect("a name");
    let cpus = cpu.to_string();
    let measurement = measure(
        state.path(),
        &["wakeup", "--cpus", &cpus, "--for", "2s", "--explain"],
    );
    over.store(true, Ordering::Relaxed);
    let held: Vec<(Nanos, Nanos)> = planted
        .join()
        .expect("the planted thread")
        .iter()
        .map(|held| (held.from, held.to))
        .collect();
    assert_eq!(
        measurement.explained.len(),
        10,
        "{:?}",
        measurement.findings
    );
    assert_consistent(&measurement);
    let found = blocked(&measurement, &held);
    assert!(!found.is_empty(), "{:?}", measurement.explained);
    for (worst, share) in found {
        let cause = &worst.causes[0];
        assert_eq!(cause.kind, CauseKind::Thread, "{worst:?}");
        assert!(cause.name.starts_with(name.trim()), "{name} in {worst:?}");
        assert!(share > 0.5, "{worst:?}");
    }
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
    let Some(_machine) = machine("tracing of a killed run", 2) else {
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
    wait_until("a tracing instance", || !instances().is_empty());
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
    let Some(_machine) = machine("tracing without root", 1) else {
        return;
    };
    let home = tempfile::tempdir().expect("a directory");
    copy_programs_for_everyone(home.path());
    let cpu = last_cpu().to_string();
    let output = Command::new("setpriv")
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
        .arg(home.path().join("rampart"))
        .args(["measure", "wakeup", "--policy", "other", "--no-memory-lock"])
        .args(["--cpus", &cpu, "--for", "300ms", "--explain", "--json"])
        .env("RAMPART_STATE_DIR", home.path())
        .finish()
        .expect("setpriv starts");
    let measurement: Measurement = serde_json::from_str(&stdout(&output, 0)).expect("a document");
    assert!(measurement.explained.is_empty());
    let refusal = measurement
        .findings
        .iter()
        .find(|finding| finding.what.contains("only root"));
    assert!(
        refusal.is_some_and(|finding| finding.what.contains("sudo")),
        "{:?}",
        measurement.findings
    );
}

#[test]
fn imports_histograms_of_other_tools() {
    let state = tempfile::tempdir().expect("a directory");
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures");
    let import = |tool: &str, file: &str, more: &[&str]| -> Output {
        let file = fixtures.join(file);
        let file = file.to_str().expect("text");
        let arguments = [&["import", tool, file], more].concat();
        rampart(state.path(), &arguments).finish().expect("starts")
    };
    let text = stdout(&import("rtla", "rtla/timerlat-hist.txt", &[]), 0);
    assert!(text.contains("5992"), "{text}");
    assert!(text.contains("> 256 µs"), "{text}");
    assert!(text.contains("547 samples"), "{text}");
    let json = import("cyclictest", "cyclictest/h-two-threads.txt", &["--json"]);
    let document: Value = serde_json::from_str(&stdout(&json, 0)).expect("a document");
    assert_eq!(document["series"].as_array().map(Vec::len), Some(2));
    let wrong = import("rtla", "cyclictest/h-two-threads.txt", &[]);
    assert_refused(&wrong, 2, &["h-two-threads.txt", "fix:"]);
}

/// Blocks a CPU of the simulated machine in both ways while it is measured with `--explain`, kills such a
/// measurement, and prints the documents, each on a line.
const IN_THE_MACHINE: &str = r#"
set -e
cd "$(mktemp -d)" && tar -x
# Programs start on the housekeeping CPU of the machine.
taskset -pc 0-1 $$ > log
# Prints a document on one line; its strings contain no line feed.
line() { tr -d '\n' < "$1"; echo; }
for kind in module spin; do
    ./rampart block --cpus 1 --length 60ms --count 400 --pause 240ms --kind $kind --json --show-progress none > blocks 2> log &
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
# The blocks take a CPU from a guest for longer than the uncertainty between the two clocks.
rmmod blocksys
insmod /usr/lib/modules/$(uname -r)/extra/blocksys.ko longest_us=500000
./rampart block --cpus 1 --length 400ms --count 400 --pause 1600ms --kind module --show-progress none > log 2>&1 &
blocker=$!
./rampart measure wakeup --domain vm --cpus 1 --housekeeping 0 --interval 10ms --for 8s --explain --json --show-progress none > measured
kill -INT $blocker || cat log >&2
wait $blocker || true
line measured
"#;

#[test]
fn the_osnoise_tracer_identifies_planted_noise_in_the_simulated_machine() {
    let _machine = simulated_machine();
    let archive = archive(&directory(), &["rampart", "rampart-meter"]);
    let output = Command::new(directory().join("rampart"))
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
        .finish_within(Duration::from_secs(600), archive)
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
        assert_consistent(&measurement);
        // Another program of the host may stop the emulated CPU too, in a block or in anything else.
        let named = blocked(&measurement, &spans)
            .into_iter()
            .filter(|(worst, share)| {
                let cause = &worst.causes[0];
                // The module queues this interrupt from its timer.
                let is_of_module = cause.name.starts_with("irq_work:");
                cause.kind == kind && *share > 0.5 && (is_of_module || kind == CauseKind::Thread)
            });
        assert!(named.count() >= 3, "{:?}", measurement.explained);
    }
    assert_eq!(*restored, r#"{"restored":true}"#, "{output:?}");
    assert_causes_outside_the_guest(guest);
}

/// Returns start and end of the blocks of a document.
fn spans(blocks: &str) -> Vec<(Nanos, Nanos)> {
    let blocks: Value = serde_json::from_str(blocks).expect("blocks");
    let spans: Vec<BlockSpan> =
        serde_json::from_value(blocks["made"]["spans"].clone()).expect("spans");
    spans.iter().map(|span| (span.start, span.end)).collect()
}

/// Checks the causes in the trace of the guest's host. The thread of a virtual CPU is the guest and no cause.
fn assert_causes_outside_the_guest(measured: &str) {
    let measurement: Measurement = serde_json::from_str(measured).expect("a measurement");
    assert!(measurement.guest.is_some(), "{measured}");
    assert_eq!(measurement.explained.len(), 10);
    let mut found = 0;
    for worst in &measurement.explained {
        let cause = &worst.causes[0];
        let share = cause.duration.0 as f64 / worst.event.value.0 as f64;
        // The module queues this interrupt from its timer.
        found += usize::from(cause.name.starts_with("irq_work:") && share > 0.5);
        for cause in &worst.causes {
            let is_guest = cause.kind == CauseKind::Thread && cause.name.contains("/KVM:");
            assert!(!is_guest, "{worst:?}");
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
