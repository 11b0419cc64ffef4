// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Unwanted activity: one finding for each real-time CPU and kind of noise source, with or without a
//! plan.

use rampart_model::{CpuStatus, NoiseSource, NoiseSourceKind, Severity, StatusFinding, plural};

use super::{STATE_RULE, StateComparison, StateRule, commands, first_few};
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

pub(super) fn check(
    comparison: &StateComparison<'_>,
    cpus: &[CpuStatus],
    findings: &mut Vec<StatusFinding>,
) {
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
                findings.push(of_kind(comparison, cpu, kind, &sources));
            }
        }
    }
}

fn of_kind(
    comparison: &StateComparison<'_>,
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
    let housekeeping = &comparison.housekeeping;
    let numbers = || sources.iter().filter_map(|source| source.number);
    let move_threads = || {
        commands(
            numbers().map(|thread| format!("taskset --pid --cpu-list {housekeeping} {thread}")),
        )
    };
    let (rule, what, fix) = match kind {
        NoiseSourceKind::Process => (
            PROCESS,
            match comparison.plan {
                Some(_) => "processes that do not belong to the CPU's domain ran here",
                None => "ordinary threads ran here, on a CPU that is kept for real-time work",
            },
            match (&cpu.owner, comparison.plan) {
                (Some(owner), _) => format!(
                    "{} (rampart move PID --to {owner} for processes of the domain)",
                    move_threads()
                ),
                (None, Some(_)) => move_threads(),
                (None, None) => format!(
                    "{} (or, if they are the work of this CPU, apply a plan that gives it to them: \
                     rampart plan propose)",
                    move_threads()
                ),
            },
        ),
        NoiseSourceKind::KernelThread => (
            KERNEL_THREAD,
            "kernel threads that can run elsewhere ran here",
            format!(
                "{} (`rampart check` lists the settings that keep them away)",
                move_threads()
            ),
        ),
        NoiseSourceKind::CpuThread => (
            CPU_THREAD,
            "kernel threads that are bound to this CPU ran here",
            "`rampart knobs` lists the settings that reduce their work".to_owned(),
        ),
        NoiseSourceKind::Interrupt => (
            INTERRUPT,
            "interrupts that do not belong to the CPU's domain arrived here",
            commands(
                numbers()
                    .map(|number| format!("echo {housekeeping} > /proc/irq/{number}/smp_affinity_list")),
            ) + match comparison.plan {
                Some(_) => " (or give them to the domain with `interrupts` in the plan)",
                None => "",
            },
        ),
        NoiseSourceKind::Softirq => (
            SOFTIRQ,
            "softirqs of devices ran here",
            "move the interrupts that raise them, and the packet steering (rps_cpus) of their interfaces"
                .to_owned(),
        ),
        NoiseSourceKind::CrossCall => (
            CROSS_CALL,
            "other CPUs interrupted this CPU to run a function",
            "`rampart knobs` lists the settings that cause such calls".to_owned(),
        ),
    };
    let expected = match comparison.plan {
        Some(_) => "activity of its domain only",
        None => "real-time threads only",
    };
    rule.finding(cpu.owner.as_deref(), format!("CPU {}", cpu.cpu), what)
        .values(first_few(&names), expected)
        .fix(fix)
}
