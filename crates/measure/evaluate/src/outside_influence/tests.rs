// SPDX-License-Identifier: Apache-2.0 OR MIT
use std::collections::BTreeMap;

use rampart_host::{
    ClockAdjustment, ClockReadings, CpuTimes, InfluenceSnapshot, InterruptState, MeasuringThread,
    ProgramThread,
};
use rampart_model::{CpuId, CpuSet, Nanos, SchedulingPolicy};

use super::judge::{GroupOfPlan, Judge, MeasuredDomain};
use super::not_idle;

/// The process of the experiment, and its meter.
const OWN: u32 = 100;
const METER: u32 = 110;

fn program(thread: u32, parent: u32, cpu: u32, used: u64) -> ProgramThread {
    ProgramThread {
        process: thread,
        thread,
        parent,
        start: 1,
        name: format!("p{thread}"),
        policy: Some(SchedulingPolicy::Other),
        cpu: CpuId(cpu),
        ticks: Nanos::from_millis(used / 10 * 10),
        exact: (cpu == 1).then(|| Nanos::from_millis(used)),
        control_groups: vec!["cpuset:/".to_owned()],
    }
}

fn fifo(thread: ProgramThread) -> ProgramThread {
    ProgramThread {
        policy: Some(SchedulingPolicy::Fifo(98)),
        ..thread
    }
}

fn rate(tick: i64, frequency: i64) -> Option<ClockAdjustment> {
    Some(ClockAdjustment { tick, frequency })
}

/// A snapshot at a time in ms: CPU 1 is measured, its meter sleeps between its samples.
fn snapshot(at: u64) -> InfluenceSnapshot {
    let at = Nanos::from_millis(at);
    let state = |action: &str, count, effective: &str| InterruptState {
        action: action.to_owned(),
        counts: BTreeMap::from([(CpuId(1), count)]),
        affinity: effective.parse().expect("CPUs"),
        effective: effective.parse().expect("CPUs"),
    };
    let meter = MeasuringThread {
        process: METER,
        state: 'S',
        tracer: None,
        frozen: false,
        policy: SchedulingPolicy::Fifo(80),
        affinity: CpuSet::single(CpuId(1)),
        control_groups: vec!["cpuset:/rampart-1".to_owned(), "v2:/".to_owned()],
    };
    let file = |name: &str, text: &str| (name.to_owned(), text.to_owned());
    let used = |percent: u64| at.0 / 100_000_000 * percent;
    let ticks = |percent: u64| Nanos::from_millis(used(percent) / 10 * 10);
    let times = |programs: u64, idle: u64, interrupts: u64| CpuTimes {
        programs: ticks(programs),
        idle: ticks(idle),
        interrupts: ticks(interrupts),
        steal: Nanos::ZERO,
    };
    InfluenceSnapshot {
        // What the threads below leave of CPU 1 is the way out of idle states.
        cpu_times: [(CpuId(0), times(15, 83, 2)), (CpuId(1), times(12, 68, 5))].into(),
        idle_is_exact: true,
        kernel_threads: [(9, (CpuId(1), Nanos(at.0 / 10)))].into(),
        clocks: ClockReadings {
            monotonic: Nanos::SECOND + at,
            realtime: Nanos::from_secs(1_000_000) + at,
            raw: Nanos::from_secs(7) + at,
            boot: Nanos::from_secs(9) + at,
            uncertainty: Nanos(400),
            adjustment: rate(10_000, 0),
            source: "tsc".to_owned(),
        },
        programs: vec![
            program(OWN, 1, 0, used(5)),
            // The meter, a load of the experiment, and one of its workers.
            program(METER, OWN, 1, used(2)),
            program(120, OWN, 1, used(5)),
            program(121, 120, 1, used(5)),
            // Programs of others: on another CPU, and one that sleeps.
            program(200, 1, 0, used(10)),
            program(201, 1, 1, 5_000),
        ],
        interrupts: BTreeMap::from([
            (24, state("disk", 7, "0")),
            // It could not be moved away.
            (25, state("managed", at.0, "1")),
        ]),
        measuring: BTreeMap::from([(METER, meter)]),
        group_files: BTreeMap::from([
            file("/sys/fs/cgroup/cpuset/rampart-1/cpuset.cpus", "1"),
            file("/sys/fs/cgroup/cpuset/cpuset.cpus", "0-1"),
        ]),
        frequency_limits: BTreeMap::from([
            file(
                "/sys/devices/system/cpu/cpu1/cpufreq/scaling_max_freq",
                "3000000",
            ),
            file(
                "/sys/devices/system/cpu/cpu2/cpufreq/scaling_max_freq",
                "3000000",
            ),
            file("/sys/devices/system/cpu/cpufreq/boost", "1"),
        ]),
    }
}

