// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Locations of the parts of a plan in its file.

use std::collections::BTreeMap;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::error::position;

/// A step from a table or a list to its content.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Step<'a> {
    /// A field of a table.
    Field(&'a str),
    /// An entry of a list.
    Entry(usize),
}

/// Returns the bytes of the value at the end of `steps`, or at the last step that exists; the start of
/// the text if none does.
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

/// The first lines of the domains of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DomainLines {
    machine: Option<usize>,
    domains: BTreeMap<String, usize>,
}

impl DomainLines {
    /// Reads the lines from a plan's text; none if the text is not TOML.
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

    /// Returns the line, from 1, of a domain's name, or of the section `[machine]`.
    #[must_use]
    pub fn line(&self, domain: Option<&str>) -> Option<usize> {
        match domain {
            Some(name) => self.domains.get(name).copied(),
            None => self.machine,
        }
    }
}
