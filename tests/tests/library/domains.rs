// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Every domain with the real meter on this machine, and its leftovers.
//!
//! The tests need root, two CPUs and the static meter (`make build`); without them they are skipped
//! with a message.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rampart_domain::{Domain, DomainError, Running, Start, domain_in, release_containers};
use rampart_host::{HostError, StateDirectory};
use rampart_model::{
    CpuSet, DomainSelection, IsolationMechanism, MeterEvent, MeterKind, MeterSettings, Nanos,
    RefusalKind, SchedulingPolicy, ThreadOutcome,
};
use rampart_tests::programs::{Machine, alone, left_out};

/// The locked machine, a meter, and a state directory of its own.
struct Bench {
    meter: PathBuf,
    /// Groups and processes that existed before the test.
    before: Vec<String>,
    _directory: tempfile::TempDir,
    state: StateDirectory,
    _machine: Machine,
}

/// Prepares a test. Returns `None`, with a message, if these tests cannot run.
fn bench() -> Option<Bench> {
    let bin = std::env::var_os("RAMPART_BIN").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../bin"),
        PathBuf::from,
    );
    let meter = bin.join("rampart-meter");
    let online = fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let cpus: CpuSet = online.trim().parse().unwrap_or_default();
    let lacking = if !rustix::process::geteuid().is_root() {
        Some("root")
    } else if cpus.len() < 2 {
        Some("two CPUs")
    } else if !meter.is_file() {
        Some("bin/rampart-meter (make build)")
    } else {
        None
    };
    if let Some(lacking) = lacking {
        left_out(&format!("the tests of real domains, which need {lacking}"));
        return None;
    }
    let machine = alone();
    let directory = tempfile::tempdir().expect("directory");
    Some(Bench {
        meter,
        before: leftovers(),
        state: StateDirectory::at(directory.path()),
        _directory: directory,
        _machine: machine,
    })
}

fn plan(meter: MeterKind, cpus: &str) -> MeterSettings {
    MeterSettings {
        duration: Nanos::from_millis(300),
        warm_up: Nanos::from_millis(50),
        housekeeping: "0".parse().expect("a CPU"),
        ..MeterSettings::new(meter, cpus.parse().expect("CPUs"))
    }
}

impl Bench {
    fn start(&self, name: &str, settings: &MeterSettings) -> Result<Box<dyn Running>, DomainError> {
        let selection: DomainSelection = name.parse().expect("a domain");
        let housekeeping = "0".parse().expect("a CPU");
        let start = Start {
            name: "test",
            stay_up: false,
            meter: &self.meter,
            settings,
            housekeeping: &housekeeping,
        };
        start_when_free(domain_in(selection, &self.state).as_ref(), &start)
    }

    fn available(&self, name: &str) -> bool {
        let machine = rampart_host::read_machine(&rampart_host::MachineRoot::system());
        let selection: DomainSelection = name.parse().expect("a domain");
        let availability = domain_in(selection, &self.state).availability(&machine);
        if !availability.available {
            let reasons: Vec<String> = availability
                .findings
                .iter()
                .map(ToString::to_string)
                .collect();
            assert!(!reasons.is_empty());
            left_out(&format!("the domain {name}: {}", reasons.join("; ")));
        }
        availability.available
    }
}

/// Starts a domain; waits while another process measures on this machine.
fn start_when_free(
    domain: &dyn Domain,
    start: &Start<'_>,
) -> Result<Box<dyn Running>, DomainError> {
    let begin = Instant::now();
    loop {
        match domain.start(start) {
            Err(DomainError::Host(HostError::Busy { .. }))
                if begin.elapsed() < Duration::from_secs(120) =>
            {
                std::thread::sleep(Duration::from_millis(200));
            }
            result => return result,
        }
    }
}

/// Follows a meter to its end.
fn threads(running: &mut dyn Running) -> Vec<ThreadOutcome> {
    running.go().expect("go");
    let begin = Instant::now();
    let mut started = false;
    loop {
        assert!(begin.elapsed() < Duration::from_secs(60), "no end");
        match running
            .next_event(Duration::from_millis(100))
            .expect("event")
        {
            Some(MeterEvent::Started { .. }) => started = true,
            Some(MeterEvent::Finished { threads, .. }) => {
                assert!(started);
                return threads;
            }
            Some(MeterEvent::Refused(refusal)) => panic!("{}", refusal.finding),
            _ => {}
        }
    }
}

