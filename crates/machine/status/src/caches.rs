// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Ways of caches that are a domain's own, and who may fill them all the same.

use rampart_model::{
    ActivePlan, AllocationGroup, Finding, Severity, StatusFinding, StatusFindingKind,
};

use crate::finding;
use crate::seen::Seen;

/// Groups that somebody made since. The default group's own file was written and is compared as such.
pub(crate) fn find(seen: &Seen<'_>, plan: &ActivePlan, findings: &mut Vec<StatusFinding>) {
    let Some(allocation) = &seen.later.allocation else {
        return;
    };
    let ours = |name: &str| {
        let domains = plan.resolved.domains.iter();
        domains
            .filter(|domain| domain.cache.is_some())
            .any(|domain| AllocationGroup::name_of(&domain.name) == name)
    };
    let others = allocation
        .groups
        .iter()
        .filter(|group| !group.name.is_empty() && !ours(&group.name));
    for group in others {
        for domain in &plan.resolved.domains {
            let shared = domain.cache_ways.iter().find(|got| {
                got.exclusive
                    && allocation
                        .caches
                        .iter()
                        .filter(|cache| cache.level == got.level)
                        .filter_map(|cache| group.ways(&cache.name, got.id))
                        .any(|ways| ways.overlaps(got.ways))
            });
            let Some(got) = shared else { continue };
            let path = format!("{}/{}", allocation.point, group.name);
            let what = "another group may fill ways of the cache that are the domain's own";
            findings.push(finding(
                StatusFindingKind::CacheShared,
                Some(&domain.name),
                Finding::new(Severity::Error, format!("{path}/schemata"), what)
                    .values(
                        group.schemata.to_string().replace('\n', " "),
                        format!(
                            "none of the ways {} of L{} cache {}",
                            got.ways, got.level, got.id
                        ),
                    )
                    .fix(format!("write other ways there, or rmdir {path}")),
            ));
        }
    }
}
