// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Chooses CPUs by property. The choice is deterministic, and has a reason.

use std::collections::{BTreeMap, BTreeSet};

use rampart_model::{CpuId, CpuSet, Machine, SmtPolicy};
use rampart_rules::real_time_cpus_of;

/// Requested properties, with names resolved to CPUs.
#[derive(Debug, Clone, Default)]
pub(crate) struct Search {
    pub(crate) count: usize,
    pub(crate) node: Option<u32>,
    pub(crate) whole_cores: bool,
    /// CPUs to share a last-level cache with.
    pub(crate) near: Option<CpuSet>,
    /// CPUs not to share a last-level cache with.
    pub(crate) far: Option<CpuSet>,
    /// CPUs whose last-level caches are avoided if possible.
    pub(crate) housekeeping: CpuSet,
    pub(crate) smt: SmtPolicy,
}

/// The chosen CPUs, with the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Choice {
    pub(crate) cpus: CpuSet,
    pub(crate) reason: String,
}

/// CPUs that are chosen together: the usable threads of a core, or one thread.
#[derive(Debug, Clone)]
struct Unit {
    cpus: CpuSet,
    whole: bool,
}

/// Chooses CPUs of `free`.
///
/// # Errors
/// If there are too few; the error describes the available CPUs.
pub(crate) fn choose(machine: &Machine, free: &CpuSet, search: &Search) -> Result<Choice, String> {
    let candidates = candidates(machine, free, search);
    let whole = units(machine, free, &candidates, search, true);
    // Whole cores first, even if not requested: siblings disturb each other.
    if let Some(choice) = best(machine, &whole, search) {
        return Ok(choice);
    }
    if !search.whole_cores && search.smt == SmtPolicy::IdleSibling {
        let threads = units(machine, free, &candidates, search, false);
        if let Some(choice) = best(machine, &threads, search) {
            return Ok(choice);
        }
    }
    Err(present(machine, free, &candidates, &whole, search))
}

/// Describes the CPUs that are there instead: those that are free, and why they do not do.
fn present(
    machine: &Machine,
    free: &CpuSet,
    candidates: &CpuSet,
    whole: &[Unit],
    search: &Search,
) -> String {
    if candidates.is_empty() {
        return match free.is_empty() {
            true => "no CPU is free".to_owned(),
            false => format!("none of them; {} free", with_verb(free)),
        };
    }
    let usable: CpuSet = whole.iter().flat_map(|unit| unit.cpus.iter()).collect();
    let apart = candidates.difference(&usable);
    let takes_threads = !search.whole_cores && search.smt == SmtPolicy::IdleSibling;
    if takes_threads || apart.is_empty() {
        let nodes = candidates.iter().map(|id| machine.topology.node_of(id));
        let nodes: BTreeSet<Option<u32>> = nodes.collect();
        return match nodes.len() {
            0 | 1 => format!("only {} free", with_verb(candidates)),
            several => format!("{} free, on {several} memory nodes", with_verb(candidates)),
        };
    }
    let taken = apart
        .iter()
        .flat_map(|id| machine.topology.core(id).iter().collect::<Vec<_>>());
    let taken: CpuSet = taken.filter(|id| !candidates.contains(*id)).collect();
    let why = match taken.is_empty() {
        true => "are second threads of cores".to_owned(),
        false => format!("share cores with {}", taken.named()),
    };
    match usable.is_empty() {
        true => format!("{} free, which {why}", with_verb(&apart)),
        false => format!(
            "{} free, and {}, which {why}",
            with_verb(&usable),
            apart.named()
        ),
    }
}

/// Returns `CPU 3 is` or `CPUs 2-3 are`.
fn with_verb(cpus: &CpuSet) -> String {
    let verb = if cpus.len() == 1 { "is" } else { "are" };
    format!("{} {verb}", cpus.named())
}

fn candidates(machine: &Machine, free: &CpuSet, search: &Search) -> CpuSet {
    let topology = &machine.topology;
    let near = search
        .near
        .as_ref()
        .map(|cpus| topology.under_last_level_cache(cpus));
    let far = search
        .far
        .as_ref()
        .map(|cpus| topology.under_last_level_cache(cpus));
    free.iter()
        .filter(|id| {
            search
                .node
                .is_none_or(|node| topology.node_of(*id) == Some(node))
        })
        .filter(|id| near.as_ref().is_none_or(|cpus| cpus.contains(*id)))
        .filter(|id| far.as_ref().is_none_or(|cpus| !cpus.contains(*id)))
        .collect()
}

