// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Undoes recorded changes in reverse order.
//!
//! The current value decides: if it is the value that Rampart wrote, the old value is restored; if it
//! is the old value, or another process has changed it, it is kept. Undone changes are marked in the
//! journal, and undoing a change twice does no harm, so an interrupted undo can be repeated.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rampart_model::{Finding, Restored, SchedulingPolicy, Severity};

use crate::boot_loader::undo as boot_undo;
use crate::detached;
use crate::driver;
use crate::groups;
use crate::journal::Change;
use crate::kernel::Kernel;
use crate::mounts;
use crate::notation::Notation;
use crate::placement::kept_cpus;
use crate::policy::Attributes;
use crate::systemd::undo as systemd_undo;
use crate::tasks::{self, Task};
use crate::tracing::undo as tracing_undo;

/// The result of undoing changes.
#[derive(Debug, Default)]
pub(crate) struct Undone {
    pub(crate) restored: Vec<Restored>,
    /// What was kept, because another process changed it meanwhile.
    pub(crate) left: Vec<Finding>,
    /// What could not be restored.
    pub(crate) failed: Vec<Finding>,
}

impl Undone {
    pub(crate) fn restored(&mut self, location: &Path, what: impl Into<String>) {
        self.restored.push(Restored {
            location: location.display().to_string(),
            what: what.into(),
        });
    }

    pub(crate) fn failed(&mut self, location: &Path, what: impl Into<String>, fix: &str) {
        let location = location.display().to_string();
        self.failed
            .push(Finding::new(Severity::Error, location, what).fix(fix));
    }
}

/// Undoes `changes` in reverse order, and calls `mark` with the number of each undone change.
///
/// # Errors
/// Only if a test interrupts it; errors of the kernel are in the result.
pub(crate) fn undo(
    kernel: &dyn Kernel,
    changes: &[(usize, Change)],
    mut mark: impl FnMut(usize),
) -> io::Result<Undone> {
    let mut undone = Undone::default();
    let with_members: Vec<&Path> = changes
        .iter()
        .filter_map(|(_, change)| match change {
            Change::Group { path, home } => home.as_ref().map(|_| path.as_path()),
            _ => None,
        })
        .collect();
    if !let_members_finish(kernel, &with_members, &mut undone) {
        return Ok(undone);
    }
    for (number, change) in changes.iter().rev() {
        kernel.step()?;
        let failures = undone.failed.len();
        match change {
            Change::Value {
                path,
                old,
                new,
                notation,
            } => undo_value(kernel, path, old, new, *notation, &mut undone),
            Change::Controller { path, controller } => {
                undo_controller(kernel, path, controller, &mut undone);
            }
            Change::Group { path, home } => {
                undo_group(kernel, path, home.as_deref(), &mut undone)?;
            }
            Change::Tasks {
                from,
                to,
                sweep,
                tasks,
            } => undo_tasks(kernel, from, to, *sweep, tasks, &mut undone)?,
            Change::Affinities { tasks } => undo_widening(kernel, tasks, &mut undone)?,
            Change::Affinity { task, new } => undo_affinity(kernel, task, new, &mut undone),
            Change::Policy { task, old, new } => undo_policy(kernel, task, old, new, &mut undone),
            Change::Switch { path, on, off } => {
                tracing_undo::switch(kernel, path, on, off, &mut undone);
            }
            Change::TracingInstance { path } => {
                tracing_undo::instance(kernel, path, &mut undone)?;
            }
            Change::Mount { kind, point } => mounts::undo(kernel, kind, point, &mut undone),
            Change::CacheGroup { path } => undo_cache_group(kernel, path, &mut undone)?,
            Change::BootFile {
                path,
                old,
                new,
                created_directories,
                is_generated,
            } => {
                let old = old.as_deref();
                boot_undo::file(
                    kernel,
                    path,
                    old,
                    new,
                    created_directories,
                    *is_generated,
                    &mut undone,
                )?;
            }
            Change::UnitProperty {
                unit,
                property,
                old,
                new,
                had_drop_in,
            } => {
                systemd_undo::property(kernel, unit, property, old, new, *had_drop_in, &mut undone)?
            }
            Change::TakenCpu { cpu, holder, start } => {
                detached::undo_taken_cpu(kernel, *cpu, *holder, *start, &mut undone)?;
            }
            Change::Module { name } => driver::undo_module(kernel, name, &mut undone)?,
            Change::FirmwarePath { old, directory } => {
                driver::undo_firmware_path(kernel, old, directory, &mut undone);
            }
            Change::ServiceStopped { unit } => systemd_undo::service(kernel, unit, &mut undone),
            Change::BootCommand { words, output, old } => {
                boot_undo::command(kernel, words, output, old.as_deref(), &mut undone);
            }
        }
        kernel.step()?;
        if undone.failed.len() == failures {
            mark(*number);
        }
    }
    Ok(undone)
}

