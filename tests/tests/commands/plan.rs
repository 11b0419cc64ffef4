// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rampart plan` on this machine and on recorded ones.

use std::path::Path;
use std::process::Output;

use rampart_tests::limited::Limited as _;
use rampart_tests::programs::{exit_code, rampart};

const MACHINES: [&str; 4] = ["board", "laptop", "server", "virtual-machine"];

/// Returns the standard output for any exit code.
fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn run(directory: &Path, arguments: &[&str]) -> Output {
    rampart(directory, arguments)
        .current_dir(directory)
        .finish()
        .expect("rampart starts")
}

#[test]
fn a_proposed_plan_is_checked_and_shown() {
    for name in MACHINES {
        let directory = tempfile::tempdir().expect("directory");
        let machine = rampart_recorded::directory(name);
        let machine = machine.to_str().expect("a path");
        let at = |arguments: &[&str]| {
            let mut all = arguments.to_vec();
            all.extend(["--machine", machine]);
            run(directory.path(), &all)
        };
        let proposed = at(&[
            "plan",
            "propose",
            "--real-time-cpus",
            "1",
            "--out",
            "plan.toml",
        ]);
        assert_eq!(exit_code(&proposed), 0, "{name}: {proposed:?}");
        let again = at(&["plan", "propose", "--out", "plan.toml"]);
        assert_eq!(exit_code(&again), 2, "a plan is not overwritten");
        let checked = at(&["plan", "check", "plan.toml"]);
        assert_eq!(exit_code(&checked), 0, "{name}: {}", stdout(&checked));
        assert!(
            stdout(&checked).contains("plan.toml: fits this machine"),
            "{name}"
        );
        let shown = at(&["plan", "show", "plan.toml"]);
        assert_eq!(exit_code(&shown), 0, "{name}");
        assert!(
            stdout(&shown).contains("A task"),
            "{name}: {}",
            stdout(&shown)
        );
        let json = at(&["plan", "show", "plan.toml", "--json"]);
        let resolved: rampart_model::ResolvedPlan =
            serde_json::from_str(&stdout(&json)).expect("a resolved plan");
        assert_eq!(resolved.real_time.len(), 1, "{name}");
        let page = at(&["plan", "show", "plan.toml", "--html", "plan.html"]);
        assert_eq!(exit_code(&page), 0, "{name}");
        let page = std::fs::read_to_string(directory.path().join("plan.html")).expect("page");
        assert!(
            page.starts_with("<!doctype html>") && page.contains("A task"),
            "{name}"
        );
    }
}

#[test]
fn refuses_a_plan_of_another_machine_with_exit_code_4() {
    let directory = tempfile::tempdir().expect("directory");
    let laptop = rampart_recorded::directory("laptop");
    let server = rampart_recorded::directory("server");
    let (laptop, server) = (
        laptop.to_str().expect("path"),
        server.to_str().expect("path"),
    );
    run(
        directory.path(),
        &["plan", "propose", "--out", "plan.toml", "--machine", laptop],
    );
    let checked = run(
        directory.path(),
        &["plan", "check", "plan.toml", "--machine", server],
    );
    assert_eq!(exit_code(&checked), 4, "{}", stdout(&checked));
    assert!(
        stdout(&checked).contains("threads of one core were CPUs"),
        "{}",
        stdout(&checked)
    );
    let json = run(
        directory.path(),
        &["plan", "check", "plan.toml", "--json", "--machine", server],
    );
    assert_eq!(exit_code(&json), 4);
    let resolved: rampart_model::ResolvedPlan =
        serde_json::from_str(&stdout(&json)).expect("a resolved plan");
    assert!(!resolved.tool_version.is_empty());
    assert!(
        resolved
            .findings
            .iter()
            .any(|finding| finding.rule() == "same-machine")
    );
}

#[test]
fn an_invalid_plan_exits_with_2_and_its_location() {
    let directory = tempfile::tempdir().expect("directory");
    std::fs::write(
        directory.path().join("plan.toml"),
        "[machine]\nhouskeeping = \"0\"\n",
    )
    .expect("write");
    for action in ["check", "show"] {
        let refused = run(directory.path(), &["plan", action, "plan.toml"]);
        let stderr = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(exit_code(&refused), 2, "{stderr}");
        assert!(
            stderr.contains("plan.toml:2:1: unknown field `houskeeping`"),
            "{stderr}"
        );
        assert!(refused.stdout.is_empty());
        let missing = run(directory.path(), &["plan", action, "none.toml"]);
        assert_eq!(exit_code(&missing), 2);
        let machine = run(
            directory.path(),
            &["plan", action, "plan.toml", "--machine", "none"],
        );
        assert_eq!(exit_code(&machine), 2);
    }
    let many = run(directory.path(), &["plan", "propose", "--tasks", "9000"]);
    assert_eq!(exit_code(&many), 4, "{many:?}");
    assert!(many.stdout.is_empty());
}

#[test]
fn proposes_a_plan_or_reports_the_reason() {
    let directory = tempfile::tempdir().expect("directory");
    let proposed = run(directory.path(), &["plan", "propose", "--out", "plan.toml"]);
    if exit_code(&proposed) == 4 {
        assert!(String::from_utf8_lossy(&proposed.stderr).contains("fix: "));
        return;
    }
    assert_eq!(exit_code(&proposed), 0, "{proposed:?}");
    // The errors of the plan depend on this machine.
    let checked = run(directory.path(), &["plan", "check", "plan.toml"]);
    assert!([0, 4].contains(&exit_code(&checked)), "{checked:?}");
    assert!(stdout(&checked).contains(" note"), "{}", stdout(&checked));
}
