// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads threads of the kernel, and names of running programs.

use std::collections::BTreeSet;

use rampart_rules::KernelThreadReading;

use crate::MachineRoot;
use crate::facts::processes::{names_of_programs, with_kernel_threads};
use crate::tasks;

/// Returns kernel threads and programs, or `None` if the kernel's threads are not visible, as in a
/// container.
pub(super) fn read(root: &MachineRoot) -> Option<(Vec<KernelThreadReading>, BTreeSet<String>)> {
    let processes = with_kernel_threads(root)?;
    let programs = names_of_programs(&processes);
    let threads = processes
        .into_iter()
        .filter(|process| process.is_kernel_thread())
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
        .collect();
    Some((threads, programs))
}
