// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The catalogue of rules: a list, one entry, and the page docs/knobs.md.

use rampart_model::{CheckFinding, CheckState, KnobCatalogue, KnobEntry, KnobGroup, RuleEntry};

use crate::element::{
    Column, ColumnKind, Element, Pair, Row, RowGroup, SpanStyle, Table, TableStyle, Text,
};
use crate::plan_picture::item;

/// Returns the ids and titles of all knobs, by group, and of all other rules.
#[must_use]
pub fn knob_list(catalogue: &KnobCatalogue) -> Vec<Element> {
    let row = |id: &str, title: &str| Row::new(vec![id.into(), Text::prose(title).into()]);
    let knobs = groups(catalogue).map(|(group, knobs)| RowGroup {
        name: group.title().to_owned(),
        rows: knobs.map(|knob| row(&knob.name, &knob.title)).collect(),
        ..RowGroup::default()
    });
    let rules = books(catalogue).map(|rules| RowGroup {
        name: rules[0].book.clone(),
        rows: rules
            .iter()
            .map(|rule| row(&rule.id, &rule.title))
            .collect(),
        ..RowGroup::default()
    });
    vec![Element::Table(Table {
        groups: knobs.chain(rules).collect(),
        ..Table::new(
            TableStyle::Figures,
            "rules",
            vec![
                Column::new(ColumnKind::Name, "rule"),
                Column::new(ColumnKind::Text, "expected"),
            ],
            Vec::new(),
        )
    })]
}

/// Returns each group that is not empty, with its knobs.
fn groups(
    catalogue: &KnobCatalogue,
) -> impl Iterator<Item = (KnobGroup, impl Iterator<Item = &KnobEntry>)> {
    let of = |group| {
        catalogue
            .knobs
            .iter()
            .filter(move |knob| knob.group == group)
    };
    let groups = KnobGroup::ALL
        .into_iter()
        .map(move |group| (group, of(group)));
    groups.filter(move |(group, _)| of(*group).next().is_some())
}

/// Returns the rules of each book that is not empty.
fn books(catalogue: &KnobCatalogue) -> impl Iterator<Item = &[RuleEntry]> {
    catalogue
        .rules
        .chunk_by(|one, other| one.book == other.book)
}

/// Returns one rule with all its fields.
#[must_use]
pub fn rule_entry(rule: &RuleEntry) -> Vec<Element> {
    let waivable = if rule.waivable {
        "; a plan may waive it"
    } else {
        ""
    };
    vec![
        Element::heading(1, format!("{}: {}", rule.id, rule.title)),
        Element::Pairs {
            pairs: vec![
                Pair::new("judges", &rule.book),
                Pair::new("why", Text::prose(&rule.reason)),
                Pair::new("source", &rule.source),
                Pair::new("severity", format!("{}{waivable}", rule.severity)),
            ],
        },
    ]
}

/// Returns one knob with all its fields, and its value on a machine.
#[must_use]
pub fn knob_entry(knob: &KnobEntry, found: Option<&CheckFinding>) -> Vec<Element> {
    let mut pairs = vec![Pair::new("group", knob.group.title())];
    pairs.extend(found.iter().flat_map(|finding| here(finding)));
    pairs.extend(fields(knob));
    vec![
        Element::heading(1, format!("{}: {}", knob.name, knob.title)),
        Element::Pairs { pairs },
    ]
}

/// Returns the value of a knob on a machine, and its fixes.
fn here(finding: &CheckFinding) -> Vec<Pair> {
    let value = match finding.state {
        CheckState::Error => format!("error: {}", finding.found),
        CheckState::Warning => format!("warning: {}", finding.found),
        CheckState::Ok => format!("ok: {}", finding.found),
        CheckState::Informational => finding.found.clone(),
        CheckState::NotRead => "not read (`rampart check` prints why)".to_owned(),
        CheckState::NotApplicable => format!("not applicable: {}", finding.reason),
    };
    let mut pairs = vec![Pair::new("here", Text::prose(&value))];
    // Each line is one alternative.
    let fixes = finding.fix.iter().flat_map(|fix| fix.lines());
    pairs.extend(fixes.map(|fix| Pair::new("fix", Text::prose(fix))));
    pairs
}

