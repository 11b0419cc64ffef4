// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A plan on the simulated machine: applied, broken off, taken back, and every file as before.

use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use rampart_model::{StandingPlan, StandingState, Wall};
use rampart_tests::limited::{Limited as _, ended};
use rampart_tests::machine_state::MachineState;
use rampart_tests::programs::{directory, exit_code, machine, rampart, stdout};

/// Set in the simulated machine: elsewhere nobody's settings are changed by a test.
const IN_THE_MACHINE: &str = "RAMPART_TEST_IN_THE_MACHINE";

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

[host]
ksoftirqd-priority = { action = "apply", value = "11" }
ktimers-priority = { action = "apply", value = "11" }
rcuc-priority = { action = "apply", value = "11" }
real-time-throttling = "apply"
swappiness = "skip"
"#;

const CARRIED: &str = "set -e; cd \"$(mktemp -d)\"; tar -x; chmod +x apply-*; \
    RAMPART_BIN=$PWD RAMPART_TEST_IN_THE_MACHINE=1 timeout 200 ./apply-* \
    --exact a_plan_stands_until_it_is_released --nocapture";

#[test]
fn a_plan_stands_on_a_real_time_kernel_until_it_is_released() {
    let name = "a_plan_stands_on_a_real_time_kernel_until_it_is_released";
    let Some(_machine) = machine(name, 2) else {
        return;
    };
    let ourselves = std::env::current_exe().expect("this program");
    let archive = Command::new("tar")
        .args(["-c", "-C"])
        .arg(directory())
        .args(["rampart", "rampart-meter", "-C"])
        .arg(ourselves.parent().expect("a directory"))
        .arg(ourselves.file_name().expect("a name"))
        .finish()
        .expect("tar starts");
    assert!(archive.status.success(), "{archive:?}");
    let output = Command::new(directory().join("rampart"))
        .args(["sim", "run", "--own", "--cpus", "3"])
        .args(["--real-time-cpus", "none", "--", "sh", "-c", CARRIED])
        .env_remove("RAMPART_METER")
        .finish_within(Duration::from_secs(280), archive.stdout)
        .expect("rampart starts");
    let text = stdout(&output, 0);
    assert!(text.contains("1 passed"), "{text}");
    assert!(text.contains("seen to the end"), "{text}");
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path)
        .unwrap_or_else(|error| panic!("{path}: {error}"))
        .trim()
        .to_owned()
}

fn standing(state: &Path) -> Option<StandingPlan> {
    let text = std::fs::read_to_string(state.join("plan.json")).ok()?;
    Some(serde_json::from_str(&text).expect("a standing plan"))
}

/// Runs in the simulated machine only.
#[test]
#[expect(clippy::print_stdout, reason = "the one outside sees that it ran")]
fn a_plan_stands_until_it_is_released() {
    if std::env::var_os(IN_THE_MACHINE).is_none() {
        return;
    }
    let directory = tempfile::tempdir().expect("directory");
    let state = directory.path().join("state");
    let plan = directory.path().join("plan.toml");
    std::fs::write(&plan, PLAN).expect("plan");
    let plan = plan.to_str().expect("path");
    let call = |arguments: &[&str]| rampart(&state, arguments).finish().expect("rampart");
    let before = MachineState::whole();

    let told = stdout(&call(&["apply", plan, "--dry-run"]), 0);
    for part in ["press", "vision", "governor", "swappiness", "nohz_full=1-2"] {
        let expected = part != "governor";
        assert_eq!(told.contains(part), expected, "{part}: {told}");
    }
    assert_eq!(before.differences(&MachineState::whole()), [""; 0]);

    // As the kernel tells it.
    let _ = stdout(&call(&["apply", plan]), 0);
    let stands = standing(&state).expect("it stands");
    assert_eq!(stands.state, StandingState::Stands);
    for (name, cpu) in [("press", "1"), ("vision", "2")] {
        let domain = stands.domain(name).expect("domain");
        assert_eq!(domain.wall, Wall::IsolatedPartition);
        let group = domain.group.as_deref().expect("group");
        let partition = read(&format!("{group}/cpuset.cpus.partition"));
        assert_eq!(partition, "isolated");
        assert_eq!(read(&format!("{group}/cpuset.cpus.effective")), cpu);
    }
    assert_eq!(read("/sys/fs/cgroup/cpuset.cpus.effective"), "0");
    assert_eq!(read("/proc/irq/default_smp_affinity"), "1");
    assert_eq!(read("/proc/sys/kernel/sched_rt_runtime_us"), "-1");
    assert_eq!(read("/proc/sys/kernel/watchdog_cpumask"), "0");
    let second = call(&["apply", plan]);
    assert_eq!(exit_code(&second), 4);
    let refusal = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(refusal.contains("rampart release"), "{refusal}");
    let _ = stdout(&call(&["release"]), 0);
    assert_eq!(before.differences(&MachineState::whole()), [""; 0]);
    assert_eq!(standing(&state), None);

    // Killed on the way, earlier and later.
    for milliseconds in [40, 90, 150, 220, 300, 400] {
        let mut child = rampart(&state, &["apply", plan]).spawn().expect("rampart");
        thread::sleep(Duration::from_millis(milliseconds));
        let _ = child.kill();
        ended(&mut child);
        let _ = stdout(&call(&["release"]), 0);
        let told = before.differences(&MachineState::whole());
        assert_eq!(told, [""; 0], "killed after {milliseconds} ms");
        assert_eq!(standing(&state), None);
    }
    println!("seen to the end");
}
