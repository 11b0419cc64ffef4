// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a cell's Linux is told of its devices and of the regions that it shares: nodes of its device
//! tree, made of those of the machine's (Devicetree Specification 0.4, 2.3, 2.4; the kernel's bindings
//! arm,gic-v3 and fixed-clock).

use rampart_hypervisor_core::format::{MemoryFlags, MemoryRegion};
use rampart_model::{Finding, Severity};

use crate::describe::{Description, Device, Interrupt, InterruptKind, RangeUse, Reference};
use crate::linux::{FIRST_PHANDLE, TreeNode};
use crate::names::RegionNames;

/// What a region that others see too is compatible with.
const SHARED_MEMORY: &str = "rampart,shared-memory";

/// Properties that name what is in another one, one by one.
const NAMES: [(&str, &str); 5] = [
    ("clocks", "clock-names"),
    ("resets", "reset-names"),
    ("power-domains", "power-domain-names"),
    ("dmas", "dma-names"),
    ("pinctrl-0", "pinctrl-names"),
];

type Property = (String, Vec<u8>);

fn words(values: &[u32]) -> Vec<u8> {
    values.iter().flat_map(|word| word.to_be_bytes()).collect()
}

fn text(value: &str) -> Vec<u8> {
    format!("{value}\0").into_bytes()
}

fn list<'a>(values: impl Iterator<Item = &'a str>) -> Vec<u8> {
    values.flat_map(text).collect()
}

/// An address and a size of 64 bits each, as all nodes of a cell's tree have them.
fn place(start: u64, bytes: u64) -> [u32; 4] {
    [start, bytes].map(|value| [(value >> 32) as u32, value as u32]).concat().try_into().unwrap_or_default()
}

/// The nodes of these devices, which the cell has, and of the clocks that they need.
pub(super) fn devices(
    description: &Description,
    cell: &str,
    paths: &[String],
    found: &mut Vec<Finding>,
) -> Vec<TreeNode> {
    let has = |device: &&Device| paths.contains(&device.path);
    let devices: Vec<&Device> = description.devices.iter().filter(has).collect();
    let mut tree = Tree {
        cell,
        paths: devices.iter().map(|device| device.path.as_str()).collect(),
        frequencies: Vec::new(),
        found,
    };
    let mut nodes: Vec<TreeNode> = devices.iter().map(|device| tree.node(device)).collect();
    let clocks = tree.frequencies.iter().enumerate().map(|(index, hertz)| {
        let phandle = FIRST_PHANDLE + (devices.len() + index) as u32;
        TreeNode {
            name: format!("clock-{hertz}"),
            properties: vec![
                ("compatible".to_owned(), text("fixed-clock")),
                ("#clock-cells".to_owned(), words(&[0])),
                ("clock-frequency".to_owned(), words(&[*hertz])),
                ("phandle".to_owned(), words(&[phandle])),
            ],
        }
    });
    nodes.extend(clocks);
    nodes
}

/// The regions that have names.
pub(super) fn regions(shared: &[MemoryRegion], names: &RegionNames) -> Vec<TreeNode> {
    let node = |region: &MemoryRegion| {
        let name = names.of(region)?;
        let mut properties = vec![
            ("compatible".to_owned(), text(SHARED_MEMORY)),
            ("reg".to_owned(), words(&place(region.guest, region.bytes))),
            ("label".to_owned(), text(name)),
        ];
        if !region.flags().contains(MemoryFlags::WRITE) {
            properties.push(("read-only".to_owned(), Vec::new()));
        }
        Some(TreeNode {
            name: format!("shared-memory@{:x}", region.guest),
            properties,
        })
    };
    shared.iter().filter_map(node).collect()
}

/// While it is made.
struct Tree<'a> {
    cell: &'a str,
    /// Of the devices that the cell has: the n-th is [`FIRST_PHANDLE`] + n.
    paths: Vec<&'a str>,
    /// Of clocks that never change, in hertz; they are numbered behind the devices.
    frequencies: Vec<u32>,
    found: &'a mut Vec<Finding>,
}

