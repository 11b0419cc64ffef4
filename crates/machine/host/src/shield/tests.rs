// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests of shields on machines in memory: their effect, and that release restores the machine after
//! an end at any step.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use proptest::prelude::*;
use rampart_model::{CpuId, CpuSet, IsolationMechanism, Nanos};

use super::Shield;
use crate::fake::{self, FakeKernel, Group, Layout, Machine, V1, V1_CPU, V2, cpus, directory};
use crate::lock::SharedLock;
use crate::release::release_locked;
use crate::{HostError, StateDirectory, journal};

/// Returns a machine of four CPUs with threads, interrupts and workqueues of each kind.
fn ordinary(layout: Layout) -> Machine {
    let mut machine = fake::ordinary(layout);
    machine.add_thread(21, false, Some(cpus("2-3")));
    machine.add_thread(31, true, Some(cpus("3")));
    if let Some(thread) = machine.threads.get_mut(&31) {
        thread.bound = true;
    }
    machine.add_interrupt(7, &cpus("0"), false);
    machine.files.insert(
        "/sys/devices/virtual/workqueue/writeback/cpumask".into(),
        "0f".into(),
    );
    for (path, text) in [(TICKLESS, "3\n"), (TIMER_MIGRATION, "1\n")] {
        machine.files.insert(path.into(), text.into());
    }
    for (cpu, limit) in [(0, "0"), (1, "0"), (2, "0"), (3, "5")] {
        machine.files.insert(wakeup_limit(cpu), limit.into());
        let name = format!("/sys/devices/system/cpu/cpu{cpu}/cpuidle/state0/name");
        machine.files.insert(name.into(), "POLL".into());
    }
    machine
}

fn wakeup_limit(cpu: u32) -> PathBuf {
    PathBuf::from(format!(
        "/sys/devices/system/cpu/cpu{cpu}/power/pm_qos_resume_latency_us"
    ))
}

const TICKLESS: &str = "/sys/devices/system/cpu/nohz_full";
const TIMER_MIGRATION: &str = "/proc/sys/kernel/timer_migration";

fn with_other_groups(mut machine: Machine) -> Machine {
    for (name, list) in [("docker", "0-3"), ("docker/box", "1-2"), ("backup", "3")] {
        let path = PathBuf::from(V1).join(name);
        let group = Group {
            cpus: cpus(list),
            mems: "0".to_owned(),
            balance: true,
            ..Group::default()
        };
        machine.groups.insert(path, group);
    }
    machine.add_thread(40, false, None);
    machine.add_thread(41, false, Some(cpus("2")));
    for (number, name) in [(40, "docker"), (41, "docker/box")] {
        if let Some(thread) = machine.threads.get_mut(&number) {
            thread.group = PathBuf::from(V1).join(name);
        }
    }
    machine
}

/// Returns the part of a machine that lowering must restore. The kernel, not Rampart, restores the
/// affinities that threads requested.
fn state(machine: &Machine, threads: &[u32]) -> Machine {
    let mut state = machine.clone();
    state.settle();
    state.forks = 0;
    state.threads.retain(|number, _| threads.contains(number));
    for thread in state.threads.values_mut() {
        thread.requested = None;
    }
    for text in state.files.values_mut() {
        *text = text.trim().trim_start_matches('0').to_owned();
    }
    state
}

fn numbers(machine: &Machine) -> Vec<u32> {
    machine.threads.keys().copied().collect()
}

fn raise(
    kernel: &Arc<FakeKernel>,
    state: &StateDirectory,
    shielded: &CpuSet,
    housekeeping: &CpuSet,
) -> Result<Shield, HostError> {
    let kernel: Arc<FakeKernel> = Arc::clone(kernel);
    Shield::raise_on(kernel, None, state, shielded, housekeeping)?.limit_wakeup(Some("10"))
}

