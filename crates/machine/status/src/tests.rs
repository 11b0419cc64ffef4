// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests of each rule with a state that breaks it.

mod without_plan;

use rampart_model::{
    ActivePlan, ActivePlanState, Allocation, AllocationGroup, CacheResource, CacheShare, CacheWays,
    ChangeTarget, CpuId, Finding, IsolationSource, IsolationSourceKind, Nanos, Observation,
    ObservedInterrupt, ObservedProgram, ObservedThread, ProgramState, SchedulingPolicy, Schemata,
    Severity, Status, StatusSubject, StepKind, SupervisedState, WayMask,
};

use crate::example_plan::{GROUP, after, after_with, location, observation, plan, step, thread};
use crate::{Latencies, StatusObserver, Totals, classic, open_metrics, open_metrics_once, status};

fn rules(status: &Status) -> Vec<&str> {
    let findings = status.findings.iter();
    findings.map(rampart_model::StatusFinding::rule).collect()
}

/// Returns the text of the only finding, which is of this rule.
fn only(rule: &str, change: impl FnOnce(&mut Observation)) -> String {
    let status = after(change);
    assert_eq!(rules(&status), [rule], "{:#?}", status.findings);
    let finding = &status.findings[0].finding;
    let expected = rampart_rules::rule(rule).expect("a rule");
    assert_eq!(finding.severity, expected.severity);
    finding.to_string()
}

fn group(observation: &mut Observation) -> &mut rampart_model::ObservedGroup {
    observation.groups.get_mut(GROUP).expect("group")
}

fn terminal(status: &Status, width: u16) -> String {
    let options = rampart_present::TerminalOptions {
        width,
        colour: false,
    };
    rampart_present::terminal(&rampart_present::status(status), options)
}

#[test]
fn reports_nothing_on_a_machine_as_planned() {
    let status = after(|_| {});
    assert!(rules(&status).is_empty());
    assert!(!status.has_drift());
    assert!(status.domains.iter().all(|domain| domain.isolation_valid));
    assert_eq!(status.domains[0].threads, 1);
    let cpu = &status.cpus[1];
    assert_eq!(cpu.owner.as_deref(), Some("press"));
    assert_eq!(cpu.threads[0].name, "press");
    assert_eq!(cpu.threads[0].cpu_time, Nanos::from_millis(100));
    assert_eq!(
        (cpu.interrupts_per_second, cpu.softirqs_per_second),
        (100.0, 10.0)
    );
    assert!((cpu.busy - 0.1).abs() < 1e-9);
}

#[test]
fn reports_broken_isolation() {
    let gone = only("group-gone", |machine| {
        *group(machine) = Default::default();
        machine.threads.remove(0);
    });
    assert!(
        gone.contains(GROUP) && gone.contains("rampart apply"),
        "{gone}"
    );
    let cpus = only("group-cpus", |machine| {
        group(machine).cpus = "1".parse().ok();
    });
    assert!(cpus.contains("expected 1-2, found 1"), "{cpus}");
    let fewer = only("group-cpus", |machine| {
        group(machine).effective = "2".parse().ok();
    });
    assert!(fewer.contains("effective"), "{fewer}");
    let invalid = "isolated invalid (Cpu list in cpuset.cpus not exclusive)";
    let partition = only("partition-invalid", |machine| {
        group(machine).partition = Some(invalid.to_owned());
    });
    assert!(partition.contains("not exclusive"), "{partition}");
    let broken = after(|machine| group(machine).partition = Some(invalid.to_owned()));
    assert!(!broken.domains[0].isolation_valid && broken.domains[1].isolation_valid);
    assert!(broken.has_drift());
}

#[test]
fn reports_an_offline_cpu_once() {
    let text = only("domain-cpu-offline", |machine| {
        machine.online = "0-1,3".parse().expect("CPUs");
        group(machine).effective = "1".parse().ok();
    });
    assert!(text.contains("CPU 2") && text.contains("online"), "{text}");
}

#[test]
fn reports_a_restart_once() {
    let text = only("kernel-restarted", |machine| {
        machine.boot = Some("another".to_owned());
        machine.groups.clear();
        machine.values.clear();
        machine.threads.clear();
    });
    assert!(text.contains("rampart release"), "{text}");
}

