// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rampart knobs`: the catalogue.

use clap::Args;
use rampart_host::MachineRoot;
use rampart_model::{CheckFinding, ExitCode, KnobEntry};
use rampart_present::{Element, knob_entry, knob_list, knobs_page, markdown, rule_entry};
use rampart_rules::catalogue_document;

use crate::commands::VERSION;
use crate::failure::Failure;
use crate::output;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  rampart knobs                      all settings by group
  rampart knobs timer-migration      one setting: its value on this machine, the
                                     expected one, reason, cost, source
  rampart knobs sched_rt_runtime_us  by the name of the kernel
  rampart knobs isolcpus --on ssh:root@board")]
pub(crate) struct Knobs {
    /// Setting to show in full: its name, or that of the kernel, such as a boot
    /// parameter, a sysctl, a file or a kernel thread
    pub(crate) name: Option<String>,

    /// Print the settings as JSON
    #[arg(long, conflicts_with = "markdown", help_heading = "Output")]
    pub(crate) json: bool,

    /// Print docs/knobs.md
    #[arg(long, conflicts_with = "name", help_heading = "Output")]
    pub(crate) markdown: bool,

    #[command(flatten)]
    pub(crate) on: super::on::On,
}

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
