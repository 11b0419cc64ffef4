// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Groups that share the exclusive cache ways of a domain.

use rampart_model::{ActivePlan, AllocationGroup, Severity, StatusFinding};

use super::{STATE_RULE, StateComparison, StateRule};
use crate::Rule;

pub(super) const CACHE_WAYS_SHARED: StateRule = StateRule::drift(Rule {
    id: "cache-ways-shared",
    severity: Severity::Error,
    title: "No other resctrl group has exclusive cache ways of a domain",
    reason: "Its CPUs fill the ways that the plan gives to the domain alone.",
    source: "Linux Documentation/filesystems/resctrl.rst",
    ..STATE_RULE
});

/// Reports groups that other software created. The default group's file was written, and is
/// compared as a setting.
pub(super) fn check(
    comparison: &StateComparison<'_>,
    plan: &ActivePlan,
    findings: &mut Vec<StatusFinding>,
) {
    let Some(allocation) = &comparison.later.allocation else {
        return;
    };
    let is_of_plan = |name: &str| {
        let domains = plan.resolved.domains.iter();
        domains
            .filter(|domain| domain.cache.is_some())
            .any(|domain| AllocationGroup::name_of(&domain.name) == name)
    };
    let others = allocation
        .groups
        .iter()
        .filter(|group| !group.name.is_empty() && !is_of_plan(&group.name));
    for group in others {
        for domain in &plan.resolved.domains {
            let shared = domain.cache_ways.iter().find(|own| {
                own.exclusive
                    && allocation
                        .caches
                        .iter()
                        .filter(|cache| cache.level == own.level)
                        .filter_map(|cache| group.ways(&cache.name, own.id))
                        .any(|ways| ways.overlaps(own.ways))
            });
            let Some(own) = shared else { continue };
            let path = format!("{}/{}", allocation.point, group.name);
            findings.push(
                CACHE_WAYS_SHARED
                    .finding(
                        Some(&domain.name),
                        format!("{path}/schemata"),
                        "another group has cache ways that belong to the domain alone",
                    )
                    .values(
                        group.schemata.to_string().replace('\n', " "),
                        format!(
                            "none of the ways {} of L{} cache {}",
                            own.ways, own.level, own.id
                        ),
                    )
                    .fix(format!("rmdir {path}")),
            );
        }
    }
}
