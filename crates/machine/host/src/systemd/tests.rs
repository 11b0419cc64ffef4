// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests with a fake systemd.

use std::sync::Arc;

use super::*;
use crate::StateDirectory;
use crate::fake::{FakeKernel, Layout, Machine, cpus};
use crate::release::release_locked;

const GROUP: &str = "/sys/fs/cgroup/system.slice/cpuset.cpus";
const UNITS: [&str; 4] = ["init.scope", "system.slice", "user.slice", "machine.slice"];

fn machine() -> Machine {
    machine_with(Layout::V2)
}

fn machine_with(layout: Layout) -> Machine {
    let mut machine = Machine::new(4, layout);
    for (file, text) in [("/run/systemd/system/x", ""), ("/usr/bin/systemctl", "")] {
        machine.files.insert(file.into(), text.to_owned());
    }
    machine.add_unit("init.scope", true, "");
    machine.add_unit("system.slice", true, "");
    // A sibling group needs the controller.
    machine.files.insert(GROUP.into(), "\n".to_owned());
    let possible = "/sys/devices/system/cpu/possible";
    machine.files.insert(possible.into(), "0-3\n".to_owned());
    // Set by the administrator until the next restart.
    machine.add_unit("user.slice", true, "0-2");
    let file = drop_in("user.slice", ALLOWED);
    machine.files.insert(file, "AllowedCPUs=0-2\n".to_owned());
    machine.add_unit("irqbalance.service", true, "");
    machine.add_unit("tuned.service", false, "");
    machine
}

/// Returns the machine with no limit instead of all CPUs.
fn without_full_limit(machine: &Machine) -> Machine {
    let mut machine = machine.clone();
    if let Some(text) = machine.files.get_mut(Path::new(GROUP))
        && text == "0-3\n"
    {
        "\n".clone_into(text);
    }
    machine
}

fn change(kernel: &Arc<FakeKernel>, state: &StateDirectory) -> Result<(), HostError> {
    let mut changes = Changes::new(Arc::clone(kernel) as Arc<dyn Kernel>, state);
    let findings = keep_slices_on(&mut changes, &UNITS, &cpus("0-1"))?;
    assert!(findings.is_empty(), "{findings:?}");
    assert!(stop_service(&mut changes, "irqbalance.service")?);
    assert!(!stop_service(&mut changes, "tuned.service")?);
    assert!(!stop_service(&mut changes, "unknown.service")?);
    Ok(())
}

fn state() -> (tempfile::TempDir, StateDirectory) {
    let directory = tempfile::tempdir().expect("directory");
    let state = StateDirectory::at(directory.path().join("state"));
    (directory, state)
}

#[test]
fn restricts_slices_and_restores_them() {
    let before = machine();
    let kernel = Arc::new(FakeKernel::new(before.clone()));
    let (_directory, state) = state();
    change(&kernel, &state).expect("changed");
    for name in ["init.scope", "system.slice", "user.slice"] {
        let unit = Unit::read(&*kernel, name).expect("read");
        assert!(same(&unit.allowed_cpus, "0-1"), "{unit:?}");
    }
    assert_eq!(kernel.machine().files[Path::new(GROUP)], "0-1\n");
    assert!(
        !Unit::read(&*kernel, "irqbalance.service")
            .expect("read")
            .is_active
    );
    let report = release_locked(&*kernel, &state).expect("released");
    assert!(report.left.is_empty(), "{:?}", report.left);
    assert_eq!(kernel.machine().files[Path::new(GROUP)], "0-3\n");
    assert_eq!(without_full_limit(&kernel.machine()), before);
}

#[test]
fn release_restores_units_after_an_end_at_any_step() {
    let before = machine();
    for end in 1.. {
        let kernel = Arc::new(FakeKernel::new(before.clone()));
        let (_directory, state) = state();
        kernel.end_after(Some(end));
        let answer = change(&kernel, &state);
        if answer.is_ok() {
            assert!(end > 15, "{end} steps are too few");
            return;
        }
        kernel.end_after(Some(end % 5 + 1));
        let _ = release_locked(&*kernel, &state);
        kernel.end_after(None);
        let report = release_locked(&*kernel, &state).expect("released");
        assert!(report.left.is_empty(), "{:?}", report.left);
        assert_eq!(without_full_limit(&kernel.machine()), before, "step {end}");
    }
}

#[test]
fn keeps_values_that_the_administrator_set_meanwhile() {
    let kernel = Arc::new(FakeKernel::new(machine()));
    let (_directory, state) = state();
    change(&kernel, &state).expect("changed");
    systemctl::set_property(&*kernel, "system.slice", ALLOWED, "3").expect("set");
    let report = release_locked(&*kernel, &state).expect("released");
    let left = report.left.first().expect("a finding").to_string();
    assert!(
        left.contains("system.slice") && left.contains("no limit"),
        "{left}"
    );
    let unit = Unit::read(&*kernel, "system.slice").expect("read");
    assert_eq!(unit.allowed_cpus, "3");
}

#[test]
fn changes_nothing_without_systemd_or_cgroup_v2() {
    let (_directory, state) = state();
    let bare = Machine::new(4, Layout::V2);
    let kernel = Arc::new(FakeKernel::new(bare.clone()));
    let mut changes = Changes::new(Arc::clone(&kernel) as Arc<dyn Kernel>, &state);
    assert!(
        keep_slices_on(&mut changes, &UNITS, &cpus("0"))
            .expect("nothing")
            .is_empty()
    );
    assert!(!stop_service(&mut changes, "irqbalance.service").expect("nothing"));
    assert_eq!(*kernel.machine(), bare);
    let old = machine_with(Layout::V1);
    let kernel = Arc::new(FakeKernel::new(old.clone()));
    let mut changes = Changes::new(Arc::clone(&kernel) as Arc<dyn Kernel>, &state);
    let findings = keep_slices_on(&mut changes, &UNITS, &cpus("0")).expect("a finding");
    assert_eq!(findings.len(), 1);
    assert_eq!(*kernel.machine(), old);
}

#[test]
fn lists_are_compared_as_sets() {
    assert!(same("0-1 3", "0,1,3") && same("", " ") && same("2", "2"));
    assert!(!same("", "0") && !same("0-1", "0") && !same("x", "x"));
}