#[test]
fn reports_the_progress_of_an_incomplete_plan() {
    for (state, boot, words) in [
        (ActivePlanState::Begun, "this boot", "interrupted"),
        (
            ActivePlanState::AwaitsRestart,
            "this boot",
            "restart the machine",
        ),
        (
            ActivePlanState::AwaitsRestart,
            "another",
            "fix: rampart apply /etc",
        ),
    ] {
        let mut plan = plan();
        plan.state = state;
        let status = after_with(&plan, |machine| machine.boot = Some(boot.to_owned()));
        assert_eq!(rules(&status), ["plan-incomplete"]);
        let text = status.findings[0].finding.to_string();
        assert!(text.contains(words), "{text}");
    }
}

#[test]
fn reports_a_plan_that_was_edited_or_removed() {
    only("plan-edited", |machine| {
        machine.plan_text = Some("[machine]\n".to_owned());
    });
    let gone = only("plan-edited", |machine| {
        (machine.plan_text, machine.plan_gone) = (None, true);
    });
    assert!(gone.contains("found no file"), "{gone}");
    assert!(rules(&after(|machine| machine.plan_text = None)).is_empty());
}

#[test]
fn compares_settings_by_meaning() {
    let mask = only("value-changed", |machine| {
        machine.values[0].1 = Some("0000000f".to_owned());
    });
    assert!(mask.contains("expected 0, found 0000000f"), "{mask}");
    let choice = only("value-changed", |machine| {
        machine.values[1].1 = Some("[always] madvise never".to_owned());
    });
    assert!(choice.contains("transparent-huge-pages"), "{choice}");
    only("value-changed", |machine| machine.values[1].1 = None);
}

#[test]
fn compares_the_last_write_and_ignores_threads_that_ended() {
    let mut plan = plan();
    let file = ChangeTarget::File("/proc/sys/kernel/timer_migration".to_owned());
    let ended = ChangeTarget::ThreadPolicy(77);
    plan.changes.steps.extend([
        step(StepKind::Knob, "one", vec![location(file.clone(), "1")]),
        step(StepKind::Knob, "two", vec![location(file.clone(), "0")]),
        step(
            StepKind::Knob,
            "three",
            vec![location(ended.clone(), "fifo:11")],
        ),
    ]);
    let with = |value: &str, policy: Option<&str>| {
        after_with(&plan, |machine| {
            machine.values.push((file.clone(), Some(value.to_owned())));
            let policy = policy.map(str::to_owned);
            machine.values.push((ended.clone(), policy));
        })
    };
    assert!(rules(&with("0", None)).is_empty());
    assert_eq!(rules(&with("1", None)), ["value-changed"]);
    assert_eq!(rules(&with("0", Some("fifo:1"))), ["value-changed"]);
}

#[test]
fn reports_cache_ways_that_another_group_has() {
    let mut plan = plan();
    let schemata = |group: &str| ChangeTarget::Schemata(format!("/sys/fs/resctrl{group}/schemata"));
    let locations = vec![
        location(schemata("/rampart-press"), "L3:0=f"),
        location(schemata(""), "L3:0=f0"),
    ];
    plan.changes
        .steps
        .push(step(StepKind::Cache, "press", locations));
    let domain = plan.resolved.domains.first_mut().expect("a domain");
    domain.cache = Some(CacheShare {
        ways: Some(4),
        exclusive: true,
        ..CacheShare::default()
    });
    domain.cache_ways = vec![CacheWays {
        level: 3,
        id: 0,
        ways: WayMask(0xf),
        all: WayMask(0xff),
        size: 0,
        exclusive: true,
    }];
    let name = domain.name.clone();
    let with = |default: &str, theirs: &str| {
        let group = |name: &str, text: &str| AllocationGroup {
            name: name.to_owned(),
            mode: "shareable".to_owned(),
            schemata: Schemata::parse(text),
            ..AllocationGroup::default()
        };
        let cache = CacheResource {
            name: "L3".to_owned(),
            level: 3,
            all: WayMask(0xff),
            fewest: 1,
            shareable: WayMask(0),
            sparse: false,
            instances: Vec::new(),
        };
        let allocation = Allocation {
            point: "/sys/fs/resctrl".to_owned(),
            caches: vec![cache],
            groups: vec![
                group("", default),
                group(&AllocationGroup::name_of(&name), "L3:0=f"),
                group("theirs", theirs),
            ],
            ..Allocation::default()
        };
        after_with(&plan, |machine| {
            let own = "    MB:0=100\n    L3:0=00f".to_owned();
            machine.values.push((schemata("/rampart-press"), Some(own)));
            machine
                .values
                .push((schemata(""), Some(default.to_owned())));
            machine.allocation = Some(allocation);
        })
    };
    assert!(rules(&with("L3:0=f0", "L3:0=f0")).is_empty());
    let shared = with("L3:0=f0", "L3:0=1f");
    assert_eq!(rules(&shared), ["cache-ways-shared"]);
    let text = shared.findings[0].finding.to_string();
    assert!(
        text.contains("/sys/fs/resctrl/theirs") && text.contains("L3:0=1f"),
        "{text}"
    );
    assert_eq!(rules(&with("L3:0=ff", "L3:0=f0")), ["value-changed"]);
}

