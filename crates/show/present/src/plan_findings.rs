// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Findings of the rules about a plan, and whether it fits the machine.

use rampart_model::{PlanFinding, ResolvedPlan, Severity, plural};

use crate::element::Element;

/// Returns the findings as compilers print them, each with its location, and whether the plan in
/// `file` fits the machine.
#[must_use]
pub fn plan_findings(
    plan: &ResolvedPlan,
    file: &str,
    location: impl Fn(&PlanFinding) -> String,
) -> Vec<Element> {
    let findings = plan.findings.iter();
    let lines = findings.map(|finding| Element::paragraph(finding.line(&location(finding))));
    let mut elements: Vec<Element> = lines.collect();
    let count = |severity: Severity| {
        let open = |finding: &&PlanFinding| {
            finding.finding.severity == severity && finding.waived.is_none()
        };
        plan.findings.iter().filter(open).count()
    };
    let waived = plan
        .findings
        .iter()
        .filter(|finding| finding.waived.is_some());
    let verdict = if plan.is_refused() {
        "does not fit this machine"
    } else {
        "fits this machine"
    };
    elements.push(Element::paragraph(format!(
        "{file}: {verdict}: {}, {}, {}, {} waived",
        plural(count(Severity::Error), "error"),
        plural(count(Severity::Warning), "warning"),
        plural(count(Severity::Note), "note"),
        waived.count()
    )));
    elements
}
