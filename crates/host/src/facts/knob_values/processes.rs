// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Threads of the kernel, and names of running programs.

use std::collections::BTreeSet;

use rampart_knobs::KernelThread;

use crate::MachineRoot;
use crate::tasks::{self, TaskStat};

/// Kernel threads and programs; none where the kernel's threads are not seen, as in a container.
pub(super) fn read(root: &MachineRoot) -> Option<(Vec<KernelThread>, BTreeSet<String>)> {
    if root.line("proc/2/comm").as_deref() != Some("kthreadd") {
        return None;
    }
    let mut threads = Vec::new();
    let mut programs = BTreeSet::new();
    for process in root.numbered("proc", "") {
        let stat = root
            .text(&format!("proc/{process}/stat"))
            .and_then(|line| TaskStat::parse(&line));
        match stat {
            Some(stat) if stat.is_kernel_thread() => threads.push(KernelThread {
                thread: process,
                bound: stat.is_bound(),
                policy: stat.policy,
                affinity: tasks::allowed(root, process),
                name: stat.name,
            }),
            _ => programs.extend(root.line(&format!("proc/{process}/comm"))),
        }
    }
    Some((threads, programs))
}

/// Names of running programs; none where they are not seen.
pub(crate) fn running_programs(root: &MachineRoot) -> Option<BTreeSet<String>> {
    read(root).map(|(_, programs)| programs)
}
