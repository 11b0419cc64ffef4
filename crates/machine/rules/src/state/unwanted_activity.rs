// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Unwanted activity: one finding for each real-time CPU and kind of noise source.

use rampart_model::{
    ActivePlan, CpuStatus, NoiseSource, NoiseSourceKind, Severity, StatusFinding, plural,
};

use super::{STATE_RULE, StateRule, first_few};
use crate::Rule;

pub(super) const PROCESS: StateRule = StateRule::unwanted_activity(Rule {
    id: "unwanted-process",
    severity: Severity::Warning,
    title: "No process of another owner runs on a real-time CPU",
    reason: "It delays the domain, or is delayed without bound by it.",
    ..STATE_RULE
});

pub(super) const INTERRUPT: StateRule = StateRule::unwanted_activity(Rule {
    id: "unwanted-interrupt",
    severity: Severity::Warning,
    title: "No interrupt of a device that the domain does not own arrives on a real-time CPU",
    reason: "The handler runs before every thread of the domain.",
    source: "Linux Documentation/core-api/irq/irq-affinity.rst",
    ..STATE_RULE
});

pub(super) const KERNEL_THREAD: StateRule = StateRule::unwanted_activity(Rule {
    id: "unwanted-kernel-thread",
    severity: Severity::Warning,
    title: "No kernel thread that can run elsewhere runs on a real-time CPU",
    reason: "Its affinity can be changed.",
    source: "Linux Documentation/admin-guide/kernel-per-CPU-kthreads.rst",
    ..STATE_RULE
});

pub(super) const CPU_THREAD: StateRule = StateRule::unwanted_activity(Rule {
    id: "unwanted-cpu-thread",
    severity: Severity::Note,
    title: "Few kernel threads that are bound to a real-time CPU run there",
    reason: "They cannot be moved; knobs reduce their work.",
    source: "Linux Documentation/admin-guide/kernel-per-CPU-kthreads.rst",
    ..STATE_RULE
});

pub(super) const SOFTIRQ: StateRule = StateRule::unwanted_activity(Rule {
    id: "unwanted-softirq",
    severity: Severity::Note,
    title: "No softirq of a device runs on a real-time CPU",
    reason: "A softirq runs on the CPU where its interrupt arrived or where packets are steered to.",
    source: "Linux Documentation/networking/scaling.rst",
    ..STATE_RULE
});

pub(super) const CROSS_CALL: StateRule = StateRule::unwanted_activity(Rule {
    id: "unwanted-cross-call",
    severity: Severity::Note,
    title: "Few calls of other CPUs interrupt a real-time CPU",
    reason: "The kernel calls other CPUs for TLB flushes, membarrier and the like.",
    source: "Linux Documentation/admin-guide/kernel-per-CPU-kthreads.rst",
    ..STATE_RULE
});

pub(super) fn check(plan: &ActivePlan, cpus: &[CpuStatus], findings: &mut Vec<StatusFinding>) {
    for cpu in cpus {
        for kind in [
            NoiseSourceKind::Process,
            NoiseSourceKind::Interrupt,
            NoiseSourceKind::KernelThread,
            NoiseSourceKind::CpuThread,
            NoiseSourceKind::Softirq,
            NoiseSourceKind::CrossCall,
        ] {
            let sources: Vec<&NoiseSource> = cpu
                .noise_sources
                .iter()
                .filter(|source| source.kind == kind)
                .collect();
            if !sources.is_empty() {
                findings.push(of_kind(plan, cpu, kind, &sources));
            }
        }
    }
}

fn of_kind(
    plan: &ActivePlan,
    cpu: &CpuStatus,
    kind: NoiseSourceKind,
    sources: &[&NoiseSource],
) -> StatusFinding {
    let names: Vec<String> = sources
        .iter()
        .map(|source| match source.cpu_time {
            Some(time) => format!("{}, {time}", source.name),
            None => format!("{}, {}", source.name, plural(source.count, "time")),
        })
        .collect();
    let (rule, what, fix) = match kind {
        NoiseSourceKind::Process => (
            PROCESS,
            "processes that do not belong to the CPU's domain ran here",
            match &cpu.owner {
                Some(_) => {
                    "taskset --pid --all-tasks --cpu-list HOUSEKEEPING PID, for each (rampart move PID --to OWNER for processes of the domain)"
                }
                None => "taskset --pid --all-tasks --cpu-list HOUSEKEEPING PID, for each",
            },
        ),
        NoiseSourceKind::KernelThread => (
            KERNEL_THREAD,
            "kernel threads that can run elsewhere ran here",
            "taskset --pid --cpu-list HOUSEKEEPING THREAD, for each (`rampart check` lists the settings that keep them away)",
        ),
        NoiseSourceKind::CpuThread => (
            CPU_THREAD,
            "kernel threads that are bound to this CPU ran here",
            "`rampart knobs` lists the settings that reduce their work",
        ),
        NoiseSourceKind::Interrupt => (
            INTERRUPT,
            "interrupts that do not belong to the CPU's domain arrived here",
            "echo HOUSEKEEPING > /proc/irq/NUMBER/smp_affinity_list, for each (or give them to the domain with `interrupts` in the plan)",
        ),
        NoiseSourceKind::Softirq => (
            SOFTIRQ,
            "softirqs of devices ran here",
            "move the interrupts that raise them, and the packet steering (rps_cpus) of their interfaces",
        ),
        NoiseSourceKind::CrossCall => (
            CROSS_CALL,
            "other CPUs interrupted this CPU to run a function",
            "`rampart knobs` lists the settings that cause such calls",
        ),
    };
    let fix = fix
        .replace("HOUSEKEEPING", &plan.resolved.housekeeping.to_string())
        .replace("OWNER", cpu.owner.as_deref().unwrap_or_default());
    rule.finding(cpu.owner.as_deref(), format!("CPU {}", cpu.cpu), what)
        .values(first_few(&names), "activity of its domain only")
        .fix(fix)
}
