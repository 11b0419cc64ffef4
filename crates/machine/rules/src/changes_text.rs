// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Formats a list of changes for the terminal.

use std::fmt::Write as _;

use rampart_model::{ChangeList, ChangeStep, StepAction, StepKind};

/// Formats the changes of a plan in the order of their application, and the steps that change
/// nothing.
#[must_use]
pub fn changes_text(changes: &ChangeList) -> String {
    let of = |action: StepAction| -> Vec<&ChangeStep> {
        changes
            .steps
            .iter()
            .filter(|step| step.action == action)
            .collect()
    };
    let mut text = String::new();
    let apply = of(StepAction::Apply);
    heading(&mut text, "Changed now, in this order", apply.len());
    for step in &apply {
        changed(&mut text, step);
    }
    let later = of(StepAction::AtRestart);
    heading(&mut text, "At a restart, with --boot", later.len());
    for step in &later {
        line(&mut text, step, &step.why);
    }
    let expected = of(StepAction::Expect);
    heading(&mut text, "Expected of others, and not so", expected.len());
    for step in &expected {
        let values = format!("is {}, expected {}", step.present, step.wanted);
        line(&mut text, step, &values);
    }
    let by_hand = of(StepAction::ByHand);
    heading(&mut text, "Not Rampart's to change", by_hand.len());
    for step in &by_hand {
        let values = format!("is {}, wanted {}", step.present, step.wanted);
        line(&mut text, step, &values);
        if let Some(fix) = &step.fix {
            let _ = writeln!(text, "      {fix}");
        }
    }
    let skipped = of(StepAction::Skip);
    heading(&mut text, "Left alone", skipped.len());
    for step in &skipped {
        let values = format!("is {}, wanted {}; {}", step.present, step.wanted, step.why);
        line(&mut text, step, &values);
    }
    let _ = writeln!(text, "{} as wanted already", of(StepAction::AsWanted).len());
    if apply.iter().any(|step| step.disruptive.is_some()) {
        text.push_str("! disturbs what runs while it is changed\n");
    }
    text
}

fn heading(text: &mut String, words: &str, count: usize) {
    if count > 0 {
        let _ = writeln!(text, "{words} ({count})");
    }
}

fn line(text: &mut String, step: &ChangeStep, rest: &str) {
    let mark = if step.disruptive.is_some() { '!' } else { ' ' };
    let _ = writeln!(text, "  {mark} {:<28} {rest}", step.name);
}

fn changed(text: &mut String, step: &ChangeStep) {
    match (step.kind, step.locations.as_slice()) {
        (StepKind::Isolation, _) => line(text, step, &format!("wall: {}", step.wanted)),
        (StepKind::Cache, _) => line(text, step, &format!("cache: {}", step.wanted)),
        (_, []) => line(text, step, &format!("{}; {}", step.wanted, step.why)),
        (_, [only]) => line(
            text,
            step,
            &format!("{} -> {}  {}", only.present, only.value, only.location),
        ),
        (_, [first, ..]) => line(
            text,
            step,
            &format!(
                "{} -> {}  {} and {} more",
                first.present,
                first.value,
                first.location,
                step.locations.len().saturating_sub(1)
            ),
        ),
    }
}
