// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Places running processes and threads: sets control group, CPUs, policy and nice value, and reads
//! back the effective settings.
//!
//! These settings belong to processes that the user names, not to the machine, so the old values are
//! returned and not journalled. A group that `release` removes moves its members back.

mod enter_group;
mod from_outside;
mod held_cpus;
#[cfg(test)]
mod tests;
mod thread_state;

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use rampart_model::{
    ActiveDomain, CpuSet, Finding, PlacedThread, SchedulingPolicy, Severity, ThreadState,
};

use crate::HostError;
use crate::groups::Hierarchies;
use crate::kernel::{Kernel, RunningKernel};
use crate::policy::set_thread_policy;
use crate::real_time::diagnose_real_time_policy;
use crate::tasks;

pub use enter_group::{home_group, is_inside};
pub use from_outside::place_this_process;
pub use held_cpus::check_that_cpus_are_free;
pub(crate) use held_cpus::kept_cpus;
pub use thread_state::{
    boot_id, descendants, is_leader, process_start, process_threads, thread_state,
};

/// Number of times that the threads of a process are listed: a process that always creates threads has
/// new ones each time.
const LISTING_LIMIT: usize = 100;

/// The control group that assigns CPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlacementGroup {
    /// The current group.
    AsIs,
    /// A group of the cgroup v1 controller `cpuset`, by its absolute path.
    V1(PathBuf),
    /// A group of cgroup v2, by its absolute path.
    V2(PathBuf),
}

impl PlacementGroup {
    /// Returns the group for processes of an active domain; the current group with affinity alone.
    #[must_use]
    pub fn of(domain: &ActiveDomain) -> Self {
        let Some(path) = domain.members.as_ref().or(domain.group.as_ref()) else {
            return Self::AsIs;
        };
        if domain.unified {
            Self::V2(PathBuf::from(path))
        } else {
            Self::V1(PathBuf::from(path))
        }
    }

    /// Returns the absolute path of the group, or `None` for the current group.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::AsIs => None,
            Self::V1(path) | Self::V2(path) => Some(path),
        }
    }

    /// Returns the group relative to the root of its hierarchy, as in `/proc/PID/cgroup`, or `None` if
    /// the hierarchy is not mounted.
    #[must_use]
    pub fn in_hierarchy(&self) -> Option<PathBuf> {
        enter_group::in_hierarchy(&Hierarchies::of(&RunningKernel), self)
    }
}

/// Requested settings of threads. `None` keeps the current value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadPlacement {
    /// The control group.
    pub group: PlacementGroup,
    /// The CPUs that they may use.
    pub cpus: Option<CpuSet>,
    /// The scheduling policy.
    pub policy: Option<SchedulingPolicy>,
    /// The nice value, -20 to 19; it has an effect only with the time-sharing policy.
    pub nice: Option<i32>,
}

/// Places another process with all its threads, also those that it creates meanwhile, and reads back
/// the settings of each. The result contains refused threads. [`place_this_process`] places the
/// calling process.
///
/// # Errors
/// If there is no such process, or its control group refuses it.
pub fn place_process(
    process: u32,
    location: &ThreadPlacement,
) -> Result<Vec<PlacedThread>, HostError> {
    if process == std::process::id() {
        // Also if somebody names this process by its number.
        return place_this_process(location).map(|()| Vec::new());
    }
    let kernel = &RunningKernel;
    let hierarchies = Hierarchies::of(kernel);
    let before: Vec<(u32, Option<ThreadState>)> = tasks::threads_of(kernel, process)
        .into_iter()
        .map(|thread| (thread, thread_state(thread)))
        .collect();
    if before.is_empty() {
        return Err(gone("process", process));
    }
    // Policy before group: the process runs on its new CPUs also if other real-time threads are there.
    let early = raise_policy(kernel, &hierarchies, &before, location);
    if let Err(error) = enter_group::enter(kernel, process, &location.group) {
        for (thread, state) in before.iter().filter(|_| early.is_some()) {
            // A thread that has ended has no policy.
            let _ = state
                .as_ref()
                .map(|was| set_thread_policy(*thread, was.policy));
        }
        return Err(error);
    }
    let mut seen = BTreeSet::new();
    let mut placed = Vec::new();
    for _ in 0..LISTING_LIMIT {
        let new: Vec<u32> = tasks::threads_of(kernel, process)
            .into_iter()
            .filter(|thread| seen.insert(*thread))
            .collect();
        if new.is_empty() {
            break;
        }
        for thread in new {
            let was = before
                .iter()
                .find(|(other, _)| *other == thread)
                .and_then(|(_, state)| state.clone());
            placed.push(settle(kernel, &hierarchies, thread, was, location));
        }
    }
    if let (Some(notes), Some(first)) = (early, placed.first_mut()) {
        first.notes.extend(notes);
    }
    Ok(placed)
}

/// Sets a policy with a priority before threads enter their group, and returns the notes about it. [`settle`] repeats
/// it and reports refusals. A deadline is possible only on all CPUs of a partition, so it is set inside.
fn raise_policy(
    kernel: &dyn Kernel,
    hierarchies: &Hierarchies,
    threads: &[(u32, Option<ThreadState>)],
    location: &ThreadPlacement,
) -> Option<Vec<Finding>> {
    let has_priority = |policy: &SchedulingPolicy| {
        matches!(
            policy,
            SchedulingPolicy::Fifo(_) | SchedulingPolicy::RoundRobin(_)
        )
    };
    let policy = location.policy.filter(has_priority)?;
    let mut notes = Vec::new();
    for (thread, _) in threads {
        let reached = enter_group::reach_budget(kernel, hierarchies, *thread);
        notes.extend(reached.ok().flatten());
        let _ = set_thread_policy(*thread, policy);
    }
    Some(notes)
}

