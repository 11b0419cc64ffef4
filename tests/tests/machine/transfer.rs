// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Transfer of blocks on this machine, between domains with their own CPUs, and between two that share one. A
//! spinning thread makes the blocks if the module is not loaded.

use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use rampart_evaluate::{Evidence, TransferContext, VisitsByRecord, judge, measure_transfers};
use rampart_model::{
    BlockKind, CpuSet, Disturbance, DomainKind, DomainSelection, EvaluatedDomain, Evaluation,
    EvaluationSettings, EvaluationState, MeterKind, MeterSettings, Nanos, Participant, Question,
    SchedulingPolicy, TransferGroup, TransferRecord, TransferSettings, Verdict, VerdictOutcome,
};
use rampart_tests::inside::{is_inside, machine_for_inside, report_completion, run_inside};
use rampart_tests::limited::Limited as _;
use rampart_tests::machine_state::MachineState;
use rampart_tests::programs::{
    Scratch, directory, evaluation, last_cpu, rampart, stdout, usable_cpus,
};
use rampart_tests::verdicts::{find_verdict, transfer_of};

use crate::preferred::{machine, prefer_own_programs};

/// Set in the process of a test that needs a state directory of its own.
const IN_A_PROCESS: &str = "RAMPART_TEST_IN_A_PROCESS";

fn find<'a>(verdicts: &'a [Verdict], by: &str, domain: &str) -> &'a Verdict {
    find_verdict(verdicts, Question::Transfer, domain, by)
}

#[test]
fn blocks_affect_only_their_own_domain() {
    let Some(_machine) = machine("blocks_affect_only_their_own_domain", 2) else {
        return;
    };
    let scratch = Scratch::create();
    let before = MachineState::take();
    let output = rampart(
        &scratch.state,
        &[
            "evaluate",
            "--domains",
            "host,task",
            "--loads",
            "idle",
            "--disturb",
            "block:task",
            // A little more than the least for a round of blocks, and as much again, of which a third is enough for one.
            "--for",
            "26s",
            "--until-decided=52s",
            "--show-progress",
            "lines",
            "--out",
            scratch.out(),
        ],
    )
    .finish()
    .expect("rampart starts");
    let text = stdout(&output, 0);
    assert_eq!(
        before.differences(&MachineState::take()),
        Vec::<String>::new()
    );
    let evaluation = evaluation(&scratch.results);
    assert_eq!(evaluation.state, EvaluationState::Complete);
    check_rounds(&evaluation);
    assert_affects_only(&evaluation.verdicts, "task", "host");
    assert!(text.contains("block:task"), "{text}");
    assert_open_rounds_are_made_again(&evaluation);
}

/// Asserts that the blocks of a domain stop it, and not the other one.
fn assert_affects_only(verdicts: &[Verdict], domain: &str, other: &str) {
    let by = format!("block:{domain}");
    let control = find(verdicts, &by, domain);
    assert!(transfer_of(control) > 0.7, "{}", control.statement);
    let verdict = find(verdicts, &by, other);
    assert_ne!(
        verdict.outcome,
        VerdictOutcome::Leaks,
        "{}",
        verdict.statement
    );
    assert!(transfer_of(verdict) < 0.3, "{}", verdict.statement);
}

/// At the first of three looks "holds" takes 51 windows with a block, if none is late.
fn assert_open_rounds_are_made_again(evaluation: &Evaluation) {
    let is_by_blocks = |round: &&TransferRecord| round.disturbance.is_some();
    let rounds = evaluation.transfers.iter().filter(is_by_blocks);
    let mut blocks = rounds.map(|round| round.blocks.as_ref().map_or(0, |of| of.spans.len()));
    let first = blocks.next().expect("a round");
    assert!(
        first > 50 || blocks.count() > 0,
        "one round of {first} blocks"
    );
}

/// Checks that every round has its blocks and windows.
fn check_rounds(evaluation: &Evaluation) {
    let ids: Vec<&str> = evaluation
        .transfers
        .iter()
        .map(|round| round.id.as_str())
        .collect();
    assert_eq!(ids[..2], ["quiet/0/0", "block:task/0/0"]);
    for round in &evaluation.transfers {
        assert!(
            round.invalid.is_empty(),
            "{}: {:?}",
            round.id,
            round.invalid
        );
        assert_eq!(round.watched.len(), 2, "{}", round.id);
        let made = round.blocks.as_ref().map_or(0, |blocks| blocks.spans.len());
        assert_eq!(made > 8, round.disturbance.is_some(), "{}", round.id);
        for watched in &round.watched {
            assert!(watched.invalid.is_empty(), "{:?}", watched.invalid);
            assert!(watched.seen.samples > 1000, "{}", watched.seen.samples);
            let held = watched
                .windows
                .iter()
                .filter(|window| window.block.is_some());
            assert_eq!(held.count(), made, "{} in {}", round.id, watched.domain);
            let quiet = watched
                .windows
                .iter()
                .filter(|window| window.block.is_none());
            assert!(made == 0 || quiet.count() > 8, "{}", round.id);
        }
    }
    assert_eq!(evaluation.runs.0, evaluation.runs.1);
}

/// Returns a domain on these CPUs.
fn domain(kind: DomainKind, cpus: &CpuSet) -> EvaluatedDomain {
    EvaluatedDomain {
        policy: None,
        deadline: None,
        name: kind.word().to_owned(),
        selection: DomainSelection::of(kind),
        cpus: cpus.clone(),
        description: String::new(),
    }
}