fn undo_value(
    kernel: &dyn Kernel,
    path: &Path,
    old: &str,
    new: &str,
    notation: Notation,
    undone: &mut Undone,
) {
    let present = match kernel.read(path) {
        Ok(present) => present,
        // The interrupt or group of this file does not exist any more.
        Err(error) if groups::is_gone(&error) => return,
        Err(error) => {
            let fix = format!("cat {}", path.display());
            return undone.failed(path, format!("cannot read: {error}"), &fix);
        }
    };
    if notation.same(&present, old) {
        return;
    }
    let old = notation.to_write(old);
    if !notation.results_from(&present, old, new) {
        let finding = Finding::new(
            Severity::Warning,
            path.display().to_string(),
            format!(
                "another process changed the value after Rampart had written {}, so it was kept",
                new.trim()
            ),
        )
        .values(present.trim(), old)
        .fix(format!("echo {old} > {}", path.display()));
        return undone.left.push(finding);
    }
    let fix = format!("echo {old} > {}", path.display());
    match write_back(kernel, path, old) {
        Ok(()) => match kernel.read(path) {
            Ok(present) if notation.same(&present, old) => {
                undone.restored(path, format!("restored to {old}"));
            }
            Ok(present) => undone.failed(
                path,
                format!("the kernel changed {old} to {}", present.trim()),
                &fix,
            ),
            Err(error) => undone.failed(path, format!("cannot read back: {error}"), &fix),
        },
        Err(error) => undone.failed(path, format!("the kernel refuses {old}: {error}"), &fix),
    }
}

/// Writes an old value. Repeats the write for a real-time budget: the kernel counts the budget of a
/// removed group until it has been freed, and until then refuses to reduce the parent's.
fn write_back(kernel: &dyn Kernel, path: &Path, old: &str) -> io::Result<()> {
    let is_budget = path.ends_with("cpu.rt_runtime_us");
    let mut answer = kernel.write(path, old);
    for _ in 0..100 {
        match &answer {
            Err(error)
                if is_budget
                    && matches!(
                        error.kind(),
                        io::ErrorKind::InvalidInput | io::ErrorKind::ResourceBusy
                    ) =>
            {
                std::thread::sleep(std::time::Duration::from_millis(5));
                answer = kernel.write(path, old);
            }
            _ => break,
        }
    }
    answer
}

fn undo_controller(kernel: &dyn Kernel, path: &Path, controller: &str, undone: &mut Undone) {
    let present = kernel.read(path).unwrap_or_default();
    if !present.split_whitespace().any(|name| name == controller) {
        return;
    }
    match kernel.write(path, &format!("-{controller}")) {
        Ok(()) => undone.restored(path, format!("{controller} disabled")),
        // Another process began to use the controller in a group below meanwhile.
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
            undone.left.push(Finding::new(
                Severity::Note,
                path.display().to_string(),
                format!("another group uses the {controller} controller, so it stays enabled"),
            ))
        }
        Err(error) => undone.failed(
            path,
            format!("cannot disable {controller}: {error}"),
            &format!("echo -{controller} > {}", path.display()),
        ),
    }
}

fn undo_group(
    kernel: &dyn Kernel,
    path: &Path,
    home: Option<&Path>,
    undone: &mut Undone,
) -> io::Result<()> {
    if !kernel.is_directory(path) {
        return Ok(());
    }
    let mut all = groups::below(kernel, path);
    all.push(path.to_owned());
    for group in all {
        remove_group(kernel, &group, home, undone)?;
    }
    Ok(())
}

/// Longest time until the members of a group are frozen: each finishes its system call.
const FREEZE_LIMIT: Duration = Duration::from_secs(10);

