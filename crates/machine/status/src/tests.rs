// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Each finding, made by the one thing that it is about.

use rampart_model::{
    ActivePlan, ActivePlanState, Allocation, AllocationGroup, CacheResource, CacheShare, CacheWays,
    ChangeTarget, CpuId, Finding, Nanos, Observation, ObservedInterrupt, ObservedProgram,
    ProgramState, SchedulingPolicy, Schemata, Severity, Status, StatusFindingKind, StepKind,
    SupervisedState, WayMask,
};

use crate::support::{GROUP, after, after_with, location, observation, plan, step, thread};
use crate::{Asker, Latencies, TextOptions, Totals, classic, open_metrics, status, terminal};

fn kinds(status: &Status) -> Vec<StatusFindingKind> {
    status.findings.iter().map(|finding| finding.kind).collect()
}

/// The finding of a kind, which is the only one.
fn only(kind: StatusFindingKind, change: impl FnOnce(&mut Observation)) -> String {
    let status = after(change);
    assert_eq!(kinds(&status), [kind], "{:#?}", status.findings);
    status.findings[0].finding.to_string()
}

fn group(observation: &mut Observation) -> &mut rampart_model::ObservedGroup {
    observation.groups.get_mut(GROUP).expect("group")
}

#[test]
fn a_machine_as_planned_has_no_finding() {
    let status = after(|_| {});
    assert_eq!(kinds(&status), []);
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
fn walls_that_fell_are_drift() {
    let gone = only(StatusFindingKind::GroupGone, |machine| {
        *group(machine) = Default::default();
        machine.threads.remove(0);
    });
    assert!(
        gone.contains(GROUP) && gone.contains("rampart apply"),
        "{gone}"
    );
    let cpus = only(StatusFindingKind::GroupCpus, |machine| {
        group(machine).cpus = "1".parse().ok();
    });
    assert!(cpus.contains("expected 1-2, found 1"), "{cpus}");
    let fewer = only(StatusFindingKind::GroupCpus, |machine| {
        group(machine).effective = "2".parse().ok();
    });
    assert!(fewer.contains("effective"), "{fewer}");
    let invalid = "isolated invalid (Cpu list in cpuset.cpus not exclusive)";
    let partition = only(StatusFindingKind::PartitionInvalid, |machine| {
        group(machine).partition = Some(invalid.to_owned());
    });
    assert!(partition.contains("not exclusive"), "{partition}");
    let broken = after(|machine| group(machine).partition = Some(invalid.to_owned()));
    assert!(!broken.domains[0].isolation_valid && broken.domains[1].isolation_valid);
    assert!(broken.has_drift());
}

#[test]
fn a_cpu_that_went_offline_is_drift_once() {
    let text = only(StatusFindingKind::CpuOffline, |machine| {
        machine.online = "0-1,3".parse().expect("CPUs");
        group(machine).effective = "1".parse().ok();
    });
    assert!(text.contains("CPU 2") && text.contains("online"), "{text}");
}

#[test]
fn another_boot_is_told_once_and_not_for_each_place() {
    let text = only(StatusFindingKind::KernelRestarted, |machine| {
        machine.boot = Some("another".to_owned());
        machine.groups.clear();
        machine.values.clear();
        machine.threads.clear();
    });
    assert!(text.contains("rampart release"), "{text}");
}

#[test]
fn a_plan_that_is_not_whole_is_told_with_what_goes_on() {
    for (state, boot, words) in [
        (ActivePlanState::Begun, "this boot", "broken off"),
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
        assert_eq!(kinds(&status), [StatusFindingKind::NotWhole]);
        let text = status.findings[0].finding.to_string();
        assert!(text.contains(words), "{text}");
    }
}

#[test]
fn a_plan_that_was_edited_or_removed_is_drift_and_one_that_cannot_be_read_is_not() {
    only(StatusFindingKind::PlanEdited, |machine| {
        machine.plan_text = Some("[machine]\n".to_owned());
    });
    let gone = only(StatusFindingKind::PlanEdited, |machine| {
        (machine.plan_text, machine.plan_gone) = (None, true);
    });
    assert!(gone.contains("is not there"), "{gone}");
    assert_eq!(kinds(&after(|machine| machine.plan_text = None)), []);
}

#[test]
fn settings_are_compared_by_what_they_mean() {
    let mask = only(StatusFindingKind::ValueChanged, |machine| {
        machine.values[0].1 = Some("0000000f".to_owned());
    });
    assert!(mask.contains("expected 0, found 0000000f"), "{mask}");
    let choice = only(StatusFindingKind::ValueChanged, |machine| {
        machine.values[1].1 = Some("[always] madvise never".to_owned());
    });
    assert!(choice.contains("transparent-huge-pages"), "{choice}");
    only(StatusFindingKind::ValueChanged, |machine| {
        machine.values[1].1 = None
    });
}

#[test]
fn of_two_writes_the_last_counts_and_threads_that_ended_do_not() {
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
    assert_eq!(kinds(&with("0", None)), []);
    assert_eq!(kinds(&with("1", None)), [StatusFindingKind::ValueChanged]);
    assert_eq!(
        kinds(&with("0", Some("fifo:1"))),
        [StatusFindingKind::ValueChanged]
    );
}

#[test]
fn ways_that_others_may_fill_are_drift() {
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
    assert_eq!(kinds(&with("L3:0=f0", "L3:0=f0")), []);
    let shared = with("L3:0=f0", "L3:0=1f");
    assert_eq!(kinds(&shared), [StatusFindingKind::CacheShared]);
    let text = shared.findings[0].finding.to_string();
    assert!(
        text.contains("/sys/fs/resctrl/theirs") && text.contains("L3:0=1f"),
        "{text}"
    );
    assert_eq!(
        kinds(&with("L3:0=ff", "L3:0=f0")),
        [StatusFindingKind::ValueChanged]
    );
}

#[test]
fn interrupts_that_moved_back_are_drift() {
    let text = only(StatusFindingKind::InterruptMoved, |machine| {
        machine.interrupts[0].affinity = "0-3".parse().ok();
    });
    assert!(text.contains("24 (disk) on 1-3"), "{text}");
    let text = only(StatusFindingKind::InterruptMoved, |machine| {
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
    let text = only(StatusFindingKind::InterruptMoved, |machine| {
        machine.interrupts.push(new.clone());
    });
    assert!(text.contains("40 (usb) on 2"), "{text}");
    // What could not be moved when the plan was applied was told then.
    let mut plan = plan();
    let told = Finding::new(Severity::Warning, "interrupt 40 (usb)", "managed");
    plan.findings.push(told);
    let with = |plan: &ActivePlan| after_with(plan, |machine| machine.interrupts.push(new.clone()));
    let status = with(&plan);
    assert_eq!(kinds(&status), [StatusFindingKind::InterruptMoved]);
    plan.kept_interrupts.push(40);
    assert_eq!(kinds(&with(&plan)), []);
}

#[test]
fn threads_of_a_domain_are_held_to_their_cpus_and_policies() {
    let strayed = only(StatusFindingKind::ThreadCpu, |machine| {
        machine.threads[0].affinity = "0-2".parse().ok();
    });
    assert!(strayed.contains("press (100) on 0-2"), "{strayed}");
    assert!(strayed.contains("rampart move 100 --to press"), "{strayed}");
    let policy = only(StatusFindingKind::ThreadPolicy, |machine| {
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
    assert_eq!(kinds(&member("logger")), []);
    assert_eq!(kinds(&member("worker")), [StatusFindingKind::ThreadPolicy]);
}

#[test]
fn what_measures_inside_a_domain_is_none_of_its_threads() {
    let status = after(|machine| {
        let meter = thread(300, "rampart-meter", 1, SchedulingPolicy::Other);
        let mut measuring = thread(301, "meter/1", 1, SchedulingPolicy::Fifo(1));
        measuring.process = 300;
        machine.threads.extend([meter, measuring]);
        group(machine).threads.extend([300, 301]);
    });
    assert_eq!(kinds(&status), []);
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
fn programs_run_restart_or_are_gone() {
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
        assert_eq!(kinds(&restarting), []);
        // Its supervisor was killed, in a pause before the next start too.
        let gone = of(program(up, false, false));
        assert_eq!(state(&gone), Some(ProgramState::Stopped));
        assert_eq!(kinds(&gone), [StatusFindingKind::ProgramGone], "{up:?}");
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
            assert_eq!(kinds(&stopped), [], "{down:?}");
        }
    }
}

#[test]
fn what_descends_from_a_program_is_of_its_domain() {
    let status = after(|machine| {
        machine
            .programs
            .push(program(SupervisedState::Running, true, true));
        let mut child = thread(201, "vision", 3, SchedulingPolicy::Fifo(10));
        child.parent = 200;
        child.cpu_time = Nanos::from_millis(5);
        machine.threads.push(child);
    });
    assert_eq!(kinds(&status), []);
    assert_eq!(status.domains[1].threads, 1);
}

#[test]
fn a_real_time_thread_on_a_cpu_of_another_domain_hurts() {
    let status = after(|machine| {
        machine.threads[0].cpu = CpuId(3);
        machine.threads[0].affinity = "3".parse().ok();
    });
    let found = kinds(&status);
    assert!(
        found.contains(&StatusFindingKind::ForeignRealTime),
        "{found:?}"
    );
    assert!(found.contains(&StatusFindingKind::ThreadCpu), "{found:?}");
    assert!(
        found.contains(&StatusFindingKind::UnwantedProcess),
        "{found:?}"
    );
    let told: String = status
        .findings
        .iter()
        .map(|finding| format!("{}\n", finding.finding))
        .collect();
    for fix in [
        "back: rampart move 100 --to press",
        "rampart move PID --to vision",
    ] {
        assert!(told.contains(fix), "{told}");
    }
}

#[test]
fn a_thread_that_sleeps_where_it_ran_last_is_not_there() {
    let sleeps = |affinity: &str| {
        after(|machine| {
            let mut sleeping = thread(101, "press", 3, SchedulingPolicy::Fifo(80));
            sleeping.affinity = affinity.parse().ok();
            machine.threads.push(sleeping);
            group(machine).threads.push(101);
        })
    };
    assert_eq!(kinds(&sleeps("1-2")), []);
    let may_come = kinds(&sleeps("1-3"));
    let found = may_come.contains(&StatusFindingKind::ForeignRealTime);
    assert!(found, "{may_come:?}");
}

#[test]
fn a_spinning_thread_starves_what_is_below_it() {
    let spins = |machine: &mut Observation| {
        machine.threads[0].cpu_time = Nanos::from_millis(990);
    };
    let warned = after(spins);
    assert_eq!(kinds(&warned), [StatusFindingKind::KernelThreadStarved]);
    assert_eq!(warned.findings[0].finding.severity, Severity::Warning);
    let starved = after(|machine| {
        spins(machine);
        machine.threads[2].state = 'R';
    });
    assert_eq!(starved.findings[0].finding.severity, Severity::Error);
    let above = after(|machine| {
        spins(machine);
        machine.threads[2].policy = Some(SchedulingPolicy::Fifo(81));
    });
    assert_eq!(kinds(&above), []);
}

#[test]
fn busy_siblings_hurt_unless_they_are_one_owners_by_the_plan() {
    let busy = |machine: &mut Observation| {
        for cpu in [1, 2] {
            let observed = machine.cpus.get_mut(&CpuId(cpu)).expect("CPU");
            observed.busy = Nanos::from_millis(500);
            observed.siblings = "1-2".parse().expect("CPUs");
        }
    };
    let text = only(StatusFindingKind::BusySiblings, busy);
    assert!(text.contains("CPUs 1 and 2"), "{text}");
    let mut plan = plan();
    plan.resolved.smt = rampart_model::SmtPolicy::SameOwner;
    assert_eq!(kinds(&after_with(&plan, busy)), []);
}

#[test]
fn overloaded_housekeeping_and_resting_work_are_told() {
    only(StatusFindingKind::HousekeepingOverloaded, |machine| {
        machine.cpus.get_mut(&CpuId(0)).expect("CPU").busy = Nanos::from_millis(990);
    });
    let text = only(StatusFindingKind::UnboundWork, |machine| {
        let mut resting = thread(60, "cron", 2, SchedulingPolicy::Other);
        resting.affinity = "0-3".parse().ok();
        machine.threads.push(resting);
    });
    assert!(text.contains("cron (60)"), "{text}");
}

#[test]
fn intruders_are_told_by_sort() {
    let ran = |number, name: &str, kernel, bound| {
        let mut thread = thread(number, name, 2, SchedulingPolicy::Other);
        (thread.kernel, thread.bound) = (kernel, bound);
        thread.cpu_time = Nanos::from_micros(70);
        thread
    };
    let process = only(StatusFindingKind::UnwantedProcess, |machine| {
        machine.threads.push(ran(60, "cron", false, false));
    });
    assert!(
        process.contains("CPU 2") && process.contains("cron (60), 70 µs"),
        "{process}"
    );
    only(StatusFindingKind::UnwantedKernelWork, |machine| {
        machine.threads.push(ran(61, "kworker/u8:1", true, false));
    });
    let status = after(|machine| machine.threads.push(ran(62, "kworker/2:1", true, true)));
    assert_eq!(status.findings[0].finding.severity, Severity::Note);
    let interrupt = only(StatusFindingKind::UnwantedInterrupt, |machine| {
        machine.interrupts[0].counts.insert(CpuId(2), 7);
    });
    assert!(interrupt.contains("disk (24), 7 times"), "{interrupt}");
    only(StatusFindingKind::UnwantedInterrupt, |machine| {
        machine.softirqs.push(rampart_model::ObservedCount {
            name: "NET_RX".to_owned(),
            counts: [(CpuId(3), 4)].into(),
        });
    });
    // Who asks is no noise source, and neither is what it started.
    let own = after(|machine| {
        let mut meter = ran(9_001, "meter/2", false, false);
        meter.parent = 9_000;
        machine.threads.push(meter);
    });
    assert_eq!(kinds(&own), []);
}

#[test]
fn without_a_plan_only_the_isolation_is_told() {
    let mut later = observation(1);
    later.isolation.isolated = "2-3".parse().expect("CPUs");
    let asker = Asker {
        tool_version: "0",
        process: None,
    };
    let status = status(None, &observation(0), &later, asker);
    assert!(status.findings.is_empty() && status.plan.is_none());
    let text = terminal(&status, TextOptions { width: 80 });
    assert!(text.contains("No plan is applied."), "{text}");
    assert!(
        text.contains("isolated CPUs 2-3; without a tick (nohz_full) none"),
        "{text}"
    );
}

/// A machine on which several things are amiss.
pub(crate) fn amiss() -> Status {
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
fn the_terminal_shows_all_of_it() {
    let text = terminal(&amiss(), TextOptions { width: 100 });
    insta::assert_snapshot!(text);
    assert!(!text.contains('\u{1b}'), "names of threads steer nothing");
    for line in terminal(&amiss(), TextOptions { width: 80 }).lines() {
        let words = line.split(' ').filter(|word| word.len() > 40).count();
        assert!(words > 0 || line.chars().count() <= 80, "{line}");
    }
}

#[test]
fn the_figures_are_open_metrics_and_counters_only_grow() {
    let status = amiss();
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
fn the_older_text_names_counters_as_its_readers_expect() {
    let status = amiss();
    let mut totals = Totals::default();
    totals.add(&status);
    let text = classic(&open_metrics(&status, &totals, &Latencies::default()));
    assert!(
        text.contains("# TYPE rampart_unwanted_activity_total counter\n"),
        "{text}"
    );
    assert!(
        text.contains("# HELP rampart_plan_info The plan that is applied"),
        "{text}"
    );
    assert!(text.contains("# TYPE rampart_plan_info gauge\n"), "{text}");
    assert!(
        !text.contains("# EOF") && !text.contains("# UNIT"),
        "{text}"
    );
}
