// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Real loads by stress-ng on this machine, which are left out with a message if it is not installed,
//! and by the meter.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rampart_host::{HostError, Shield, StateDirectory};
use rampart_load::{Load, LoadError, LoadProgram};
use rampart_model::{Condition, CpuId, CpuSet, LoadKind, LoadLocation, Nanos};
use rampart_tests::limited::wait_until;
use rampart_tests::processes;
use rampart_tests::programs::{Machine, alone, left_out};
use rustix::process::Signal;

/// Waits for the machine, whose CPU 0 the loads use. Returns `None`, and reports it, without stress-ng.
fn machine_with_stress_ng(test: &str) -> Option<Machine> {
    if matches!(LoadProgram::find(&meter()), LoadProgram::StressNg { .. }) {
        return Some(alone());
    }
    left_out(&format!("{test}: stress-ng is not installed"));
    None
}

fn condition(load: LoadKind) -> Condition {
    Condition {
        load,
        location: Some(LoadLocation::Others),
    }
}

fn meter() -> PathBuf {
    rampart_tests::programs::directory().join("rampart-meter")
}

fn cpu_zero() -> CpuSet {
    CpuSet::single(CpuId(0))
}

fn start(load: LoadKind, scratch: &Path) -> Result<Load, LoadError> {
    Load::start(
        &LoadProgram::find(&meter()),
        condition(load),
        &CpuSet::new(),
        &cpu_zero(),
        &[],
        scratch,
    )
}

#[test]
fn every_load_runs_is_recorded_and_leaves_nothing() {
    let Some(_machine) = machine_with_stress_ng("every_load_runs_is_recorded_and_leaves_nothing")
    else {
        return;
    };
    let scratch = tempfile::tempdir().expect("directory");
    for kind in [
        LoadKind::Cpu,
        LoadKind::Memory,
        LoadKind::Cache,
        LoadKind::Io,
    ] {
        let mut load = start(kind, scratch.path()).expect("start");
        assert!(load.alive().is_ok(), "{kind:?}");
        let record = load.stop();
        assert!(record.ran, "{record:?}");
        assert!(record.version.starts_with("stress-ng "), "{record:?}");
        let [stressor] = record.stressors.as_slice() else {
            panic!("{record:?}");
        };
        assert_eq!(stressor.cpus, cpu_zero());
        assert!(stressor.cpu_time >= Nanos::from_millis(1), "{stressor:?}");
        assert_eq!(stressor.failure, None);
        let left = std::fs::read_dir(scratch.path()).expect("list").count();
        assert_eq!(left, 0, "{kind:?} left files");
    }
}

/// Starts a load that the meter makes, whether or not stress-ng is installed.
fn start_by_the_meter(load: LoadKind, scratch: &Path) -> Load {
    let program = LoadProgram::Meter {
        path: meter(),
        reason: LoadError::Missing {
            searched: String::new(),
        },
    };
    let none = CpuSet::new();
    let load = Load::start(&program, condition(load), &none, &cpu_zero(), &[], scratch);
    load.expect("start")
}

#[test]
fn the_meters_own_loads_run_are_recorded_and_stopped_ones_are_failures() {
    let _machine = alone();
    let scratch = tempfile::tempdir().expect("directory");
    for kind in [
        LoadKind::Cpu,
        LoadKind::Memory,
        LoadKind::Cache,
        LoadKind::Io,
    ] {
        let mut load = start_by_the_meter(kind, scratch.path());
        assert!(load.alive().is_ok(), "{kind:?}");
        let record = load.stop();
        assert!(record.ran, "{record:?}");
        assert!(record.version.starts_with("rampart-meter "), "{record:?}");
        let [stressor] = record.stressors.as_slice() else {
            panic!("{record:?}");
        };
        assert_eq!(stressor.cpus, cpu_zero());
        assert!(stressor.cpu_time >= Nanos::from_millis(1), "{stressor:?}");
        let left = std::fs::read_dir(scratch.path()).expect("list").count();
        assert_eq!(left, 0, "{kind:?} left files");
    }
    // A load that did not run must not count as one that ran.
    for kind in [LoadKind::Cache, LoadKind::Io] {
        let mut load = start_by_the_meter(kind, scratch.path());
        let mut own = processes::children_of(std::process::id());
        own.retain(|child| {
            let line = std::fs::read_to_string(format!("/proc/{child}/cmdline"));
            line.is_ok_and(|line| line.contains("rampart-meter\0load\0"))
        });
        let [leader] = own[..] else {
            panic!("{own:?}");
        };
        stop_group(leader);
        let record = load.record();
        assert!(!record.ran, "{kind:?}: {record:?}");
        signal_group(leader, Signal::CONT);
    }
}