/// A CPU with a lower limit, and one without an idle driver, keep what they have.
#[test]
fn shielded_cpus_do_not_sleep_deeply() {
    let directory = directory();
    let state_directory = StateDirectory::at(directory.path());
    let mut machine = ordinary(Layout::V2);
    let name = "/sys/devices/system/cpu/cpu2/cpuidle/state0/name";
    machine.files.remove(Path::new(name));
    let kernel = Arc::new(FakeKernel::new(machine));
    let limits = || {
        let files = [0, 1, 2, 3].map(wakeup_limit);
        files.map(|file| kernel.machine().files[&file].trim().to_owned())
    };
    for (limit, expected) in [
        (Some("n/a"), ["n/a", "n/a"]),
        (Some("10"), ["10", "5"]),
        (Some("4"), ["4", "4"]),
        (None, ["0", "5"]),
    ] {
        let running: Arc<FakeKernel> = Arc::clone(&kernel);
        let shield = Shield::raise_on(running, None, &state_directory, &cpus("1-3"), &cpus("0"));
        let shield = shield.expect("raise").limit_wakeup(limit).expect("limit");
        assert_eq!(limits(), ["0", expected[0], "0", expected[1]]);
        assert_eq!(shield.report().resume_latency.as_deref(), limit);
        shield.lower().expect("lower");
        assert_eq!(limits(), ["0", "0", "0", "5"]);
    }
}

#[test]
fn v1_moves_everything_that_can_be_moved() {
    let directory = directory();
    let state_directory = StateDirectory::at(directory.path());
    let machine = with_other_groups(ordinary(Layout::V1));
    let kernel = Arc::new(FakeKernel::new(machine));
    let shield = raise(&kernel, &state_directory, &cpus("2-3"), &cpus("0-1")).expect("raise");
    let report = shield.report().clone();
    assert_eq!(report.isolation, IsolationMechanism::CpusetV1);
    assert_eq!(report.workqueues, Some(cpus("0-1")));
    assert_eq!((report.tasks_moved, report.tasks_left), (8, 1));
    let moved: Vec<(u32, bool)> = report
        .interrupts
        .iter()
        .map(|interrupt| (interrupt.interrupt, interrupt.moved))
        .collect();
    assert_eq!(moved, [(4, true), (5, true), (6, false)]);
    {
        let machine = kernel.machine();
        let group = &shield.control_group().expect("group").path[1..];
        assert_eq!(machine.groups[&Path::new(V1).join(group)].cpus, cpus("2-3"));
        assert!(!machine.groups[Path::new(V1)].balance);
        assert_eq!(
            machine.groups[&Path::new(V1).join("docker")].cpus,
            cpus("0-1")
        );
        assert_eq!(machine.threads[&20].affinity, cpus("1"));
        assert_eq!(machine.threads[&22].affinity, cpus("0-1"));
        assert_eq!(
            machine.files[Path::new("/proc/irq/5/smp_affinity_list")].trim(),
            "0-1"
        );
        // `backup` has only a shielded CPU.
        let is_reported = |name: &str| {
            report
                .findings
                .iter()
                .any(|finding| finding.location.contains(name))
        };
        assert!(
            is_reported("backup") && is_reported("docker"),
            "{:#?}",
            report.findings
        );
    }
    shield.admit(10).expect("admit");
    assert_eq!(kernel.machine().threads[&10].affinity, cpus("2-3"));
    shield.lower().expect("lower");
    assert_eq!(kernel.machine().threads[&10].group, Path::new(V1));
}

#[test]
fn v2_gets_an_isolated_partition() {
    let directory = directory();
    let state_directory = StateDirectory::at(directory.path());
    let kernel = Arc::new(FakeKernel::new(ordinary(Layout::V2)));
    let shield = raise(&kernel, &state_directory, &cpus("2-3"), &cpus("0-1")).expect("raise");
    assert_eq!(
        shield.report().isolation,
        IsolationMechanism::IsolatedPartition
    );
    assert_eq!(shield.report().partition.as_deref(), Some("isolated"));
    assert_eq!(
        (shield.report().tasks_moved, shield.report().tasks_left),
        (8, 1)
    );
    assert_eq!(kernel.machine().threads[&30].affinity, cpus("0-1"));
    assert_eq!(kernel.machine().threads[&10].affinity, cpus("0-1"));
    shield.admit(11).expect("admit");
    assert_eq!(kernel.machine().threads[&11].affinity, cpus("2-3"));
    // Single threads can leave a threaded group.
    if let Some(thread) = kernel.machine().threads.get_mut(&12) {
        thread.process = 11;
    }
    shield.admit(11).expect("admit with its new thread");
    assert!(shield.move_thread_out(12).expect("send home"));
    let group = PathBuf::from(V2).join(&shield.control_group().expect("group").path[1..]);
    assert_eq!(kernel.machine().threads[&11].group, group);
    assert_eq!(kernel.machine().threads[&12].group, Path::new(V2));
    shield.lower().expect("lower");
    assert_eq!(kernel.machine().threads[&11].group, Path::new(V2));
}

