// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The commands of the README for a plan, on the simulated machine. What the domains run is from
//! docs/simulation.md.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};

use rampart_model::{CpuId, ProgramState, Status, SupervisedDomain, SupervisedState};
use rampart_tests::inside::{
    is_inside, machine_for_inside, report_completion, report_time, run_inside,
};
use rampart_tests::limited::Limited as _;
use rampart_tests::machine_state::{MachineState, read_trimmed as read};
use rampart_tests::processes::allowed_cpus;
use rampart_tests::programs::stdout;

const README: &str = include_str!("../../../README.md");
const SIMULATION: &str = include_str!("../../../docs/simulation.md");

/// `policy` in proc_pid_stat(5).
const OTHER: &str = "0";
const FIFO: &str = "1";

#[test]
fn the_readme_commands_run_a_plan_and_revert_it() {
    let Some(_machine) = machine_for_inside("the commands of the README") else {
        return;
    };
    assert!(README.contains("`rampart sim shell --cpus 4 --real-time-cpus none`"));
    run_inside(
        "documented_commands::every_command_of_the_readme",
        &["--cpus", "4", "--real-time-cpus", "none"],
        Duration::from_secs(600),
    );
}

/// Returns the commands of the README's section: one on each line, or several with semicolons.
fn commands() -> Vec<&'static str> {
    block(README, "Try it on a simulated machine")
        .into_iter()
        .flat_map(|line| line.split('#').next().unwrap_or_default().split(';'))
        .map(str::trim)
        .collect()
}

