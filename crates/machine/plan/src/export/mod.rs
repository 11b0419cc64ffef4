// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Exports plans to other tools, as far as they support them.
//!
//! **Invariant:** every unsupported field is reported. [`MachineField`] and [`DomainField`] list all
//! fields of a plan and the implicit actions of Rampart. Each tool has an answer for each of them; an
//! unsupported field becomes a finding and a comment in the files. A new field of the plan does not
//! compile before every tool has an answer.

mod engine;
mod field;
mod gaps;
mod interrupts;
mod kubelet;
mod kubernetes;
mod libvirt;
mod libvirt_cache;
mod libvirt_devices;
pub mod libvirt_elements;
mod systemd;
mod systemd_answers;
mod systemd_machine;
mod systemd_unit;
mod tuned;
mod words;

use rampart_model::{
    CpuId, CpuSet, Environment, Finding, Machine, Plan, PlannedDomain, ResolvedDomain, ResolvedPlan,
};

pub use engine::{Engine, containers};
pub use field::{DomainField, MachineField};
pub use kubernetes::kubernetes;
pub use libvirt::libvirt;
pub use systemd::{Means, systemd};
pub use tuned::tuned;

/// What is exported, and for which machine.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    /// The machine that the plan was resolved on.
    pub machine: &'a Machine,
    /// What is around.
    pub environment: &'a Environment,
    /// The plan.
    pub plan: &'a Plan,
    /// The same, resolved on the machine.
    pub resolved: &'a ResolvedPlan,
    /// The plan's file: an absolute path, for who has to find it again.
    pub file: &'a str,
}

/// A plan as files for another tool.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Exported {
    /// The files, in the order in which a person reads them.
    pub files: Vec<ExportedFile>,
    /// What the tool has no words for, and what is to be done besides.
    pub findings: Vec<Finding>,
}

/// One file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportedFile {
    /// Where it belongs, relative to the directory that is exported to.
    pub path: String,
    /// What is in it.
    pub text: String,
}

/// By these words in its first line a file is known as one that an export wrote.
pub const MARK: &str = "Written by rampart export";

impl<'a> Subject<'a> {
    /// Each domain as the plan has it, and as it was resolved.
    fn domains(&self) -> impl Iterator<Item = (&'a PlannedDomain, &'a ResolvedDomain)> {
        self.plan.domains.iter().zip(&self.resolved.domains)
    }

    /// The memory nodes of some CPUs.
    fn nodes(&self, cpus: &CpuSet) -> CpuSet {
        self.machine
            .topology
            .nodes
            .iter()
            .filter(|node| !node.cpus.intersection(cpus).is_empty())
            .map(|node| CpuId(node.id))
            .collect()
    }

    /// The memory nodes that are worth a word: none on a machine that has only one.
    fn told_nodes(&self, cpus: &CpuSet) -> Option<CpuSet> {
        let nodes = self.nodes(cpus);
        (self.machine.topology.nodes.len() > 1 && !nodes.is_empty()).then_some(nodes)
    }

    /// Whether control groups of version 2 rule the CPUs.
    fn has_unified_cpusets(&self) -> bool {
        self.machine.control_groups == "v2"
    }
}
