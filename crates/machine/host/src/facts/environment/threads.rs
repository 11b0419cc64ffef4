// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The threads of the kernel that each CPU needs.

use rampart_model::{CpuId, KernelThread, VitalThread};

use crate::facts::processes::Process;

/// Returns the vital threads of each CPU, or `None` if the kernel's threads are not visible, as in a
/// container.
pub(super) fn vital(processes: &[Process]) -> Option<Vec<KernelThread>> {
    let threads: Vec<KernelThread> = processes
        .iter()
        .filter_map(|process| {
            let kind = VitalThread::of(&process.name).filter(|kind| kind.is_bound())?;
            Some(KernelThread {
                cpu: CpuId(process.name.strip_prefix(kind.prefix)?.parse().ok()?),
                policy: process.stat.as_ref()?.policy?,
                name: process.name.clone(),
            })
        })
        .collect();
    // Every kernel has ksoftirqd on each CPU.
    (!threads.is_empty()).then_some(threads)
}
