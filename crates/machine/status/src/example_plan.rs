// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A plan of four CPUs and one second of its machine, for tests: CPU 0 is housekeeping, CPUs 1 and 2
//! belong to `press`, CPU 3 to `vision`.

use rampart_model::{
    APPLICATION_SCHEMA_VERSION, ActiveDomain, ActivePlan, ActivePlanState, ChangeList,
    ChangeLocation, ChangeStep, ChangeTarget, CpuId, CpuOwnership, CpuRole, DomainKind,
    InterruptOwnership, IsolationMechanism, Nanos, Observation, ObservedCount, ObservedCpu,
    ObservedGroup, ObservedInterrupt, ObservedThread, ResolvedDomain, ResolvedPlan,
    SchedulingPolicy, SmtPolicy, Status, StepAction, StepKind,
};

use crate::{StatusObserver, status};

pub(crate) const GROUP: &str = "/sys/fs/cgroup/rampart-press";

const TEXT: &str = r#"
[machine]
housekeeping = "0"

[[domain]]
name = "press"
kind = "task"
cpus = "1-2"
run = ["/opt/press"]
policy = { fifo = 80 }
threads = [{ match = "log*", policy = "other" }]

[[domain]]
name = "vision"
kind = "task"
cpus = "3"
run = ["/opt/vision"]
policy = { fifo = 10 }
"#;

pub(crate) fn location(target: ChangeTarget, value: &str) -> ChangeLocation {
    ChangeLocation {
        location: match &target {
            ChangeTarget::File(path)
            | ChangeTarget::CpuListFile(path)
            | ChangeTarget::CpuMaskFile(path)
            | ChangeTarget::Schemata(path) => path.clone(),
            other => format!("{other:?}"),
        },
        target,
        present: "before".to_owned(),
        value: value.to_owned(),
    }
}

pub(crate) fn step(kind: StepKind, name: &str, locations: Vec<ChangeLocation>) -> ChangeStep {
    ChangeStep {
        kind,
        name: name.to_owned(),
        title: name.to_owned(),
        action: StepAction::Apply,
        why: String::new(),
        present: String::new(),
        wanted: String::new(),
        locations,
        disruptive: None,
        fix: None,
        source: String::new(),
    }
}

fn domain(name: &str, cpus: &str, group: Option<&str>) -> ActiveDomain {
    ActiveDomain {
        name: name.to_owned(),
        kind: DomainKind::Task,
        cpus: cpus.parse().expect("CPUs"),
        isolation: if group.is_some() {
            IsolationMechanism::IsolatedPartition
        } else {
            IsolationMechanism::AffinityOnly
        },
        partition: group.map(|_| "isolated".to_owned()),
        group: group.map(str::to_owned),
        members: None,
        unified: group.is_some(),
    }
}

pub(crate) fn plan() -> ActivePlan {
    let owner = |cpu: u32| match cpu {
        0 => None,
        1 | 2 => Some("press".to_owned()),
        _ => Some("vision".to_owned()),
    };
    let resolved = |name: &str, cpus: &str, priority| ResolvedDomain {
        name: name.to_owned(),
        kind: DomainKind::Task,
        cpus: cpus.parse().expect("CPUs"),
        virtual_cpus: Vec::new(),
        emulator: Default::default(),
        service: Default::default(),
        policy: Some(SchedulingPolicy::Fifo(priority)),
        reasons: Vec::new(),
        cache: None,
        cache_ways: Vec::new(),
        huge_pages: None,
        owner: None,
    };
    ActivePlan {
        schema_version: APPLICATION_SCHEMA_VERSION,
        tool_version: "0".to_owned(),
        state: ActivePlanState::Active,
        applied_at: Nanos::from_secs(1_000_000_000),
        boot: "this boot".to_owned(),
        file: "/etc/rampart/plan.toml".to_owned(),
        text: TEXT.to_owned(),
        resolved: ResolvedPlan {
            tool_version: String::new(),
            schema_version: 1,
            fingerprint: "4 CPUs".to_owned(),
            housekeeping: "0".parse().expect("CPUs"),
            real_time: "1-3".parse().expect("CPUs"),
            smt: SmtPolicy::IdleSibling,
            cpus: (0..4)
                .map(|cpu| CpuOwnership {
                    cpu: CpuId(cpu),
                    owner: owner(cpu),
                    role: if cpu == 0 {
                        CpuRole::Housekeeping
                    } else {
                        CpuRole::RealTime
                    },
                    policy: None,
                    node: None,
                })
                .collect(),
            domains: vec![resolved("press", "1-2", 80), resolved("vision", "3", 10)],
            interrupts: vec![InterruptOwnership {
                number: 30,
                action: "camera".to_owned(),
                owner: Some("vision".to_owned()),
                cpus: "3".parse().expect("CPUs"),
            }],
            caches: Vec::new(),
            nodes: Vec::new(),
            host: Default::default(),
            boot: Default::default(),
            findings: Vec::new(),
        },
        domains: vec![
            domain("press", "1-2", Some(GROUP)),
            domain("vision", "3", None),
        ],
        changes: ChangeList {
            schema_version: APPLICATION_SCHEMA_VERSION,
            tool_version: "0".to_owned(),
            steps: vec![
                step(
                    StepKind::Isolation,
                    "press",
                    vec![
                        location(
                            ChangeTarget::CpuListFile("/proc/irq/24/smp_affinity_list".to_owned()),
                            "0",
                        ),
                        location(
                            ChangeTarget::CpuMaskFile(
                                "/sys/devices/virtual/workqueue/cpumask".to_owned(),
                            ),
                            "0",
                        ),
                    ],
                ),
                step(
                    StepKind::Knob,
                    "transparent-huge-pages",
                    vec![location(
                        ChangeTarget::File(
                            "/sys/kernel/mm/transparent_hugepage/enabled".to_owned(),
                        ),
                        "never",
                    )],
                ),
            ],
            boot_arguments: Vec::new(),
        },
        findings: Vec::new(),
        kept_interrupts: Vec::new(),
    }
}

