// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Creates the device tree nodes that describe its devices and shared regions to a cell's Linux,
//! from the nodes of the machine's tree (Devicetree Specification 0.4, 2.3, 2.4; the kernel's
//! bindings arm,gic-v3 and fixed-clock).

use rampart_hypervisor_core::format::{Doorbell, MemoryFlags, MemoryRegion};
use rampart_model::{Finding, Severity};

use super::{doorbell_index, scmi};
use crate::describe::{
    Description, DeviceInterrupt, InterruptKind, RangeUse, Reference, TreeDevice,
};
use crate::linux::{FIRST_PHANDLE, TreeNode};
use crate::names::RegionNames;
use crate::network::{NetworkLink, mac_address};
use crate::scmi::{ResourceKind, Service};

/// `compatible` of a shared region.
const SHARED_MEMORY: &str = "rampart,shared-memory";
/// `compatible` of a network.
const NETWORK: &str = "rampart,network";

/// Properties with names for the entries of another property.
const NAMES: [(&str, &str); 5] = [
    ("clocks", "clock-names"),
    ("resets", "reset-names"),
    ("power-domains", "power-domain-names"),
    ("dmas", "dma-names"),
    ("pinctrl-0", "pinctrl-names"),
];

/// Path of an entry of a property that references nothing.
pub(super) const NOTHING: &str = "";

type Property = (String, Vec<u8>);

pub(super) fn words(values: &[u32]) -> Vec<u8> {
    values.iter().flat_map(|word| word.to_be_bytes()).collect()
}

pub(super) fn text(value: &str) -> Vec<u8> {
    format!("{value}\0").into_bytes()
}

fn list<'a>(values: impl Iterator<Item = &'a str>) -> Vec<u8> {
    values.flat_map(text).collect()
}

/// Returns an address and a size of 64 bits each, as in all nodes of a cell's tree.
pub(super) fn place(start: u64, bytes: u64) -> [u32; 4] {
    [
        (start >> 32) as u32,
        start as u32,
        (bytes >> 32) as u32,
        bytes as u32,
    ]
}

/// Returns the nodes of the cell's devices, of the clocks that they need, and of the service of those that the root
/// has. `of` is the cell's name, with its service, and its doorbells.
pub(super) fn devices(
    description: &Description,
    paths: &[String],
    of: (&str, &RegionNames, &[Doorbell]),
    found: &mut Vec<Finding>,
) -> Vec<TreeNode> {
    let has = |device: &&TreeDevice| paths.contains(&device.path);
    let devices: Vec<&TreeDevice> = description.devices.iter().filter(has).collect();
    let (cell, names, doorbells) = of;
    let mut tree = Tree {
        cell,
        service: names.service.as_ref(),
        paths: devices.iter().map(|device| device.path.as_str()).collect(),
        frequencies: Vec::new(),
        found,
    };
    let mut nodes: Vec<TreeNode> = devices.iter().map(|device| tree.node(device)).collect();
    let clocks = tree.frequencies.iter().enumerate().map(|(index, hertz)| {
        let phandle = tree.after_devices() + scmi::PHANDLES + index as u32;
        TreeNode {
            name: format!("clock-{hertz}"),
            properties: vec![
                ("compatible".to_owned(), text("fixed-clock")),
                ("#clock-cells".to_owned(), words(&[0])),
                ("clock-frequency".to_owned(), words(&[*hertz])),
                ("phandle".to_owned(), words(&[phandle])),
            ],
            ..TreeNode::default()
        }
    });
    nodes.extend(clocks);
    if let Some(service) = tree.service {
        // That of the root is the last.
        let to_root = doorbells.len().saturating_sub(1) as u32;
        nodes.extend(scmi::nodes(service, tree.after_devices(), to_root));
    }
    nodes
}

/// Returns the nodes of the regions that have names.
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
            ..TreeNode::default()
        })
    };
    shared.iter().filter_map(node).collect()
}

