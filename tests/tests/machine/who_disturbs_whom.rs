// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The walls of a simulated real-time machine, by the command that a user gives: one evaluation
//! with host, task, container and a KVM guest, blocks in each, and a crash at the end.
//! Where its walls are is known, so the document must find them there.

use std::time::Duration;

use rampart_model::{
    Bench, BlockKind, Evaluation, EvaluationState, Question, Verdict, VerdictFigures,
    VerdictOutcome,
};
use rampart_tests::limited::Limited as _;
use rampart_tests::programs::{evaluation, machine, rampart, stdout};

const DOMAINS: [&str; 4] = ["host", "task", "container", "vm"];

/// What most of a block is: the part of it that a sleeping thread sees lies between the block less
/// a period and all of it.
const MOST: f64 = 0.7;
/// What does not cross may still slow down an emulator whose CPUs share two real ones.
const LITTLE: f64 = 0.2;

fn verdict<'a>(
    evaluation: &'a Evaluation,
    question: Question,
    domain: &str,
    disturbance: &str,
) -> &'a Verdict {
    evaluation
        .verdicts
        .iter()
        .find(|verdict| {
            verdict.question == question
                && verdict.domain == domain
                && verdict
                    .disturbance
                    .as_ref()
                    .is_some_and(|done| done.to_string() == disturbance)
        })
        .unwrap_or_else(|| panic!("no verdict on {disturbance} in {domain}"))
}

fn transfer(verdict: &Verdict) -> f64 {
    match &verdict.figures {
        Some(VerdictFigures::Transfer { transfer, .. }) => transfer.estimate,
        other => panic!("{}: {other:?}: {}", verdict.id, verdict.statement),
    }
}

fn is_simulated(evaluation: &Evaluation) {
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
    assert!(!judged, "emulated times meet no deadline and miss none");
}

fn blocks_stop_where_the_walls_are(evaluation: &Evaluation) {
    for domain in DOMAINS {
        let own = verdict(
            evaluation,
            Question::Transfer,
            domain,
            &format!("block:{domain}"),
        );
        assert!(transfer(own) > MOST, "{}: {}", own.id, own.statement);
    }
    // The host's kernel stops the CPU under the guest: no wall in that direction.
    let under = verdict(evaluation, Question::Transfer, "vm", "block:under:vm");
    assert!(transfer(under) > MOST, "{}: {}", under.id, under.statement);
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
                transfer(other) < LITTLE,
                "{}: {}",
                other.id,
                other.statement
            );
            assert_ne!(other.outcome, VerdictOutcome::Leaks, "{}", other.statement);
        }
    }
}

/// The module's blocks, of a length that follows from what was measured, and felt where they are
/// made by the kernel's own account.
fn blocks_are_the_modules(evaluation: &Evaluation) {
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
    assert!(rounds >= 5, "{rounds} rounds of blocks count");
}

/// Loads ran where they were meant to, the one in the guest by its own account, and every other
/// domain has a verdict with figures.
fn loads_ran(evaluation: &Evaluation) {
    for (disturbance, watched) in [
        ("cache:host", ["task", "container", "vm"]),
        ("cache:vm", ["host", "task", "container"]),
    ] {
        let rounds: Vec<_> = evaluation
            .transfers
            .iter()
            .filter(|round| round.invalid.is_empty())
            .filter(|round| {
                round
                    .disturbance
                    .as_ref()
                    .is_some_and(|done| done.to_string() == disturbance)
            })
            .collect();
        assert!(!rounds.is_empty(), "no round of {disturbance} counts");
        for round in rounds {
            let load = round.load.as_ref().expect("the load is told");
            assert!(
                load.ran && !load.stressors.is_empty(),
                "{}: {load:?}",
                round.id
            );
        }
        for domain in watched {
            let judged = verdict(evaluation, Question::Interference, domain, disturbance);
            assert!(
                judged.figures.is_some(),
                "{}: {}",
                judged.id,
                judged.statement
            );
        }
    }
}

fn all_die_with_the_host(evaluation: &Evaluation) {
    let crash = evaluation.crash.as_ref().expect("the host was crashed");
    assert!(crash.confirmed.is_some(), "{crash:?}");
    for domain in DOMAINS {
        let witness = crash
            .witnesses
            .iter()
            .find(|witness| witness.domain == domain)
            .unwrap_or_else(|| panic!("no witness {domain}: {crash:?}"));
        let lived = witness.lived.expect("it measured").0;
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

/// Docker-style container and KVM columns, every cell with what it rests on.
fn the_comparison_is_filled(evaluation: &Evaluation) {
    assert_eq!(evaluation.comparison.rows.len(), 4);
    for row in &evaluation.comparison.rows {
        for domain in ["container", "vm"] {
            let cell = row
                .cells
                .iter()
                .find(|cell| cell.domain == domain)
                .unwrap_or_else(|| panic!("{}: no cell for {domain}", row.question));
            assert_ne!(cell.answer, "not measured", "{}: {cell:?}", row.question);
            assert!(!cell.verdicts.is_empty(), "{}: {cell:?}", row.question);
            for id in &cell.verdicts {
                let known = evaluation.verdicts.iter().any(|verdict| verdict.id == *id);
                assert!(known, "{}: {id} is no verdict", row.question);
            }
        }
    }
}

fn the_guest_is_told(evaluation: &Evaluation) {
    let runs = evaluation
        .records
        .iter()
        .filter(|record| record.domain == "vm")
        .flat_map(|record| &record.runs);
    let guest = runs
        .filter_map(|run| run.guest.as_ref())
        .next()
        .expect("a run of the guest has its report");
    assert_eq!(guest.accelerator, rampart_model::Accelerator::Kvm);
    assert!(guest.kernel.contains("-rt-"), "{}", guest.kernel);
    assert!(
        !guest.knobs.is_empty() && !guest.clock.is_empty(),
        "{guest:?}"
    );
}

#[test]
fn finds_the_isolation_of_a_simulated_machine() {
    let test = "finds_the_isolation_of_a_simulated_machine";
    let Some(_machine) = machine(test, 2) else {
        return;
    };
    let location = tempfile::tempdir().expect("a directory");
    let (state, results) = (
        location.path().join("state"),
        location.path().join("results"),
    );
    let output = rampart(
        &state,
        &[
            "evaluate",
            "--on",
            "sim",
            "--for",
            "135s",
            "--loads",
            "idle",
            "--disturb",
            "block,cache:host,cache:vm,crash:host",
            "--show-progress",
            "lines",
            "--out",
            results.to_str().expect("a path in UTF-8"),
        ],
    )
    .finish_within(Duration::from_secs(840), Vec::new())
    .expect("rampart starts");
    let text = stdout(&output, 0);
    let evaluation = evaluation(&results);
    assert_eq!(evaluation.state, EvaluationState::Complete);
    is_simulated(&evaluation);
    blocks_stop_where_the_walls_are(&evaluation);
    blocks_are_the_modules(&evaluation);
    loads_ran(&evaluation);
    all_die_with_the_host(&evaluation);
    the_comparison_is_filled(&evaluation);
    the_guest_is_told(&evaluation);
    assert!(text.contains("simulated"), "{text}");
    assert!(results.join("report.html").is_file());
}
