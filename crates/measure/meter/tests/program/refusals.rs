// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Refusals: kind, location, fix and exit code of each.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use rampart_model::{
    CpuId, CpuSet, MeterKind, MeterRequest, MeterSettings, Nanos, PlacedBy, Refusal, RefusalKind,
    SchedulingPolicy,
};

use crate::meter_process::{Meter, PROGRAM, allowed, is_root, plan, prepare, refused, skip};

fn after(lines: &[String]) -> (Refusal, i32) {
    let mut meter = Meter::start();
    for line in lines {
        meter.send_line(line);
    }
    drop(meter.input.take());
    meter.refusal()
}

fn text_of(settings: &MeterSettings) -> String {
    serde_json::to_string(&prepare(settings)).expect("a request is JSON")
}

#[track_caller]
fn assert_refused((refusal, code): &(Refusal, i32), kind: RefusalKind, words: &[&str]) {
    assert_eq!(refusal.kind, kind, "{}", refusal.finding);
    assert_eq!(*code, if kind == RefusalKind::BadPlan { 2 } else { 4 });
    let text = refusal.finding.to_string();
    for word in words {
        assert!(text.contains(word), "`{word}` is not in: {text}");
    }
}

#[test]
fn refuses_unreadable_requests() {
    let good = text_of(&plan(MeterKind::Wakeup));
    for (line, words) in [
        ("{", &["cannot read"] as &[&str]),
        ("", &["cannot read"]),
        ("[1, 2]", &["cannot read"]),
        ("{\"go\":{}}", &["prepare"]),
        (&good.replace("\"aligned\"", "\"alined\""), &["alined"]),
        (&good.replace("\"other\"", "\"fifo:100\""), &["fifo:100"]),
        (&good.replace("\"wakeup\"", "\"sleep\""), &["sleep"]),
    ] {
        assert_refused(&after(&[line.to_owned()]), RefusalKind::BadPlan, words);
    }
    assert_refused(&after(&[]), RefusalKind::BadPlan, &["ended before"]);
}

#[test]
fn refuses_another_protocol_even_with_other_fields() {
    let other = text_of(&plan(MeterKind::Wakeup)).replace("\"protocol\":1", "\"protocol\":7");
    let words = &["version", "found 7", "expected 1"];
    assert_refused(
        &after(std::slice::from_ref(&other)),
        RefusalKind::OtherProtocol,
        words,
    );
    let newer = other.replace("\"aligned\"", "\"alignment\"");
    assert_refused(&after(&[newer]), RefusalKind::OtherProtocol, words);
}

#[test]
fn refuses_invalid_plans() {
    let bad = |change: fn(&mut MeterSettings)| {
        let mut plan = plan(MeterKind::Wakeup);
        change(&mut plan);
        after(&[text_of(&plan)])
    };
    let kind = RefusalKind::BadPlan;
    assert_refused(&bad(|plan| plan.cpus = CpuSet::new()), kind, &["cpus"]);
    assert_refused(
        &bad(|plan| plan.duration = Nanos::ZERO),
        kind,
        &["duration"],
    );
    assert_refused(
        &bad(|plan| plan.interval = Nanos(19_999)),
        kind,
        &["interval", "20 µs"],
    );
    // All findings are reported at once.
    let both = bad(|plan| (plan.interval, plan.duration) = (Nanos(1), Nanos::ZERO));
    assert_refused(&both, kind, &["interval", "duration"]);
}

#[test]
fn refuses_another_request_than_go() {
    let lines = [
        text_of(&plan(MeterKind::Wakeup)),
        text_of(&plan(MeterKind::Wakeup)),
    ];
    let mut meter = Meter::start();
    meter.ready(&plan(MeterKind::Wakeup));
    meter.send_line(&lines[1]);
    assert_refused(&meter.refusal(), RefusalKind::BadPlan, &["go"]);
}

#[test]
fn refuses_missing_cpus() {
    let mut plan = plan(MeterKind::Wakeup);
    plan.cpus.insert(CpuId(4_000));
    let refusal = after(&[text_of(&plan)]);
    assert_refused(
        &refusal,
        RefusalKind::CpuOffline,
        &["CPU 4000", "no such CPU"],
    );
}

#[test]
fn refuses_missing_housekeeping_cpus() {
    let mut plan = plan(MeterKind::Wakeup);
    plan.housekeeping = CpuSet::single(CpuId(4_001));
    let refusal = after(&[text_of(&plan)]);
    assert_refused(&refusal, RefusalKind::CpuOffline, &["CPU 4001"]);
}

