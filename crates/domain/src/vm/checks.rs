// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether a guest's CPUs make sense on this machine: the rules that others learned the hard way.
//! Pure, but for the list of running programs.

use std::fs;

use rampart_model::{CpuSet, Finding, Machine, Severity};

use super::host::node_of;
use super::kernel::KERNEL_VARIABLE;

/// Programs that move interrupts and threads by themselves.
const RIVALS: [&str; 2] = ["irqbalance", "tuned"];

/// All rules, for a guest whose real-time virtual CPUs have `cpus`.
pub(super) fn all(
    machine: &Machine,
    cpus: &CpuSet,
    housekeeping: &CpuSet,
    real_time_kernel: Option<bool>,
) -> Vec<Finding> {
    let mut findings = rules(machine, cpus, housekeeping, real_time_kernel);
    findings.extend(running_rivals().into_iter().map(|name| {
        Finding::new(
            Severity::Warning,
            name.clone(),
            "this program moves interrupts or threads by itself and works against the guest's placement",
        )
        .values("running", "stopped, or told to leave these CPUs alone")
        .mend(format!("systemctl stop {name}"))
    }));
    findings
}

fn rules(
    machine: &Machine,
    cpus: &CpuSet,
    housekeeping: &CpuSet,
    real_time_kernel: Option<bool>,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    let topology = &machine.topology;
    let place = format!("CPUs {cpus} of the guest");
    let boot_cpu: CpuSet = topology.online.first().into_iter().collect();
    if !cpus.intersection(&boot_cpu).is_empty() {
        findings.push(
            Finding::new(
                Severity::Warning,
                place.clone(),
                "a real-time virtual CPU has the CPU that booted the machine, which the kernel gives work that it gives no other",
            )
            .values(cpus.to_string(), format!("CPUs without {boot_cpu}"))
            .mend("choose other CPUs with --cpus"),
        );
    }
    let shared: CpuSet = topology
        .cpus
        .iter()
        .filter(|cpu| cpus.contains(cpu.id))
        .flat_map(|cpu| cpu.siblings.iter().collect::<Vec<_>>())
        .filter(|sibling| !cpus.contains(*sibling))
        .collect();
    if !shared.is_empty() {
        let busy = shared.intersection(housekeeping);
        findings.push(
            Finding::new(
                Severity::Warning,
                place.clone(),
                if busy.is_empty() {
                    "a core is split: a sibling of a real-time CPU is not the guest's".to_owned()
                } else {
                    format!("a core is split between real-time and ordinary work: CPU {busy} keeps house beside it")
                },
            )
            .values(cpus.to_string(), format!("{} too, or CPU {shared} offline", cpus.union(&shared)))
            .mend(format!("echo 0 > /sys/devices/system/cpu/cpuN/online for CPU {shared}, or switch SMT off")),
        );
    }
    if topology.nodes.len() > 1 && node_of(cpus, topology).is_none() {
        findings.push(
            Finding::new(
                Severity::Warning,
                place.clone(),
                "the guest's CPUs are of several memory nodes, so part of its memory is far from some of them",
            )
            .mend("choose CPUs of one node with --cpus"),
        );
    }
    let capacities: Vec<u32> = topology
        .cpus
        .iter()
        .filter(|cpu| cpus.contains(cpu.id))
        .filter_map(|cpu| cpu.capacity)
        .collect();
    if capacities.iter().min() != capacities.iter().max() {
        findings.push(
            Finding::new(
                Severity::Warning,
                place,
                "the guest's CPUs differ in speed, which the guest does not know",
            )
            .mend("choose CPUs of one kind with --cpus"),
        );
    }
    if real_time_kernel == Some(false) {
        findings.push(
            Finding::new(
                Severity::Warning,
                "guest kernel",
                "the guest's kernel is not built for real time, so its latencies have no bound whatever the host does",
            )
            .values("no PREEMPT_RT", "PREEMPT_RT")
            .mend(format!("name a real-time kernel in {KERNEL_VARIABLE}")),
        );
    }
    findings
}

fn running_rivals() -> Vec<String> {
    let mut found: Vec<String> = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| fs::read_to_string(entry.path().join("comm")).ok())
        .map(|name| name.trim_end().to_owned())
        .filter(|name| RIVALS.contains(&name.as_str()))
        .collect();
    found.sort();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use rampart_model::{Cpu, CpuId, MemoryNode};

    use super::super::description::tests::set;
    use super::*;

    fn machine(siblings: &[&str], nodes: &[u32], capacities: &[u32]) -> Machine {
        let mut machine = rampart_host::read_machine(&rampart_host::MachineRoot::at("/nowhere"));
        machine.topology.online = (0..4).map(CpuId).collect();
        machine.topology.cpus = (0..4u32)
            .map(|number| {
                let at = number as usize;
                Cpu {
                    id: CpuId(number),
                    core: None,
                    package: None,
                    node: Some(nodes[at]),
                    siblings: set(siblings[at]),
                    capacity: Some(capacities[at]),
                }
            })
            .collect();
        machine.topology.nodes = vec![0, 1]
            .into_iter()
            .map(|id| MemoryNode {
                id,
                cpus: CpuSet::new(),
                memory: 1,
            })
            .collect();
        machine
    }

    #[test]
    fn a_sound_choice_has_no_findings() {
        let machine = machine(&["0", "1", "2", "3"], &[0, 0, 0, 0], &[1, 1, 1, 1]);
        assert_eq!(rules(&machine, &set("2-3"), &set("0-1"), Some(true)), []);
    }

    #[test]
    fn each_rule_is_held() {
        let machine = machine(&["0-1", "0-1", "2", "3"], &[0, 0, 0, 1], &[1, 1, 1, 2]);
        let text = |cpus: &str| {
            rules(&machine, &set(cpus), &set("0"), Some(false))
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join("\n")
        };
        assert!(text("1").contains("split between real-time and ordinary work"));
        assert!(text("2-3").contains("several memory nodes"));
        assert!(text("2-3").contains("differ in speed"));
        assert!(text("0").contains("booted the machine"));
        assert!(text("2").contains("PREEMPT_RT"));
    }
}
