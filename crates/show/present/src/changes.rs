// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The changes that applying a plan makes.

use rampart_model::{ChangeList, ChangeStep, StepAction, StepKind};

use crate::check::fix_items;
use crate::element::{Element, ListItem};
use crate::plan_picture::item;

/// Returns the changes of a plan in the order of their application, and the steps that change
/// nothing.
#[must_use]
pub fn changes(changes: &ChangeList) -> Vec<Element> {
    let mut elements = Vec::new();
    let of = |action: StepAction| {
        changes
            .steps
            .iter()
            .filter(move |step| step.action == action)
    };
    let mut section = |action: StepAction, title: &str, text: fn(&ChangeStep) -> String| {
        let items: Vec<ListItem> = of(action)
            .map(|step| {
                let fix = step.fix.iter().flat_map(|fix| fix_items(fix));
                let disruptive = step.disruptive.iter().map(|how| item("disruptive", how));
                ListItem {
                    items: fix.chain(disruptive).collect(),
                    ..item(&step.name, text(step))
                }
            })
            .collect();
        if !items.is_empty() {
            elements.push(Element::heading(2, format!("{title} ({})", items.len())));
            elements.push(Element::List { items });
        }
    };
    section(StepAction::Apply, "Changed now, in this order", changed);
    section(
        StepAction::AtRestart,
        "Changed by a restart after `rampart apply --boot`",
        |step| step.why.clone(),
    );
    section(
        StepAction::Expect,
        "Expected of other software, and different",
        values,
    );
    section(StepAction::ByHand, "To be changed manually", values);
    section(StepAction::Skip, "Skipped", |step| {
        format!("{}; {}", values(step), step.why)
    });
    let count = of(StepAction::AsWanted).count();
    elements.push(Element::heading(
        2,
        format!("Already as expected ({count})"),
    ));
    elements
}

fn values(step: &ChangeStep) -> String {
    format!("{}; expected {}", step.present, step.wanted)
}

fn changed(step: &ChangeStep) -> String {
    match (step.kind, step.locations.as_slice()) {
        (StepKind::Isolation, _) => format!("isolation: {}", step.wanted),
        (StepKind::Cache, _) => format!("cache: {}", step.wanted),
        (_, []) => format!("{}; {}", step.wanted, step.why),
        (_, [first, rest @ ..]) => {
            let more = match rest.len() {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            format!(
                "{} -> {}, {}{more}",
                first.present, first.value, first.location
            )
        }
    }
}