/// Makes rounds of host and task with blocks of the host, and judges them.
fn rounds_with_blocks_of_the_host(
    host: &CpuSet,
    task: &CpuSet,
) -> (Vec<TransferRecord>, rampart_evaluate::Judged) {
    let location = tempfile::tempdir().expect("a directory");
    let domains = vec![
        domain(DomainKind::Host, host),
        domain(DomainKind::Task, task),
    ];
    let participants = domains.iter().map(|domain| Participant {
        domain: domain.name.clone(),
        cpus: domain.cpus.clone(),
    });
    let by: Disturbance = "block:host".parse().expect("a disturbance");
    let plan = TransferSettings {
        groups: vec![TransferGroup {
            participants: participants.collect(),
            disturbances: vec![by],
        }],
        interval: Nanos::from_millis(1),
        policy: SchedulingPolicy::Fifo(80),
        quiet: Nanos::from_secs(2),
        loaded: Nanos::from_secs(4),
        blocks: 30,
        block_factor: 5,
        shortest_block: Nanos::from_millis(10),
        findings: Vec::new(),
    };
    let context = TransferContext {
        meter: &directory().join("rampart-meter"),
        housekeeping: host,
        scratch: location.path(),
        seed: 1,
    };
    let made = measure_transfers(
        &plan,
        &domains,
        &context,
        &mut |_| {},
        &AtomicBool::new(false),
    );
    for round in &made {
        assert!(
            round.invalid.is_empty(),
            "{}: {:?}",
            round.id,
            round.invalid
        );
    }
    let judged = judge(&Evidence {
        settings: &experiment(domains, host.clone(), plan),
        records: &[],
        visits: &VisitsByRecord::new(),
        transfers: &made,
        emulated: false,
    });
    (made, judged)
}

/// Runs in a process of its own, because the isolation has its journal in the state directory of the process.
#[test]
fn blocks_of_the_host_do_not_affect_an_isolated_task() {
    if std::env::var_os(IN_A_PROCESS).is_some() {
        let task = last_cpu();
        let host = usable_cpus().iter().find(|cpu| *cpu != task);
        let host = CpuSet::single(host.expect("another CPU"));
        let (made, judged) = rounds_with_blocks_of_the_host(&host, &CpuSet::single(task));
        for watched in made.iter().flat_map(|round| &round.watched) {
            assert!(watched.invalid.is_empty(), "{:?}", watched.invalid);
        }
        assert_affects_only(&judged.verdicts, "host", "task");
        return;
    }
    let Some(_machine) = machine("blocks_of_the_host_do_not_affect_an_isolated_task", 2) else {
        return;
    };
    let scratch = Scratch::create();
    let before = MachineState::take();
    let output = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "--nocapture"])
        .arg("transfer::blocks_of_the_host_do_not_affect_an_isolated_task")
        .env(IN_A_PROCESS, "1")
        .env("RAMPART_STATE_DIR", &scratch.state)
        .finish()
        .expect("this program starts");
    let text = stdout(&output, 0);
    assert!(text.contains("1 passed"), "{text}");
    assert_eq!(
        before.differences(&MachineState::take()),
        Vec::<String>::new()
    );
}

/// The meter of the "task" runs on the host's CPU, so the task is not isolated.
#[test]
fn detects_a_planted_isolation_leak() {
    let Some(_machine) = machine("detects_a_planted_isolation_leak", 1) else {
        return;
    };
    let cpu = CpuSet::single(last_cpu());
    // Without another CPU for housekeeping the task gets no shield.
    let (made, judged) = rounds_with_blocks_of_the_host(&cpu, &cpu);
    // The module is loaded only there.
    if is_inside() {
        let kinds: Vec<BlockKind> = made
            .iter()
            .filter_map(|round| Some(round.blocks.as_ref()?.kind))
            .collect();
        assert_eq!(kinds, [BlockKind::Module]);
    }
    let verdict = find(&judged.verdicts, "block:host", "task");
    assert_eq!(
        verdict.outcome,
        VerdictOutcome::Leaks,
        "{}",
        verdict.statement
    );
    assert!(transfer_of(verdict) > 0.6, "{}", verdict.statement);
    let isolation = &judged.comparison.rows[2];
    assert_eq!(isolation.entries[1].answer, "not isolated", "{isolation:?}");
    if is_inside() {
        report_completion();
    }
}

#[test]
fn detects_a_planted_isolation_leak_on_a_real_time_kernel() {
    let Some(_machine) = machine_for_inside("a planted leak on a real-time kernel") else {
        return;
    };
    prefer_own_programs();
    run_inside(
        "transfer::detects_a_planted_isolation_leak",
        &["--cpus", "3"],
        Duration::from_secs(200),
    );
}

fn experiment(
    domains: Vec<EvaluatedDomain>,
    housekeeping: CpuSet,
    transfer: TransferSettings,
) -> EvaluationSettings {
    EvaluationSettings {
        measured: None,
        variants: Vec::new(),
        housekeeping,
        domains,
        meters: vec![MeterSettings::new(MeterKind::Wakeup, CpuSet::new())],
        conditions: Vec::new(),
        repetitions: 1,
        run_duration: Nanos::SECOND,
        deadline: Nanos::SECOND,
        until_decided: None,
        look: 2,
        deadline_from_user: false,
        total: Nanos::SECOND,
        seed: 1,
        transfer: Some(transfer),
        findings: Vec::new(),
    }
}
