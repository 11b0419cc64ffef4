// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A plan on the simulated machine: applied, killed meanwhile, released, and every file as before.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::thread;
use std::time::Duration;

use rampart_model::{ActivePlan, ActivePlanState, IsolationMechanism};
use rampart_tests::inside::{is_inside, machine_for_inside, report_completion, run_inside};
use rampart_tests::limited::{Limited as _, ended};
use rampart_tests::machine_state::{MachineState, read_trimmed as read};
use rampart_tests::programs::{exit_code, rampart, stderr, stdout};

const PLAN: &str = r#"
[machine]
housekeeping = "0"

[[domain]]
name = "press"
kind = "task"
cpus = "1"
policy = { fifo = 10 }
run = ["sleep", "1000"]

[[domain]]
name = "vision"
kind = "container"
cpus = "2"

[[domain]]
name = "inspection"
kind = "vm"
vcpus = "3"
emulator = "0"
memory = { size = "8MiB", hugepage = "2MiB" }

[host]
ksoftirqd-priority = { action = "apply", value = "11" }
ktimers-priority = { action = "apply", value = "11" }
rcuc-priority = { action = "apply", value = "11" }
real-time-throttling = "apply"
swappiness = "skip"

[boot]
reboot = "plan"
"#;

#[test]
fn a_plan_survives_a_reboot_and_is_reverted_exactly() {
    let Some(_machine) = machine_for_inside("a plan over a restart") else {
        return;
    };
    let location = tempfile::tempdir().expect("a directory");
    let disk = location.path().join("disk");
    let disk = disk.to_str().expect("a path");
    // The second machine starts with the disk of the first one.
    for test in [
        "apply::writes_the_kernel_command_line",
        "apply::a_plan_is_active_until_it_is_released",
    ] {
        let options = ["--cpus", "4", "--real-time-cpus", "none", "--disk", disk];
        run_inside(test, &options, Duration::from_secs(200));
    }
}

const STATE: &str = "/var/lib/rampart";
const LOADER: &str = "/boot/extlinux/extlinux.conf";
/// A copy of the loader's file before the plan, on the disk.
const LOADER_BEFORE: &str = "/var/lib/rampart/loader-before";
const PAGES: &str = "/sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages";
const PLAN_FILE: &str = "/var/lib/rampart/plan.toml";

/// Runs in the simulated machine only, before the restart.
#[test]
fn writes_the_kernel_command_line() {
    if !is_inside() {
        return;
    }
    let state = Path::new(STATE);
    let before = read(LOADER);
    write(LOADER_BEFORE, &std::fs::read(LOADER).expect("loader"));
    assert!(!before.contains("isolcpus"), "{before}");
    let call = |arguments: &[&str]| rampart(state, arguments).finish().expect("rampart");
    // A plan must allow a restart.
    write(PLAN_FILE, PLAN.replace("reboot = \"plan\"", "").as_bytes());
    let refused = call(&["apply", PLAN_FILE, "--boot"]);
    assert_eq!(exit_code(&refused), 4);
    let refusal = stderr(&refused);
    assert!(refusal.contains("reboot = \"plan\""), "{refusal}");
    write(PLAN_FILE, PLAN.as_bytes());
    let changes = stdout(&call(&["apply", PLAN_FILE, "--boot", "--dry-run"]), 0);
    assert!(changes.contains(LOADER), "{changes}");
    assert_eq!(read(LOADER), before);

    let text = stdout(&call(&["apply", PLAN_FILE, "--boot"]), 0);
    assert!(text.contains("restart the machine"), "{text}");
    let active = active_plan(state).expect("a plan");
    assert_eq!(active.state, ActivePlanState::AwaitsRestart);
    assert!(read(LOADER).contains("nohz_full=1-3"), "{}", read(LOADER));
    report_completion();
}

