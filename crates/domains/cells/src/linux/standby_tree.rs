// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Creates the device tree of a standby: that of the machine, in which Linux uses only the standby's own memory.

use dtoolkit::fdt::Fdt;
use dtoolkit::model::{DeviceTree, DeviceTreeNode, DeviceTreeProperty};
use dtoolkit::{Node as _, Property as _, ToPropertyValue};
use rampart_model::AddressSpan;

/// The node by which the driver knows that the hypervisor has started its kernel (`kernel/rampart/attach.c`).
const HYPERVISOR: &str = "rampart-hypervisor";
/// The prefix of names of memory that is reserved for cells, and of memory of the last kernel.
const FOR_CELLS: &str = "rampart";
const LAST_ROOT: &str = "last-root";
/// The property by which a crash kernel is limited to memory of its own (Linux, drivers/of/fdt.c:
/// `early_init_dt_check_for_usable_mem_range`).
const USABLE: &str = "linux,usable-memory-range";
/// The property of a device that makes interrupts of messages.
const MESSAGES: &str = "msi-controller";
/// Properties of `/chosen` that describe the boot of the last kernel.
const OF_LAST_BOOT: [&str; 4] = ["linux,uefi", "linux,elfcorehdr", "linux,initrd", USABLE];

/// What a standby's tree has besides the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StandbyTree<'a> {
    /// The standby's memory.
    pub(crate) memory: AddressSpan,
    /// The location of the initramfs.
    pub(crate) initramfs: AddressSpan,
    /// The kernel command line.
    pub(crate) arguments: &'a str,
    /// Random bytes, as for a cell.
    pub(crate) seed: [u8; 64],
    /// Paths of devices that the kernel leaves alone.
    pub(crate) disabled: &'a [String],
    /// Memory of the running kernel: its devices may write it, so no cell gets it.
    pub(crate) last: &'a [AddressSpan],
}

fn property(node: &mut DeviceTreeNode, name: &str, value: impl ToPropertyValue) {
    node.remove_property(name);
    // All names in this file are valid.
    node.add_property(DeviceTreeProperty::new_unchecked(name, value));
}

fn child<'a>(parent: &'a mut DeviceTreeNode, name: &str) -> &'a mut DeviceTreeNode {
    parent.remove_child(name);
    parent.add_child_mut(DeviceTreeNode::new_unchecked(name))
}

/// Returns start and size in the numbers of words of the tree.
fn words(span: AddressSpan, cells: [u32; 2]) -> Vec<u32> {
    let halves = [span.start, span.bytes].into_iter().zip(cells);
    halves
        .flat_map(|(value, count)| {
            let both = [(value >> 32) as u32, value as u32];
            both.into_iter().skip(2 - count.min(2) as usize)
        })
        .collect()
}

