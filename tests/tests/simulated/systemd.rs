// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A plan on a machine that systemd manages: slices and services, as `systemctl` and the kernel's control groups
//! report them.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use rampart_model::{ActivePlan, IsolationMechanism, Status};
use rampart_tests::inside::{is_inside, machine_for_inside, report_completion, run_inside};
use rampart_tests::limited::{Limited as _, ended};
use rampart_tests::machine_state::{MachineState, read_trimmed as read};
use rampart_tests::processes::allowed_cpus;
use rampart_tests::programs::{directory, rampart, stdout};

const PLAN: &str = r#"
[machine]
housekeeping = "0"

[[domain]]
name = "press"
kind = "task"
cpus = "1"
policy = { fifo = 10 }

[[domain]]
name = "vision"
kind = "container"
cpus = "2"

[host]
ksoftirqd-priority = { action = "apply", value = "11" }
ktimers-priority = { action = "apply", value = "11" }
rcuc-priority = { action = "apply", value = "11" }
irqbalance = "apply"
"#;

#[test]
fn systemd_slices_and_services_follow_the_plan() {
    let Some(_machine) = machine_for_inside("slices and services of systemd") else {
        return;
    };
    // An older image, without systemd, is built again.
    let build = Command::new(directory().join("rampart"))
        .args(["sim", "build"])
        .finish_within(Duration::from_secs(600), Vec::new())
        .expect("rampart starts");
    let _ = stdout(&build, 0);
    let options = ["--cpus", "3", "--real-time-cpus", "none"];
    let options = [&options[..], &["--init", "systemd"]].concat();
    run_inside(
        "systemd::systemd_slices_are_restored",
        &options,
        Duration::from_secs(500),
    );
}

/// The units that lose the plan's CPUs.
const UNITS: [&str; 4] = ["init.scope", "system.slice", "user.slice", "machine.slice"];

/// Runs in the simulated machine only.
#[test]
fn systemd_slices_are_restored() {
    if !is_inside() {
        return;
    }
    assert!(Path::new("/run/systemd/system").is_dir(), "systemd runs");
    assert_eq!(read("/proc/1/comm"), "systemd");
    let location = tempfile::tempdir().expect("a directory");
    let state = location.path().join("state");
    let plan = location.path().join("plan.toml");
    std::fs::write(&plan, PLAN).expect("plan");
    let plan = plan.to_str().expect("a path");
    let call = |arguments: &[&str]| rampart(&state, arguments).finish().expect("rampart");
    // Settings of an administrator: CPUs of a slice until the restart, a service on a CPU of the plan, and
    // irqbalance.
    systemctl(&["set-property", "--runtime", "user.slice", "AllowedCPUs=0-1"]);
    let _ = run(
        "systemd-run",
        &[
            "--unit=pinned",
            "--property=AllowedCPUs=2",
            "sleep",
            "1000000",
        ],
    );
    systemctl(&["start", "irqbalance.service"]);
    assert_eq!(systemctl(&["is-active", "irqbalance.service"]), "active");
    let before = Snapshot::take();
    assert_eq!(before.units["user.slice"], "0-1");
    assert_eq!(effective("system.slice/pinned.service"), "2");

    let _ = stdout(&call(&["apply", plan]), 0);
    assert_plan_followed(&state);
    // Now systemd writes all of its groups again.
    systemctl(&["daemon-reload"]);
    assert_plan_followed(&state);
    systemctl(&["daemon-reexec"]);
    assert_plan_followed(&state);
    // A service that starts later gets the same CPUs.
    systemctl(&["restart", "systemd-journald.service"]);
    let _ = run("systemd-run", &["--unit=later", "sleep", "1000000"]);
    for unit in ["systemd-journald.service", "later.service"] {
        let process = systemctl(&["show", "--value", "--property=MainPID", unit]);
        assert_eq!(allowed_cpus(process), "0", "{unit}");
    }
    assert_plan_followed(&state);
    systemctl(&["stop", "later.service"]);
    // A program moves from a service of systemd into the domain.
    let inside = "cat /proc/self/cgroup; grep Cpus_allowed_list /proc/self/status";
    let inside = stdout(&call(&["run", "press", "--", "sh", "-c", inside]), 0);
    assert!(inside.contains("0::/rampart-press"), "{inside}");
    assert!(inside.contains("Cpus_allowed_list:\t1\n"), "{inside}");

    let _ = stdout(&call(&["release"]), 0);
    before.assert_restored("release");
    systemctl(&["daemon-reload"]);
    before.assert_restored("release and a reload");

    // Killed while it applies the plan.
    for milliseconds in [150, 600, 1500] {
        let mut child = rampart(&state, &["apply", plan]).spawn().expect("rampart");
        thread::sleep(Duration::from_millis(milliseconds));
        let _ = child.kill();
        ended(&mut child);
        let _ = stdout(&call(&["release"]), 0);
        before.assert_restored(&format!("a kill after {milliseconds} ms"));
    }
    report_completion();
}

