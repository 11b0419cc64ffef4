// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Describes CPUs, memory and the interrupt controller (Devicetree Specification 0.4, chapter 3;
//! the kernel's bindings arm,gic-v3 and arm,gic).

use std::collections::BTreeMap;

use super::iomem::Iomem;
use super::nodes::{Nodes, number};
use super::{
    AddressRange, AddressSpan, InterruptController, ReservedMemory, TreeCpu, addresses, spans,
};

/// The bits of MPIDR_EL1 that identify a CPU.
const AFFINITY: u64 = 0xff_00ff_ffff;
/// The `compatible` strings of GICv2. Not `nvidia,tegra210-agic`, which serves the audio processor.
const VERSION_2: [&str; 7] = [
    "arm,gic-400",
    "arm,cortex-a15-gic",
    "arm,cortex-a7-gic",
    "arm,cortex-a9-gic",
    "arm,gic-v2",
    "arm,eb11mp-gic",
    "brcm,brahma-b15-gic",
];

/// Returns the node and the description of the GIC.
pub(super) fn controller(nodes: &Nodes) -> Option<(usize, InterruptController)> {
    // The first one in the tree: others are secondary controllers.
    let is_gic = |node: &usize| {
        nodes.is_enabled(*node)
            && (nodes.is_compatible(*node, &["arm,gic-v3"])
                || nodes.is_compatible(*node, &VERSION_2))
    };
    let node = (0..nodes.len()).find(is_gic)?;
    let version = if nodes.is_compatible(node, &["arm,gic-v3"]) {
        3
    } else {
        2
    };
    let registers = addresses::registers(nodes, node);
    let spans: Vec<AddressSpan> = registers.iter().map(AddressRange::span).collect();
    let distributor = *spans.first()?;
    let regions = nodes.word(node, "#redistributor-regions").unwrap_or(1) as usize;
    let redistributors = if version == 3 {
        spans.iter().skip(1).take(regions).copied().collect()
    } else {
        Vec::new()
    };
    let services = nodes
        .children(node)
        .filter(|child| {
            nodes.is_compatible(*child, &["arm,gic-v3-its"]) && nodes.is_enabled(*child)
        })
        .flat_map(|child| addresses::registers(nodes, child))
        .map(|range| range.span())
        .collect();
    let controller = InterruptController {
        version,
        path: nodes.path(node).to_owned(),
        distributor,
        redistributors,
        cpu_interface: spans.get(1).copied().filter(|_| version == 2),
        translation_services: services,
    };
    Some((node, controller))
}

/// Returns the CPUs; `numbers` are Linux's, by path of their nodes.
pub(super) fn cpus(nodes: &Nodes, numbers: &BTreeMap<String, u32>) -> Vec<TreeCpu> {
    let Some(all) = nodes.find("/cpus") else {
        return Vec::new();
    };
    let is_cpu = |node: &usize| {
        nodes.string(*node, "device_type").as_deref() == Some("cpu") && nodes.is_enabled(*node)
    };
    let mut found: Vec<TreeCpu> = nodes
        .children(all)
        .filter(is_cpu)
        .enumerate()
        .filter_map(|(location, node)| {
            let path = nodes.path(node).to_owned();
            Some(TreeCpu {
                number: numbers.get(&path).copied().unwrap_or(location as u32),
                mpidr: number(&nodes.words(node, "reg"))? & AFFINITY,
                path,
                compatible: nodes.strings(node, "compatible"),
                enable_method: nodes.string(node, "enable-method"),
            })
        })
        .collect();
    found.sort_by_key(|cpu| (cpu.number, cpu.mpidr));
    found
}

/// Returns all memory (3.4).
pub(super) fn memory(nodes: &Nodes) -> Vec<AddressSpan> {
    let is_memory = |node: &usize| {
        nodes.string(*node, "device_type").as_deref() == Some("memory") && nodes.is_enabled(*node)
    };
    let found = nodes.children(0).filter(is_memory);
    let spans = found.flat_map(|node| addresses::registers(nodes, node));
    spans::united(spans.map(|range| range.span()).collect())
}

/// Returns the reserved parts of the memory (3.5, 5.3).
pub(super) fn reserved(nodes: &Nodes) -> Vec<ReservedMemory> {
    let listed = nodes
        .reservations
        .iter()
        .map(|(start, bytes)| ReservedMemory {
            span: AddressSpan {
                start: *start,
                bytes: *bytes,
            },
            path: "/memreserve/".to_owned(),
            no_map: false,
            for_cells: false,
        });
    let mut found: Vec<ReservedMemory> = listed.collect();
    if let Some(all) = nodes.find("/reserved-memory") {
        for node in nodes.children(all).filter(|node| nodes.is_enabled(*node)) {
            let for_cells = nodes.name(node).starts_with("rampart")
                || nodes.is_compatible(node, &["rampart,cells"]);
            for range in addresses::registers(nodes, node) {
                found.push(ReservedMemory {
                    span: range.span(),
                    path: nodes.path(node).to_owned(),
                    no_map: nodes.has(node, "no-map"),
                    for_cells,
                });
            }
        }
    }
    found.sort_by(|one, other| (one.span, &one.path).cmp(&(other.span, &other.path)));
    found.dedup();
    found
}

/// Returns the unused memory. Without `/proc/iomem`, only the memory that the tree reserves for
/// cells.
pub(super) fn kept(
    memory: &[AddressSpan],
    reserved: &[ReservedMemory],
    iomem: Option<&Iomem>,
) -> Vec<AddressSpan> {
    let ours: Vec<AddressSpan> = reserved
        .iter()
        .filter(|one| one.for_cells && one.no_map)
        .map(|one| one.span)
        .collect();
    let others = reserved.iter().filter(|one| !one.for_cells);
    let mut taken: Vec<AddressSpan> = others.map(|one| one.span).collect();
    let Some(iomem) = iomem else {
        return spans::common(memory, &spans::without(&ours, &taken));
    };
    // `/proc/iomem` shows unmapped memory as used, including memory reserved for cells.
    taken.extend(spans::without(&iomem.taken(), &ours));
    spans::without(memory, &taken)
}
