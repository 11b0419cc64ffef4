// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What takes too long for `make test`; `make test-long` runs it.
//!
//! Three real-time guests and the host beside a guest that is loaded all the time: on a simulated
//! machine with eight CPUs each of them has one for itself, and the loaded one floats over the rest.

use std::collections::BTreeSet;
use std::time::Duration;

use rampart_model::{
    Accelerator, CpuId, Disturbance, Evaluation, EvaluationState, Question, Verdict,
    VerdictFigures, VerdictOutcome,
};
use rampart_tests::limited::Limited as _;
use rampart_tests::programs::{evaluation, machine, rampart, stdout};

const GUESTS: [&str; 3] = ["vm-1", "vm-2", "vm-3"];
const MEASURED: [&str; 4] = ["host", "vm-1", "vm-2", "vm-3"];

/// What most of a block is where eight emulated CPUs, four guests in them, share two real ones.
const MOST: f64 = 0.5;

#[test]
#[ignore = "it takes half an hour; make test-long runs it"]
fn three_real_time_guests_are_isolated_from_a_loaded_one() {
    let Some(_machine) = machine("three_real_time_guests_are_apart", 2) else {
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
            "--sim-cpus",
            "8",
            "--sim-real-time-cpus",
            "5-7",
            "--sim-memory",
            "4096",
            "--domains",
            "host,vm,vm,vm,vm:noisy",
            "--loads",
            "idle",
            "--disturb",
            "block",
            "--for",
            "3m",
            "--show-progress",
            "lines",
            "--out",
            results.to_str().expect("a path in UTF-8"),
        ],
    )
    .finish_within(Duration::from_secs(3300), Vec::new())
    .expect("rampart starts");
    let _ = stdout(&output, 0);
    let evaluation = evaluation(&results);
    assert_eq!(evaluation.state, EvaluationState::Complete);
    let neighbour = |location: &str| location == "vm:noisy";
    assert!(
        evaluation
            .plan
            .findings
            .iter()
            .any(|finding| neighbour(&finding.location) && finding.what.contains("loaded")),
        "{:?}",
        evaluation.plan.findings
    );
    all_are_measured(&evaluation);
    each_is_stopped_by_its_own_blocks_alone(&evaluation);
}

/// Each guest by KVM, with a CPU of the host's that no other has.
fn all_are_measured(evaluation: &Evaluation) {
    let mut taken: BTreeSet<CpuId> = BTreeSet::new();
    for domain in MEASURED {
        let id = format!("{domain}/wakeup/idle");
        let record = evaluation.record(&id).expect("a record");
        assert!(record.exposure.samples > 0, "{id}");
        if !GUESTS.contains(&domain) {
            continue;
        }
        let guest = record.runs.iter().find_map(|run| run.guest.as_ref());
        let guest = guest.unwrap_or_else(|| panic!("{id}: no guest"));
        assert_eq!(guest.accelerator, Accelerator::Kvm, "{id}");
        assert!(guest.kernel.contains("-rt-"), "{}", guest.kernel);
        for cpu in guest.pinned.iter().skip(1) {
            let cpu = cpu.unwrap_or_else(|| panic!("{id}: it floats"));
            assert!(taken.insert(cpu), "{id}: {cpu} is another's, too");
        }
    }
    assert_eq!(taken, [5, 6, 7].map(CpuId).into());
}

/// Whether the blocks of that disturbance are made on the CPU that the domain runs on.
fn is_at_home(done: &Disturbance, domain: &str) -> bool {
    [format!("block:{domain}"), format!("block:under:{domain}")].contains(&done.to_string())
}

fn transfer(verdict: &Verdict) -> f64 {
    match &verdict.figures {
        Some(VerdictFigures::Transfer { transfer, .. }) => transfer.estimate,
        other => panic!("{}: {other:?}: {}", verdict.id, verdict.statement),
    }
}

/// Where so much is emulated by so few CPUs, one of the rows may be without its control: then it
/// decides nothing, and says so.
fn each_is_stopped_by_its_own_blocks_alone(evaluation: &Evaluation) {
    let mut controls = 0;
    for verdict in &evaluation.verdicts {
        let (Question::Transfer, Some(done)) = (verdict.question, &verdict.disturbance) else {
            continue;
        };
        if is_at_home(done, &verdict.domain) {
            let felt = verdict.outcome == VerdictOutcome::Leaks;
            assert!(!felt || transfer(verdict) > MOST, "{}", verdict.statement);
            controls += usize::from(felt);
        } else {
            assert_ne!(
                verdict.outcome,
                VerdictOutcome::Leaks,
                "{done} in {}: {}",
                verdict.domain,
                verdict.statement
            );
        }
    }
    assert!(controls >= 3, "{controls} domains feel their own blocks");
    for domain in MEASURED {
        let mut rounds = evaluation.transfers.iter();
        assert!(
            rounds.any(|round| {
                let done = round.disturbance.as_ref();
                round.invalid.is_empty()
                    && round.watched.len() == MEASURED.len()
                    && done.is_some_and(|done| is_at_home(done, domain))
            }),
            "no round with blocks in {domain} counts"
        );
    }
}
