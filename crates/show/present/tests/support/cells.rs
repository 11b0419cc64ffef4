// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An invented evaluation with cells on a simulated arm64 machine: who disturbs whom, how often cells come
//! to the hypervisor, and that they outlive the host.

use rampart_model::{
    Bench, BlockKind, CellExitReport, CellExits, CellPayload, CrashRecord, CrashWitness,
    DisturbanceKind, DomainKind, DomainSelection, EvaluatedDomain, Evaluation, Finding, LoadKind,
    MeterKind, Nanos, Participant, RecordedAfter, Severity, SignForm, SignInMemory, SignPath,
    SignedNanos, TransferGroup, TransferSettings,
};

use super::{IDLE, Scenario, cpus, domain, guest, judged, transfers};

pub(crate) fn cells() -> Evaluation {
    let domains = domains();
    let mut evaluation = Scenario {
        housekeeping: cpus("0"),
        domains: domains.clone(),
        conditions: vec![IDLE],
        meters: vec![MeterKind::Wakeup],
        repetitions: 2,
        run_duration: Nanos::from_millis(1_500),
        interval: Nanos::from_millis(4),
        deadline: Nanos::from_millis(4),
        slowness: 90.0,
        made: 8,
        seed: 33,
    }
    .evaluation();
    simulate(&mut evaluation);
    disturb(&mut evaluation, &domains);
    report_exits(&mut evaluation);
    evaluation.crash = Some(crash());
    judged::judge(&mut evaluation);
    judged::compare(&mut evaluation);
    evaluation
}

fn domains() -> Vec<EvaluatedDomain> {
    let cell = |name: &str, on: &str, payload, description: &str| {
        let mut plan = domain(name, DomainKind::Cell, on, description);
        plan.selection = DomainSelection {
            cell: Some(payload),
            ..DomainSelection::of(DomainKind::Cell)
        };
        plan
    };
    vec![
        domain(
            "host",
            DomainKind::Host,
            "0",
            "a plain real-time thread on CPU 0",
        ),
        domain(
            "task",
            DomainKind::Task,
            "1",
            "a process in an isolated partition of CPU 1",
        ),
        cell(
            "cell",
            "2",
            CellPayload::BareMetal,
            "the measuring loops without an operating system on CPU 2",
        ),
        cell(
            "cell:linux",
            "3",
            CellPayload::Linux,
            "Linux 6.1.0-56-rt-arm64 on CPU 3",
        ),
    ]
}

fn simulate(evaluation: &mut Evaluation) {
    let package = |name: &str, version: &str| (name.to_owned(), version.to_owned());
    evaluation.bench = Bench::Sim {
        emulator: "QEMU 7.2.22 (TCG)".to_owned(),
        kernel: "6.1.0-56-rt-arm64".to_owned(),
        packages: vec![package("linux-image-6.1.0-56-rt-arm64", "6.1.148-1")],
    };
    evaluation.command = ["rampart", "evaluate", "--on", "sim:aarch64"]
        .map(str::to_owned)
        .to_vec();
    evaluation.not_measured.clear();
    evaluation.availability.retain(|one| one.available);
    let machine = &mut evaluation.machine;
    machine.host_name = "rampart-sim".to_owned();
    machine.processor = "4 × Cortex-A57".to_owned();
    machine.product = None;
    machine.architecture = "aarch64".to_owned();
    machine.kernel_release = "6.1.0-56-rt-arm64".to_owned();
    machine.kernel_version = "#1 SMP PREEMPT_RT Debian 6.1.148-1 (2025-08-26)".to_owned();
    machine.virtualisation.hypervisor = Some("qemu".to_owned());
    machine.virtualisation.emulated = true;
    machine.findings.clear();
    for record in &mut evaluation.records {
        record.emulated = true;
    }
}

