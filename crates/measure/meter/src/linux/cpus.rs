// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which CPUs there are.

use rampart_model::{CpuId, CpuSet};

use super::files;

/// The CPUs that are online; none if nothing says so.
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

/// The CPUs that the machine has, online or not; none if nothing says so.
pub(crate) fn present() -> Option<CpuSet> {
    files::text("/sys/devices/system/cpu/present")?.parse().ok()
}
