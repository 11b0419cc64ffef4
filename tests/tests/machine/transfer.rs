// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who disturbs whom on this machine: real blocks, by the spinning kind where the module is not
//! loaded, between domains that have CPUs of their own, and between two that in truth share one.

use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use rampart_evaluate::{BatchesByRecord, Evidence, TransferContext, judge, measure_transfers};
use rampart_model::{
    BlockKind, CpuSet, Disturbance, DomainKind, DomainSelection, EvaluatedDomain, Evaluation,
    EvaluationSettings, EvaluationState, MeterKind, MeterSettings, Nanos, Participant, Question,
    SchedulingPolicy, TransferGroup, TransferSettings, Verdict, VerdictFigures, VerdictOutcome,
};
use rampart_tests::limited::Limited as _;
use rampart_tests::machine_state::MachineState;
use rampart_tests::programs::{
    directory, evaluation, machine, rampart, starts_inside, stdout, usable_cpus,
};

fn find<'a>(verdicts: &'a [Verdict], by: &str, domain: &str) -> &'a Verdict {
    verdicts
        .iter()
        .find(|verdict| {
            let done = verdict.disturbance.as_ref().map(ToString::to_string);
            verdict.question == Question::Transfer
                && verdict.domain == domain
                && done.as_deref() == Some(by)
        })
        .unwrap_or_else(|| panic!("no verdict on {by} in {domain}: {verdicts:#?}"))
}

fn transfer_of(verdict: &Verdict) -> f64 {
    match &verdict.figures {
        Some(VerdictFigures::Transfer { transfer, .. }) => transfer.estimate,
        other => panic!("{other:?}: {}", verdict.statement),
    }
}

/// Own blocks are felt, and the blocks of the other CPU are not.
#[test]
fn blocks_affect_only_their_own_domain() {
    let Some(_machine) = machine("blocks_affect_only_their_own_domain", 2) else {
        return;
    };
    let location = tempfile::tempdir().expect("a directory");
    let (state, results) = (
        location.path().join("state"),
        location.path().join("results"),
    );
    let before = MachineState::take();
    let output = rampart(
        &state,
        &[
            "evaluate",
            "--domains",
            "host,task",
            "--disturb",
            "block",
            "--for",
            "40s",
            "--show-progress",
            "lines",
            "--out",
            results.to_str().expect("a path in UTF-8"),
        ],
    )
    .finish()
    .expect("rampart starts");
    let text = stdout(&output, 0);
    assert_eq!(
        before.differences(&MachineState::take()),
        Vec::<String>::new()
    );
    let evaluation = evaluation(&results);
    assert_eq!(evaluation.state, EvaluationState::Complete);
    check_rounds(&evaluation);
    for domain in ["host", "task"] {
        let own = format!("block:{domain}");
        let control = find(&evaluation.verdicts, &own, domain);
        assert!(transfer_of(control) > 0.7, "{}", control.statement);
    }
    for (by, domain) in [("block:host", "task"), ("block:task", "host")] {
        let verdict = find(&evaluation.verdicts, by, domain);
        assert_ne!(
            verdict.outcome,
            VerdictOutcome::Leaks,
            "{}",
            verdict.statement
        );
        assert!(transfer_of(verdict) < 0.3, "{}", verdict.statement);
    }
    assert!(text.contains("block:task"), "{text}");
}

/// Every round is kept with what it rests on.
fn check_rounds(evaluation: &Evaluation) {
    let ids: Vec<&str> = evaluation
        .transfers
        .iter()
        .map(|round| round.id.as_str())
        .collect();
    assert_eq!(ids.len(), 3, "{ids:?}");
    assert_eq!(ids[0], "quiet/0/0");
    assert!(ids.contains(&"block:host/0/0") && ids.contains(&"block:task/0/0"));
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

/// A "task" whose meter in truth runs on the host's CPU, among the domains as if it had its own.
#[test]
fn detects_a_planted_isolation_leak() {
    let Some(_machine) = machine("detects_a_planted_isolation_leak", 1) else {
        return;
    };
    let cpu = CpuSet::single(usable_cpus().iter().next_back().expect("a CPU"));
    let location = tempfile::tempdir().expect("a directory");
    let domain = |name: &str, kind: DomainKind| EvaluatedDomain {
        policy: None,
        deadline: None,
        name: name.to_owned(),
        selection: DomainSelection::of(kind),
        cpus: cpu.clone(),
        description: String::new(),
    };
    let domains = vec![
        domain("host", DomainKind::Host),
        domain("task", DomainKind::Task),
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
    // The same CPU for housekeeping: so the task stands without a shield.
    let context = TransferContext {
        meter: &directory().join("rampart-meter"),
        housekeeping: &cpu,
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
    if std::env::var_os(WITH_MODULE).is_some() {
        let kinds: Vec<BlockKind> = made
            .iter()
            .filter_map(|round| Some(round.blocks.as_ref()?.kind))
            .collect();
        assert_eq!(kinds, [BlockKind::Module]);
    }
    let judged = judge(&Evidence {
        plan: &experiment(domains, cpu, plan),
        records: &[],
        batches: &BatchesByRecord::new(),
        transfers: &made,
        emulated: false,
    });
    let verdict = find(&judged.verdicts, "block:host", "task");
    assert_eq!(
        verdict.outcome,
        VerdictOutcome::Leaks,
        "{}",
        verdict.statement
    );
    assert!(transfer_of(verdict) > 0.6, "{}", verdict.statement);
    let isolation = &judged.comparison.rows[2];
    assert_eq!(isolation.cells[1].answer, "not isolated", "{isolation:?}");
}

/// Set where the module has to make the blocks.
const WITH_MODULE: &str = "RAMPART_TEST_WITH_MODULE";

/// This very test program, carried into the simulated machine. Its CPUs but the first are kept
/// free for real-time work, so the program is told that it may use them.
const IN_THE_MACHINE: &str = "set -e; cd \"$(mktemp -d)\"; tar -x; chmod +x machine-*; \
    RAMPART_BIN=$PWD RAMPART_TEST_WITH_MODULE=1 timeout 200 taskset -c 0-2 ./machine-* \
    --exact transfer::detects_a_planted_isolation_leak --nocapture";

#[test]
fn detects_a_planted_isolation_leak_on_a_real_time_kernel() {
    let name = "detects_a_planted_isolation_leak_on_a_real_time_kernel";
    if !starts_inside(name) {
        return;
    }
    let Some(_machine) = machine(name, 2) else {
        return;
    };
    let ourselves = std::env::current_exe().expect("this program");
    let archive = Command::new("tar")
        .args(["-c", "-C"])
        .arg(directory())
        .args(["rampart", "rampart-meter", "-C"])
        .arg(ourselves.parent().expect("a directory"))
        .arg(ourselves.file_name().expect("a name"))
        .finish()
        .expect("tar starts");
    assert!(archive.status.success(), "{archive:?}");
    let output = Command::new(directory().join("rampart"))
        .args(["sim", "run", "--own", "--cpus", "3", "--", "sh", "-c"])
        .arg(IN_THE_MACHINE)
        .env_remove("RAMPART_METER")
        .finish_within(Duration::from_secs(280), archive.stdout)
        .expect("rampart starts");
    let text = stdout(&output, 0);
    assert!(text.contains("1 passed"), "{text}");
    assert!(!text.contains("left out"), "{text}");
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
        deadline_from_user: false,
        total: Nanos::SECOND,
        seed: 1,
        transfer: Some(transfer),
        findings: Vec::new(),
    }
}
