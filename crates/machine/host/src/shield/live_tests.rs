// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests of shields on the running machine, as root: `release` after a process was killed at some
//! step. Without root, or with one CPU, these tests pass without checks.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rampart_model::{CpuSet, IsolationMechanism, Nanos};
use rampart_rules::ISOLATION_NEEDS_ROOT;

use super::Shield;
use crate::groups::Hierarchies;
use crate::kernel::{Kernel, RunningKernel};
use crate::lock::{Lock, SharedLock};
use crate::policy::Attributes;
use crate::release::release_locked;
use crate::tasks::{self, processes, threads_of};
use crate::{HostError, OnParentExit, StateDirectory, journal, spawn_tied};

const STEPS: &str = "RAMPART_TEST_END_AFTER";
const STATE: &str = "RAMPART_TEST_STATE";

/// The running kernel; kills this process after a number of steps.
#[derive(Debug)]
struct Ending {
    left: AtomicU64,
}

impl Kernel for Ending {
    fn read(&self, path: &Path) -> io::Result<String> {
        RunningKernel.read(path)
    }
    fn write(&self, path: &Path, value: &str) -> io::Result<()> {
        RunningKernel.write(path, value)
    }
    fn make_directory(&self, path: &Path) -> io::Result<()> {
        RunningKernel.make_directory(path)
    }
    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        RunningKernel.remove_directory(path)
    }
    fn names(&self, path: &Path) -> Vec<String> {
        RunningKernel.names(path)
    }
    fn is_directory(&self, path: &Path) -> bool {
        RunningKernel.is_directory(path)
    }
    fn exists(&self, path: &Path) -> bool {
        RunningKernel.exists(path)
    }
    fn affinity(&self, thread: u32) -> io::Result<CpuSet> {
        RunningKernel.affinity(thread)
    }
    fn attributes(&self, thread: u32) -> io::Result<Attributes> {
        RunningKernel.attributes(thread)
    }
    fn set_attributes(&self, thread: u32, attributes: &Attributes) -> io::Result<()> {
        RunningKernel.set_attributes(thread, attributes)
    }
    fn set_affinity(&self, thread: u32, cpus: &CpuSet) -> io::Result<()> {
        RunningKernel.set_affinity(thread, cpus)
    }
    fn step(&self) -> io::Result<()> {
        if self.left.fetch_sub(1, Ordering::Relaxed) == 1 {
            let own = rustix::process::getpid();
            rustix::process::kill_process(own, rustix::process::Signal::KILL)?;
        }
        Ok(())
    }
}

/// Returns the last CPU and all others, or `None` if these tests cannot run.
fn split() -> Option<(CpuSet, CpuSet)> {
    let online = super::online(&RunningKernel);
    let last = online.iter().next_back()?;
    let shielded = CpuSet::single(last);
    let housekeeping = online.difference(&shielded);
    (crate::state_directory::is_root() && !housekeeping.is_empty())
        .then_some((shielded, housekeeping))
}

