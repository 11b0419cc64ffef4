// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The isolation of a simulated real-time machine: one evaluation with host, task, container and a KVM guest,
//! blocks in each, and a crash at the end. The isolation of that machine is known, so the verdicts must agree.

use std::time::Duration;

use rampart_model::{
    Bench, BlockKind, Evaluation, EvaluationState, Question, Verdict, VerdictOutcome,
};
use rampart_tests::limited::Limited as _;
use rampart_tests::programs::{Scratch, evaluation, rampart, stdout};
use rampart_tests::verdicts::{find_verdict, transfer_of};

use crate::preferred::simulated_machine;

const DOMAINS: [&str; 4] = ["host", "task", "container", "vm"];

/// Share of a block that reaches its own domain: a sleeping thread sees the block less at most a period.
const MOST: f64 = 0.7;
/// Share that may appear in an isolated domain: the emulated CPUs share two real ones.
const LITTLE: f64 = 0.2;

fn verdict<'a>(
    evaluation: &'a Evaluation,
    question: Question,
    domain: &str,
    disturbance: &str,
) -> &'a Verdict {
    find_verdict(&evaluation.verdicts, question, domain, disturbance)
}

fn assert_simulated(evaluation: &Evaluation) {
    assert!(
        matches!(&evaluation.bench, Bench::Sim { kernel, packages, .. }
            if kernel.contains("-rt-") && packages.len() > 20),
        "{:?}",
        evaluation.bench
    );
    assert!(evaluation.machine.virtualisation.emulated);
    let judged = evaluation.verdicts.iter().any(|verdict| {
        verdict.question == Question::Deadline && verdict.outcome != VerdictOutcome::Inconclusive
    });
    assert!(!judged, "a deadline is judged on an emulated machine");
}

fn assert_isolation(evaluation: &Evaluation) {
    for domain in DOMAINS {
        let own = verdict(
            evaluation,
            Question::Transfer,
            domain,
            &format!("block:{domain}"),
        );
        assert!(transfer_of(own) > MOST, "{}: {}", own.id, own.statement);
    }
    // A guest is not isolated from its host's kernel, which can stop the CPU.
    let under = verdict(evaluation, Question::Transfer, "vm", "block:under:vm");
    assert!(
        transfer_of(under) > MOST,
        "{}: {}",
        under.id,
        under.statement
    );
    assert_eq!(under.outcome, VerdictOutcome::Leaks, "{}", under.statement);

    for (disturbance, watched) in [
        ("block:host", ["task", "container", "vm"].as_slice()),
        ("block:task", &["host", "container", "vm"]),
        ("block:container", &["host", "task", "vm"]),
        ("block:vm", &["host", "task", "container"]),
        ("block:under:vm", &["host", "task", "container"]),
    ] {
        for domain in watched {
            let other = verdict(evaluation, Question::Transfer, domain, disturbance);
            assert!(
                transfer_of(other) < LITTLE,
                "{}: {}",
                other.id,
                other.statement
            );
            assert_ne!(other.outcome, VerdictOutcome::Leaks, "{}", other.statement);
        }
    }
}

/// Checks that the module made the blocks, each as long as planned.
fn assert_module_blocks(evaluation: &Evaluation) {
    let mut rounds = 0;
    for round in evaluation
        .transfers
        .iter()
        .filter(|round| round.invalid.is_empty())
    {
        let Some(blocks) = &round.blocks else {
            continue;
        };
        rounds += 1;
        assert_eq!(blocks.kind, BlockKind::Module, "{}", round.id);
        assert!(
            blocks.spans.len() >= 8,
            "{}: {} blocks",
            round.id,
            blocks.spans.len()
        );
        for span in &blocks.spans {
            assert!(span.end.0 - span.start.0 >= blocks.length.0, "{span:?}");
        }
    }
    assert!(rounds >= 5, "{rounds} valid rounds of blocks");
}

