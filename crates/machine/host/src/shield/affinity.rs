// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Affinities that tasks have requested. Before 6.2 the kernel forgets them when a task changes its
//! group, or its group its CPUs.

use rampart_model::CpuSet;

use crate::HostError;
use crate::changes::Changes;
use crate::tasks::Task;

/// Restores the remaining part of the affinities that tasks had requested, if the kernel forgot it.
pub(super) fn keep(changes: &mut Changes, wanted: Vec<(Task, CpuSet)>) -> Result<(), HostError> {
    let kernel = changes.kernel();
    let lost: Vec<(Task, CpuSet)> = wanted
        .into_iter()
        .filter_map(|(task, kept)| {
            let affinity = kernel.affinity(task.thread).ok()?;
            (affinity != kept).then_some((Task { affinity, ..task }, kept))
        })
        .collect();
    if !lost.is_empty() {
        changes.set_affinities(lost)?;
    }
    Ok(())
}