fn disturb(evaluation: &mut Evaluation, domains: &[EvaluatedDomain]) {
    let mut disturbances = transfers::disturbances(domains);
    disturbances.retain(|one| one.kind != DisturbanceKind::Load(LoadKind::Cpu));
    let mut rounds = vec![transfers::round(domains, None, 0)];
    for (index, disturbance) in disturbances.iter().enumerate() {
        let mut round = transfers::round(domains, Some(disturbance), index as u32 + 1);
        if let Some(load) = &mut round.load
            && disturbance.domain.starts_with("cell")
        {
            load.version = "rampart-meter, in the cell".to_owned();
            for stressor in &mut load.stressors {
                let words = "rampart-meter load cache --cpu 0 --seconds 13";
                stressor.command = words.split(' ').map(str::to_owned).collect();
            }
        }
        if let Some(blocks) = &mut round.blocks
            && disturbance.domain == "cell"
        {
            blocks.kind = BlockKind::Cell;
        }
        rounds.push(round);
    }
    evaluation.transfers = rounds;
    let participant = |domain: &EvaluatedDomain| Participant {
        domain: domain.name.clone(),
        cpus: domain.cpus.clone(),
    };
    evaluation.plan.transfer = Some(TransferSettings {
        groups: vec![TransferGroup {
            participants: domains.iter().map(participant).collect(),
            disturbances,
        }],
        interval: Nanos::from_millis(4),
        policy: guest::policy(),
        quiet: Nanos::from_secs(2),
        loaded: Nanos::from_secs(2),
        blocks: 20,
        block_factor: 10,
        shortest_block: Nanos::from_millis(40),
        findings: Vec::new(),
    });
}

/// Exits of each measurement in a cell: the bare-metal cell has none.
fn report(name: &str, observed: Nanos) -> Option<CellExitReport> {
    let bare = CellExitReport {
        payload: CellPayload::BareMetal,
        program: "/usr/lib/rampart/rampart-cell-meter".to_owned(),
        revision: 1,
        cpus: cpus("2"),
        memory_bytes: 18 << 20,
        observed,
        exits: Vec::new(),
        interrupt_exits: 0,
        interrupts: Some(observed.0 / 4_000_000),
        failure: None,
        findings: Vec::new(),
    };
    match name {
        "cell" => Some(bare),
        "cell:linux" => Some(CellExitReport {
            payload: CellPayload::Linux,
            program: "/boot/vmlinuz-6.1.0-56-rt-arm64, Linux 6.1.0-56-rt-arm64".to_owned(),
            cpus: cpus("3"),
            memory_bytes: 128 << 20,
            exits: vec![CellExits {
                reason: "software-interrupt".to_owned(),
                count: 7,
            }],
            interrupts: Some(observed.0 / 2_500_000),
            findings: vec![
                Finding::new(
                    Severity::Note,
                    "cell:linux",
                    "its kernel has one CPU, so what the kernel does beside the meter is on the measured CPU",
                )
                .values("1 CPU", "2 CPUs or more"),
            ],
            ..bare
        }),
        _ => None,
    }
}

fn report_exits(evaluation: &mut Evaluation) {
    for record in &mut evaluation.records {
        for run in &mut record.runs {
            run.cell = report(&record.domain, run.duration);
        }
    }
    for round in &mut evaluation.transfers {
        for watched in &mut round.watched {
            watched.cell = report(&watched.domain, round.duration);
        }
    }
}

fn crash() -> CrashRecord {
    let at = Nanos::from_secs(502);
    let witness = |name: &str, lived: i64, signs| CrashWitness {
        domain: name.to_owned(),
        last_sample: Some(Nanos(at.0.saturating_add_signed(lived))),
        lived: Some(SignedNanos(lived)),
        uncertainty: Nanos::from_millis(700),
        signs,
        memory: None,
        after: None,
        invalid: Vec::new(),
    };
    let in_memory = |form, bytes| SignInMemory {
        address: 0x7010_0000,
        bytes,
        form,
        offset: SignedNanos(41_000_000_000),
    };
    let mut cell = witness("cell", 10_212_000_000, SignPath::Memory);
    cell.memory = Some(in_memory(SignForm::LastSample, 8));
    let mut linux = witness("cell:linux", 10_108_000_000, SignPath::Memory);
    linux.memory = Some(in_memory(SignForm::Agent, (1 << 20) + 4096));
    linux.after = Some(RecordedAfter {
        samples: 2_527,
        worst: Nanos::from_micros(11_840),
        lost: 0,
        duration: Nanos::from_millis(10_108),
        without_gap: true,
    });
    CrashRecord {
        how: "a panic, asked for by `c` in /proc/sysrq-trigger".to_owned(),
        at,
        confirmed: Some("its console: the kernel reported a panic".to_owned()),
        observed: Nanos::from_secs(10),
        witnesses: vec![
            witness("host", -61_204_118, SignPath::ThroughHost),
            witness("task", -38_917_400, SignPath::ThroughHost),
            cell,
            linux,
        ],
    }
}