/// Returns the fields of a knob without its group.
fn fields(knob: &KnobEntry) -> Vec<Pair> {
    let mut locations = Text::default();
    for location in &knob.locations {
        if !locations.is_empty() {
            locations = locations.and(SpanStyle::Plain, ", or ");
        }
        locations = locations.and(SpanStyle::Code, location);
    }
    let mut pairs = vec![
        Pair::new("location", locations),
        Pair::new("expected", Text::prose(&knob.expected)),
    ];
    if !knob.applies.is_empty() {
        let applies = format!("for {}", knob.applies.join("; "));
        pairs.push(Pair::new("matters", Text::prose(&applies)));
    }
    pairs.push(Pair::new("why", Text::prose(&knob.reason)));
    pairs.push(Pair::new("cost", Text::prose(&knob.cost)));
    let effect = match &knob.disruptive {
        Some(how) => format!("{}; disruptive: {how}", knob.effect.words()),
        None => knob.effect.words().to_owned(),
    };
    pairs.push(Pair::new("change", effect));
    pairs.extend(knob.choices.iter().map(|choice| {
        let text = format!(
            "{}: {} ({}: {})",
            choice.name, choice.expected, choice.who, choice.why
        );
        Pair::new("choice", Text::prose(&text))
    }));
    pairs.extend([
        Pair::new("kernels", Text::prose(&knob.kernels)),
        Pair::new("verify", Text::prose(&knob.verify)),
        Pair::new("undo", Text::prose(&knob.undo)),
        Pair::new("source", &knob.source),
        Pair::new("severity", knob.severity.to_string()),
    ]);
    pairs
}

/// Returns docs/knobs.md, for [`crate::markdown`].
#[must_use]
pub fn knobs_page(catalogue: &KnobCatalogue) -> Vec<Element> {
    let names = groups(catalogue).map(|(group, knobs)| {
        let names: Vec<String> = knobs.map(|knob| format!("`{}`", knob.name)).collect();
        item(group.title(), Text::prose(&names.join(", ")))
    });
    let mut elements = vec![
        Element::heading(1, "Knobs"),
        Element::paragraph(
            "All settings of a Linux machine from kernel 5.10 on that are known to affect real-time \
             work: location, expected value, reason, cost and source.",
        ),
        Element::paragraph(Text::prose(
            "`rampart check` compares a machine with this list; `rampart knobs NAME` prints one entry.",
        )),
        Element::paragraph(Text::prose(
            "The page is generated from `crates/machine/rules/src/catalogue` by `RAMPART_UPDATE=1 \
             cargo test -p rampart-present --lib knobs`; do not edit it.",
        )),
        Element::paragraph(Text::prose(
            "A name in braces is a placeholder: `{real-time-cpu}` for each real-time CPU, \
             `{real-time-policy}` for each frequency policy of a real-time CPU, any other for each \
             name in that directory. If sources differ, the entry has choices; the first applies \
             unless a plan names another.",
        )),
        Element::paragraph(format!("{} knobs:", catalogue.knobs.len())),
        Element::List {
            items: names.collect(),
        },
    ];
    for (group, knobs) in groups(catalogue) {
        elements.push(Element::heading(2, group.title()));
        for knob in knobs {
            elements.push(Element::heading(3, &knob.name));
            elements.push(Element::paragraph(Text::prose(&sentence(&knob.title))));
            elements.push(Element::Pairs {
                pairs: fields(knob),
            });
        }
    }
    for rules in books(catalogue) {
        elements.push(Element::heading(2, format!("Rules: {}", rules[0].book)));
        let items = rules.iter().map(|rule| {
            let text = format!("{}. {} Source: {}.", rule.title, rule.reason, rule.source);
            item(
                format!("{} ({})", rule.id, rule.severity),
                Text::prose(&text),
            )
        });
        elements.push(Element::List {
            items: items.collect(),
        });
    }
    elements
}

/// Returns the title with a capital letter and a full stop.
fn sentence(title: &str) -> String {
    let mut characters = title.chars();
    let first = characters.next().into_iter().flat_map(char::to_uppercase);
    format!("{}{}.", first.collect::<String>(), characters.as_str())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use rampart_rules::catalogue_document;

    use super::*;
    use crate::{TerminalOptions, markdown, terminal};

    #[test]
    fn knobs_page_is_up_to_date() {
        let generated = markdown(&knobs_page(&catalogue_document("test")));
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/knobs.md");
        if std::env::var_os("RAMPART_UPDATE").is_some() {
            std::fs::write(&file, &generated).expect("the page can be written");
        }
        let committed = std::fs::read_to_string(&file).unwrap_or_default();
        assert!(
            committed == generated,
            "docs/knobs.md is out of date; run RAMPART_UPDATE=1 cargo test -p rampart-present --lib knobs"
        );
    }

    #[test]
    fn list_and_entries_have_every_knob_within_80_columns() {
        let catalogue = catalogue_document("test");
        let options = TerminalOptions::default();
        let list = terminal(&knob_list(&catalogue), options);
        for knob in &catalogue.knobs {
            assert!(list.contains(&format!("  {} ", knob.name)), "{}", knob.name);
            let text = terminal(&knob_entry(knob, None), options);
            assert!(text.starts_with(&format!("{}: ", knob.name)));
            for line in list.lines().chain(text.lines()) {
                let words = line.split_whitespace().count();
                assert!(line.chars().count() <= 80 || words <= 2, "{line}");
            }
        }
    }
}