/// Returns the tree as bytes, or `None` if the machine's is none.
pub(crate) fn standby_tree(machine: &[u8], contents: &StandbyTree<'_>) -> Option<Vec<u8>> {
    let mut tree = DeviceTree::from_fdt(&Fdt::new(machine).ok()?);
    // The defaults of the Devicetree Specification, 2.3.5.
    let count = |name: &str| {
        let bytes = tree.root.property(name)?.value().try_into().ok()?;
        Some(u32::from_be_bytes(bytes))
    };
    let cells = [
        count("#address-cells").unwrap_or(2),
        count("#size-cells").unwrap_or(1),
    ];
    for path in contents.disabled {
        if let Some(node) = tree.find_node_mut(path) {
            property(node, "status", "disabled");
            // Linux uses a frame for messages of a GICv2 also if it is disabled (drivers/irqchip/irq-gic-v2m.c:
            // gicv2m_of_init), but not without this.
            node.remove_property(MESSAGES);
        }
    }
    let root = &mut tree.root;
    property(child(root, HYPERVISOR), "compatible", "rampart,hypervisor");
    if root.child("chosen").is_none() {
        child(root, "chosen");
    }
    if root.child("reserved-memory").is_none() {
        let reserved = child(root, "reserved-memory");
        property(reserved, "#address-cells", cells[0]);
        property(reserved, "#size-cells", cells[1]);
        property(reserved, "ranges", &[][..] as &[u8]);
    }
    let chosen = root.child_mut("chosen")?;
    let old: Vec<String> = chosen
        .properties()
        .map(|one| one.name().to_owned())
        .collect();
    for name in old
        .iter()
        .filter(|name| OF_LAST_BOOT.iter().any(|of| name.starts_with(of)))
    {
        chosen.remove_property(name);
    }
    property(chosen, "bootargs", contents.arguments);
    property(chosen, USABLE, words(contents.memory, cells));
    property(chosen, "linux,initrd-start", contents.initramfs.start);
    property(chosen, "linux,initrd-end", contents.initramfs.end());
    let (seed, location) = contents.seed.split_at(56);
    property(chosen, "rng-seed", seed);
    property(chosen, "kaslr-seed", location);
    let reserved = root.child_mut("reserved-memory")?;
    // What is reserved for cells is outside of the memory that this Linux uses.
    let names: Vec<String> = reserved
        .children()
        .map(|one| one.name().to_owned())
        .collect();
    for name in names.iter().filter(|name| name.starts_with(FOR_CELLS)) {
        reserved.remove_child(name);
    }
    for span in contents.last {
        let node = child(reserved, &format!("{LAST_ROOT}@{:x}", span.start));
        property(node, "reg", words(*span, cells));
        property(node, "no-map", &[][..] as &[u8]);
    }
    Some(tree.to_dtb())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_standby_uses_only_its_own_memory_and_devices() {
        let mut machine = DeviceTree::new();
        property(&mut machine.root, "#address-cells", 2_u32);
        property(&mut machine.root, "#size-cells", 1_u32);
        let chosen = child(&mut machine.root, "chosen");
        property(chosen, "bootargs", "mem=768M");
        property(chosen, "linux,uefi-system-table", 1_u64);
        property(chosen, "stdout-path", "/serial");
        child(&mut machine.root, "rtc@9010000");
        let frame = child(&mut machine.root, "v2m@8020000");
        property(frame, MESSAGES, &[][..] as &[u8]);
        let reserved = child(&mut machine.root, "reserved-memory");
        child(reserved, "rampart@70000000");
        child(reserved, "firmware@50000000");
        let span = |start, bytes| AddressSpan { start, bytes };
        let contents = StandbyTree {
            memory: span(0x1_7400_0000, 0x1000_0000),
            initramfs: span(0x1_7600_0000, 0x1234),
            arguments: "console=ttyAMA0",
            seed: [9; 64],
            disabled: &["/rtc@9010000", "/v2m@8020000", "/absent"].map(str::to_owned),
            last: &[span(0x4000_0000, 0x3000_0000)],
        };
        let bytes = standby_tree(&machine.to_dtb(), &contents).expect("a tree");
        // Once more, as in a root that was started from it.
        let bytes = standby_tree(&bytes, &contents).expect("a tree");
        let tree = Fdt::new(&bytes).expect("a tree");
        let value = |path: &str, name: &str| {
            let node = tree.find_node(path)?;
            Some(node.property(name)?.value().to_vec())
        };
        let big = |words: &[u32]| -> Option<Vec<u8>> {
            Some(words.iter().flat_map(|word| word.to_be_bytes()).collect())
        };
        assert_eq!(
            value("/chosen", USABLE),
            big(&[1, 0x7400_0000, 0x1000_0000])
        );
        assert_eq!(
            value("/chosen", "bootargs"),
            Some(b"console=ttyAMA0\0".to_vec())
        );
        assert_eq!(value("/chosen", "linux,initrd-end"), big(&[1, 0x7600_1234]));
        assert_eq!(value("/chosen", "linux,uefi-system-table"), None);
        assert_eq!(value("/chosen", "stdout-path"), Some(b"/serial\0".to_vec()));
        assert_eq!(
            value("/rtc@9010000", "status"),
            Some(b"disabled\0".to_vec())
        );
        assert_eq!(value("/v2m@8020000", MESSAGES), None);
        let found = value("/rampart-hypervisor", "compatible");
        assert_eq!(found, Some(b"rampart,hypervisor\0".to_vec()));
        let last = "/reserved-memory/last-root@40000000";
        assert_eq!(value(last, "reg"), big(&[0, 0x4000_0000, 0x3000_0000]));
        assert!(
            tree.find_node("/reserved-memory/rampart@70000000")
                .is_none()
        );
        assert!(
            tree.find_node("/reserved-memory/firmware@50000000")
                .is_some()
        );
        assert_eq!(standby_tree(b"no tree", &contents), None);
    }
}
