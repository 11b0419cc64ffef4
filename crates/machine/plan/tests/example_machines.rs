// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Constructed and recorded machines for tests.

use rampart_host::{MachineRoot, read_environment, read_machine};
use rampart_model::{
    Cache, CacheKind, Cpu, CpuSet, Environment, Machine, MemoryNode, Plan, PlanFinding,
    ResolvedPlan, Severity, Topology,
};

pub(crate) const RECORDED: [&str; 5] =
    ["board", "laptop", "server", "simulated", "virtual-machine"];

pub(crate) fn cpus(text: &str) -> CpuSet {
    text.parse().expect("CPUs")
}

/// Returns a machine with these cores, last-level caches and memory nodes, each a list of CPUs.
pub(crate) fn machine(cores: &[&str], caches: &[&str], nodes: &[&str]) -> Machine {
    let mut machine = read_machine(&MachineRoot::at("/nonexistent"));
    let mut topology = Topology::default();
    for (core, siblings) in (0u32..).zip(cores) {
        let siblings = cpus(siblings);
        for id in siblings.iter() {
            let node = nodes.iter().position(|node| cpus(node).contains(id));
            topology.cpus.push(Cpu {
                id,
                core: Some(core),
                package: Some(0),
                node: node.map(|node| node as u32),
                siblings: siblings.clone(),
                capacity: None,
            });
            topology.online.insert(id);
        }
    }
    topology.cpus.sort_by_key(|cpu| cpu.id);
    topology.possible = topology.online.clone();
    topology.allowed = topology.online.clone();
    topology.caches = caches
        .iter()
        .map(|shared| Cache {
            level: 3,
            kind: CacheKind::Unified,
            size: 8 << 20,
            shared_by: cpus(shared),
        })
        .collect();
    topology.nodes = (0u32..)
        .zip(nodes)
        .map(|(id, shared)| MemoryNode {
            id,
            cpus: cpus(shared),
            memory: 8 << 30,
        })
        .collect();
    machine.topology = topology;
    machine.architecture = "x86_64".to_owned();
    machine.control_groups = "v2".to_owned();
    machine
}

/// Returns a machine of four CPUs that share no core, cache or node.
pub(crate) fn quad() -> Machine {
    machine(&["0", "1", "2", "3"], &[], &[])
}

/// Returns a machine of two nodes with two cores of two threads each, one cache per node.
pub(crate) fn threads() -> Machine {
    machine(
        &["0-1", "2-3", "4-5", "6-7"],
        &["0-3", "4-7"],
        &["0-3", "4-7"],
    )
}

pub(crate) fn recorded(name: &str) -> (Machine, Environment) {
    let root = MachineRoot::at(rampart_recorded::directory(name));
    (read_machine(&root), read_environment(&root, &[]))
}

pub(crate) fn plan(text: &str) -> Plan {
    rampart_plan::parse(text, "plan.toml").unwrap_or_else(|error| panic!("{error}"))
}

pub(crate) fn resolve(machine: &Machine, text: &str) -> ResolvedPlan {
    resolve_in(machine, text, &Environment::default())
}

pub(crate) fn resolve_in(machine: &Machine, text: &str, around: &Environment) -> ResolvedPlan {
    rampart_plan::resolve(machine, &plan(text), around)
}

/// Returns the errors and warnings of a rule.
pub(crate) fn broken<'a>(resolved: &'a ResolvedPlan, rule: &str) -> Vec<&'a PlanFinding> {
    found(resolved, rule)
        .into_iter()
        .filter(|finding| finding.finding.severity > Severity::Note)
        .collect()
}

pub(crate) fn found<'a>(resolved: &'a ResolvedPlan, rule: &str) -> Vec<&'a PlanFinding> {
    resolved
        .findings
        .iter()
        .filter(|finding| finding.rule() == rule)
        .collect()
}

/// Returns the only error or warning of a rule, which has values and a fix.
pub(crate) fn one<'a>(resolved: &'a ResolvedPlan, rule: &str) -> &'a PlanFinding {
    let broken = broken(resolved, rule);
    assert_eq!(broken.len(), 1, "{rule}: {:#?}", resolved.findings);
    let finding = &broken[0].finding;
    assert!(finding.found.is_some(), "{finding}");
    assert!(finding.expected.is_some(), "{finding}");
    assert!(finding.fix.is_some(), "{finding}");
    broken[0]
}