/// Checks the settings of the plan for systemd, as systemd and the kernel report them.
fn assert_plan_followed(state: &Path) {
    for unit in UNITS {
        assert_eq!(property(unit, "AllowedCPUs"), "0", "{unit}");
    }
    for group in ["init.scope", "system.slice", "user.slice"] {
        assert_eq!(
            read(format!("/sys/fs/cgroup/{group}/cpuset.cpus")),
            "0",
            "{group}"
        );
        assert_eq!(effective(group), "0", "{group}");
    }
    // The service requested a CPU that belongs to the plan now.
    assert_eq!(effective("system.slice/pinned.service"), "0");
    assert_eq!(allowed_cpus("1"), "0");
    assert_eq!(allowed_cpus("self"), "0");
    assert_eq!(property("irqbalance.service", "ActiveState"), "inactive");
    for (name, cpu) in [("press", "1"), ("vision", "2")] {
        let group = format!("rampart-{name}");
        let partition = format!("/sys/fs/cgroup/{group}/cpuset.cpus.partition");
        assert_eq!(read(&partition), "isolated");
        assert_eq!(effective(&group), cpu);
    }
    let text = std::fs::read_to_string(state.join("plan.json")).expect("a plan is active");
    let plan: ActivePlan = serde_json::from_str(&text).expect("an active plan");
    assert!(
        plan.domains
            .iter()
            .all(|domain| domain.isolation == IsolationMechanism::IsolatedPartition)
    );
    let status = rampart(state, &["status", "--json"]).finish();
    let status = stdout(&status.expect("rampart"), 0);
    let status: Status = serde_json::from_str(&status).expect("a status");
    assert!(!status.has_drift(), "{:?}", status.findings);
}

/// The settings of the machine and of systemd.
struct Snapshot {
    machine: MachineState,
    units: BTreeMap<&'static str, String>,
    /// Files with the settings until the restart.
    settings: String,
}

impl Snapshot {
    fn take() -> Self {
        let unit = |name: &'static str| (name, property(name, "AllowedCPUs"));
        Self {
            machine: MachineState::whole(),
            units: UNITS.into_iter().map(unit).collect(),
            settings: run("find", &["/run/systemd/system.control"]),
        }
    }

    fn assert_restored(&self, after: &str) {
        let now = Self::take();
        assert_eq!(self.units, now.units, "{after}");
        assert_eq!(self.settings, now.settings, "{after}");
        assert_eq!(effective("system.slice/pinned.service"), "2", "{after}");
        let end = Instant::now() + Duration::from_secs(20);
        while systemctl(&["is-active", "irqbalance.service"]) != "active" {
            assert!(Instant::now() < end, "irqbalance runs again after {after}");
        }
        for unit in ["init.scope", "system.slice"] {
            assert_eq!(effective(unit), "0-2", "{unit} after {after}");
        }
        // irqbalance moves interrupts all the time, and the kernel does not restore the empty list of a group
        // with processes.
        let differences = self.machine.differences(&now.machine);
        let differences: Vec<String> = differences
            .into_iter()
            .filter(|line| !line.starts_with("/proc/irq/"))
            .filter(|line| !line.ends_with("/cpuset.cpus: Some(\"\") then Some(\"0-2\")"))
            .collect();
        assert_eq!(differences, [""; 0], "{after}");
    }
}

fn property(unit: &str, name: &str) -> String {
    systemctl(&["show", "--value", &format!("--property={name}"), unit])
}

fn effective(group: &str) -> String {
    read(format!("/sys/fs/cgroup/{group}/cpuset.cpus.effective"))
}

fn systemctl(arguments: &[&str]) -> String {
    run("systemctl", arguments)
}

/// Returns the output of a program. `systemctl is-active` fails for an inactive unit.
fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).finish();
    let output = output.expect(program);
    let may_fail = matches!(
        arguments.first(),
        Some(&"is-active" | &"/run/systemd/system.control")
    );
    assert!(
        may_fail || output.status.success(),
        "{program} {arguments:?}: {output:?}"
    );
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}
