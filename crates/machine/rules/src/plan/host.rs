// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rules of the `[host]` section.

use rampart_model::{KnobAction, PlanFinding, Severity};

use super::{PLAN_RULE, PlanContext};
use crate::Rule;

pub(super) const HOST_SETTINGS: Rule = Rule {
    id: "host-settings",
    severity: Severity::Warning,
    title: "Every knob that the plan applies is a file, a boot parameter or a thread",
    reason: "Rampart cannot write other settings, so `apply` has no effect on them.",
    source: "Rampart",
    ..PLAN_RULE
};

pub(super) fn settable(context: &PlanContext<'_>) -> Vec<PlanFinding> {
    let has_huge_pages = || {
        let mut domains = context.resolved.domains.iter();
        domains.any(|domain| domain.huge_pages.is_some())
    };
    context
        .plan
        .host
        .iter()
        .filter(|(_, choice)| choice.action == KnobAction::Apply)
        .filter_map(|(name, _)| crate::named(name))
        .filter(|knob| !knob.is_settable())
        // Huge pages are reserved if a guest has them.
        .filter(|knob| knob.name != "huge-pages" || !has_huge_pages())
        .map(|knob| {
            HOST_SETTINGS
                .of_machine(
                    format!("[host] {}", knob.name),
                    format!("Rampart cannot set this knob: {}", knob.title),
                )
                .values("apply", "expect, or skip")
                .fix(format!("write {} = \"expect\"", knob.name))
        })
        .collect()
}
