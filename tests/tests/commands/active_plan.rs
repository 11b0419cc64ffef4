// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Commands for an active plan that change nothing of this machine.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use rampart_model::{ActivePlanState, ChangeList};
use rampart_tests::active_plan::{activate, write};
use rampart_tests::limited::Limited as _;
use rampart_tests::programs::{assert_refused, rampart, stdout};

const PLAN: &str = "[machine]\nhousekeeping = \"0\"\npolicy = \"warn\"\n";

fn run(state: &Path, arguments: &[&str]) -> Output {
    rampart(state, arguments).finish().expect("rampart starts")
}

fn refused(state: &Path, arguments: &[&str], named: &[&str]) {
    assert_refused(&run(state, arguments), 4, named);
}

#[test]
fn a_manual_shield_does_not_change_an_active_plan() {
    let directory = tempfile::tempdir().expect("directory");
    let state = directory.path();
    let mut plan = activate(state, PLAN, &[]);
    let own = state.join("shield.toml");
    // Also a plan that waits for a restart, before and after the restart.
    for (activity, boot) in [
        (ActivePlanState::Active, None),
        (ActivePlanState::AwaitsRestart, None),
        (ActivePlanState::AwaitsRestart, Some("another")),
    ] {
        plan.state = activity;
        if let Some(boot) = boot {
            plan.boot = boot.to_owned();
        }
        write(state, &plan);
        let before = fs::read(state.join("plan.json")).expect("the active plan");
        for arguments in [["shield", "--off"], ["shield", "1"]] {
            refused(
                state,
                &arguments,
                &["plan.toml", "shield.toml", "rampart release"],
            );
        }
        assert!(!own.exists());
        assert_eq!(fs::read(state.join("plan.json")).expect("kept"), before);
    }
    // The plan of a manual shield is active once.
    let mut plan = activate(state, PLAN, &[]);
    plan.file = own.display().to_string();
    write(state, &plan);
    fs::write(&own, "as it was").expect("written");
    refused(state, &["shield", "0"], &["a plan is active already"]);
    assert_eq!(fs::read_to_string(&own).expect("kept"), "as it was");
    let off = run(state, &["shield", "--off"]);
    assert!(
        stdout(&off, 0).contains("the plan had changed nothing"),
        "{off:?}"
    );
    assert!(!state.join("plan.json").exists());
}

#[test]
fn a_requested_restart_is_not_lost() {
    let directory = tempfile::tempdir().expect("directory");
    let state = directory.path();
    let mut plan = activate(state, PLAN, &[]);
    plan.state = ActivePlanState::AwaitsRestart;
    write(state, &plan);
    let file = plan.file.as_str();
    refused(
        state,
        &["apply", file],
        &["restart the machine", "rampart release"],
    );
}

#[test]
fn the_document_lists_the_boot_loader_files() {
    let directory = tempfile::tempdir().expect("directory");
    let here = directory.path();
    let recorded = rampart_recorded::directory("server");
    let machine = here.join("machine");
    let copied = Command::new("cp")
        .arg("-r")
        .args([&recorded, &machine])
        .finish()
        .expect("cp");
    assert!(copied.status.success(), "{copied:?}");
    let loader = machine.join("boot/extlinux");
    fs::create_dir_all(&loader).expect("a directory");
    fs::write(
        loader.join("extlinux.conf"),
        "label mine\n  linux /vmlinuz\n  append root=/dev/sda1\n",
    )
    .expect("written");
    let text = "[[domain]]\nname = \"press\"\nkind = \"task\"\ncpus = \"1\"\n\
                [machine]\npolicy = \"warn\"\n[boot]\nreboot = \"plan\"\n";
    let plan = here.join("plan.toml");
    fs::write(&plan, text).expect("written");
    let [plan, machine] = [&plan, &machine].map(|path| path.to_str().expect("a path"));
    let asked = ["apply", plan, "--machine", machine, "--dry-run", "--json"];
    let document = |arguments: &[&str]| -> serde_json::Value {
        serde_json::from_str(&stdout(&run(here, arguments), 0)).expect("JSON")
    };
    let alone = document(&asked);
    assert!(alone.get("boot").is_none(), "{alone}");
    let with_boot = document(&[asked.as_slice(), &["--boot"]].concat());
    let changes: ChangeList = serde_json::from_value(with_boot.clone()).expect("changes");
    assert!(!changes.boot_arguments.is_empty());
    let files = with_boot["boot"]["files"].as_array().expect("files");
    let new = files[0]["new"].as_str().expect("a text");
    assert!(
        files[0]["path"] == "/boot/extlinux/extlinux.conf"
            && new.contains(&changes.boot_arguments[0]),
        "{with_boot:#}"
    );
}