/// Returns the first indented lines after a text.
fn block(page: &'static str, after: &str) -> Vec<&'static str> {
    let (_, page) = page.split_once(after).expect("the section");
    page.lines()
        .skip_while(|line| !line.starts_with("    "))
        .take_while(|line| line.starts_with("    "))
        .collect()
}

#[test]
fn the_documentation_has_the_commands_of_this_test() {
    let commands = commands();
    assert!(commands.len() > 10, "{commands:?}");
    for needed in ["vi plan.toml", "rampart up", "rampart release"] {
        assert!(commands.contains(&needed), "{needed}: {commands:?}");
    }
    assert!(block(SIMULATION, "## A plan to try").len() > 8);
}

/// Runs in the simulated machine only.
#[test]
fn every_command_of_the_readme() {
    if !is_inside() {
        return;
    }
    let location = tempfile::tempdir().expect("a directory");
    let location = location.path();
    let before = MachineState::whole();
    let mut status = None;
    for command in commands() {
        let output = shell(location, command);
        match command {
            "rampart check" => {
                let text = stdout(&output, 4);
                assert!(text.contains("Not fit for real-time work"), "{text}");
            }
            "rampart plan check plan.toml" => {
                let text = stdout(&output, 0);
                assert!(text.contains("fits this machine: 0 errors"), "{text}");
            }
            "rampart apply plan.toml --dry-run" => {
                let _ = stdout(&output, 0);
                let differences = before.differences(&MachineState::whole());
                assert_eq!(differences, [""; 0], "a dry run changes nothing");
            }
            "rampart up" => {
                let text = stdout(&output, 0);
                assert_eq!(text.lines().count(), 3, "no finding: {text}");
                assert_isolated(location);
            }
            "rampart status" => {
                let text = stdout(&output, 0);
                assert!(
                    text.contains("No drift") || text.contains("in effect as it was applied"),
                    "{text}"
                );
                status = Some(owners(location));
            }
            "rampart run task -- sh -c 'taskset -cp $$'" => {
                let cpu = cpu_of(status.as_ref().expect("a status"), "task");
                let text = stdout(&output, 0);
                assert!(text.trim().ends_with(&format!(": {cpu}")), "{text}");
            }
            "rampart release" => {
                let _ = stdout(&output, 0);
                assert_eq!(before.differences(&MachineState::whole()), [""; 0]);
                let left = std::fs::read_dir("/var/lib/rampart/journal").expect("journals");
                assert_eq!(left.count(), 0);
            }
            _ => {
                let _ = stdout(&output, 0);
            }
        }
    }
    report_completion();
}

/// Runs a command as a user at a prompt does, with the default state directory.
fn shell(location: &Path, command: &str) -> Output {
    let script = match command {
        "vi plan.toml" => block(SIMULATION, "## A plan to try").join("\n"),
        // Left out, because it takes minutes.
        _ if command.contains("--before-after") => return empty_output(),
        // The guest has no power button.
        "rampart down" => format!("{command} --within 1s"),
        _ => command.to_owned(),
    };
    let programs = rampart_tests::programs::directory();
    let path = std::env::var("PATH").unwrap_or_default();
    let began = Instant::now();
    let output = Command::new("sh")
        .args(["-e", "-c", &script])
        .current_dir(location)
        .env("PATH", format!("{}:{path}", programs.display()))
        .env_remove("RAMPART_METER")
        .finish()
        .expect("a shell");
    report_time(command, began);
    output
}

fn empty_output() -> Output {
    Output {
        status: std::process::ExitStatus::default(),
        stdout: Vec::new(),
        stderr: Vec::new(),
    }
}

fn owners(location: &Path) -> Status {
    let status = shell(location, "rampart status --json");
    let status: Status = serde_json::from_str(&stdout(&status, 0)).expect("a status");
    assert!(!status.has_drift(), "{:?}", status.findings);
    for name in ["task", "container", "guest"] {
        let domain = status.domains.iter().find(|domain| domain.name == name);
        let domain = domain.unwrap_or_else(|| panic!("{name}: {:?}", status.domains));
        assert!(domain.isolation_valid && domain.is_up(), "{domain:?}");
        let program = domain.program.as_ref().expect("a program");
        assert_eq!(program.state, ProgramState::Running);
        for cpu in &status.cpus {
            let owns = cpu.owner.as_deref() == Some(name);
            assert_eq!(owns, domain.cpus.contains(cpu.cpu), "{name}: {cpu:?}");
        }
    }
    status
}

/// Returns the only CPU of a domain.
fn cpu_of(status: &Status, name: &str) -> CpuId {
    let domain = status.domains.iter().find(|domain| domain.name == name);
    domain.expect(name).cpus.first().expect("a CPU")
}

/// Checks CPUs, policy and control group of every thread, as the kernel reports them.
fn assert_isolated(location: &Path) {
    let status = owners(location);
    for name in ["task", "container"] {
        let cpu = cpu_of(&status, name).to_string();
        let threads = threads(program(name));
        assert!(!threads.is_empty());
        for thread in threads {
            assert_eq!(thread.cpus, cpu, "{name}: {thread:?}");
            assert_eq!((&*thread.policy, &*thread.priority), (FIFO, "10"), "{name}");
        }
        let group = read(format!("/proc/{}/cgroup", program(name)));
        assert!(group.starts_with(&format!("0::/rampart-{name}")), "{group}");
    }
    let cpu = cpu_of(&status, "guest").to_string();
    let all = threads(program("guest"));
    let (virtual_cpus, others): (Vec<_>, Vec<_>) =
        all.iter().partition(|thread| thread.name.ends_with("/KVM"));
    assert_eq!(virtual_cpus.len(), 1, "{all:?}");
    for thread in virtual_cpus {
        assert_eq!(thread.cpus, cpu, "{all:?}");
        assert_eq!((&*thread.policy, &*thread.priority), (FIFO, "1"), "{all:?}");
    }
    assert!(others.len() > 1, "{all:?}");
    for thread in others {
        assert_eq!((&*thread.cpus, &*thread.policy), ("0", OTHER), "{all:?}");
    }
    // Both print it in their logs.
    let began = Instant::now();
    for name in ["container", "guest"] {
        let end = Instant::now() + Duration::from_secs(400);
        while !log(name).contains("up on Linux 6") {
            assert!(Instant::now() < end, "{name}: {}", log(name));
            assert!(record(name).state == SupervisedState::Running, "{name}");
            thread::sleep(Duration::from_millis(200));
        }
    }
    report_time("(until the guest is up)", began);
}

fn record(name: &str) -> SupervisedDomain {
    let text = read(format!("/var/lib/rampart/domains/{name}.json"));
    serde_json::from_str(&text).expect("a record")
}

/// Returns the process of a domain's program, which started without a finding.
fn program(name: &str) -> u32 {
    let record = record(name);
    assert_eq!(record.state, SupervisedState::Running, "{record:?}");
    assert!(record.findings.is_empty(), "{record:?}");
    record.program.expect("a running program").process
}

fn log(name: &str) -> String {
    let path = PathBuf::from(format!("/var/lib/rampart/domains/{name}.log"));
    String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned()
}

#[derive(Debug)]
struct Thread {
    name: String,
    cpus: String,
    policy: String,
    priority: String,
}

/// Reads the threads of a process, by proc_pid_stat(5).
fn threads(process: u32) -> Vec<Thread> {
    let all = std::fs::read_dir(format!("/proc/{process}/task")).expect("threads");
    all.flatten()
        .map(|entry| {
            let location = entry.path().display().to_string();
            let stat = read(format!("{location}/stat"));
            let (_, fields) = stat.rsplit_once(')').expect("a name");
            let fields: Vec<&str> = fields.split_whitespace().collect();
            let thread = entry.file_name().to_string_lossy().into_owned();
            Thread {
                name: read(format!("{location}/comm")),
                cpus: allowed_cpus(format!("{process}/task/{thread}")),
                priority: fields[37].to_owned(),
                policy: fields[38].to_owned(),
            }
        })
        .collect()
}
