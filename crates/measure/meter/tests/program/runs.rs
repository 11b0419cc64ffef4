// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs that end regularly or early.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rampart_model::{
    CpuSet, Distribution, MeterDetail, MeterEvent, MeterKind, MeterRequest, MeterSettings, Nanos,
    Phase, PlacedBy, SchedulingPolicy, Series,
};

use crate::meter_process::{Meter, PROGRAM, allowed, cpu, is_root, plan, run, skip};

#[test]
fn wakeup_counts_every_period() {
    let plan = plan(MeterKind::Wakeup);
    let finished = run(&plan);
    finished.check(&plan);
    let thread = finished.thread();
    assert_eq!(thread.samples + thread.missed, 600);
    assert_eq!(thread.duration, plan.duration);
    assert_eq!(thread.warm_up.duration, plan.warm_up);
    assert!(thread.warm_up.samples <= 100);
    assert_eq!(thread.placement.affinity, plan.cpus);
    assert_eq!(thread.placement.cpus_seen, plan.cpus);
    assert_eq!(thread.placement.policy, SchedulingPolicy::Other);
    assert!(!thread.placement.memory_locked);
    assert!(thread.counters.voluntary_switches <= thread.samples + 5);
    assert!(thread.counters.cpu_time > Nanos::ZERO);
}

fn on_linux() -> impl Iterator<Item = MeterKind> {
    let all = MeterKind::ALL.into_iter();
    all.filter(|meter| !meter.needs_bare_metal())
}

#[test]
fn every_meter_keeps_a_timeline() {
    for kind in on_linux() {
        let mut plan = plan(kind);
        let slot = Nanos::from_millis(5);
        plan.timeline = Some(slot);
        let finished = run(&plan);
        finished.check(&plan);
        // Each of the worst samples is in the slot in which it ended.
        let start = finished.started + plan.warm_up;
        let slots = finished.slots();
        let thread = finished.thread();
        assert!(!thread.worst.is_empty(), "{kind}");
        for worst in &thread.worst {
            let location = (worst.at.saturating_sub(start).0 / slot.0) as usize;
            assert!(slots[location] >= Some(worst.value), "{kind}: {worst:?}");
        }
    }
}

#[test]
fn wakeup_runs_every_20_microseconds_without_losing_a_sample() {
    let mut plan = plan(MeterKind::Wakeup);
    plan.interval = Nanos::from_micros(20);
    let finished = run(&plan);
    finished.check(&plan);
    let thread = finished.thread();
    assert_eq!(thread.samples + thread.missed, 30_000);
}

#[test]
fn noise_spins_all_the_time() {
    let mut plan = plan(MeterKind::Noise);
    plan.threshold = Some(Nanos::from_micros(1));
    let finished = run(&plan);
    finished.check(&plan);
    let thread = finished.thread();
    // The end is exact to one check of the clock. The begin is late by the delay at the end of the
    // warm-up, which is among the gaps of the warm-up.
    let warm_up = finished.batches.iter();
    let warm_up = warm_up.filter(|batch| batch.phase == Phase::WarmUp);
    let late = warm_up.filter_map(|batch| batch.series[0].seen.max).max();
    let late = late.unwrap_or_default() + Nanos::from_millis(50);
    assert!(thread.duration + late >= plan.duration, "{thread:?}");
    let MeterDetail::Noise {
        turns,
        shortest_turn,
        mean_turn_picos,
        threshold,
        stolen,
    } = thread.detail
    else {
        panic!("{thread:?}");
    };
    assert!(threshold.0.abs_diff(1_000) <= 1, "{threshold:?}");
    assert!(turns > 1_000 && shortest_turn < Nanos(1_000), "{thread:?}");
    // Turns and gaps together are the time, except for recording the gaps.
    let undisturbed = turns as f64 * mean_turn_picos as f64 / 1e3;
    let observed = undisturbed + stolen.0 as f64;
    let duration = thread.duration.0 as f64;
    assert!(observed <= duration * 1.01, "{observed} of {duration}");
    assert!(observed >= duration * 0.5, "{observed} of {duration}");
    let gaps: u64 = finished
        .batches
        .iter()
        .filter(|batch| batch.phase == Phase::Measured)
        .filter_map(|batch| batch.series[0].seen.mean().zip(Some(batch)))
        .map(|(mean, batch)| mean.0 * batch.series[0].seen.samples)
        .sum();
    assert!(
        gaps.abs_diff(stolen.0) <= stolen.0 / 100 + 1_000,
        "{gaps} {stolen:?}"
    );
    for worst in &thread.worst {
        let begin = finished.started + plan.warm_up;
        // Anchors of a counter are far more exact than this.
        assert!(worst.at + Nanos::from_millis(1) > begin, "{worst:?}");
        assert!(
            worst.at < begin + thread.duration + late,
            "{worst:?} {thread:?} {begin:?}"
        );
    }
}

