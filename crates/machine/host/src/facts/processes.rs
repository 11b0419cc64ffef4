// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads processes and the kernel's threads (proc_pid_stat(5)).

use std::collections::BTreeSet;

use crate::MachineRoot;
use crate::tasks::TaskStat;

/// A process, or a thread of the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Process {
    /// Process number.
    pub(crate) number: u32,
    /// Name in the kernel.
    pub(crate) name: String,
    /// `None` if it could not be read.
    pub(crate) stat: Option<TaskStat>,
}

impl Process {
    /// Returns whether it is a thread of the kernel.
    pub(crate) fn is_kernel_thread(&self) -> bool {
        self.stat.as_ref().is_some_and(TaskStat::is_kernel_thread)
    }
}

/// Returns every process that has a name, by its number.
pub(crate) fn processes(root: &MachineRoot) -> Vec<Process> {
    root.numbered("proc", "")
        .into_iter()
        .filter_map(|number| {
            let stat = root
                .text(&format!("proc/{number}/stat"))
                .and_then(|line| TaskStat::parse(&line));
            let name = root
                .line(&format!("proc/{number}/comm"))
                .or_else(|| stat.as_ref().map(|stat| stat.name.clone()))?;
            Some(Process { number, name, stat })
        })
        .collect()
}

/// Returns every process, or `None` if the kernel's threads are not visible, as in a container.
pub(crate) fn with_kernel_threads(root: &MachineRoot) -> Option<Vec<Process>> {
    let is_seen = root.line("proc/2/comm").as_deref() == Some("kthreadd");
    is_seen.then(|| processes(root))
}

/// Returns the names of running programs, or `None` if processes are not visible.
pub(crate) fn running_programs(root: &MachineRoot) -> Option<BTreeSet<String>> {
    let all = with_kernel_threads(root)?;
    Some(names_of_programs(&all))
}

/// Returns the names of processes that are not threads of the kernel.
pub(crate) fn names_of_programs(processes: &[Process]) -> BTreeSet<String> {
    let programs = processes
        .iter()
        .filter(|process| !process.is_kernel_thread());
    programs.map(|process| process.name.clone()).collect()
}
