// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Every thread with its CPU and its CPU time (proc_pid_stat(5), Documentation/scheduler/
//! sched-stats.rst).

use std::collections::BTreeSet;

use rampart_model::{CpuSet, Nanos, ObservedThread};

use crate::MachineRoot;
use crate::tasks::{self, TaskStat};

/// Nanoseconds of a tick of `USER_HZ`, which is 100 for all architectures that Rampart runs on
/// (include/uapi/asm-generic/param.h).
pub(super) const TICK: Nanos = Nanos::from_millis(10);

/// All threads; those that ran last on `cpus`, and those named in `closely`, are asked where they
/// may run.
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
            // A recorded machine may have processes without their threads.
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

/// One thread; none where it ended meanwhile.
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

/// The policy of a thread, as a plan writes it.
pub(super) fn policy(root: &MachineRoot, thread: u32) -> Option<String> {
    let stat = TaskStat::parse(&root.text(&format!("proc/{thread}/stat"))?)?;
    stat.policy.map(|policy| policy.to_string())
}
