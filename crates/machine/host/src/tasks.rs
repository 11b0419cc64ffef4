// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Threads as `/proc/TID/stat` tells of them (proc_pid_stat(5)).

use std::path::{Path, PathBuf};

use rampart_model::{CpuId, CpuSet, Nanos, SchedulingPolicy};
use serde::{Deserialize, Serialize};

use crate::MachineRoot;
use crate::kernel::Kernel;

/// `PF_NO_SETAFFINITY` of include/linux/sched.h: the kernel lets nobody move it.
const BOUND: u64 = 0x0400_0000;
/// `PF_KTHREAD` of include/linux/sched.h.
const KERNEL_THREAD: u64 = 0x0020_0000;

/// What tells one thread from another that later gets the same number, and its affinity.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Task {
    /// Number of the thread.
    pub(crate) thread: u32,
    /// When it started, in clock ticks since boot.
    pub(crate) start: u64,
    /// The CPUs that it might run on.
    pub(crate) affinity: CpuSet,
}

/// What `/proc/TID/stat` says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TaskStat {
    /// Its name.
    pub(crate) name: String,
    /// The process that made its process, or adopted it.
    pub(crate) parent: u32,
    /// Clock ticks since boot.
    pub(crate) start: u64,
    /// Its policy and priority; the figures of `SCHED_DEADLINE` are not told here.
    pub(crate) policy: Option<SchedulingPolicy>,
    /// `R` where it runs or wants to, `Z` where it has ended.
    pub(crate) state: char,
    /// CPU time that it used, in clock ticks.
    pub(crate) ticks: u64,
    /// The CPU that it ran on last.
    pub(crate) cpu: Option<CpuId>,
    flags: u64,
}

impl TaskStat {
    /// Reads a line of `/proc/TID/stat`.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        // The name may hold spaces and parentheses, so what follows begins after the last one.
        let (head, tail) = line.rsplit_once(')')?;
        let name = head.split_once('(')?.1.to_owned();
        let fields: Vec<&str> = tail.split_whitespace().collect();
        Some(Self {
            name,
            state: fields.first()?.chars().next()?,
            parent: fields.get(1)?.parse().ok()?,
            // Fields 14 and 15: time in user mode and in the kernel.
            ticks: [fields.get(11)?, fields.get(12)?]
                .into_iter()
                .filter_map(|field| field.parse::<u64>().ok())
                .sum(),
            cpu: fields
                .get(36)
                .and_then(|field| field.parse().ok())
                .map(CpuId),
            // Fields 9 and 22 of the line; the first one after the name is number 3.
            flags: fields.get(6)?.parse().ok()?,
            start: fields.get(19)?.parse().ok()?,
            // Fields 40 and 41: priority and policy (include/uapi/linux/sched.h).
            policy: policy(fields.get(37).copied(), fields.get(38).copied()),
        })
    }

    /// Whether it has ended: a zombie waits only for its parent to ask, a dead one for nobody
    /// (proc_pid_stat(5)).
    pub(crate) fn is_gone(&self) -> bool {
        matches!(self.state, 'Z' | 'X' | 'x')
    }

    /// Whether the kernel keeps it where it is.
    pub(crate) fn is_bound(&self) -> bool {
        self.flags & BOUND != 0
    }

    /// Whether it belongs to the kernel.
    pub(crate) fn is_kernel_thread(&self) -> bool {
        self.flags & KERNEL_THREAD != 0
    }
}

fn policy(priority: Option<&str>, policy: Option<&str>) -> Option<SchedulingPolicy> {
    let priority = priority?.parse().ok()?;
    match policy? {
        // SCHED_OTHER, SCHED_BATCH, SCHED_IDLE and SCHED_EXT share time.
        "0" | "3" | "5" | "7" => Some(SchedulingPolicy::Other),
        "1" => Some(SchedulingPolicy::Fifo(priority)),
        "2" => Some(SchedulingPolicy::RoundRobin(priority)),
        "6" => Some(SchedulingPolicy::Deadline {
            runtime: Nanos::ZERO,
            deadline: Nanos::ZERO,
            period: Nanos::ZERO,
        }),
        _ => None,
    }
}

/// What `/proc` says about a thread; none if it is gone.
pub(crate) fn stat_of(kernel: &dyn Kernel, thread: u32) -> Option<TaskStat> {
    let path = PathBuf::from(format!("/proc/{thread}/stat"));
    TaskStat::parse(&kernel.read(&path).ok()?)
}

/// The CPUs that a thread may run on, as `/proc/TID/status` tells; `thread` is a number or `self`. The
/// kernel has intersected them with the cpuset.
pub(crate) fn allowed(root: &MachineRoot, thread: impl std::fmt::Display) -> Option<CpuSet> {
    root.text(&format!("proc/{thread}/status"))?
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?
        .trim()
        .parse()
        .ok()
}

/// Whether the thread that was recorded still lives: its number may belong to another by now.
pub(crate) fn is_same(kernel: &dyn Kernel, task: &Task) -> bool {
    stat_of(kernel, task.thread).is_some_and(|stat| stat.start == task.start)
}

/// The numbers in a `tasks`, `cgroup.procs` or `cgroup.threads` file.
pub(crate) fn listed(kernel: &dyn Kernel, file: &Path) -> Vec<u32> {
    kernel
        .read(file)
        .map(|text| {
            text.lines()
                .filter_map(|line| line.trim().parse().ok())
                // Threads outside this process's PID namespace are listed as 0.
                .filter(|thread| *thread != 0)
                .collect()
        })
        .unwrap_or_default()
}

/// All threads of a process.
pub(crate) fn threads_of(kernel: &dyn Kernel, process: u32) -> Vec<u32> {
    numbers(kernel, &PathBuf::from(format!("/proc/{process}/task")))
}

/// All processes.
pub(crate) fn processes(kernel: &dyn Kernel) -> Vec<u32> {
    numbers(kernel, Path::new("/proc"))
}

fn numbers(kernel: &dyn Kernel, directory: &Path) -> Vec<u32> {
    kernel
        .names(directory)
        .iter()
        .filter_map(|name| name.parse().ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_names_with_spaces_and_parentheses() {
        let line = "42 (a b) (c)) S 1 42 42 0 -1 69238848 0 0 0 0 0 0 0 0 20 0 1 0 777 0 0";
        let stat = TaskStat::parse(line).expect("stat");
        assert_eq!(stat.name, "a b) (c)");
        assert_eq!((stat.parent, stat.start), (1, 777));
        assert!(stat.is_bound() && stat.is_kernel_thread());
        assert_eq!((stat.policy, stat.cpu), (None, None));
        assert_eq!((stat.state, stat.parent), ('S', 1));
        let rest = "18446744073709551615 0 0 0 0 0 0 0 0 0 0 0 0 17 1 50 1 0 0";
        let stat = TaskStat::parse(&format!("{line} {rest}")).expect("stat");
        assert_eq!(
            stat.policy,
            Some(SchedulingPolicy::Fifo(50)),
            "{line} {rest}"
        );
        assert_eq!(stat.cpu, Some(CpuId(1)));
        for line in ["", "1 (x", "1 (x) S", "1 (x) S a b c d e f"] {
            assert_eq!(TaskStat::parse(line), None, "{line}");
        }
    }
}
