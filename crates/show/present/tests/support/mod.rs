// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Evaluation documents invented for tests: deterministic and plausible, not measured.
//!
//! The figures follow from a pseudo-random generator, the verdicts from the figures by rough
//! formulae; only `rampart-stats` knows the right ones, and reports show what the document has.

#![allow(dead_code, reason = "each test binary uses its own part")]

mod cells;
mod conclude;
mod guest;
mod judged;
mod machine;
mod measure;
mod plan;
mod simulated;
mod transfers;

use rampart_model::{
    Availability, Condition, ContainerEngine, CpuSet, DomainKind, DomainSelection,
    EVALUATION_SCHEMA_VERSION, EvaluatedDomain, Evaluation, EvaluationSettings, EvaluationState,
    Finding, LoadKind, LoadLocation, MeterKind, MeterSettings, Nanos, NotMeasured, Severity,
};

/// The parameters of an invented evaluation.
#[derive(Debug, Clone)]
pub(crate) struct Scenario {
    pub(crate) housekeeping: CpuSet,
    pub(crate) domains: Vec<EvaluatedDomain>,
    pub(crate) conditions: Vec<Condition>,
    pub(crate) meters: Vec<MeterKind>,
    pub(crate) repetitions: u32,
    pub(crate) run_duration: Nanos,
    pub(crate) interval: Nanos,
    pub(crate) deadline: Nanos,
    /// How much slower than a real machine everything is.
    pub(crate) slowness: f64,
    /// Runs that were made; the rest was not.
    pub(crate) made: u32,
    pub(crate) seed: u64,
}

pub(crate) const IDLE: Condition = Condition::IDLE;

pub(crate) const fn loaded(load: LoadKind, location: LoadLocation) -> Condition {
    Condition {
        load,
        location: Some(location),
    }
}

pub(crate) fn cpus(text: &str) -> CpuSet {
    text.parse().expect("a set of CPUs")
}

pub(crate) fn domain(name: &str, kind: DomainKind, on: &str, description: &str) -> EvaluatedDomain {
    let engine = (kind == DomainKind::Container).then_some(ContainerEngine::Embedded);
    EvaluatedDomain {
        policy: None,
        deadline: None,
        name: name.to_owned(),
        selection: DomainSelection {
            kind,
            engine,
            guest: None,
            cell: None,
        },
        cpus: cpus(on),
        description: description.to_owned(),
    }
}

impl Scenario {
    fn planned(&self) -> u32 {
        let cells = self.domains.len() * self.conditions.len() * self.meters.len();
        cells as u32 * self.repetitions
    }

    pub(crate) fn meter_plan(&self, meter: MeterKind, on: &CpuSet) -> MeterSettings {
        let mut plan = MeterSettings::new(meter, on.clone());
        plan.housekeeping = self.housekeeping.clone();
        plan.duration = self.run_duration;
        plan.interval = self.interval;
        plan.deadline = (meter == MeterKind::Wakeup).then_some(self.deadline);
        plan
    }

    /// The evaluation in which the first [`Self::made`] runs were made.
    pub(crate) fn evaluation(&self) -> Evaluation {
        let machine = machine::machine(&self.housekeeping, &self.domains);
        let mut evaluation = Evaluation {
            plan_effects: None,
            bench: rampart_model::Bench::Local,
            crash: None,
            transfers: Vec::new(),
            schema_version: EVALUATION_SCHEMA_VERSION,
            tool_version: "0.1.0".to_owned(),
            command: ["rampart", "evaluate", "--for", "4m", "--deadline", "250us"]
                .map(str::to_owned)
                .to_vec(),
            started: "2026-11-21T20:14:03Z".to_owned(),
            written: "2026-11-21T20:18:41Z".to_owned(),
            state: if self.made == self.planned() {
                EvaluationState::Complete
            } else {
                EvaluationState::Running
            },
            runs: (self.made, self.planned()),
            machine,
            plan: EvaluationSettings {
                measured: None,
                variants: Vec::new(),
                transfer: None,
                housekeeping: self.housekeeping.clone(),
                domains: self.domains.clone(),
                meters: self
                    .meters
                    .iter()
                    .map(|meter| self.meter_plan(*meter, &CpuSet::new()))
                    .collect(),
                conditions: self.conditions.clone(),
                repetitions: self.repetitions,
                run_duration: self.run_duration,
                deadline: self.deadline,
                deadline_from_user: true,
                total: Nanos::from_secs(240),
                seed: self.seed,
                findings: Vec::new(),
            },
            availability: self.availability(),
            records: measure::records(self),
            verdicts: Vec::new(),
            comparison: rampart_model::Comparison::default(),
            not_measured: vec![not_measured_vm()],
            findings: Vec::new(),
        };
        conclude::conclude(&mut evaluation);
        evaluation
    }

