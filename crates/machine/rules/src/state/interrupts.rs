// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Interrupts that can reach CPUs that the plan moved them away from.

use std::collections::BTreeMap;

use rampart_model::{ActivePlan, ChangeTarget, CpuSet, ObservedInterrupt, Severity, StatusFinding};

use super::drift::{interrupt_of, written};
use super::{STATE_RULE, StateComparison, StateRule, first_few};
use crate::Rule;

pub(super) const INTERRUPT_MOVED: StateRule = StateRule::drift(Rule {
    id: "interrupt-moved",
    severity: Severity::Warning,
    title: "Interrupts arrive on the CPUs that the plan gave them",
    reason: "An interrupt on a real-time CPU delays the domain.",
    source: "Linux Documentation/core-api/irq/irq-affinity.rst",
    ..STATE_RULE
});

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
            (None, None) if is_fixed(comparison, plan, number, interrupt) => continue,
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

/// Returns whether the plan could not move an interrupt: the kernel refused when the plan was
/// applied, or it is a timer of each CPU.
fn is_fixed(
    comparison: &StateComparison<'_>,
    plan: &ActivePlan,
    number: u32,
    interrupt: &ObservedInterrupt,
) -> bool {
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
    plan.kept_interrupts.contains(&number) || of_each_cpu || number == 0
}
