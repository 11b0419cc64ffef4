// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Three real-time guests and the host beside a guest under constant load, on a simulated machine with eight CPUs:
//! each real-time guest has its own CPU, and the loaded one floats over the others. `make test-long` runs it.

use std::collections::BTreeSet;
use std::time::Duration;

use rampart_model::{
    Accelerator, CpuId, Disturbance, Evaluation, EvaluationState, Question, VerdictOutcome,
};
use rampart_tests::limited::Limited as _;
use rampart_tests::programs::{Scratch, evaluation, machine, rampart, stdout};
use rampart_tests::verdicts::transfer_of;

const GUESTS: [&str; 3] = ["vm-1", "vm-2", "vm-3"];
const MEASURED: [&str; 4] = ["host", "vm-1", "vm-2", "vm-3"];

/// Share of a block that reaches its own domain: eight emulated CPUs with four guests share two real ones.
const MOST: f64 = 0.5;

#[test]
#[ignore = "it takes half an hour; make test-long runs it"]
fn three_real_time_guests_are_isolated_from_a_loaded_one() {
    let Some(_machine) = machine("three real-time guests", 2) else {
        return;
    };
    let scratch = Scratch::create();
    let output = rampart(
        &scratch.state,
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
            scratch.out(),
        ],
    )
    .finish_within(Duration::from_secs(3300), Vec::new())
    .expect("rampart starts");
    let _ = stdout(&output, 0);
    let evaluation = evaluation(&scratch.results);
    assert_eq!(evaluation.state, EvaluationState::Complete);
    assert!(
        evaluation
            .settings
            .findings
            .iter()
            .any(|finding| finding.location == "vm:noisy" && finding.what.contains("loaded")),
        "{:?}",
        evaluation.settings.findings
    );
    assert_measured(&evaluation);
    assert_only_own_blocks(&evaluation);
}

/// Checks that each guest runs under KVM, on its own CPU of the host.
fn assert_measured(evaluation: &Evaluation) {
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
            let cpu = cpu.unwrap_or_else(|| panic!("{id}: not pinned"));
            assert!(taken.insert(cpu), "{id}: shares CPU {cpu}");
        }
    }
    assert_eq!(taken, [5, 6, 7].map(CpuId).into());
}

/// Returns whether a disturbance blocks the CPU that the domain runs on.
fn is_own(made: &Disturbance, domain: &str) -> bool {
    [format!("block:{domain}"), format!("block:under:{domain}")].contains(&made.to_string())
}

/// Checks that each domain is affected only by blocks on its own CPU. With so many emulated CPUs, one row of the
/// matrix may lack its positive control; its verdicts are then inconclusive.
fn assert_only_own_blocks(evaluation: &Evaluation) {
    let mut controls = 0;
    for verdict in &evaluation.verdicts {
        let (Question::Transfer, Some(made)) = (verdict.question, &verdict.disturbance) else {
            continue;
        };
        if is_own(made, &verdict.domain) {
            let is_control = verdict.outcome == VerdictOutcome::Leaks;
            assert!(
                !is_control || transfer_of(verdict) > MOST,
                "{}",
                verdict.statement
            );
            controls += usize::from(is_control);
        } else {
            assert_ne!(
                verdict.outcome,
                VerdictOutcome::Leaks,
                "{made} in {}: {}",
                verdict.domain,
                verdict.statement
            );
        }
    }
    assert!(
        controls >= 3,
        "{controls} domains are affected by their own blocks"
    );
    for domain in MEASURED {
        let mut rounds = evaluation.transfers.iter();
        assert!(
            rounds.any(|round| {
                let made = round.disturbance.as_ref();
                round.invalid.is_empty()
                    && round.watched.len() == MEASURED.len()
                    && made.is_some_and(|made| is_own(made, domain))
            }),
            "no valid round with blocks in {domain}"
        );
    }
}