/// Returns the nodes of the networks (`kernel/net`).
pub(super) fn networks(cell: &str, doorbells: &[Doorbell], names: &RegionNames) -> Vec<TreeNode> {
    let node = |link: &NetworkLink| {
        let sections = [place(link.own, link.bytes), place(link.other, link.bytes)];
        // A shared interrupt with a rising edge.
        let interrupt = [0, link.own_bell - 32, 1];
        let doorbell = doorbell_index(doorbells, link.peer_bell);
        let address = mac_address(cell, &link.peer).to_vec();
        let mut properties = vec![
            ("compatible".to_owned(), text(NETWORK)),
            ("reg".to_owned(), words(&sections.concat())),
            ("interrupts".to_owned(), words(&interrupt)),
            ("rampart,doorbell".to_owned(), words(&[doorbell])),
            ("local-mac-address".to_owned(), address),
            ("label".to_owned(), text(&link.peer)),
        ];
        if link.cached {
            properties.push(("rampart,cached".to_owned(), Vec::new()));
        }
        TreeNode {
            name: format!("network@{:x}", link.own),
            properties,
            ..TreeNode::default()
        }
    };
    names.networks.iter().map(node).collect()
}

/// The nodes under construction.
struct Tree<'a> {
    cell: &'a str,
    /// Paths of the cell's devices: the n-th has the phandle [`FIRST_PHANDLE`] + n.
    paths: Vec<&'a str>,
    /// What the root serves; its phandles follow those of the devices.
    service: Option<&'a Service>,
    /// Frequencies of fixed clocks, in hertz; their phandles are the last.
    frequencies: Vec<u32>,
    found: &'a mut Vec<Finding>,
}

