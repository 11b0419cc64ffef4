// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An invented evaluation on a simulated machine: host, task, container and guest, who disturbs
//! whom, a crash of the host, and the causes of the worst samples.

use rampart_model::{
    Bench, Cause, CauseKind, CrashRecord, CrashWitness, DomainKind, DomainSelection, Evaluation,
    ExplainedWorst, Finding, LoadKind, LoadLocation, MeterKind, Nanos, NotMeasured, Participant,
    Severity, SignPath, SignedNanos, ThreadOutcome, TransferGroup, TransferSettings, WorstEvent,
};

use super::{IDLE, Scenario, cpus, domain, guest, judged, loaded, transfers};

pub(crate) fn transfers() -> Evaluation {
    let mut domains = vec![
        domain(
            "host",
            DomainKind::Host,
            "1",
            "a plain real-time thread on CPU 1",
        ),
        domain(
            "task",
            DomainKind::Task,
            "2",
            "a process in an isolated partition of CPU 2",
        ),
        domain(
            "container",
            DomainKind::Container,
            "3",
            "an OCI container run by runc in an isolated partition of CPU 3",
        ),
        domain(
            "vm",
            DomainKind::Vm,
            "4",
            "a KVM guest, its real-time vCPU bound to CPU 4",
        ),
    ];
    domains[3].selection = DomainSelection::of(DomainKind::Vm);
    let mut evaluation = Scenario {
        housekeeping: cpus("0"),
        domains: domains.clone(),
        conditions: vec![IDLE, loaded(LoadKind::Cpu, LoadLocation::Others)],
        meters: vec![MeterKind::Wakeup],
        repetitions: 2,
        run_duration: Nanos::from_millis(1_500),
        interval: Nanos::from_millis(1),
        deadline: Nanos::from_millis(1),
        slowness: 90.0,
        made: 16,
        seed: 21,
    }
    .evaluation();
    simulate(&mut evaluation);
    disturb(&mut evaluation, &domains);
    crash(&mut evaluation);
    judged::judge(&mut evaluation);
    judged::compare(&mut evaluation);
    evaluation
}

fn simulate(evaluation: &mut Evaluation) {
    let version = |name: &str, version: &str| (name.to_owned(), version.to_owned());
    evaluation.bench = Bench::Sim {
        emulator: "QEMU 7.2.19 (Debian 1:7.2+dfsg-7+deb12u16), TCG, multi-threaded".to_owned(),
        kernel: "6.1.0-56-rt-amd64".to_owned(),
        packages: vec![
            version("linux-image-6.1.0-56-rt-amd64", "6.1.148-1"),
            version("qemu-system-x86", "1:7.2+dfsg-7+deb12u16"),
            version("runc", "1.1.5+ds1-1+deb12u1"),
            version("stress-ng", "0.15.06-2"),
            version("rt-tests", "2.4-2"),
        ],
    };
    evaluation.command = ["rampart", "evaluate", "--on", "sim"]
        .map(str::to_owned)
        .to_vec();
    evaluation.not_measured.clear();
    evaluation.availability.retain(|one| one.available);
    let machine = &mut evaluation.machine;
    machine.host_name = "rampart-sim".to_owned();
    machine.processor = "AMD EPYC Processor".to_owned();
    machine.product = None;
    machine.kernel_release = "6.1.0-56-rt-amd64".to_owned();
    machine.kernel_version = "#1 SMP PREEMPT_RT Debian 6.1.148-1 (2025-08-26)".to_owned();
    machine.virtualisation.hypervisor = Some("qemu".to_owned());
    machine.virtualisation.emulated = true;
    machine.findings.clear();
    for record in &mut evaluation.records {
        record.emulated = true;
        for run in &mut record.runs {
            let (from, to) = (run.started_monotonic, run.started_monotonic + run.duration);
            run.guest = (record.kind == DomainKind::Vm).then(|| guest::report(from, to));
            if run.invalid.is_empty() {
                run.explained = run.threads.first().map_or_else(Vec::new, explain);
            }
        }
    }
}

