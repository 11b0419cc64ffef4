// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Disturbances with known time and length must appear in the figures with that time and length. Tolerances are
//! wide because the machine may be a guest on a busy host, and narrow enough that a meter fails which loses,
//! misplaces or mismeasures the disturbance.

use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rampart_model::{Measurement, Nanos, Series, WorstEvent};
use rampart_tests::disturbance::{Held, hold_while, stop};
use rampart_tests::limited::{finished, wait_until};
use rampart_tests::processes::{self, children_of};
use rampart_tests::programs::{last_cpu, machine, measure, rampart, stdout, usable_cpus};

const LENGTH: Duration = Duration::from_millis(20);
/// The time between two disturbances: the CPU is held for less than a tenth of the time.
const PAUSE: Duration = Duration::from_millis(230);
/// How much longer than the disturbance a sample may be: real-time throttling may follow directly (50 ms).
const SLACK: Nanos = Nanos::from_millis(60);

/// Returns the worst sample that overlaps the time in which the CPU was held.
fn overlapping(worst: &[WorstEvent], held: Held) -> Option<WorstEvent> {
    worst
        .iter()
        .filter(|event| event.at > held.from && event.at.saturating_sub(event.value) < held.to)
        .max_by_key(|event| event.value)
        .copied()
}

/// Measures while the CPU is held repeatedly, and checks that each time appears with a length of at least
/// `shortest`. The host of this machine may stop it for longer sometimes, but not each time.
fn measure_disturbed(meter: &str, options: &[&str], shortest: Nanos) -> Measurement {
    let state = tempfile::tempdir().expect("a directory");
    let cpu = last_cpu();
    let over = Arc::new(AtomicBool::new(false));
    let continues = {
        let over = Arc::clone(&over);
        move || !over.load(Ordering::Relaxed)
    };
    let holding = hold_while(cpu, LENGTH, PAUSE, continues);
    let cpu = cpu.to_string();
    let arguments = [
        &[meter, "--cpus", &cpu, "--for", "1500ms"][..],
        &["--warm-up", "200ms"],
        options,
    ]
    .concat();
    let measurement = measure(state.path(), &arguments);
    over.store(true, Ordering::Relaxed);
    let held = holding.join().expect("the disturbing thread");
    let thread = &measurement.threads[0];
    let inside: Vec<Held> = held
        .into_iter()
        .filter(|held| {
            held.from > measurement.started_monotonic + thread.warm_up.duration
                && held.to
                    < measurement.started_monotonic + thread.warm_up.duration + thread.duration
        })
        .collect();
    assert!(
        inside.len() >= 3,
        "the measurement has too few disturbances: {inside:?}"
    );
    let mut excess = Vec::new();
    for held in inside {
        let Some(event) = overlapping(&thread.worst, held) else {
            let kept = thread.worst.len() == measurement.settings.worst as usize;
            let worse = thread.worst.iter().all(|event| event.value >= shortest);
            assert!(kept && worse, "{held:?} is not among {:?}", thread.worst);
            continue;
        };
        let length = held.to.saturating_sub(held.from);
        assert!(
            event.value >= shortest,
            "{event:?} is shorter than {shortest}, held {length}"
        );
        excess.push(event.value.saturating_sub(length));
    }
    assert!(
        excess.iter().any(|excess| *excess <= SLACK),
        "all samples are longer than the disturbance, by {excess:?}: {:?}",
        thread.worst
    );
    measurement
}

#[test]
fn wakeup_detects_a_held_cpu() {
    let Some(_machine) = machine("wakeup_detects_a_held_cpu", 2) else {
        return;
    };
    // The first wake-up while the CPU is held is due within a period.
    let measurement = measure_disturbed("wakeup", &["--deadline", "10ms"], Nanos::from_millis(18));
    let thread = &measurement.threads[0];
    assert!(thread.over_deadline >= 3, "{}", thread.over_deadline);
    assert!(thread.missed >= 3 * 18, "{} missed periods", thread.missed);
    let expected = thread.duration.0 / measurement.settings.interval.0;
    let counted = thread.samples + thread.missed;
    assert!(
        counted.abs_diff(expected) <= 2,
        "{counted} periods of {expected}"
    );
}

#[test]
fn noise_detects_a_held_cpu() {
    let Some(_machine) = machine("noise_detects_a_held_cpu", 2) else {
        return;
    };
    let _ = measure_disturbed(
        "noise",
        &["--policy", "fifo:1"],
        Nanos(LENGTH.as_nanos() as u64 * 95 / 100),
    );
}

#[test]
fn fwq_detects_a_held_cpu() {
    let Some(_machine) = machine("fwq_detects_a_held_cpu", 2) else {
        return;
    };
    let _ = measure_disturbed(
        "fwq",
        &["--work", "500us", "--policy", "fifo:1"],
        Nanos(LENGTH.as_nanos() as u64 * 95 / 100),
    );
}

#[test]
fn loop_detects_a_held_cpu() {
    let Some(_machine) = machine("loop_detects_a_held_cpu", 2) else {
        return;
    };
    let options = ["--interval", "2ms", "--work", "200us", "--deadline", "1ms"];
    let measurement = measure_disturbed("loop", &options, Nanos::from_millis(17));
    let rampart_model::MeterDetail::Loop {
        deadlines_missed,
        worst_late,
        ..
    } = measurement.threads[0].detail
    else {
        panic!("{:?}", measurement.threads[0].detail);
    };
    assert!(deadlines_missed >= 3, "{deadlines_missed}");
    assert!(worst_late >= Nanos::from_millis(16), "{worst_late}");
}