/// Writes a file to the disk: the machine ends without a shutdown when its program ends.
fn write(path: &str, content: &[u8]) {
    let mut file = File::create(path).expect(path);
    file.write_all(content).expect(path);
    file.sync_all().expect(path);
}

fn active_plan(state: &Path) -> Option<ActivePlan> {
    let text = std::fs::read_to_string(state.join("plan.json")).ok()?;
    Some(serde_json::from_str(&text).expect("an active plan"))
}

/// Runs in the simulated machine only.
#[test]
fn a_plan_is_active_until_it_is_released() {
    if !is_inside() {
        return;
    }
    let line = read("/proc/cmdline");
    assert!(line.contains("nohz_full=1-3"), "{line}");
    let (state, plan) = (Path::new(STATE), PLAN_FILE);
    let waiting = active_plan(state).map(|plan| plan.state);
    assert_eq!(waiting, Some(ActivePlanState::AwaitsRestart));
    let call = |arguments: &[&str]| rampart(state, arguments).finish().expect("rampart");
    let before = MachineState::whole();

    let changes = stdout(&call(&["apply", plan, "--dry-run"]), 0);
    for part in ["press", "vision", "swappiness", "rcuc-priority"] {
        assert!(changes.contains(part), "{part}: {changes}");
    }
    // It is in effect since the restart.
    assert!(!changes.contains("nohz_full="), "{changes}");
    assert_eq!(before.differences(&MachineState::whole()), [""; 0]);

    let _ = stdout(&call(&["apply", plan]), 0);
    let active = active_plan(state).expect("a plan");
    assert_eq!(active.state, ActivePlanState::Active);
    for (name, cpu) in [("press", "1"), ("vision", "2"), ("inspection", "3")] {
        let domain = active.domain(name).expect("domain");
        assert_eq!(domain.isolation, IsolationMechanism::IsolatedPartition);
        let group = domain.group.as_deref().expect("group");
        let partition = read(format!("{group}/cpuset.cpus.partition"));
        assert_eq!(partition, "isolated");
        assert_eq!(read(format!("{group}/cpuset.cpus.effective")), cpu);
    }
    assert_eq!(read("/sys/fs/cgroup/cpuset.cpus.effective"), "0");
    assert_eq!(read("/proc/irq/default_smp_affinity"), "1");
    assert_eq!(read("/proc/sys/kernel/sched_rt_runtime_us"), "-1");
    assert_eq!(read("/proc/sys/kernel/watchdog_cpumask"), "0");
    assert_eq!(read(PAGES), "4", "the huge pages of the guest");
    let second = call(&["apply", plan]);
    assert_eq!(exit_code(&second), 4);
    let refusal = stderr(&second);
    assert!(refusal.contains("rampart release"), "{refusal}");
    let status = stdout(&call(&["status"]), 0);
    assert!(status.contains("press"), "{status}");
    let _ = stdout(&call(&["release"]), 0);
    assert_eq!(before.differences(&MachineState::whole()), [""; 0]);
    assert_eq!(read(PAGES), "0");
    assert_eq!(active_plan(state), None);
    let loader = |path| std::fs::read(path).expect("loader");
    assert_eq!(loader(LOADER), loader(LOADER_BEFORE));
    let journals = std::fs::read_dir(state.join("journal")).expect("journals");
    assert_eq!(journals.count(), 0);

    // Killed while it applies the plan, earlier and later.
    for milliseconds in [40, 90, 150, 220, 300, 400] {
        let mut child = rampart(state, &["apply", plan]).spawn().expect("rampart");
        thread::sleep(Duration::from_millis(milliseconds));
        let _ = child.kill();
        ended(&mut child);
        let _ = stdout(&call(&["release"]), 0);
        let differences = before.differences(&MachineState::whole());
        assert_eq!(differences, [""; 0], "killed after {milliseconds} ms");
        assert_eq!(read(PAGES), "0", "killed after {milliseconds} ms");
        assert_eq!(active_plan(state), None);
    }
    report_completion();
}