#[test]
fn a_failed_load_is_noted_in_the_record() {
    let Some(_machine) = machine_with_stress_ng("a_failed_load_is_noted_in_the_record") else {
        return;
    };
    let scratch = tempfile::tempdir().expect("directory");
    let mut load = start(LoadKind::Cpu, scratch.path()).expect("start");
    let leader = children(std::process::id(), scratch.path())[0];
    kill(leader);
    let begin = Instant::now();
    let finding = loop {
        match load.alive() {
            Err(finding) => break finding,
            Ok(()) => assert!(begin.elapsed() < Duration::from_secs(20), "not noticed"),
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    assert!(finding.what.contains("has ended"), "{finding}");
    let record = load.stop();
    assert!(!record.ran);
    assert!(record.stressors[0].failure.is_some());
}

/// A load whose workers stand still must not pass for one that ran, though they live.
#[test]
fn a_stopped_load_is_a_failure() {
    let Some(_machine) = machine_with_stress_ng("a_stopped_load_is_a_failure") else {
        return;
    };
    let scratch = tempfile::tempdir().expect("directory");
    for kind in [LoadKind::Cpu, LoadKind::Io] {
        let mut load = start(kind, scratch.path()).expect("start");
        let leader = children(std::process::id(), scratch.path())[0];
        stop_group(leader);
        let record = load.record();
        assert!(!record.ran, "{kind:?}: {record:?}");
        if kind == LoadKind::Io {
            // One that is still stopped is killed at the end, after three seconds.
            signal_group(leader, Signal::CONT);
        }
        assert!(!load.stop().ran);
        let left = states_of_group(leader);
        assert!(left.iter().all(|(_, state)| *state == 'Z'), "{left:?}");
    }
    // One that continues has used a smaller share of its CPU than it needs: on any machine, if it was stopped for more
    // than twice the time in which it may have run.
    for kind in [LoadKind::Cpu, LoadKind::Cache, LoadKind::Memory] {
        let mut pause = Duration::from_millis(500);
        loop {
            let started = Instant::now();
            let mut load = start(kind, scratch.path()).expect("start");
            let leader = children(std::process::id(), scratch.path())[0];
            stop_group(leader);
            let before = started.elapsed();
            std::thread::sleep(pause);
            let continued = Instant::now();
            signal_group(leader, Signal::CONT);
            let record = load.record();
            if (before + continued.elapsed()) * 2 < pause {
                assert!(!record.ran, "{kind:?}: {record:?}");
                break;
            }
            pause *= 2;
        }
    }
}

/// Returns the processes of a group, with their states, by proc_pid_stat(5).
fn states_of_group(leader: u32) -> Vec<(u32, char)> {
    let processes = std::fs::read_dir("/proc").expect("proc").flatten();
    let of_group = processes.filter_map(|entry| {
        let process = entry.file_name().to_str()?.parse().ok()?;
        let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
        let (state, _, group) = (fields.next()?, fields.next()?, fields.next()?);
        (group.parse() == Ok(leader)).then_some((process, state.chars().next()?))
    });
    of_group.collect()
}

/// Stops a process group, and waits until each of its processes is stopped.
fn stop_group(leader: u32) {
    signal_group(leader, Signal::STOP);
    wait_until("the load is stopped", || {
        let states = states_of_group(leader);
        !states.is_empty() && states.iter().all(|(_, state)| matches!(state, 'T' | 'Z'))
    });
}

fn signal_group(leader: u32, signal: Signal) {
    let group = rustix::process::Pid::from_raw(leader as i32).expect("a process");
    rustix::process::kill_process_group(group, signal).expect("a signal");
}

#[test]
fn reports_a_cpu_that_does_not_exist() {
    let Some(_machine) = machine_with_stress_ng("reports_a_cpu_that_does_not_exist") else {
        return;
    };
    let scratch = tempfile::tempdir().expect("directory");
    let far = CpuSet::single(CpuId(900));
    let error = Load::start(
        &LoadProgram::find(&meter()),
        condition(LoadKind::Cpu),
        &CpuSet::new(),
        &far,
        &[],
        scratch.path(),
    );
    let message = error.expect_err("must fail").to_string();
    assert!(message.contains("CPU 900"), "{message}");
    assert_eq!(
        children(std::process::id(), scratch.path()),
        Vec::<u32>::new()
    );
}

#[test]
fn refuses_without_a_cpu() {
    let Some(_machine) = machine_with_stress_ng("refuses_without_a_cpu") else {
        return;
    };
    let error = Load::start(
        &LoadProgram::find(&meter()),
        condition(LoadKind::Cpu),
        &cpu_zero(),
        &CpuSet::new(),
        &[],
        Path::new("/tmp"),
    );
    assert!(matches!(error, Err(LoadError::NoLocation { .. })));
}

/// The loads must not outlive a caller that is killed and cannot end them.
#[test]
fn nothing_outlives_a_killed_caller() {
    let Some(_machine) = machine_with_stress_ng("nothing_outlives_a_killed_caller") else {
        return;
    };
    let scratch = tempfile::tempdir().expect("directory");
    for kind in ["cpu", "memory", "cache", "io"] {
        let mut caller = Command::new(std::env::current_exe().expect("this test"));
        caller
            .args([
                "--exact",
                "load::caller_to_be_killed",
                "--nocapture",
                "--ignored",
            ])
            .env("RAMPART_TEST_LOAD", kind)
            .env("RAMPART_TEST_SCRATCH", scratch.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0);
        let mut caller = caller.spawn().expect("caller");
        let begin = Instant::now();
        while !scratch.path().join("started").exists() {
            assert!(
                begin.elapsed() < Duration::from_secs(30),
                "the caller did not start"
            );
            assert!(
                caller.try_wait().expect("wait").is_none(),
                "the caller ended"
            );
            std::thread::sleep(Duration::from_millis(10));
        }
        std::fs::remove_file(scratch.path().join("started")).expect("remove");
        assert!(!with_scratch(scratch.path()).is_empty());
        caller.kill().expect("kill");
        caller.wait().expect("wait");
        let begin = Instant::now();
        while !with_scratch(scratch.path()).is_empty() {
            assert!(
                begin.elapsed() < Duration::from_secs(20),
                "{kind}: still there: {:?}",
                with_scratch(scratch.path())
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Runs only as a separate process, started by the test above.
#[test]
#[ignore = "is the process that another test kills"]
fn caller_to_be_killed() {
    let (Ok(kind), Ok(scratch)) = (
        std::env::var("RAMPART_TEST_LOAD"),
        std::env::var("RAMPART_TEST_SCRATCH"),
    ) else {
        return;
    };
    let scratch = Path::new(&scratch);
    let condition: Condition = kind.parse().expect("a load");
    let _load = start(condition.load, scratch).expect("start");
    std::fs::write(scratch.join("started"), "").expect("write");
    std::thread::sleep(Duration::from_secs(60));
}

/// Returns the living processes whose command line names this scratch directory.
fn with_scratch(scratch: &Path) -> Vec<u32> {
    let name = scratch.display().to_string();
    std::fs::read_dir("/proc")
        .expect("proc")
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .filter(|process| {
            std::fs::read_to_string(format!("/proc/{process}/cmdline"))
                .is_ok_and(|line| line.contains(&name))
        })
        .collect()
}

/// Returns those that are children of `parent`.
fn children(parent: u32, scratch: &Path) -> Vec<u32> {
    with_scratch(scratch)
        .into_iter()
        .filter(|process| {
            std::fs::read_to_string(format!("/proc/{process}/stat"))
                .ok()
                .and_then(|line| {
                    let fields = line.rsplit_once(')')?.1.to_owned();
                    fields.split_whitespace().nth(1)?.parse::<u32>().ok()
                })
                == Some(parent)
        })
        .collect()
}

fn kill(process: u32) {
    let process = rustix::process::Pid::from_raw(process as i32).expect("a process");
    rustix::process::kill_process(process, rustix::process::Signal::KILL).expect("kill");
}

/// A load on the measured CPUs has to enter the shield around them.
#[test]
fn detects_a_load_on_the_shielded_cpu() {
    let Some(_machine) = machine_with_stress_ng("detects_a_load_on_the_shielded_cpu") else {
        return;
    };
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let (measured, others): (CpuSet, CpuSet) = ("1".parse().expect("CPU"), cpu_zero());
    let directory = tempfile::tempdir().expect("directory");
    let state = StateDirectory::at(directory.path().join("state"));
    let begin = Instant::now();
    let shield = loop {
        match Shield::raise(&state, &measured, &others) {
            Ok(shield) => break shield,
            // This machine has one CPU, or another process measures at this moment.
            Err(HostError::Request { .. }) => return,
            Err(error) => {
                assert!(begin.elapsed() < Duration::from_secs(120), "{error}");
                std::thread::sleep(Duration::from_millis(200));
            }
        }
    };
    let condition = Condition {
        load: LoadKind::Cpu,
        location: Some(LoadLocation::Same),
    };
    let mut load = Load::start(
        &LoadProgram::find(&meter()),
        condition,
        &measured,
        &others,
        &[&shield],
        directory.path(),
    )
    .expect("start");
    assert!(load.alive().is_ok());
    let record = load.stop();
    assert!(record.ran, "{record:?}");
    assert_eq!(record.stressors[0].cpus, measured);
    shield.lower().expect("lower");
}
