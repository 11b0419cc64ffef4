// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Creates the device tree that describes a cell to its Linux: its CPUs, its memory, the interrupt
//! controller, the timer, PSCI. It contains nothing else of the machine.

use dtoolkit::ToPropertyValue;
use dtoolkit::model::{DeviceTree, DeviceTreeNode, DeviceTreeProperty};
use rampart_hypervisor_core::format::Platform;

/// The phandle of the interrupt controller.
pub(crate) const INTERRUPT_CONTROLLER: u32 = 1;
/// First cell of an interrupt (Linux, devicetree/bindings/interrupt-controller/arm,gic-v3.yaml and arm,gic.yaml).
const PRIVATE: u32 = 1;
pub(crate) const LEVEL_HIGH: u32 = 4;
/// The timers' private interrupts: EL1 secure, EL1, virtual, EL2 (Arm BSA, DEN 0094, 4.1.5), counted
/// from INTID 16.
const TIMERS: [u32; 4] = [13, 14, 11, 10];

/// The content of the tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeContents<'a> {
    /// The cell's name.
    pub name: &'a str,
    /// Affinities of the CPUs, the first CPU first.
    pub cpus: &'a [u64],
    /// Start and size of Linux's memory, in bytes.
    pub memory: (u64, u64),
    /// The location of the interrupt controller.
    pub platform: Platform,
    /// Start and size of the initramfs, in bytes.
    pub initramfs: (u64, u64),
    /// The kernel command line.
    pub arguments: &'a str,
    /// Random bytes for the kernel's random number generator and for KASLR.
    pub seed: [u8; 64],
    /// Nodes of its devices, of their dependencies, and of shared regions.
    pub nodes: &'a [TreeNode],
}

fn property(node: &mut DeviceTreeNode, name: &str, value: impl ToPropertyValue) {
    // All names in this file are valid.
    node.add_property(DeviceTreeProperty::new_unchecked(name, value));
}

fn child<'a>(parent: &'a mut DeviceTreeNode, name: &str) -> &'a mut DeviceTreeNode {
    parent.add_child_mut(DeviceTreeNode::new_unchecked(name))
}

/// Returns each number as two words, the upper one first.
fn words(values: &[u64]) -> Vec<u32> {
    let halves = values
        .iter()
        .map(|value| [(value >> 32) as u32, *value as u32]);
    halves.flatten().collect()
}

/// A node below the root, in addition to those of every cell.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TreeNode {
    /// Name with unit address.
    pub name: String,
    /// Values in the encoding of the tree: numbers big-endian, strings terminated by 0.
    pub properties: Vec<(String, Vec<u8>)>,
    /// Its names in `/aliases`: some drivers refuse a device without a number.
    pub aliases: Vec<String>,
    /// The nodes below it, without aliases.
    pub children: Vec<TreeNode>,
}

/// The first phandle available to these nodes.
pub const FIRST_PHANDLE: u32 = INTERRUPT_CONTROLLER + 1;

/// Returns the tree as bytes.
#[must_use]
pub fn device_tree(contents: &TreeContents<'_>) -> Vec<u8> {
    let mut tree = DeviceTree::new();
    let root = &mut tree.root;
    property(root, "compatible", "rampart,cell");
    property(root, "model", format!("Rampart cell {}", contents.name));
    property(root, "#address-cells", 2_u32);
    property(root, "#size-cells", 2_u32);
    property(root, "interrupt-parent", INTERRUPT_CONTROLLER);

    let chosen = child(root, "chosen");
    property(chosen, "bootargs", contents.arguments);
    let (start, bytes) = contents.initramfs;
    property(chosen, "linux,initrd-start", start);
    property(chosen, "linux,initrd-end", start + bytes);
    let (seed, location) = contents.seed.split_at(56);
    property(chosen, "rng-seed", seed);
    property(chosen, "kaslr-seed", location);

    let (start, bytes) = contents.memory;
    let memory = child(root, &format!("memory@{start:x}"));
    property(memory, "device_type", "memory");
    property(memory, "reg", words(&[start, bytes]));

    let cpus = child(root, "cpus");
    property(cpus, "#address-cells", 2_u32);
    property(cpus, "#size-cells", 0_u32);
    for affinity in contents.cpus {
        let cpu = child(cpus, &format!("cpu@{affinity:x}"));
        property(cpu, "device_type", "cpu");
        property(cpu, "compatible", "arm,armv8");
        property(cpu, "reg", words(&[*affinity]));
        property(cpu, "enable-method", "psci");
    }

    let psci = child(root, "psci");
    property(psci, "compatible", &["arm,psci-1.0", "arm,psci-0.2"][..]);
    property(psci, "method", "smc");

    let (distributor, frames) = (
        contents.platform.distributor_range(),
        contents.platform.cpu_frame_range(),
    );
    let name = format!("interrupt-controller@{:x}", distributor.0);
    let controller = child(root, &name);
    let version_2 = contents.platform.version == 2;
    let compatible = if version_2 {
        "arm,gic-400"
    } else {
        "arm,gic-v3"
    };
    property(controller, "compatible", compatible);
    property(controller, "#interrupt-cells", 3_u32);
    property(controller, "#address-cells", 0_u32);
    property(controller, "interrupt-controller", &[][..] as &[u8]);
    let frames = words(&[distributor.0, distributor.1, frames.0, frames.1]);
    property(controller, "reg", frames);
    property(controller, "phandle", INTERRUPT_CONTROLLER);

    let timer = child(root, "timer");
    property(timer, "compatible", "arm,armv8-timer");
    let interrupts = TIMERS.map(|number| [PRIVATE, number, LEVEL_HIGH]);
    property(timer, "interrupts", &interrupts.concat()[..]);
    // The timer keeps running in every power state of a cell's CPU: no state turns it off.
    property(timer, "always-on", &[][..] as &[u8]);

    let names = contents.nodes.iter().flat_map(|node| {
        let path = format!("/{}", node.name);
        node.aliases.iter().map(move |alias| (alias, path.clone()))
    });
    let names: Vec<_> = names.collect();
    if !names.is_empty() {
        let aliases = child(&mut tree.root, "aliases");
        for (alias, path) in names {
            property(aliases, alias, path);
        }
    }
    for node in contents.nodes {
        add(&mut tree.root, node);
    }
    tree.to_dtb()
}

