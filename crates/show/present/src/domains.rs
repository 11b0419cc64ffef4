// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Domains that a machine can host.

use rampart_model::Availability;

use crate::element::{Element, ListItem};
use crate::plan_picture::item;

/// Returns the domains that a machine can host, with the reasons against the others.
#[must_use]
pub fn domains(domains: &[Availability]) -> Vec<Element> {
    let items = domains.iter().map(|domain| {
        let word = if domain.available { "yes" } else { "no" };
        let findings = domain.findings.iter();
        ListItem {
            items: findings
                .map(|finding| item(finding.severity.name(), finding.to_string()))
                .collect(),
            ..item(
                domain.domain.to_string(),
                format!("{word}, {}", domain.description),
            )
        }
    });
    vec![Element::List {
        items: items.collect(),
    }]
}
