// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Findings that prevent cells on a machine, and resources that devices share.

use std::collections::{BTreeMap, BTreeSet};

use rampart_hypervisor_core::interface::{MAXIMUM_CPUS, MEMORY_ALIGNMENT, PAGE_BYTES};
use rampart_model::{Finding, Severity};

use super::{Description, Device, Span};

/// Minimum memory for a suggestion: the hypervisor and one small cell.
const MINIMUM_BYTES: u64 = 64 << 20;

pub(super) fn of(description: &Description) -> Vec<Finding> {
    let mut found = Vec::new();
    controller(description, &mut found);
    cpus(description, &mut found);
    memory(description, &mut found);
    let devices: Vec<&Device> = description
        .devices
        .iter()
        .filter(|device| device.enabled)
        .collect();
    overlaps(&devices, &mut found);
    pages(&devices, &mut found);
    interrupts(&devices, &mut found);
    in_memory(description, &devices, &mut found);
    found
}

fn controller(description: &Description, found: &mut Vec<Finding>) {
    let Some(controller) = &description.interrupt_controller else {
        found.push(
            Finding::new(
                Severity::Error,
                "interrupt controller",
                "the device tree has no GIC",
            )
            .values("none", "a node compatible with arm,gic-v3")
            .fix("use a machine with a GICv3; cells need its CPU interface"),
        );
        return;
    };
    let location = format!("interrupt controller {}", controller.path);
    if controller.version != 3 {
        found.push(
            Finding::new(
                Severity::Error,
                location,
                "its interrupts need exits to the hypervisor",
            )
            .values(format!("GICv{}", controller.version), "GICv3 or later")
            .fix("use a machine with a GICv3 (QEMU: -M virt,virtualization=on,gic-version=3)"),
        );
        return;
    }
    if controller.redistributors.len() != 1 {
        found.push(
            Finding::new(
                Severity::Error,
                location.clone(),
                "the hypervisor supports one region of redistributors",
            )
            .values(
                format!("{} regions", controller.redistributors.len()),
                "1 region",
            )
            .fix("remove the CPUs of the other regions from the device tree (maxcpus= on the kernel command line is not enough)"),
        );
    }
    if !controller.translation_services.is_empty() {
        found.push(
            Finding::new(
                Severity::Warning,
                location,
                "its ITS can write any memory and stays with the root",
            )
            .values(
                format!("{} ITS", controller.translation_services.len()),
                "no ITS, or a trusted root",
            )
            .fix("disable the ITS in the firmware's device tree if no PCI device needs it (QEMU: its=off)"),
        );
    }
}

fn cpus(description: &Description, found: &mut Vec<Finding>) {
    let count = description.cpus.len();
    if !(2..=MAXIMUM_CPUS).contains(&count) {
        found.push(
            Finding::new(
                Severity::Error,
                "CPUs",
                "the number of CPUs does not allow a cell",
            )
            .values(format!("{count}"), format!("2 to {MAXIMUM_CPUS}"))
            .fix("use a machine with that many CPUs"),
        );
    }
    let others: Vec<&str> = description
        .cpus
        .iter()
        .filter(|cpu| cpu.enable_method.as_deref() != Some("psci"))
        .map(|cpu| cpu.path.as_str())
        .collect();
    if !others.is_empty() {
        found.push(
            Finding::new(
                Severity::Error,
                others.join(", "),
                "only CPUs that PSCI turns on and off can leave Linux",
            )
            .values("another enable-method", "enable-method = \"psci\"")
            .fix("use a firmware with PSCI (Trusted Firmware-A), and its device tree"),
        );
    }
}

fn memory(description: &Description, found: &mut Vec<Finding>) {
    let largest = description.kept.iter().map(usable).max().unwrap_or(0);
    if largest >= MEMORY_ALIGNMENT {
        return;
    }
    let total: u64 = description.memory.iter().map(|span| span.bytes).sum();
    let keep = (total / 4).max(MINIMUM_BYTES).min(total / 2) & !(MEMORY_ALIGNMENT - 1);
    let node = description.memory.last().map_or(0, |last| {
        last.end().saturating_sub(keep) & !(MEMORY_ALIGNMENT - 1)
    });
    let fix = format!(
        "boot Linux with mem={}M, or give the device tree a node /reserved-memory/rampart@{node:x} with reg = <{:#x} {:#x} {:#x} {:#x}> and no-map",
        total.saturating_sub(keep) >> 20,
        node >> 32,
        node & 0xffff_ffff,
        keep >> 32,
        keep & 0xffff_ffff,
    );
    let (severity, what, present) = match &description.linux_memory {
        Some(_) => (
            Severity::Error,
            "no memory is reserved from Linux for the hypervisor and its cells",
            format!("{largest} bytes"),
        ),
        None => (
            Severity::Warning,
            "the memory of Linux is unknown, and none is reserved for cells",
            "cannot read /proc/iomem".to_owned(),
        ),
    };
    found.push(
        Finding::new(severity, "memory", what)
            .values(present, "2 MiB or more, in whole 2 MiB")
            .fix(match (total, &description.linux_memory) {
                // The boot loader adds the memory.
                (0, _) => "describe the running machine: the device tree in a file has no memory"
                    .to_owned(),
                (_, Some(_)) => fix,
                (_, None) => format!("run as root or with --iomem FILE; otherwise {fix}"),
            }),
    );
}

