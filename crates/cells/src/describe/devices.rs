// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The devices of a tree.

use std::collections::BTreeMap;

use super::nodes::Nodes;
use super::{Device, Driver, Reference, addresses, interrupts};

/// Properties that point to other devices, with the property there that says how many words follow.
const REFERENCES: [(&str, Option<&str>); 6] = [
    ("clocks", Some("#clock-cells")),
    ("resets", Some("#reset-cells")),
    ("power-domains", Some("#power-domain-cells")),
    ("iommus", Some("#iommu-cells")),
    ("dmas", Some("#dma-cells")),
    ("pinctrl-0", None),
];

/// What has registers that the CPUs reach or interrupts, but for memory, CPUs and what is reserved.
pub(super) fn all(
    nodes: &Nodes,
    gic: Option<usize>,
    drivers: &BTreeMap<String, Driver>,
) -> Vec<Device> {
    let mut found = Vec::new();
    for node in 1..nodes.len() {
        let path = nodes.path(node);
        let apart = ["/cpus/", "/memory@", "/reserved-memory/", "/memory"];
        if apart.iter().any(|start| path.starts_with(start)) || !nodes.has(node, "compatible") {
            continue;
        }
        let mut ranges = addresses::registers(nodes, node);
        ranges.extend(addresses::windows(nodes, node));
        let interrupts = interrupts::of(nodes, node, gic);
        if ranges.is_empty() && interrupts.is_empty() {
            continue;
        }
        found.push(Device {
            path: path.to_owned(),
            compatible: nodes.strings(node, "compatible"),
            enabled: nodes.is_enabled(node),
            ranges,
            interrupts,
            references: references(nodes, node),
            linux: drivers.get(path).cloned(),
        });
    }
    let place = |device: &Device| device.ranges.iter().map(|range| range.start).min();
    found.sort_by(|one, other| {
        let key = |device: &Device| (place(device).unwrap_or(u64::MAX), device.path.clone());
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
                // 0 stands for none; of another one nobody knows how many words follow.
                if *phandle != 0 {
                    break;
                }
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
            });
            rest = next;
        }
    }
    found
}
