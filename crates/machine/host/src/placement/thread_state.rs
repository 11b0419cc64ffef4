// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads the placement of threads.

use std::collections::BTreeSet;
use std::path::PathBuf;

use rampart_model::{Finding, Severity, ThreadState};

use super::{PlacementGroup, ThreadPlacement};
use crate::groups::{ControlGroupVersion, Hierarchies, group_in};
use crate::kernel::{Kernel, RunningKernel};
use crate::policy::thread_policy;
use crate::tasks;

/// Returns the placement of a thread, or `None` if it has ended.
#[must_use]
pub fn thread_state(thread: u32) -> Option<ThreadState> {
    let kernel = &RunningKernel;
    let name = kernel
        .read(&PathBuf::from(format!("/proc/{thread}/comm")))
        .ok()?;
    let text = kernel
        .read(&PathBuf::from(format!("/proc/{thread}/cgroup")))
        .unwrap_or_default();
    Some(ThreadState {
        name: name.trim_end().to_owned(),
        group: group_in(&text, "cpuset").or_else(|| group_in(&text, "")),
        cpus: kernel.affinity(thread).ok()?,
        policy: thread_policy(thread).ok()?,
        nice: rustix::process::getpriority_process(number(thread)).ok()?,
    })
}

/// Returns the threads of a process by number and name; empty if it has ended.
#[must_use]
pub fn process_threads(process: u32) -> Vec<(u32, String)> {
    tasks::threads_of(&RunningKernel, process)
        .into_iter()
        .filter_map(|thread| {
            let path = format!("/proc/{process}/task/{thread}/comm");
            let name = std::fs::read_to_string(path).ok()?;
            Some((thread, name.trim_end().to_owned()))
        })
        .collect()
}

/// Returns the identifier of the current boot (`/proc/sys/kernel/random/boot_id`), or an empty text.
/// With its start time it identifies a process among later ones with the same number.
#[must_use]
pub fn boot_id() -> String {
    crate::journal::boot_id(&RunningKernel)
}

/// Returns the start time of a process in clock ticks since boot, which identifies it among later ones
/// with the same number, or `None` if it has ended or is a zombie.
#[must_use]
pub fn process_start(process: u32) -> Option<u64> {
    tasks::stat_of(&RunningKernel, process)
        .filter(|stat| !stat.is_gone())
        .map(|stat| stat.start)
}

/// Returns whether a number is that of a process and not of one of its other threads, or `None` if
/// there is neither.
#[must_use]
pub fn is_leader(thread: u32) -> Option<bool> {
    let status = RunningKernel
        .read(&PathBuf::from(format!("/proc/{thread}/status")))
        .ok()?;
    let group = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?;
    Some(group.trim().parse() == Ok(thread))
}

/// Returns all descendants of a process.
#[must_use]
pub fn descendants(process: u32) -> Vec<u32> {
    let kernel = &RunningKernel;
    let parents: Vec<(u32, u32)> = tasks::processes(kernel)
        .into_iter()
        .filter_map(|child| Some((child, tasks::stat_of(kernel, child)?.parent)))
        .collect();
    let mut found = BTreeSet::from([process]);
    loop {
        let before = found.len();
        for (child, parent) in &parents {
            if found.contains(parent) {
                found.insert(*child);
            }
        }
        if found.len() == before {
            break;
        }
    }
    found.remove(&process);
    found.into_iter().collect()
}

pub(super) fn number(thread: u32) -> Option<rustix::process::Pid> {
    i32::try_from(thread)
        .ok()
        .and_then(rustix::process::Pid::from_raw)
}

/// Returns the difference of a thread's placement from the request, if any.
pub(super) fn difference(
    kernel: &dyn Kernel,
    hierarchies: &Hierarchies,
    thread: u32,
    state: &ThreadState,
    location: &ThreadPlacement,
) -> Option<Finding> {
    let finding = |what: &str, present: String, needed: String| {
        Finding::new(
            Severity::Error,
            format!("thread {thread} (`{}`)", state.name),
            what,
        )
        .values(present, needed)
    };
    let group = match &location.group {
        PlacementGroup::AsIs => None,
        PlacementGroup::V1(path) => Some((path, ControlGroupVersion::V1)),
        PlacementGroup::V2(path) => Some((path, ControlGroupVersion::V2)),
    };
    if let Some((wanted, version)) = group {
        let present = hierarchies.group_of(kernel, thread, version);
        if present.as_ref() != Some(wanted) {
            let present =
                present.map_or_else(|| "not known".to_owned(), |path| path.display().to_string());
            return Some(
                finding(
                    "the thread is in another control group",
                    present,
                    wanted.display().to_string(),
                )
                .fix("see what moves it back: another manager of control groups"),
            );
        }
    }
    if let Some(cpus) = &location.cpus
        && state.cpus != *cpus
    {
        return Some(
            finding(
                "the thread may use other CPUs",
                state.cpus.to_string(),
                cpus.to_string(),
            )
            .fix("choose CPUs that are online and within the thread's control group"),
        );
    }
    if let Some(policy) = location.policy
        && state.policy != policy
    {
        return Some(finding(
            "the thread has another policy",
            state.policy.to_string(),
            policy.to_string(),
        ));
    }
    if let Some(nice) = location.nice
        && state.nice != nice
    {
        return Some(finding(
            "the thread has another nice value",
            state.nice.to_string(),
            nice.to_string(),
        ));
    }
    None
}
