// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Registers, pages and interrupts that several devices share, so that one cell must get them all.

use std::collections::{BTreeMap, BTreeSet};

use rampart_hypervisor_core::interface::PAGE_BYTES;
use rampart_model::device_tree::{AddressRange, Description, TreeDevice};
use rampart_model::{AddressSpan, Finding, Severity};

use super::CELL_RULE;
use crate::Rule;

pub(super) const OVERLAP: Rule = Rule {
    id: "cell-device-overlap",
    severity: Severity::Warning,
    title: "No two devices have the same registers",
    reason: "A cell that gets one of the devices controls the other, too.",
    ..CELL_RULE
};

pub(super) const PAGE: Rule = Rule {
    id: "cell-device-page",
    severity: Severity::Warning,
    title: "Each device has pages of 4 KiB of its own",
    reason: "Stage 2 maps whole pages, so a cell that gets one of the devices reaches the other, too.",
    ..CELL_RULE
};

pub(super) const INTERRUPT: Rule = Rule {
    id: "cell-device-interrupt",
    severity: Severity::Warning,
    title: "Each device has interrupts of its own",
    reason: "An interrupt belongs to one cell, so two devices with one interrupt must belong to the same cell.",
    ..CELL_RULE
};

pub(super) const IN_MEMORY: Rule = Rule {
    id: "cell-device-memory",
    severity: Severity::Warning,
    title: "The registers of devices are outside memory",
    reason: "A cell that gets the device would reach the memory of another owner.",
    ..CELL_RULE
};

pub(super) fn check(description: &Description, found: &mut Vec<Finding>) {
    let devices: Vec<&TreeDevice> = description
        .devices
        .iter()
        .filter(|device| device.enabled)
        .collect();
    overlaps(&devices, found);
    pages(&devices, found);
    interrupts(&devices, found);
    in_memory(description, &devices, found);
}

/// Returns each set of devices that share parts, with the parts; ascending.
fn shared(devices: &[&TreeDevice], rounded: bool) -> BTreeMap<Vec<usize>, Vec<AddressSpan>> {
    let mut ranges: Vec<(AddressSpan, usize)> = Vec::new();
    for (index, device) in devices.iter().enumerate() {
        for range in &device.ranges {
            let span = range.span();
            ranges.push((if rounded { in_pages(&span) } else { span }, index));
        }
    }
    let mut edges: Vec<u64> = ranges
        .iter()
        .flat_map(|(span, _)| [span.start, span.end()])
        .collect();
    edges.sort_unstable();
    edges.dedup();
    let mut found: BTreeMap<Vec<usize>, Vec<AddressSpan>> = BTreeMap::new();
    for pair in edges.windows(2) {
        let part = AddressSpan::between(pair[0], pair[1]);
        let owners: BTreeSet<usize> = ranges
            .iter()
            .filter(|(span, _)| span.holds(&part))
            .map(|(_, owner)| *owner)
            .collect();
        let owners = innermost(devices, &owners);
        if owners.len() > 1 {
            // Edges ascend, so that only the last part can be adjacent.
            let parts = found.entry(owners).or_default();
            match parts.last_mut() {
                Some(last) if last.end() == part.start => {
                    *last = AddressSpan::between(last.start, part.end());
                }
                _ => parts.push(part),
            }
        }
    }
    found
}

fn in_pages(span: &AddressSpan) -> AddressSpan {
    let start = span.start & !(PAGE_BYTES - 1);
    AddressSpan::between(start, span.end().next_multiple_of(PAGE_BYTES))
}

/// Returns the devices without another of them below in the tree: a node inside another one is a
/// part of it.
fn innermost(devices: &[&TreeDevice], owners: &BTreeSet<usize>) -> Vec<usize> {
    let is_above = |one: usize, other: usize| {
        let above = format!("{}/", devices[one].path);
        one != other && devices[other].path.starts_with(&above)
    };
    owners
        .iter()
        .copied()
        .filter(|owner| !owners.iter().any(|other| is_above(*owner, *other)))
        .collect()
}

fn names(devices: &[&TreeDevice], owners: &[usize]) -> String {
    let names: Vec<&str> = owners
        .iter()
        .map(|owner| devices[*owner].path.as_str())
        .collect();
    names.join(", ")
}

fn listed(parts: &[AddressSpan]) -> String {
    let parts: Vec<String> = parts.iter().map(AddressSpan::to_string).collect();
    parts.join(", ")
}

fn overlaps(devices: &[&TreeDevice], found: &mut Vec<Finding>) {
    for (owners, parts) in shared(devices, false) {
        found.push(
            OVERLAP
                .finding(
                    format!("registers {}", listed(&parts)),
                    format!("the ranges of {} overlap", names(devices, &owners)),
                )
                .values(format!("{} devices", owners.len()), "1")
                .fix("give these devices to one cell, or leave them all with the root"),
        );
    }
}

fn pages(devices: &[&TreeDevice], found: &mut Vec<Finding>) {
    let overlapping = shared(devices, false);
    for (owners, parts) in shared(devices, true) {
        if overlapping.contains_key(&owners) {
            continue;
        }
        found.push(
            PAGE.finding(
                format!("pages {}", listed(&parts)),
                format!("{} share them", names(devices, &owners)),
            )
            .values(format!("{} devices", owners.len()), "1 in each page of 4 KiB")
            .fix("give these devices to one cell, or grant a cell single registers of them, bit by bit"),
        );
    }
}

fn interrupts(devices: &[&TreeDevice], found: &mut Vec<Finding>) {
    let mut owners: BTreeMap<u32, BTreeSet<usize>> = BTreeMap::new();
    for (index, device) in devices.iter().enumerate() {
        for number in device.shared_interrupts() {
            owners.entry(number).or_default().insert(index);
        }
    }
    for (number, owners) in owners.iter().filter(|(_, owners)| owners.len() > 1) {
        let owners: Vec<usize> = owners.iter().copied().collect();
        found.push(
            INTERRUPT
                .finding(
                    format!("interrupt {number} (SPI {})", number - 32),
                    format!("{} share it", names(devices, &owners)),
                )
                .values(format!("{} devices", owners.len()), "1")
                .fix("give these devices to one cell, or leave them all with the root"),
        );
    }
}

fn in_memory(description: &Description, devices: &[&TreeDevice], found: &mut Vec<Finding>) {
    for device in devices {
        let inside =
            |span: AddressSpan| description.memory.iter().any(|memory| memory.meets(&span));
        let parts: Vec<AddressSpan> = device
            .ranges
            .iter()
            .map(AddressRange::span)
            .filter(|span| inside(*span))
            .collect();
        if !parts.is_empty() {
            found.push(
                IN_MEMORY
                    .finding(
                        device.path.clone(),
                        format!("its range {} overlaps memory", listed(&parts)),
                    )
                    .values("in memory", "beside it")
                    .fix("leave the device with the root"),
            );
        }
    }
}
