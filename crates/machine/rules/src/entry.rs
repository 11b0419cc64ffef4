// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The catalogue of knobs as a document.

use rampart_model::{
    KNOB_CATALOGUE_SCHEMA_VERSION, KnobCatalogue, KnobEffect, KnobEntry, KnobOpinion, RuleEntry,
};

use crate::machine::compare::expected_text;
use crate::machine::fix::{undo, verify};
use crate::{Choice, Isolation, Knob, Location, Rule, RuleBook};

/// Returns the whole catalogue as a document.
#[must_use]
pub fn catalogue_document(tool_version: &str) -> KnobCatalogue {
    KnobCatalogue {
        schema_version: KNOB_CATALOGUE_SCHEMA_VERSION,
        tool_version: tool_version.to_owned(),
        knobs: crate::all().map(entry).collect(),
        rules: crate::all_rules().filter_map(rule_entry).collect(),
    }
}

/// Returns the entry of a rule in the document; `None` if the rule is a knob.
#[must_use]
pub fn rule_entry(rule: Rule) -> Option<RuleEntry> {
    let book = match rule.book {
        RuleBook::Machine | RuleBook::Guest => return None,
        RuleBook::Cells => "Machines with cells",
        RuleBook::Caller => "The user who runs a command",
        RuleBook::Plan => "Plans",
        RuleBook::State => "The state of an active plan",
    };
    Some(RuleEntry {
        id: rule.id.to_owned(),
        book: book.to_owned(),
        title: rule.title.to_owned(),
        reason: rule.reason.to_owned(),
        source: rule.source.to_owned(),
        severity: rule.severity,
        waivable: rule.waivable,
    })
}

/// Returns the entry of a knob in the document.
#[must_use]
pub fn entry(knob: &Knob) -> KnobEntry {
    KnobEntry {
        name: knob.name.to_owned(),
        title: knob.title.to_owned(),
        group: knob.group,
        locations: location_texts(knob.location),
        expected: expected_text(knob.expected, None),
        applies: knob.applies.iter().map(|when| when.words()).collect(),
        reason: knob.reason.to_owned(),
        cost: knob.cost.to_owned(),
        disruptive: knob.disruptive.map(str::to_owned),
        effect: effect(knob),
        kernels: knob.kernels.to_string(),
        verify: verify(knob),
        undo: undo(knob),
        source: knob.source.to_owned(),
        severity: knob.severity,
        choices: knob.choices.iter().map(|one| choice(one, None)).collect(),
    }
}

/// Returns when a change takes effect. Options of the kernel always need another kernel.
pub(crate) fn effect(knob: &Knob) -> KnobEffect {
    match knob.location {
        Location::KernelOption(_) => KnobEffect::WithAnotherKernel,
        _ => knob.effect,
    }
}

pub(crate) fn choice(choice: &Choice, isolation: Option<&Isolation>) -> KnobOpinion {
    KnobOpinion {
        name: choice.name.to_owned(),
        expected: expected_text(choice.expected, isolation),
        who: choice.who.to_owned(),
        why: choice.why.to_owned(),
    }
}

pub(crate) fn location_texts(location: Location) -> Vec<String> {
    let all = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
    let threads = |names: &[&str]| names.iter().map(|name| format!("thread {name}")).collect();
    match location {
        Location::File(_, paths) | Location::Exists(paths) => all(paths),
        Location::Boot { parameter, .. } => vec![format!("kernel command line: {parameter}=")],
        Location::KernelOption(option) => vec![option.to_owned()],
        Location::ThreadPolicy(names) | Location::ThreadAffinity(names) => threads(names),
        Location::Program(names) => names.iter().map(|name| format!("program {name}")).collect(),
        Location::KernelLog(texts) => texts
            .iter()
            .map(|text| format!("kernel log: {text}"))
            .collect(),
        Location::Fact(_, location) => vec![location.to_owned()],
        Location::Guest(location) => vec![location.to_owned()],
    }
}
