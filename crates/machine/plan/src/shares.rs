// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Owners of interrupts, and domains that share caches and memory nodes.

use std::collections::BTreeSet;

use rampart_model::{
    AllocationGroup, CacheControl, CacheKind, CacheSharing, CpuSet, Environment, GuestPages,
    InterruptOwnership, Machine, NodeSharing, Plan, PlannedDomain, ResolvedDomain,
};
use rampart_rules::{Division, Indivisible, cache_requests, divide};

use crate::names::HOUSEKEEPING;

pub(crate) fn interrupts(
    plan: &Plan,
    environment: &Environment,
    domains: &[ResolvedDomain],
    housekeeping: &CpuSet,
) -> Vec<InterruptOwnership> {
    environment
        .interrupts
        .iter()
        .flatten()
        .map(|interrupt| {
            let owner = plan.domains.iter().zip(domains).find(|(domain, _)| {
                domain
                    .interrupts
                    .iter()
                    .any(|rule| rule.is_match(interrupt))
            });
            InterruptOwnership {
                number: interrupt.number,
                action: interrupt.action.clone(),
                owner: owner.map(|(domain, _)| domain.name.clone()),
                cpus: owner.map_or_else(
                    || housekeeping.clone(),
                    |(_, resolved)| resolved.cpus.clone(),
                ),
            }
        })
        .collect()
}

/// Returns the domains on `cpus`, including housekeeping.
fn on(cpus: &CpuSet, domains: &[ResolvedDomain], housekeeping: &CpuSet) -> BTreeSet<String> {
    let mut names: BTreeSet<String> = domains
        .iter()
        .filter(|domain| !domain.kind.is_housekeeping())
        .filter(|domain| !domain.cpus.intersection(cpus).is_empty())
        .map(|domain| domain.name.clone())
        .collect();
    if !housekeeping.intersection(cpus).is_empty() {
        names.insert(HOUSEKEEPING.to_owned());
    }
    names
}

pub(crate) fn caches(
    machine: &Machine,
    domains: &[ResolvedDomain],
    housekeeping: &CpuSet,
) -> Vec<CacheSharing> {
    let mut caches: Vec<CacheSharing> = machine
        .topology
        .caches
        .iter()
        .filter(|cache| cache.shared_by.len() > 1 && cache.kind != CacheKind::Instruction)
        .map(|cache| CacheSharing {
            level: cache.level,
            kind: cache.kind,
            size: cache.size,
            cpus: cache.shared_by.clone(),
            domains: on(&cache.shared_by, domains, housekeeping),
        })
        .collect();
    caches.sort_by_key(|cache| (std::cmp::Reverse(cache.level), cache.cpus.first()));
    caches
}

pub(crate) fn nodes(
    machine: &Machine,
    domains: &[ResolvedDomain],
    housekeeping: &CpuSet,
) -> Vec<NodeSharing> {
    machine
        .topology
        .nodes
        .iter()
        .map(|node| NodeSharing {
            id: node.id,
            cpus: node.cpus.clone(),
            memory: node.memory,
            domains: on(&node.cpus, domains, housekeeping),
        })
        .collect()
}

/// Divides the caches by the shares of the domains. Returns `None` if no domain has a share, or if the
/// caches cannot be read. Ignores groups of the plan itself.
pub(crate) fn division(
    environment: &Environment,
    domains: &[ResolvedDomain],
) -> Option<Result<Division, Box<Indivisible>>> {
    let requests = cache_requests(domains);
    let Some(CacheControl::Mounted(allocation)) = &environment.cache_control else {
        return None;
    };
    if requests.is_empty() {
        return None;
    }
    let mut allocation = allocation.clone();
    allocation.groups.retain(|group| {
        let ours = |domain: &ResolvedDomain| AllocationGroup::name_of(&domain.name) == group.name;
        !domains.iter().any(ours)
    });
    Some(divide(&allocation, &requests))
}

/// Returns the huge pages of a guest, on the node that the plan names, else on the node of its CPUs.
pub(crate) fn huge_pages(
    machine: &Machine,
    domain: &PlannedDomain,
    cpus: &CpuSet,
) -> Option<GuestPages> {
    let memory = domain.memory.as_ref()?;
    let size = memory.hugepage.filter(|size| size.0 > 0)?;
    let of_cpus = cpus
        .iter()
        .filter_map(|cpu| machine.topology.node_of(cpu))
        .min();
    Some(GuestPages {
        node: memory.node.or(of_cpus).unwrap_or(0),
        size,
        count: memory.size.0.div_ceil(size.0),
    })
}
