// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Puts running processes and threads in their place: control group, CPUs, policy, nice value; and
//! reads back what they got.
//!
//! These belong to the process that somebody names, not to the machine, so they are told with what
//! they were and not journalled: a group that `release` removes gives its members back by itself.

mod enter_group;
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
pub use thread_state::{
    boot_id, descendants, is_leader, process_start, process_threads, thread_state,
};

/// How often the threads of a process are looked for: one that makes threads all the time has new
/// ones at each look.
const LOOKS: usize = 100;

/// The control group that decides on CPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlacementGroup {
    /// The one that they are in.
    AsIs,
    /// This one of the hierarchy of the cgroup v1 controller `cpuset`, by its absolute path.
    V1(PathBuf),
    /// This one of cgroup v2, by its absolute path.
    V2(PathBuf),
}

impl PlacementGroup {
    /// Where processes of a domain that stands belong; as they are where its wall is affinity alone.
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

    /// The absolute path of a group that is named.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::AsIs => None,
            Self::V1(path) | Self::V2(path) => Some(path),
        }
    }

    /// The group relative to the root of its hierarchy, as `/proc/PID/cgroup` and container engines
    /// name it; none where its hierarchy is not mounted here.
    #[must_use]
    pub fn in_hierarchy(&self) -> Option<PathBuf> {
        enter_group::in_hierarchy(&Hierarchies::of(&RunningKernel), self)
    }
}

/// Where threads belong. What is none stays as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadPlacement {
    /// Their control group.
    pub group: PlacementGroup,
    /// The CPUs that they may use.
    pub cpus: Option<CpuSet>,
    /// Their policy.
    pub policy: Option<SchedulingPolicy>,
    /// Their nice value, -20 to 19; it counts under the time-sharing policy alone.
    pub nice: Option<i32>,
}

/// Puts a process with all its threads in a place, those too that it makes meanwhile, and reads
/// back what each got. A refused thread is in the answer.
///
/// # Errors
/// If there is no such process, or its control group refuses it.
pub fn place_process(
    process: u32,
    location: &ThreadPlacement,
) -> Result<Vec<PlacedThread>, HostError> {
    let kernel = &RunningKernel;
    let hierarchies = Hierarchies::of(kernel);
    let before: Vec<(u32, Option<ThreadState>)> = tasks::threads_of(kernel, process)
        .into_iter()
        .map(|thread| (thread, thread_state(thread)))
        .collect();
    if before.is_empty() {
        return Err(gone("process", process));
    }
    enter_group::enter(kernel, process, &location.group)?;
    let mut seen = BTreeSet::new();
    let mut placed = Vec::new();
    for _ in 0..LOOKS {
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
    Ok(placed)
}

/// Puts one thread in a place and reads back what it got. cgroup v2 keeps the threads of a process
/// in one group unless that is threaded (Linux document `admin-guide/cgroup-v2.rst`, Threads); where
/// its own group has the CPUs, affinity and policy are set there, with a note.
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

/// Affinity, policy and nice value of a thread that is in its group, and how that ended.
fn settle(
    kernel: &dyn Kernel,
    hierarchies: &Hierarchies,
    thread: u32,
    was: Option<ThreadState>,
    location: &ThreadPlacement,
) -> PlacedThread {
    let mut notes = Vec::new();
    let mut answer = Ok(());
    // Under SCHED_DEADLINE the CPUs cannot be changed, so an outgoing policy goes first.
    let outgoing = location.policy.is_some_and(|policy| !policy.is_real_time());
    if outgoing {
        answer = answer.and_then(|()| set_policy(thread, location.policy));
    }
    if let Some(cpus) = &location.cpus {
        answer = answer.and_then(|()| {
            kernel.set_affinity(thread, cpus).map_err(|cause| {
                let what = format!("the thread cannot be bound to {}: {cause}", cpus.named());
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
    // sched_setattr(2) sets the nice value with a time-sharing policy; nobody asked for another.
    let kept = was.as_ref().filter(|_| outgoing).map(|was| was.nice);
    if let Some(nice) = location.nice.or(kept) {
        answer = answer.and_then(|()| {
            set_nice(thread, nice).map_err(|cause| {
                refusal(
                    thread,
                    format!("the thread cannot get nice value {nice}: {cause}"),
                )
                .fix("run as root, or with CAP_SYS_NICE")
            })
        });
    }
    let is = thread_state(thread);
    // One that has ended meanwhile needs no place any more.
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
            let what = format!("the thread cannot be given the policy {policy}: {cause}");
            let finding = refusal(thread, what);
            match policy {
                // kernel/sched/syscalls.c: a deadline thread's affinity must cover its root domain.
                SchedulingPolicy::Deadline { .. } => finding.fix(
                    "give it all CPUs of a domain that has an isolated partition or cpuset of its own, and as much CPU time as is free there; as root, or with CAP_SYS_NICE",
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
        what: format!("there is no such {word}"),
        present: "nothing in /proc".to_owned(),
        needed: format!("the number of a {word} that is alive"),
        fix: "name another; `ps -eL` lists processes (PID) and threads (LWP)".to_owned(),
    }
}