#[test]
fn refuses_meters_for_bare_metal() {
    for meter in [MeterKind::Irq, MeterKind::Mmio] {
        let refusal = refused(&plan(meter), &mut Command::new(PROGRAM));
        let words = &[meter.word(), "operating system", "--domains cell"];
        assert_refused(&refusal, RefusalKind::NeedsBareMetal, words);
    }
}

#[test]
fn refuses_cpus_outside_the_affinity() {
    let (Some(first), Some(last)) = (allowed().first(), allowed().iter().next_back()) else {
        return skip("there is no CPU");
    };
    if first == last {
        return skip("it needs two CPUs");
    }
    let mut plan = plan(MeterKind::Wakeup);
    plan.cpus = CpuSet::single(last);
    let mut command = Command::new("taskset");
    command.args(["-c", &first.to_string(), PROGRAM]);
    let refusal = refused(&plan, &mut command);
    let words = &["affinity", "taskset", &last.to_string()];
    assert_refused(&refusal, RefusalKind::CpuOutsideCpuset, words);
}

#[test]
fn refuses_if_the_caller_did_not_place_the_threads() {
    if allowed().len() < 2 {
        return skip("it needs two CPUs");
    }
    let mut plan = plan(MeterKind::Wakeup);
    plan.placed_by = PlacedBy::Outside;
    let mut meter = Meter::start();
    meter.ready(&plan);
    meter.ask(&MeterRequest::Go {});
    assert_refused(
        &meter.refusal(),
        RefusalKind::AffinityNotEffective,
        &["thread meter/"],
    );
    // Bound to the CPU, but without the requested policy.
    plan.policy = SchedulingPolicy::Fifo(5);
    let mut meter = Meter::start();
    let thread = meter.ready(&plan).threads[0].clone();
    let status = Command::new("taskset")
        .args(["-cp", &thread.cpu.to_string(), &thread.thread.to_string()])
        .stdout(std::process::Stdio::null())
        .status();
    if !status.is_ok_and(|status| status.success()) {
        return skip("taskset is not installed");
    }
    meter.ask(&MeterRequest::Go {});
    let words = &["found other", "expected fifo:5", "chrt -f -p 5"];
    assert_refused(&meter.refusal(), RefusalKind::PolicyNotEffective, words);
}

/// Returns a command for the program without any capability, and the copy that it starts as root.
fn without_privilege() -> Option<(Command, Option<Copied>)> {
    if !is_root() {
        return Some((Command::new(PROGRAM), None));
    }
    let copied = Copied::new();
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    command.args(["--inh-caps=-all", "--bounding-set=-all"]);
    command.arg(&copied.0);
    let probe = Command::new("setpriv").arg("--version").output();
    probe.is_ok().then_some((command, Some(copied)))
}

/// A copy of the program in a directory that every user can access; the build directory may not be.
struct Copied(PathBuf);

impl Copied {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("rampart-meter-test-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::copy(PROGRAM, &path).expect("copied");
        Self(path)
    }
}