impl Tree<'_> {
    fn finding(&self, device: &TreeDevice, severity: Severity, what: String) -> Finding {
        let location = format!("cell {}, device {}", self.cell, device.path);
        Finding::new(severity, location, what)
    }

    fn node(&mut self, device: &TreeDevice) -> TreeNode {
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
            let locations = ranges
                .iter()
                .flat_map(|range| place(range.start, range.bytes));
            let locations: Vec<u32> = locations.collect();
            properties.push(("reg".to_owned(), words(&locations)));
        }
        let names: Vec<&str> = ranges
            .iter()
            .filter_map(|range| range.name.as_deref())
            .collect();
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
        TreeNode {
            name,
            properties,
            aliases: device.contents.aliases.clone(),
            children: Vec::new(),
        }
    }

    /// Returns the interrupts up to the first that the cell does not get, because drivers identify
    /// them by index.
    fn interrupts(&mut self, device: &TreeDevice) -> Option<Property> {
        let word = |interrupt: &DeviceInterrupt| {
            // A shared interrupt of the GIC supports only a rising edge and a high level.
            let flags = if interrupt.edge { 1 } else { 4 };
            (interrupt.kind == InterruptKind::Shared).then(|| [0, interrupt.number - 32, flags])
        };
        let all: Vec<[u32; 3]> = device.interrupts.iter().map_while(word).collect();
        if let Some(first) = device.interrupts.get(all.len()) {
            let what = format!(
                "its Linux gets {} of its {} interrupts: those before the first one that is not available",
                all.len(),
                device.interrupts.len()
            );
            let kind = match first.kind {
                InterruptKind::Private => "a private interrupt of each CPU".to_owned(),
                InterruptKind::Extended => "an extended interrupt".to_owned(),
                _ => format!(
                    "one of {}",
                    first.controller.as_deref().unwrap_or("another controller")
                ),
            };
            let finding = self.finding(device, Severity::Warning, what).values(
                format!("interrupt {} is {kind}", first.number),
                "a shared interrupt of the GIC",
            );
            self.found.push(
                finding
                    .fix("use a driver that does not need it, or leave the device with the root"),
            );
        }
        (!all.is_empty()).then(|| ("interrupts".to_owned(), words(&all.concat())))
    }

    /// Returns the value of a property with references, or `None` if a referenced node is not
    /// available.
    fn references(&mut self, device: &TreeDevice, property: &str) -> Option<Vec<u8>> {
        let mut value = Vec::new();
        let mut served = Vec::new();
        let all = device.references.iter();
        let all = all.filter(|one| one.property == property);
        for (index, reference) in all.enumerate() {
            if let Some((phandle, number)) = self.served(device, property, index as u32) {
                value.extend([phandle, number]);
                served.push(number.to_string());
                continue;
            }
            let Some(phandle) = self.phandle(reference) else {
                self.missing(device, property, &reference.path);
                return None;
            };
            value.push(phandle);
            value.extend(&reference.arguments);
        }
        if !served.is_empty() {
            let numbers = served.join(", ");
            let what = format!("the root serves its `{property}` by SCMI, as {numbers}");
            self.found.push(self.finding(device, Severity::Note, what));
        }
        Some(words(&value))
    }

    /// Returns the phandle and the number of a resource that the root serves.
    fn served(&self, device: &TreeDevice, property: &str, index: u32) -> Option<(u32, u32)> {
        let mut kinds = ResourceKind::ALL.into_iter();
        let kind = kinds.find(|kind| kind.binding().0 == property)?;
        let number = self.service?.number(kind, &device.path, index)?;
        Some((self.after_devices() + kind as u32, number))
    }

    /// Returns the first phandle after those of the devices.
    fn after_devices(&self) -> u32 {
        FIRST_PHANDLE + self.paths.len() as u32
    }

    fn phandle(&mut self, reference: &Reference) -> Option<u32> {
        if reference.path == NOTHING {
            return Some(0);
        }
        if let Some(location) = self.paths.iter().position(|path| *path == reference.path) {
            return Some(FIRST_PHANDLE + location as u32);
        }
        let hertz = reference
            .frequency
            .filter(|_| reference.property == "clocks")?;
        let known = self.frequencies.iter().position(|other| *other == hertz);
        let location = known.unwrap_or_else(|| {
            self.frequencies.push(hertz);
            self.frequencies.len() - 1
        });
        Some(self.after_devices() + scmi::PHANDLES + location as u32)
    }

    fn missing(&mut self, device: &TreeDevice, property: &str, path: &str) {
        let what = format!("its Linux gets the device without `{property}`");
        if property.starts_with("pinctrl") {
            // They were set before Linux started and stay unchanged.
            let what = format!("{what}: its pins stay unchanged");
            self.found.push(self.finding(device, Severity::Note, what));
            return;
        }
        self.found.push(
            self.finding(device, Severity::Warning, what)
                .values(
                    format!("{path}, which stays with the root"),
                    "a device of this cell, or a clock of fixed frequency",
                )
                .fix(format!(
                    "give {path} to the cell, too; otherwise a driver that needs it refuses the device"
                )),
        );
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::describe::{Sources, describe};

    fn property(tree: &Path, name: &str, value: &[u8]) {
        let path = tree.join(name);
        fs::create_dir_all(path.parent().expect("a directory")).expect("made");
        fs::write(path, value).expect("written");
    }

    /// Creates a tree with a clock, a GPIO, buttons connected to it, and the supply of the buttons.
    fn board(tree: &Path) {
        let number = |name: &str, values: &[u32]| property(tree, name, &words(values));
        for cells in ["#address-cells", "#size-cells"] {
            number(cells, &[2]);
        }
        number("interrupt-parent", &[1]);
        number("intc@8000000/phandle", &[1]);
        number("intc@8000000/#interrupt-cells", &[3]);
        number(
            "intc@8000000/reg",
            &[0, 0x800_0000, 0, 0x1_0000, 0, 0x80a_0000, 0, 0xf6_0000],
        );
        number("fixed/phandle", &[2]);
        number("fixed/#clock-cells", &[0]);
        number("fixed/clock-frequency", &[24_000_000]);
        number("tree/phandle", &[3]);
        number("tree/#clock-cells", &[1]);
        number("rtc@9010000/reg", &[0, 0x901_0000, 0, 0x1000]);
        number("rtc@9010000/interrupts", &[0, 2, 4]);
        number("rtc@9010000/clocks", &[2]);
        number("rtc@9010000/phandle", &[7]);
        number("serial@9020000/reg", &[0, 0x902_0000, 0, 0x1000]);
        number("serial@9020000/interrupts", &[0, 3, 1, 1, 4, 4, 0, 5, 4]);
        number("serial@9020000/clocks", &[2, 3, 5]);
        number("serial@9020000/resets", &[7]);
        number("serial@9020000/vcc-supply", &[3]);
        number("serial@9020000/reg-shift", &[2]);
        property(tree, "aliases/rtc0", b"/rtc@9010000\0");
        property(tree, "intc@8000000/compatible", b"arm,gic-v3\0");
        property(tree, "intc@8000000/interrupt-controller", b"");
        property(tree, "fixed/compatible", b"fixed-clock\0");
        property(tree, "tree/compatible", b"board,clocks\0");
        property(
            tree,
            "rtc@9010000/compatible",
            b"arm,pl031\0arm,primecell\0",
        );
        property(tree, "rtc@9010000/clock-names", b"apb_pclk\0");
        property(tree, "serial@9020000/compatible", b"board,serial\0");
        property(tree, "serial@9020000/clock-names", b"a\0b\0");
    }

    fn resolved_nodes(paths: &[&str]) -> (Vec<TreeNode>, Vec<Finding>) {
        let tree = tempfile::tempdir().expect("a directory");
        board(tree.path());
        let description = describe(&Sources::recorded(tree.path(), None).expect("a tree"));
        let paths: Vec<String> = paths.iter().map(|path| (*path).to_owned()).collect();
        let mut found = Vec::new();
        let nodes = devices(
            &description,
            &paths,
            ("rt", &RegionNames::default(), &[]),
            &mut found,
        );
        (nodes, found)
    }

    fn value<'a>(node: &'a TreeNode, name: &str) -> Option<&'a [u8]> {
        let mut all = node.properties.iter();
        let found = all.find(|(known, _)| known == name)?;
        Some(&found.1)
    }

    #[test]
    fn adds_the_clock_of_a_device() {
        let (nodes, found) = resolved_nodes(&["/rtc@9010000"]);
        assert!(found.is_empty(), "{found:#?}");
        let [rtc, clock] = &nodes[..] else {
            panic!("{nodes:#?}");
        };
        assert_eq!(rtc.name, "rtc@9010000");
        assert_eq!(rtc.aliases, ["rtc0"]);
        assert_eq!(
            value(rtc, "reg"),
            Some(&words(&[0, 0x901_0000, 0, 0x1000])[..])
        );
        assert_eq!(value(rtc, "interrupts"), Some(&words(&[0, 2, 4])[..]));
        assert_eq!(
            value(rtc, "compatible"),
            Some(&b"arm,pl031\0arm,primecell\0"[..])
        );
        assert_eq!(value(rtc, "clock-names"), Some(&b"apb_pclk\0"[..]));
        assert_eq!(value(rtc, "clocks"), value(clock, "phandle"));
        assert_ne!(value(rtc, "phandle"), value(clock, "phandle"));
        assert_eq!(
            value(clock, "clock-frequency"),
            Some(&words(&[24_000_000])[..])
        );
    }

    #[test]
    fn names_missing_dependencies() {
        let (nodes, found) = resolved_nodes(&["/serial@9020000"]);
        let serial = &nodes[0];
        assert_eq!(value(serial, "interrupts"), Some(&words(&[0, 3, 1])[..]));
        for left_out in ["clocks", "clock-names", "resets", "vcc-supply"] {
            assert_eq!(value(serial, left_out), None, "{left_out}");
        }
        assert_eq!(value(serial, "reg-shift"), Some(&words(&[2])[..]));
        let texts: Vec<String> = found.iter().map(ToString::to_string).collect();
        let expected = [
            ("1 of its 3 interrupts", "private"),
            ("`clocks`", "/tree"),
            ("`resets`", "/rtc@9010000"),
            ("`vcc-supply`", "/tree"),
        ];
        for (what, why) in expected {
            let is_it = |text: &&String| {
                text.contains("/serial@9020000") && text.contains(what) && text.contains(why)
            };
            assert_eq!(texts.iter().filter(is_it).count(), 1, "{what}: {texts:#?}");
        }
        assert_eq!(texts.len(), expected.len(), "{texts:#?}");
    }

    #[test]
    fn links_devices_of_one_cell() {
        let (nodes, found) = resolved_nodes(&["/rtc@9010000", "/serial@9020000"]);
        assert_eq!(value(&nodes[1], "resets"), value(&nodes[0], "phandle"));
        assert!(found.iter().all(|finding| !finding.what.contains("resets")));
    }

    #[test]
    fn adds_only_regions_with_names() {
        let flags = MemoryFlags::SHARED | MemoryFlags::READ;
        let region = |physical, flags: MemoryFlags| MemoryRegion {
            physical,
            guest: physical,
            bytes: 4096,
            flags: flags.bits(),
            colours: 0,
        };
        let shared = [
            region(0x7000_0000, flags),
            region(0x7000_1000, flags),
            region(0x7000_2000, flags | MemoryFlags::WRITE),
        ];
        let mut names = RegionNames::default();
        names.insert(&shared[1], "orders");
        names.insert(&shared[2], "records");
        let nodes = regions(&shared, &names);
        let [orders, records] = &nodes[..] else {
            panic!("{nodes:#?}");
        };
        assert_eq!(orders.name, "shared-memory@70001000");
        assert_eq!(value(orders, "label"), Some(&b"orders\0"[..]));
        assert_eq!(value(orders, "read-only"), Some(&[][..]));
        assert_eq!(value(records, "read-only"), None);
    }
}