/// Places one thread and reads back its settings. cgroup v2 keeps the threads of a process in one
/// group unless that is threaded (Linux document `admin-guide/cgroup-v2.rst`, Threads); if the
/// process's group has the CPUs, affinity and policy are set there, with a note.
///
/// # Errors
/// If there is no such thread, or it cannot reach the CPUs.
pub fn place_thread(thread: u32, location: &ThreadPlacement) -> Result<PlacedThread, HostError> {
    let kernel = &RunningKernel;
    let hierarchies = Hierarchies::of(kernel);
    let was = thread_state(thread).ok_or_else(|| gone("thread", thread))?;
    let note = enter_group::enter_alone(kernel, thread, location)?;
    let mut location = location.clone();
    if note.is_some() {
        location.group = PlacementGroup::AsIs;
    }
    let mut placed = settle(kernel, &hierarchies, thread, Some(was), &location);
    placed.notes.extend(note);
    Ok(placed)
}

/// Sets affinity, policy and nice value of a thread that is in its group, and returns the result.
fn settle(
    kernel: &dyn Kernel,
    hierarchies: &Hierarchies,
    thread: u32,
    was: Option<ThreadState>,
    location: &ThreadPlacement,
) -> PlacedThread {
    let mut notes = Vec::new();
    let mut answer = Ok(());
    // The CPUs cannot be changed under SCHED_DEADLINE, so an old deadline policy is replaced first.
    let outgoing = location.policy.is_some_and(|policy| !policy.is_real_time());
    if outgoing {
        answer = answer.and_then(|()| set_policy(thread, location.policy));
    }
    if let Some(cpus) = &location.cpus {
        answer = answer.and_then(|()| {
            kernel.set_affinity(thread, cpus).map_err(|cause| {
                let what = format!("cannot bind the thread to {}: {cause}", cpus.named());
                refusal(thread, what)
                    .fix("choose CPUs that are online and within the thread's control group")
            })
        });
    }
    if !outgoing && location.policy.is_some() {
        if location.policy.is_some_and(SchedulingPolicy::is_real_time) {
            answer = answer.and_then(|()| {
                notes.extend(enter_group::reach_budget(kernel, hierarchies, thread)?);
                Ok(())
            });
        }
        answer = answer.and_then(|()| set_policy(thread, location.policy));
    }
    // sched_setattr(2) also sets the nice value with a time-sharing policy; keep it.
    let kept = was.as_ref().filter(|_| outgoing).map(|was| was.nice);
    if let Some(nice) = location.nice.or(kept) {
        answer = answer.and_then(|()| {
            set_nice(thread, nice).map_err(|cause| {
                refusal(thread, format!("cannot set nice value {nice}: {cause}"))
                    .fix("run as root, or with CAP_SYS_NICE")
            })
        });
    }
    let is = thread_state(thread);
    // A thread that has ended needs no settings.
    let refused = match (answer, &is) {
        (_, None) => None,
        (Err(finding), Some(_)) => Some(finding),
        (Ok(()), Some(state)) => {
            thread_state::difference(kernel, hierarchies, thread, state, location)
        }
    };
    PlacedThread {
        thread,
        was,
        is,
        refused,
        notes,
    }
}

fn set_policy(thread: u32, policy: Option<SchedulingPolicy>) -> Result<(), Finding> {
    let Some(policy) = policy else {
        return Ok(());
    };
    set_thread_policy(thread, policy).map_err(|cause| {
        let refused_by_right = cause.raw_os_error() == Some(libc::EPERM) && policy.is_real_time();
        let diagnosis = refused_by_right
            .then(|| diagnose_real_time_policy(thread))
            .flatten();
        diagnosis.unwrap_or_else(|| {
            let what = format!("cannot set the policy {policy}: {cause}");
            let finding = refusal(thread, what);
            match policy {
                // kernel/sched/syscalls.c: a deadline thread's affinity must cover its root domain.
                SchedulingPolicy::Deadline { .. } => finding.fix(
                    "give it all CPUs of a domain with its own isolated partition or cpuset, and a runtime that is free there; as root, or with CAP_SYS_NICE",
                ),
                _ => finding.fix("run as root, or with CAP_SYS_NICE"),
            }
        })
    })
}

fn set_nice(thread: u32, nice: i32) -> io::Result<()> {
    let id = thread_state::number(thread).ok_or(io::ErrorKind::InvalidInput)?;
    Ok(rustix::process::setpriority_process(Some(id), nice)?)
}

fn refusal(thread: u32, what: String) -> Finding {
    Finding::new(Severity::Error, format!("thread {thread}"), what)
}

fn gone(word: &str, number: u32) -> HostError {
    HostError::Request {
        location: format!("{word} {number}"),
        what: format!("no such {word}"),
        found: "nothing in /proc".to_owned(),
        expected: format!("the number of a running {word}"),
        fix: "choose one of `ps -eL`: processes (PID) and threads (LWP)".to_owned(),
    }
}
