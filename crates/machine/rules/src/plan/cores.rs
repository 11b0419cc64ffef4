// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rules of cores: threads that share one, and cores of several kinds.

use std::collections::BTreeMap;

use rampart_model::{CpuRole, CpuSet, PlanFinding, Severity, SmtPolicy};

use super::{PlanContext, REQUIRED, rule_of_knob};
use crate::Rule;

pub(super) const SIBLING_THREADS: Rule = rule_of_knob("sibling-threads");
pub(super) const ONE_KIND_OF_CORE: Rule = rule_of_knob("one-kind-of-core");

pub(super) const CPU_TAKEN_OFFLINE: Rule = Rule {
    id: "cpu-taken-offline",
    severity: Severity::Error,
    title: "With smt = \"off\" domains name the first thread of each core",
    reason: "The plan takes the other threads offline.",
    source: "Rampart",
    ..REQUIRED
};

pub(super) fn siblings(context: &PlanContext<'_>) -> Vec<PlanFinding> {
    let topology = &context.machine.topology;
    let mut findings = Vec::new();
    for domain in context.domains() {
        let owned = &domain.claim.owned;
        let mut others: BTreeMap<String, CpuSet> = BTreeMap::new();
        for cpu in owned.iter() {
            for sibling in topology.core(cpu).difference(owned).iter() {
                let Some(other) = context.resolved.cpu(sibling) else {
                    continue;
                };
                if matches!(other.role, CpuRole::IdleSibling | CpuRole::Offline) {
                    continue;
                }
                let owner = other
                    .owner
                    .as_ref()
                    .map_or_else(|| other.role.to_string(), |owner| format!("`{owner}`"));
                others.entry(owner).or_default().insert(sibling);
            }
        }
        for (owner, siblings) in others {
            findings.push(
                SIBLING_THREADS
                    .of_domain(
                        domain.planned,
                        "a core is shared with another owner, including its caches and execution units",
                    )
                    .values(
                        format!(
                            "{} of {owner}, sibling of {}",
                            siblings.named(),
                            owned.named()
                        ),
                        "whole cores",
                    )
                    .fix(format!(
                        "remove {} from {owner}, or write smt = \"off\" in [machine]",
                        siblings.named()
                    )),
            );
        }
        let offline = domain.claim.requested.intersection(&context.claims.offline);
        if context.plan.machine.smt == SmtPolicy::Off && !offline.is_empty() {
            findings.push(
                CPU_TAKEN_OFFLINE
                    .of_domain(
                        domain.planned,
                        "the domain has CPUs that the plan takes offline, as second threads of their cores",
                    )
                    .values(
                        format!("{}, with smt = \"off\"", offline.named()),
                        "first threads of cores",
                    )
                    .fix("name the first thread of each core")
                    .impossible(),
            );
        }
    }
    findings
}

pub(super) fn kind(context: &PlanContext<'_>) -> Vec<PlanFinding> {
    let topology = &context.machine.topology;
    context
        .domains()
        .filter_map(|domain| {
            let mut kinds: BTreeMap<u32, CpuSet> = BTreeMap::new();
            for cpu in domain.claim.owned.iter() {
                kinds.entry(topology.capacity(cpu)).or_default().insert(cpu);
            }
            (kinds.len() > 1).then(|| {
                let present: Vec<String> = kinds
                    .iter()
                    .rev()
                    .map(|(capacity, cpus)| format!("{} of capacity {capacity}", cpus.named()))
                    .collect();
                ONE_KIND_OF_CORE
                    .of_domain(
                        domain.planned,
                        "its CPUs are cores of several kinds, so the same work takes different times",
                    )
                    .values(present.join(", "), "cores of one kind")
                    .fix("list CPUs of one kind")
            })
        })
        .collect()
}