#[test]
fn every_cpu_can_have_a_period_of_its_own() {
    let Some(_machine) = machine("every_cpu_can_have_a_period_of_its_own", 2) else {
        return;
    };
    let state = tempfile::tempdir().expect("a directory");
    let cpus: Vec<String> = usable_cpus()
        .iter()
        .take(2)
        .map(|cpu| cpu.to_string())
        .collect();
    let options = [
        "wakeup",
        "--cpus",
        &cpus.join(","),
        "--interval",
        "1ms,4ms",
        "--for",
        "400ms",
    ];
    let measurement = measure(state.path(), &options);
    for (thread, period) in measurement.threads.iter().zip([1, 4]) {
        let periods = thread.duration.0 / Nanos::from_millis(period).0;
        let counted = thread.samples + thread.missed;
        assert!(
            counted.abs_diff(periods) <= 2,
            "CPU {}: {counted}",
            thread.cpu
        );
    }
}

/// `rampart measure` isolates a domain as an evaluation does.
#[test]
fn a_measurement_in_a_domain_runs_isolated() {
    let Some(_machine) = machine("a_measurement_in_a_domain_runs_isolated", 2) else {
        return;
    };
    let state = tempfile::tempdir().expect("a directory");
    let cpu = last_cpu().to_string();
    for domain in ["task", "container"] {
        let options = [
            "wakeup", "--domain", domain, "--cpus", &cpu, "--for", "300ms",
        ];
        let measurement = measure(state.path(), &options);
        let shield = measurement.shield.as_ref().expect("a shield");
        assert!(
            shield.isolation > rampart_model::IsolationMechanism::AffinityOnly,
            "{domain}: {shield:?}"
        );
        assert_eq!(shield.cpus.to_string(), cpu, "{domain}");
        let elsewhere = &measurement.threads[0].placement.housekeeping;
        assert!(
            !elsewhere.contains(last_cpu()),
            "{domain}: the reader is on CPU {elsewhere}"
        );
    }
}

/// A process that is stopped for 600 ms misses the periods of that time. The corrected distribution has one sample
/// for each of them, spread evenly from the period to that time.
#[test]
fn a_stopped_meter_counts_missed_periods() {
    let Some(_machine) = machine("a_stopped_meter_counts_missed_periods", 2) else {
        return;
    };
    let state = tempfile::tempdir().expect("a directory");
    let cpu = last_cpu().to_string();
    let log = state.path().join("wakeup.hlog");
    let arguments = ["measure", "wakeup", "--cpus", &cpu, "--for", "1h"];
    let output = ["--hlog", log.to_str().expect("a path"), "--json"];
    let child = rampart(state.path(), &[&arguments[..], &output].concat())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("rampart starts");
    let written = || std::fs::metadata(&log).map_or(0, |log| log.len());
    wait_until("the first batch, of a second", || written() > 0);
    let meter = i32::try_from(children_of(child.id())[0]).ok();
    let meter = meter.and_then(rustix::process::Pid::from_raw);
    let meter = meter.expect("the meter");
    stop(meter);
    let stopped = Instant::now();
    thread::sleep(Duration::from_millis(600));
    let before = written();
    // Taken before the meter continues.
    let pause = Nanos::from(stopped.elapsed());
    rustix::process::kill_process(meter, rustix::process::Signal::CONT).expect("continue");
    wait_until("a batch after the pause", || written() > before);
    processes::send(child.id(), rustix::process::Signal::INT);
    let output = finished(child);
    let measurement: Measurement =
        serde_json::from_str(&stdout(&output, 5)).expect("a measurement");
    assert!(measurement.ended_early);

    let thread = &measurement.threads[0];
    let interval = measurement.settings.interval;
    // The first period of the pause is measured, late.
    let paused = pause.0 / interval.0;
    let missed = thread.missed;
    assert!(missed + 1 >= paused, "{missed} missed of {paused}");
    // There is no upper limit, because the host may stop this machine. But each period is either measured or
    // missed.
    let periods = thread.duration.0 / measurement.settings.interval.0;
    let counted = thread.samples + thread.missed;
    assert!(counted.abs_diff(periods) <= 2, "{counted}, not {periods}");
    let lateness = &measurement.cpus[0].series[0];
    assert_eq!(lateness.series, Series::Lateness);
    assert_eq!(lateness.seen.samples, thread.samples);
    let corrected = lateness
        .corrected
        .as_ref()
        .expect("corrected for missed periods");
    assert_eq!(corrected.samples, thread.samples + thread.missed);
    assert_eq!(
        corrected.max, lateness.seen.max,
        "the correction changed the worst sample"
    );
    // Uncorrected, one sample is over 300 ms, and one for each stop of the machine for so long.
    // Corrected, there is one for each period whose wake-up would have been late by more than that.
    let worst = thread.worst[0].value;
    assert!(worst + interval >= pause, "{worst} in {pause}");
    let half = Nanos::from_millis(300);
    let longer = thread.worst.iter().map(|event| event.value);
    let longer: Vec<Nanos> = longer.filter(|value| *value > half).collect();
    let stops = longer.len() as u64;
    assert_eq!(lateness.seen.count_above(half), stops, "{longer:?}");
    let periods = |value: &Nanos| value.saturating_sub(half).0 / interval.0 + 1;
    let expected: u64 = longer.iter().map(periods).sum();
    let late = corrected.count_above(half);
    assert!(
        late.abs_diff(expected) <= stops,
        "{late} corrected samples over 300 ms, not {expected}"
    );
}