/// Causes for the worst samples: an interrupt, a thread under it, and one that the kernel did not record.
fn explain(thread: &ThreadOutcome) -> Vec<ExplainedWorst> {
    let cause = |kind, name: &str, start: Nanos, duration: Nanos| Cause {
        kind,
        name: name.to_owned(),
        start,
        duration,
    };
    let of = |index: usize, event: &WorstEvent| {
        let began = event.at.saturating_sub(event.value);
        let part = |percent: u64| Nanos(event.value.0 * percent / 100);
        let causes = match index % 4 {
            0 => vec![
                cause(
                    CauseKind::Thread,
                    "ktimers/2:34",
                    began + part(30),
                    part(61),
                ),
                cause(
                    CauseKind::Interrupt,
                    "local_timer:236",
                    began + part(8),
                    part(21),
                ),
            ],
            1 => vec![cause(
                CauseKind::Interrupt,
                "call_function_single:251",
                began + part(3),
                part(88),
            )],
            2 => vec![
                cause(CauseKind::Softirq, "RCU:9", began + part(40), part(38)),
                cause(CauseKind::Nmi, "nmi", began + part(5), part(9)),
            ],
            _ => vec![cause(
                CauseKind::Unseen,
                "nothing that the kernel saw",
                began,
                event.value,
            )],
        };
        let explained: Nanos = causes
            .iter()
            .filter(|cause| cause.kind != CauseKind::Unseen)
            .map(|cause| cause.duration)
            .sum();
        ExplainedWorst {
            cpu: thread.cpu,
            event: *event,
            unexplained: event.value.saturating_sub(explained),
            causes,
        }
    };
    let worst = thread.worst.iter();
    worst
        .enumerate()
        .map(|(index, event)| of(index, event))
        .collect()
}

fn disturb(evaluation: &mut Evaluation, domains: &[rampart_model::EvaluatedDomain]) {
    let disturbances = transfers::disturbances(domains);
    let mut rounds = vec![transfers::round(domains, None, 0)];
    for (index, disturbance) in disturbances.iter().enumerate() {
        rounds.push(transfers::round(
            domains,
            Some(disturbance),
            index as u32 + 1,
        ));
    }
    evaluation.transfers = rounds;
    evaluation.plan.transfer = Some(TransferSettings {
        groups: vec![TransferGroup {
            participants: domains
                .iter()
                .map(|domain| Participant {
                    domain: domain.name.clone(),
                    cpus: domain.cpus.clone(),
                })
                .collect(),
            disturbances,
        }],
        interval: Nanos::from_millis(1),
        policy: guest::policy(),
        quiet: Nanos::from_secs(2),
        loaded: Nanos::from_secs(2),
        blocks: 20,
        block_factor: 5,
        shortest_block: Nanos::from_millis(2),
        findings: vec![Finding::new(
            Severity::Note,
            "cache:under:vm",
            "a load under a guest is not planned: it would be a load in the host",
        )],
    });
    evaluation.not_measured.push(NotMeasured {
        what: "detached".to_owned(),
        findings: vec![Finding::new(
            Severity::Note,
            "detached",
            "this kind is not built yet",
        )],
    });
}

fn crash(evaluation: &mut Evaluation) {
    let at = Nanos::from_millis(498_211);
    let witness = |name: &str, lived: i64, uncertainty: u64| CrashWitness {
        domain: name.to_owned(),
        last_sample: Some(Nanos(at.0.saturating_add_signed(lived))),
        lived: Some(SignedNanos(lived)),
        uncertainty: Nanos::from_micros(uncertainty),
        signs: SignPath::ThroughHost,
        memory: None,
        after: None,
        invalid: Vec::new(),
    };
    evaluation.crash = Some(CrashRecord {
        how: "`c` written to /proc/sysrq-trigger".to_owned(),
        at,
        confirmed: Some(
            "the emulator: GUEST_PANICKED, 41 ms after the last sign of life".to_owned(),
        ),
        observed: Nanos::from_secs(10),
        witnesses: vec![
            witness("host", -61_204_118, 100_000),
            witness("task", -38_917_400, 100_000),
            witness("container", -72_105_331, 100_000),
            witness("vm", -22_481_007, 100_184),
        ],
    });
}
