// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests of placement on the running machine, with groups that each test creates and removes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use rampart_model::{CpuId, SchedulingPolicy};

use super::*;

struct Asleep(Child);

impl Asleep {
    fn new() -> Self {
        let child = Command::new("sleep").arg("600").spawn().expect("sleep");
        Self(child)
    }
}

impl Drop for Asleep {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A group in a v1 hierarchy, with one CPU for `cpuset`.
struct Group(PathBuf);

impl Group {
    fn new(controller: &str) -> Option<Self> {
        let hierarchies = Hierarchies::of(&RunningKernel);
        let root = hierarchies.legacy_with(controller)?;
        let path = root.join(format!("rampart-test-place-{}", std::process::id()));
        fs::create_dir(&path).ok()?;
        if controller == "cpuset" {
            let memory = fs::read_to_string(root.join("cpuset.mems")).ok()?;
            fs::write(path.join("cpuset.mems"), memory.trim()).ok()?;
            fs::write(path.join("cpuset.cpus"), "0").ok()?;
        }
        Some(Self(path))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for _ in 0..100 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
}

fn unchanged() -> ThreadPlacement {
    ThreadPlacement {
        group: PlacementGroup::AsIs,
        cpus: None,
        policy: None,
        nice: None,
    }
}

#[test]
fn binds_a_process_and_reads_its_state_back() {
    let sleeping = Asleep::new();
    let only = CpuSet::single(CpuId(0));
    let wanted = ThreadPlacement {
        cpus: Some(only.clone()),
        nice: Some(19),
        ..unchanged()
    };
    let placed = place_process(sleeping.0.id(), &wanted).expect("placed");
    let [thread] = placed.as_slice() else {
        panic!("{placed:?}");
    };
    assert_eq!(thread.refused, None);
    assert_eq!(
        thread.was.as_ref().map(|state| state.cpus.is_empty()),
        Some(false)
    );
    let is = thread.is.as_ref().expect("alive");
    assert_eq!((is.cpus.clone(), is.nice), (only, 19));
    assert!(descendants(std::process::id()).contains(&sleeping.0.id()));
    assert_eq!(is_leader(sleeping.0.id()), Some(true));
}

#[test]
fn reports_missing_processes_cpus_and_groups() {
    for error in [
        place_process(u32::MAX, &unchanged()).expect_err("no such process"),
        place_thread(u32::MAX, &unchanged()).expect_err("no such thread"),
    ] {
        assert!(error.to_string().contains("ps -eL"), "{error}");
    }
    let sleeping = Asleep::new();
    let nowhere = ThreadPlacement {
        cpus: Some(CpuSet::single(CpuId(1000))),
        ..unchanged()
    };
    let placed = place_process(sleeping.0.id(), &nowhere).expect("a process");
    let refused = placed[0].refused.as_ref().expect("refused").to_string();
    assert!(
        refused.contains("cannot bind the thread to CPU 1000"),
        "{refused}"
    );
    let lost = ThreadPlacement {
        group: PlacementGroup::V1("/sys/fs/cgroup/cpuset/not-there".into()),
        ..unchanged()
    };
    let error = place_process(sleeping.0.id(), &lost).expect_err("no such group");
    assert!(error.to_string().contains("rampart run --list"), "{error}");
}

#[test]
fn a_process_enters_a_group_with_all_its_threads() {
    let Some(group) = Group::new("cpuset") else {
        return;
    };
    let sleeping = Asleep::new();
    let wanted = ThreadPlacement {
        group: PlacementGroup::V1(group.0.clone()),
        ..unchanged()
    };
    let placed = place_process(sleeping.0.id(), &wanted).expect("placed");
    assert_eq!(placed[0].refused, None, "{placed:?}");
    let members = fs::read_to_string(group.0.join("tasks")).expect("members");
    assert_eq!(members.trim(), sleeping.0.id().to_string());
    // Outside the group, the state differs from the request.
    let home = home_group(false).expect("a hierarchy");
    let out = ThreadPlacement {
        group: PlacementGroup::V1(home),
        ..unchanged()
    };
    let thread = place_thread(sleeping.0.id(), &out).expect("placed");
    assert_eq!(thread.refused, None);
    let state = thread_state(sleeping.0.id()).expect("alive");
    let hierarchies = Hierarchies::of(&RunningKernel);
    let found = thread_state::difference(
        &RunningKernel,
        &hierarchies,
        sleeping.0.id(),
        &state,
        &wanted,
    );
    let found = found.expect("a difference").to_string();
    assert!(found.contains("another control group"), "{found}");
}

#[test]
fn a_real_time_policy_leaves_a_group_without_budget() {
    if !crate::state_directory::is_root() || crate::free_real_time_budget().is_none() {
        return;
    }
    let Some(group) = Group::new("cpu") else {
        return;
    };
    let sleeping = Asleep::new();
    fs::write(group.0.join("cgroup.procs"), sleeping.0.id().to_string()).expect("moved");
    let wanted = ThreadPlacement {
        policy: Some(SchedulingPolicy::Fifo(3)),
        ..unchanged()
    };
    let placed = place_process(sleeping.0.id(), &wanted).expect("placed");
    let thread = &placed[0];
    assert_eq!(thread.refused, None, "{thread:?}");
    let is = thread.is.as_ref().expect("alive");
    assert_eq!(is.policy, SchedulingPolicy::Fifo(3));
    assert!(
        thread.notes[0]
            .to_string()
            .contains("moved to the root group")
    );
    let back = ThreadPlacement {
        policy: Some(SchedulingPolicy::Other),
        ..unchanged()
    };
    let placed = place_process(sleeping.0.id(), &back).expect("placed");
    assert_eq!(placed[0].refused, None, "{placed:?}");
}

/// Returns a v2 hierarchy with the cpuset controller in which groups can be created.
fn unified() -> Option<PathBuf> {
    let root = Hierarchies::of(&RunningKernel).unified?;
    crate::state_directory::is_root().then_some(root)
}

#[test]
fn a_single_thread_stays_with_its_process_in_v2() {
    let Some(root) = unified() else {
        return;
    };
    let path = root.join(format!("rampart-test-thread-{}", std::process::id()));
    fs::create_dir(&path).expect("a group");
    let group = Group(path.clone());
    let sleeping = Asleep::new();
    let cpus = thread_state(sleeping.0.id()).expect("alive").cpus;
    let wanted = ThreadPlacement {
        group: PlacementGroup::V2(path),
        cpus: Some(cpus),
        ..unchanged()
    };
    let thread = place_thread(sleeping.0.id(), &wanted).expect("affinity alone");
    assert!(thread.notes[0].to_string().contains("set in that group"));
    let beyond = ThreadPlacement {
        cpus: Some(CpuSet::single(CpuId(1000))),
        ..wanted
    };
    let error = place_thread(sleeping.0.id(), &beyond).expect_err("CPUs outside the group");
    assert!(error.to_string().contains("without --thread"), "{error}");
    assert!(Path::new(&group.0).is_dir());
}

/// Places the test's own process in a copy of the program, so that other tests keep their settings.
#[test]
fn a_process_is_placed_by_a_child_that_stays_outside() {
    const INNER: &str = "RAMPART_TEST_PLACED";
    let only = CpuSet::single(CpuId(0));
    if std::env::var_os(INNER).is_some() {
        let wanted = ThreadPlacement {
            cpus: Some(only.clone()),
            nice: Some(7),
            ..unchanged()
        };
        place_this_process(&wanted).expect("placed");
        let state = thread_state(std::process::id()).expect("alive");
        assert_eq!((state.cpus, state.nice), (only, 7));
        assert!(
            descendants(std::process::id()).is_empty(),
            "the child is left"
        );
        let nowhere = ThreadPlacement {
            cpus: Some(CpuSet::single(CpuId(1000))),
            ..unchanged()
        };
        let refused = place_this_process(&nowhere)
            .expect_err("no such CPU")
            .to_string();
        assert!(
            refused.contains("cannot bind the thread to CPU 1000"),
            "{refused}"
        );
        return;
    }
    let name = "placement::tests::a_process_is_placed_by_a_child_that_stays_outside";
    let output = Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", name])
        .env(INNER, "1")
        .output()
        .expect("started");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("1 passed"), "{text}");
}