impl Drop for Copied {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[test]
fn refuses_a_policy_without_privilege() {
    let Some((mut command, _copied)) = without_privilege() else {
        return skip("setpriv is not installed");
    };
    let mut plan = plan(MeterKind::Wakeup);
    plan.policy = SchedulingPolicy::Fifo(42);
    let words = &["fifo:42", "RLIMIT_RTPRIO", "CAP_SYS_NICE", "rtprio=42"];
    assert_refused(
        &refused(&plan, &mut command),
        RefusalKind::PolicyNotEffective,
        words,
    );
}

#[test]
fn refuses_to_lock_memory_without_privilege() {
    if !is_root() {
        return skip("lowering the limit for the test needs prlimit as root");
    }
    let copied = Copied::new();
    let mut command = Command::new("prlimit");
    command.args([
        "--memlock=65536:65536",
        "setpriv",
        "--reuid=65534",
        "--regid=65534",
    ]);
    command.args(["--clear-groups", "--inh-caps=-all", "--bounding-set=-all"]);
    command.arg(&copied.0);
    let mut plan = plan(MeterKind::Wakeup);
    plan.lock_memory = true;
    let words = &["RLIMIT_MEMLOCK 64 KiB", "CAP_IPC_LOCK", "memlock=-1"];
    assert_refused(
        &refused(&plan, &mut command),
        RefusalKind::MemoryNotLocked,
        words,
    );
}

#[test]
fn refuses_deadline_threads_without_capability_or_all_cpus() {
    let Some((mut command, _copied)) = without_privilege() else {
        return skip("setpriv is not installed");
    };
    let mut plan = plan(MeterKind::Wakeup);
    plan.policy = SchedulingPolicy::Deadline {
        runtime: Nanos::from_micros(200),
        deadline: Nanos::from_millis(1),
        period: Nanos::from_millis(1),
    };
    let refusal = refused(&plan, &mut command);
    assert_refused(&refusal, RefusalKind::PolicyNotEffective, &["CAP_SYS_NICE"]);
    if !is_root() || allowed().len() < 2 {
        return skip("the rest needs root and two CPUs");
    }
    let one = plan.cpus.to_string();
    let mut command = Command::new("taskset");
    command.args(["-c", &one, PROGRAM]);
    let refusal = refused(&plan, &mut command);
    assert_refused(&refusal, RefusalKind::PolicyNotEffective, &["root domain"]);
}

/// A control group for the test, removed afterwards.
struct OwnGroup(PathBuf);

impl OwnGroup {
    fn new(hierarchy: &str) -> Option<Self> {
        let name = format!("rampart-meter-test-{}", std::process::id());
        let path = Path::new(hierarchy).join(name);
        fs::create_dir(&path).ok()?;
        Some(Self(path))
    }

    /// Returns a command that starts the program in the group.
    fn command(&self) -> Command {
        let script = "echo $$ > \"$0/cgroup.procs\" && exec \"$1\"";
        let mut command = Command::new("sh");
        command.args(["-c", script]).arg(&self.0).arg(PROGRAM);
        command.process_group(0);
        command
    }
}

impl Drop for OwnGroup {
    fn drop(&mut self) {
        // Processes of the group may still be exiting.
        for _ in 0..50 {
            if fs::remove_dir(&self.0).is_ok() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}

#[test]
fn refuses_without_a_real_time_budget() {
    let limit = fs::read_to_string("/proc/sys/kernel/sched_rt_runtime_us").unwrap_or_default();
    if limit.trim() == "-1" {
        return skip("real-time throttling is off, and budgets with it");
    }
    let Some(group) = OwnGroup::new("/sys/fs/cgroup/cpu") else {
        return skip("no cpu hierarchy of cgroup v1 to make a group in");
    };
    let file = group.0.join("cpu.rt_runtime_us");
    if fs::read_to_string(&file).map_or(true, |text| text.trim() != "0") {
        return skip("this kernel gives groups a real-time budget, or knows none");
    }
    let mut plan = plan(MeterKind::Wakeup);
    plan.policy = SchedulingPolicy::Fifo(10);
    let command = format!("echo 10000 > {}", file.display());
    let words = &["RT_GROUP_SCHED", "found 0", &command];
    let refusal = refused(&plan, &mut group.command());
    assert_refused(&refusal, RefusalKind::NoRealTimeBudget, words);
    // The command in the message is the fix.
    let status = Command::new("sh").args(["-c", &command]).status();
    if !status.is_ok_and(|status| status.success()) {
        return skip("the rest of the machine has taken the whole budget");
    }
    let mut meter = Meter::start_by(&mut group.command());
    meter.ready(&plan);
    meter.ask(&MeterRequest::Go {});
    meter.finish().check(&plan);
}

#[test]
fn refuses_cpus_outside_the_cpuset() {
    let Some(group) = OwnGroup::new("/sys/fs/cgroup/cpuset") else {
        return skip("no cpuset hierarchy of cgroup v1 to make a group in");
    };
    let (Some(first), Some(last)) = (allowed().first(), allowed().iter().next_back()) else {
        return skip("there is no CPU");
    };
    if first == last {
        return skip("it needs two CPUs");
    }
    let set = |name: &str, value: &str| fs::write(group.0.join(name), value);
    if set("cpuset.cpus", &first.to_string()).is_err() || set("cpuset.mems", "0").is_err() {
        return skip("the cpuset cannot be set up");
    }
    let mut plan = plan(MeterKind::Wakeup);
    plan.cpus = CpuSet::single(last);
    let file = group.0.join("cpuset.cpus").display().to_string();
    let words = &["cpuset", &file, &format!("found {first}")];
    let refusal = refused(&plan, &mut group.command());
    assert_refused(&refusal, RefusalKind::CpuOutsideCpuset, words);
}
