// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs of domains that were started or stopped.

use rampart_model::SupervisedDomain;
use serde::Serialize;

use crate::element::{Element, ListItem};
use crate::plan_picture::item;

/// The outcome of `up` or `down` for the program of a domain.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ProgramOutcome {
    /// Name of the domain or standby.
    pub name: String,
    /// `running`, `is-up`, `ended`, `is-started-again`, `was-down` or `failed`; of a standby `kept`, `is-kept`, `removed`
    /// or `failed`.
    pub outcome: &'static str,
    /// Details of the outcome.
    pub text: String,
    /// Whether the program does not run in its domain, or could not be stopped.
    #[serde(skip)]
    pub failed: bool,
    /// The domain as its supervisor recorded it, for `up`.
    pub domain: Option<SupervisedDomain>,
}

/// Returns the outcome for each domain with the differences from the plan.
#[must_use]
pub fn program_outcomes(outcomes: &[ProgramOutcome]) -> Vec<Element> {
    let items = outcomes.iter().map(|outcome| {
        let word = outcome.outcome.replace('-', " ");
        let text = if outcome.text.is_empty() {
            word
        } else {
            format!("{word}, {}", outcome.text)
        };
        let findings = outcome.domain.iter().flat_map(|domain| &domain.findings);
        ListItem {
            items: findings
                .map(|finding| item(finding.severity.name(), finding.to_string()))
                .collect(),
            ..item(&outcome.name, text)
        }
    });
    vec![Element::List {
        items: items.collect(),
    }]
}

/// Returns the last end of a program, and its log.
#[must_use]
pub fn last_exit(domain: &SupervisedDomain) -> String {
    let last = domain.last_exit.as_ref();
    let status = last.map_or("no exit status", |last| last.status.as_str());
    format!("{status}, log {}", domain.log)
}

/// Returns the processes and the log of a supervised program.
#[must_use]
pub fn supervised(domain: &SupervisedDomain) -> String {
    let process = domain.program.map_or_else(
        || "no process".to_owned(),
        |program| format!("process {}", program.process),
    );
    let supervisor = domain.supervisor.process;
    format!("{process}, supervisor {supervisor}, log {}", domain.log)
}
