// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One finding for each real-time CPU and sort of noise source.

use rampart_model::{
    ActivePlan, CpuStatus, Finding, NoiseSource, NoiseSourceKind, Severity, StatusFinding,
    StatusFindingKind, plural,
};

use crate::{finding, some_of};

pub(crate) fn find(plan: &ActivePlan, cpus: &[CpuStatus], findings: &mut Vec<StatusFinding>) {
    for cpu in cpus {
        for kind in [
            NoiseSourceKind::Process,
            NoiseSourceKind::Interrupt,
            NoiseSourceKind::KernelThread,
            NoiseSourceKind::CpuThread,
            NoiseSourceKind::Softirq,
            NoiseSourceKind::CrossCall,
        ] {
            let came: Vec<&NoiseSource> = cpu
                .noise_sources
                .iter()
                .filter(|noise_source| noise_source.kind == kind)
                .collect();
            if !came.is_empty() {
                findings.push(of(plan, cpu, kind, &came));
            }
        }
    }
}

fn of(
    plan: &ActivePlan,
    cpu: &CpuStatus,
    kind: NoiseSourceKind,
    came: &[&NoiseSource],
) -> StatusFinding {
    let house = plan.resolved.housekeeping.to_string();
    let names: Vec<String> = came
        .iter()
        .map(|noise_source| match noise_source.cpu_time {
            Some(time) => format!("{}, {time}", noise_source.name),
            None => format!(
                "{}, {}",
                noise_source.name,
                plural(noise_source.count, "time")
            ),
        })
        .collect();
    let (sort, severity, what, fix) = match kind {
        NoiseSourceKind::Process => (
            StatusFindingKind::UnwantedProcess,
            Severity::Warning,
            "processes that are not of its domain ran here",
            match &cpu.owner {
                Some(_) => {
                    "give them other CPUs: taskset --pid --all-tasks --cpu-list HOUSEKEEPING PID, or make them part of the domain: rampart move PID --to OWNER"
                }
                None => {
                    "give them other CPUs: taskset --pid --all-tasks --cpu-list HOUSEKEEPING PID"
                }
            },
        ),
        NoiseSourceKind::KernelThread => (
            StatusFindingKind::UnwantedKernelWork,
            Severity::Warning,
            "threads of the kernel that could run elsewhere ran here",
            "rampart check names what keeps them away; by hand: taskset --pid --cpu-list HOUSEKEEPING THREAD",
        ),
        NoiseSourceKind::CpuThread => (
            StatusFindingKind::UnwantedKernelWork,
            Severity::Note,
            "threads of the kernel that belong to this CPU ran here",
            "rampart knobs tells what gives them less to do",
        ),
        NoiseSourceKind::Interrupt => (
            StatusFindingKind::UnwantedInterrupt,
            Severity::Warning,
            "interrupts that are not its domain's came here",
            "give them to the domain in the plan (`interrupts`), or: echo HOUSEKEEPING > /proc/irq/NUMBER/smp_affinity_list",
        ),
        NoiseSourceKind::Softirq => (
            StatusFindingKind::UnwantedInterrupt,
            Severity::Note,
            "softirqs of devices ran here",
            "move the interrupts that raise them, and the packet steering (rps_cpus) of their interfaces",
        ),
        NoiseSourceKind::CrossCall => (
            StatusFindingKind::UnwantedInterrupt,
            Severity::Note,
            "other CPUs made this one do something",
            "rampart knobs tells what causes such calls",
        ),
    };
    let fix = fix
        .replace("HOUSEKEEPING", &house)
        .replace("OWNER", cpu.owner.as_deref().unwrap_or_default());
    finding(
        sort,
        cpu.owner.as_deref(),
        Finding::new(severity, format!("CPU {}", cpu.cpu), what)
            .values(some_of(&names), "nothing but its domain")
            .fix(fix),
    )
}
