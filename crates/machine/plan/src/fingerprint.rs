// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Fingerprints of topologies: one line, by which a plan detects another machine.
//!
//! `topology-1:0123456789abcdef architecture=x86_64 online=0-3 siblings=0,2/1,3 …`: version, a hash
//! of the rest, and the rest as text. CPU numbers change when threads of cores are switched in the
//! firmware, so the fingerprint is compared before a plan is used.

use std::collections::{BTreeMap, BTreeSet};

use rampart_model::{CacheKind, CpuSet, Machine};
use sha2::{Digest as _, Sha256};

const VERSION: &str = "topology-1";

/// Returns the fingerprint of a machine's topology: its CPUs, and which of them share a core, a
/// last-level cache, a node or a kind of core. It has no names, no sizes of memory, and nothing that
/// changes from boot to boot.
#[must_use]
pub fn fingerprint(machine: &Machine) -> String {
    let parts = parts(machine)
        .into_iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect::<Vec<String>>()
        .join(" ");
    format!("{VERSION}:{} {parts}", hash(&parts))
}

fn hash(text: &str) -> String {
    Sha256::digest(text.as_bytes())
        .iter()
        .take(8)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// Returns each part with its value. Values contain no spaces.
fn parts(machine: &Machine) -> Vec<(&'static str, String)> {
    let topology = &machine.topology;
    let cores: BTreeSet<CpuSet> = topology
        .cpus
        .iter()
        .map(|cpu| cpu.siblings.clone())
        .filter(|core| core.len() > 1)
        .collect();
    let caches: BTreeSet<CpuSet> = topology
        .online
        .iter()
        .filter_map(|id| topology.last_level_cache(id))
        .filter(|cache| cache.kind != CacheKind::Instruction && cache.shared_by.len() > 1)
        .map(|cache| cache.shared_by.clone())
        .collect();
    let mut kinds: BTreeMap<u32, CpuSet> = BTreeMap::new();
    for cpu in &topology.cpus {
        if let Some(capacity) = cpu.capacity {
            kinds.entry(capacity).or_default().insert(cpu.id);
        }
    }
    let nodes = topology
        .nodes
        .iter()
        .map(|node| format!("{}:{}", node.id, node.cpus));
    let kinds = kinds
        .iter()
        .rev()
        .map(|(capacity, cpus)| format!("{capacity}:{cpus}"));
    let architecture = machine.architecture.split_whitespace().collect::<String>();
    vec![
        ("architecture", architecture),
        ("online", topology.online.to_string()),
        ("siblings", joined(cores.iter().map(ToString::to_string))),
        ("last-level", joined(caches.iter().map(ToString::to_string))),
        ("nodes", joined(nodes)),
        ("capacity", joined(kinds)),
    ]
}

fn joined(values: impl Iterator<Item = String>) -> String {
    let values: Vec<String> = values.collect();
    if values.is_empty() {
        "none".to_owned()
    } else {
        values.join("/")
    }
}

/// Returns the differences between a machine's topology and a fingerprint, one sentence each.
#[must_use]
pub fn difference(recorded: &str, machine: &Machine) -> Vec<String> {
    let present = fingerprint(machine);
    if recorded == present {
        return Vec::new();
    }
    let Some((head, rest)) = recorded.split_once(' ') else {
        return vec!["the recorded fingerprint has no parts".to_owned()];
    };
    let Some((version, recorded_hash)) = head.split_once(':') else {
        return vec!["the recorded fingerprint does not start with a version".to_owned()];
    };
    if version != VERSION {
        return vec![format!(
            "the recorded fingerprint has version `{version}`, expected `{VERSION}`"
        )];
    }
    let before: BTreeMap<&str, &str> = rest
        .split(' ')
        .filter_map(|part| part.split_once('='))
        .collect();
    let mut differences: Vec<String> = parts(machine)
        .into_iter()
        .filter_map(|(name, now)| {
            let before = before.get(name).copied().unwrap_or("not recorded");
            (before != now).then(|| sentence(name, before, &now))
        })
        .collect();
    if differences.is_empty() {
        differences.push(if hash(rest) == recorded_hash {
            "the recorded fingerprint has unknown parts".to_owned()
        } else {
            "the recorded fingerprint was edited: its hash does not match its parts".to_owned()
        });
    }
    differences
}

/// Returns a sentence with the groups that only one side has.
fn sentence(name: &str, before: &str, now: &str) -> String {
    let groups = |text: &str| -> BTreeSet<String> {
        text.split('/')
            .map(str::to_owned)
            .filter(|group| group != "none")
            .collect()
    };
    let (old, new) = (groups(before), groups(now));
    let only = |left: &BTreeSet<String>, right: &BTreeSet<String>| {
        let list: Vec<&str> = left.difference(right).map(String::as_str).collect();
        if list.is_empty() {
            "none".to_owned()
        } else {
            list.join(" and ")
        }
    };
    let (was, is) = (only(&old, &new), only(&new, &old));
    match name {
        "architecture" => format!("the architecture was {before} and is {now}"),
        "online" => format!("the online CPUs were {before} and are {now}"),
        "siblings" => format!("threads of one core were CPUs {was}, and are now {is}"),
        "last-level" => format!("a last-level cache was shared by CPUs {was}, and is now by {is}"),
        "nodes" => format!("memory nodes and their CPUs were {was}, and are now {is}"),
        _ => format!("{name} was {was}, and is now {is}"),
    }
}