fn isolated() -> MeasuredDomain {
    MeasuredDomain {
        cpus: CpuSet::single(CpuId(1)),
        isolated: true,
        measuring: vec![METER],
        ..MeasuredDomain::default()
    }
}

/// Judges snapshots that are changed by `change`, which gets the number of each.
fn judged(
    domain: MeasuredDomain,
    times: &[u64],
    mut change: impl FnMut(usize, &mut InfluenceSnapshot),
) -> Vec<String> {
    let mut snapshots = times.iter().enumerate().map(|(number, at)| {
        let mut snapshot = snapshot(*at);
        change(number, &mut snapshot);
        snapshot
    });
    let first = snapshots.next().expect("a first snapshot");
    let mut judge = Judge::default();
    judge.begin(vec![domain], OWN, first);
    for snapshot in snapshots {
        judge.add(snapshot);
    }
    let found = judge.end();
    found.iter().map(|one| one.finding.to_string()).collect()
}

fn assert_one(found: &[String], parts: &[&str]) {
    assert_eq!(found.len(), 1, "{found:#?}");
    for part in parts {
        assert!(found[0].contains(part), "no `{part}` in {}", found[0]);
    }
}

#[test]
fn the_experiment_and_the_machine_itself_are_not_outside() {
    for domain in [
        isolated(),
        MeasuredDomain {
            isolated: false,
            ..isolated()
        },
    ] {
        let found = judged(domain, &[0, 500, 1_100], |_, _| {});
        assert_eq!(found, Vec::<String>::new());
    }
}

#[test]
fn a_program_on_an_isolated_cpu_is_named_with_its_time() {
    let found = judged(isolated(), &[0, 500, 1_100], |number, snapshot| {
        let used = [0, 100, 612][number];
        snapshot.programs.push(fifo(program(300, 1, 1, used)));
    });
    let parts = ["CPU 1", "p300", "thread 300", "fifo:98", "612 ms", "55.6 %"];
    assert_one(&found, &parts);
}

/// It is below the priority of the meter, and changes how the CPU idles.
#[test]
fn a_time_sharing_program_counts_on_an_isolated_cpu_alone() {
    let planted = |number: usize, snapshot: &mut InfluenceSnapshot| {
        let used = [0, 2][number];
        snapshot.programs.push(program(300, 1, 1, used));
    };
    assert_one(
        &judged(isolated(), &[0, 300], planted),
        &["p300", "policy other"],
    );
    let shared = MeasuredDomain {
        isolated: false,
        ..isolated()
    };
    assert!(judged(shared, &[0, 300], planted).is_empty());
}

#[test]
fn a_real_time_program_counts_on_a_shared_cpu_above_a_share() {
    let shared = || MeasuredDomain {
        isolated: false,
        ..isolated()
    };
    let planted = |used: u64| {
        judged(shared(), &[0, 1_000], |number, snapshot| {
            let used = used * number as u64;
            snapshot.programs.push(fifo(program(300, 1, 1, used)));
        })
    };
    assert_one(&planted(900), &["p300", "at most 5 %"]);
    assert!(planted(30).is_empty());
}

#[test]
fn a_program_that_came_to_the_cpu_or_ended_there_is_noticed() {
    let came = judged(isolated(), &[0, 500, 1_000], |number, snapshot| {
        let (cpu, used) = [(0, 40), (1, 300), (0, 420)][number];
        snapshot.programs.push(program(300, 1, cpu, used));
    });
    // At least: 300 − (40 + 20) ms.
    assert_one(&came, &["p300", "240 ms"]);
    let ended = judged(isolated(), &[0, 500, 1_000], |number, snapshot| {
        if number == 1 {
            snapshot.programs.push(program(300, 1, 1, 90));
        }
    });
    assert_one(&ended, &["p300", "90 ms"]);
    // A later thread with the same number is another one.
    let reused = judged(isolated(), &[0, 1_000], |number, snapshot| {
        let start = 1 + number as u64;
        let thread = program(300, 1, 1, [70, 30][number]);
        snapshot.programs.push(ProgramThread { start, ..thread });
    });
    assert_one(&reused, &["30 ms"]);
}

