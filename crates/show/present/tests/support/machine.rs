// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An invented machine.

use rampart_model::{
    Cache, CacheKind, ClockSource, Cpu, CpuId, CpuSet, EvaluatedDomain, Finding, FrequencyFacts,
    IdleState, Machine, MemoryNode, Nanos, PreemptionModel, Severity, SystemManagementInterrupts,
    ThrottlingFacts, Topology, Virtualisation,
};

/// The machine whose CPUs are those of the domains and the housekeeping ones.
pub(crate) fn machine(housekeeping: &CpuSet, domains: &[EvaluatedDomain]) -> Machine {
    let online = domains
        .iter()
        .fold(housekeeping.clone(), |all, domain| all.union(&domain.cpus));
    let count = online.len() as u32;
    Machine {
        host_name: "press-line-3".to_owned(),
        processor: "AMD Ryzen Embedded V1605B with Radeon Vega Gfx".to_owned(),
        product: Some("Example Automation IPC-500".to_owned()),
        architecture: "x86_64".to_owned(),
        distribution: Some("Debian GNU/Linux 12 (bookworm)".to_owned()),
        kernel_release: "6.12.9-rt-amd64".to_owned(),
        kernel_version: "#1 SMP PREEMPT_RT Debian 6.12.9-1 (2025-01-10)".to_owned(),
        preemption: PreemptionModel::RealTime,
        command_line:
            "BOOT_IMAGE=/boot/vmlinuz-6.12.9-rt-amd64 root=UUID=6e1c ro quiet skew_tick=1"
                .to_owned(),
        tick_rate: Some(250),
        memory: 8 << 30,
        topology: Topology {
            possible: online.clone(),
            allowed: online.clone(),
            isolated: CpuSet::new(),
            nohz_full: CpuSet::new(),
            cpus: online
                .iter()
                .map(|id| Cpu {
                    id,
                    core: Some(id.0 / 2),
                    package: Some(0),
                    node: Some(0),
                    siblings: [CpuId(id.0 & !1), CpuId(id.0 | 1)]
                        .into_iter()
                        .filter(|sibling| online.contains(*sibling))
                        .collect(),
                    capacity: None,
                })
                .collect(),
            caches: caches(&online),
            nodes: vec![MemoryNode {
                id: 0,
                cpus: online.clone(),
                memory: 8 << 30,
            }],
            online,
        },
        clock_source: ClockSource {
            current: "tsc".to_owned(),
            available: ["tsc", "hpet", "acpi_pm"].map(str::to_owned).to_vec(),
        },
        idle_driver: Some("acpi_idle".to_owned()),
        idle_states: [("POLL", 0, false), ("C1", 1, false), ("C2", 400, false)]
            .map(|(name, micros, disabled)| IdleState {
                name: name.to_owned(),
                exit_latency: Nanos::from_micros(micros),
                disabled,
            })
            .to_vec(),
        frequency: FrequencyFacts {
            driver: Some("acpi-cpufreq".to_owned()),
            governors: vec![("schedutil".to_owned(), housekeeping.clone())],
            range_khz: Some((1_600_000, 2_000_000)),
            boost: Some(true),
        },
        throttling: ThrottlingFacts {
            runtime: Some(Nanos::from_millis(950)),
            period: Some(Nanos::SECOND),
            group_scheduling: Some(false),
            fair_server: Some((Nanos::from_millis(50), Nanos::SECOND)),
        },
        system_management_interrupts: SystemManagementInterrupts {
            at_start: Some(417),
            at_end: Some(419),
        },
        virtualisation: Virtualisation {
            hypervisor: None,
            emulated: false,
            steal: Some(0.0),
            container: None,
        },
        mitigations: [
            (
                "spectre_v1",
                "Mitigation: usercopy/swapgs barriers and __user pointer sanitization",
            ),
            (
                "spectre_v2",
                "Mitigation: Retpolines; IBPB: conditional; STIBP: disabled; RSB filling",
            ),
            (
                "retbleed",
                "Mitigation: untrained return thunk; SMT vulnerable",
            ),
            ("meltdown", "Not affected"),
        ]
        .map(|(name, state)| (name.to_owned(), state.to_owned()))
        .to_vec(),
        control_groups: "v2".to_owned(),
        transparent_huge_pages: Some("always".to_owned()),
        microcode: Some("0x810100b".to_owned()),
        findings: vec![
            Finding::new(
                Severity::Warning,
                "idle state C2",
                "waking from it alone takes longer than the deadline",
            )
            .values("400 µs, allowed", "less than 250 µs")
            .fix("boot with processor.max_cstate=1, or hold /dev/cpu_dma_latency open at 0"),
            Finding::new(
                Severity::Note,
                "cpufreq",
                "the governor changes the CPUs' speed while they are measured",
            )
            .values("schedutil", "performance")
            .fix(format!(
                "cpupower -c 0-{} frequency-set -g performance",
                count.saturating_sub(1)
            )),
        ],
    }
}

fn caches(online: &CpuSet) -> Vec<Cache> {
    let mut caches = Vec::new();
    let cores: std::collections::BTreeSet<u32> = online.iter().map(|cpu| cpu.0 / 2).collect();
    for core in cores {
        let shared_by: CpuSet = [CpuId(core * 2), CpuId(core * 2 + 1)]
            .into_iter()
            .filter(|cpu| online.contains(*cpu))
            .collect();
        for (level, kind, size) in [
            (1, CacheKind::Data, 32 << 10),
            (1, CacheKind::Instruction, 64 << 10),
            (2, CacheKind::Unified, 512 << 10),
        ] {
            caches.push(Cache {
                level,
                kind,
                size,
                shared_by: shared_by.clone(),
            });
        }
    }
    caches.push(Cache {
        level: 3,
        kind: CacheKind::Unified,
        size: 2 << 20,
        shared_by: online.clone(),
    });
    caches
}