#[test]
fn reports_interrupts_that_moved() {
    let text = only("interrupt-moved", |machine| {
        machine.interrupts[0].affinity = "0-3".parse().ok();
    });
    assert!(text.contains("24 (disk) on 1-3"), "{text}");
    let text = only("interrupt-moved", |machine| {
        machine.interrupts[1].affinity = "2-3".parse().ok();
    });
    assert!(text.contains("30 (camera) on 2"), "{text}");
    let new = ObservedInterrupt {
        name: "40".to_owned(),
        action: "usb".to_owned(),
        affinity: "0-3".parse().ok(),
        effective: "2".parse().ok(),
        ..Default::default()
    };
    let text = only("interrupt-moved", |machine| {
        machine.interrupts.push(new.clone());
    });
    assert!(text.contains("40 (usb) on 2"), "{text}");
    // The kernel refused to move it when the plan was applied.
    let mut plan = plan();
    let managed = Finding::new(Severity::Warning, "interrupt 40 (usb)", "managed");
    plan.findings.push(managed);
    let with = |plan: &ActivePlan| after_with(plan, |machine| machine.interrupts.push(new.clone()));
    let status = with(&plan);
    assert_eq!(rules(&status), ["interrupt-moved"]);
    plan.kept_interrupts.push(40);
    assert!(rules(&with(&plan)).is_empty());
}

#[test]
fn reports_threads_on_other_cpus_or_with_other_policies() {
    let strayed = only("thread-cpu", |machine| {
        machine.threads[0].affinity = "0-2".parse().ok();
    });
    assert!(strayed.contains("press (100) on 0-2"), "{strayed}");
    assert!(strayed.contains("rampart move 100 --to press"), "{strayed}");
    // A program that detaches has no CPU of its domain while Linux schedules it.
    let mut detaching = plan();
    detaching.domains[0].kind = rampart_model::DomainKind::Detached;
    let status = after_with(&detaching, |machine| {
        machine.threads[0].affinity = "0-2".parse().ok();
    });
    assert!(!rules(&status).contains(&"thread-cpu"), "{status:#?}");
    let policy = only("thread-policy", |machine| {
        machine.threads[0].policy = Some(SchedulingPolicy::Other);
    });
    assert!(
        policy.contains("press (100) other, not fifo:80"),
        "{policy}"
    );
    assert!(policy.contains("rampart move 100 --to press"), "{policy}");
    let member = |name: &'static str| {
        after(move |machine| {
            machine
                .threads
                .push(thread(101, name, 2, SchedulingPolicy::Other));
            group(machine).threads.push(101);
        })
    };
    assert!(rules(&member("logger")).is_empty());
    assert_eq!(rules(&member("worker")), ["thread-policy"]);
}

#[test]
fn a_meter_inside_a_domain_is_not_one_of_its_threads() {
    let status = after(|machine| {
        let meter = thread(300, "rampart-meter", 1, SchedulingPolicy::Other);
        let mut measuring = thread(301, "meter/1", 1, SchedulingPolicy::Fifo(1));
        measuring.process = 300;
        machine.threads.extend([meter, measuring]);
        group(machine).threads.extend([300, 301]);
    });
    assert!(rules(&status).is_empty());
    assert_eq!(status.domains[0].threads, 1);
}

fn program(state: SupervisedState, alive: bool, supervised: bool) -> ObservedProgram {
    ObservedProgram {
        domain: "vision".to_owned(),
        process: Some(200),
        supervised,
        alive,
        state,
        restarts: 3,
        last_exit: Some("signal 9".to_owned()),
    }
}