/// Timers of `nohz_full` CPUs fire on housekeeping CPUs if timers migrate; those of other CPUs do not,
/// so the setting is kept.
#[test]
fn timers_are_kept_on_shielded_cpus_without_a_tick() {
    for (shielded, expected) in [("2-3", "0"), ("2", "1")] {
        let directory = directory();
        let state_directory = StateDirectory::at(directory.path());
        let kernel = Arc::new(FakeKernel::new(ordinary(Layout::V2)));
        let shield =
            raise(&kernel, &state_directory, &cpus(shielded), &cpus("0-1")).expect("raise");
        let migration = || {
            kernel.machine().files[Path::new(TIMER_MIGRATION)]
                .trim()
                .to_owned()
        };
        assert_eq!(migration(), expected);
        shield.lower().expect("lower");
        assert_eq!(migration(), "1");
    }
}

/// As for two domains that are measured at the same time.
#[test]
fn two_shields_of_one_process_restore_the_machine() {
    for layout in [Layout::V1, Layout::V2] {
        let directory = directory();
        let state_directory = StateDirectory::at(directory.path());
        let machine = ordinary(layout);
        // Admitted threads end before the shields are lowered, as meters do.
        let mut threads = numbers(&machine);
        threads.retain(|number| ![10, 11].contains(number));
        let before = state(&machine, &threads);
        let kernel = Arc::new(FakeKernel::new(machine));
        let raise = |shielded: &str| {
            let lock = SharedLock::take(&state_directory, false).expect("lock");
            let kernel: Arc<FakeKernel> = Arc::clone(&kernel);
            Shield::raise_on(
                kernel,
                Some(lock),
                &state_directory,
                &cpus(shielded),
                &cpus("0-1"),
            )
            .expect("raise")
        };
        let (one, two) = (raise("2"), raise("3"));
        for (shield, process, shielded) in [(&one, 10, "2"), (&two, 11, "3")] {
            assert_eq!(
                shield.report().isolation,
                match layout {
                    Layout::V2 => IsolationMechanism::IsolatedPartition,
                    _ => IsolationMechanism::CpusetV1,
                }
            );
            shield.admit(process).expect("admit");
            assert_eq!(
                kernel.machine().threads[&process].affinity,
                cpus(shielded),
                "{layout:?}"
            );
        }
        assert_eq!(journal::files(&state_directory).len(), 2);
        kernel
            .machine()
            .threads
            .retain(|number, _| threads.contains(number));
        for shield in [two, one] {
            let report = shield.lower().expect("lower");
            let left = report
                .findings
                .iter()
                .find(|finding| finding.what.contains("another process"));
            assert_eq!(left, None, "{layout:?}");
        }
        assert_eq!(state(&kernel.machine(), &threads), before, "{layout:?}");
        assert!(journal::files(&state_directory).is_empty());
    }
}

#[test]
fn v1_lets_single_threads_out_of_the_shield() {
    let directory = directory();
    let state_directory = StateDirectory::at(directory.path());
    let mut machine = ordinary(Layout::V1);
    if let Some(thread) = machine.threads.get_mut(&12) {
        thread.process = 11;
    }
    let kernel = Arc::new(FakeKernel::new(machine));
    let shield = raise(&kernel, &state_directory, &cpus("2-3"), &cpus("0-1")).expect("raise");
    shield.admit(11).expect("admit");
    assert!(shield.move_thread_out(12).expect("send home"));
    assert_eq!(kernel.machine().threads[&11].affinity, cpus("2-3"));
    assert_eq!(kernel.machine().threads[&12].affinity, cpus("0-1"));
    shield.lower().expect("lower");
    assert_eq!(kernel.machine().threads[&12].group, Path::new(V1));
}

/// The kernel allows no threaded group below another group than the root, as in a container.
#[test]
fn without_a_threaded_group_all_threads_of_a_process_stay_together() {
    let directory = directory();
    let state_directory = StateDirectory::at(directory.path());
    let mut machine = ordinary(Layout::V2);
    machine.no_threaded_groups = true;
    let before = machine.clone();
    let kernel = Arc::new(FakeKernel::new(machine));
    let shield = raise(&kernel, &state_directory, &cpus("2-3"), &cpus("0-1")).expect("raise");
    assert_eq!(
        shield.report().isolation,
        IsolationMechanism::IsolatedPartition
    );
    shield.admit(11).expect("admit");
    assert!(!shield.move_thread_out(11).expect("stays"));
    assert_eq!(kernel.machine().threads[&11].affinity, cpus("2-3"));
    // The shield's own group contains no processes, so a container's group can be created in it.
    let group = PathBuf::from(V2).join(&shield.control_group().expect("group").path[1..]);
    let machine = kernel.machine().clone();
    assert!(machine.threads.values().all(|thread| thread.group != group));
    shield.lower().expect("lower");
    assert_eq!(kernel.machine().groups, before.groups);
}

