// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Domains that do not come up: each attempt may take minutes, so that what failed twice in a row
//! is left out, and the rest goes on without it.

use std::collections::BTreeMap;

use rampart_model::{Finding, NotMeasured, Severity};

/// A domain that failed so often in a row is left out from then on.
const MOST_IN_A_ROW: u32 = 2;

/// How often each domain failed in a row, over runs and rounds.
#[derive(Debug, Default)]
pub(crate) struct Failures(BTreeMap<String, Row>);

#[derive(Debug)]
struct Row {
    count: u32,
    last: Finding,
}

impl Failures {
    /// It did not come up, or was lost while it measured.
    pub(crate) fn failed(&mut self, domain: &str, why: &Finding) {
        let row = self.0.entry(domain.to_owned()).or_insert_with(|| Row {
            count: 0,
            last: why.clone(),
        });
        row.count += 1;
        row.last = why.clone();
    }

    /// It came up and measured.
    pub(crate) fn came_through(&mut self, domain: &str) {
        if self.left_out(domain).is_none() {
            self.0.remove(domain);
        }
    }

    /// Why it is left out; none where it is not.
    pub(crate) fn left_out(&self, domain: &str) -> Option<Finding> {
        let row = self.0.get(domain)?;
        (row.count >= MOST_IN_A_ROW).then(|| Finding {
            severity: Severity::Error,
            what: format!(
                "it failed {} times in a row and was left out from then on. Last failure: {}",
                row.count, row.last.what
            ),
            location: domain.to_owned(),
            ..row.last.clone()
        })
    }

    /// All that are left out and matter, for the document.
    pub(crate) fn not_measured(&self, matters: impl Fn(&str) -> bool) -> Vec<NotMeasured> {
        self.0
            .keys()
            .filter(|domain| matters(domain))
            .filter_map(|domain| {
                Some(NotMeasured {
                    what: format!("domain {domain}, from its second failure on"),
                    findings: vec![self.left_out(domain)?],
                })
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fails_twice_in_a_row_is_left_out_for_good() {
        let why = Finding::new(Severity::Error, "vm", "it said nothing").fix("look at it");
        let mut failures = Failures::default();
        failures.failed("vm", &why);
        assert_eq!(failures.left_out("vm"), None);
        failures.came_through("vm");
        failures.failed("vm", &why);
        assert_eq!(failures.left_out("vm"), None, "not in a row");
        failures.failed("vm", &why);
        let told = failures.left_out("vm").expect("left out");
        assert!(told.what.contains("it said nothing"), "{told}");
        assert_eq!(told.fix.as_deref(), Some("look at it"));
        assert_eq!(failures.left_out("task"), None);
        failures.came_through("vm");
        assert_eq!(failures.not_measured(|_| true).len(), 1);
    }
}
