// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Steps for the shares of a plan's domains in caches and memory bandwidth.

use rampart_model::{ChangeStep, KnobAction, ResolvedDomain, ResolvedPlan, StepAction, StepKind};

/// The knob by which a plan leaves the shares to other software.
const SCHEMATA: &str = "cache-schemata";

/// Returns one step for each domain with a share. The resolved plan has the ways if resctrl is
/// mounted; otherwise they are chosen when the plan is applied.
pub(crate) fn steps(plan: &ResolvedPlan) -> Vec<ChangeStep> {
    plan.domains
        .iter()
        .filter(|domain| domain.cache.is_some() && !domain.cpus.is_empty())
        .map(|domain| step(plan, domain))
        .collect()
}

fn step(plan: &ResolvedPlan, domain: &ResolvedDomain) -> ChangeStep {
    let (action, why) = match plan.host.get(SCHEMATA).map(|choice| choice.action) {
        Some(KnobAction::Skip) => (StepAction::Skip, "the plan skips it"),
        Some(KnobAction::Expect) => (
            StepAction::Expect,
            "the plan expects other software to divide the caches; Rampart does not verify it",
        ),
        Some(KnobAction::Apply) | None => (StepAction::Apply, ""),
    };
    ChangeStep {
        kind: StepKind::Cache,
        name: domain.name.clone(),
        title: format!("share of {} in caches and memory bandwidth", domain.name),
        action,
        why: why.to_owned(),
        present: "shared".to_owned(),
        wanted: cache_share_text(domain),
        locations: Vec::new(),
        disruptive: None,
        fix: None,
        source: "Documentation/filesystems/resctrl.rst".to_owned(),
    }
}

/// Formats the share of a domain: its ways if they are chosen, else its request.
#[must_use]
pub fn cache_share_text(domain: &ResolvedDomain) -> String {
    let Some(share) = &domain.cache else {
        return String::new();
    };
    let mut parts: Vec<String> = domain.cache_ways.iter().map(ToString::to_string).collect();
    if parts.is_empty() {
        let own = if share.exclusive { ", exclusive" } else { "" };
        let size = match (share.ways, share.bytes) {
            (Some(ways), _) => Some(rampart_model::plural(ways, "way")),
            (None, Some(bytes)) => Some(bytes.to_string()),
            (None, None) => None,
        };
        parts.extend(size.map(|size| {
            format!(
                "{size} of the last-level cache{own}; the ways are chosen when the plan is applied"
            )
        }));
    }
    parts.extend(
        share
            .bandwidth_percent
            .map(|percent| format!("{percent} % of memory bandwidth")),
    );
    parts.join("; ")
}