/// A kernel without `schedstat` counts in ticks.
#[test]
fn ticks_are_enough_to_notice_a_program() {
    let found = judged(isolated(), &[0, 1_000], |number, snapshot| {
        let thread = program(300, 1, 1, [100, 350][number]);
        snapshot.programs.push(ProgramThread {
            exact: None,
            ..thread
        });
    });
    assert_one(&found, &["p300", "250 ms"]);
}

#[test]
fn programs_of_the_active_plan_belong_to_its_domain() {
    let planted = |group: &'static str| {
        move |number: usize, snapshot: &mut InfluenceSnapshot| {
            let thread = program(300, 1, 1, 200 * number as u64);
            snapshot.programs.push(ProgramThread {
                control_groups: vec![group.to_owned()],
                ..thread
            });
        }
    };
    let of_plan = || MeasuredDomain {
        group_of_plan: Some(GroupOfPlan {
            unified: false,
            path: "/rampart-press".to_owned(),
        }),
        ..isolated()
    };
    for (domain, group, outside) in [
        (of_plan(), "cpuset:/rampart-press/box", false),
        (of_plan(), "cpuset:/rampart-press-2", true),
        (of_plan(), "v2:/rampart-press", true),
        (isolated(), "cpuset:/rampart-press", true),
    ] {
        let found = judged(domain, &[0, 1_000], planted(group));
        assert_eq!(found.is_empty(), !outside, "{group}: {found:?}");
    }
}

#[test]
fn a_changed_placement_is_named_also_if_it_was_changed_back() {
    let change = |change: fn(&mut MeasuringThread)| {
        judged(isolated(), &[0, 500, 1_000], move |number, snapshot| {
            if number == 1 {
                change(snapshot.measuring.get_mut(&METER).expect("the meter"));
            }
        })
    };
    let moved = change(|thread| thread.control_groups[0] = "cpuset:/".to_owned());
    let parts = [
        "measuring thread of CPU 1",
        "control group",
        "found cpuset:/ v2:/",
        "expected cpuset:/rampart-1 v2:/",
    ];
    assert_one(&moved, &parts);
    let policy = change(|thread| thread.policy = SchedulingPolicy::Fifo(1));
    assert_one(&policy, &["policy", "fifo:1", "fifo:80"]);
    let affinity = change(|thread| thread.affinity = "0-1".parse().expect("CPUs"));
    assert_one(&affinity, &["affinity", "CPUs 0-1"]);
    // A meter that has ended is not a changed placement.
    let ended = judged(isolated(), &[0, 1_000], |number, snapshot| {
        if number == 1 {
            snapshot.measuring.clear();
        }
    });
    assert!(ended.is_empty(), "{ended:?}");
}

#[test]
fn changed_cpus_of_the_group_and_changed_frequencies_are_named() {
    let change = |file: &'static str, text: &'static str| {
        judged(isolated(), &[0, 1_000], move |number, snapshot| {
            for files in [&mut snapshot.group_files, &mut snapshot.frequency_limits] {
                if let Some(content) = files.get_mut(file).filter(|_| number == 1) {
                    text.clone_into(content);
                }
            }
        })
    };
    let own = "/sys/fs/cgroup/cpuset/rampart-1/cpuset.cpus";
    assert_one(&change(own, "0-1"), &[own, "found 0-1", "expected 1"]);
    let root = "/sys/fs/cgroup/cpuset/cpuset.cpus";
    assert!(change(root, "1").is_empty());
    let limit = "/sys/devices/system/cpu/cpu1/cpufreq/scaling_max_freq";
    assert_one(
        &change(limit, "800000"),
        &["frequency", "800000", "3000000"],
    );
    let of_another = "/sys/devices/system/cpu/cpu2/cpufreq/scaling_max_freq";
    assert!(change(of_another, "800000").is_empty());
    let boost = "/sys/devices/system/cpu/cpufreq/boost";
    assert_one(&change(boost, "0"), &["boost", "found 0", "expected 1"]);
}

