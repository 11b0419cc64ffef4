// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rampart knobs`: the catalogue.

use rampart_host::MachineRoot;
use rampart_model::{CheckFinding, ExitCode, KnobEntry};
use rampart_present::{Element, knob_entry, knob_list, knobs_page, markdown, rule_entry};
use rampart_rules::catalogue_document;

use crate::arguments::Knobs;
use crate::commands::VERSION;
use crate::failure::Failure;
use crate::output;

pub(crate) fn run(arguments: &Knobs, colour: bool) -> Result<ExitCode, Failure> {
    let mut catalogue = catalogue_document(VERSION);
    if arguments.markdown {
        output::print(&markdown(&knobs_page(&catalogue)))?;
        return Ok(ExitCode::Success);
    }
    if let Some(name) = &arguments.name {
        let id = id(name)?;
        catalogue.knobs.retain(|knob| knob.name == id);
        catalogue.rules.retain(|rule| rule.id == id);
        if !arguments.json {
            let elements = match (catalogue.knobs.first(), catalogue.rules.first()) {
                (None, Some(rule)) => rule_entry(rule),
                (knob, _) => knob.map(on_this_machine).unwrap_or_default(),
            };
            output::print_elements(&elements, colour)?;
            return Ok(ExitCode::Success);
        }
    }
    if arguments.json {
        output::print_json(&catalogue)?;
    } else {
        output::print_elements(&knob_list(&catalogue), colour)?;
    }
    Ok(ExitCode::Success)
}

/// Returns the id of the rule or knob that a user means.
fn id(name: &str) -> Result<&'static str, Failure> {
    if let Some(rule) = rampart_rules::rule(name) {
        return Ok(rule.id);
    }
    match rampart_rules::find(name) {
        Ok(knob) => Ok(knob.name),
        Err((what, fix)) => Err(Failure::usage(format!("{what}; {fix}"))),
    }
}

/// Returns one knob with its value on this machine, if that can be read.
fn on_this_machine(knob: &KnobEntry) -> Vec<Element> {
    let check = rampart_evaluate::check(&MachineRoot::system(), None, super::VERSION).ok();
    let finding = check.as_ref().and_then(|check| {
        let of_knob = |finding: &&CheckFinding| finding.rule == knob.name;
        check.findings.iter().find(of_knob)
    });
    knob_entry(knob, finding)
}
