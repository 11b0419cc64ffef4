// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Describes a machine from its device tree and from Linux's view of it: CPUs, memory, the
//! interrupt controller, devices with their registers and interrupts. The description is generated
//! completely; its findings report problems for cells and resources that devices share.
//!
//! [`Sources`] is the input; [`describe`] is a pure function of it.

mod addresses;
mod devices;
mod findings;
pub(crate) mod firmware;
mod flattened;
mod interrupts;
mod iomem;
mod nodes;
mod parts;
mod source;
pub(crate) mod spans;

pub use rampart_model::Span;
pub use rampart_model::device_tree::{
    AddressRange, DESCRIPTION_SCHEMA_VERSION, Description, Device, DeviceInterrupt, Driver,
    InterruptController, InterruptKind, NodeContents, RangeUse, Reference, ReservedMemory, TreeCpu,
};

pub use nodes::TreeError;
pub use source::Sources;

/// Describes a machine. A pure function.
#[must_use]
pub fn describe(sources: &Sources) -> Description {
    let nodes = &sources.nodes;
    let gic = parts::controller(nodes);
    let memory = parts::memory(nodes);
    let reserved = parts::reserved(nodes);
    let linux_memory = sources.iomem.as_ref().map(iomem::Iomem::linux_memory);
    let kept = parts::kept(&memory, &reserved, sources.iomem.as_ref());
    let mut description = Description {
        schema_version: DESCRIPTION_SCHEMA_VERSION,
        model: nodes.string(0, "model"),
        compatible: nodes.strings(0, "compatible"),
        cpus: parts::cpus(nodes, &sources.cpu_numbers),
        memory,
        reserved,
        linux_memory,
        kept,
        interrupt_controller: gic.as_ref().map(|(_, controller)| controller.clone()),
        devices: devices::all(nodes, gic.map(|(node, _)| node), &sources.drivers),
        findings: Vec::new(),
    };
    description.findings = findings::of(&description);
    description
}