    fn availability(&self) -> Vec<Availability> {
        let mut all: Vec<Availability> = self
            .domains
            .iter()
            .map(|domain| Availability {
                domain: domain.selection,
                available: true,
                description: domain.description.clone(),
                findings: Vec::new(),
            })
            .collect();
        all.push(Availability {
            domain: DomainSelection {
                guest: None,
                cell: None,
                kind: DomainKind::Vm,
                engine: None,
            },
            available: false,
            description: "a KVM guest with pinned virtual CPUs".to_owned(),
            findings: not_measured_vm().findings,
        });
        all
    }
}

fn not_measured_vm() -> NotMeasured {
    NotMeasured {
        what: "vm".to_owned(),
        findings: vec![
            Finding::new(Severity::Error, "/dev/kvm", "the machine offers no virtualisation")
                .values("absent", "present")
                .fix("enable virtualisation in the firmware, then `modprobe kvm_intel` or `modprobe kvm_amd`"),
        ],
    }
}

/// A host, a task and a container that share their two CPUs.
fn three_domains() -> Vec<EvaluatedDomain> {
    vec![
        domain(
            "host",
            DomainKind::Host,
            "0-1",
            "a plain real-time thread on the housekeeping CPUs 0-1",
        ),
        domain(
            "task",
            DomainKind::Task,
            "2-3",
            "a process in an isolated partition of CPUs 2-3",
        ),
        domain(
            "container",
            DomainKind::Container,
            "2-3",
            "an OCI container run by runc in an isolated partition of CPUs 2-3",
        ),
    ]
}

/// Host, task and container under three conditions by two meters; one record is invalid.
pub(crate) fn full() -> Evaluation {
    let scenario = Scenario {
        housekeeping: cpus("0-1"),
        domains: three_domains(),
        conditions: vec![
            IDLE,
            loaded(LoadKind::Cpu, LoadLocation::Others),
            loaded(LoadKind::Cache, LoadLocation::Others),
        ],
        meters: vec![MeterKind::Wakeup, MeterKind::Noise],
        repetitions: 3,
        run_duration: Nanos::from_millis(4_400),
        interval: Nanos::from_micros(250),
        deadline: Nanos::from_micros(250),
        slowness: 1.0,
        made: 54,
        // More than a double holds exactly, so that a page that reads it as one is found out.
        seed: 18_046_744_073_709_551_557,
    };
    let mut evaluation = scenario.evaluation();
    evaluation.not_measured.push(NotMeasured {
        what: "io load".to_owned(),
        findings: vec![
            Finding::new(
                Severity::Warning,
                "--loads",
                "the condition was not asked for",
            )
            .fix("rampart evaluate --loads idle,cpu,cache,io"),
        ],
    });
    evaluation
}

/// As [`full`], killed after 7 of 27 runs.
pub(crate) fn killed() -> Evaluation {
    let scenario = Scenario {
        housekeeping: cpus("0-1"),
        domains: three_domains(),
        conditions: vec![
            IDLE,
            loaded(LoadKind::Cpu, LoadLocation::Others),
            loaded(LoadKind::Cache, LoadLocation::Others),
        ],
        meters: vec![MeterKind::Wakeup],
        repetitions: 3,
        run_duration: Nanos::from_millis(2_000),
        interval: Nanos::from_millis(1),
        deadline: Nanos::from_millis(1),
        slowness: 1.0,
        made: 7,
        seed: 7,
    };
    let mut evaluation = scenario.evaluation();
    evaluation.plan.deadline_from_user = false;
    evaluation
}