#[test]
fn a_measuring_thread_that_is_stopped_is_named() {
    let seen = |change: fn(&mut MeasuringThread)| {
        judged(isolated(), &[0, 500, 1_000], move |number, snapshot| {
            if number == 1 {
                change(snapshot.measuring.get_mut(&METER).expect("the meter"));
            }
        })
    };
    let location = "measuring thread of CPU 1";
    let stopped = seen(|thread| thread.state = 'T');
    assert_one(
        &stopped,
        &[
            location,
            "stopped by a signal",
            "expected running",
            "SIGSTOP",
        ],
    );
    let frozen = seen(|thread| (thread.frozen, thread.state) = (true, 'D'));
    assert_one(&frozen, &[location, "frozen with its control group"]);
    let traced = seen(|thread| (thread.tracer, thread.state) = (Some(300), 't'));
    assert_one(&traced, &[location, "traced by process 300"]);
    assert!(seen(|thread| thread.state = 'R').is_empty());
}

/// Takes this many ms of the idle time of CPU 1 between the last two snapshots.
fn busy(milliseconds: u64) -> impl Fn(usize, &mut InfluenceSnapshot) {
    move |number, snapshot| {
        let times = snapshot.cpu_times.get_mut(&CpuId(1)).expect("times");
        if number == 2 {
            times.idle = times.idle.saturating_sub(Nanos::from_millis(milliseconds));
        }
    }
}

#[test]
fn a_program_between_two_observations_is_noticed_by_the_time_of_its_cpu() {
    let times = [0, 500, 1_100];
    let found = judged(isolated(), &times, busy(400));
    let parts = [
        "CPU 1",
        "an unknown program",
        "468 ms, 43 %",
        "at most 20 %",
    ];
    assert_one(&found, &parts);
    assert!(judged(isolated(), &times, busy(100)).is_empty());
    // A program that was observed explains the time, and is named itself.
    let named = judged(isolated(), &times, |number, snapshot| {
        busy(400)(number, snapshot);
        let used = [0, 0, 400][number];
        snapshot.programs.push(program(300, 1, 1, used));
    });
    assert_one(&named, &["p300"]);
    // Its exact time is old, as that of a thread that is alone on a CPU without a tick.
    let alone = judged(isolated(), &times, |number, snapshot| {
        busy(400)(number, snapshot);
        let ticks = Nanos::from_millis([0, 0, 400][number]);
        let own = program(130, OWN, 1, 0);
        snapshot.programs.push(ProgramThread { ticks, ..own });
    });
    assert!(alone.is_empty(), "{alone:?}");
    // A thread of the experiment ended there, with an unknown last time.
    let ended = judged(isolated(), &times, |number, snapshot| {
        busy(400)(number, snapshot);
        if number < 2 {
            snapshot.programs.push(program(130, OWN, 1, 1));
        }
    });
    assert!(ended.is_empty(), "{ended:?}");
    // Idle time that is counted at ticks, and CPUs that others may use.
    let counted = judged(isolated(), &times, |number, snapshot| {
        busy(400)(number, snapshot);
        snapshot.idle_is_exact = false;
    });
    assert!(counted.is_empty(), "{counted:?}");
    let shared = MeasuredDomain {
        isolated: false,
        ..isolated()
    };
    assert!(judged(shared, &times, busy(400)).is_empty());
    let of_plan = MeasuredDomain {
        group_of_plan: Some(GroupOfPlan {
            unified: false,
            path: "/rampart-press".to_owned(),
        }),
        ..isolated()
    };
    assert!(judged(of_plan, &times, busy(400)).is_empty());
    // Each wakeup is expensive, for the meter and for the interrupt before it.
    let emulated = judged(isolated(), &times, |number, snapshot| {
        busy(400)(number, snapshot);
        let spent = snapshot.clocks.monotonic.saturating_sub(Nanos::SECOND);
        snapshot.programs[1].exact = Some(Nanos(spent.0 / 5));
    });
    assert!(emulated.is_empty(), "{emulated:?}");
}

