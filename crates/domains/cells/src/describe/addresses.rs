// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Translates device addresses: `reg`, through the `ranges` of every bus above the device, to the
//! addresses of the CPUs (Devicetree Specification 0.4, 2.3.6 to 2.3.8).

use super::nodes::{Nodes, number};
use super::{AddressRange, RangeUse};

/// Returns the ranges of a node's `reg` that are accessible to the CPUs.
pub(super) fn registers(nodes: &Nodes, node: usize) -> Vec<AddressRange> {
    let Some(parent) = nodes.parent(node) else {
        return Vec::new();
    };
    let (address_cells, size_cells) = nodes.cells(parent);
    // Without a size it is a number on a bus, not an address range.
    if address_cells == 0 || size_cells == 0 {
        return Vec::new();
    }
    let words = nodes.words(node, "reg");
    let names = nodes.strings(node, "reg-names");
    let mut found = Vec::new();
    for (index, entry) in words.chunks_exact(address_cells + size_cells).enumerate() {
        let (address, size) = entry.split_at(address_cells);
        let bytes = number(size).filter(|bytes| *bytes != 0);
        let start = translated(nodes, parent, address);
        if let (Some(start), Some(bytes)) = (start, bytes)
            && start.checked_add(bytes).is_some()
        {
            found.push(AddressRange {
                start,
                bytes,
                purpose: RangeUse::Registers,
                name: names.get(index).cloned(),
            });
        }
    }
    found
}

/// Returns the windows of a PCI host bridge: the parent's side of its `ranges` (PCI Bus Binding to
/// IEEE 1275, 2.1.4: three words of bus address, the space in the first).
pub(super) fn windows(nodes: &Nodes, node: usize) -> Vec<AddressRange> {
    let Some(parent) = nodes.parent(node) else {
        return Vec::new();
    };
    if nodes.string(node, "device_type").as_deref() != Some("pci") {
        return Vec::new();
    }
    let (child_cells, size_cells) = nodes.cells(node);
    let (parent_cells, _) = nodes.cells(parent);
    let words = nodes.words(node, "ranges");
    let mut found = Vec::new();
    let length = child_cells + parent_cells + size_cells;
    if child_cells != 3 || parent_cells == 0 || size_cells == 0 {
        return found;
    }
    for entry in words.chunks_exact(length) {
        let (_, rest) = entry.split_at(child_cells);
        let (address, size) = rest.split_at(parent_cells);
        let bytes = number(size).filter(|bytes| *bytes != 0);
        if let (Some(start), Some(bytes)) = (translated(nodes, parent, address), bytes)
            && start.checked_add(bytes).is_some()
        {
            found.push(AddressRange {
                start,
                bytes,
                purpose: RangeUse::PciWindow,
                name: None,
            });
        }
    }
    found
}

/// Translates an address of the bus `bus` to one of the CPUs. Returns `None` if it is not mapped.
fn translated(nodes: &Nodes, bus: usize, address: &[u32]) -> Option<u64> {
    let mut at = bus;
    let mut address = address.to_vec();
    while let Some(parent) = nodes.parent(at) {
        // A missing property: the bus is not mapped, for example I2C. An empty one: mapped one to
        // one.
        if !nodes.has(at, "ranges") {
            return None;
        }
        let ranges = nodes.words(at, "ranges");
        let (parent_cells, _) = nodes.cells(parent);
        if ranges.is_empty() {
            at = parent;
            continue;
        }
        let (child_cells, size_cells) = nodes.cells(at);
        let length = child_cells + parent_cells + size_cells;
        if length == 0 || address.len() != child_cells || child_cells == 0 {
            return None;
        }
        let location = |entry: &[u32]| -> Option<u64> {
            let (child, rest) = entry.split_at(child_cells);
            let (target, size) = rest.split_at(parent_cells);
            let (start, bytes) = (bus_number(child)?, number(size)?);
            let offset = bus_number(&address)?.checked_sub(start)?;
            (offset < bytes).then_some(())?;
            // A third word is the address space, as on PCI, and must be equal.
            (child.len() < 3 || child[0] == address[0]).then_some(())?;
            number(target)?.checked_add(offset)
        };
        let to = ranges.chunks_exact(length).find_map(location)?;
        address = match parent_cells {
            1 => vec![u32::try_from(to).ok()?],
            2 => vec![(to >> 32) as u32, to as u32],
            _ => return None,
        };
        at = parent;
    }
    number(&address)
}

/// Returns the address within its space.
fn bus_number(words: &[u32]) -> Option<u64> {
    match words {
        [_, rest @ ..] if words.len() == 3 => number(rest),
        _ => number(words),
    }
}
