// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether a guest's CPUs make sense on this machine: the rules that others learned the hard way.
//! Pure, but for the network devices and the kernel's configuration.

use rampart_host::{KernelConfig, MachineRoot};
use rampart_model::{CpuSet, Finding, Machine, Severity, plural};
use rampart_rules::MANAGER_RULES;

use super::guest_kernel::{GuestKernel, KERNEL_VARIABLE};
use super::host_support::node_of;

/// What the host's kernel must have been built with, and what is missing without it.
const OPTIONS: [(&str, &str); 4] = [
    (
        "CONFIG_NO_HZ_FULL",
        "its tick cannot be kept off a virtual CPU that runs alone",
    ),
    (
        "CONFIG_CPUSETS",
        "ordinary work cannot be kept off the guest's CPUs",
    ),
    (
        "CONFIG_HIGH_RES_TIMERS",
        "timers of the guest fire with the host's tick",
    ),
    ("CONFIG_KVM", "it runs no guests but emulated ones"),
];

/// All rules, for a guest with this kernel whose real-time virtual CPUs have `cpus`.
pub(super) fn all(
    machine: &Machine,
    cpus: &CpuSet,
    housekeeping: &CpuSet,
    kernel: &GuestKernel,
) -> Vec<Finding> {
    let mut findings = rules(machine, cpus, housekeeping);
    findings.extend(not_real_time(kernel));
    let root = MachineRoot::system();
    // Read once: where it is packed, each reading takes milliseconds.
    let config = KernelConfig::read(&root);
    findings.extend(missing_options(|option| config.is_set(option)));
    findings.extend(network_queues(&root, housekeeping));
    findings.extend(managers(&root, machine, cpus));
    findings
}

fn rules(machine: &Machine, cpus: &CpuSet, housekeeping: &CpuSet) -> Vec<Finding> {
    let mut findings = Vec::new();
    let topology = &machine.topology;
    let location = format!("{} of the guest", cpus.named());
    let boot_cpu: CpuSet = topology.online.first().into_iter().collect();
    if !cpus.intersection(&boot_cpu).is_empty() {
        findings.push(
            Finding::new(
                Severity::Warning,
                location.clone(),
                "a real-time virtual CPU has the CPU that booted the machine, which the kernel gives work that it gives no other",
            )
            .values(cpus.to_string(), format!("CPUs without {boot_cpu}"))
            .fix("choose other CPUs with --cpus"),
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
                location.clone(),
                if busy.is_empty() {
                    "a core is split: a sibling of a real-time CPU is not the guest's".to_owned()
                } else {
                    format!("a core is split between real-time and ordinary work, which is on {} beside it", busy.named())
                },
            )
            .values(cpus.to_string(), format!("{} too, or {} offline", cpus.union(&shared), shared.named()))
            .fix(format!("echo 0 > /sys/devices/system/cpu/cpuN/online for {}, or switch SMT off", shared.named())),
        );
    }
    if topology.nodes.len() > 1 && node_of(cpus, topology).is_none() {
        findings.push(
            Finding::new(
                Severity::Warning,
                location.clone(),
                "the guest's CPUs are of several memory nodes, so part of its memory is far from some of them",
            )
            .fix("choose CPUs of one node with --cpus"),
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
                location,
                "the guest's CPUs differ in speed, which the guest does not know",
            )
            .fix("choose CPUs of one kind with --cpus"),
        );
    }
    findings
}

/// A guest's kernel that says that it is not built for real time.
pub(super) fn not_real_time(kernel: &GuestKernel) -> Option<Finding> {
    (kernel.is_real_time() == Some(false)).then(|| {
        Finding::new(
            Severity::Warning,
            kernel.image.display().to_string(),
            "the guest's kernel is not built for real time, so its latencies have no bound whatever the host does",
        )
        .values(kernel.version.clone(), "PREEMPT_RT")
        .fix(format!(
            "install a real-time kernel (on Debian: linux-image-rt-amd64) and name it in {KERNEL_VARIABLE}"
        ))
    })
}

/// Options that the host's kernel is known to lack.
fn missing_options(is_set: impl Fn(&str) -> Option<bool>) -> Vec<Finding> {
    OPTIONS
        .iter()
        .filter(|(option, _)| is_set(option) == Some(false))
        .map(|(option, without)| {
            Finding::new(
                Severity::Error,
                format!("{option} of the host's kernel"),
                format!("the kernel was built without it, so {without}"),
            )
            .values("not set", "y")
            .fix("boot a kernel that has it (Debian's linux-image-rt-amd64 does)")
        })
        .collect()
}

