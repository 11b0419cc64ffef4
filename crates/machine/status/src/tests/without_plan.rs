// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests of machines without a plan, that other means isolate.

use super::*;

const KINDS: [IsolationSourceKind; 9] = [
    IsolationSourceKind::Unbalanced,
    IsolationSourceKind::Partition,
    IsolationSourceKind::Tickless,
    IsolationSourceKind::KernelList,
    IsolationSourceKind::InheritedAffinity,
    IsolationSourceKind::Slices,
    IsolationSourceKind::Tuned,
    IsolationSourceKind::InterruptAffinity,
    IsolationSourceKind::BoundThreads,
];

/// Returns the status of a machine without a plan that keeps CPUs 2 and 3 for real-time work.
fn without_plan(kind: IsolationSourceKind, change: impl FnOnce(&mut Observation)) -> Status {
    let isolate = |mut observation: Observation| {
        observation.isolation.sources = vec![IsolationSource {
            kind,
            name: "isolcpus=".to_owned(),
            cpus: "2-3".parse().expect("CPUs"),
        }];
        // The work and the interrupts of the planned machine are on other CPUs.
        observation.threads[0].affinity = "1".parse().ok();
        observation.interrupts[1].effective = "0".parse().ok();
        observation.interrupts[1].affinity = "0".parse().ok();
        observation.interrupts[1].counts.clear();
        observation
    };
    let mut later = isolate(observation(1));
    change(&mut later);
    let observer = StatusObserver {
        tool_version: "0",
        process: Some(9_000),
    };
    status(None, &isolate(observation(0)), &later, observer)
}

/// A rule, a change of the machine that breaks it, and a part of the fix.
type BrokenRule = (&'static str, fn(&mut Observation), &'static str);

/// Each rule about activity, broken on a machine without a plan.
const WITHOUT_PLAN: [BrokenRule; 13] = [
    (
        "kernel-thread-starved",
        |machine| {
            machine
                .threads
                .push(ran(70, 3, SchedulingPolicy::Fifo(50), 990));
            let mut rcuc = thread(21, "rcuc/3", 3, SchedulingPolicy::Fifo(1));
            (rcuc.kernel, rcuc.bound, rcuc.state) = (true, true, 'R');
            machine.threads.push(rcuc);
        },
        "chrt --fifo --pid 51 21",
    ),
    (
        "spinning-thread",
        |machine| {
            machine
                .threads
                .push(ran(70, 3, SchedulingPolicy::Fifo(99), 990));
            let mut rcuc = thread(21, "rcuc/3", 3, SchedulingPolicy::Fifo(1));
            (rcuc.kernel, rcuc.bound) = (true, true);
            machine.threads.push(rcuc);
        },
        "chrt --fifo --pid 1 70 && chrt --fifo --pid 2 21",
    ),
    (
        "unbound-work",
        |machine| {
            let mut sleeping = thread(60, "cron", 2, SchedulingPolicy::Other);
            sleeping.affinity = "0-3".parse().ok();
            machine.threads.push(sleeping);
        },
        "taskset --pid --cpu-list 0-1 60",
    ),
    (
        "threads-pile-up",
        |machine| {
            busy(machine, 2);
            for number in [70, 71] {
                let mut worker = ran(
                    number,
                    2,
                    SchedulingPolicy::Fifo(10),
                    500 * (71 - u64::from(number)),
                );
                worker.affinity = "2-3".parse().ok();
                worker.state = 'R';
                machine.threads.push(worker);
            }
        },
        "taskset --pid --cpu-list 3 71",
    ),
    (
        "busy-siblings",
        |machine| {
            for cpu in [1, 2] {
                busy(machine, cpu);
                let observed = machine.cpus.get_mut(&CpuId(cpu)).expect("CPU");
                observed.siblings = "1-2".parse().expect("CPUs");
            }
        },
        "echo 0 > /sys/devices/system/cpu/cpu1/online",
    ),
    (
        "housekeeping-overloaded",
        |machine| [0, 1].into_iter().for_each(|cpu| busy(machine, cpu)),
        "keep fewer CPUs",
    ),
    (
        "unwanted-process",
        |machine| {
            machine
                .threads
                .push(ran(70, 2, SchedulingPolicy::Other, 990))
        },
        "taskset --pid --cpu-list 0-1 70",
    ),
    (
        "unwanted-interrupt",
        |machine| {
            machine.interrupts[0].counts.insert(CpuId(3), 7);
        },
        "echo 0-1 > /proc/irq/24/smp_affinity_list",
    ),
    (
        "interrupt-routed",
        |machine| machine.interrupts[0].effective = "2".parse().ok(),
        "echo 0-1 > /proc/irq/24/smp_affinity_list",
    ),
    (
        "unwanted-kernel-thread",
        |machine| {
            let mut worker = ran(61, 2, SchedulingPolicy::Other, 1);
            worker.kernel = true;
            machine.threads.push(worker);
        },
        "taskset --pid --cpu-list 0-1 61",
    ),
    (
        "unwanted-cpu-thread",
        |machine| {
            let mut worker = ran(62, 2, SchedulingPolicy::Other, 1);
            (worker.kernel, worker.bound) = (true, true);
            machine.threads.push(worker);
        },
        "rampart knobs",
    ),
    (
        "unwanted-softirq",
        |machine| {
            machine.softirqs.push(rampart_model::ObservedCount {
                name: "NET_RX".to_owned(),
                counts: [(CpuId(3), 4)].into(),
            });
        },
        "rps_cpus",
    ),
    (
        "unwanted-cross-call",
        |machine| {
            machine.interrupts.push(ObservedInterrupt {
                name: "CAL".to_owned(),
                action: "Function call interrupts".to_owned(),
                counts: [(CpuId(3), 4)].into(),
                ..ObservedInterrupt::default()
            });
        },
        "rampart knobs",
    ),
];

