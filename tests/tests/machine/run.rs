// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rampart run` and `rampart move`, in control groups that each test creates.

use std::path::Path;
use std::process::{Command, Output};

use rampart_model::{ActivePlanState, CpuSet};
use rampart_tests::active_plan::{ControlGroup, activate, write};
use rampart_tests::limited::Limited as _;
use rampart_tests::processes::{KillAtEnd, children_of};
use rampart_tests::programs::{assert_refused, exit_code, machine, rampart, stderr, stdout};

const PLAN: &str = r#"
[machine]
housekeeping = "0"
policy = "warn"

[[domain]]
name   = "press"
kind   = "task"
cpus   = "1"
policy = { fifo = 7 }
"#;

/// Prints the CPUs, policy and control groups of the shell.
const PRINT_PLACEMENT: &str =
    "grep Cpus_allowed_list /proc/self/status; chrt -p $$; cat /proc/self/cgroup";

fn run(state: &Path, arguments: &[&str]) -> Output {
    rampart(state, arguments).finish().expect("rampart starts")
}

fn refused(state: &Path, arguments: &[&str], code: i32, named: &[&str]) {
    assert_refused(&run(state, arguments), code, named);
}

#[test]
fn reports_a_missing_plan_and_accepts_cpus_without_one() {
    let state = tempfile::tempdir().expect("directory");
    let state = state.path();
    let apply = ["no plan is active", "rampart apply PLAN"];
    for arguments in [
        vec!["run", "press", "--", "true"],
        vec!["run", "--", "true"],
        vec!["run", "--list"],
        vec!["move", "1", "--to", "press"],
        vec!["up"],
        vec!["up", "press"],
        vec!["up", "--foreground", "press"],
        vec!["down", "press"],
    ] {
        refused(state, &arguments, 4, &apply);
    }
    refused(state, &["run", "press"], 2, &["-- PROGRAM"]);
    refused(
        state,
        &["run", "--nice", "20", "--", "true"],
        2,
        &["-20..=19"],
    );
    refused(state, &["move", "1"], 2, &["--to"]);
    refused(
        state,
        &["up", "--foreground"],
        2,
        &["needs exactly one domain"],
    );
    let output = run(
        state,
        &[
            "run",
            "--cpus",
            "0",
            "--",
            "sh",
            "-c",
            "grep Cpus_allowed_list /proc/self/status; exit 77",
        ],
    );
    assert!(stdout(&output, 77).ends_with("\t0\n"), "{output:?}");
    let warning = stderr(&output);
    assert!(
        warning.contains("no plan is active: other programs"),
        "{warning}"
    );
    let sleeping = KillAtEnd(Command::new("sleep").arg("600").spawn().expect("sleep"));
    let number = sleeping.0.id().to_string();
    let moved = run(state, &["move", &number, "--cpus", "0", "--nice", "19"]);
    assert!(stdout(&moved, 0).contains("nice 19"), "{moved:?}");
    refused(
        state,
        &["run", "--cpus", "1000", "--", "true"],
        4,
        &["CPU 1000"],
    );
    refused(
        state,
        &["run", "--cpus", "0", "--", "/nowhere/x"],
        4,
        &["/nowhere/x", "give the path"],
    );
    let nothing = run(state, &["down"]);
    assert_eq!(exit_code(&nothing), 0, "{nothing:?}");
}