/// A machine with one CPU, emulated, ended early.
pub(crate) fn single_cpu() -> Evaluation {
    let scenario = Scenario {
        housekeeping: cpus("0"),
        domains: vec![domain(
            "host",
            DomainKind::Host,
            "0",
            "a plain real-time thread on the only CPU",
        )],
        conditions: vec![IDLE, loaded(LoadKind::Cpu, LoadLocation::Same)],
        meters: vec![MeterKind::Wakeup],
        repetitions: 5,
        run_duration: Nanos::from_millis(1_000),
        interval: Nanos::from_millis(1),
        deadline: Nanos::from_millis(1),
        slowness: 1.0,
        made: 6,
        seed: 3,
    };
    let mut evaluation = scenario.evaluation();
    evaluation.state = EvaluationState::EndedEarly;
    evaluation.machine.virtualisation.emulated = true;
    evaluation.machine.virtualisation.hypervisor = Some("qemu".to_owned());
    evaluation.machine.virtualisation.steal = Some(0.031);
    evaluation.plan.findings.push(
        Finding::new(Severity::Warning, "CPUs", "there is no CPU left to shield, so neither task nor container is isolated, and the load shares the measured CPU")
            .values("1", "2 or more"),
    );
    evaluation
}

/// Nothing could be measured.
pub(crate) fn empty() -> Evaluation {
    let mut evaluation = Scenario {
        housekeeping: cpus("0-1"),
        domains: three_domains(),
        conditions: vec![IDLE],
        meters: vec![MeterKind::Wakeup],
        repetitions: 3,
        run_duration: Nanos::from_secs(10),
        interval: Nanos::from_millis(1),
        deadline: Nanos::from_millis(1),
        slowness: 1.0,
        made: 0,
        seed: 0,
    }
    .evaluation();
    let denied = Finding::new(Severity::Error, "SCHED_FIFO", "the policy was not granted")
        .values("RLIMIT_RTPRIO 0, no CAP_SYS_NICE", "CAP_SYS_NICE")
        .fix("sudo rampart evaluate");
    for domain in &evaluation.plan.domains {
        evaluation.not_measured.push(NotMeasured {
            what: domain.name.clone(),
            findings: vec![denied.clone()],
        });
    }
    evaluation
}

/// Many CPUs, every condition, times from 1 µs to 2 s, a thousand million samples, names that
/// would be markup.
pub(crate) fn wide() -> Evaluation {
    let all_loads = [
        LoadKind::Cpu,
        LoadKind::Memory,
        LoadKind::Cache,
        LoadKind::Io,
    ];
    let mut conditions = vec![IDLE];
    for load in all_loads {
        conditions.extend(
            [LoadLocation::Same, LoadLocation::Others].map(|location| loaded(load, location)),
        );
    }
    let scenario = Scenario {
        housekeeping: cpus("0-3"),
        domains: vec![
            domain(
                "host",
                DomainKind::Host,
                "0-3",
                "a plain real-time thread on the housekeeping CPUs 0-3",
            ),
            domain(
                "<script>alert(1)</script>&amp;",
                DomainKind::Task,
                "4-63",
                "a name that is no markup: <b>\u{2028}\"'",
            ),
        ],
        conditions,
        meters: vec![MeterKind::Wakeup],
        repetitions: 1,
        run_duration: Nanos::from_millis(120),
        interval: Nanos::from_micros(1_000),
        deadline: Nanos::from_micros(100),
        slowness: 1.0,
        made: 18,
        seed: 11,
    };
    let mut evaluation = scenario.evaluation();
    evaluation.machine.host_name = "<img src=x onerror=alert(1)>".to_owned();
    evaluation.machine.command_line = "root=/dev/sda1 </script><!-- quiet".to_owned();
    // Only one record is shown at its full breadth; the document would be huge otherwise.
    for record in evaluation.records.iter_mut().skip(2) {
        record.cpus.truncate(4);
        for run in &mut record.runs {
            run.threads.truncate(4);
        }
    }
    if let Some(record) = evaluation.records.first_mut() {
        measure::stretch(record);
    }
    // A record without a single sample, as when a period is longer than a run.
    if let Some(record) = evaluation.records.last_mut() {
        measure::silence(record);
    }
    conclude::conclude(&mut evaluation);
    evaluation
}

/// Every document with the name of its file. Made once: it takes a while in a debug build.
pub(crate) fn all() -> &'static [(&'static str, Evaluation); 8] {
    static ALL: std::sync::LazyLock<[(&str, Evaluation); 8]> = std::sync::LazyLock::new(|| {
        [
            ("full", full()),
            ("killed", killed()),
            ("single-cpu", single_cpu()),
            ("empty", empty()),
            ("wide", wide()),
            ("transfers", simulated::transfers()),
            ("plan", plan::plan()),
            ("cells", cells::cells()),
        ]
    });
    &ALL
}

/// The document of this name.
pub(crate) fn named(name: &str) -> &'static Evaluation {
    let found = all().iter().find(|(of, _)| *of == name);
    &found.expect("a document of this name").1
}
