// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Findings of the rules of plans.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Finding, Severity};

/// A finding of a rule about a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct PlanFinding {
    /// The domain that it is about; `None` if it is about the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// The finding, with the id of its rule.
    #[serde(flatten)]
    pub finding: Finding,
    /// The reason that the plan gives for breaking the rule; `None` if it does not waive it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waived: Option<String>,
    /// Whether the plan cannot work like this, so that no waiver applies.
    #[serde(default)]
    pub impossible: bool,
}

impl PlanFinding {
    /// Returns a finding about the machine that is not waived.
    #[must_use]
    pub fn new(finding: Finding) -> Self {
        Self {
            domain: None,
            finding,
            waived: None,
            impossible: false,
        }
    }

    /// Returns the id of the rule; a plan waives the rule by this id.
    #[must_use]
    pub fn rule(&self) -> &str {
        self.finding.rule.as_deref().unwrap_or_default()
    }

    /// Adds the value found and the value needed.
    #[must_use]
    pub fn values(mut self, present: impl Into<String>, needed: impl Into<String>) -> Self {
        self.finding = self.finding.values(present, needed);
        self
    }

    /// Adds the command or change that fixes it.
    #[must_use]
    pub fn fix(mut self, fix: impl Into<String>) -> Self {
        self.finding = self.finding.fix(fix);
        self
    }

    /// Marks the finding as one that no waiver applies to.
    #[must_use]
    pub fn impossible(mut self) -> Self {
        self.impossible = true;
        self
    }

    /// Returns whether the finding refuses the plan.
    #[must_use]
    pub fn refuses(&self) -> bool {
        self.finding.severity == Severity::Error && self.waived.is_none()
    }

    /// Returns the word before the finding: its severity, or `waived`.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match &self.waived {
            Some(_) => "waived",
            None => self.finding.severity.name(),
        }
    }

    /// Returns one line as compilers print it: `location: word: finding`.
    #[must_use]
    pub fn line(&self, location: &str) -> String {
        crate::clean(&format!("{location}: {}: {self}", self.word()))
    }
}

impl fmt::Display for PlanFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} [{}]", self.finding, self.rule())?;
        match &self.waived {
            Some(reason) => write!(f, "; waived: {reason}"),
            None => Ok(()),
        }
    }
}
