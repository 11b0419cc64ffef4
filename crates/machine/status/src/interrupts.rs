// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Interrupts that may come again to CPUs that the plan took from them.

use std::collections::BTreeMap;

use rampart_model::{
    ActivePlan, ChangeTarget, CpuSet, Finding, ObservedInterrupt, Severity, StatusFinding,
    StatusFindingKind,
};

use crate::drift::{interrupt_of, written};
use crate::seen::Seen;
use crate::{finding, some_of};

pub(crate) fn find(seen: &Seen<'_>, plan: &ActivePlan, findings: &mut Vec<StatusFinding>) {
    let effective_settings: BTreeMap<u32, CpuSet> = written(plan)
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
    for interrupt in &seen.later.interrupts {
        let (Ok(number), Some(present)) = (interrupt.name.parse::<u32>(), &interrupt.affinity)
        else {
            continue;
        };
        let planned = plan.resolved.interrupts.iter().find(|planned| {
            planned.number == number
                && planned.action == interrupt.action
                && planned.owner.is_some()
        });
        let stray = match (effective_settings.get(&number), planned) {
            (Some(cpus), _) => present.difference(cpus),
            (None, Some(planned)) => present.difference(&planned.cpus),
            // Those of each CPU, and those that could not be moved when the plan was applied, are
            // where they were then.
            (None, None) if is_kept(plan, number, interrupt, seen) => continue,
            (None, None) => interrupt
                .effective
                .as_ref()
                .unwrap_or(present)
                .intersection(&plan.resolved.real_time),
        };
        if !stray.is_empty() {
            moved.push(format!("{number} ({}) on {stray}", interrupt.action));
        }
    }
    if moved.is_empty() {
        return;
    }
    findings.push(finding(
        StatusFindingKind::InterruptMoved,
        None,
        Finding::new(
            Severity::Warning,
            "/proc/irq",
            "interrupts may come to CPUs that the plan keeps them from",
        )
        .values(
            some_of(&moved),
            format!(
                "housekeeping {}, or their domain's",
                plan.resolved.housekeeping.named()
            ),
        )
        .fix(format!(
            "stop what moves them (irqbalance, tuned); echo {} > /proc/irq/NUMBER/smp_affinity_list",
            plan.resolved.housekeeping
        )),
    ));
}

/// Whether an interrupt was never ours to move: the kernel kept it when the plan was applied, or it is
/// the timer of each CPU.
fn is_kept(plan: &ActivePlan, number: u32, interrupt: &ObservedInterrupt, seen: &Seen<'_>) -> bool {
    // The timer of each CPU counts on all of them and is delivered to none in particular; number 0 is
    // that of every x86 machine.
    let online = &seen.later.online;
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
