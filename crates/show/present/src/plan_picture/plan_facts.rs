// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The facts that the picture and the page of a plan show.

use std::collections::BTreeMap;

use rampart_model::{
    CacheSharing, CpuOwnership, CpuRole, CpuSet, ResolvedDomain, ResolvedPlan, plural,
};
use rampart_rules::cache_share_text;

/// The owner of CPUs and interrupts that no domain owns.
const HOUSEKEEPING: &str = "housekeeping";

/// Returns the sign of a CPU: a letter for a domain, a mark for another role.
pub(super) fn sign(plan: &ResolvedPlan, cpu: &CpuOwnership) -> char {
    match cpu.role {
        CpuRole::Housekeeping => '#',
        CpuRole::IdleSibling => '-',
        CpuRole::Offline => 'x',
        CpuRole::Unassigned => '?',
        _ => cpu
            .owner
            .as_ref()
            .and_then(|owner| letter(plan, owner))
            .unwrap_or('*'),
    }
}

/// Returns the letter of a domain; `None` after the fifty-second domain.
pub(super) fn letter(plan: &ResolvedPlan, name: &str) -> Option<char> {
    let index = plan.domains.iter().position(|domain| domain.name == name)?;
    ('A'..='Z').chain('a'..='z').nth(index)
}

/// Returns the signs of a plan with their meanings, in the order of CPUs.
pub(super) fn legend(plan: &ResolvedPlan) -> Vec<(char, String)> {
    let mut legend: Vec<(char, String)> = Vec::new();
    for cpu in &plan.cpus {
        let sign = sign(plan, cpu);
        if legend.iter().all(|(known, _)| *known != sign) {
            let meaning = match (&cpu.owner, sign) {
                (_, '*') => "further domains".to_owned(),
                (Some(owner), _) => owner.clone(),
                (None, _) => cpu.role.to_string(),
            };
            legend.push((sign, meaning));
        }
    }
    legend
}

/// CPUs with the same owner, role, policy and node.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) cpus: CpuSet,
    pub(super) owner: String,
    pub(super) role: String,
    pub(super) policy: String,
    pub(super) node: String,
}

/// Returns the CPUs in groups, in the order of their first CPUs.
pub(super) fn rows(plan: &ResolvedPlan) -> Vec<Row> {
    type Key = (Option<String>, String, String, Option<u32>);
    let mut groups: BTreeMap<Key, Vec<&CpuOwnership>> = BTreeMap::new();
    for cpu in &plan.cpus {
        let role = match cpu.role {
            CpuRole::VirtualCpu(_) => "vCPU".to_owned(),
            role => role.to_string(),
        };
        let policy = cpu
            .policy
            .map_or_else(|| "–".to_owned(), |policy| policy.to_string());
        let key = (cpu.owner.clone(), role, policy, cpu.node);
        groups.entry(key).or_default().push(cpu);
    }
    let mut rows: Vec<Row> = groups
        .into_iter()
        .map(|((owner, role, policy, node), cpus)| {
            let numbers: CpuSet = cpus
                .iter()
                .filter_map(|cpu| match cpu.role {
                    CpuRole::VirtualCpu(number) => Some(rampart_model::CpuId(number)),
                    _ => None,
                })
                .collect();
            Row {
                cpus: cpus.iter().map(|cpu| cpu.cpu).collect(),
                owner: owner.unwrap_or_else(|| "–".to_owned()),
                role: if numbers.is_empty() {
                    role
                } else {
                    format!("{role} {numbers}")
                },
                policy,
                node: node.map_or_else(|| "–".to_owned(), |node| node.to_string()),
            }
        })
        .collect();
    rows.sort_by_key(|row| row.cpus.first());
    rows
}

/// Returns the CPUs of each node in the order of nodes; CPUs of an unknown node come first.
pub(super) fn by_node(plan: &ResolvedPlan) -> BTreeMap<Option<u32>, Vec<&CpuOwnership>> {
    let mut nodes: BTreeMap<Option<u32>, Vec<&CpuOwnership>> = BTreeMap::new();
    for cpu in &plan.cpus {
        nodes.entry(cpu.node).or_default().push(cpu);
    }
    nodes
}

/// Returns the share of a domain in caches, memory bandwidth and huge pages, one phrase each.
pub(super) fn owned(domain: &ResolvedDomain) -> Vec<String> {
    let cache = cache_share_text(domain);
    let pages = domain.huge_pages.map(|pages| {
        format!(
            "{} of {} on memory node {}",
            plural(pages.count, "huge page"),
            pages.size,
            pages.node
        )
    });
    let cache = Some(cache).filter(|text| !text.is_empty());
    cache.into_iter().chain(pages).collect()
}

/// Returns for each owner the number of its interrupts, their CPUs and their names.
pub(super) fn interrupts(plan: &ResolvedPlan) -> Vec<(String, usize, CpuSet, Vec<String>)> {
    let mut owners: BTreeMap<Option<&str>, (usize, CpuSet, Vec<String>)> = BTreeMap::new();
    for interrupt in &plan.interrupts {
        let entry = owners.entry(interrupt.owner.as_deref()).or_default();
        entry.0 += 1;
        entry.1 = entry.1.union(&interrupt.cpus);
        if !entry.2.contains(&interrupt.action) {
            entry.2.push(interrupt.action.clone());
        }
    }
    owners
        .into_iter()
        .map(|(owner, (count, cpus, names))| {
            (owner.unwrap_or(HOUSEKEEPING).to_owned(), count, cpus, names)
        })
        .collect()
}

/// Returns each last-level cache, lower cache with several domains, and memory node, with its CPUs
/// and domains.
pub(super) fn shares(plan: &ResolvedPlan) -> Vec<(String, CpuSet, String)> {
    let who = |names: &std::collections::BTreeSet<String>| match names.len() {
        0 => "none".to_owned(),
        1 => names.iter().cloned().collect(),
        _ => format!(
            "shared: {}",
            names.iter().cloned().collect::<Vec<_>>().join(", ")
        ),
    };
    // A large machine has hundreds of lower caches; only those with several domains matter.
    let last = plan.caches.iter().map(|cache| cache.level).max();
    let shown = |cache: &&CacheSharing| Some(cache.level) == last || cache.domains.len() > 1;
    let caches = plan.caches.iter().filter(shown).map(|cache| {
        let size = if cache.size == 0 {
            String::new()
        } else {
            format!(" {}", human(cache.size))
        };
        (
            format!("L{} cache{size}", cache.level),
            cache.cpus.clone(),
            who(&cache.domains),
        )
    });
    let nodes = plan.nodes.iter().map(|node| {
        let size = if node.memory == 0 {
            String::new()
        } else {
            format!(" {}", human(node.memory))
        };
        (
            format!("memory node {}{size}", node.id),
            node.cpus.clone(),
            who(&node.domains),
        )
    });
    caches.chain(nodes).collect()
}

/// Returns a size in the largest unit of which it has at least ten, or a whole number.
fn human(bytes: u64) -> String {
    let units = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
    units
        .into_iter()
        .find(|(_, shift)| {
            let count = bytes >> shift;
            count >= 10 || (count > 0 && count << shift == bytes)
        })
        .map_or_else(
            || format!("{bytes} B"),
            |(unit, shift)| format!("{} {unit}", bytes >> shift),
        )
}
