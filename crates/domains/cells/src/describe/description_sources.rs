// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads the input of a machine's description.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Range;
use std::path::Path;

use super::functions::{self, FunctionFiles};
use super::iomem::Iomem;
use super::nodes::{Nodes, TreeError};
use super::{Driver, LastCache, caches};

/// The device tree of the running machine, from Linux.
const TREE: &str = "/proc/device-tree";
/// The tree as passed by the boot loader, with its list of reserved memory.
const FLATTENED: &str = "/sys/firmware/fdt";
/// The last cache as the hypervisor's driver reads it from the processor.
const DRIVER_CACHE: &str = "/sys/devices/virtual/misc/rampart/cache";
/// Buses with devices of the device tree.
const BUSES: [&str; 2] = ["platform", "amba"];

/// Numbers of shared peripheral interrupts (Arm IHI 0069, 2.2.1).
const SHARED_INTERRUPTS: Range<u32> = 32..1020;

/// The input of a description.
#[derive(Debug, Clone)]
pub struct Sources {
    pub(super) nodes: Nodes,
    pub(super) iomem: Option<Iomem>,
    /// Linux's CPU numbers, by path of their nodes.
    pub(super) cpu_numbers: BTreeMap<String, u32>,
    /// The last cache as Linux or the driver describes it.
    pub(super) cache: Option<LastCache>,
    /// Linux's drivers, by path of the device's node.
    pub(super) drivers: BTreeMap<String, Driver>,
    /// PCI functions, as Linux describes them.
    pub(super) functions: Vec<FunctionFiles>,
    /// Shared peripheral interrupts that Linux has requested.
    pub(super) requested_interrupts: BTreeSet<u32>,
}

impl Sources {
    /// Reads the running machine.
    ///
    /// # Errors
    /// Returns an error if it has no device tree.
    pub fn of_this_machine() -> Result<Self, TreeError> {
        let mut nodes = Nodes::read(Path::new(TREE))?;
        // Only root may read it; otherwise `/proc/iomem` shows the same memory, as far as Linux
        // knows it.
        if let Ok(given) = Nodes::read(Path::new(FLATTENED)) {
            nodes.reservations = given.reservations;
        }
        Ok(Self {
            nodes,
            iomem: fs::read_to_string("/proc/iomem")
                .ok()
                .and_then(|text| Iomem::parse(&text)),
            cpu_numbers: cpu_numbers(Path::new("/sys/devices/system/cpu")),
            cache: caches::of_linux(Path::new("/sys/devices/system/cpu/cpu0/cache"))
                .or_else(|| caches::of_driver(Path::new(DRIVER_CACHE))),
            drivers: drivers(Path::new("/sys/bus")),
            functions: functions::read(Path::new("/sys/bus/pci/devices")),
            requested_interrupts: requested_interrupts(Path::new("/sys/kernel/irq")),
        })
    }

    /// Reads another machine from its device tree (a directory or a flattened tree) and, if given,
    /// a copy of its `/proc/iomem`.
    ///
    /// # Errors
    /// Returns an error if one of them cannot be read.
    pub fn recorded(tree: &Path, iomem: Option<&Path>) -> Result<Self, TreeError> {
        let nodes = Nodes::read(tree)?;
        let iomem = match iomem {
            Some(path) => {
                let text = fs::read_to_string(path).map_err(|source| TreeError::Read {
                    path: path.to_owned(),
                    source,
                })?;
                Iomem::parse(&text)
            }
            None => None,
        };
        Ok(Self {
            nodes,
            iomem,
            cpu_numbers: BTreeMap::new(),
            cache: None,
            drivers: BTreeMap::new(),
            functions: Vec::new(),
            requested_interrupts: BTreeSet::new(),
        })
    }
}

/// Returns the path of the node that a link in sysfs points to, from the root of the tree.
pub(super) fn node_of(link: &Path) -> Option<String> {
    let target = fs::canonicalize(link.join("of_node")).ok()?;
    let text = target.to_str()?;
    let (_, path) = text.split_once("/devicetree/base")?;
    Some(if path.is_empty() { "/" } else { path }.to_owned())
}