fn units(
    machine: &Machine,
    free: &CpuSet,
    candidates: &CpuSet,
    search: &Search,
    whole: bool,
) -> Vec<Unit> {
    let topology = &machine.topology;
    let mut units: Vec<Unit> = Vec::new();
    for id in candidates.iter() {
        if !whole {
            units.push(Unit {
                cpus: CpuSet::single(id),
                whole: topology.core(id).len() == 1,
            });
            continue;
        }
        let core = topology.core(id);
        // Each core once, and only if all its threads are free.
        if core.intersection(candidates).first() != Some(id) || !core.is_subset(free) {
            continue;
        }
        let cpus = match search.smt {
            SmtPolicy::SameOwner => core.intersection(candidates),
            SmtPolicy::Off | SmtPolicy::IdleSibling => CpuSet::single(id),
        };
        units.push(Unit { cpus, whole: true });
    }
    units
}

/// Properties that the CPUs of one choice have in common: node, capacity, last-level cache.
type Group = (Option<u32>, u32, Option<CpuSet>);

/// Returns the best group of units with enough CPUs: under one last-level cache and of one kind of
/// core, else of one kind of core, else on one memory node.
fn best(machine: &Machine, units: &[Unit], search: &Search) -> Option<Choice> {
    let topology = &machine.topology;
    let group = |unit: &Unit, strictness: usize| -> Group {
        let id = unit.cpus.first().unwrap_or(rampart_model::BOOT_CPU);
        let cache = topology
            .last_level_cache(id)
            .map(|cache| cache.shared_by.clone());
        match strictness {
            0 => (topology.node_of(id), topology.capacity(id), cache),
            1 => (topology.node_of(id), topology.capacity(id), None),
            _ => (topology.node_of(id), 0, None),
        }
    };
    for strictness in 0..3 {
        let mut groups: BTreeMap<Group, Vec<&Unit>> = BTreeMap::new();
        for unit in units {
            groups
                .entry(group(unit, strictness))
                .or_default()
                .push(unit);
        }
        let chosen = groups
            .into_values()
            .filter_map(|group| take(machine, group, search.count))
            .max_by_key(|cpus| rank(machine, cpus, search));
        if let Some(cpus) = chosen {
            let reason = reason(machine, &cpus, units, strictness);
            return Some(Choice { cpus, reason });
        }
    }
    None
}

/// Returns the CPUs that settings of the machine keep for real-time work already.
fn kept(machine: &Machine) -> CpuSet {
    real_time_cpus_of(&machine.topology)
        .map(|found| found.cpus)
        .unwrap_or_default()
}

/// Takes `count` CPUs of a group: CPUs that the machine keeps for real-time work first, then CPUs far
/// from the boot CPU.
fn take(machine: &Machine, mut group: Vec<&Unit>, count: usize) -> Option<CpuSet> {
    let kept = kept(machine);
    group.sort_by_key(|unit| {
        let is_kept = unit.cpus.is_subset(&kept);
        std::cmp::Reverse((is_kept, unit.cpus.first()))
    });
    let mut taken = CpuSet::new();
    for id in group.iter().flat_map(|unit| unit.cpus.iter()) {
        if taken.len() < count {
            taken.insert(id);
        }
    }
    (taken.len() == count && count > 0).then_some(taken)
}

/// Returns the rank of a choice; higher is better.
fn rank(machine: &Machine, cpus: &CpuSet, search: &Search) -> (usize, u32, bool, Option<CpuId>) {
    let topology = &machine.topology;
    let slowest = cpus.iter().map(|id| topology.capacity(id)).min();
    let shared = topology.under_last_level_cache(cpus);
    (
        cpus.intersection(&kept(machine)).len(),
        slowest.unwrap_or(0),
        shared.intersection(&search.housekeeping).is_empty(),
        cpus.iter().next_back(),
    )
}

fn reason(machine: &Machine, cpus: &CpuSet, units: &[Unit], strictness: usize) -> String {
    let topology = &machine.topology;
    let mut parts = vec![format!("{} chosen", cpus.named())];
    let whole = units
        .iter()
        .filter(|unit| !unit.cpus.intersection(cpus).is_empty())
        .all(|unit| unit.whole);
    parts.push(
        if whole {
            "whole cores"
        } else {
            "single threads of cores, since there are too few whole cores"
        }
        .to_owned(),
    );
    if let Some(node) = cpus.first().and_then(|id| topology.node_of(id)) {
        parts.push(format!("all on memory node {node}"));
    }
    let first = cpus.first().unwrap_or(rampart_model::BOOT_CPU);
    match (strictness, topology.last_level_cache(first)) {
        (0, Some(cache)) if cache.shared_by.len() > 1 => parts.push(format!(
            "all under the L{} of {}",
            cache.level,
            cache.shared_by.named()
        )),
        (0, _) => {}
        (1, _) => parts.push("of one kind of core, under several caches".to_owned()),
        _ => {
            parts.push("of several kinds of cores, since there are too few of one kind".to_owned())
        }
    }
    if let Some(found) = real_time_cpus_of(topology).filter(|found| cpus.is_subset(&found.cpus)) {
        parts.push(format!("kept for real-time work, {}", found.words()));
    }
    parts.join(", ")
}