#[test]
fn fwq_observes_all_time() {
    let mut plan = plan(MeterKind::Fwq);
    plan.work = Nanos::from_micros(50);
    let finished = run(&plan);
    finished.check(&plan);
    let thread = finished.thread();
    let MeterDetail::Fwq {
        turns,
        shortest,
        lowered,
    } = thread.detail
    else {
        panic!("{thread:?}");
    };
    assert!(turns > 0 && shortest > Nanos::ZERO);
    // Quanta follow each other without a gap, so they add up to the time, except for the excess
    // over a shortest quantum that was later lowered.
    let excess: f64 = finished
        .batches
        .iter()
        .filter(|batch| batch.phase == Phase::Measured)
        .map(|batch| {
            let seen = &batch.series[0].seen;
            seen.mean().map_or(0.0, |mean| mean.0 as f64) * seen.samples as f64
        })
        .sum();
    let observed = excess + thread.samples as f64 * shortest.0 as f64;
    let duration = thread.duration.0 as f64;
    let uncounted = thread.samples as f64 * lowered.0 as f64;
    assert!(observed < duration * 1.01, "{observed} {duration}");
    assert!(
        observed + uncounted > duration * 0.99,
        "{observed} {uncounted} {duration}"
    );
}

#[test]
fn loop_reports_starts_periods_and_responses() {
    let mut plan = plan(MeterKind::Loop);
    plan.interval = Nanos::from_millis(2);
    plan.work = Nanos::from_micros(100);
    plan.deadline = Some(Nanos(1));
    let finished = run(&plan);
    finished.check(&plan);
    let thread = finished.thread();
    assert_eq!(thread.samples + thread.missed, 300);
    // No work ends within a nanosecond.
    assert_eq!(thread.over_deadline, thread.samples);
    let MeterDetail::Loop {
        deadline,
        deadlines_missed,
        worst_late,
        worst_early,
        worst_start,
        ..
    } = thread.detail
    else {
        panic!("{thread:?}");
    };
    assert_eq!((deadline, deadlines_missed), (Nanos(1), thread.samples));
    let max = |wanted: Series| {
        finished
            .batches
            .iter()
            .filter(|batch| batch.phase == Phase::Measured)
            .flat_map(|batch| &batch.series)
            .filter(|series| series.series == wanted)
            .filter_map(|series| series.seen.max)
            .max()
            .unwrap_or_default()
    };
    assert_eq!(max(Series::StartJitter), worst_start);
    assert_eq!(max(Series::PeriodLate), worst_late);
    assert_eq!(max(Series::PeriodEarly), worst_early);
    assert!(max(Series::Response) > worst_start);
}

#[test]
fn starts_a_thread_on_every_cpu() {
    let mut plan = plan(MeterKind::Wakeup);
    plan.cpus = allowed();
    plan.interval = Nanos::from_millis(5);
    plan.aligned = true;
    let finished = run(&plan);
    finished.check(&plan);
    for thread in &finished.threads {
        assert_eq!(thread.samples + thread.missed, 120);
        assert_eq!(thread.placement.cpus_seen, CpuSet::single(thread.cpu));
    }
    // No CPU is left for the rest of the program, which is reported.
    let is_about_housekeeping =
        |finding: &rampart_model::Finding| finding.location.contains("housekeeping");
    assert!(
        finished.findings.iter().any(is_about_housekeeping),
        "{:?}",
        finished.findings
    );
}

#[test]
fn root_gets_real_time_and_locked_memory() {
    if !is_root() {
        return skip("a real-time policy needs root");
    }
    let mut plan = plan(MeterKind::Wakeup);
    plan.policy = SchedulingPolicy::Fifo(2);
    plan.lock_memory = true;
    let finished = run(&plan);
    finished.check(&plan);
    let thread = finished.thread();
    assert_eq!(thread.placement.policy, plan.policy);
    assert!(thread.placement.memory_locked);
    // All memory is prefaulted and locked; only pages that the kernel migrates between NUMA nodes
    // fault again.
    assert_eq!(thread.counters.major_faults, 0);
    assert!(thread.counters.minor_faults < 10, "{thread:?}");
}

