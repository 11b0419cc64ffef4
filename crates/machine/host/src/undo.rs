// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Undoes recorded changes, the last first.
//!
//! Each change is undone by what is there now, not by what was done: a value that still is the
//! one written goes back, one that already is the old one stays, and one that is neither was
//! changed by someone else and stays too. Each change that is undone is marked in the journal,
//! and each can be undone twice; so undoing can itself be broken off at any point and begun
//! again.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rampart_model::{Finding, Restored, SchedulingPolicy, Severity};

use crate::boot_loader::undo as boot_undo;
use crate::driver;
use crate::groups;
use crate::journal::Change;
use crate::kernel::Kernel;
use crate::mounts;
use crate::notation::Notation;
use crate::policy::Attributes;
use crate::systemd::undo as systemd_undo;
use crate::tasks::{self, Task};
use crate::tracing::undo as tracing_undo;

/// What undoing did.
#[derive(Debug, Default)]
pub(crate) struct Undone {
    /// What was put back.
    pub(crate) restored: Vec<Restored>,
    /// What someone else changed meanwhile, and so was left.
    pub(crate) left: Vec<Finding>,
    /// What should have been put back and could not be.
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

/// Undoes `changes`, the last first, and hands the number of each that is done with to `mark`.
///
/// # Errors
/// Only where a test ends the machine in the middle; refusals of the kernel are in the result.
pub(crate) fn undo(
    kernel: &dyn Kernel,
    changes: &[(usize, Change)],
    mut mark: impl FnMut(usize),
) -> io::Result<Undone> {
    let mut undone = Undone::default();
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
                made_directories,
                is_made,
            } => {
                let old = old.as_deref();
                boot_undo::file(
                    kernel,
                    path,
                    old,
                    new,
                    made_directories,
                    *is_made,
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
        // What it belonged to (an interrupt, a group) is gone, and its value with it.
        Err(error) if groups::is_gone(&error) => return,
        Err(error) => {
            return undone.failed(path, format!("cannot be read: {error}"), "read it by hand");
        }
    };
    if notation.same(&present, old) {
        return;
    }
    let old = notation.to_write(old);
    if !notation.comes_of(&present, old, new) {
        let finding = Finding::new(
            Severity::Warning,
            path.display().to_string(),
            format!(
                "someone else changed it after Rampart set it to {}, so it was left",
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
                undone.restored(path, format!("{old} again"));
            }
            Ok(present) => undone.failed(
                path,
                format!("the kernel took {old} and made it {}", present.trim()),
                &fix,
            ),
            Err(error) => undone.failed(path, format!("cannot be read back: {error}"), &fix),
        },
        Err(error) => undone.failed(path, format!("the kernel refuses {old}: {error}"), &fix),
    }
}

/// The kernel goes on counting the budget of a group that was removed until it has buried it,
/// after its directory is gone, and refuses until then to take the budget from the group above.
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
        Ok(()) => undone.restored(path, format!("{controller} off again")),
        // Another manager began to use the controller further down meanwhile.
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
            undone.left.push(Finding::new(
                Severity::Note,
                path.display().to_string(),
                format!("another group uses the {controller} controller by now, so it stays on"),
            ))
        }
        Err(error) => undone.failed(
            path,
            format!("cannot switch {controller} off: {error}"),
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

/// Removes a group. Threads may be forked into it, or be ending in it, for a while.
fn remove_group(
    kernel: &dyn Kernel,
    group: &Path,
    home: Option<&Path>,
    undone: &mut Undone,
) -> io::Result<()> {
    let patience = match home {
        Some(_) => Duration::from_secs(5),
        None => Duration::from_secs(1),
    };
    let begin = Instant::now();
    loop {
        if let Some(home) = home {
            let (_, stuck) = groups::empty(kernel, group, |_| home.to_owned())?;
            if let Some((member, error)) = stuck.first() {
                undone.failed(
                    group,
                    format!("{member} cannot be moved to {}: {error}", home.display()),
                    "end that process",
                );
                return Ok(());
            }
        }
        // The kernel gives a removed partition's CPUs back some time later, and with them rewrites
        // affinities; a partition that ends by its own file gives them back at once.
        let partition = group.join("cpuset.cpus.partition");
        if kernel.exists(&partition) {
            let _ = kernel.write(&partition, "member");
        }
        kernel.step()?;
        match kernel.remove_directory(group) {
            Ok(()) => undone.restored(group, "removed"),
            Err(error) if groups::is_gone(&error) => {}
            Err(error)
                if error.kind() == io::ErrorKind::ResourceBusy && begin.elapsed() < patience =>
            {
                std::thread::sleep(groups::SHORT);
                continue;
            }
            Err(error) => {
                let members = tasks::listed(kernel, &groups::members_file(kernel, group));
                undone.failed(
                    group,
                    format!("cannot be removed: {error}; in it: {members:?}"),
                    "end the processes in it",
                );
            }
        }
        return Ok(());
    }
}

/// Removes a group of resctrl: its tasks, CPUs and ways are the default group's again.
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
            format!("cannot be removed: {error}"),
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
            let ours = known
                .get(&member)
                .is_some_and(|task| tasks::is_same(kernel, task));
            if !ours {
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
            format!(
                "{member} cannot be moved back to {}: {error}",
                from.display()
            ),
            &format!("echo {member} > {}", target.display()),
        );
    }
    if count > 0 {
        undone.restored(from, format!("{count} tasks back from {}", to.display()));
    }
    // Who is elsewhere was not widened by coming back here.
    let back = tasks::listed(kernel, &target);
    let back: Vec<Task> = recorded
        .iter()
        .filter(|task| back.contains(&task.thread))
        .cloned()
        .collect();
    undo_widening(kernel, &back, undone)
}

/// Restores affinities that the kernel widened on its own. A set that is not wider than the old
/// one is either unchanged or someone's wish.
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
                format!("cannot have its affinity {} back: {error}", task.affinity),
                &format!("taskset -pc {} {}", task.affinity, task.thread),
            ),
        }
    }
    if count > 0 {
        undone.restored(Path::new("/proc"), format!("{count} affinities again"));
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
                "someone else changed its affinity after Rampart set it to {new}, so it was left"
            ),
        )
        .values(present.to_string(), task.affinity.to_string())
        .fix(fix);
        return undone.left.push(finding);
    }
    match kernel.set_affinity(task.thread, &task.affinity) {
        Ok(()) => undone.restored(&location, format!("affinity {} again", task.affinity)),
        Err(error) if groups::is_gone(&error) => {}
        Err(error) => undone.failed(
            &location,
            format!("cannot have its affinity {} back: {error}", task.affinity),
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
                "someone else changed its policy after Rampart set it to {}, so it was left",
                new.policy()
            ),
        )
        .values(present.policy().to_string(), old.policy().to_string())
        .fix(fix);
        return undone.left.push(finding);
    }
    match kernel.set_attributes(task.thread, old) {
        Ok(()) => undone.restored(&location, format!("policy {} again", old.policy())),
        Err(error) if groups::is_gone(&error) => {}
        Err(error) => undone.failed(
            &location,
            format!("cannot have its policy {} back: {error}", old.policy()),
            &fix,
        ),
    }
}

/// The command that gives a thread a policy (chrt(1)).
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
