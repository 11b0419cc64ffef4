// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Parses plans.

use std::ops::Range;

use rampart_model::{Plan, nearest};

use crate::error::PlanError;
use crate::kinds;
use crate::locations;

/// Examples of fields whose type is easily confused.
const EXAMPLES: [(&str, &str); 28] = [
    ("housekeeping", "housekeeping = \"0-1\""),
    ("fingerprint", "the text that `rampart plan show` prints"),
    ("smt", "smt = \"idle-sibling\""),
    (
        "policy",
        "policy = { fifo = 80 }; in [machine]: policy = \"strict\"",
    ),
    ("name", "name = \"press-control\""),
    ("kind", "kind = \"task\""),
    ("cpus", "cpus = \"2-3\", or cpus = { count = 2 }"),
    ("vcpus", "vcpus = { count = 2, policy = { fifo = 1 } }"),
    ("deadline", "deadline = \"100us\""),
    (
        "run",
        "run = [\"/opt/press/control\", \"--cycle\", \"1ms\"]",
    ),
    ("restart", "restart = \"on-failure\""),
    (
        "memory",
        "memory = { size = \"1GiB\", hugepage = \"2MiB\" }",
    ),
    ("size", "size = \"1GiB\""),
    ("hugepage", "hugepage = \"2MiB\""),
    ("emulator", "emulator = \"0\""),
    ("service", "service = \"0\""),
    ("devices", "devices = [\"0000:03:00.0\"]"),
    ("image", "image = \"/opt/press/press.bin\""),
    ("cell", "cell = { watchdog = \"100ms\" }"),
    ("watchdog", "watchdog = \"100ms\""),
    ("network", "network = [{ peer = \"root\" }]"),
    ("cache", "cache = { ways = 4, exclusive = true }"),
    (
        "threads",
        "threads = [{ match = \"worker*\", policy = { fifo = 50 } }]",
    ),
    ("interrupts", "interrupts = [{ action = \"eth1-*\" }]"),
    (
        "container",
        "container = { engine = \"podman\", image = \"NAME\" }",
    ),
    ("arguments", "arguments = [\"skew_tick=1\"]"),
    ("reboot", "reboot = \"plan\""),
    ("reason", "reason = \"why the rule does not matter here\""),
];

/// Parses a plan. Errors contain `file` as its name. A knob may have any name that
/// [`rampart_rules::find`] knows; the plan has those of the catalogue.
///
/// # Errors
/// If the text is not TOML, has unknown fields, values of a wrong type, or fields that exclude each
/// other. The error has line, column and the line itself.
pub fn parse(text: &str, file: &str) -> Result<Plan, PlanError> {
    let plan: Plan = toml::from_str(text).map_err(|error| {
        let span = error.span().unwrap_or(0..0);
        let what = error.message().replace('\n', ", ");
        let fix = known_word(error.message()).unwrap_or_else(|| fix(text, &span));
        PlanError::new(text, file, span, what, fix)
    })?;
    match kinds::first_fault(&plan) {
        Some(fault) => {
            let span = locations::span(text, &fault.steps());
            Err(PlanError::new(text, file, span, fault.what, fault.fix))
        }
        None => Ok(kinds::with_own_names(plan)),
    }
}

/// Returns the correction of an unknown field or value: the nearest of the words that serde's
/// message lists, as in "unknown field `deadlin`, expected one of `name`, `deadline`".
fn known_word(message: &str) -> Option<String> {
    if !message.starts_with("unknown ") {
        return None;
    }
    // Every second part is in backticks.
    let mut words = message.split('`').skip(1).step_by(2);
    let unknown = words.next()?;
    let near = nearest(unknown, words)?;
    Some(format!("write `{near}`"))
}

/// Returns the correction at a location: an example of the field there.
fn fix(text: &str, span: &Range<usize>) -> String {
    let before = text.get(..span.start).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    let field = text
        .get(line_start..)
        .and_then(|rest| rest.lines().next())
        .and_then(|line| {
            // The field whose value or name contains the location.
            let upto = span.start.saturating_sub(line_start);
            let lead = line.get(..upto).unwrap_or(line);
            lead.rsplit(['{', ',', '='])
                .map(str::trim)
                .find(|part| !part.is_empty())
                .or_else(|| line.split('=').next().map(str::trim))
        });
    let example = field.and_then(|field| {
        EXAMPLES
            .iter()
            .find(|(name, _)| *name == field)
            .map(|(_, example)| *example)
    });
    match example {
        Some(example) => format!("write for example: {example}"),
        None => "`rampart schema plan` describes every field".to_owned(),
    }
}