#[test]
fn verifies_and_uses_placement_by_the_caller() {
    let mut plan = plan(MeterKind::Wakeup);
    plan.placed_by = PlacedBy::Outside;
    let mut meter = Meter::start();
    let ready = meter.ready(&plan);
    let thread = &ready.threads[0];
    assert_eq!(thread.name, format!("meter/{}", cpu()));
    let path = format!("/proc/{}/task/{}/comm", ready.process, thread.thread);
    assert_eq!(
        std::fs::read_to_string(path).expect("comm").trim(),
        thread.name
    );
    let status = Command::new("taskset")
        .args(["-cp", &cpu().to_string(), &thread.thread.to_string()])
        .stdout(Stdio::null())
        .status();
    if !status.is_ok_and(|status| status.success()) {
        return skip("taskset is not installed");
    }
    meter.ask(&MeterRequest::Go {});
    meter.finish().check(&plan);
}

#[test]
fn stopped_process_counts_missed_periods() {
    let mut plan = plan(MeterKind::Wakeup);
    plan.duration = Nanos::from_millis(2_500);
    plan.batch = Nanos::SECOND;
    plan.timeline = Some(Nanos::from_millis(50));
    let mut meter = Meter::start();
    let process = meter.ready(&plan).process;
    meter.ask(&MeterRequest::Go {});
    // At any moment of the measurement.
    std::thread::sleep(Duration::from_millis(600));
    let signal = |name: &str| {
        let status = Command::new("kill")
            .args([name, &process.to_string()])
            .status();
        assert!(status.expect("kill").success());
    };
    signal("-STOP");
    let end = Instant::now() + Duration::from_secs(60);
    while !is_stopped(process) {
        assert!(Instant::now() < end, "it stops");
        std::thread::sleep(Duration::from_millis(1));
    }
    let stopped = Instant::now();
    std::thread::sleep(Duration::from_secs(1));
    // Taken before the process is continued.
    let length = stopped.elapsed();
    signal("-CONT");
    let finished = meter.finish();
    finished.check(&plan);
    let thread = finished.thread();
    assert_eq!(thread.samples + thread.missed, 2_500);
    let worst = thread.worst[0];
    let slept = Nanos::from(length);
    assert!(worst.value + plan.interval >= slept, "{worst:?} {slept:?}");
    // In the timeline, the slots of the stop are empty, and the sample is in the slot in which it
    // ended.
    let start = finished.started + plan.warm_up;
    let slots = finished.slots();
    let location = |moment: Nanos| (moment.saturating_sub(start).0 / 50_000_000) as usize;
    let last = location(worst.at);
    assert_eq!(slots[last], Some(worst.value));
    assert!(
        slots[location(worst.at.saturating_sub(worst.value)) + 1..last]
            .iter()
            .all(Option::is_none)
    );
    // One sample for the whole stop, and one missed period for each further interval of it.
    let missed_by_worst = worst.value.0 / plan.interval.0;
    assert!(thread.missed >= missed_by_worst, "{thread:?}");
    let (mut seen, mut corrected) = (Distribution::default(), Distribution::default());
    for batch in finished
        .batches
        .iter()
        .filter(|batch| batch.phase == Phase::Measured)
    {
        let series = &batch.series[0];
        seen.merge(&series.seen);
        corrected.merge(series.corrected.as_ref().unwrap_or(&series.seen));
    }
    assert_eq!(corrected.samples, seen.samples + thread.missed);
    // The backlog: each tenth of the stop contains a tenth of the missed periods.
    for part in 1..10 {
        let limit = Nanos(worst.value.0 * part / 10);
        let above: u64 = corrected
            .buckets
            .iter()
            .filter(|bucket| bucket.0 > limit)
            .map(|bucket| bucket.1)
            .sum();
        let expected = missed_by_worst * (10 - part) / 10;
        assert!(
            above.abs_diff(expected) <= expected / 10 + 5,
            "{part}: {above} {expected}"
        );
    }
}

/// Returns whether each thread of a process is stopped (proc_pid_stat(5)); the effect of the signal
/// is delayed.
fn is_stopped(process: u32) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task"));
    tasks.expect("threads").flatten().all(|task| {
        let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        stat.rsplit_once(')')
            .is_some_and(|(_, fields)| fields.trim_start().starts_with('T'))
    })
}

