// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel's threads that the CPUs of a plan cannot do without.

use rampart_model::{CpuId, KernelThread};

use crate::facts::processes::Process;

/// Threads that serve one CPU, and that it cannot do without for long.
const VITAL: [&str; 5] = [
    "rcuc/",
    "ksoftirqd/",
    "ktimers/",
    "ktimersd/",
    "ktimersoftd/",
];

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
                policy: process.stat.as_ref()?.policy?,
                name: process.name.clone(),
            })
        })
        .collect();
    // Every kernel has ksoftirqd on each CPU.
    (!threads.is_empty()).then_some(threads)
}
