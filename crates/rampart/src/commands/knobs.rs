// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rampart knobs`: the catalogue.

use rampart_model::ExitCode;
use rampart_rules::{catalogue_document, entry_text, list_text, page, rule_text};

use crate::arguments::Knobs;
use crate::commands::VERSION;
use crate::failure::Failure;
use crate::output;

pub(crate) fn run(arguments: &Knobs) -> Result<ExitCode, Failure> {
    let mut catalogue = catalogue_document(VERSION);
    if arguments.markdown {
        output::print(&page(&catalogue))?;
        return Ok(ExitCode::Success);
    }
    if let Some(name) = &arguments.name {
        catalogue.knobs.retain(|knob| knob.name == *name);
        catalogue.rules.retain(|rule| rule.id == *name);
        let text = match (catalogue.knobs.first(), catalogue.rules.first()) {
            (Some(knob), _) => entry_text(knob),
            (None, Some(rule)) => rule_text(rule),
            (None, None) => return Err(unknown(name)),
        };
        if !arguments.json {
            output::print(&text)?;
            return Ok(ExitCode::Success);
        }
    }
    if arguments.json {
        output::print_json(&catalogue)?;
    } else {
        output::print(&list_text(&catalogue))?;
    }
    Ok(ExitCode::Success)
}

fn unknown(name: &str) -> Failure {
    let (what, fix) = rampart_rules::unknown(name);
    Failure::usage(format!("{what}; {fix}"))
}
