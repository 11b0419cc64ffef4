// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A plan as its file, with comments for who reads it.

use std::collections::BTreeMap;

use rampart_model::Plan;
use serde::Serialize;

const HEAD: &str = "\
# A plan of Rampart: who owns which part of this machine.
#   rampart plan check FILE    does this machine fit it, and does it break a rule
#   rampart plan show FILE     who owns each CPU, interrupt, cache and memory node
# `rampart schema plan` describes every field.
";

/// Writes a plan. [`parse`](crate::parse) reads the same plan from it.
#[must_use]
pub fn write(plan: &Plan) -> String {
    write_with(plan, &BTreeMap::new())
}

/// The same, with comments before the domains, by their names.
pub(crate) fn write_with(plan: &Plan, comments: &BTreeMap<String, Vec<String>>) -> String {
    let mut text = format!("{HEAD}schema = {}\n", plan.schema);
    section(&mut text, "[machine]", &plan.machine);
    for domain in &plan.domains {
        text.push('\n');
        for comment in comments.get(&domain.name).into_iter().flatten() {
            for line in comment.lines() {
                text.push_str(&format!("# {line}\n"));
            }
        }
        fields(&mut text, "[[domain]]", domain);
    }
    if !plan.host.is_empty() {
        section(&mut text, "[host]", &plan.host);
    }
    if !plan.boot.is_empty() {
        section(&mut text, "[boot]", &plan.boot);
    }
    for waiver in &plan.waivers {
        section(&mut text, "[[waive]]", waiver);
    }
    text
}

fn section<T: Serialize>(text: &mut String, heading: &str, value: &T) {
    text.push('\n');
    fields(text, heading, value);
}

/// Each field on a line of its own; tables within stand in one line, as the plan's readers know
/// them from its documentation.
fn fields<T: Serialize>(text: &mut String, heading: &str, value: &T) {
    text.push_str(heading);
    text.push('\n');
    // The types of a plan are texts, numbers up to 32 bits, lists and tables with text keys, all of
    // which TOML has.
    let table = toml::Table::try_from(value).expect("the types of a plan are those of TOML");
    for (name, value) in &table {
        text.push_str(&format!("{} = {value}\n", key(name)));
    }
}

/// A key, in quotation marks where it needs them.
fn key(name: &str) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if !name.is_empty() && name.chars().all(bare) {
        return name.to_owned();
    }
    // A basic string on one line: what must be escaped there is escaped by number.
    let mut quoted = String::from("\"");
    for c in name.chars() {
        if c.is_control() || matches!(c, '"' | '\\') {
            quoted.push_str(&format!("\\U{:08X}", u32::from(c)));
        } else {
            quoted.push(c);
        }
    }
    quoted.push('"');
    quoted
}
