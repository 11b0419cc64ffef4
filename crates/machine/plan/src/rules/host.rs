// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Settings of the machine.

use rampart_model::{KnobAction, PlanFinding, Severity};

use super::{Context, Say, machine};

pub(super) fn settable(context: &Context<'_>) -> Vec<PlanFinding> {
    context
        .plan
        .host
        .iter()
        .filter(|(_, choice)| choice.action == KnobAction::Apply)
        .filter_map(|(name, _)| rampart_rules::named(name))
        .filter(|knob| !knob.is_settable())
        // What its guests need is set, and what no guest needs is nobody's to say.
        .filter(|knob| knob.name != "huge-pages" || !has_huge_pages(context))
        .map(|knob| {
            machine(
                "host-settings",
                Severity::Warning,
                format!("[host] {}", knob.name),
                format!("Rampart cannot set it: {}", knob.title),
            )
            .values("apply", "expect, or skip")
            .fix(format!("write {} = \"expect\"", knob.name))
        })
        .collect()
}

fn has_huge_pages(context: &Context<'_>) -> bool {
    let mut domains = context.resolved.domains.iter();
    domains.any(|domain| domain.huge_pages.is_some())
}