#[test]
fn without_a_plan_every_rule_of_activity_is_judged() {
    let names: Vec<&str> = WITHOUT_PLAN.iter().map(|(rule, ..)| *rule).collect();
    for rule in rampart_rules::STATE_RULES {
        let id = rule.rule.id;
        // Drift, and the CPUs of domains, need a plan.
        let needs_plan = rule.subject == StatusSubject::Drift || id == "foreign-real-time";
        assert_eq!(!needs_plan, names.contains(&id), "{id}");
    }
    for (rule, change, fix) in WITHOUT_PLAN {
        let status = without_plan(IsolationSourceKind::Unbalanced, change);
        let own: Vec<_> = status
            .findings
            .iter()
            .filter(|finding| finding.rule() == rule)
            .collect();
        assert_eq!(own.len(), 1, "{rule}: {:#?}", status.findings);
        let text = own[0].finding.to_string();
        assert!(text.contains(fix), "{rule}: {text}");
        assert!(!text.contains("plan's ["), "there is no plan: {text}");
        let is_note = own[0].finding.severity == Severity::Note;
        assert_eq!(status.is_as_expected(), is_note, "{rule}");
    }
}

#[test]
fn without_a_plan_every_origin_of_isolation_is_judged() {
    for kind in KINDS {
        let quiet = without_plan(kind, |_| {});
        assert_eq!(rules(&quiet), [""; 0], "{kind:?}");
        assert!(quiet.is_as_expected());
        let text = terminal(&quiet, 100);
        assert!(
            text.contains("CPUs 2-3 are kept for real-time work (from isolcpus=), and nothing"),
            "{text}"
        );
        let stray = without_plan(kind, |machine| {
            machine
                .threads
                .push(ran(70, 2, SchedulingPolicy::Other, 990));
            machine
                .threads
                .push(ran(71, 3, SchedulingPolicy::Fifo(80), 400));
        });
        assert_eq!(rules(&stray), ["unwanted-process"], "{kind:?}");
        assert!(stray.findings[0].finding.to_string().contains("sh (70)"));
        let text = terminal(&stray, 100);
        assert!(text.contains("1 problem below"), "{text}");
    }
    // A managed interrupt cannot be moved.
    let managed = without_plan(IsolationSourceKind::Unbalanced, |machine| {
        machine.interrupts[0].effective = "2".parse().ok();
        machine.interrupts[0].fixed = true;
    });
    assert_eq!(rules(&managed), [""; 0]);
}

#[test]
fn a_machine_that_keeps_no_cpu_for_real_time_work_is_not_judged() {
    let mut later = observation(1);
    later.isolation.isolated = "2-3".parse().expect("CPUs");
    busy(&mut later, 0);
    later.threads.push(ran(70, 2, SchedulingPolicy::Other, 990));
    let observer = StatusObserver {
        tool_version: "0",
        process: None,
    };
    let status = status(None, &observation(0), &later, observer);
    assert!(status.findings.is_empty() && status.plan.is_none());
    assert!(status.is_as_expected() && status.division.is_none());
    let text = terminal(&status, 80);
    assert!(text.contains("No plan is active, and no setting"), "{text}");
    assert!(
        text.contains("isolated CPUs 2-3; without a tick (nohz_full) none"),
        "{text}"
    );
}
