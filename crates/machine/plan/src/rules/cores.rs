// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Cores: threads that share one, and cores of several kinds.

use std::collections::BTreeMap;

use rampart_model::{CpuRole, CpuSet, PlanFinding, Severity, SmtPolicy};

use super::{Context, Say, about};
use crate::view;

pub(super) fn whole_core(context: &Context<'_>) -> Vec<PlanFinding> {
    let topology = &context.machine.topology;
    let rule = "whole-core";
    let mut findings = Vec::new();
    for each in context.domains() {
        let domain = each.planned;
        let mut strangers: BTreeMap<String, CpuSet> = BTreeMap::new();
        for cpu in each.claim.got.iter() {
            let beside = view::core(topology, cpu).difference(&each.claim.got);
            for sibling in beside.iter() {
                let Some(other) = context.resolved.cpu(sibling) else {
                    continue;
                };
                if matches!(other.role, CpuRole::IdleSibling | CpuRole::Offline) {
                    continue;
                }
                let who = other
                    .owner
                    .as_ref()
                    .map_or_else(|| other.role.to_string(), |owner| format!("`{owner}`"));
                let set = strangers.entry(who).or_default();
                set.insert(sibling);
            }
        }
        for (who, siblings) in strangers {
            findings.push(
                about(
                    rule,
                    domain,
                    Severity::Warning,
                    "a core is shared with somebody else, and with it caches and execution units",
                )
                .values(
                    format!(
                        "{}, beside its {}, of {who}",
                        siblings.named(),
                        each.claim.got.named()
                    ),
                    "whole cores",
                )
                .fix(format!(
                    "leave {} out of what is of {who}, or write smt = \"off\" in [machine]",
                    siblings.named()
                )),
            );
        }
        let offline = each.claim.asked.intersection(&context.claims.offline);
        if context.plan.machine.smt == SmtPolicy::Off && !offline.is_empty() {
            findings.push(
                about(
                    rule,
                    domain,
                    Severity::Error,
                    "it has CPUs that the plan takes offline, as second threads of their cores",
                )
                .values(
                    format!("{}, with smt = \"off\"", offline.named()),
                    "first threads of cores",
                )
                .fix("name the first thread of each core, or write smt = \"same-owner\"")
                .impossible(),
            );
        }
    }
    findings
}

pub(super) fn kind(context: &Context<'_>) -> Vec<PlanFinding> {
    let topology = &context.machine.topology;
    context
        .domains()
        .filter_map(|each| {
            let mut kinds: BTreeMap<u32, CpuSet> = BTreeMap::new();
            for cpu in each.claim.got.iter() {
                kinds.entry(view::capacity(topology, cpu)).or_default().insert(cpu);
            }
            (kinds.len() > 1).then(|| {
                let present: Vec<String> = kinds
                    .iter()
                    .rev()
                    .map(|(capacity, cpus)| format!("{} of capacity {capacity}", cpus.named()))
                    .collect();
                about(
                    "core-kind",
                    each.planned,
                    Severity::Warning,
                    "its CPUs are of several kinds of cores, so the same work takes different times",
                )
                .values(present.join(", "), "cores of one kind")
                .fix("list CPUs of one kind, or give the other kind to a domain of its own")
            })
        })
        .collect()
}