/// Network devices with more queues than there are CPUs to serve them: each queue has an interrupt
/// of its own, and the surplus lands on real-time CPUs.
fn network_queues(root: &MachineRoot, housekeeping: &CpuSet) -> Vec<Finding> {
    let mut findings = Vec::new();
    for device in rampart_host::network_queues(root).unwrap_or_default() {
        let (name, queues) = (device.interface, device.queues);
        if usize::try_from(queues).unwrap_or(usize::MAX) > housekeeping.len() {
            findings.push(
                Finding::new(
                    Severity::Warning,
                    format!("network device {name}"),
                    "it has more queues than there are housekeeping CPUs, and the interrupts of the rest may come on real-time ones",
                )
                .values(
                    plural(queues, "queue"),
                    format!("{} at most", housekeeping.len()),
                )
                .fix(format!(
                    "ethtool -L {name} combined {}; Rampart leaves the machine's devices to its owner, because the link goes down for a moment",
                    housekeeping.len().max(1)
                )),
            );
        }
    }
    findings.sort_by(|one, other| one.location.cmp(&other.location));
    findings
}

/// Returns a finding for each running program that works against the guest's placement.
fn managers(root: &MachineRoot, machine: &Machine, cpus: &CpuSet) -> Vec<Finding> {
    let findings = rampart_host::read_figure_findings(root, machine, cpus);
    let is_manager = |finding: &Finding| {
        let rule = finding.rule.as_deref();
        rule.is_some_and(|rule| MANAGER_RULES.contains(&rule))
    };
    findings.into_iter().filter(is_manager).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

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
        assert_eq!(rules(&machine, &set("2-3"), &set("0-1")), []);
    }

    #[test]
    fn each_rule_is_held() {
        let machine = machine(&["0-1", "0-1", "2", "3"], &[0, 0, 0, 1], &[1, 1, 1, 2]);
        let text = |cpus: &str| {
            rules(&machine, &set(cpus), &set("0"))
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join("\n")
        };
        assert!(text("1").contains("split between real-time and ordinary work"));
        assert!(text("2-3").contains("several memory nodes"));
        assert!(text("2-3").contains("differ in speed"));
        assert!(text("0").contains("booted the machine"));
    }

    #[test]
    fn reports_the_programs_that_manage_the_machine() {
        let directory = tempfile::tempdir().expect("directory");
        let programs = [
            (2, "kthreadd"),
            (7, "stalld"),
            (8, "tuned"),
            (9, "sh"),
            (10, "irqbalance"),
        ];
        for (process, name) in programs {
            let path = directory.path().join(format!("proc/{process}"));
            fs::create_dir_all(&path).expect("directory");
            fs::write(path.join("comm"), format!("{name}\n")).expect("file");
            let stat = format!(
                "{process} ({name}) S 0 0 0 0 -1 {} {}0\n",
                if process == 2 { 0x0020_0000 } else { 0 },
                "0 ".repeat(42)
            );
            fs::write(path.join("stat"), stat).expect("file");
        }
        let root = MachineRoot::at(directory.path());
        let machine = rampart_host::read_machine(&root);
        let findings = managers(&root, &machine, &CpuSet::new());
        let rules: Vec<_> = findings
            .iter()
            .filter_map(|one| one.rule.as_deref())
            .collect();
        assert_eq!(rules, ["irqbalance", "tuned", "stalld"]);
        assert!(findings.iter().all(|finding| finding.fix.is_some()));
    }

    #[test]
    fn a_guests_kernel_that_is_not_real_time_is_told() {
        let mut kernel = GuestKernel {
            image: "/boot/vmlinuz".into(),
            release: "6.1".to_owned(),
            version: "#1 SMP PREEMPT_DYNAMIC".to_owned(),
            modules: None,
        };
        let finding = not_real_time(&kernel).expect("a finding").to_string();
        assert!(finding.contains("expected PREEMPT_RT"), "{finding}");
        kernel.version = "#1 SMP PREEMPT_RT".to_owned();
        assert_eq!(not_real_time(&kernel), None);
        kernel.version = String::new();
        assert_eq!(not_real_time(&kernel), None, "unknown");
    }

    #[test]
    fn options_that_are_missing_and_not_those_that_are_unknown_are_told() {
        assert!(missing_options(|_| None).is_empty());
        assert!(missing_options(|_| Some(true)).is_empty());
        let findings = missing_options(|option| Some(option != "CONFIG_CPUSETS"));
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].severity, Severity::Error);
        assert!(findings[0].location.contains("CONFIG_CPUSETS"));
    }

    #[test]
    fn more_queues_than_housekeeping_cpus_are_told() {
        let directory = tempfile::tempdir().expect("directory");
        let make = |path: &str| {
            let path = directory.path().join("sys/class/net").join(path);
            fs::create_dir_all(path).expect("directory");
        };
        for number in 0..4 {
            make(&format!("eth0/queues/rx-{number}"));
            make(&format!("eth0/queues/tx-{number}"));
            make(&format!("veth0/queues/rx-{number}"));
        }
        make("eth0/device");
        make("eth1/device");
        make("eth1/queues/rx-0");
        let findings = network_queues(&MachineRoot::at(directory.path()), &set("0-1"));
        assert_eq!(findings.len(), 1, "{findings:?}");
        let text = findings[0].to_string();
        assert!(
            text.contains("eth0") && text.contains("combined 2"),
            "{text}"
        );
        assert!(network_queues(&MachineRoot::at(directory.path()), &set("0-3")).is_empty());
    }
}
