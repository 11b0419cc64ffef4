// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The catalogue as text: a list, one entry, and the page docs/knobs.md.

use rampart_model::{KnobCatalogue, KnobEntry, KnobGroup, RuleEntry};

use crate::text::wrapped;

/// Formats the catalogue with one line for each knob, by group.
#[must_use]
pub fn list_text(catalogue: &KnobCatalogue) -> String {
    let width = catalogue
        .knobs
        .iter()
        .map(|knob| knob.name.len())
        .max()
        .unwrap_or(0);
    let mut text = String::new();
    for group in KnobGroup::ALL {
        let mut knobs = catalogue
            .knobs
            .iter()
            .filter(|knob| knob.group == group)
            .peekable();
        if knobs.peek().is_none() {
            continue;
        }
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(&format!("{}\n", group.title()));
        for knob in knobs {
            text.push_str(&format!("  {:width$}  {}\n", knob.name, knob.title));
        }
    }
    for rules in books(catalogue) {
        text.push_str(&format!("\n{}\n", rules[0].book));
        for rule in rules {
            let indent = " ".repeat(width + 4);
            text += &wrapped(&format!("  {:width$}  ", rule.id), &indent, &rule.title);
        }
    }
    text
}

/// Returns the rules of each book that is not empty.
fn books(catalogue: &KnobCatalogue) -> impl Iterator<Item = &[RuleEntry]> {
    catalogue
        .rules
        .chunk_by(|one, other| one.book == other.book)
}

/// Formats one rule with all its fields.
#[must_use]
pub fn rule_text(rule: &RuleEntry) -> String {
    let mut text = wrapped("", "  ", &format!("{}: {}", rule.id, rule.title));
    for (label, words) in rule_rows(rule) {
        text += &wrapped(&format!("  {label:<9} "), "            ", &words);
    }
    text
}

fn rule_rows(rule: &RuleEntry) -> [(&'static str, String); 4] {
    let waivable = if rule.waivable {
        "; a plan may waive it"
    } else {
        ""
    };
    [
        ("judges", rule.book.clone()),
        ("why", rule.reason.clone()),
        ("source", rule.source.clone()),
        ("severity", format!("{}{waivable}", rule.severity)),
    ]
}

/// Formats one knob with all its fields.
#[must_use]
pub fn entry_text(knob: &KnobEntry) -> String {
    let mut text = format!("{}: {}\n", knob.name, knob.title);
    for (label, words) in rows(knob) {
        text += &wrapped(&format!("  {label:<9} "), "            ", &words);
    }
    text
}

/// Returns the fields of a knob as heading and text, in order.
fn rows(knob: &KnobEntry) -> Vec<(&'static str, String)> {
    let mut rows = vec![
        ("group", knob.group.title().to_owned()),
        ("where", knob.locations.join(", or ")),
        ("expected", knob.expected.clone()),
    ];
    if !knob.applies.is_empty() {
        rows.push(("matters", format!("for {}", knob.applies.join("; "))));
    }
    rows.push(("why", knob.reason.clone()));
    rows.push(("cost", knob.cost.clone()));
    let change = match &knob.disruptive {
        Some(how) => format!("{}; disruptive: {how}", knob.effect.words()),
        None => knob.effect.words().to_owned(),
    };
    rows.push(("change", change));
    for choice in &knob.choices {
        let words = format!(
            "{}: {} ({}: {})",
            choice.name, choice.expected, choice.who, choice.why
        );
        rows.push(("choice", words));
    }
    rows.push(("kernels", knob.kernels.clone()));
    rows.push(("verify", knob.verify.clone()));
    rows.push(("undo", knob.undo.clone()));
    rows.push(("source", knob.source.clone()));
    rows.push(("severity", knob.severity.to_string()));
    rows
}

/// Formats the page docs/knobs.md.
#[must_use]
pub fn page(catalogue: &KnobCatalogue) -> String {
    let mut text = String::from(
        "# Knobs\n\n\
         Everything about a Linux machine from kernel 5.10 on that is known to matter for real-time \
         work: where it is, what it should be, why, what that costs, and whose rule it is. \
         `rampart check` compares a machine with this list; `rampart knobs NAME` prints one entry.\n\n\
         The page is written by `RAMPART_UPDATE=1 cargo test -p rampart-rules --test page` from \
         `crates/machine/rules/src/catalogue`; do not edit it.\n\n\
         Parts in braces stand for each of their kind: `{real-time-cpu}` for each real-time CPU, \
         `{real-time-policy}` for each frequency policy that rules one, other words for every name \
         there. Where sources differ, the entry has choices: the first is taken unless a plan names \
         another.\n",
    );
    text.push_str(&format!("\n{} knobs:\n\n", catalogue.knobs.len()));
    for group in KnobGroup::ALL {
        let knobs: Vec<&KnobEntry> = catalogue
            .knobs
            .iter()
            .filter(|knob| knob.group == group)
            .collect();
        if !knobs.is_empty() {
            text.push_str(&format!("- {}: {}\n", group.title(), names(&knobs)));
        }
    }
    for group in KnobGroup::ALL {
        let mut first = true;
        for knob in catalogue.knobs.iter().filter(|knob| knob.group == group) {
            if first {
                text.push_str(&format!("\n## {}\n", group.title()));
                first = false;
            }
            entry_markdown(&mut text, knob);
        }
    }
    for rules in books(catalogue) {
        text.push_str(&format!("\n## Rules: {}\n\n", rules[0].book));
        for rule in rules {
            text.push_str(&format!(
                "- `{}` ({}): {}. {} Source: {}.\n",
                rule.id, rule.severity, rule.title, rule.reason, rule.source
            ));
        }
    }
    text
}

fn names(knobs: &[&KnobEntry]) -> String {
    let links: Vec<String> = knobs
        .iter()
        .map(|knob| format!("[{}](#{})", knob.name, knob.name))
        .collect();
    links.join(", ")
}

fn entry_markdown(text: &mut String, knob: &KnobEntry) {
    text.push_str(&format!(
        "\n### {}\n\n{}\n\n",
        knob.name,
        sentence(&knob.title)
    ));
    for (label, words) in rows(knob) {
        let words = match label {
            "group" => continue,
            "where" => knob
                .locations
                .iter()
                .map(|location| format!("`{location}`"))
                .collect::<Vec<_>>()
                .join(", or "),
            // Markdown interprets a bare `<` or `*` as markup.
            _ => words.replace('<', "\\<").replace('*', "\\*"),
        };
        text.push_str(&format!("- **{label}**: {words}\n"));
    }
}

/// Returns the title with a capital letter and a full stop.
fn sentence(title: &str) -> String {
    let mut characters = title.chars();
    let first: String = characters
        .next()
        .into_iter()
        .flat_map(char::to_uppercase)
        .collect();
    format!("{first}{}.", characters.as_str())
}
