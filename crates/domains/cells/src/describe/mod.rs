// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Describes a machine from its device tree and from Linux's view of it: CPUs, memory, the
//! interrupt controller, devices with their registers and interrupts. The description is generated
//! completely; its findings report problems for cells and resources that devices share.
//!
//! [`Sources`] is the input; [`describe`] is a pure function of it.

mod addresses;
mod caches;
mod description_sources;
mod devices;
pub(crate) mod firmware;
mod flattened;
mod functions;
mod interrupts;
mod iomem;
mod nodes;
mod smmu;
pub(crate) mod spans;
mod tree_resources;

pub use rampart_model::AddressSpan;
pub use rampart_model::device_tree::{
    AddressRange, CacheSource, DESCRIPTION_SCHEMA_VERSION, Description, DeviceInterrupt, Driver,
    FunctionRange, InterruptController, InterruptKind, LastCache, NodeContents, PciFunction,
    RangeUse, Reference, ReservedMemory, Smmu, SmmuOwner, TreeCpu, TreeDevice,
};

pub use description_sources::Sources;
pub use nodes::TreeError;

/// Describes a machine. A pure function.
#[must_use]
pub fn describe(sources: &Sources) -> Description {
    let nodes = &sources.nodes;
    let gic = tree_resources::controller(nodes);
    let memory = tree_resources::memory(nodes);
    let reserved = tree_resources::reserved(nodes);
    let linux_memory = sources.iomem.as_ref().map(iomem::Iomem::linux_memory);
    let kept = tree_resources::kept(&memory, &reserved, sources.iomem.as_ref());
    let mut description = Description {
        schema_version: DESCRIPTION_SCHEMA_VERSION,
        model: nodes.string(0, "model"),
        compatible: nodes.strings(0, "compatible"),
        cpus: tree_resources::cpus(nodes, &sources.cpu_numbers),
        memory,
        reserved,
        linux_memory,
        kept,
        interrupt_controller: gic.as_ref().map(|(_, controller)| controller.clone()),
        smmus: smmu::all(nodes),
        last_cache: caches::last(nodes).or(sources.cache),
        devices: devices::all(nodes, gic.as_ref().map(|(node, _)| *node), &sources.drivers),
        functions: functions::all(nodes, gic.map(|(node, _)| node), &sources.functions),
        requested_interrupts: sources.requested_interrupts.iter().copied().collect(),
        findings: Vec::new(),
    };
    description.findings = rampart_rules::cells::check_description(&description);
    description
}