#[test]
fn an_invalid_partition_falls_back_to_affinity_with_the_kernels_reason() {
    let directory = directory();
    let state_directory = StateDirectory::at(directory.path());
    let mut machine = ordinary(Layout::V2);
    let group = Group {
        cpus: cpus("3"),
        ..Group::default()
    };
    machine
        .groups
        .insert(PathBuf::from(V2).join("rival.slice"), group);
    if let Some(root) = machine.groups.get_mut(Path::new(V2)) {
        root.enables = true;
    }
    let threads = numbers(&machine);
    let before = state(&machine, &threads);
    let kernel = Arc::new(FakeKernel::new(machine));
    let shield = raise(&kernel, &state_directory, &cpus("2-3"), &cpus("0-1")).expect("raise");
    assert_eq!(shield.report().isolation, IsolationMechanism::AffinityOnly);
    let finding = &shield.report().findings[0];
    let present = finding.found.as_deref().expect("present");
    assert!(
        present.contains("Cpu list in cpuset.cpus not exclusive"),
        "{present}"
    );
    assert!(finding.fix.as_deref().expect("fix").contains("rival.slice"));
    assert!(shield.control_group().is_none());
    shield.admit(10).expect("admit");
    assert_eq!(kernel.machine().threads[&10].affinity, cpus("2-3"));
    shield.lower().expect("lower");
    assert_eq!(state(&kernel.machine(), &threads), before);
}

#[test]
fn keeps_and_reports_values_that_another_process_changed() {
    let directory = directory();
    let state_directory = StateDirectory::at(directory.path());
    let kernel = Arc::new(FakeKernel::new(ordinary(Layout::V1)));
    let shield = raise(&kernel, &state_directory, &cpus("2-3"), &cpus("0-1")).expect("raise");
    let file = PathBuf::from("/proc/irq/4/smp_affinity_list");
    kernel
        .machine()
        .files
        .insert(file.clone(), "1\n".to_owned());
    // The same set in another notation is not a change.
    let mask = PathBuf::from("/proc/irq/default_smp_affinity");
    kernel
        .machine()
        .files
        .insert(mask.clone(), "00000000,00000003\n".to_owned());
    let report = shield.lower().expect("lower");
    assert_eq!(kernel.machine().files[&file].trim(), "1");
    assert_eq!(kernel.machine().files[&mask].trim(), "f");
    let reported: Vec<&str> = report
        .findings
        .iter()
        .filter(|finding| finding.what.contains("another process"))
        .map(|finding| finding.location.as_str())
        .collect();
    assert_eq!(reported, ["/proc/irq/4/smp_affinity_list"]);
}

#[test]
fn sets_budgets_of_parents_first_and_restores_them() {
    let directory = directory();
    let state_directory = StateDirectory::at(directory.path());
    let mut machine = ordinary(Layout::V1);
    for (name, runtime) in [("box", 0), ("box/inner", 0), ("other", 700_000)] {
        let group = Group {
            runtime,
            ..Group::default()
        };
        machine
            .groups
            .insert(PathBuf::from(V1_CPU).join(name), group);
    }
    if let Some(thread) = machine.threads.get_mut(&10) {
        thread.cpu_group = PathBuf::from(V1_CPU).join("box/inner");
    }
    let threads = numbers(&machine);
    let before = state(&machine, &threads);
    let kernel = Arc::new(FakeKernel::new(machine));
    let shield = raise(&kernel, &state_directory, &cpus("3"), &cpus("0")).expect("raise");
    let unlimited = shield
        .set_real_time_budget(11, Nanos::from_millis(1))
        .expect("root");
    assert_eq!(unlimited.group, None);
    // 950 000 of the root less 700 000 of the other.
    let budget = shield
        .set_real_time_budget(10, Nanos::from_millis(900))
        .expect("grant");
    assert_eq!(budget.group.as_deref(), Some("/box/inner"));
    assert_eq!(budget.runtime, Some(Nanos::from_millis(250)));
    assert!(!budget.findings.is_empty());
    shield.lower().expect("lower");
    assert_eq!(state(&kernel.machine(), &threads), before);
}