pub(crate) fn thread(
    number: u32,
    name: &str,
    cpu: u32,
    policy: SchedulingPolicy,
) -> ObservedThread {
    ObservedThread {
        process: number,
        thread: number,
        parent: 1,
        start: u64::from(number),
        name: name.to_owned(),
        kernel: false,
        bound: false,
        state: 'S',
        policy: Some(policy),
        cpu: CpuId(cpu),
        cpu_time: Nanos::ZERO,
        affinity: Some(rampart_model::CpuSet::single(CpuId(cpu))),
    }
}

/// Returns an observation of a machine as planned; `second` is 0 or 1.
pub(crate) fn observation(second: u64) -> Observation {
    let plan = plan();
    let mut press = thread(100, "press", 1, SchedulingPolicy::Fifo(80));
    press.cpu_time = Nanos::from_millis(100 * second);
    press.affinity = Some("1-2".parse().expect("CPUs"));
    let mut shell = thread(50, "bash", 0, SchedulingPolicy::Other);
    shell.cpu_time = Nanos::from_millis(10 * second);
    let mut softirqd = thread(20, "ksoftirqd/1", 1, SchedulingPolicy::Other);
    (softirqd.kernel, softirqd.bound) = (true, true);
    let counts = |per_second: u64| {
        (0..4)
            .map(|cpu| (CpuId(cpu), 1_000 + per_second * second))
            .collect()
    };
    let only = |cpu: u32, count: u64| [(CpuId(cpu), count)].into();
    Observation {
        at: Nanos::from_secs(100 + second),
        host_name: "machine".to_owned(),
        boot: Some(plan.boot.clone()),
        online: "0-3".parse().expect("CPUs"),
        isolation: Default::default(),
        cpus: (0..4)
            .map(|cpu| {
                let observed = ObservedCpu {
                    busy: Nanos::from_millis(100 * second),
                    total: Nanos::from_secs(second),
                    siblings: rampart_model::CpuSet::single(CpuId(cpu)),
                };
                (CpuId(cpu), observed)
            })
            .collect(),
        threads: vec![press, shell, softirqd],
        interrupts: vec![
            ObservedInterrupt {
                name: "24".to_owned(),
                action: "disk".to_owned(),
                counts: only(0, 50 * second),
                affinity: "0".parse().ok(),
                effective: "0".parse().ok(),
                fixed: false,
            },
            ObservedInterrupt {
                name: "30".to_owned(),
                action: "camera".to_owned(),
                counts: only(3, 25 * second),
                affinity: "3".parse().ok(),
                effective: "3".parse().ok(),
                fixed: false,
            },
            ObservedInterrupt {
                name: "LOC".to_owned(),
                action: "Local timer interrupts".to_owned(),
                counts: counts(100),
                ..Default::default()
            },
        ],
        softirqs: vec![ObservedCount {
            name: "TIMER".to_owned(),
            counts: counts(10),
        }],
        groups: [(
            GROUP.to_owned(),
            ObservedGroup {
                exists: true,
                cpus: "1-2".parse().ok(),
                effective: "1-2".parse().ok(),
                partition: Some("isolated".to_owned()),
                threads: vec![100],
            },
        )]
        .into(),
        values: vec![
            (
                ChangeTarget::CpuMaskFile("/sys/devices/virtual/workqueue/cpumask".to_owned()),
                Some("00000001".to_owned()),
            ),
            (
                ChangeTarget::File("/sys/kernel/mm/transparent_hugepage/enabled".to_owned()),
                Some("always madvise [never]".to_owned()),
            ),
        ],
        allocation: None,
        plan_text: Some(plan.text),
        plan_gone: false,
        programs: Vec::new(),
    }
}

/// Returns the status after a second in which `change` was made.
pub(crate) fn after(change: impl FnOnce(&mut Observation)) -> Status {
    after_with(&plan(), change)
}

pub(crate) fn after_with(plan: &ActivePlan, change: impl FnOnce(&mut Observation)) -> Status {
    let mut later = observation(1);
    change(&mut later);
    let observer = StatusObserver {
        tool_version: "0",
        process: Some(9_000),
    };
    status(Some(plan), &observation(0), &later, observer)
}
