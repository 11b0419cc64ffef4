// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Interrupts that can reach CPUs that the plan moved them away from.

use std::collections::BTreeMap;

use rampart_model::{ActivePlan, ChangeTarget, CpuSet, ObservedInterrupt, Severity, StatusFinding};

use super::drift::{interrupt_of, written};
use super::{STATE_RULE, StateComparison, StateRule, commands, first_few};
use crate::Rule;

pub(super) const INTERRUPT_MOVED: StateRule = StateRule::drift(Rule {
    id: "interrupt-moved",
    severity: Severity::Warning,
    title: "Interrupts arrive on the CPUs that the plan gave them",
    reason: "An interrupt on a real-time CPU delays the domain.",
    source: "Linux Documentation/core-api/irq/irq-affinity.rst",
    ..STATE_RULE
});

pub(super) const INTERRUPT_ROUTED: StateRule = StateRule::unwanted_activity(Rule {
    id: "interrupt-routed",
    severity: Severity::Warning,
    title: "Without a plan, no interrupt of a device is routed to a real-time CPU",
    reason: "It arrives there at any time, and its handler runs before every thread.",
    source: "Linux Documentation/core-api/irq/irq-affinity.rst",
    ..STATE_RULE
});

/// Reports interrupts that the kernel delivers to real-time CPUs of a machine without a plan.
pub(super) fn routed(comparison: &StateComparison<'_>, findings: &mut Vec<StatusFinding>) {
    let real_time = &comparison.real_time;
    let reaching: Vec<(u32, &ObservedInterrupt, CpuSet)> = comparison
        .later
        .interrupts
        .iter()
        .filter_map(|interrupt| {
            let number: u32 = interrupt.name.parse().ok()?;
            // Without an effective affinity the kernel may choose any CPU of the affinity.
            let effective = interrupt.effective.as_ref().filter(|cpus| !cpus.is_empty());
            let reached = effective.or(interrupt.affinity.as_ref())?;
            let on = reached.intersection(real_time);
            let reaches = !on.is_empty() && !is_fixed(comparison, number, interrupt);
            reaches.then_some((number, interrupt, on))
        })
        .collect();
    if reaching.is_empty() {
        return;
    }
    let names: Vec<String> = reaching
        .iter()
        .map(|(number, interrupt, on)| format!("{number} ({}) on {on}", interrupt.action))
        .collect();
    let housekeeping = &comparison.housekeeping;
    let fix = reaching
        .iter()
        .map(|(number, ..)| format!("echo {housekeeping} > /proc/irq/{number}/smp_affinity_list"));
    findings.push(
        INTERRUPT_ROUTED
            .finding(
                None,
                "/proc/irq",
                "interrupts of devices are routed to real-time CPUs",
            )
            .values(first_few(&names), housekeeping.named().to_string())
            .fix(commands(fix)),
    );
}

pub(super) fn check(
    comparison: &StateComparison<'_>,
    plan: &ActivePlan,
    findings: &mut Vec<StatusFinding>,
) {
    let assigned: BTreeMap<u32, CpuSet> = written(plan)
        .into_iter()
        .filter_map(|(_, location, _)| {
            let number = interrupt_of(&location.target)?;
            let cpus = match &location.target {
                ChangeTarget::CpuMaskFile(_) => location
                    .value
                    .parse()
                    .or_else(|_| CpuSet::from_mask(&location.value)),
                _ => location.value.parse(),
            };
            Some((number, cpus.ok()?))
        })
        .collect();
    let mut moved = Vec::new();
    for interrupt in &comparison.later.interrupts {
        let (Ok(number), Some(present)) = (interrupt.name.parse::<u32>(), &interrupt.affinity)
        else {
            continue;
        };
        let planned = plan.resolved.interrupts.iter().find(|planned| {
            planned.number == number
                && planned.action == interrupt.action
                && planned.owner.is_some()
        });
        let unplanned = match (assigned.get(&number), planned) {
            (Some(cpus), _) => present.difference(cpus),
            (None, Some(planned)) => present.difference(&planned.cpus),
            (None, None) if is_fixed(comparison, number, interrupt) => continue,
            (None, None) => interrupt
                .effective
                .as_ref()
                .unwrap_or(present)
                .intersection(&plan.resolved.real_time),
        };
        if !unplanned.is_empty() {
            moved.push(format!("{number} ({}) on {unplanned}", interrupt.action));
        }
    }
    if moved.is_empty() {
        return;
    }
    let housekeeping = &plan.resolved.housekeeping;
    findings.push(
        INTERRUPT_MOVED
            .finding(
                None,
                "/proc/irq",
                "interrupts can reach CPUs that the plan moved them away from",
            )
            .values(
                first_few(&moved),
                format!("housekeeping {}, or CPUs of their domain", housekeeping.named()),
            )
            .fix(format!(
                "echo {housekeeping} > /proc/irq/NUMBER/smp_affinity_list, for each, after the software that moves them is stopped (irqbalance, tuned)"
            )),
    );
}

/// Returns whether an interrupt cannot be moved: the kernel refused when the plan was applied or
/// manages its affinity, or it is a timer of each CPU.
fn is_fixed(comparison: &StateComparison<'_>, number: u32, interrupt: &ObservedInterrupt) -> bool {
    // A timer of each CPU counts on all CPUs and has no effective affinity. Number 0 is the timer
    // of every x86 machine.
    let online = &comparison.later.online;
    let of_each_cpu = interrupt.effective.is_none()
        && interrupt
            .affinity
            .as_ref()
            .is_some_and(|cpus| online.is_subset(cpus))
        && online
            .iter()
            .all(|cpu| interrupt.counts.get(&cpu).is_some_and(|count| *count > 0));
    let is_kept = comparison
        .plan
        .is_some_and(|plan| plan.kept_interrupts.contains(&number));
    is_kept || interrupt.fixed || of_each_cpu || number == 0
}