#[test]
fn reports_the_state_of_programs() {
    let of = |program: ObservedProgram| after(|machine| machine.programs.push(program));
    let state = |status: &Status| {
        status.domains[1]
            .program
            .as_ref()
            .map(|program| program.state)
    };
    let running = of(program(SupervisedState::Running, true, true));
    assert_eq!(state(&running), Some(ProgramState::Running));
    assert!(running.domains[1].is_up());
    for up in [
        SupervisedState::Starting,
        SupervisedState::Running,
        SupervisedState::Waiting,
    ] {
        let restarting = of(program(up, false, true));
        assert_eq!(state(&restarting), Some(ProgramState::Restarting));
        assert!(rules(&restarting).is_empty());
        // Its supervisor was killed, perhaps in the pause before the next start.
        let gone = of(program(up, false, false));
        assert_eq!(state(&gone), Some(ProgramState::Stopped));
        assert_eq!(rules(&gone), ["program-gone"], "{up:?}");
        assert!(gone.findings[0].finding.to_string().contains("signal 9"));
    }
    for down in [
        SupervisedState::Ended,
        SupervisedState::Failed,
        SupervisedState::Stopped,
    ] {
        for supervised in [true, false] {
            let stopped = of(program(down, false, supervised));
            assert_eq!(state(&stopped), Some(ProgramState::Stopped), "{down:?}");
            assert!(rules(&stopped).is_empty(), "{down:?}");
        }
    }
}

#[test]
fn descendants_of_a_program_belong_to_its_domain() {
    let status = after(|machine| {
        machine
            .programs
            .push(program(SupervisedState::Running, true, true));
        let mut child = thread(201, "vision", 3, SchedulingPolicy::Fifo(10));
        child.parent = 200;
        child.cpu_time = Nanos::from_millis(5);
        machine.threads.push(child);
    });
    assert!(rules(&status).is_empty());
    assert_eq!(status.domains[1].threads, 1);
}

#[test]
fn reports_a_real_time_thread_on_a_cpu_of_another_domain() {
    let status = after(|machine| {
        machine.threads[0].cpu = CpuId(3);
        machine.threads[0].affinity = "3".parse().ok();
    });
    let found = rules(&status);
    assert!(found.contains(&"foreign-real-time"), "{found:?}");
    assert!(found.contains(&"thread-cpu"), "{found:?}");
    assert!(found.contains(&"unwanted-process"), "{found:?}");
    let text: String = status
        .findings
        .iter()
        .map(|finding| format!("{}\n", finding.finding))
        .collect();
    for fix in [
        "fix: rampart move 100 --to press",
        "rampart move PID --to vision",
    ] {
        assert!(text.contains(fix), "{text}");
    }
}

#[test]
fn ignores_a_sleeping_thread_that_cannot_run_there_again() {
    let sleeps = |affinity: &str| {
        after(|machine| {
            let mut sleeping = thread(101, "press", 3, SchedulingPolicy::Fifo(80));
            sleeping.affinity = affinity.parse().ok();
            machine.threads.push(sleeping);
            group(machine).threads.push(101);
        })
    };
    assert!(rules(&sleeps("1-2")).is_empty());
    let may_run = sleeps("1-3");
    assert!(rules(&may_run).contains(&"foreign-real-time"));
}

#[test]
fn reports_kernel_threads_below_a_spinning_thread() {
    let spins = |machine: &mut Observation| {
        machine.threads[0].cpu_time = Nanos::from_millis(990);
    };
    let warned = after(spins);
    assert_eq!(rules(&warned), ["spinning-thread"]);
    assert_eq!(warned.findings[0].finding.severity, Severity::Warning);
    let starved = after(|machine| {
        spins(machine);
        machine.threads[2].state = 'R';
    });
    assert_eq!(rules(&starved), ["kernel-thread-starved"]);
    assert_eq!(starved.findings[0].finding.severity, Severity::Error);
    let above = after(|machine| {
        spins(machine);
        machine.threads[2].policy = Some(SchedulingPolicy::Fifo(81));
    });
    assert!(rules(&above).is_empty());
}

