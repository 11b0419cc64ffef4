// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Writes plans as TOML with comments.

use std::collections::BTreeMap;

use rampart_model::Plan;
use serde::Serialize;

const HEAD: &str = "\
# A plan of Rampart: the owner of each part of this machine.
#   rampart plan check FILE    report the rules that it breaks on this machine
#   rampart plan show FILE     print the owner of each CPU, interrupt, cache and memory node
# `rampart schema plan` describes every field.
";

/// Returns a plan as TOML. [`parse`](crate::parse) returns the same plan.
#[must_use]
pub fn write(plan: &Plan) -> String {
    write_with(plan, &BTreeMap::new())
}

/// Returns a plan as TOML, with comments before the domains.
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
    for standby in &plan.standbys {
        section(&mut text, "[[standby]]", standby);
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

/// Writes each field on its own line; nested tables are inline, as in the documentation.
fn fields<T: Serialize>(text: &mut String, heading: &str, value: &T) {
    text.push_str(heading);
    text.push('\n');
    // A plan has only texts, numbers up to 32 bits, lists, and tables with text keys.
    let table = toml::Table::try_from(value).expect("the types of a plan are those of TOML");
    for (name, value) in &table {
        text.push_str(&format!("{} = {value}\n", key(name)));
    }
}

/// Returns a key, quoted if necessary.
fn key(name: &str) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if !name.is_empty() && name.chars().all(bare) {
        return name.to_owned();
    }
    // A basic string on one line, with escapes by number.
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
