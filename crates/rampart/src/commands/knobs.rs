// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rampart knobs`: the catalogue.

use rampart_model::ExitCode;
use rampart_present::{knob_entry, knob_list, knobs_page, markdown, rule_entry};
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
        catalogue.knobs.retain(|knob| knob.name == *name);
        catalogue.rules.retain(|rule| rule.id == *name);
        let elements = match (catalogue.knobs.first(), catalogue.rules.first()) {
            (Some(knob), _) => knob_entry(knob),
            (None, Some(rule)) => rule_entry(rule),
            (None, None) => return Err(unknown(name)),
        };
        if !arguments.json {
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

fn unknown(name: &str) -> Failure {
    let (what, fix) = rampart_rules::unknown(name);
    Failure::usage(format!("{what}; {fix}"))
}
