// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where in its file each part of a plan is active.

use std::collections::BTreeMap;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::error::position;

/// A step from a table or list to what it holds.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Step<'a> {
    /// A field of a table.
    Field(&'a str),
    /// An entry of a list.
    Entry(usize),
}

/// The bytes of what `steps` lead to, or of the last step that there is; the beginning of the text
/// where there is none.
pub(crate) fn span(text: &str, steps: &[Step<'_>]) -> Range<usize> {
    let Ok(root) = DeTable::parse(text) else {
        return 0..0;
    };
    let mut found = 0..0;
    let mut fields: Option<&DeTable<'_>> = Some(root.get_ref());
    let mut entries: Option<&[Spanned<DeValue<'_>>]> = None;
    for step in steps {
        let value = match step {
            Step::Field(name) => fields.and_then(|table| field(table, name)),
            Step::Entry(index) => entries.and_then(|list| list.get(*index)),
        };
        let Some(value) = value else {
            return found;
        };
        found = value.span();
        fields = value.get_ref().as_table();
        entries = value.get_ref().as_array().map(|list| &**list);
    }
    found
}

fn field<'a, 'i>(table: &'a DeTable<'i>, name: &str) -> Option<&'a Spanned<DeValue<'i>>> {
    table
        .iter()
        .find(|(key, _)| key.get_ref() == name)
        .map(|(_, value)| value)
}

/// The lines on which the domains of a plan begin.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Places {
    machine: Option<usize>,
    domains: BTreeMap<String, usize>,
}

impl Places {
    /// Reads the places from a plan's text. A text that is no TOML has none.
    #[must_use]
    pub fn of(text: &str) -> Self {
        let Ok(root) = DeTable::parse(text) else {
            return Self::default();
        };
        let line = |value: &Spanned<DeValue<'_>>| position(text, value.span().start).0;
        let domains = field(root.get_ref(), "domain")
            .and_then(|value| value.get_ref().as_array())
            .map(|list| {
                list.iter()
                    .filter_map(|entry| {
                        let name = field(entry.get_ref().as_table()?, "name")?;
                        Some((name.get_ref().as_str()?.to_owned(), line(name)))
                    })
                    .collect()
            })
            .unwrap_or_default();
        Self {
            machine: field(root.get_ref(), "machine").map(line),
            domains,
        }
    }

    /// The line of a domain's name, or of the section on the machine; from 1.
    #[must_use]
    pub fn line(&self, domain: Option<&str>) -> Option<usize> {
        match domain {
            Some(name) => self.domains.get(name).copied(),
            None => self.machine,
        }
    }
}
