// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Findings of the rules of plans.

use rampart_model::{Finding, PlanFinding, PlannedDomain};

use crate::Rule;

impl Rule {
    /// Returns a finding about a domain.
    pub(crate) fn of_domain(&self, domain: &PlannedDomain, what: impl Into<String>) -> PlanFinding {
        about(domain, self.finding(location(domain), what))
    }

    /// Returns a finding about the machine or the whole plan.
    pub(crate) fn of_machine(
        &self,
        location: impl Into<String>,
        what: impl Into<String>,
    ) -> PlanFinding {
        PlanFinding::new(self.finding(location, what))
    }

    /// Returns a note that the rule could not be decided for a domain.
    pub(crate) fn not_decided_for(
        &self,
        domain: &PlannedDomain,
        what: impl Into<String>,
        needed: impl Into<String>,
        fix: impl Into<String>,
    ) -> PlanFinding {
        about(domain, self.undecided(location(domain), what))
            .values("not read", needed)
            .fix(fix)
    }

    /// Returns a note that the rule could not be decided for the machine.
    pub(crate) fn not_decided(
        &self,
        location: impl Into<String>,
        what: impl Into<String>,
        needed: impl Into<String>,
        fix: impl Into<String>,
    ) -> PlanFinding {
        PlanFinding::new(self.undecided(location, what))
            .values("not read", needed)
            .fix(fix)
    }
}

pub(crate) fn location(domain: &PlannedDomain) -> String {
    format!("domain `{}`", domain.name)
}

pub(crate) fn about(domain: &PlannedDomain, finding: Finding) -> PlanFinding {
    PlanFinding {
        domain: Some(domain.name.clone()),
        ..PlanFinding::new(finding)
    }
}
