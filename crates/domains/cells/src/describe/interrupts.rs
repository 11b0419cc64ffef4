// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Returns the GIC interrupts of a device (Devicetree Specification 0.4, 2.4; the kernel's binding
//! arm,gic-v3 for the words of an interrupt specifier).

use super::nodes::Nodes;
use super::{DeviceInterrupt, InterruptKind};

/// Controllers that forward each interrupt to the GIC with the same number, and are otherwise
/// active only while the machine sleeps.
const TRANSPARENT: [&str; 6] = [
    "fsl,imx8mq-gpc",
    "fsl,imx7d-gpc",
    "fsl,imx8mp-gpc",
    "nvidia,tegra210-ictlr",
    "nvidia,tegra124-ictlr",
    "nvidia,tegra30-ictlr",
];

/// An interrupt specifier with its controller.
pub(super) struct Specifier {
    controller: usize,
    words: Vec<u32>,
}

/// Returns the interrupts of a device; for a PCI host bridge, including those of its slots' pins.
pub(super) fn of(nodes: &Nodes, node: usize, gic: Option<usize>) -> Vec<DeviceInterrupt> {
    let mut found: Vec<DeviceInterrupt> = Vec::new();
    let mapped = mapped(nodes, node).into_iter().map(|(_, asked)| asked);
    for asked in direct(nodes, node).into_iter().chain(mapped) {
        let interrupt = resolved_interrupt(nodes, &asked, gic);
        if !found.contains(&interrupt) {
            found.push(interrupt);
        }
    }
    found
}

pub(super) fn resolved_interrupt(
    nodes: &Nodes,
    asked: &Specifier,
    gic: Option<usize>,
) -> DeviceInterrupt {
    let handed_on = nodes.is_compatible(asked.controller, &TRANSPARENT);
    let kind = if Some(asked.controller) == gic || handed_on {
        match asked.words[..] {
            [0, number, ..] => number
                .checked_add(32)
                .map(|number| (InterruptKind::Shared, number)),
            [1, number, ..] => number
                .checked_add(16)
                .map(|number| (InterruptKind::Private, number)),
            [2, number, ..] => number
                .checked_add(4096)
                .map(|number| (InterruptKind::Extended, number)),
            _ => None,
        }
    } else {
        None
    };
    let flags = asked.words.get(2).copied().unwrap_or(0) & 0xf;
    let (kind, number) = kind.unwrap_or((InterruptKind::Elsewhere, 0));
    if kind == InterruptKind::Elsewhere {
        return DeviceInterrupt {
            kind,
            number: asked.words.first().copied().unwrap_or(0),
            edge: false,
            controller: Some(nodes.path(asked.controller).to_owned()),
        };
    }
    DeviceInterrupt {
        kind,
        number,
        // Bits 0 and 1: a rising or falling edge.
        edge: flags & 3 != 0,
        controller: handed_on.then(|| nodes.path(asked.controller).to_owned()),
    }
}

fn direct(nodes: &Nodes, node: usize) -> Vec<Specifier> {
    let extended = nodes.words(node, "interrupts-extended");
    if !extended.is_empty() {
        return listed(nodes, &extended);
    }
    let words = nodes.words(node, "interrupts");
    if words.is_empty() {
        return Vec::new();
    }
    let Some(controller) = controller_of(nodes, node) else {
        return Vec::new();
    };
    let cells = interrupt_cells(nodes, controller);
    // A nexus: its map assigns the pin to an interrupt of its parent.
    if nodes.has(controller, "interrupt-map") {
        return Vec::new();
    }
    words
        .chunks_exact(cells)
        .map(|words| Specifier {
            controller,
            words: words.to_vec(),
        })
        .collect()
}

/// Parses specifiers that follow the phandle of their controller.
fn listed(nodes: &Nodes, words: &[u32]) -> Vec<Specifier> {
    let mut found = Vec::new();
    let mut rest = words;
    while let [phandle, after @ ..] = rest {
        let Some(controller) = nodes.with_phandle(*phandle) else {
            break;
        };
        let cells = interrupt_cells(nodes, controller).min(after.len());
        let (words, next) = after.split_at(cells);
        found.push(Specifier {
            controller,
            words: words.to_vec(),
        });
        rest = next;
    }
    found
}

/// Returns the interrupt of a PCI function at a host bridge, by the number of its bus, its device with its function, and
/// its pin from 1 (Open Firmware recommended practice: interrupt mapping 0.9; PCI bus binding 2.1, 4.1.1).
pub(super) fn of_pin(
    nodes: &Nodes,
    bridge: usize,
    (bus, function): (u32, u32),
    pin: u32,
) -> Option<Specifier> {
    let mask = nodes.words(bridge, "interrupt-map-mask");
    let own = [bus << 16 | function << 8, 0, 0, pin];
    let is_it = |(child, _): &(Vec<u32>, Specifier)| {
        let masks = mask.iter().copied().chain(std::iter::repeat(u32::MAX));
        let mut words = child.iter().zip(own).zip(masks);
        child.len() == own.len() && words.all(|((word, own), mask)| word & mask == own & mask)
    };
    let entry = mapped(nodes, bridge).into_iter().find(is_it);
    entry.map(|(_, asked)| asked)
}

/// Returns both sides of an `interrupt-map`: the words of the child, and the parent's interrupt (2.4.3).
fn mapped(nodes: &Nodes, node: usize) -> Vec<(Vec<u32>, Specifier)> {
    let words = nodes.words(node, "interrupt-map");
    if words.is_empty() {
        return Vec::new();
    }
    let own = nodes.cells(node).0 + interrupt_cells(nodes, node);
    let mut found = Vec::new();
    let mut rest = words.as_slice();
    while rest.len() > own {
        let Some(controller) = nodes.with_phandle(rest[own]) else {
            break;
        };
        // Without the property, the default of address words is 0 here, unlike elsewhere.
        let address = nodes.word(controller, "#address-cells").unwrap_or(0).min(4) as usize;
        let begin = own + 1 + address;
        let end = begin + interrupt_cells(nodes, controller);
        let Some(words) = rest.get(begin..end) else {
            break;
        };
        let asked = Specifier {
            controller,
            words: words.to_vec(),
        };
        found.push((rest[..own].to_vec(), asked));
        rest = &rest[end..];
    }
    found
}

/// Returns the nearest `interrupt-parent`, or the nearest controller above.
fn controller_of(nodes: &Nodes, node: usize) -> Option<usize> {
    let mut at = Some(node);
    while let Some(index) = at {
        if let Some(phandle) = nodes.word(index, "interrupt-parent") {
            return nodes.with_phandle(phandle);
        }
        at = nodes.parent(index);
        if let Some(above) = at
            && (nodes.has(above, "interrupt-controller") || nodes.has(above, "interrupt-map"))
        {
            return at;
        }
    }
    None
}

fn interrupt_cells(nodes: &Nodes, controller: usize) -> usize {
    let cells = nodes.word(controller, "#interrupt-cells").unwrap_or(1);
    cells.clamp(1, 4) as usize
}
