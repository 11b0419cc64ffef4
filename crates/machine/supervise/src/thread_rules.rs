// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Placement of a domain's threads by their names. Pure.

use rampart_host::{PlacementGroup, ThreadPlacement};
use rampart_model::{CpuSet, PlannedDomain};

/// Returns the placement that the first matching entry of the plan's `threads` gives to a thread of
/// this name, or `None` if no entry matches.
pub(crate) fn placement_of_thread(
    domain: &PlannedDomain,
    cpus: &CpuSet,
    name: &str,
) -> Option<ThreadPlacement> {
    let rule = domain.threads.iter().find(|rule| rule.is_match(name))?;
    Some(ThreadPlacement {
        group: PlacementGroup::AsIs,
        cpus: Some(rule.cpus.clone().unwrap_or_else(|| cpus.clone())),
        policy: rule.policy.or(domain.policy).map(|policy| policy.0),
        nice: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rampart_model::{DomainKind, PlannedPolicy, SchedulingPolicy, ThreadRule};

    #[test]
    fn takes_the_first_matching_rule_and_the_rest_from_the_domain() {
        let rule = |pattern: &str, cpus: Option<&str>, policy| ThreadRule {
            r#match: pattern.to_owned(),
            cpus: cpus.map(|cpus| cpus.parse().expect("CPUs")),
            policy: Option::map(policy, PlannedPolicy),
        };
        let mut domain = PlannedDomain::new("press", DomainKind::Task);
        domain.policy = Some(PlannedPolicy(SchedulingPolicy::Fifo(80)));
        domain.threads = vec![
            rule("flush*", Some("2"), Some(SchedulingPolicy::Other)),
            rule("*", None, None),
        ];
        let cpus = "2-3".parse().expect("CPUs");
        let flush = placement_of_thread(&domain, &cpus, "flush-7").expect("a rule");
        assert_eq!(flush.cpus, Some("2".parse().expect("CPUs")));
        assert_eq!(flush.policy, Some(SchedulingPolicy::Other));
        let other = placement_of_thread(&domain, &cpus, "main").expect("the last rule");
        assert_eq!(other.cpus, Some(cpus.clone()));
        assert_eq!(other.policy, Some(SchedulingPolicy::Fifo(80)));
        domain.threads.pop();
        assert_eq!(placement_of_thread(&domain, &cpus, "main"), None);
    }
}
