// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel's threads that the CPUs of a plan cannot do without.

use rampart_model::{CpuId, KernelThread, VitalThread};

use crate::facts::processes::Process;

/// The vital threads of each CPU; none where the threads of the kernel are not to be seen, as in
/// a container.
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