#[test]
fn refuses_unusable_cpus_before_anything_is_written() {
    let directory = directory();
    let state_directory = StateDirectory::at(directory.path().join("state"));
    let kernel = Arc::new(FakeKernel::new(ordinary(Layout::V1)));
    for (shielded, housekeeping, word) in [
        ("", "0", "the set of CPUs is empty"),
        ("1", "", "no CPU of its own"),
        ("1-2", "0-1", "no CPU of its own"),
        ("9", "0", "not all CPUs are online"),
    ] {
        let error = raise(
            &kernel,
            &state_directory,
            &cpus(shielded),
            &cpus(housekeeping),
        )
        .expect_err("refused");
        assert!(error.to_string().contains(word), "{error}");
    }
    let kernel = Arc::new(FakeKernel::new(Machine::new(1, Layout::V1)));
    let error = raise(&kernel, &state_directory, &cpus("0"), &CpuSet::new()).expect_err("refused");
    assert!(error.to_string().contains("one CPU"), "{error}");
    assert!(!state_directory.path().exists());
}

#[test]
fn changes_nothing_without_a_journal() {
    let directory = directory();
    let file = directory.path().join("file");
    std::fs::write(&file, "in the way").expect("write");
    let machine = ordinary(Layout::V1);
    let threads = numbers(&machine);
    let before = state(&machine, &threads);
    let kernel = Arc::new(FakeKernel::new(machine));
    let error =
        raise(&kernel, &StateDirectory::at(&file), &cpus("3"), &cpus("0")).expect_err("no journal");
    assert!(error.to_string().contains("RAMPART_STATE_DIR"), "{error}");
    assert_eq!(state(&kernel.machine(), &threads), before);
}

#[test]
fn a_journal_of_another_boot_is_discarded_with_a_note() {
    let directory = directory();
    let state_directory = StateDirectory::at(directory.path());
    let kernel = Arc::new(FakeKernel::new(ordinary(Layout::V1)));
    kernel.end_after(Some(20));
    assert!(raise(&kernel, &state_directory, &cpus("3"), &cpus("0")).is_err());
    kernel.end_after(None);
    let boot = PathBuf::from("/proc/sys/kernel/random/boot_id");
    kernel.machine().files.insert(boot, "another".to_owned());
    let report = release_locked(&*kernel, &state_directory).expect("release");
    assert!(report.restored.is_empty());
    assert!(report.left[0].what.contains("restart"), "{:?}", report.left);
    assert!(journal::files(&state_directory).is_empty());
}

/// Raises a shield, uses it and lowers it.
fn use_shield(kernel: &Arc<FakeKernel>, state: &StateDirectory) -> Result<(), HostError> {
    let shield = raise(kernel, state, &cpus("2-3"), &cpus("0-1"))?;
    shield.admit(10)?;
    shield.set_real_time_budget(11, Nanos::from_millis(5))?;
    shield.lower().map(|_| ())
}

fn survives_every_end(machine: Machine, stride: usize) {
    let directory = directory();
    let state_directory = StateDirectory::at(directory.path());
    let threads = numbers(&machine);
    let before = state(&machine, &threads);
    for steps in 1.. {
        let kernel = Arc::new(FakeKernel::new(machine.clone()));
        kernel.end_after(Some(steps));
        let result = use_shield(&kernel, &state_directory);
        if !kernel.ended() {
            result.expect("completed");
            assert_eq!(state(&kernel.machine(), &threads), before, "without an end");
            assert!(steps > 30, "{steps} steps are too few");
            return;
        }
        // The release is killed too, at some of its steps, and repeated.
        for step in (1..40).step_by(stride) {
            let again = FakeKernel::new(kernel.machine().clone());
            let copy = tempfile::tempdir_in(directory.path()).expect("directory");
            let copied = StateDirectory::at(copy.path());
            std::fs::create_dir(journal::directory(&copied)).expect("directory");
            for file in journal::files(&state_directory) {
                let name = file.file_name().expect("name");
                std::fs::copy(&file, journal::directory(&copied).join(name)).expect("copy");
            }
            again.end_after(Some(step));
            let _ = release_locked(&again, &copied);
            again.end_after(None);
            release_locked(&again, &copied).expect("release after release");
            assert_eq!(
                state(&again.machine(), &threads),
                before,
                "end after {steps} steps, release ended after {step}"
            );
        }
        kernel.end_after(None);
        let report = release_locked(&*kernel, &state_directory).expect("release");
        assert_eq!(
            state(&kernel.machine(), &threads),
            before,
            "end after {steps} steps"
        );
        assert!(report.left.is_empty(), "{:?}", report.left);
        let root = kernel.machine().root();
        let strays = kernel
            .machine()
            .threads
            .iter()
            .any(|(number, thread)| !threads.contains(number) && thread.group != root);
        assert!(
            !strays,
            "a forked thread was left behind after {steps} steps"
        );
        assert!(journal::files(&state_directory).is_empty());
    }
}

