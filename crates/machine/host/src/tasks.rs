// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Threads, from `/proc/TID/stat` (proc_pid_stat(5)).

use std::path::{Path, PathBuf};

use rampart_model::{CpuId, CpuSet, Nanos, SchedulingPolicy};
use serde::{Deserialize, Serialize};

use crate::MachineRoot;
use crate::kernel::Kernel;

/// `PF_NO_SETAFFINITY` of include/linux/sched.h: its affinity cannot be changed.
const BOUND: u64 = 0x0400_0000;
/// `PF_EXITING` of include/linux/sched.h.
const EXITING: u64 = 0x4;
/// `PF_KTHREAD` of include/linux/sched.h.
const KERNEL_THREAD: u64 = 0x0020_0000;

/// Identifies a thread, also among later ones with the same number, and its affinity.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Task {
    pub(crate) thread: u32,
    /// Start time in clock ticks since boot.
    pub(crate) start: u64,
    /// The CPUs on which it was allowed to run.
    pub(crate) affinity: CpuSet,
}

/// The fields of `/proc/TID/stat` that Rampart uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TaskStat {
    pub(crate) name: String,
    /// The parent of its process.
    pub(crate) parent: u32,
    /// Start time in clock ticks since boot.
    pub(crate) start: u64,
    /// Policy and priority, without the parameters of `SCHED_DEADLINE`.
    pub(crate) policy: Option<SchedulingPolicy>,
    /// `R` if it is runnable, `Z` if it has ended.
    pub(crate) state: char,
    /// CPU time used, in clock ticks.
    pub(crate) ticks: u64,
    /// The CPU on which it ran last.
    pub(crate) cpu: Option<CpuId>,
    /// Number of threads of its process.
    pub(crate) threads: u32,
    flags: u64,
}

impl TaskStat {
    /// Parses the line of `/proc/TID/stat`.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        // The name may contain spaces and parentheses, so the fields begin after the last one.
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
            // Field 20.
            threads: fields.get(17)?.parse().ok()?,
            // Fields 9 and 22 of the line; the first one after the name is number 3.
            flags: fields.get(6)?.parse().ok()?,
            start: fields.get(19)?.parse().ok()?,
            // Fields 40 and 41: priority and policy (include/uapi/linux/sched.h).
            policy: policy(fields.get(37).copied(), fields.get(38).copied()),
        })
    }

    /// Returns whether it has ended: a zombie or dead (proc_pid_stat(5)).
    pub(crate) fn is_gone(&self) -> bool {
        matches!(self.state, 'Z' | 'X' | 'x')
    }

    /// Returns whether it has ended or ends at present.
    pub(crate) fn is_ending(&self) -> bool {
        self.is_gone() || self.flags & EXITING != 0
    }

    /// Returns whether its affinity cannot be changed.
    pub(crate) fn is_bound(&self) -> bool {
        self.flags & BOUND != 0
    }

    /// Returns whether it is a thread of the kernel.
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

/// Reads `/proc/TID/stat`. Returns `None` if the thread has ended.
pub(crate) fn stat_of(kernel: &dyn Kernel, thread: u32) -> Option<TaskStat> {
    let path = PathBuf::from(format!("/proc/{thread}/stat"));
    TaskStat::parse(&kernel.read(&path).ok()?)
}

/// Reads the CPUs on which a thread may run, intersected with its cpuset, from `/proc/TID/status`;
/// `thread` is a number or `self`.
pub(crate) fn allowed(root: &MachineRoot, thread: impl std::fmt::Display) -> Option<CpuSet> {
    root.text(&format!("proc/{thread}/status"))?
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?
        .trim()
        .parse()
        .ok()
}

/// Returns whether a recorded thread still exists, and its number is not that of a later thread.
pub(crate) fn is_same(kernel: &dyn Kernel, task: &Task) -> bool {
    stat_of(kernel, task.thread).is_some_and(|stat| stat.start == task.start)
}

/// Returns the numbers in a `tasks`, `cgroup.procs` or `cgroup.threads` file.
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

/// Returns all threads of a process.
pub(crate) fn threads_of(kernel: &dyn Kernel, process: u32) -> Vec<u32> {
    numbers(kernel, &PathBuf::from(format!("/proc/{process}/task")))
}

/// Returns all processes.
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
        assert_eq!(stat.threads, 1);
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