#[test]
fn reports_busy_siblings_unless_the_plan_gives_both_to_one_owner() {
    let busy = |machine: &mut Observation| {
        for cpu in [1, 2] {
            let observed = machine.cpus.get_mut(&CpuId(cpu)).expect("CPU");
            observed.busy = Nanos::from_millis(500);
            observed.siblings = "1-2".parse().expect("CPUs");
        }
    };
    let text = only("busy-siblings", busy);
    assert!(text.contains("CPUs 1 and 2"), "{text}");
    let mut plan = plan();
    plan.resolved.smt = rampart_model::SmtPolicy::SameOwner;
    assert!(rules(&after_with(&plan, busy)).is_empty());
}

#[test]
fn reports_overloaded_housekeeping_and_unbound_threads() {
    only("housekeeping-overloaded", |machine| {
        machine.cpus.get_mut(&CpuId(0)).expect("CPU").busy = Nanos::from_millis(990);
    });
    let text = only("unbound-work", |machine| {
        let mut sleeping = thread(60, "cron", 2, SchedulingPolicy::Other);
        sleeping.affinity = "0-3".parse().ok();
        machine.threads.push(sleeping);
    });
    assert!(text.contains("cron (60)"), "{text}");
}

#[test]
fn reports_unwanted_activity_by_kind() {
    let ran = |number, name: &str, kernel, bound| {
        let mut thread = thread(number, name, 2, SchedulingPolicy::Other);
        (thread.kernel, thread.bound) = (kernel, bound);
        thread.cpu_time = Nanos::from_micros(70);
        thread
    };
    let process = only("unwanted-process", |machine| {
        machine.threads.push(ran(60, "cron", false, false));
    });
    assert!(
        process.contains("CPU 2") && process.contains("cron (60), 70 µs"),
        "{process}"
    );
    only("unwanted-kernel-thread", |machine| {
        machine.threads.push(ran(61, "kworker/u8:1", true, false));
    });
    let status = after(|machine| machine.threads.push(ran(62, "kworker/2:1", true, true)));
    assert_eq!(rules(&status), ["unwanted-cpu-thread"]);
    assert_eq!(status.findings[0].finding.severity, Severity::Note);
    let interrupt = only("unwanted-interrupt", |machine| {
        machine.interrupts[0].counts.insert(CpuId(2), 7);
    });
    assert!(interrupt.contains("disk (24), 7 times"), "{interrupt}");
    only("unwanted-softirq", |machine| {
        machine.softirqs.push(rampart_model::ObservedCount {
            name: "NET_RX".to_owned(),
            counts: [(CpuId(3), 4)].into(),
        });
    });
    // The observer and its descendants are not unwanted activity.
    let own = after(|machine| {
        let mut meter = ran(9_001, "meter/2", false, false);
        meter.parent = 9_000;
        machine.threads.push(meter);
    });
    assert!(rules(&own).is_empty());
}

/// Returns a thread on a CPU that ran for some milliseconds of the second.
fn ran(number: u32, cpu: u32, policy: SchedulingPolicy, milliseconds: u64) -> ObservedThread {
    let mut thread = thread(number, "sh", cpu, policy);
    thread.cpu_time = Nanos::from_millis(milliseconds);
    thread
}

fn busy(machine: &mut Observation, cpu: u32) {
    machine.cpus.get_mut(&CpuId(cpu)).expect("CPU").busy = Nanos::SECOND;
}

#[test]
fn threads_of_a_domain_that_share_a_cpu_are_found() {
    let with = |affinity: &str, second: u64| {
        after(|machine| {
            busy(machine, 1);
            machine.threads[0].cpu_time = Nanos::from_millis(500);
            let mut other = ran(101, 1, SchedulingPolicy::Fifo(80), second);
            other.affinity = affinity.parse().ok();
            machine.threads.push(other);
            group(machine).threads.push(101);
        })
    };
    let piled = with("1-2", 490);
    assert_eq!(rules(&piled), ["threads-pile-up"]);
    let text = piled.findings[0].finding.to_string();
    assert!(
        text.contains("press (100), 50 %, sh (101), 49 %") && text.contains("while CPU 2 is idle"),
        "{text}"
    );
    assert!(text.contains("taskset --pid --cpu-list 2 101"), "{text}");
    assert!(text.contains("`threads` of the domain"), "{text}");
    assert_eq!(rules(&with("1", 490)), [""; 0], "bound to the CPU");
    assert_eq!(rules(&with("1-2", 5)), [""; 0], "not busy");
}