#[test]
fn many_small_real_time_programs_count_together_on_a_shared_cpu() {
    let shared = || MeasuredDomain {
        isolated: false,
        ..isolated()
    };
    let planted = |count: u32| {
        judged(shared(), &[0, 1_000], |number, snapshot| {
            for thread in 300..300 + count {
                let used = (40 + u64::from(thread == 301)) * number as u64;
                snapshot.programs.push(fifo(program(thread, 1, 1, used)));
            }
        })
    };
    let parts = [
        "3 real-time threads",
        "`p301`",
        "together 121 ms, 12.1 %",
        "at most 5 %",
    ];
    assert_one(&planted(3), &parts);
    assert!(planted(1).is_empty());
}

#[test]
fn others_that_use_the_cpus_without_a_load_are_named() {
    let found = |change: fn(usize, &mut InfluenceSnapshot)| {
        let mut judge = Judge::default();
        for (number, at) in [0, 500, 1_000].into_iter().enumerate() {
            let mut snapshot = snapshot(at);
            change(number, &mut snapshot);
            match number {
                0 => judge.begin(vec![isolated()], OWN, snapshot),
                _ => judge.add(snapshot),
            }
        }
        judge.others_finding()
    };
    assert_eq!(found(|_, _| {}), None);
    let compiler = found(|number, snapshot| {
        for thread in [300, 301] {
            let compiler = program(thread, 1, 0, 200 * number as u64);
            let name = "cc1".to_owned();
            snapshot.programs.push(ProgramThread { name, ..compiler });
        }
    });
    let compiler = compiler.expect("a finding");
    assert_eq!(
        compiler.found.as_deref(),
        Some("`cc1`, all together about a CPU")
    );
    assert_eq!(not_idle(std::slice::from_ref(&compiler)), Some(&compiler));
    // Programs that begin and end between two observations.
    let short = found(|number, snapshot| {
        let times = snapshot.cpu_times.get_mut(&CpuId(0)).expect("times");
        times.programs += Nanos::from_millis(400 * number as u64);
    });
    let short = short.expect("a finding").found;
    assert_eq!(
        short.as_deref(),
        Some("many programs, or programs that ended soon, all together about a CPU")
    );
    // On the measured CPU ticks may hit the meter alone.
    let measured = found(|number, snapshot| {
        let times = snapshot.cpu_times.get_mut(&CpuId(1)).expect("times");
        times.programs += Nanos::from_millis(400 * number as u64);
    });
    assert_eq!(measured, None);
}

#[test]
fn an_interrupt_that_was_moved_to_the_cpu_and_back_is_named() {
    // Before and after the run it goes to CPU 0.
    let moved = |count: u64| {
        move |number: usize, snapshot: &mut InfluenceSnapshot| {
            let disk = snapshot.interrupts.get_mut(&24).expect("an interrupt");
            disk.counts.insert(CpuId(1), 7 + count * number as u64);
        }
    };
    let found = judged(isolated(), &[0, 1_000], moved(57));
    assert_one(&found, &["interrupt 24 (disk)", "CPU 1", "57 times"]);
    assert_one(&judged(isolated(), &[0, 1_000], moved(1)), &["once"]);
    let shared = MeasuredDomain {
        isolated: false,
        ..isolated()
    };
    assert!(judged(shared, &[0, 1_000], moved(57)).is_empty());
}

/// On some controllers an interrupt comes to its old CPU once more after it was moved.
#[test]
fn an_interrupt_that_the_isolation_moved_may_come_once_more_but_not_stay() {
    let pending = |count: u64| {
        judged(isolated(), &[0, 1_000], |number, snapshot| {
            let disk = snapshot.interrupts.get_mut(&24).expect("an interrupt");
            disk.effective = CpuSet::single(CpuId(1));
            disk.counts.insert(CpuId(1), 7 + count * number as u64);
        })
    };
    assert!(pending(1).is_empty());
    assert_one(&pending(30), &["interrupt 24 (disk)", "30 times"]);
    let kept_away = MeasuredDomain {
        kept_away: [25].into(),
        ..isolated()
    };
    let back = judged(kept_away, &[0, 1_000], |_, _| {});
    assert_one(&back, &["interrupt 25 (managed)"]);
}

