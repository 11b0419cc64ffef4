// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Settings that isolation changes by default and that the plan leaves to others.

use rampart_model::{ChangeList, KnobAction, ResolvedPlan, StepAction};
use rampart_rules::chosen;

use crate::shield::KeptAway;
use crate::systemd;

const TIMERS: &str = "timer-migration";

/// Whether a knob that the walls move along with themselves is not theirs to move: the plan leaves it
/// to others, by its name or with `default`, or its step is left out to see what it does. The plan is
/// asked and not the steps alone: there is none for what a machine does not show.
fn is_left(plan: &ResolvedPlan, changes: &ChangeList, knob: &str) -> bool {
    let is_others =
        chosen(&plan.host, knob).is_some_and(|choice| choice.action != KnobAction::Apply);
    let mut steps = changes.steps.iter().filter(|step| step.name == knob);
    is_others || steps.any(|step| step.action == StepAction::Skip)
}

fn value<'a>(plan: &'a ResolvedPlan, knob: &str) -> Option<&'a str> {
    plan.host.get(knob)?.value.as_deref()
}

/// What the walls keep away from the real-time CPUs, and what they leave.
pub(super) fn kept_away(plan: &ResolvedPlan, changes: &ChangeList) -> KeptAway {
    let is_left = |knob: &str| is_left(plan, changes, knob);
    KeptAway {
        leave_interrupts: is_left("interrupt-affinity"),
        leave_default_interrupts: is_left("default-interrupt-affinity"),
        leave_workqueues: is_left("unbound-workqueues"),
        leave_workqueue_masks: is_left("workqueue-masks"),
        // Where the plan chooses, the knob has a step of its own, or is as chosen.
        leave_timers: is_left(TIMERS) || value(plan, TIMERS).is_some(),
        owned: plan
            .interrupts
            .iter()
            .filter(|interrupt| interrupt.owner.is_some())
            .map(|interrupt| (interrupt.number, interrupt.cpus.clone()))
            .collect(),
    }
}

/// The units of systemd that get their CPUs: not those that the plan leaves to others, nor those
/// whose CPUs it lets the partitions alone take away.
pub(super) fn slices(plan: &ResolvedPlan, changes: &ChangeList) -> Vec<&'static str> {
    systemd::SLICES
        .iter()
        .filter(|(_, knob)| !is_left(plan, changes, knob) && value(plan, knob) != Some("partition"))
        .map(|(unit, _)| *unit)
        .collect()
}