/// Takes the machine's lock, and waits for it up to five minutes.
pub(crate) fn machine_lock(state: &StateDirectory) -> Lock {
    let begin = Instant::now();
    loop {
        match Lock::take(state, true) {
            Ok(lock) => return lock,
            Err(HostError::Busy { .. }) if begin.elapsed() < Duration::from_secs(300) => {
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// Processes that never change their affinities, unlike other processes of the machine.
struct Witnesses(Vec<Child>);

impl Witnesses {
    /// Starts one that may run anywhere, one bound to the shielded CPUs, and one to the others.
    fn start(shielded: &CpuSet, housekeeping: &CpuSet) -> Self {
        let witnesses = [None, Some(shielded), Some(housekeeping)].map(|cpus| {
            let mut command = Command::new("sleep");
            command.arg("600");
            let child = spawn_tied(command, OnParentExit::Kill).expect("sleep");
            if let Some(cpus) = cpus {
                RunningKernel
                    .set_affinity(child.id(), cpus)
                    .expect("affinity");
            }
            child
        });
        Self(witnesses.into())
    }

    fn numbers(&self) -> Vec<u32> {
        self.0.iter().map(Child::id).collect()
    }
}

impl Drop for Witnesses {
    fn drop(&mut self) {
        for witness in &mut self.0 {
            let _ = witness.kill();
            let _ = witness.wait();
        }
    }
}

/// Everything that a shield may change: files by path, threads by number and start, with the
/// affinities of kernel threads and witnesses.
#[derive(Debug, PartialEq, Eq)]
struct Snapshot {
    files: BTreeMap<PathBuf, String>,
    threads: BTreeMap<(u32, u64), (String, Option<CpuSet>)>,
}

fn snapshot(witnesses: &Witnesses) -> Snapshot {
    let witnesses = witnesses.numbers();
    let kernel = RunningKernel;
    let mut files = BTreeMap::new();
    let mut keep = |path: PathBuf| {
        if let Ok(text) = kernel.read(&path) {
            files.insert(path, text);
        }
    };
    let hierarchies = Hierarchies::of(&kernel);
    let mounts = hierarchies.legacy.iter().map(|(mount, _)| mount.clone());
    for mount in mounts.chain(hierarchies.unified.clone()) {
        for group in crate::groups::below(&kernel, &mount) {
            if group.to_string_lossy().contains("rampart") {
                keep(group.join("cgroup.procs"));
            }
        }
        for name in kernel.names(&mount) {
            let own = name.starts_with("cpuset.") || name == "cgroup.subtree_control";
            if own && name != "cpuset.memory_pressure" {
                keep(mount.join(name));
            }
        }
    }
    for interrupt in kernel.names(Path::new("/proc/irq")) {
        keep(
            PathBuf::from("/proc/irq")
                .join(&interrupt)
                .join("smp_affinity_list"),
        );
    }
    keep("/proc/irq/default_smp_affinity".into());
    let workqueues = Path::new("/sys/devices/virtual/workqueue");
    keep(workqueues.join("cpumask"));
    for name in kernel.names(workqueues) {
        keep(workqueues.join(name).join("cpumask"));
    }
    let controller = match hierarchies.legacy_with("cpuset") {
        Some(_) => "cpuset",
        None => "",
    };
    let mut threads = BTreeMap::new();
    for thread in processes(&kernel)
        .into_iter()
        .flat_map(|process| threads_of(&kernel, process))
    {
        let group = kernel.read(&PathBuf::from(format!("/proc/{thread}/cgroup")));
        let stat = tasks::stat_of(&kernel, thread);
        if let (Some(stat), Ok(group), Ok(cpus)) = (stat, group, kernel.affinity(thread)) {
            // Other programs move threads in other hierarchies at any time.
            let group = crate::groups::group_in(&group, controller).unwrap_or_default();
            let steady = stat.is_kernel_thread() || witnesses.contains(&thread);
            threads.insert((thread, stat.start), (group, steady.then_some(cpus)));
        }
    }
    Snapshot { files, threads }
}

/// Returns the differences, except threads that began or ended meanwhile.
fn differences(before: &Snapshot, after: &Snapshot) -> Vec<String> {
    let mut differences = Vec::new();
    for path in before.files.keys().chain(after.files.keys()) {
        let (old, new) = (before.files.get(path), after.files.get(path));
        if old != new {
            differences.push(format!("{}: {old:?} became {new:?}", path.display()));
        }
    }
    for (thread, old) in &before.threads {
        if let Some(new) = after.threads.get(thread).filter(|new| *new != old) {
            differences.push(format!("thread {thread:?}: {old:?} became {new:?}"));
        }
    }
    differences
}

#[test]
fn child() {
    let (Ok(steps), Ok(state)) = (std::env::var(STEPS), std::env::var(STATE)) else {
        return;
    };
    let (shielded, housekeeping) = split().expect("CPUs");
    let kernel = Arc::new(Ending {
        left: AtomicU64::new(steps.parse().expect("steps")),
    });
    let state = StateDirectory::at(state);
    let lock = SharedLock::take(&state, false).expect("lock");
    let shield =
        Shield::raise_on(kernel, Some(lock), &state, &shielded, &housekeeping).expect("raise");
    let mut command = Command::new("sleep");
    command.arg("60");
    let mut inside = spawn_tied(command, OnParentExit::Kill).expect("sleep");
    shield.admit(inside.id()).expect("admit");
    assert_eq!(
        RunningKernel.affinity(inside.id()).expect("affinity"),
        shielded
    );
    let _ = shield.set_real_time_budget(inside.id(), Nanos::from_millis(1));
    inside.kill().expect("kill");
    inside.wait().expect("wait");
    shield.lower().expect("lower");
}

#[test]
fn release_undoes_all_changes_of_a_process_killed_at_any_step() {
    let Some((shielded, housekeeping)) = split() else {
        return;
    };
    let directory = tempfile::tempdir().expect("directory");
    // Before the witnesses: another test's shield would keep them off its CPUs.
    let _lock = machine_lock(&StateDirectory::at(directory.path().join("parent")));
    let witnesses = Witnesses::start(&shielded, &housekeeping);
    let state = StateDirectory::at(directory.path().join("state"));
    // Trying every step takes a minute; by default they are sampled, with a different remainder in
    // each run.
    let stride = if std::env::var_os("RAMPART_TEST_EVERY_END").is_some() {
        1
    } else {
        11
    };
    let mut steps = 1 + u64::from(std::process::id()) % stride;
    loop {
        let before = snapshot(&witnesses);
        let output = Command::new(std::env::current_exe().expect("own path"))
            .args(["--exact", "shield::live_tests::child", "--nocapture"])
            .env(STEPS, steps.to_string())
            .env(STATE, state.path())
            .output()
            .expect("child");
        let whole = output.status.success();
        let killed = std::os::unix::process::ExitStatusExt::signal(&output.status) == Some(9);
        assert!(whole || killed, "{output:?}");
        let report = {
            let _own = Lock::take(&state, false).expect("lock of an ended process");
            release_locked(&RunningKernel, &state).expect("release")
        };
        assert!(
            report.left.is_empty(),
            "after {steps} steps: {:?}",
            report.left
        );
        let changed = differences(&before, &snapshot(&witnesses));
        assert!(
            changed.is_empty(),
            "after {steps} steps:\n{}",
            changed.join("\n")
        );
        assert!(journal::files(&state).is_empty());
        if whole {
            assert!(steps > 50, "{steps} steps are too few");
            return;
        }
        steps += stride;
    }
}

#[test]
fn repeated_shields_restore_the_machine() {
    let Some((shielded, housekeeping)) = split() else {
        return;
    };
    let directory = tempfile::tempdir().expect("directory");
    // Before the witnesses: another test's shield would keep them off its CPUs.
    let _lock = machine_lock(&StateDirectory::at(directory.path().join("parent")));
    let witnesses = Witnesses::start(&shielded, &housekeeping);
    let state = StateDirectory::at(directory.path().join("state"));
    let before = snapshot(&witnesses);
    for _ in 0..5 {
        let kernel = Arc::new(RunningKernel);
        let lock = SharedLock::take(&state, false).expect("lock");
        let shield =
            Shield::raise_on(kernel, Some(lock), &state, &shielded, &housekeeping).expect("raise");
        assert_eq!(shield.report().cpus, shielded);
        assert_ne!(shield.report().isolation, IsolationMechanism::None);
        let refusal = Lock::take(&state, false).expect_err("two shields at once");
        assert!(
            refusal
                .to_string()
                .contains(&std::process::id().to_string())
        );
        // Dropping lowers it too.
        drop(shield);
    }
    let changed = differences(&before, &snapshot(&witnesses));
    assert!(changed.is_empty(), "{}", changed.join("\n"));
}

/// A file system in memory of this size; unmounted when dropped.
pub(crate) struct Disk(PathBuf);

impl Disk {
    pub(crate) fn mount(path: &Path, bytes: u32) -> Option<Self> {
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={bytes}"), "tmpfs"])
            .arg(path)
            .output();
        let mounted = mounted.is_ok_and(|output| output.status.success());
        mounted.then(|| Self(path.to_owned()))
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).output();
    }
}

#[test]
fn changes_nothing_if_the_disk_of_the_journal_is_full() {
    let Some((shielded, housekeeping)) = split() else {
        return;
    };
    let directory = tempfile::tempdir().expect("directory");
    let Some(disk) = Disk::mount(directory.path(), 4096) else {
        return;
    };
    let elsewhere = tempfile::tempdir().expect("directory");
    let lock = machine_lock(&StateDirectory::at(elsewhere.path()));
    let witnesses = Witnesses::start(&shielded, &housekeeping);
    let before = snapshot(&witnesses);
    let state = StateDirectory::at(directory.path());
    // The lock's file fits, the journal does not.
    let filled = std::fs::write(directory.path().join("filler"), vec![0; 4096]);
    let answer = Shield::raise_on(
        Arc::new(RunningKernel),
        None,
        &state,
        &shielded,
        &housekeeping,
    );
    let refusal = answer.err().map(|error| error.to_string());
    let changed = differences(&before, &snapshot(&witnesses));
    drop(lock);
    drop(disk);
    filled.expect("fill");
    assert!(changed.is_empty(), "{}", changed.join("\n"));
    let refusal = refusal.expect("an error");
    assert!(refusal.contains("cannot write the journal"), "{refusal}");
    assert!(refusal.contains("with free space"), "{refusal}");
}

#[test]
fn without_root_a_shield_only_binds_processes() {
    let Some((shielded, _)) = split() else {
        return;
    };
    let directory = tempfile::tempdir().expect("directory");
    // Another test's shield would keep this process off its CPUs.
    let _lock = machine_lock(&StateDirectory::at(directory.path().join("parent")));
    let state = StateDirectory::at(directory.path().join("state"));
    let shield = Shield::without_root(&state, &shielded);
    assert_eq!(shield.report().isolation, IsolationMechanism::AffinityOnly);
    let rule = shield.report().findings[0].rule.clone();
    assert_eq!(rule.as_deref(), Some(ISOLATION_NEEDS_ROOT.id));
    let mut command = Command::new("sleep");
    command.arg("60");
    let mut inside = spawn_tied(command, OnParentExit::Kill).expect("sleep");
    shield.admit(inside.id()).expect("admit");
    assert_eq!(
        RunningKernel.affinity(inside.id()).expect("affinity"),
        shielded
    );
    inside.kill().expect("kill");
    inside.wait().expect("wait");
    assert!(shield.admit(u32::MAX).is_err());
    shield.lower().expect("lower");
    assert!(!state.path().exists());
}

/// Groups of the `cpu` controller, removed when dropped.
struct CpuGroups(Vec<PathBuf>);

impl Drop for CpuGroups {
    fn drop(&mut self) {
        for group in self.0.iter().rev() {
            let _ = std::fs::remove_dir(group);
        }
    }
}

#[test]
fn a_budget_lets_a_thread_in_a_group_become_real_time() {
    let Some((shielded, housekeeping)) = split() else {
        return;
    };
    let kernel = RunningKernel;
    let budget = "cpu.rt_runtime_us";
    let mount = Hierarchies::of(&kernel)
        .legacy_with("cpu")
        .map(Path::to_owned);
    let Some(mount) = mount.filter(|mount| kernel.exists(&mount.join(budget))) else {
        return;
    };
    let directory = tempfile::tempdir().expect("directory");
    let _lock = machine_lock(&StateDirectory::at(directory.path().join("parent")));
    let state = StateDirectory::at(directory.path().join("state"));
    let outer = mount.join(format!("rampart-test-{}", std::process::id()));
    let inner = outer.join("inner");
    let groups = CpuGroups(vec![outer.clone(), inner.clone()]);
    for group in &groups.0 {
        kernel.make_directory(group).expect("group");
    }
    let mut command = Command::new("sleep");
    command.arg("60");
    let mut inside = spawn_tied(command, OnParentExit::Kill).expect("sleep");
    let number = inside.id().to_string();
    kernel
        .write(&inner.join("cgroup.procs"), &number)
        .expect("attach");
    let becomes_real_time = || {
        let chrt = Command::new("chrt")
            .args(["-f", "-p", "1", &number])
            .output();
        chrt.is_ok_and(|output| output.status.success())
    };
    let refused = !becomes_real_time();
    let diagnosis = crate::diagnose_real_time_policy(inside.id());
    let shield =
        Shield::raise_on(Arc::new(kernel), None, &state, &shielded, &housekeeping).expect("raise");
    let budget_set = shield.set_real_time_budget(inside.id(), Nanos::from_millis(20));
    let accepted = becomes_real_time();
    let after = crate::diagnose_real_time_policy(inside.id());
    inside.kill().expect("kill");
    inside.wait().expect("wait");
    let read = |group: &Path| {
        kernel
            .read(&group.join(budget))
            .expect("budget")
            .trim()
            .to_owned()
    };
    let during = (read(&outer), read(&inner));
    shield.lower().expect("lower");
    let lowered = (read(&outer), read(&inner));

    assert!(refused, "without a budget");
    let diagnosis = diagnosis.expect("a diagnosis");
    assert!(diagnosis.what.contains("RT_GROUP_SCHED"), "{diagnosis}");
    let budget_set = budget_set.expect("a budget");
    assert_eq!(
        budget_set.runtime,
        Some(Nanos::from_millis(20)),
        "{budget_set:?}"
    );
    assert!(accepted, "with a budget");
    assert_eq!(after, None);
    assert_eq!(during, ("20000".to_owned(), "20000".to_owned()));
    assert_eq!(lowered, ("0".to_owned(), "0".to_owned()));
}
