// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The domain `detached` in an evaluation of the simulated machine: measured beside the host, blocked, without
//! an interrupt on its CPU, and alive after a panic of the host's kernel.

use std::collections::BTreeSet;

use rampart_model::{
    BlockKind, Evaluation, Finding, MeterKind, Question, SignPath, VerdictOutcome,
};
use rampart_tests::programs::beside_others;
use rampart_tests::simulated::{finish, rampart};
use rampart_tests::verdicts::{find_verdict, transfer_of};

#[test]
fn a_detached_thread_is_measured_without_an_interrupt_and_survives_a_host_crash() {
    measured_on("sim:x86_64");
}

#[test]
#[ignore = "an evaluation takes two minutes; make test-long runs it"]
fn a_detached_thread_on_arm64_is_measured_without_an_interrupt_and_survives_a_host_crash() {
    measured_on("sim:aarch64");
}

fn measured_on(machine: &str) {
    let _machine = beside_others();
    let location = tempfile::tempdir().expect("a directory");
    let result = location.path().join("result");
    let mut command = rampart(&["evaluate", "--on", machine, "--loads", "idle"]);
    command
        .args(["--domains", "host,detached", "--for", "75s"])
        .args(["--meters", "noise,loop"])
        .args([
            "--disturb",
            "block:host,block:detached,cache:detached,crash:host",
        ])
        .args(["--show-progress", "none", "--out"])
        .arg(&result);
    let output = finish(command);
    let text = std::fs::read_to_string(result.join("evaluation.json"))
        .unwrap_or_else(|error| panic!("{error}: {output:?}"));
    let evaluation: Evaluation = serde_json::from_str(&text).expect("an evaluation");

    // The rounds of the disturbances have `wakeup`, and `rampart measure` over SSH has `fwq`.
    let records = evaluation.records.iter();
    let of_detached: Vec<_> = records
        .filter(|record| record.domain == "detached")
        .collect();
    let measured: BTreeSet<_> = of_detached
        .iter()
        .map(|record| record.settings.meter)
        .collect();
    assert_eq!(
        measured,
        BTreeSet::from([MeterKind::Noise, MeterKind::Loop]),
        "{:?}",
        evaluation.not_measured
    );
    for record in of_detached {
        // A run without a gap in the loop of `noise` has no sample.
        let is_noise = record.settings.meter == MeterKind::Noise;
        assert!(record.exposure.samples > 0 || is_noise, "{record:?}");
        assert!(!record.runs.is_empty(), "{record:?}");
        for run in &record.runs {
            assert!(run.duration.0 > 0, "{run:?}");
            // An emulated CPU makes more gaps than others read, if its host is busy.
            let is_lost = |finding: &Finding| finding.what.contains("samples were lost");
            let valid = run.invalid.is_empty() || is_noise && run.invalid.iter().all(is_lost);
            assert!(valid, "{:?}", run.invalid);
            let counts = run.detached.expect("the driver's counts");
            assert_eq!(
                (counts.interrupts, counts.system_calls, counts.faults),
                (0, 0, 0),
                "{counts:?}"
            );
        }
    }
    let hosts = evaluation.records.iter();
    let mut runs = hosts
        .filter(|record| record.domain == "host")
        .flat_map(|record| &record.runs);
    assert!(runs.all(|run| run.detached.is_none()));

    // Its rounds have the counts, too. A load in it is made by its own thread.
    let mut rounds = evaluation.transfers.iter();
    let loaded = rounds
        .clone()
        .filter_map(|round| Some((round.disturbance.as_ref()?.to_string(), round)))
        .find(|(name, _)| name == "cache:detached");
    let (_, loaded) = loaded.expect("a round with a load");
    let load = loaded.load.as_ref().expect("a load");
    assert!(load.ran, "{load:?}");
    assert!(rounds.any(|round| round.disturbance.is_none()));
    for round in &evaluation.transfers {
        for watched in &round.watched {
            let interrupts = watched.detached.map(|counts| counts.interrupts);
            let expected =
                (watched.domain == "detached" && watched.invalid.is_empty()).then_some(0);
            assert!(
                interrupts == expected || !watched.invalid.is_empty(),
                "{watched:?}"
            );
        }
    }
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(
        shown.contains("CPUs of detached threads while they measured"),
        "{shown}"
    );

    // The positive control of its row, and what reaches the others.
    let by = "block:detached";
    let transferred = |by: &str, watched: &str| {
        let verdict = find_verdict(&evaluation.verdicts, Question::Transfer, watched, by);
        transfer_of(verdict)
    };
    let own = transferred(by, "detached");
    assert!((0.5..1.5).contains(&own), "{own}");
    for (by, watched) in [(by, "host"), ("block:host", "detached")] {
        let transfer = transferred(by, watched);
        assert!(transfer < 0.3, "{by} in {watched}: {transfer}");
    }
    let made = evaluation.transfers.iter().find_map(|round| {
        let is_it = |disturbance: &&_| ToString::to_string(disturbance) == by;
        round.disturbance.as_ref().filter(is_it)?;
        round.blocks.as_ref()
    });
    assert_eq!(made.expect("blocks").kind, BlockKind::Cell);

    let crash = evaluation.crash.as_ref().expect("a crash");
    assert!(crash.confirmed.is_some(), "{crash:?}");
    let witness = crash.witnesses.iter().find(|one| one.domain == "detached");
    let witness = witness.expect("a witness");
    assert_eq!(witness.signs, SignPath::Memory, "{witness:?}");
    assert!(
        witness.lived.expect("a sign of life").0 > 5_000_000_000,
        "{witness:?}"
    );
    let verdict = evaluation
        .verdicts
        .iter()
        .find(|verdict| verdict.id == "crash/detached/wakeup/crash:host");
    let verdict = verdict.expect("a verdict");
    assert_eq!(verdict.outcome, VerdictOutcome::Holds, "{verdict:?}");
}