/// Returns the size of the whole blocks in bytes.
fn usable(span: &Span) -> u64 {
    let start = span.start.next_multiple_of(MEMORY_ALIGNMENT);
    span.end().saturating_sub(start) & !(MEMORY_ALIGNMENT - 1)
}

/// Returns each set of devices that share parts, with the parts; ascending.
fn shared(devices: &[&Device], rounded: bool) -> BTreeMap<Vec<usize>, Vec<Span>> {
    let mut ranges: Vec<(Span, usize)> = Vec::new();
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
    let mut found: BTreeMap<Vec<usize>, Vec<Span>> = BTreeMap::new();
    for pair in edges.windows(2) {
        let part = Span::between(pair[0], pair[1]);
        let owners: BTreeSet<usize> = ranges
            .iter()
            .filter(|(span, _)| span.holds(&part))
            .map(|(_, owner)| *owner)
            .collect();
        let owners = innermost(devices, &owners);
        if owners.len() > 1 {
            let parts = found.entry(owners).or_default();
            parts.push(part);
            *parts = super::spans::united(std::mem::take(parts));
        }
    }
    found
}

fn in_pages(span: &Span) -> Span {
    let start = span.start & !(PAGE_BYTES - 1);
    Span::between(start, span.end().next_multiple_of(PAGE_BYTES))
}

/// Returns the devices without another of them below in the tree: a node inside another one is a
/// part of it.
fn innermost(devices: &[&Device], owners: &BTreeSet<usize>) -> Vec<usize> {
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

fn names(devices: &[&Device], owners: &[usize]) -> String {
    let names: Vec<&str> = owners
        .iter()
        .map(|owner| devices[*owner].path.as_str())
        .collect();
    names.join(", ")
}

fn listed(parts: &[Span]) -> String {
    let parts: Vec<String> = parts.iter().map(Span::to_string).collect();
    parts.join(", ")
}

fn overlaps(devices: &[&Device], found: &mut Vec<Finding>) {
    for (owners, parts) in shared(devices, false) {
        found.push(
            Finding::new(
                Severity::Warning,
                format!("registers {}", listed(&parts)),
                format!("the ranges of {} overlap", names(devices, &owners)),
            )
            .values(format!("{} devices", owners.len()), "1")
            .fix("give these devices to one cell, or leave them all with the root"),
        );
    }
}

fn pages(devices: &[&Device], found: &mut Vec<Finding>) {
    let overlapping = shared(devices, false);
    for (owners, parts) in shared(devices, true) {
        if overlapping.contains_key(&owners) {
            continue;
        }
        found.push(
            Finding::new(
                Severity::Warning,
                format!("pages {}", listed(&parts)),
                format!("{} share them", names(devices, &owners)),
            )
            .values(format!("{} devices", owners.len()), "1 in each page of 4 KiB")
            .fix("give these devices to one cell, or grant a cell single registers of them, bit by bit"),
        );
    }
}

fn interrupts(devices: &[&Device], found: &mut Vec<Finding>) {
    let mut owners: BTreeMap<u32, BTreeSet<usize>> = BTreeMap::new();
    for (index, device) in devices.iter().enumerate() {
        for number in device.shared_interrupts() {
            owners.entry(number).or_default().insert(index);
        }
    }
    for (number, owners) in owners.iter().filter(|(_, owners)| owners.len() > 1) {
        let owners: Vec<usize> = owners.iter().copied().collect();
        found.push(
            Finding::new(
                Severity::Warning,
                format!("interrupt {number} (SPI {})", number - 32),
                format!("{} share it", names(devices, &owners)),
            )
            .values(format!("{} devices", owners.len()), "1")
            .fix("give these devices to one cell, or leave them all with the root"),
        );
    }
}

fn in_memory(description: &Description, devices: &[&Device], found: &mut Vec<Finding>) {
    for device in devices {
        let inside = |span: Span| description.memory.iter().any(|memory| memory.meets(&span));
        let parts: Vec<Span> = device
            .ranges
            .iter()
            .map(super::AddressRange::span)
            .filter(|span| inside(*span))
            .collect();
        if !parts.is_empty() {
            found.push(
                Finding::new(
                    Severity::Warning,
                    device.path.clone(),
                    format!("its range {} overlaps memory", listed(&parts)),
                )
                .values("in memory", "beside it")
                .fix("leave the device with the root"),
            );
        }
    }
}