fn add(parent: &mut DeviceTreeNode, node: &TreeNode) {
    let own = child(parent, &node.name);
    for (name, value) in &node.properties {
        property(own, name, value.as_slice());
    }
    for below in &node.children {
        add(own, below);
    }
}

#[cfg(test)]
mod tests {
    use dtoolkit::fdt::Fdt;
    use dtoolkit::{Node as _, Property as _};

    use super::*;

    #[test]
    fn tree_describes_the_cell() {
        let big = |words: &[u32]| -> Vec<u8> {
            words.iter().flat_map(|word| word.to_be_bytes()).collect()
        };
        let contents = TreeContents {
            name: "rt",
            cpus: &[3, 0x1_0000_0102],
            memory: (0x1_7400_0000, 0x800_0000),
            platform: Platform {
                distributor: 0x800_0000,
                cpu_frames: 0x80a_0000,
                cpu_frame_bytes: 0x8_0000,
                event_interrupt: 0,
                version: 3,
            },
            initramfs: (0x1_7600_0000, 0x1234),
            arguments: "rdinit=/init",
            seed: [9; 64],
            nodes: &[TreeNode {
                name: "rtc@9010000".to_owned(),
                properties: vec![("interrupts".to_owned(), big(&[0, 2, 4]))],
                aliases: vec!["rtc0".to_owned()],
                children: vec![TreeNode {
                    name: "below@1".to_owned(),
                    properties: vec![("reg".to_owned(), big(&[1]))],
                    ..TreeNode::default()
                }],
            }],
        };
        let bytes = device_tree(&contents);
        let tree = Fdt::new(&bytes).expect("a tree");
        let value = |path: &str, name: &str| {
            let node = tree.find_node(path).unwrap_or_else(|| panic!("no {path}"));
            let property = node.property(name);
            property
                .unwrap_or_else(|| panic!("no {name} in {path}"))
                .value()
                .to_vec()
        };
        assert_eq!(value("/chosen", "bootargs"), b"rdinit=/init\0");
        assert_eq!(value("/chosen", "linux,initrd-end"), big(&[1, 0x7600_1234]));
        assert_eq!(value("/chosen", "rng-seed").len(), 56);
        let memory = big(&[1, 0x7400_0000, 0, 0x800_0000]);
        assert_eq!(value("/memory@174000000", "reg"), memory);
        assert_eq!(value("/cpus/cpu@3", "reg"), big(&[0, 3]));
        assert_eq!(value("/cpus/cpu@100000102", "reg"), big(&[1, 0x102]));
        assert_eq!(value("/psci", "method"), b"smc\0");
        let frames = big(&[0, 0x800_0000, 0, 0x1_0000, 0, 0x80a_0000, 0, 0x8_0000]);
        assert_eq!(value("/interrupt-controller@8000000", "reg"), frames);
        let timers = big(&[1, 13, 4, 1, 14, 4, 1, 11, 4, 1, 10, 4]);
        assert_eq!(value("/timer", "interrupts"), timers);
        assert_eq!(value("/rtc@9010000", "interrupts"), big(&[0, 2, 4]));
        assert_eq!(value("/rtc@9010000/below@1", "reg"), big(&[1]));
        assert_eq!(value("/aliases", "rtc0"), b"/rtc@9010000\0");
        let phandle = value("/interrupt-controller@8000000", "phandle");
        assert_eq!(value("/", "interrupt-parent"), phandle);
    }
}