pub(super) fn entries(directory: &Path) -> Vec<std::path::PathBuf> {
    let Ok(entries) = fs::read_dir(directory) else {
        return Vec::new();
    };
    entries.flatten().map(|entry| entry.path()).collect()
}

pub(super) fn name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

fn cpu_numbers(directory: &Path) -> BTreeMap<String, u32> {
    let numbered = |path: std::path::PathBuf| {
        let number = name(&path).strip_prefix("cpu")?.parse().ok()?;
        Some((node_of(&path)?, number))
    };
    entries(directory)
        .into_iter()
        .filter_map(numbered)
        .collect()
}

/// Returns the shared peripheral interrupts with a handler
/// (Documentation/ABI/testing/sysfs-kernel-irq).
fn requested_interrupts(directory: &Path) -> BTreeSet<u32> {
    let shared = |path: std::path::PathBuf| {
        let line = |file| fs::read_to_string(path.join(file)).ok();
        let requested = !line("actions")?.trim().is_empty();
        let of_the_controller = line("chip_name")?.starts_with("GIC");
        let number = line("hwirq")?.trim().parse().ok()?;
        (requested && of_the_controller && SHARED_INTERRUPTS.contains(&number)).then_some(number)
    };
    let entries = entries(directory);
    entries.into_iter().filter_map(shared).collect()
}

fn drivers(buses: &Path) -> BTreeMap<String, Driver> {
    let mut found = BTreeMap::new();
    for bus in BUSES {
        for device in entries(&buses.join(bus).join("devices")) {
            let Some(node) = node_of(&device) else {
                continue;
            };
            let driver = fs::read_link(device.join("driver")).ok();
            let linux = Driver {
                bus: bus.to_owned(),
                device: name(&device),
                driver: driver.as_deref().map(name),
                stays: driver.is_some() && !device.join("driver/unbind").exists(),
            };
            // Of several devices with the same node, the one with a driver counts.
            let known = found.entry(node).or_insert_with(|| linux.clone());
            if known.driver.is_none() {
                *known = linux;
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn only_shared_interrupts_with_a_handler_are_requested() -> Result<(), std::io::Error> {
        let directory = tempfile::tempdir()?;
        for (linux, hardware, chip, actions) in [
            ("11", "27", "GICv3", "arch_timer"),
            ("14", "33", "GICv3", "uart-pl011"),
            ("15", "40", "GICv3", ""),
            ("16", "78", "GICv3", "detach,other"),
            ("17", "79", "pl061", "button"),
        ] {
            let entry = directory.path().join(linux);
            fs::create_dir(&entry)?;
            fs::write(entry.join("hwirq"), format!("{hardware}\n"))?;
            fs::write(entry.join("chip_name"), format!("{chip}\n"))?;
            fs::write(entry.join("actions"), format!("{actions}\n"))?;
        }
        let requested = requested_interrupts(directory.path());
        assert_eq!(requested, BTreeSet::from([33, 78]));
        Ok(())
    }

    #[test]
    fn finds_drivers_that_cannot_be_unbound() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = |name: &str| directory.path().join(name);
        let buses = path("bus");
        for (device, driver) in [("1.serial", "uart"), ("2.clocks", "clock")] {
            let at = path(&format!("devices/{device}"));
            let node = path(&format!("devicetree/base/{device}"));
            let bound = buses.join("platform/drivers").join(driver);
            for directory in [&at, &node, &bound, &buses.join("platform/devices")] {
                fs::create_dir_all(directory).expect("made");
            }
            symlink(&node, at.join("of_node")).expect("linked");
            symlink(&bound, at.join("driver")).expect("linked");
            symlink(&at, buses.join("platform/devices").join(device)).expect("linked");
        }
        fs::write(buses.join("platform/drivers/uart/unbind"), "").expect("written");
        let found = drivers(&buses);
        assert!(!found["/1.serial"].stays);
        assert!(found["/2.clocks"].stays);
        assert_eq!(found["/2.clocks"].driver.as_deref(), Some("clock"));
    }
}
