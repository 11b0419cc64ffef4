// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rampart export` of a plan.

use std::fs;
use std::path::Path;
use std::process::Output;

use rampart_tests::limited::Limited as _;
use rampart_tests::programs::{assert_refused, exit_code, rampart, stderr, stdout};

const PLAN: &str = include_str!("../../../crates/machine/plan/tests/exports/plant.toml");

fn machine(name: &str) -> String {
    rampart_recorded::directory(name).display().to_string()
}

fn export(directory: &Path, arguments: &[&str]) -> Output {
    fs::write(directory.join("plan.toml"), PLAN).expect("a plan");
    let server = machine("server");
    let mut all = vec!["export"];
    all.extend(arguments);
    all.extend(["--plan", "plan.toml", "--machine", &server]);
    rampart(&directory.join("state"), &all)
        .current_dir(directory)
        .finish()
        .expect("rampart starts")
}

#[test]
fn exports_files_for_every_tool_and_reports_the_rest() {
    for (tool, first) in [
        ("systemd", "systemd/system/rampart.target"),
        ("tuned", "tuned/rampart/tuned.conf"),
        ("podman", "podman.sh"),
        ("docker", "docker.sh"),
        ("kubernetes", "kubernetes/kubelet.yaml"),
        ("libvirt", "vision.xml"),
    ] {
        let directory = tempfile::tempdir().expect("a directory");
        // Twice: an export may replace the files of another export.
        for _ in 0..2 {
            let output = export(directory.path(), &[tool, "--out", "out"]);
            let paths = stdout(&output, 0);
            assert_eq!(
                paths.lines().next(),
                Some(&*format!("out/{first}")),
                "{tool}"
            );
            for path in paths.lines() {
                assert!(directory.path().join(path).is_file(), "{path}");
            }
            let errors = stderr(&output);
            assert!(errors.contains("domain `vision`"), "{tool}: {errors}");
        }
    }
}

/// The values are computed from the plan's CPUs and that machine.
#[test]
fn the_tuned_profile_has_the_values_of_the_rules() {
    let directory = tempfile::tempdir().expect("a directory");
    let output = export(directory.path(), &["tuned"]);
    let profile = stdout(&output, 0);
    for line in [
        "kernel.nmi_watchdog=0",
        "/sys/devices/virtual/workqueue/cpumask=33",
        "isolated_cores=2-3,6-7",
        "group.rcuc=0:f:4:*:^\\[rcuc",
    ] {
        assert!(
            profile.lines().any(|other| other == line),
            "{line}: {profile}"
        );
    }
    let boot = profile
        .lines()
        .find(|line| line.starts_with("cmdline_rampart=+"))
        .expect("a kernel command line");
    for word in [
        "isolcpus=managed_irq,domain,2-3,6-7",
        "nohz_full=2-3,6-7",
        "rcu_nocbs=2-3,6-7",
        "irqaffinity=0-1,4-5",
    ] {
        assert!(boot.contains(word), "{word}: {boot}");
    }
    assert_eq!(boot.matches("skew_tick=1").count(), 1, "{boot}");
    // The plan leaves this setting to another tool.
    assert!(!profile.contains("vm.swappiness"), "{profile}");
}

#[test]
fn keeps_foreign_files_and_refuses_bad_requests() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path();
    fs::write(path.join("podman.sh"), "mine\n").expect("a file");
    let output = export(path, &["podman", "--out", "."]);
    assert_refused(&output, 2, &["no export wrote"]);
    assert_eq!(
        fs::read_to_string(path.join("podman.sh")).expect("a file"),
        "mine\n"
    );
    for (arguments, code) in [
        (&["libvirt", "--domain", "absent"][..], 2),
        (&["libvirt", "--domain", "logger"], 4),
        (&["libvirt", "--cpus", "1"], 2),
    ] {
        let output = export(path, arguments);
        assert_eq!(exit_code(&output), code, "{arguments:?}: {output:?}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
    }
    // A plan for another machine.
    let small = machine("virtual-machine");
    let output = rampart(
        &path.join("state"),
        &[
            "export",
            "systemd",
            "--plan",
            "plan.toml",
            "--machine",
            &small,
        ],
    )
    .current_dir(path)
    .finish()
    .expect("rampart starts");
    // Each reason is on its own line.
    assert_refused(&output, 4, &["does not fit", "\nplan.toml:"]);
}