#[test]
fn v1_survives_every_end() {
    let mut machine = with_other_groups(ordinary(Layout::V1));
    machine.forks = 3;
    survives_every_end(machine, 3);
}

#[test]
fn v1_before_6_2_survives_every_end() {
    let mut machine = with_other_groups(ordinary(Layout::V1));
    machine.remembers = false;
    survives_every_end(machine, 5);
}

#[test]
fn v2_survives_every_end() {
    let mut machine = ordinary(Layout::V2);
    machine.remembers = false;
    survives_every_end(machine, 3);
}

fn set(mask: u16, count: u32) -> CpuSet {
    (0..count)
        .filter(|cpu| mask & (1 << cpu) != 0)
        .map(CpuId)
        .collect()
}

prop_compose! {
    fn machines()(
        count in 2u32..10,
        layout in prop_oneof![Just(Layout::V1), Just(Layout::V2), Just(Layout::None)],
        remembers: bool,
        threads in prop::collection::vec((any::<u16>(), any::<bool>(), 0u8..4), 0..8),
        interrupts in prop::collection::vec((1u16.., any::<bool>()), 0..5),
        groups in prop::collection::vec(1u16.., 0..4),
        forks in 0u32..4,
        shielded: u16,
    ) -> (Machine, CpuSet, CpuSet) {
        let mut machine = Machine::new(count, layout);
        machine.remembers = remembers;
        let all = machine.online.clone();
        for (index, (mask, kernel, kind)) in (100u32..).zip(threads) {
            let requested = set(mask, count);
            let requested = (kind > 0 && !requested.is_empty() && requested != all).then_some(requested);
            machine.add_thread(index, kernel, requested);
            if let Some(thread) = machine.threads.get_mut(&index) {
                thread.bound = kernel && kind == 3;
            }
        }
        for (index, (mask, refuses)) in (20u32..).zip(interrupts) {
            let cpus = set(mask, count);
            if !cpus.is_empty() {
                machine.add_interrupt(index, &cpus, refuses);
            }
        }
        for (index, mask) in groups.into_iter().enumerate() {
            let group = Group {
                cpus: set(mask, count),
                mems: "0".to_owned(),
                balance: true,
                ..Group::default()
            };
            let path = machine.root().join(format!("other{index}"));
            if layout == Layout::V1 && !group.cpus.is_empty() {
                machine.groups.insert(path, group);
            }
        }
        machine.forks = forks;
        let shielded = set(shielded, count);
        let housekeeping = all.difference(&shielded);
        (machine, shielded, housekeeping)
    }
}

proptest! {
    #[test]
    fn lowering_undoes_raising((machine, shielded, housekeeping) in machines()) {
        let directory = directory();
        let state_directory = StateDirectory::at(directory.path());
        let threads = numbers(&machine);
        let before = state(&machine, &threads);
        let layout = machine.layout;
        let kernel = Arc::new(FakeKernel::new(machine));
        let sensible = !shielded.is_empty() && !housekeeping.is_empty();
        match raise(&kernel, &state_directory, &shielded, &housekeeping) {
            Ok(shield) => {
                prop_assert!(sensible);
                let isolation = match layout {
                    Layout::V1 => IsolationMechanism::CpusetV1,
                    Layout::V2 => IsolationMechanism::IsolatedPartition,
                    Layout::None => IsolationMechanism::AffinityOnly,
                };
                prop_assert_eq!(shield.report().isolation, isolation);
                if isolation != IsolationMechanism::AffinityOnly {
                    let machine = kernel.machine();
                    for thread in machine.threads.values() {
                        let clean = thread.affinity.intersection(&shielded).is_empty();
                        prop_assert!(clean || thread.bound, "{:?}", thread);
                    }
                }
                shield.lower().expect("lower");
            }
            Err(error) => prop_assert!(!sensible, "{}", error),
        }
        prop_assert_eq!(state(&kernel.machine(), &threads), before);
        prop_assert!(journal::files(&state_directory).is_empty());
    }
}
