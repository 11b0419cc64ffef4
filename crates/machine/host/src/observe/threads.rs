// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads every thread with its CPU and its CPU time (proc_pid_stat(5), Documentation/scheduler/
//! sched-stats.rst).

use std::collections::BTreeSet;

use rampart_model::{CpuSet, Nanos, ObservedThread};

use crate::MachineRoot;
use crate::tasks::{self, TaskStat};

/// Length of a tick of `USER_HZ`, which is 100 on all architectures that Rampart supports
/// (include/uapi/asm-generic/param.h).
pub(crate) const TICK: Nanos = Nanos::from_millis(10);

/// Returns all threads. Reads the affinity of those that ran last on `cpus` and those in `closely`.
pub(super) fn read(
    root: &MachineRoot,
    cpus: &CpuSet,
    closely: &BTreeSet<u32>,
) -> Vec<ObservedThread> {
    let mut threads = Vec::new();
    for process in root.numbered("proc", "") {
        let tasks = format!("proc/{process}/task");
        let numbers = root.numbered(&tasks, "");
        if numbers.is_empty() {
            // A recorded machine may contain processes without their threads.
            threads.extend(thread(root, &format!("proc/{process}"), process, process));
            continue;
        }
        threads.extend(
            numbers
                .into_iter()
                .filter_map(|number| thread(root, &format!("{tasks}/{number}"), process, number)),
        );
    }
    for thread in &mut threads {
        let close = closely.contains(&thread.thread) || closely.contains(&thread.process);
        if close || cpus.contains(thread.cpu) {
            thread.affinity = tasks::allowed(root, thread.thread);
        }
    }
    threads
}

/// Reads one thread. Returns `None` if it has ended meanwhile.
fn thread(
    root: &MachineRoot,
    directory: &str,
    process: u32,
    number: u32,
) -> Option<ObservedThread> {
    let stat = TaskStat::parse(&root.text(&format!("{directory}/stat"))?)?;
    // The first number is the time on a CPU in nanoseconds.
    let exact = root
        .line(&format!("{directory}/schedstat"))
        .and_then(|line| line.split_whitespace().next()?.parse().ok())
        .map(Nanos);
    Some(ObservedThread {
        process,
        thread: number,
        kernel: stat.is_kernel_thread(),
        bound: stat.is_bound(),
        parent: stat.parent,
        start: stat.start,
        state: stat.state,
        policy: stat.policy,
        cpu: stat.cpu?,
        cpu_time: exact.unwrap_or(Nanos(stat.ticks.saturating_mul(TICK.0))),
        affinity: None,
        name: stat.name,
    })
}

/// Returns the scheduling policy of a thread in the notation of plans.
pub(super) fn policy(root: &MachineRoot, thread: u32) -> Option<String> {
    let stat = TaskStat::parse(&root.text(&format!("proc/{thread}/stat"))?)?;
    stat.policy.map(|policy| policy.to_string())
}