/// Freezes the members of groups on whose CPUs a real-time thread does not sleep. Another member can starve there in the
/// middle of a system call, with a lock or within a section of RCU for which each move into another group waits: then no
/// process of the machine could start or end (`cgroup_procs_write_start` in kernel/cgroup/cgroup.c). When the thread
/// is frozen, the others finish their calls. The group to which they are moved is not frozen.
///
/// Returns false, with the reason in `undone`, if that is not possible.
fn let_members_finish(kernel: &dyn Kernel, groups: &[&Path], undone: &mut Undone) -> bool {
    for group in groups.iter().filter(|group| kernel.is_directory(group)) {
        let files = ["cpuset.cpus.effective", "cpuset.effective_cpus"];
        let cpus = files
            .iter()
            .find_map(|file| kernel.read(&group.join(file)).ok()?.trim().parse().ok());
        let Some(kept) = kept_cpus(kernel, &cpus.unwrap_or_default()) else {
            continue;
        };
        // Linux document admin-guide/cgroup-v2.rst, cgroup.freeze.
        let (file, events) = (group.join("cgroup.freeze"), group.join("cgroup.events"));
        let begin = Instant::now();
        let is_frozen = || {
            let text = kernel.read(&events).unwrap_or_default();
            text.lines().any(|line| line == "frozen 1")
        };
        let mut is_stopped = kernel.write(&file, "1").is_ok();
        while is_stopped && !is_frozen() {
            is_stopped = begin.elapsed() < FREEZE_LIMIT;
            std::thread::sleep(groups::EXIT_PAUSE);
        }
        // Throttling lets the others finish too, slowly.
        let throttled = kernel
            .read(Path::new("/proc/sys/kernel/sched_rt_runtime_us"))
            .is_ok_and(|text| text.trim() != "-1");
        if !is_stopped && !throttled {
            let _ = kernel.write(&file, "0");
            let what = format!(
                "{}: a move of others out of the group could stop the machine",
                kept.what
            );
            undone.failed(group, what, &kept.fix);
            return false;
        }
    }
    true
}

/// Removes a group. Retries for some seconds, because threads may fork or end in it meanwhile.
fn remove_group(
    kernel: &dyn Kernel,
    group: &Path,
    home: Option<&Path>,
    undone: &mut Undone,
) -> io::Result<()> {
    let limit = match home {
        Some(_) => Duration::from_secs(5),
        None => Duration::from_secs(1),
    };
    let begin = Instant::now();
    // The kernel returns the CPUs of a removed partition some time later, and changes affinities
    // then. Writing `member` returns them at once.
    let partition = group.join("cpuset.cpus.partition");
    if kernel.exists(&partition) {
        let _ = kernel.write(&partition, "member");
    }
    loop {
        if let Some(home) = home {
            let (_, stuck) = groups::empty(kernel, group, |_| home.to_owned())?;
            if let Some((member, error)) = stuck.first() {
                undone.failed(
                    group,
                    format!("cannot move {member} to {}: {error}", home.display()),
                    &format!("kill {member}"),
                );
                return Ok(());
            }
        }
        kernel.step()?;
        match kernel.remove_directory(group) {
            Ok(()) => undone.restored(group, "removed"),
            Err(error) if groups::is_gone(&error) => {}
            Err(error)
                if error.kind() == io::ErrorKind::ResourceBusy && begin.elapsed() < limit =>
            {
                std::thread::sleep(groups::EXIT_PAUSE);
                continue;
            }
            Err(error) => {
                let members = tasks::listed(kernel, &groups::members_file(kernel, group));
                undone.failed(
                    group,
                    format!("cannot remove the group: {error}; members: {members:?}"),
                    "end its members",
                );
            }
        }
        return Ok(());
    }
}

/// Removes a group of resctrl. Its tasks, CPUs and ways return to the default group.
fn undo_cache_group(kernel: &dyn Kernel, path: &Path, undone: &mut Undone) -> io::Result<()> {
    if !kernel.is_directory(path) {
        return Ok(());
    }
    kernel.step()?;
    match kernel.remove_directory(path) {
        Ok(()) => undone.restored(path, "removed"),
        Err(error) if groups::is_gone(&error) => {}
        Err(error) => undone.failed(
            path,
            format!("cannot remove the group: {error}"),
            &format!("rmdir {}", path.display()),
        ),
    }
    Ok(())
}

fn undo_tasks(
    kernel: &dyn Kernel,
    from: &Path,
    to: &Path,
    sweep: bool,
    recorded: &[Task],
    undone: &mut Undone,
) -> io::Result<()> {
    if !kernel.is_directory(to) || !kernel.is_directory(from) {
        return Ok(());
    }
    let known: BTreeMap<u32, &Task> = recorded.iter().map(|task| (task.thread, task)).collect();
    let members = groups::listing_file(kernel, to);
    let target = groups::members_file(kernel, from);
    let mut count = 0;
    let mut refused: Vec<(u32, io::Error)> = Vec::new();
    if sweep {
        (count, refused) = groups::empty(kernel, to, |_| from.to_owned())?;
    } else {
        for member in tasks::listed(kernel, &members) {
            let is_recorded = known
                .get(&member)
                .is_some_and(|task| tasks::is_same(kernel, task));
            if !is_recorded {
                continue;
            }
            kernel.step()?;
            match kernel.write(&target, &member.to_string()) {
                Ok(()) => count += 1,
                Err(error) if groups::is_gone(&error) => {}
                Err(error) => refused.push((member, error)),
            }
        }
    }
    for (member, error) in refused {
        undone.failed(
            to,
            format!("cannot move {member} back to {}: {error}", from.display()),
            &format!("echo {member} > {}", target.display()),
        );
    }
    if count > 0 {
        undone.restored(
            from,
            format!("{count} tasks moved back from {}", to.display()),
        );
    }
    // Only moving to this group widens affinities.
    let back = tasks::listed(kernel, &target);
    let back: Vec<Task> = recorded
        .iter()
        .filter(|task| back.contains(&task.thread))
        .cloned()
        .collect();
    undo_widening(kernel, &back, undone)
}

