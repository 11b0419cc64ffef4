// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads threads of the kernel and of programs, and names of running programs.

use std::collections::BTreeSet;

use rampart_rules::{KernelThreadReading, ProgramThreadReading};

use crate::MachineRoot;
use crate::facts::processes::{Process, names_of_programs, with_kernel_threads};
use crate::tasks::{self, TaskStat};

/// The processes of a machine.
#[derive(Debug, Clone)]
pub(super) struct Processes {
    pub(super) kernel_threads: Vec<KernelThreadReading>,
    /// Names of running programs.
    pub(super) programs: BTreeSet<String>,
    pub(super) program_threads: Vec<ProgramThreadReading>,
}

/// Returns all processes, or `None` if the kernel's threads are not visible, as in a container.
pub(super) fn read(root: &MachineRoot) -> Option<Processes> {
    let processes = with_kernel_threads(root)?;
    let of_programs = processes.iter().filter(|one| !one.is_kernel_thread());
    Some(Processes {
        programs: names_of_programs(&processes),
        program_threads: of_programs
            .flat_map(|process| program_threads(root, process))
            .collect(),
        kernel_threads: processes
            .into_iter()
            .filter(Process::is_kernel_thread)
            .filter_map(|process| {
                let stat = process.stat?;
                Some(KernelThreadReading {
                    thread: process.number,
                    bound: stat.is_bound(),
                    policy: stat.policy,
                    affinity: tasks::allowed(root, process.number),
                    name: stat.name,
                })
            })
            .collect(),
    })
}

/// Returns the threads of a program; of a recorded process without its threads, the first one.
fn program_threads(root: &MachineRoot, process: &Process) -> Vec<ProgramThreadReading> {
    let number = process.number;
    if process.stat.as_ref().is_none_or(TaskStat::is_gone) {
        return Vec::new();
    }
    let threads = root.numbered(&format!("proc/{number}/task"), "");
    let locations: Vec<(u32, String)> = match threads.is_empty() {
        true => vec![(number, number.to_string())],
        false => threads
            .into_iter()
            .map(|thread| (thread, format!("{number}/task/{thread}")))
            .collect(),
    };
    locations
        .into_iter()
        .filter_map(|(thread, location)| {
            let stat = TaskStat::parse(&root.text(&format!("proc/{location}/stat"))?)?;
            Some(ProgramThreadReading {
                process: number,
                thread,
                policy: stat.policy,
                name: stat.name,
                affinity: tasks::allowed(root, location)?,
            })
        })
        .collect()
}
