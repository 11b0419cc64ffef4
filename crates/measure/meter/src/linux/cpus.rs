// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The CPUs of the machine.

use rampart_model::{CpuId, CpuSet};

use super::files;

/// Returns the online CPUs, or `None` if they cannot be read.
pub(crate) fn online() -> Option<CpuSet> {
    if let Some(list) = files::text("/sys/devices/system/cpu/online") {
        return list.parse().ok();
    }
    // `/proc/stat` has a line for each CPU that is online (proc_stat(5)).
    let stat = files::text("/proc/stat")?;
    let cpus: CpuSet = stat
        .lines()
        .filter_map(|line| line.split(' ').next()?.strip_prefix("cpu")?.parse().ok())
        .map(CpuId)
        .collect();
    (!cpus.is_empty()).then_some(cpus)
}

/// Returns the present CPUs, online or offline, or `None` if they cannot be read.
pub(crate) fn present() -> Option<CpuSet> {
    files::text("/sys/devices/system/cpu/present")?.parse().ok()
}