/// Restores affinities that the kernel widened. A set that is not wider than the old one is either
/// unchanged or set by another process.
fn undo_widening(kernel: &dyn Kernel, recorded: &[Task], undone: &mut Undone) -> io::Result<()> {
    let mut count = 0;
    for task in recorded {
        let Ok(present) = kernel.affinity(task.thread) else {
            continue;
        };
        let widened = present != task.affinity && task.affinity.is_subset(&present);
        if !widened || !tasks::is_same(kernel, task) {
            continue;
        }
        kernel.step()?;
        match kernel.set_affinity(task.thread, &task.affinity) {
            Ok(()) => count += 1,
            Err(error) if groups::is_gone(&error) => {}
            Err(error) => undone.failed(
                &thread_path(task.thread),
                format!("cannot restore its affinity {}: {error}", task.affinity),
                &format!("taskset -pc {} {}", task.affinity, task.thread),
            ),
        }
    }
    if count > 0 {
        undone.restored(Path::new("/proc"), format!("{count} affinities restored"));
    }
    Ok(())
}

fn undo_affinity(
    kernel: &dyn Kernel,
    task: &Task,
    new: &rampart_model::CpuSet,
    undone: &mut Undone,
) {
    let Ok(present) = kernel.affinity(task.thread) else {
        return;
    };
    if present == task.affinity || !tasks::is_same(kernel, task) {
        return;
    }
    let location = thread_path(task.thread);
    let fix = format!("taskset -pc {} {}", task.affinity, task.thread);
    if present != *new {
        let finding = Finding::new(
            Severity::Warning,
            location.display().to_string(),
            format!(
                "another process changed the affinity after Rampart had set {new}, so it was kept"
            ),
        )
        .values(present.to_string(), task.affinity.to_string())
        .fix(fix);
        return undone.left.push(finding);
    }
    match kernel.set_affinity(task.thread, &task.affinity) {
        Ok(()) => undone.restored(&location, format!("affinity restored to {}", task.affinity)),
        Err(error) if groups::is_gone(&error) => {}
        Err(error) => undone.failed(
            &location,
            format!("cannot restore its affinity {}: {error}", task.affinity),
            &fix,
        ),
    }
}

fn undo_policy(
    kernel: &dyn Kernel,
    task: &Task,
    old: &Attributes,
    new: &Attributes,
    undone: &mut Undone,
) {
    let Ok(present) = kernel.attributes(task.thread) else {
        return;
    };
    let same = |other: &Attributes| {
        (present.policy, present.priority, present.nice)
            == (other.policy, other.priority, other.nice)
            && present.policy() == other.policy()
    };
    if same(old) || !tasks::is_same(kernel, task) {
        return;
    }
    let location = thread_path(task.thread);
    let fix = chrt(task.thread, old.policy());
    if present.policy() != new.policy() {
        let finding = Finding::new(
            Severity::Warning,
            location.display().to_string(),
            format!(
                "another process changed the policy after Rampart had set {}, so it was kept",
                new.policy()
            ),
        )
        .values(present.policy().to_string(), old.policy().to_string())
        .fix(fix);
        return undone.left.push(finding);
    }
    match kernel.set_attributes(task.thread, old) {
        Ok(()) => undone.restored(&location, format!("policy restored to {}", old.policy())),
        Err(error) if groups::is_gone(&error) => {}
        Err(error) => undone.failed(
            &location,
            format!("cannot restore its policy {}: {error}", old.policy()),
            &fix,
        ),
    }
}

/// Returns the command that sets a thread's policy (chrt(1)).
fn chrt(thread: u32, policy: SchedulingPolicy) -> String {
    match policy {
        SchedulingPolicy::Other => format!("chrt --other --pid 0 {thread}"),
        SchedulingPolicy::Fifo(priority) => format!("chrt --fifo --pid {priority} {thread}"),
        SchedulingPolicy::RoundRobin(priority) => format!("chrt --rr --pid {priority} {thread}"),
        SchedulingPolicy::Deadline {
            runtime,
            deadline,
            period,
        } => format!(
            "chrt --deadline --sched-runtime {} --sched-deadline {} --sched-period {} --pid 0 {thread}",
            runtime.0, deadline.0, period.0
        ),
    }
}

fn thread_path(thread: u32) -> PathBuf {
    PathBuf::from(format!("/proc/{thread}"))
}
