// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Counts failed starts of domains. Each attempt may take minutes, so a domain that failed twice in
//! a row is left out and the evaluation continues without it.

use std::collections::BTreeMap;

use rampart_model::{EvaluationPart, Finding, NotMeasured, Severity};

/// A domain that failed this often in a row is left out.
const MOST_IN_A_ROW: u32 = 2;

/// The number of failures in a row of each domain, over runs and rounds.
#[derive(Debug, Default)]
pub(crate) struct Failures(BTreeMap<String, Row>);

#[derive(Debug)]
struct Row {
    count: u32,
    last: Finding,
}

impl Failures {
    /// Records that a domain did not start, or was lost while it measured.
    pub(crate) fn failed(&mut self, domain: &str, why: &Finding) {
        let row = self.0.entry(domain.to_owned()).or_insert_with(|| Row {
            count: 0,
            last: why.clone(),
        });
        row.count += 1;
        row.last = why.clone();
    }

    /// Records that a domain started and measured.
    pub(crate) fn succeeded(&mut self, domain: &str) {
        if self.left_out(domain).is_none() {
            self.0.remove(domain);
        }
    }

    /// Returns why a domain is left out, or `None` if it is not.
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

    /// Returns all domains that are left out and match, for the document.
    pub(crate) fn not_measured(&self, matters: impl Fn(&str) -> bool) -> Vec<NotMeasured> {
        self.0
            .keys()
            .filter(|domain| matters(domain))
            .filter_map(|domain| {
                Some(NotMeasured {
                    part: EvaluationPart::DomainAfterFailures(domain.clone()),
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
    fn leaves_out_a_domain_after_two_failures_in_a_row() {
        let why = Finding::new(Severity::Error, "vm", "it printed nothing").fix("look at it");
        let mut failures = Failures::default();
        failures.failed("vm", &why);
        assert_eq!(failures.left_out("vm"), None);
        failures.succeeded("vm");
        failures.failed("vm", &why);
        assert_eq!(failures.left_out("vm"), None, "not in a row");
        failures.failed("vm", &why);
        let finding = failures.left_out("vm").expect("left out");
        assert!(finding.what.contains("it printed nothing"), "{finding}");
        assert_eq!(finding.fix.as_deref(), Some("look at it"));
        assert_eq!(failures.left_out("task"), None);
        failures.succeeded("vm");
        assert_eq!(failures.not_measured(|_| true).len(), 1);
    }
}
