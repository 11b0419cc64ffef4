// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Settings that isolation changes by default and that the plan leaves to others.

use rampart_model::{ChangeList, KnobAction, ResolvedPlan, StepAction};
use rampart_rules::chosen;

use crate::shield::KeptAway;
use crate::systemd;

const TIMERS: &str = "timer-migration";

/// Returns whether isolation must not change a knob: the plan leaves it to others, by its name or
/// with `default`, or its step is skipped. Reads the plan too, because a knob that the machine does
/// not have has no step.
fn is_left(plan: &ResolvedPlan, changes: &ChangeList, knob: &str) -> bool {
    let is_others =
        chosen(&plan.host, knob).is_some_and(|choice| choice.action != KnobAction::Apply);
    let mut steps = changes.steps.iter().filter(|step| step.name == knob);
    is_others || steps.any(|step| step.action == StepAction::Skip)
}

fn value<'a>(plan: &'a ResolvedPlan, knob: &str) -> Option<&'a str> {
    plan.host.get(knob)?.value.as_deref()
}

/// Returns what isolation keeps away from the real-time CPUs, and what the plan leaves to others.
pub(super) fn kept_away(plan: &ResolvedPlan, changes: &ChangeList) -> KeptAway {
    let is_left = |knob: &str| is_left(plan, changes, knob);
    KeptAway {
        leave_interrupts: is_left("interrupt-affinity"),
        leave_default_interrupts: is_left("default-interrupt-affinity"),
        leave_workqueues: is_left("unbound-workqueues"),
        leave_workqueue_masks: is_left("workqueue-masks"),
        // With a value in the plan, the knob has its own step or already has that value.
        leave_timers: is_left(TIMERS) || value(plan, TIMERS).is_some(),
        owned: plan
            .interrupts
            .iter()
            .filter(|interrupt| interrupt.owner.is_some())
            .map(|interrupt| (interrupt.number, interrupt.cpus.clone()))
            .collect(),
    }
}

/// Returns the units of systemd that are restricted to the housekeeping CPUs: all except those that
/// the plan leaves to others or to partitions alone.
pub(super) fn slices(plan: &ResolvedPlan, changes: &ChangeList) -> Vec<&'static str> {
    systemd::SLICES
        .iter()
        .filter(|(_, knob)| !is_left(plan, changes, knob) && value(plan, knob) != Some("partition"))
        .map(|(unit, _)| *unit)
        .collect()
}
