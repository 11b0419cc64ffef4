// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Blocks on this machine, by a spinning thread: `simulated/blocks.rs` tests the kernel module.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Output, Stdio};

use rampart_model::{BlockKind, BlocksMade, Finding, Nanos};
use rampart_tests::limited::{Limited as _, ended};
use rampart_tests::programs::{
    directory, exit_code, last_cpu, machine, rampart, stderr, stdout, usable_cpus,
};
use rampart_tests::verdicts::BlocktestResult;
use serde_json::Value;

fn run(arguments: &[&str]) -> Output {
    let state = tempfile::tempdir().expect("a directory");
    rampart(state.path(), arguments).finish().expect("starts")
}

fn made(document: &Value) -> BlocksMade {
    serde_json::from_value(document["made"].clone()).expect("blocks")
}

#[test]
fn blocks_are_made_as_requested_and_reported_with_their_lengths() {
    let Some(_machine) = machine("blocks of a spinning thread", 1) else {
        return;
    };
    let cpu = last_cpu();
    let output = run(&[
        "block",
        "--cpus",
        &cpu.to_string(),
        "--length",
        "3ms",
        "--count",
        "12",
        "--pause",
        "15ms",
        "--seed",
        "5",
        "--kind",
        "spin",
        "--json",
    ]);
    let document: Value = serde_json::from_str(&stdout(&output, 0)).expect("a document");
    let made = made(&document);
    assert_eq!(document["count"], 12);
    assert_eq!(
        (made.kind, made.length),
        (BlockKind::Spin, Nanos::from_millis(3))
    );
    assert_eq!(made.spans.len(), 12);
    for (index, span) in made.spans.iter().enumerate() {
        assert_eq!((span.cpu, span.sequence), (cpu, index as u32));
        assert!(span.length() >= made.length, "{span:?}");
    }
    for pair in made.spans.windows(2) {
        let pause = pair[1].start.saturating_sub(pair[0].end);
        // A pause is at least half of the mean.
        assert!(pause >= Nanos(7_500_000), "{pause}");
    }
    // The command announces the blocks.
    let text = stderr(&output);
    assert!(
        text.contains(&format!("Stopping CPU {cpu} for 3 ms, 12 times")),
        "{text}"
    );
    // A finding reports that interrupts are still handled.
    let findings: Vec<Finding> =
        serde_json::from_value(document["findings"].clone()).expect("findings");
    assert!(
        findings
            .iter()
            .any(|finding| finding.what.contains("interrupts")),
        "{findings:?}"
    );
}

#[test]
fn several_cpus_are_stopped_at_the_same_moments() {
    let Some(_machine) = machine("blocks of several CPUs", 2) else {
        return;
    };
    let output = run(&[
        "block", "--cpus", "0,1", "--length", "20ms", "--count", "10", "--pause", "100ms",
        "--kind", "spin", "--json",
    ]);
    let document: Value = serde_json::from_str(&stdout(&output, 0)).expect("a document");
    let made = made(&document);
    assert_eq!(made.spans.len(), 20);
    let together = (0..10)
        .filter(|sequence| {
            let spans: Vec<_> = made
                .spans
                .iter()
                .filter(|span| span.sequence == *sequence)
                .collect();
            spans.len() == 2 && spans[0].start < spans[1].end && spans[1].start < spans[0].end
        })
        .count();
    // Other work may delay one of the two sometimes.
    assert!(together >= 5, "{together} of 10 together: {:?}", made.spans);
}

#[test]
fn refuses_impossible_requests_with_reason_and_exit_code() {
    let Some(_machine) = machine("impossible blocks", 1) else {
        return;
    };
    for (arguments, code, words) in [
        (&["--cpus", "900"][..], 4, "no such CPU"),
        (&["--cpus", "0", "--count", "0"], 2, "--count"),
        (&["--cpus", "0", "--length", "0ms"], 2, "--length"),
        (
            &["--cpus", "0", "--length", "2s", "--pause", "10s"],
            2,
            "--length",
        ),
        (
            &[
                "--cpus", "0", "--length", "200ms", "--pause", "1s", "--kind", "spin",
            ],
            2,
            "too long",
        ),
        (
            &[
                "--cpus", "0", "--length", "9ms", "--pause", "1ms", "--kind", "spin",
            ],
            2,
            "too large a share",
        ),
    ] {
        let output = run(&[&["block"], arguments].concat());
        assert_eq!(
            exit_code(&output),
            code,
            "{arguments:?}: {}",
            stderr(&output)
        );
        let text = stderr(&output);
        assert!(text.contains(words), "{arguments:?}: {text}");
        assert!(!text.contains("Stopping"), "{text}");
    }
    if !std::path::Path::new("/dev/blocksys").exists() {
        let output = run(&["block", "--cpus", "0", "--kind", "module"]);
        assert_eq!(exit_code(&output), 4);
        assert!(stderr(&output).contains("is not loaded"), "{output:?}");
    }
}

#[test]
fn the_end_of_the_input_ends_the_blocks() {
    let Some(_machine) = machine("the end of blocks", 1) else {
        return;
    };
    let mut child = Command::new(directory().join("rampart-meter"))
        .arg("block")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts");
    let mut input = child.stdin.take().expect("a pipe");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let mut next = || lines.next().expect("a line").expect("text");
    let plan = format!(
        r#"{{"prepare":{{"protocol":1,"settings":{{"cpus":"{}","length":1000000,"count":1000000,"pause":5000000,"spread":"even","seed":1,"kind":"spin"}}}}}}"#,
        last_cpu()
    );
    writeln!(input, "{plan}").expect("written");
    assert!(next().starts_with(r#"{"ready""#));
    writeln!(input, r#"{{"go":{{}}}}"#).expect("written");
    assert!(next().starts_with(r#"{"blocked""#));
    drop(input);
    let last = loop {
        let line = next();
        if !line.starts_with(r#"{"blocked""#) {
            break line;
        }
    };
    assert!(last.starts_with(r#"{"finished""#), "{last}");
    assert!(ended(&mut child).success());
}

#[test]
fn blocktest_reports_that_the_stopped_cpu_is_affected() {
    let Some(_machine) = machine("blocktest", 2) else {
        return;
    };
    let cpu = last_cpu();
    // Much longer than the delays that a shared host causes on both CPUs.
    let output = run(&[
        "blocktest",
        "--cpus",
        &cpu.to_string(),
        "--length",
        "40ms",
        "--count",
        "16",
        "--pause",
        "120ms",
        "--seed",
        "3",
        "--kind",
        "spin",
        "--json",
    ]);
    let document: Value = serde_json::from_str(&stdout(&output, 0)).expect("a document");
    let stopped = BlocktestResult::of(&document, cpu.0);
    assert_eq!(stopped.outcome(), "leaks", "{stopped:?}");
    assert!((0.7..1.5).contains(&stopped.transfer()), "{stopped:?}");
    let other = usable_cpus()
        .iter()
        .find(|other| *other != cpu)
        .expect("another CPU");
    let other = BlocktestResult::of(&document, other.0);
    assert!(other.transfer() < 0.5, "{other:?}");
}