#[test]
fn a_killed_supervisor_of_a_running_program_is_found() {
    let of = |alive, supervised| {
        after(|machine| {
            machine
                .programs
                .push(program(SupervisedState::Running, alive, supervised));
        })
    };
    assert_eq!(rules(&of(true, true)), [""; 0]);
    let killed = of(true, false);
    assert_eq!(rules(&killed), ["supervisor-gone"]);
    assert!(!killed.is_as_expected());
    let text = killed.findings[0].finding.to_string();
    assert!(
        text.contains("rampart down vision && rampart up vision") && text.contains("process 200"),
        "{text}"
    );
}

#[test]
fn no_drift_is_never_said_above_a_difference() {
    const SAID: &str = "No drift";
    assert!(terminal(&after(|_| {}), 100).contains(SAID));
    let mut refused = plan();
    let what = Finding::new(Severity::Warning, "interrupt 40", "managed by the kernel");
    refused.findings.push(what);
    let text = terminal(&after_with(&refused, |_| {}), 100);
    assert!(!text.contains(SAID), "{text}");
    assert!(text.contains("with 1 difference from its text"), "{text}");
    let drifted = after(|machine| machine.values[1].1 = None);
    assert!(!terminal(&drifted, 100).contains(SAID));
}

/// Returns the status of a machine with several findings.
pub(crate) fn with_findings() -> Status {
    let mut plan = plan();
    let location = "/sys/fs/resctrl";
    plan.findings.push(Finding::new(
        Severity::Warning,
        location,
        "the processor has none",
    ));
    after_with(&plan, |machine| {
        group(machine).partition = Some("isolated invalid (hotplug)".to_owned());
        let mut cron = thread(60, "cron\u{1b}[2J", 3, SchedulingPolicy::Other);
        cron.cpu_time = Nanos::from_micros(70);
        machine.threads.push(cron);
        machine.interrupts[0].counts.insert(CpuId(2), 7);
        machine
            .programs
            .push(program(SupervisedState::Running, false, false));
    })
}

#[test]
fn renders_a_status_for_the_terminal() {
    let text = terminal(&with_findings(), 100);
    insta::assert_snapshot!(text);
    assert!(
        !text.contains('\u{1b}'),
        "names of threads contain no control characters"
    );
    for line in terminal(&with_findings(), 80).lines() {
        let words = line.split(' ').filter(|word| word.len() > 40).count();
        assert!(words > 0 || line.chars().count() <= 80, "{line}");
    }
}

#[test]
fn renders_open_metrics_with_growing_counters() {
    let status = with_findings();
    let mut totals = Totals::default();
    totals.add(&status);
    let once = open_metrics(&status, &totals, &Latencies::default());
    insta::assert_snapshot!(once);
    totals.add(&status);
    let twice = open_metrics(&status, &totals, &Latencies::default());
    let line = |text: &str| {
        text.lines()
            .find(|line| {
                line.starts_with("rampart_unwanted_activity_total{cpu=\"2\",kind=\"interrupt\"}")
            })
            .map(str::to_owned)
    };
    assert!(line(&once).expect("a counter").ends_with(" 7"));
    assert!(line(&twice).expect("a counter").ends_with(" 14"));
}

#[test]
fn renders_one_status_as_gauges_only() {
    let text = open_metrics_once(&with_findings());
    insta::assert_snapshot!(text);
    let types: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("# TYPE "))
        .filter(|line| !line.ends_with(" gauge"))
        .collect();
    assert_eq!(
        types, [""; 0],
        "node_exporter reads no other type of both formats"
    );
    assert!(
        !text.contains("# UNIT") && text.ends_with("# EOF\n"),
        "{text}"
    );
}

#[test]
fn renders_the_older_text_of_prometheus() {
    let status = with_findings();
    let mut totals = Totals::default();
    totals.add(&status);
    let text = classic(&open_metrics(&status, &totals, &Latencies::default()));
    assert!(
        text.contains("# TYPE rampart_unwanted_activity_total counter\n"),
        "{text}"
    );
    assert!(
        text.contains("# HELP rampart_plan_info The active plan"),
        "{text}"
    );
    assert!(text.contains("# TYPE rampart_plan_info gauge\n"), "{text}");
    assert!(
        !text.contains("# EOF") && !text.contains("# UNIT"),
        "{text}"
    );
}