/// Returns the groups and processes that only domains create.
fn leftovers() -> Vec<String> {
    let mut found = Vec::new();
    groups(Path::new("/sys/fs/cgroup"), 0, &mut found);
    for entry in fs::read_dir("/proc").expect("proc").flatten() {
        let path = entry.path();
        let state = fs::read_to_string(path.join("stat")).unwrap_or_default();
        let name = fs::read_to_string(path.join("comm")).unwrap_or_default();
        // A zombie that its parent has not reaped counts as ended.
        if name.trim() == "rampart-meter" && !state.contains(") Z ") {
            found.push(path.display().to_string());
        }
    }
    found
}

fn groups(directory: &Path, depth: usize, found: &mut Vec<String>) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with("rampart-") {
            found.push(entry.path().display().to_string());
        }
        if depth < 3 {
            groups(&entry.path(), depth + 1, found);
        }
    }
}

/// Waits until nothing is left: the kernel removes ended processes with a delay.
fn assert_nothing_left(bench: &Bench) {
    let begin = Instant::now();
    loop {
        let mut left = leftovers();
        left.retain(|one| !bench.before.contains(one));
        let containers = bench.state.path().join("containers");
        left.extend(
            fs::read_dir(containers)
                .into_iter()
                .flatten()
                .flatten()
                .map(|entry| entry.path().display().to_string()),
        );
        if left.is_empty() {
            return;
        }
        assert!(begin.elapsed() < Duration::from_secs(20), "left: {left:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn assert_placed(threads: &[ThreadOutcome], policy: SchedulingPolicy) {
    let cpu: CpuSet = "1".parse().expect("a CPU");
    let [thread] = threads else {
        panic!("{threads:?}");
    };
    assert_eq!(thread.placement.policy, policy);
    assert_eq!(thread.placement.affinity, cpu);
    assert_eq!(thread.placement.cpus_seen, cpu);
    assert!(thread.samples > 0);
}

#[test]
fn host_runs_the_meter_as_it_is() {
    let Some(bench) = bench() else { return };
    let mut running = bench
        .start("host", &plan(MeterKind::Wakeup, "1"))
        .expect("start");
    assert!(running.shield().is_none());
    let threads = threads(running.as_mut());
    assert_placed(&threads, SchedulingPolicy::Fifo(80));
    assert_eq!(running.effective_settings().placed_by, "itself");
    assert_eq!(running.finish().expect("finish"), None);
    assert_nothing_left(&bench);
}

#[test]
fn task_runs_inside_its_shield() {
    let Some(bench) = bench() else { return };
    for meter in [MeterKind::Wakeup, MeterKind::Noise] {
        let plan = plan(meter, "1");
        let mut running = bench.start("task", &plan).expect("start");
        let isolation = running.shield().expect("shield").report().isolation;
        let threads = threads(running.as_mut());
        if meter == MeterKind::Wakeup {
            assert_placed(&threads, plan.policy);
        }
        assert_eq!(running.effective_settings().placed_by, "outside");
        if matches!(
            isolation,
            IsolationMechanism::CpusetV1 | IsolationMechanism::IsolatedPartition
        ) {
            let housekeeping = &threads[0].placement.housekeeping;
            assert_eq!(housekeeping.to_string(), "0", "the rest shares the CPU");
        }
        let report = running.finish().expect("finish").expect("a report");
        assert_eq!(report.isolation, isolation);
        assert_nothing_left(&bench);
    }
}

#[test]
fn an_active_plan_measures_as_before() {
    let Some(bench) = bench() else { return };
    for name in ["host", "task", "container"] {
        if !bench.available(name) {
            continue;
        }
        let mut running = bench
            .start(name, &plan(MeterKind::Wakeup, "1"))
            .expect("start");
        threads(running.as_mut());
        let (effective_settings, isolation) = (running.effective_settings(), running.isolation());
        for meter in [MeterKind::Loop, MeterKind::Wakeup] {
            let plan = plan(meter, "1");
            assert!(running.rearm(&plan).expect("again"), "{name}");
            assert_placed(&threads(running.as_mut()), plan.policy);
            assert_eq!(running.effective_settings(), effective_settings);
            assert_eq!(running.isolation(), isolation);
        }
        running.finish().expect("finish");
        assert_nothing_left(&bench);
    }
}

/// Returns the controllers enabled for cgroup v2 groups; a runtime enables more.
fn controllers() -> Option<String> {
    fs::read_to_string("/sys/fs/cgroup/cgroup.subtree_control").ok()
}

fn container(name: &str) {
    let Some(bench) = bench() else { return };
    if !bench.available(name) {
        return;
    }
    let controllers_before = controllers();
    for meter in [MeterKind::Wakeup, MeterKind::Noise] {
        let plan = plan(meter, "1");
        let mut running = bench.start(name, &plan).expect("start");
        let threads = threads(running.as_mut());
        if meter == MeterKind::Wakeup {
            assert_placed(&threads, plan.policy);
        }
        let effective_settings = running.effective_settings();
        assert!(!effective_settings.runtime.is_empty());
        assert_eq!(effective_settings.placed_by, "outside");
        for namespace in ["pid", "mnt", "net", "ipc", "uts"] {
            assert!(
                effective_settings
                    .namespaces
                    .iter()
                    .any(|name| name == namespace),
                "{effective_settings:?}"
            );
        }
        // Only the privilege to lock memory.
        match effective_settings.capabilities.as_slice() {
            [] => assert_eq!(effective_settings.limits, ["Max locked memory: unlimited"]),
            [only] => assert_eq!(only, "CAP_IPC_LOCK"),
            more => panic!("{more:?}"),
        }
        assert!(effective_settings.seccomp);
        let report = running.finish().expect("finish").expect("a report");
        if matches!(
            report.isolation,
            IsolationMechanism::CpusetV1 | IsolationMechanism::IsolatedPartition
        ) {
            let housekeeping = &threads[0].placement.housekeeping;
            assert_eq!(housekeeping.to_string(), "0", "the rest shares the CPU");
        }
        assert_nothing_left(&bench);
        assert_eq!(controllers(), controllers_before);
    }
}

#[test]
fn container_grants_only_the_memory_lock() {
    container("container");
}

#[test]
fn podman_grants_only_the_memory_lock() {
    container("container:podman");
}

#[test]
fn docker_grants_only_the_memory_lock() {
    container("container:docker");
}

#[test]
fn dropping_a_domain_leaves_nothing() {
    let Some(bench) = bench() else { return };
    for name in ["task", "container", "container:podman"] {
        if !bench.available(name) {
            continue;
        }
        let mut plan = plan(MeterKind::Wakeup, "1");
        plan.duration = Nanos::from_secs(60);
        let mut running = bench.start(name, &plan).expect("start");
        running.go().expect("go");
        drop(running);
        assert_nothing_left(&bench);
    }
}

#[test]
fn an_early_stop_still_returns_the_result() {
    let Some(bench) = bench() else { return };
    for name in ["host", "task", "container"] {
        if !bench.available(name) {
            continue;
        }
        let mut plan = plan(MeterKind::Wakeup, "1");
        plan.duration = Nanos::from_secs(600);
        let mut running = bench.start(name, &plan).expect("start");
        running.stop();
        let begin = Instant::now();
        loop {
            match running
                .next_event(Duration::from_millis(100))
                .expect("event")
            {
                Some(MeterEvent::Finished { .. }) => break,
                Some(MeterEvent::Refused(refusal)) => panic!("{}", refusal.finding),
                _ => assert!(begin.elapsed() < Duration::from_secs(30), "{name}"),
            }
        }
        running.finish().expect("finish");
        assert_nothing_left(&bench);
    }
}

#[test]
fn refusals_are_passed_on_and_leave_nothing() {
    let Some(bench) = bench() else { return };
    match bench.start("host", &plan(MeterKind::Wakeup, "900")) {
        Err(DomainError::Refused(refusal)) => {
            assert_eq!(refusal.kind, RefusalKind::CpuOffline);
        }
        other => panic!("{other:?}"),
    }
    for name in ["task", "container"] {
        if !bench.available(name) {
            continue;
        }
        let mut bad = plan(MeterKind::Loop, "1");
        bad.work = bad.interval;
        match bench.start(name, &bad) {
            Err(DomainError::Refused(refusal)) => {
                assert_eq!(refusal.kind, RefusalKind::BadPlan, "{name}");
            }
            other => panic!("{name}: {other:?}"),
        }
        let error = bench.start(name, &plan(MeterKind::Wakeup, "900"));
        let message = error.expect_err("must fail").to_string();
        assert!(
            message.contains("900") && message.contains("fix"),
            "{message}"
        );
        assert_nothing_left(&bench);
    }
}

/// The message contains the standard error of a program that is not a meter.
#[test]
fn reports_the_error_of_a_broken_meter() {
    let Some(mut bench) = bench() else { return };
    bench.meter = PathBuf::from("/bin/false");
    for name in ["host", "task", "container"] {
        if !bench.available(name) {
            continue;
        }
        let error = bench.start(name, &plan(MeterKind::Wakeup, "1"));
        let message = error.expect_err("must fail").to_string();
        assert!(message.contains("ended too early"), "{message}");
        assert_nothing_left(&bench);
    }
}

#[test]
fn without_a_spare_cpu_the_report_notes_the_missing_shield() {
    let Some(bench) = bench() else { return };
    for name in ["task", "container"] {
        if !bench.available(name) {
            continue;
        }
        let mut plan = plan(MeterKind::Noise, "0-1");
        plan.policy = SchedulingPolicy::Other;
        let mut running = bench.start(name, &plan).expect("start");
        assert!(running.shield().is_none());
        assert_eq!(threads(running.as_mut()).len(), 2);
        let report = running.finish().expect("finish").expect("a report");
        assert_eq!(report.isolation, IsolationMechanism::AffinityOnly);
        assert!(report.findings[0].to_string().contains("second CPU"));
        assert_nothing_left(&bench);
    }
}

/// Everything that a killed owner leaves ends or is removed.
#[test]
fn release_removes_everything_of_a_killed_owner() {
    let Some(bench) = bench() else { return };
    for name in ["host", "task", "container", "container:podman"] {
        if !bench.available(name) {
            continue;
        }
        let ready = bench.state.path().join("ready");
        let mut owner = Command::new(std::env::current_exe().expect("this test"));
        owner
            .args([
                "--exact",
                "domains::owner_to_be_killed",
                "--nocapture",
                "--ignored",
            ])
            .env("RAMPART_TEST_DOMAIN", name)
            .env("RAMPART_TEST_METER", &bench.meter)
            .env("RAMPART_TEST_STATE", bench.state.path())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut owner = owner.spawn().expect("owner");
        let begin = Instant::now();
        while !ready.exists() {
            assert!(
                begin.elapsed() < Duration::from_secs(120),
                "{name}: not ready"
            );
            if owner.try_wait().expect("wait").is_some() {
                let output = owner.wait_with_output().expect("output");
                panic!("{name}: {}", String::from_utf8_lossy(&output.stderr));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        fs::remove_file(&ready).expect("remove");
        owner.kill().expect("kill");
        owner.wait().expect("wait");
        let released = release_containers(&bench.state);
        assert!(released.left.is_empty(), "{released:?}");
        let report = rampart_host::release(&bench.state).expect("release");
        assert!(report.left.is_empty(), "{report:?}");
        assert_nothing_left(&bench);
    }
}

/// Runs only as a separate process, started by the test above.
#[test]
#[ignore = "is the process that another test kills"]
fn owner_to_be_killed() {
    let (Ok(name), Ok(meter), Ok(state)) = (
        std::env::var("RAMPART_TEST_DOMAIN"),
        std::env::var("RAMPART_TEST_METER"),
        std::env::var("RAMPART_TEST_STATE"),
    ) else {
        return;
    };
    let mut plan = plan(MeterKind::Wakeup, "1");
    plan.duration = Nanos::from_secs(600);
    let housekeeping = "0".parse().expect("a CPU");
    let start = Start {
        name: "test",
        stay_up: false,
        meter: Path::new(&meter),
        settings: &plan,
        housekeeping: &housekeeping,
    };
    let state = StateDirectory::at(state);
    let selection: DomainSelection = name.parse().expect("a domain");
    let domain = domain_in(selection, &state);
    let mut running = start_when_free(domain.as_ref(), &start).expect("start");
    running.go().expect("go");
    loop {
        if let Some(MeterEvent::Started { .. }) = running
            .next_event(Duration::from_secs(1))
            .expect("an event")
        {
            fs::write(state.path().join("ready"), "").expect("write");
        }
    }
}
