// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One finding for each real-time CPU and sort of intruder.

use rampart_model::{
    CpuStatus, Finding, Intruder, IntruderKind, Severity, StandingPlan, StatusFinding,
    StatusFindingKind, plural,
};

use crate::{finding, some_of};

pub(crate) fn find(plan: &StandingPlan, cpus: &[CpuStatus], findings: &mut Vec<StatusFinding>) {
    for cpu in cpus {
        for kind in [
            IntruderKind::Process,
            IntruderKind::Interrupt,
            IntruderKind::KernelThread,
            IntruderKind::CpuThread,
            IntruderKind::Softirq,
            IntruderKind::CrossCall,
        ] {
            let came: Vec<&Intruder> = cpu
                .intruders
                .iter()
                .filter(|intruder| intruder.kind == kind)
                .collect();
            if !came.is_empty() {
                findings.push(of(plan, cpu, kind, &came));
            }
        }
    }
}

fn of(
    plan: &StandingPlan,
    cpu: &CpuStatus,
    kind: IntruderKind,
    came: &[&Intruder],
) -> StatusFinding {
    let house = plan.resolved.housekeeping.to_string();
    let names: Vec<String> = came
        .iter()
        .map(|intruder| match intruder.cpu_time {
            Some(time) => format!("{}, {time}", intruder.name),
            None => format!("{}, {}", intruder.name, plural(intruder.count, "time")),
        })
        .collect();
    let (sort, severity, what, mend) = match kind {
        IntruderKind::Process => (
            StatusFindingKind::ProcessIntruded,
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
        IntruderKind::KernelThread => (
            StatusFindingKind::KernelIntruded,
            Severity::Warning,
            "threads of the kernel that could run elsewhere ran here",
            "rampart check names what keeps them away; by hand: taskset --pid --cpu-list HOUSEKEEPING THREAD",
        ),
        IntruderKind::CpuThread => (
            StatusFindingKind::KernelIntruded,
            Severity::Note,
            "threads of the kernel that belong to this CPU ran here",
            "rampart knobs tells what gives them less to do",
        ),
        IntruderKind::Interrupt => (
            StatusFindingKind::InterruptIntruded,
            Severity::Warning,
            "interrupts that are not its domain's came here",
            "give them to the domain in the plan (`interrupts`), or: echo HOUSEKEEPING > /proc/irq/NUMBER/smp_affinity_list",
        ),
        IntruderKind::Softirq => (
            StatusFindingKind::InterruptIntruded,
            Severity::Note,
            "softirqs of devices ran here",
            "move the interrupts that raise them, and the packet steering (rps_cpus) of their interfaces",
        ),
        IntruderKind::CrossCall => (
            StatusFindingKind::InterruptIntruded,
            Severity::Note,
            "other CPUs made this one do something",
            "rampart knobs tells what causes such calls",
        ),
    };
    let mend = mend
        .replace("HOUSEKEEPING", &house)
        .replace("OWNER", cpu.owner.as_deref().unwrap_or_default());
    finding(
        sort,
        cpu.owner.as_deref(),
        Finding::new(severity, format!("CPU {}", cpu.cpu), what)
            .values(some_of(&names), "nothing but its domain")
            .mend(mend),
    )
}
