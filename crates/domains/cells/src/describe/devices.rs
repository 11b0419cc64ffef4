// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The devices of a tree.

use std::collections::BTreeMap;

use super::nodes::Nodes;
use super::{Driver, NodeContents, Reference, TreeDevice, addresses, interrupts};

/// Properties that reference other devices, and the property of the other device with the number of
/// argument words.
const REFERENCES: [(&str, Option<&str>); 6] = [
    ("clocks", Some("#clock-cells")),
    ("resets", Some("#reset-cells")),
    ("power-domains", Some("#power-domain-cells")),
    ("iommus", Some("#iommu-cells")),
    ("dmas", Some("#dma-cells")),
    ("pinctrl-0", None),
];

/// Returns the nodes with registers accessible to the CPUs or with interrupts, except memory, CPUs
/// and reserved memory.
pub(super) fn all(
    nodes: &Nodes,
    gic: Option<usize>,
    drivers: &BTreeMap<String, Driver>,
) -> Vec<TreeDevice> {
    let mut found = Vec::new();
    for node in 1..nodes.len() {
        let path = nodes.path(node);
        let apart = ["/cpus/", "/memory@", "/reserved-memory/"];
        let is_apart = path == "/memory" || apart.iter().any(|start| path.starts_with(start));
        if is_apart || !nodes.has(node, "compatible") {
            continue;
        }
        let mut ranges = addresses::registers(nodes, node);
        ranges.extend(addresses::windows(nodes, node));
        let interrupts = interrupts::of(nodes, node, gic);
        if ranges.is_empty() && interrupts.is_empty() {
            continue;
        }
        found.push(TreeDevice {
            path: path.to_owned(),
            compatible: nodes.strings(node, "compatible"),
            enabled: nodes.is_enabled(node),
            ranges,
            interrupts,
            references: references(nodes, node),
            linux: drivers.get(path).cloned(),
            contents: contents(nodes, node),
        });
    }
    let location = |device: &TreeDevice| device.ranges.iter().map(|range| range.start).min();
    found.sort_by(|one, other| {
        let key = |device: &TreeDevice| (location(device).unwrap_or(u64::MAX), device.path.clone());
        key(one).cmp(&key(other))
    });
    found
}

fn references(nodes: &Nodes, node: usize) -> Vec<Reference> {
    let mut found = Vec::new();
    for (property, cells) in REFERENCES {
        let words = nodes.words(node, property);
        let mut rest = words.as_slice();
        while let [phandle, after @ ..] = rest {
            let Some(target) = nodes.with_phandle(*phandle) else {
                // For an unknown phandle the number of argument words is unknown. An unknown SMMU is kept as an
                // entry that no one confines.
                if *phandle != 0 && property != "iommus" {
                    break;
                }
                // No reference, but an entry: drivers identify entries by index.
                found.push(Reference {
                    property: property.to_owned(),
                    path: String::new(),
                    arguments: Vec::new(),
                    frequency: None,
                });
                rest = after;
                continue;
            };
            let count = cells.and_then(|cells| nodes.word(target, cells));
            let count = (count.unwrap_or(0) as usize).min(after.len());
            let (arguments, next) = after.split_at(count);
            found.push(Reference {
                property: property.to_owned(),
                path: nodes.path(target).to_owned(),
                arguments: arguments.to_vec(),
                frequency: nodes
                    .is_compatible(target, &["fixed-clock"])
                    .then(|| nodes.word(target, "clock-frequency"))
                    .flatten(),
            });
            rest = next;
        }
    }
    found
}

/// Properties that are evaluated above, or that are meaningful only in their own tree.
const UNDERSTOOD: [&str; 16] = [
    "reg",
    "reg-names",
    "interrupts",
    "interrupts-extended",
    "interrupt-names",
    "interrupt-parent",
    "interrupt-map",
    "interrupt-map-mask",
    "phandle",
    "linux,phandle",
    "name",
    "ranges",
    "dma-ranges",
    "status",
    "#address-cells",
    "#size-cells",
];

/// Properties of common bindings that reference other nodes, in addition to [`REFERENCES`] and to
/// the suffixes in [`points`].
const POINTING: [&str; 16] = [
    "gpios",
    "phys",
    "phy-handle",
    "mboxes",
    "nvmem-cells",
    "memory-region",
    "interconnects",
    "operating-points-v2",
    "msi-parent",
    "hwlocks",
    "syscon",
    "pwms",
    "io-channels",
    "iommu-map",
    "msi-map",
    "extcon",
];

fn points(property: &str) -> bool {
    let ends = ["-supply", "-gpios", "-gpio", "-syscon"];
    POINTING.contains(&property)
        || ends.iter().any(|end| property.ends_with(end))
        || property.starts_with("assigned-clock")
        || (property.starts_with("pinctrl-") && property != "pinctrl-names")
}

fn contents(nodes: &Nodes, node: usize) -> NodeContents {
    let mut contents = NodeContents {
        aliases: aliases(nodes, node),
        ..NodeContents::default()
    };
    for (name, value) in nodes.properties(node) {
        if UNDERSTOOD.contains(&name) || REFERENCES.iter().any(|(known, _)| *known == name) {
            continue;
        }
        if points(name) {
            let first = nodes.word(node, name);
            let target = first.and_then(|phandle| nodes.with_phandle(phandle));
            let path = target.map_or("an unknown node", |target| nodes.path(target));
            contents.elsewhere.push((name.to_owned(), path.to_owned()));
        } else {
            contents.properties.push((name.to_owned(), value.to_vec()));
        }
    }
    contents
}

/// Returns the names of a node in `/aliases` (3.3).
fn aliases(nodes: &Nodes, node: usize) -> Vec<String> {
    let Some(all) = nodes.find("/aliases") else {
        return Vec::new();
    };
    let path = nodes.path(node);
    let names = nodes.properties(all).map(|(name, _)| name);
    names
        .filter(|name| nodes.string(all, name).as_deref() == Some(path))
        .map(str::to_owned)
        .collect()
}
