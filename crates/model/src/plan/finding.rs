// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A rule of the plan that is broken, or could not be decided.

use serde::{Deserialize, Serialize};

use crate::{Finding, Severity};

/// A finding with the rule that made it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct PlanFinding {
    /// The rule's name, by which it can be waived.
    pub rule: String,
    /// The domain that it is about; none where it is about the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// What is amiss. A rule that could not be decided is a note.
    #[serde(flatten)]
    pub finding: Finding,
    /// Why the plan breaks the rule on purpose; none where it does not say so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waived: Option<String>,
    /// Whether the plan cannot work at all like this, so that nothing waives it.
    #[serde(default)]
    pub impossible: bool,
}

impl PlanFinding {
    /// Whether it refuses the plan.
    #[must_use]
    pub fn refuses(&self) -> bool {
        self.finding.severity == Severity::Error && self.waived.is_none()
    }
}
