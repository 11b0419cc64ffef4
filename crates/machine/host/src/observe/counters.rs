// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads counters of each CPU: `/proc/interrupts`, `/proc/softirqs`, `/proc/stat` (proc(5)).

use std::collections::BTreeMap;

use rampart_model::{CpuId, CpuSet, Nanos, ObservedCount, ObservedCpu, ObservedInterrupt};

use super::threads::TICK;
use crate::MachineRoot;
use crate::facts::{is_managed, is_of_each_cpu};

/// Parses a table with a column for each online CPU into name, counts and the words after them.
pub(crate) fn table(text: &str) -> Vec<(String, BTreeMap<CpuId, u64>, String)> {
    let mut lines = text.lines();
    let columns: Vec<CpuId> = lines
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .filter_map(|word| word.strip_prefix("CPU")?.parse().ok().map(CpuId))
        .collect();
    lines
        .filter_map(|line| {
            let (name, rest) = line.split_once(':')?;
            let mut words = rest.split_whitespace().peekable();
            let mut counts = BTreeMap::new();
            for cpu in &columns {
                // `ERR` and `MIS` have one number for the whole machine.
                let Some(count) = words.peek().and_then(|word| word.parse().ok()) else {
                    break;
                };
                counts.insert(*cpu, count);
                words.next();
            }
            let words: Vec<&str> = words.collect();
            (counts.len() == columns.len() || name.trim().parse::<u32>().is_ok())
                .then(|| (name.trim().to_owned(), counts, words.join(" ")))
        })
        .collect()
}

/// Returns every interrupt with its action.
pub(super) fn interrupts(root: &MachineRoot) -> Vec<ObservedInterrupt> {
    table(&root.text("proc/interrupts").unwrap_or_default())
        .into_iter()
        .map(|(name, counts, words)| {
            let numbered = name.parse::<u32>().is_ok();
            let directory = format!("proc/irq/{name}");
            let set = |file: &str| {
                numbered
                    .then(|| root.value::<CpuSet>(&format!("{directory}/{file}")))
                    .flatten()
            };
            // Controller, flow and action have no separator; the kernel has the last one alone in
            // another file.
            let action = if numbered {
                root.line(&format!("sys/kernel/irq/{name}/actions"))
                    .or_else(|| words.split_whitespace().next_back().map(str::to_owned))
                    .unwrap_or_default()
            } else {
                words
            };
            let fixed = name
                .parse()
                .is_ok_and(|number| is_fixed(root, number, &action));
            ObservedInterrupt {
                fixed,
                affinity: set("smp_affinity_list"),
                effective: set("effective_affinity_list"),
                action,
                name,
                counts,
            }
        })
        .collect()
}

fn is_fixed(root: &MachineRoot, number: u32, action: &str) -> bool {
    is_managed(root, number) == Some(true) || is_of_each_cpu(root, number, action)
}

/// Returns every kind of softirq.
pub(super) fn softirqs(root: &MachineRoot) -> Vec<ObservedCount> {
    table(&root.text("proc/softirqs").unwrap_or_default())
        .into_iter()
        .map(|(name, counts, _)| ObservedCount { name, counts })
        .collect()
}

/// Returns the online CPUs with their times.
pub(super) fn cpus(root: &MachineRoot, online: &CpuSet) -> BTreeMap<CpuId, ObservedCpu> {
    let stat = root.text("proc/stat").unwrap_or_default();
    let times: BTreeMap<CpuId, (u64, u64)> = stat.lines().filter_map(times).collect();
    online
        .iter()
        .map(|cpu| {
            let (busy, total) = times.get(&cpu).copied().unwrap_or_default();
            let siblings = root
                .value(&format!(
                    "sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"
                ))
                .unwrap_or_else(|| CpuSet::single(cpu));
            let time = |ticks: u64| Nanos(ticks.saturating_mul(TICK.0));
            let observed = ObservedCpu {
                busy: time(busy),
                total: time(total),
                siblings,
            };
            (cpu, observed)
        })
        .collect()
}

/// Returns busy and total time of one CPU in ticks: user nice system idle iowait irq softirq steal.
/// Steal time is busy, because no thread of this machine could use it.
fn times(line: &str) -> Option<(CpuId, (u64, u64))> {
    let mut words = line.split_whitespace();
    let cpu = words.next()?.strip_prefix("cpu")?.parse().ok()?;
    let ticks: Vec<u64> = words.map_while(|word| word.parse().ok()).collect();
    let total = ticks.get(..8)?.iter().sum::<u64>();
    let idle = ticks.get(3)?.saturating_add(*ticks.get(4)?);
    Some((CpuId(cpu), (total.saturating_sub(idle), total)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_the_columns_of_the_online_cpus() {
        let lines = table(
            "           CPU0       CPU2\n  8:          1          5   IO-APIC   8-edge      rtc0\n\
             LOC:        100        200   Local timer interrupts\nERR:          0\n nonsense\n",
        );
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert_eq!(lines[0].1.get(&CpuId(2)), Some(&5));
        assert_eq!(lines[0].2, "IO-APIC 8-edge rtc0");
        assert_eq!(lines[1].2, "Local timer interrupts");
        assert!(table("").is_empty());
    }

    #[test]
    fn idle_is_not_busy() {
        assert_eq!(
            times("cpu3 1 2 3 100 50 4 5 6 9 9"),
            Some((CpuId(3), (21, 171)))
        );
        assert_eq!(times("cpu  1 2 3 4 5 6 7 8"), None);
        assert_eq!(times("cpu1 1 2"), None);
    }
}