#[test]
fn a_program_runs_in_its_domain() {
    let Some(_machine) = machine("a program runs in its domain", 2) else {
        return;
    };
    let cpus: CpuSet = "1".parse().expect("CPUs");
    let Some(group) = ControlGroup::create("a program runs in its domain", "run", &cpus) else {
        return;
    };
    let name = group.proc_line();
    let directory = tempfile::tempdir().expect("directory");
    let state = directory.path();
    let mut plan = activate(state, PLAN, &[("press", &group)]);
    let output = run(state, &["run", "press", "--", "sh", "-c", PRINT_PLACEMENT]);
    let text = stdout(&output, 0);
    for part in ["\t1\n", "SCHED_FIFO", "priority: 7", &format!("{name}\n")] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    // Without a name it runs in the plan's only domain; options override the plan.
    let output = run(
        state,
        &[
            "run",
            "--policy",
            "other",
            "--nice",
            "19",
            "--",
            "sh",
            "-c",
            PRINT_PLACEMENT,
        ],
    );
    let text = stdout(&output, 0);
    assert!(
        text.contains("SCHED_OTHER") && text.contains(&name),
        "{text}"
    );
    let output = run(
        state,
        &["run", "housekeeping", "--", "sh", "-c", PRINT_PLACEMENT],
    );
    let text = stdout(&output, 0);
    assert!(text.contains("\t0\n") && !text.contains(&name), "{text}");
    let list = stdout(&run(state, &["run", "--list"]), 0);
    assert!(
        list.contains("press") && list.contains("housekeeping"),
        "{list}"
    );
    let rows: serde_json::Value =
        serde_json::from_str(&stdout(&run(state, &["run", "--list", "--json"]), 0)).expect("JSON");
    assert_eq!(rows[0]["policy"], "fifo:7");
    assert_eq!(rows[0]["group"], group.path().display().to_string());

    refused(
        state,
        &["run", "moon", "--", "true"],
        2,
        &["no domain `moon`", "press, housekeeping"],
    );
    refused(
        state,
        &["run", "press", "--cpus", "0", "--", "true"],
        2,
        &["some of 1"],
    );
    refused(
        state,
        &["run", "press", "--", "/nowhere"],
        4,
        &["cannot start /nowhere:"],
    );
    for (activity, named) in [
        (ActivePlanState::Begun, "being applied"),
        (ActivePlanState::AwaitsRestart, "waits for a restart"),
    ] {
        plan.state = activity;
        write(state, &plan);
        refused(state, &["run", "press", "--", "true"], 4, &[named]);
    }
    plan.state = ActivePlanState::Active;
    plan.boot = "another".to_owned();
    write(state, &plan);
    refused(
        state,
        &["run", "press", "--", "true"],
        4,
        &["was restarted"],
    );
}

#[test]
fn processes_and_threads_are_moved_and_read_back() {
    let Some(_machine) = machine("processes and threads are moved", 2) else {
        return;
    };
    let cpus: CpuSet = "1".parse().expect("CPUs");
    let Some(group) = ControlGroup::create("processes and threads are moved", "move", &cpus) else {
        return;
    };
    let name = group.path().file_name().expect("a name").display();
    let directory = tempfile::tempdir().expect("directory");
    let state = directory.path();
    activate(state, PLAN, &[("press", &group)]);
    let parent = Command::new("sh")
        .args(["-c", "sleep 600 & wait"])
        .spawn()
        .expect("sh");
    let parent = KillAtEnd(parent);
    let number = parent.0.id().to_string();
    let child = loop {
        if let Some(child) = children_of(parent.0.id()).first() {
            break child.to_string();
        }
    };
    let moved = run(
        state,
        &[
            "move",
            &number,
            "--to",
            "press",
            "--with-children",
            "--json",
        ],
    );
    let rows: serde_json::Value = serde_json::from_str(&stdout(&moved, 0)).expect("JSON");
    let of = |process: &str| {
        let row = rows
            .as_array()
            .expect("rows")
            .iter()
            .find(|row| row["thread"].as_u64() == process.parse().ok());
        row.expect("a row").clone()
    };
    for process in [&number, &child] {
        assert_eq!(of(process)["is"]["cpus"], "1", "{rows}");
        assert_eq!(of(process)["is"]["group"], format!("/{name}"));
        assert_ne!(of(process)["was"]["group"], of(process)["is"]["group"]);
        assert!(group.contains(process.parse().expect("a number")));
    }
    let back = run(
        state,
        &[
            "move",
            &number,
            &child,
            "--to",
            "housekeeping",
            "--policy",
            "other",
        ],
    );
    let text = stdout(&back, 0);
    assert!(
        text.contains(&format!("group /{name}, CPU 1, fifo:7")),
        "{text}"
    );
    assert!(text.contains("CPU 0, other"), "{text}");
    assert!(!group.contains(parent.0.id()), "{text}");

    // A single thread, and numbers without a process.
    let thread = run(
        state,
        &[
            "move", &child, "--to", "press", "--thread", "--policy", "rr:3",
        ],
    );
    assert!(stdout(&thread, 0).contains("rr:3"), "{thread:?}");
    let part = run(
        state,
        &[
            "move",
            &child,
            "4194304",
            "--to",
            "housekeeping",
            "--policy",
            "other",
        ],
    );
    assert!(stdout(&part, 5).contains("no such process"), "{part:?}");
    let none = run(state, &["move", "4194304", "--to", "press"]);
    assert!(stdout(&none, 4).contains("refused"), "{none:?}");
    let _ = Command::new("kill").arg(&child).status();
}