/// Checks that the load in the guest ran, and that every other domain has a verdict with figures.
fn assert_load_in_the_guest(evaluation: &Evaluation) {
    let by = "cache:vm";
    let rounds: Vec<_> = evaluation
        .transfers
        .iter()
        .filter(|round| round.invalid.is_empty())
        .filter(|round| {
            let disturbance = round.disturbance.as_ref();
            disturbance.is_some_and(|made| made.to_string() == by)
        })
        .collect();
    assert!(!rounds.is_empty(), "no valid round of {by}");
    for round in rounds {
        let load = round.load.as_ref().expect("the report of the load");
        assert!(
            load.ran && !load.stressors.is_empty(),
            "{}: {load:?}",
            round.id
        );
    }
    for domain in ["host", "task", "container"] {
        let judged = verdict(evaluation, Question::Interference, domain, by);
        assert!(
            judged.figures.is_some(),
            "{}: {}",
            judged.id,
            judged.statement
        );
    }
}

fn assert_all_end_with_the_host(evaluation: &Evaluation) {
    let crash = evaluation.crash.as_ref().expect("a crash");
    assert!(crash.confirmed.is_some(), "{crash:?}");
    for domain in DOMAINS {
        let witness = crash
            .witnesses
            .iter()
            .find(|witness| witness.domain == domain)
            .unwrap_or_else(|| panic!("no witness {domain}: {crash:?}"));
        let lived = witness.lived.expect("a last sign of life").0;
        assert!(lived <= 2_000_000_000, "{witness:?}");
        let verdict = evaluation
            .verdicts
            .iter()
            .find(|verdict| verdict.question == Question::Crash && verdict.domain == domain)
            .unwrap_or_else(|| panic!("no verdict on the crash in {domain}"));
        assert_eq!(
            verdict.outcome,
            VerdictOutcome::Fails,
            "{}",
            verdict.statement
        );
    }
}

/// Checks that every entry of the columns for container and guest has an answer with its verdicts.
fn assert_comparison(evaluation: &Evaluation) {
    assert_eq!(evaluation.comparison.rows.len(), 4);
    for row in &evaluation.comparison.rows {
        for domain in ["container", "vm"] {
            let entry = row
                .entries
                .iter()
                .find(|entry| entry.domain == domain)
                .unwrap_or_else(|| panic!("{}: no entry for {domain}", row.question));
            assert_ne!(entry.answer, "not measured", "{}: {entry:?}", row.question);
            assert!(!entry.verdicts.is_empty(), "{}: {entry:?}", row.question);
            for id in &entry.verdicts {
                let known = evaluation.verdicts.iter().any(|verdict| verdict.id == *id);
                assert!(known, "{}: {id} is no verdict", row.question);
            }
        }
    }
}

fn assert_guest(evaluation: &Evaluation) {
    let runs = evaluation
        .records
        .iter()
        .filter(|record| record.domain == "vm")
        .flat_map(|record| &record.runs);
    let guest = runs
        .filter_map(|run| run.guest.as_ref())
        .next()
        .expect("the report of a guest");
    assert_eq!(guest.accelerator, rampart_model::Accelerator::Kvm);
    assert!(guest.kernel.contains("-rt-"), "{}", guest.kernel);
    assert!(
        !guest.knobs.is_empty() && !guest.clock.is_empty(),
        "{guest:?}"
    );
}

#[test]
fn finds_the_isolation_of_a_simulated_machine() {
    let _machine = simulated_machine();
    let scratch = Scratch::create();
    let output = rampart(
        &scratch.state,
        &[
            "evaluate",
            "--on",
            "sim",
            "--for",
            "112s",
            "--domains",
            "host,task,container,vm",
            "--loads",
            "idle",
            "--disturb",
            "block,cache:vm,crash:host",
            "--show-progress",
            "lines",
            "--out",
            scratch.out(),
        ],
    )
    .finish_within(Duration::from_secs(840), Vec::new())
    .expect("rampart starts");
    let text = stdout(&output, 0);
    let evaluation = evaluation(&scratch.results);
    assert_eq!(evaluation.state, EvaluationState::Complete);
    assert_simulated(&evaluation);
    assert_isolation(&evaluation);
    assert_module_blocks(&evaluation);
    assert_load_in_the_guest(&evaluation);
    assert_all_end_with_the_host(&evaluation);
    assert_comparison(&evaluation);
    assert_guest(&evaluation);
    assert!(text.contains("simulated"), "{text}");
    assert!(scratch.results.join("report.html").is_file());
}
