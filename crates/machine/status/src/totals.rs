// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Counts since the start of a server: each status adds its interval.

use std::collections::BTreeMap;

use rampart_model::{CpuId, NoiseSourceKind, Status};

/// Counters that only grow.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Totals {
    pub(crate) interrupts: BTreeMap<CpuId, u64>,
    pub(crate) softirqs: BTreeMap<CpuId, u64>,
    pub(crate) unwanted_activity: BTreeMap<(CpuId, NoiseSourceKind), u64>,
}

impl Totals {
    /// Adds a status whose interval begins at the end of the previous one.
    pub fn add(&mut self, status: &Status) {
        for cpu in &status.cpus {
            let interrupts: u64 = cpu.interrupts.iter().map(|count| count.count).sum();
            let softirqs: u64 = cpu.softirqs.iter().map(|count| count.count).sum();
            grow(self.interrupts.entry(cpu.cpu).or_default(), interrupts);
            grow(self.softirqs.entry(cpu.cpu).or_default(), softirqs);
            for noise_source in &cpu.noise_sources {
                let key = (cpu.cpu, noise_source.kind);
                grow(
                    self.unwanted_activity.entry(key).or_default(),
                    noise_source.count,
                );
            }
        }
    }
}

fn grow(total: &mut u64, by: u64) {
    *total = total.saturating_add(by);
}