/// The real clocks must not be changed by a test, so these are invented.
#[test]
fn changed_clocks_are_named() {
    let change = |change: fn(usize, &mut ClockReadings)| {
        judged(isolated(), &[0, 500, 1_000], move |number, snapshot| {
            change(number, &mut snapshot.clocks);
        })
    };
    let jumped = change(|number, clocks| {
        if number > 0 {
            clocks.realtime = clocks.realtime.saturating_sub(Nanos::from_secs(3));
        }
    });
    assert_one(&jumped, &["clocks", "wall clock was set", "−3 s"]);
    let suspended = change(|number, clocks| {
        if number == 2 {
            clocks.boot += Nanos::from_secs(60);
            clocks.realtime += Nanos::from_secs(60);
        }
    });
    assert_eq!(suspended.len(), 2, "{suspended:?}");
    assert!(suspended[1].contains("suspended"), "{suspended:?}");
    let source = change(|number, clocks| {
        if number == 2 {
            clocks.source = "hpet".to_owned();
        }
    });
    assert_one(&source, &["clock source", "found hpet", "expected tsc"]);

    // A tick of 11 ms instead of 10 ms makes the monotonic clock run 10 % faster.
    let faster = |clocks: &mut ClockReadings, by: Nanos| {
        clocks.monotonic += by;
        clocks.realtime += by;
        clocks.boot += by;
    };
    let tick = judged(isolated(), &[0, 500, 1_000], |number, snapshot| {
        if number > 0 {
            snapshot.clocks.adjustment = rate(11_000, 0);
            faster(&mut snapshot.clocks, Nanos::from_millis(50 * number as u64));
        }
    });
    assert!(tick[0].contains("found 11000 µs"), "{tick:?}");
    // Changed and changed back between two snapshots.
    let back = judged(isolated(), &[0, 500, 1_000], |number, snapshot| {
        if number == 2 {
            faster(&mut snapshot.clocks, Nanos::from_millis(5));
        }
    });
    assert_one(&back, &["rate of CLOCK_MONOTONIC was changed", "+0.50 %"]);
    // It was wrong before the run, too.
    let wrong = judged(isolated(), &[0, 1_000], |number, snapshot| {
        snapshot.clocks.adjustment = rate(11_000, 0);
        faster(
            &mut snapshot.clocks,
            Nanos::from_millis(100 * number as u64),
        );
    });
    assert_one(&wrong, &["runs at a wrong rate", "+10.00 %"]);
    // A filter of system calls hides the settings.
    for (gained, outside) in [(5, false), (50, true)] {
        let hidden = judged(isolated(), &[0, 1_000], |number, snapshot| {
            snapshot.clocks.adjustment = None;
            faster(
                &mut snapshot.clocks,
                Nanos::from_millis(gained * number as u64),
            );
        });
        assert_eq!(!hidden.is_empty(), outside, "{hidden:?}");
    }
    // NTP adjusts the rate by a little, with and without the kernel's setting.
    for frequency in [0, 450 * 65_536] {
        let adjusted = judged(isolated(), &[0, 1_000], |number, snapshot| {
            snapshot.clocks.adjustment = rate(10_000, frequency);
            faster(
                &mut snapshot.clocks,
                Nanos::from_micros(450 * number as u64),
            );
        });
        assert!(adjusted.is_empty(), "{adjusted:?}");
    }
}

#[test]
fn what_was_between_two_measurements_is_in_neither() {
    let planted = |at: u64, used: u64| {
        let mut snapshot = snapshot(at);
        snapshot.programs.push(fifo(program(300, 1, 1, used)));
        snapshot
    };
    let mut judge = Judge::default();
    let mut measured = |from: InfluenceSnapshot, to: InfluenceSnapshot| {
        judge.begin(vec![isolated()], OWN, from);
        judge.add(to);
        judge.end()
    };
    let found = measured(planted(0, 0), planted(300, 150));
    assert_eq!(found[0].domain, Some(0));
    assert!(
        found[0].finding.to_string().contains("150 ms, 50.0 %"),
        "{found:?}"
    );
    assert!(measured(planted(600, 400), planted(900, 400)).is_empty());

    // An interrupt that was moved to the CPU in between stays an influence.
    let moved = |at: u64, count: u64| {
        let mut snapshot = planted(at, 400);
        let disk = snapshot.interrupts.get_mut(&24).expect("an interrupt");
        disk.counts.insert(CpuId(1), count);
        disk.effective = CpuSet::single(CpuId(1));
        snapshot
    };
    let found = measured(moved(1_200, 20), moved(1_500, 23));
    assert!(
        found[0].finding.to_string().contains("3 times"),
        "{found:?}"
    );
}
