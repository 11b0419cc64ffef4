// SPDX-License-Identifier: Apache-2.0 OR MIT
//! CPU time by use, from `/proc/stat` (proc_stat(5)), and the count of firmware interrupts.

use std::os::unix::fs::FileExt as _;

use crate::MachineRoot;

/// CPU time of all CPUs since boot, in ticks of `USER_HZ`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ProcessorTimes {
    /// All CPU time, including steal time.
    pub total: u64,
    /// Time that the hypervisor below this machine gave to other machines.
    pub steal: u64,
}

impl ProcessorTimes {
    /// Returns steal time between `earlier` and `self` as a part of all CPU time, 0 to 1, or `None`
    /// if no time passed.
    #[must_use]
    pub fn steal_since(&self, earlier: &Self) -> Option<f64> {
        let total = self.total.checked_sub(earlier.total)?;
        // The kernel's counter may decrease a little, because it is estimated.
        let steal = self.steal.saturating_sub(earlier.steal);
        (total > 0).then(|| steal as f64 / total as f64)
    }

    fn parse(stat: &str) -> Option<Self> {
        let line = stat.lines().find(|line| line.starts_with("cpu "))?;
        let ticks: Vec<u64> = line
            .split_whitespace()
            .skip(1)
            .map_while(|field| field.parse().ok())
            .collect();
        // user nice system idle iowait irq softirq steal; the two guest fields after them are
        // contained in user and nice already.
        Some(Self {
            total: ticks.get(..8)?.iter().sum(),
            steal: *ticks.get(7)?,
        })
    }
}

/// Reads the current CPU times. Returns `None` if `/proc/stat` cannot be read.
#[must_use]
pub fn processor_times(root: &MachineRoot) -> Option<ProcessorTimes> {
    ProcessorTimes::parse(&root.text("proc/stat")?)
}

/// Reads the count of system management interrupts since reset, `MSR_SMI_COUNT` (0x34, Intel SDM
/// volume 4), through the `msr` driver, which needs root. Returns `None` on AMD and other
/// architectures, which have no such register.
#[must_use]
pub fn read_smi_count() -> Option<u64> {
    let mut value = [0; 8];
    std::fs::File::open("/dev/cpu/0/msr")
        .ok()?
        .read_exact_at(&mut value, 0x34)
        .ok()?;
    // The upper half is reserved.
    Some(u64::from_le_bytes(value) & 0xffff_ffff)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steal_is_a_part_of_all_time() {
        let early = ProcessorTimes::parse("cpu  10 0 10 80 0 0 0 0 5 5\ncpu0 1").expect("stat");
        let late = ProcessorTimes::parse("cpu  20 0 20 130 0 0 0 30 5 5\n").expect("stat");
        assert_eq!(early.total, 100);
        assert_eq!(late.steal_since(&early), Some(0.3));
        assert_eq!(late.steal_since(&late), None);
        assert_eq!(early.steal_since(&late), None);
        assert_eq!(ProcessorTimes::parse("cpu  1 2 3\n"), None);
    }
}
