// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Exports plans to other tools, as far as they support them.
//!
//! **Invariant:** every unsupported field is reported. [`MachineField`] and [`DomainField`] list all
//! fields of a plan and the implicit actions of Rampart. Each tool has an answer for each group of
//! fields (`answers`); an unsupported field becomes a finding and a comment in the files. A new field
//! of the plan does not compile before `field` lists it and `answers` has its group.

mod answers;
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

/// The plan to export, and its machine.
#[derive(Debug, Clone, Copy)]
pub struct ExportSubject<'a> {
    /// The machine that the plan was resolved on.
    pub machine: &'a Machine,
    /// The environment that the plan was resolved in.
    pub environment: &'a Environment,
    /// The plan.
    pub plan: &'a Plan,
    /// The resolved plan.
    pub resolved: &'a ResolvedPlan,
    /// The absolute path of the plan's file.
    pub file: &'a str,
}

/// A plan as files for another tool.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Exported {
    /// The files, in reading order.
    pub files: Vec<ExportedFile>,
    /// Unsupported fields and manual steps.
    pub findings: Vec<Finding>,
}

/// One file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportedFile {
    /// The path, relative to the target directory.
    pub path: String,
    /// The content.
    pub text: String,
}

/// The text in the first line of every exported file, by which exports recognise their own files.
pub const MARK: &str = "Written by rampart export";

impl<'a> ExportSubject<'a> {
    /// Returns each domain as planned and as resolved.
    fn domains(&self) -> impl Iterator<Item = (&'a PlannedDomain, &'a ResolvedDomain)> {
        self.plan.domains.iter().zip(&self.resolved.domains)
    }

    /// Returns the memory nodes of these CPUs.
    fn nodes(&self, cpus: &CpuSet) -> CpuSet {
        self.machine
            .topology
            .nodes
            .iter()
            .filter(|node| !node.cpus.intersection(cpus).is_empty())
            .map(|node| CpuId(node.id))
            .collect()
    }

    /// Returns the memory nodes of these CPUs; `None` if the machine has one node only.
    fn several_nodes(&self, cpus: &CpuSet) -> Option<CpuSet> {
        let nodes = self.nodes(cpus);
        (self.machine.topology.nodes.len() > 1 && !nodes.is_empty()).then_some(nodes)
    }

    /// Returns whether the cpuset controller is in cgroup v2.
    fn has_unified_cpusets(&self) -> bool {
        self.machine.control_groups == "v2"
    }
}
