// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Processes, and the kernel's own threads among them (proc_pid_stat(5)).

use rampart_model::{CpuId, KernelThread, SchedulingPolicy};

use crate::MachineRoot;

/// Threads that serve one CPU, and that it cannot do without for long.
const VITAL: [&str; 5] = [
    "rcuc/",
    "ksoftirqd/",
    "ktimers/",
    "ktimersd/",
    "ktimersoftd/",
];

/// A process or thread of the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) name: String,
    /// None where it could not be read.
    pub(super) policy: Option<SchedulingPolicy>,
}

/// Every process; none where none can be seen.
pub(super) fn processes(root: &MachineRoot) -> Option<Vec<Process>> {
    let processes: Vec<Process> = root
        .numbered("proc", "")
        .into_iter()
        .filter_map(|id| {
            Some(Process {
                name: root.line(&format!("proc/{id}/comm"))?,
                policy: root
                    .text(&format!("proc/{id}/stat"))
                    .and_then(|stat| policy(&stat)),
            })
        })
        .collect();
    (!processes.is_empty()).then_some(processes)
}

/// Policy and priority, the fields 40 and 41 of `/proc/PID/stat`. The name before may hold spaces
/// and brackets.
fn policy(stat: &str) -> Option<SchedulingPolicy> {
    let (_, rest) = stat.rsplit_once(')')?;
    // The field after the name is the third.
    let field = |number: usize| rest.split_whitespace().nth(number - 3);
    let priority = field(40)?.parse().ok()?;
    Some(match field(41)?.parse::<u32>().ok()? {
        1 => SchedulingPolicy::Fifo(priority),
        2 => SchedulingPolicy::RoundRobin(priority),
        _ => SchedulingPolicy::Other,
    })
}

/// The vital threads of each CPU; none where the threads of the kernel are not to be seen, as in
/// a container.
pub(super) fn vital(processes: &[Process]) -> Option<Vec<KernelThread>> {
    let threads: Vec<KernelThread> = processes
        .iter()
        .filter_map(|process| {
            let prefix = VITAL
                .iter()
                .find(|prefix| process.name.starts_with(**prefix))?;
            Some(KernelThread {
                cpu: CpuId(process.name.strip_prefix(prefix)?.parse().ok()?),
                policy: process.policy?,
                name: process.name.clone(),
            })
        })
        .collect();
    // Every kernel has ksoftirqd on each CPU.
    (!threads.is_empty()).then_some(threads)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_stand_behind_names_with_brackets() {
        let stat = |policy: &str| {
            format!(
                "12 (a) b (c)) S 2 0 0 0 -1 69238848 0 0 0 0 0 0 0 0 -2 0 1 0 3 0 0 1 0 0 0 0 0 0 0 2147483647 0 0 0 0 17 1 {policy} 0 0 0 0 0 0 0 0 0 0 0\n"
            )
        };
        assert_eq!(policy(&stat("4 1")), Some(SchedulingPolicy::Fifo(4)));
        assert_eq!(policy(&stat("9 2")), Some(SchedulingPolicy::RoundRobin(9)));
        assert_eq!(policy(&stat("0 0")), Some(SchedulingPolicy::Other));
        assert_eq!(policy("12 (a) S"), None);
        assert_eq!(policy(""), None);
    }
}