impl Tree<'_> {
    fn told(&mut self, device: &Device, severity: Severity, what: String) -> &mut Finding {
        let place = format!("cell {}, device {}", self.cell, device.path);
        self.found.push(Finding::new(severity, place, what));
        // Just pushed.
        let last = self.found.len() - 1;
        &mut self.found[last]
    }

    fn node(&mut self, device: &Device) -> TreeNode {
        let name = device.name();
        let plain = name.split_once('@').map_or(name, |(plain, _)| plain);
        let ranges = device.ranges.iter();
        let ranges: Vec<_> = ranges
            .filter(|range| range.purpose == RangeUse::Registers)
            .collect();
        let name = match ranges.first() {
            Some(first) => format!("{plain}@{:x}", first.start),
            None => plain.to_owned(),
        };
        let mut properties: Vec<Property> = Vec::new();
        let own = self.paths.iter().position(|path| *path == device.path);
        let phandle = FIRST_PHANDLE + own.unwrap_or(0) as u32;
        properties.push(("phandle".to_owned(), words(&[phandle])));
        if !ranges.is_empty() {
            let places = ranges.iter().flat_map(|range| place(range.start, range.bytes));
            let places: Vec<u32> = places.collect();
            properties.push(("reg".to_owned(), words(&places)));
        }
        let names: Vec<&str> = ranges.iter().filter_map(|range| range.name.as_deref()).collect();
        if !names.is_empty() && names.len() == ranges.len() {
            properties.push(("reg-names".to_owned(), list(names.into_iter())));
        }
        properties.extend(self.interrupts(device));
        let mut left_out = Vec::new();
        let mut seen: Vec<&str> = Vec::new();
        for reference in &device.references {
            let property = reference.property.as_str();
            if seen.contains(&property) {
                continue;
            }
            seen.push(property);
            match self.references(device, property) {
                Some(value) => properties.push((property.to_owned(), value)),
                None => left_out.extend(NAMES.iter().filter(|(of, _)| *of == property)),
            }
        }
        for (property, path) in &device.contents.elsewhere {
            self.missing(device, property, path);
        }
        let rest = device.contents.properties.iter();
        properties.extend(
            rest.filter(|(name, _)| left_out.iter().all(|(_, names)| names != name))
                .cloned(),
        );
        TreeNode { name, properties }
    }

    /// Its interrupts up to the first that the cell does not get: drivers count them.
    fn interrupts(&mut self, device: &Device) -> Option<Property> {
        let word = |interrupt: &Interrupt| {
            // Only a rising edge and a high level reach a shared interrupt of the GIC.
            let flags = if interrupt.edge { 1 } else { 4 };
            (interrupt.kind == InterruptKind::Shared).then(|| [0, interrupt.number - 32, flags])
        };
        let all: Vec<[u32; 3]> = device.interrupts.iter().map_while(word).collect();
        if let Some(first) = device.interrupts.get(all.len()) {
            let (number, kind) = (first.number, first.kind);
            let what = format!("its Linux does not see its interrupt {} of {}", all.len() + 1, device.interrupts.len());
            self.told(device, Severity::Warning, what).values = Some((
                format!("interrupt {number}, {kind:?}"),
                "a shared one of the interrupt controller".to_owned(),
            )).into();
        }
        (!all.is_empty()).then(|| ("interrupts".to_owned(), words(&all.concat())))
    }

    /// The value of a property that points to others; `None` where one of these cannot be had.
    fn references(&mut self, device: &Device, property: &str) -> Option<Vec<u8>> {
        let mut value = Vec::new();
        for reference in device.references.iter().filter(|one| one.property == property) {
            let Some(phandle) = self.phandle(reference) else {
                self.missing(device, property, &reference.path);
                return None;
            };
            value.push(phandle);
            value.extend(&reference.arguments);
        }
        Some(words(&value))
    }

    fn phandle(&mut self, reference: &Reference) -> Option<u32> {
        let devices = self.paths.len() as u32;
        if let Some(place) = self.paths.iter().position(|path| *path == reference.path) {
            return Some(FIRST_PHANDLE + place as u32);
        }
        let hertz = reference.frequency.filter(|_| reference.property == "clocks")?;
        let known = self.frequencies.iter().position(|other| *other == hertz);
        let place = known.unwrap_or_else(|| {
            self.frequencies.push(hertz);
            self.frequencies.len() - 1
        });
        Some(FIRST_PHANDLE + devices + place as u32)
    }

    fn missing(&mut self, device: &Device, property: &str, path: &str) {
        let what = format!("its Linux gets the device without `{property}`");
        if property.starts_with("pinctrl") {
            // They were set before, and nobody changes them.
            self.told(device, Severity::Note, format!("{what}: its pins stay as they are"));
            return;
        }
        let place = format!("cell {}, device {}", self.cell, device.path);
        self.found.push(
            Finding::new(Severity::Warning, place, what)
                .values(
                    format!("{path}, which stays with the root"),
                    "a device of this cell, or a clock of fixed frequency",
                )
                .mend(format!(
                    "give the cell {path} too, if nobody else needs it; a driver that cannot do without refuses the device"
                )),
        );
    }
}