#[test]
fn finishes_on_a_stop_request_a_signal_and_the_end_of_input() {
    let mut plan = plan(MeterKind::Wakeup);
    plan.duration = Nanos::from_secs(3_600);
    // Long enough that the thread sleeps until the end.
    plan.interval = Nanos::from_secs(1_800);
    plan.warm_up = Nanos::ZERO;
    let stops: [fn(&mut Meter); 3] = [
        |meter| meter.ask(&MeterRequest::Stop {}),
        |meter| drop(meter.input.take()),
        |meter| {
            let process = meter.child.id().to_string();
            let status = Command::new("kill").args(["-TERM", &process]).status();
            assert!(status.expect("kill").success());
        },
    ];
    for stop in stops {
        let mut meter = Meter::start();
        meter.ready(&plan);
        meter.ask(&MeterRequest::Go {});
        std::thread::sleep(Duration::from_millis(200));
        stop(&mut meter);
        let finished = meter.finish();
        assert_eq!(finished.threads.len(), 1);
        assert!(finished.thread().duration < plan.duration);
    }
}

#[test]
fn stopping_each_meter_in_its_warm_up_finishes() {
    for kind in on_linux() {
        let mut plan = plan(kind);
        plan.warm_up = Nanos::from_secs(3_600);
        let mut meter = Meter::start();
        meter.ready(&plan);
        meter.ask(&MeterRequest::Go {});
        std::thread::sleep(Duration::from_millis(200));
        meter.ask(&MeterRequest::Stop {});
        let finished = meter.finish();
        let thread = finished.thread();
        assert!(thread.warm_up.duration < plan.warm_up, "{kind}");
        // `noise` looks for a stop once in 128 turns, and each may be a gap.
        let most = if kind == MeterKind::Noise { 128 } else { 1 };
        assert!(thread.samples <= most, "{kind}: {thread:?}");
    }
}

#[test]
fn stop_before_the_start_finishes_without_threads() {
    let mut meter = Meter::start();
    meter.ready(&plan(MeterKind::Wakeup));
    meter.ask(&MeterRequest::Stop {});
    match meter.event() {
        MeterEvent::Finished { threads, findings } => {
            assert!(threads.is_empty());
            assert_eq!(findings.len(), 1);
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(meter.exit_code(), Some(0));
}

#[test]
fn one_process_measures_repeatedly() {
    let mut meter = Meter::start();
    let mut processes = Vec::new();
    // The affinity of the main thread in the first measurement must not affect the others.
    for (kind, cpu) in [
        (MeterKind::Wakeup, allowed().iter().next_back()),
        (MeterKind::Loop, allowed().iter().next()),
        (MeterKind::Wakeup, allowed().iter().next_back()),
    ] {
        let plan = MeterSettings {
            cpus: CpuSet::single(cpu.expect("a CPU")),
            ..plan(kind)
        };
        processes.push(meter.ready(&plan).process);
        meter.ask(&MeterRequest::Go {});
        meter.measured().check(&plan);
        // A stop that arrives after the end.
        meter.ask(&MeterRequest::Stop {});
    }
    assert_eq!(processes, [processes[0]; 3]);
    assert_eq!(meter.exit_code(), Some(0));
}

#[test]
fn ends_if_the_reader_closes_the_output() {
    let mut plan = plan(MeterKind::Wakeup);
    plan.duration = Nanos::from_secs(3_600);
    let mut meter = Meter::start();
    meter.ready(&plan);
    meter.ask(&MeterRequest::Go {});
    let input = meter.input.take();
    // Closes the output while the input stays open.
    assert_eq!(meter.exit_code(), Some(1));
    drop(input);
}

#[test]
fn slow_reader_loses_no_sample() {
    let mut plan = plan(MeterKind::Wakeup);
    plan.batch = Nanos::from_millis(10);
    plan.interval = Nanos::from_micros(50);
    plan.duration = Nanos::from_millis(1_500);
    let mut meter = Meter::start();
    meter.ready(&plan);
    meter.ask(&MeterRequest::Go {});
    // More than the pipe holds is written in this time.
    std::thread::sleep(Duration::from_secs(3));
    let finished = meter.finish();
    finished.check(&plan);
    let thread = finished.thread();
    assert_eq!(thread.samples + thread.missed, 30_000);
}

#[test]
fn accepts_only_help_and_version_as_options() {
    let run = |argument: &str| {
        let output = Command::new(PROGRAM).arg(argument).output().expect("runs");
        let text = String::from_utf8(output.stdout).expect("text");
        (output.status.code(), text)
    };
    assert_eq!(
        run("--version"),
        (
            Some(0),
            format!("rampart-meter {}\n", env!("CARGO_PKG_VERSION"))
        )
    );
    let (code, help) = run("--help");
    assert_eq!(code, Some(0));
    assert!(help.contains("Usage: rampart-meter"), "{help}");
    assert_eq!(run("--cpu"), (Some(2), String::new()));
}
