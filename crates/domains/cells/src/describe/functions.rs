// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The PCI functions of the running machine: what Linux knows of them (Documentation/ABI/testing/sysfs-bus-pci), and
//! what the tree says of their host bridge (the kernel's bindings pci-host-ecam-generic and pci-iommu; Open Firmware
//! recommended practice: interrupt mapping 0.9).

use std::fs;
use std::path::Path;

use rampart_hypervisor_core::interface::PAGE_BYTES;
use rampart_model::{Finding, Severity};

use super::description_sources::{entries, name, node_of};
use super::interrupts::resolved_interrupt;
use super::nodes::Nodes;
use super::{
    AddressSpan, Driver, FunctionRange, InterruptKind, PciFunction, RangeUse, Reference, addresses,
    interrupts,
};

/// Offset of the number of the interrupt pin in the configuration space.
const PIN: usize = 0x3d;
/// Linux's flag of a memory range (include/linux/ioport.h), and that of one without an address.
const MEMORY: u64 = 0x200;
const UNSET: u64 = 0x2000_0000;
/// Bytes of the configuration space of one bus by ECAM.
const BUS_BYTES: u64 = 1 << 20;

/// What Linux knows of a function.
#[derive(Debug, Clone, Default)]
pub(super) struct FunctionFiles {
    address: String,
    identity: [u32; 3],
    /// The bridges above it; that on the first bus is the last.
    bridges: Vec<String>,
    /// Path of the node of its host bridge.
    bridge: Option<String>,
    configuration: Vec<u8>,
    ranges: Vec<FunctionRange>,
    linux: Driver,
    power: String,
}

/// Reads the functions from `/sys/bus/pci/devices`.
pub(super) fn read(devices: &Path) -> Vec<FunctionFiles> {
    let mut found: Vec<_> = entries(devices)
        .iter()
        .filter_map(|path| one(path))
        .collect();
    found.sort_by(|one, other| one.address.cmp(&other.address));
    found
}

fn one(path: &Path) -> Option<FunctionFiles> {
    let text = |file| fs::read_to_string(path.join(file)).ok();
    let number = |file| {
        let text = text(file)?;
        u32::from_str_radix(text.trim().strip_prefix("0x")?, 16).ok()
    };
    let place = fs::canonicalize(path).ok()?;
    let is_host = |above: &&Path| name(above).starts_with("pci");
    let host = place.ancestors().skip(1).find(is_host);
    let bridges = place.ancestors().skip(1);
    let bridges = bridges.take_while(|above| Some(*above) != host).map(name);
    let driver = fs::read_link(path.join("driver")).ok();
    let address = name(path);
    Some(FunctionFiles {
        identity: [number("vendor")?, number("device")?, number("class")?],
        bridges: bridges.collect(),
        bridge: host.and_then(Path::parent).and_then(node_of),
        configuration: fs::read(path.join("config")).unwrap_or_default(),
        ranges: ranges(&text("resource")?),
        linux: Driver {
            bus: "pci".to_owned(),
            device: address.clone(),
            driver: driver.as_deref().map(name),
            stays: driver.is_some() && !path.join("driver/unbind").exists(),
        },
        power: text("power_state").unwrap_or_default().trim().to_owned(),
        address,
    })
}

/// Returns the memory in a file `resource`: start, end and flags, one line for each.
fn ranges(text: &str) -> Vec<FunctionRange> {
    let hexadecimal = |word: &str| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok();
    let range = |(number, line): (usize, &str)| {
        let words: Option<Vec<u64>> = line.split_whitespace().map(hexadecimal).collect();
        let [start, end, flags] = words?[..] else {
            return None;
        };
        let bytes = end.checked_sub(start)?.checked_add(1)?;
        let start = if flags & UNSET == 0 { start } else { 0 };
        (flags & MEMORY != 0).then_some(FunctionRange {
            number: number as u32,
            span: AddressSpan { start, bytes },
        })
    };
    text.lines().enumerate().filter_map(range).collect()
}

/// Returns the number of the bus, and the device with the function on it, of `0000:00:04.0`.
fn location(address: &str) -> Option<(u32, u32)> {
    let mut parts = address.split([':', '.']).skip(1);
    let mut next = || u32::from_str_radix(parts.next()?, 16).ok();
    let (bus, device, function) = (next()?, next()?, next()?);
    Some((bus, device << 3 | function))
}

/// Returns the functions with what the tree says of them.
pub(super) fn all(nodes: &Nodes, gic: Option<usize>, files: &[FunctionFiles]) -> Vec<PciFunction> {
    let mut functions: Vec<_> = files.iter().map(|one| described(nodes, gic, one)).collect();
    for index in 0..functions.len() {
        let obstacles = obstacles(nodes, &functions, index, &files[index]);
        functions[index].obstacles = obstacles;
    }
    functions
}

fn described(nodes: &Nodes, gic: Option<usize>, files: &FunctionFiles) -> PciFunction {
    let bridge = files.bridge.as_ref().and_then(|path| nodes.find(path));
    let place = location(&files.address);
    let [vendor, device, class] = files.identity;
    // One that a cell has reads as absent.
    let pin = files.configuration.get(PIN).copied().unwrap_or(0);
    let pin = if pin > 4 { 0 } else { u32::from(pin) };
    let at_host = place_at_host(files, pin);
    let interrupt = bridge
        .zip(at_host)
        .and_then(|(bridge, (place, pin))| interrupts::of_pin(nodes, bridge, place, pin));
    PciFunction {
        address: files.address.clone(),
        vendor: vendor as u16,
        device: device as u16,
        class,
        bridge: files.bridge.clone(),
        behind: files.bridges.last().cloned(),
        page: bridge
            .zip(place)
            .and_then(|(bridge, place)| page(nodes, bridge, place)),
        stream: bridge
            .zip(place)
            .and_then(|(bridge, place)| stream(nodes, bridge, place)),
        pin,
        interrupt: interrupt.map(|one| resolved_interrupt(nodes, &one, gic)),
        ranges: files.ranges.clone(),
        linux: files.linux.clone(),
        obstacles: Vec::new(),
        configuration: files.configuration.clone(),
    }
}

/// Returns bus and function of the outermost bridge above a function, or its own, and the pin there: each bridge turns
/// the pins by the number of the device (PCI-to-PCI bridge architecture specification 1.2, 9.1).
fn place_at_host(files: &FunctionFiles, pin: u32) -> Option<((u32, u32), u32)> {
    let own = location(&files.address).filter(|_| pin != 0)?;
    let mut bridges = files.bridges.iter();
    bridges.try_fold((own, pin), |((_, function), pin), bridge| {
        Some((location(bridge)?, (pin - 1 + (function >> 3)) % 4 + 1))
    })
}

/// Returns the address of a function's configuration space.
fn page(nodes: &Nodes, bridge: usize, (bus, function): (u32, u32)) -> Option<u64> {
    if !nodes.is_compatible(bridge, &["pci-host-ecam-generic"]) {
        return None;
    }
    let first = nodes.word(bridge, "bus-range").unwrap_or(0);
    let space = addresses::registers(nodes, bridge).first()?.span();
    let offset = u64::from(bus.checked_sub(first)?) * BUS_BYTES + u64::from(function) * PAGE_BYTES;
    let page = space.start.checked_add(offset)?;
    (page < space.end()).then_some(page)
}

/// Returns the stream of a function by `iommu-map`.
fn stream(nodes: &Nodes, bridge: usize, (bus, function): (u32, u32)) -> Option<Reference> {
    let mask = nodes.word(bridge, "iommu-map-mask").unwrap_or(0xffff);
    let requester = (bus << 8 | function) & mask;
    let words = nodes.words(bridge, "iommu-map");
    let (entries, _) = words.as_chunks::<4>();
    entries.iter().find_map(|[from, smmu, first, count]| {
        let offset = requester.checked_sub(*from).filter(|it| it < count)?;
        Some(Reference {
            property: "iommu-map".to_owned(),
            path: nodes.path(nodes.with_phandle(*smmu)?).to_owned(),
            arguments: vec![first.checked_add(offset)?],
            frequency: None,
        })
    })
}

/// Returns whether a function is a root port: the bridge of one link of the root complex (PCI Express base specification
/// 5.0, 7.5.3.2). A request keeps its requester behind such a bridge, as not behind one of conventional PCI.
fn is_root_port(function: &PciFunction) -> bool {
    const FIRST: usize = 0x34;
    const PCI_EXPRESS: u8 = 0x10;
    const ROOT_PORT: u8 = 4;
    let byte = |at: usize| function.configuration.get(at).copied().unwrap_or(0);
    let mut at = usize::from(byte(FIRST) & 0xfc);
    // The list of a device may be a loop.
    for _ in 0..48 {
        if at < 0x40 {
            return false;
        }
        if byte(at) == PCI_EXPRESS {
            return byte(at + 2) >> 4 == ROOT_PORT;
        }
        at = usize::from(byte(at + 1) & 0xfc);
    }
    false
}

/// Returns what prevents that a cell gets the function.
fn obstacles(
    nodes: &Nodes,
    all: &[PciFunction],
    index: usize,
    files: &FunctionFiles,
) -> Vec<Finding> {
    let function = &all[index];
    let mut found = Vec::new();
    let mut add = |what: &str, present: String, needed: &str, fix: String| {
        let location = format!("PCI function {}", function.address);
        let finding = Finding::new(Severity::Error, location, what);
        found.push(finding.values(present, needed).fix(fix));
    };
    let leave = || "leave the function with the root".to_owned();
    if function.class >> 16 == 0x06 {
        let class = format!("class {:#08x}", function.class);
        add(
            "a bridge forwards what other functions do",
            class,
            "another class",
            leave(),
        );
        return found;
    }
    if let Some(driver) = &function.linux.driver {
        let fix = match function.linux.stays {
            true => leave(),
            false => format!(
                "echo {} >/sys/bus/pci/drivers/{driver}/unbind",
                function.address
            ),
        };
        add(
            "Linux uses it",
            format!("driver {driver}"),
            "no driver",
            fix,
        );
    }
    if let Some(bridge) = &function.behind {
        let mut above = all.iter().filter(|other| other.address == *bridge);
        let port = above.next().filter(|port| is_root_port(port));
        let port = port.filter(|_| files.bridges.len() == 1);
        match port.map(|port| port.linux.driver.as_ref()) {
            None => add(
                "it is behind a bridge, which other functions can pass, too",
                format!("bridge {bridge}"),
                "a function on the first bus of its host bridge, or directly behind a root port",
                leave(),
            ),
            Some(Some(driver)) => add(
                "Linux uses the root port above it",
                format!("driver {driver} of {bridge}"),
                "no driver",
                format!("echo {bridge} >/sys/bus/pci/drivers/{driver}/unbind"),
            ),
            Some(None) => {}
        }
    }
    let identity = function.configuration.first_chunk::<2>();
    let is_present = identity.is_some_and(|bytes| u16::from_le_bytes(*bytes) == function.vendor);
    if function.page.is_none() || function.configuration.len() < 256 || !is_present {
        let (present, needed) = match function.page {
            None => (
                "no host bridge with ECAM in the tree",
                "compatible pci-host-ecam-generic",
            ),
            Some(_) if is_present => ("64 bytes of it can be read", "all, as root"),
            Some(_) => ("the function does not answer", "its identity"),
        };
        let fix = "run this as root; if a cell has the function: rampart cell list --verbose";
        add(
            "its configuration space cannot be read",
            present.to_owned(),
            needed,
            fix.to_owned(),
        );
    }
    if !["D0", "unknown", ""].contains(&files.power.as_str()) {
        let fix = format!(
            "echo on >/sys/bus/pci/devices/{}/power/control",
            function.address
        );
        add(
            "it is in a state that saves energy",
            files.power.clone(),
            "D0",
            fix,
        );
    }
    let bridge = function.bridge.as_ref().and_then(|path| nodes.find(path));
    if bridge.is_some_and(|bridge| nodes.has(bridge, "dma-ranges")) {
        add(
            "its host bridge moves the addresses of DMA",
            "dma-ranges".to_owned(),
            "the addresses of the CPUs",
            leave(),
        );
    }
    match &function.interrupt {
        None if function.pin != 0 => add(
            "its interrupt is not known",
            "no entry for its pin in interrupt-map".to_owned(),
            "an SPI of the GIC",
            leave(),
        ),
        Some(one) if one.kind != InterruptKind::Shared || one.edge => add(
            "its interrupt does not reach a cell",
            match &one.controller {
                Some(controller) => format!("interrupt {} of {controller}", one.number),
                None => format!("interrupt {}, raised by an edge", one.number),
            },
            "an SPI of the GIC with a level",
            leave(),
        ),
        _ => {}
    }
    let windows = bridge.map_or_else(Vec::new, |bridge| addresses::windows(nodes, bridge));
    for base in function.bases() {
        let span = base.span;
        let what = format!("its memory {} is not in pages of its own", base.number);
        let others = all.iter().filter(|other| other.address != function.address);
        let first = span.start / PAGE_BYTES * PAGE_BYTES;
        let whole = AddressSpan::between(first, span.end().next_multiple_of(PAGE_BYTES));
        let is_there = |other: &&PciFunction| {
            // The window of the bridge above it is there.
            let is_above = Some(&other.address) == function.behind.as_ref();
            let bases = other.bases().filter(|_| is_above);
            let all = other.ranges.iter().filter(|_| !is_above);
            let mut ranges = all.chain(bases);
            ranges.any(|range| range.span.start != 0 && range.span.meets(&whole))
        };
        let in_window = windows
            .iter()
            .any(|window| window.purpose == RangeUse::PciWindow && window.span().holds(&whole));
        if span.start == 0 || !in_window {
            let what = format!("its memory {} has no address", base.number);
            add(
                &what,
                span.to_string(),
                "a range in a window of its host bridge",
                leave(),
            );
        } else if !span.start.is_multiple_of(PAGE_BYTES) {
            add(
                &what,
                span.to_string(),
                "the start of a page of 4 KiB",
                leave(),
            );
        } else if let Some(other) = others.clone().find(is_there) {
            let present = format!("{} is there, too", other.address);
            add(&what, present, "pages of its own", leave());
        }
    }
    if function.bases().next().is_none() {
        add("it has no memory", "none".to_owned(), "memory", leave());
    }
    found
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::super::{Description, Sources, describe};
    use super::*;
    use crate::resolve::{CellRequest, InUse, Payload, Resolved, resolve};
    use crate::tests::{property, text};

    /// Creates the tree of a machine with an SMMU and a host bridge as QEMU's `virt` has them.
    fn tree(tree: &Path) {
        let text = |name: &str, value: &str| text(tree, name, value);
        for cells in ["#address-cells", "#size-cells"] {
            property(tree, cells, &[2]);
        }
        text("memory@40000000/device_type", "memory");
        property(
            tree,
            "memory@40000000/reg",
            &[0, 0x4000_0000, 0, 0x4000_0000],
        );
        text("intc/compatible", "arm,gic-v3");
        property(tree, "intc/#interrupt-cells", &[3]);
        property(tree, "intc/phandle", &[7]);
        let frames = [
            [0, 0x0800_0000, 0, 0x1_0000],
            [0, 0x080a_0000, 0, 0x00f6_0000],
        ];
        property(tree, "intc/reg", &frames.concat());
        property(tree, "cpus/#address-cells", &[1]);
        property(tree, "cpus/#size-cells", &[0]);
        for cpu in 0..2 {
            text(&format!("cpus/cpu@{cpu}/device_type"), "cpu");
            text(&format!("cpus/cpu@{cpu}/enable-method"), "psci");
            property(tree, &format!("cpus/cpu@{cpu}/reg"), &[cpu]);
        }
        text("smmu/compatible", "arm,smmu-v3");
        text("smmu/status", "reserved");
        property(tree, "smmu/reg", &[0, 0x0905_0000, 0, 0x2_0000]);
        property(tree, "smmu/phandle", &[8]);
        text("pcie/compatible", "pci-host-ecam-generic");
        text("pcie/device_type", "pci");
        property(tree, "pcie/dma-coherent", &[]);
        property(tree, "pcie/reg", &[0x40, 0x1000_0000, 0, 0x1000_0000]);
        property(tree, "pcie/bus-range", &[0, 0xff]);
        property(tree, "pcie/#address-cells", &[3]);
        property(tree, "pcie/#size-cells", &[2]);
        property(tree, "pcie/#interrupt-cells", &[1]);
        property(tree, "pcie/iommu-map", &[0, 8, 0x100, 0x1_0000]);
        property(tree, "pcie/interrupt-map-mask", &[0x1800, 0, 0, 7]);
        property(
            tree,
            "pcie/ranges",
            &[0x0200_0000, 0, 0x1000_0000, 0, 0x1000_0000, 0, 0x2eff_0000],
        );
        let mut map = Vec::new();
        for slot in 0..4 {
            for pin in 0..4 {
                map.extend([slot << 11, 0, 0, pin + 1, 7, 0, 3 + (slot + pin) % 4, 4]);
            }
        }
        property(tree, "pcie/interrupt-map", &map);
    }

    /// Creates a function below the host bridge, or below bridges, with this pin, class and file `resource`.
    fn function(sys: &Path, path: &str, (pin, class): (u8, u32), resource: &str) {
        let place = sys.join("devices/platform/pcie/pci0000:00").join(path);
        fs::create_dir_all(&place).expect("made");
        let write = |file: &str, text: &[u8]| fs::write(place.join(file), text).expect("written");
        write("vendor", b"0x1af4\n");
        write("device", b"0x1041\n");
        write("class", format!("{class:#08x}\n").as_bytes());
        write("resource", resource.as_bytes());
        write("power_state", b"D0\n");
        let mut configuration = vec![0; 256];
        configuration[..4].copy_from_slice(&[0xf4, 0x1a, 0x41, 0x10]);
        configuration[PIN] = pin;
        if class >> 8 == 0x0604 {
            // A capability of another kind, and that of a root port.
            configuration[0x34] = 0x40;
            configuration[0x40..0x42].copy_from_slice(&[0x05, 0x80]);
            configuration[0x80..0x83].copy_from_slice(&[0x10, 0, 0x42]);
        }
        write("config", &configuration);
        let address = path.rsplit('/').next().expect("a name");
        symlink(&place, sys.join("bus").join(address)).expect("linked");
    }

    fn memory(start: u64, bytes: u64) -> String {
        let end = start + bytes - 1;
        format!("0x{start:016x} 0x{end:016x} 0x0000000000040200\n")
    }

    /// Describes a machine with two functions on the first bus, two bridges, and functions behind them.
    fn described(sys: &Path) -> Description {
        tree(&sys.join("devicetree/base"));
        fs::create_dir(sys.join("bus")).expect("made");
        let network = (1, 0x02_0000);
        let io = "0x0000000000001000 0x000000000000101f 0x0000000000040101\n";
        let own = [io, &memory(0x1000_0000, 0x4000)].concat();
        function(sys, "0000:00:04.0", network, &own);
        function(sys, "0000:00:05.0", network, &memory(0x1001_0000, 0x100));
        let bridge = (1, 0x06_0400);
        function(sys, "0000:00:01.0", bridge, "");
        function(
            sys,
            "0000:00:01.0/0000:01:02.0",
            (0, bridge.1),
            &memory(0x1010_0000, 0x10_0000),
        );
        // Pin 1 of device 3 is pin 4 at device 2, and pin 2 at device 1: that of device 2.
        let inner = "0000:00:01.0/0000:01:02.0/0000:02:03.0";
        function(sys, inner, network, &memory(0x1001_0800, 0x100));
        // Behind a root port alone: pin 1 of device 0 is pin 1 at device 7.
        let registers = memory(0x1020_0000, 0x1000);
        let empty = format!("0x{0:016x} 0x{0:016x} 0x{0:016x}\n", 0).repeat(12);
        let port = [registers, empty, memory(0x1021_0000, 0x10_0000)].concat();
        function(sys, "0000:00:07.0", bridge, &port);
        let card = "0000:00:07.0/0000:03:00.0";
        function(sys, card, network, &memory(0x1021_0000, 0x1000));
        symlink(
            sys.join("devicetree/base/pcie"),
            sys.join("devices/platform/pcie/of_node"),
        )
        .expect("linked");
        let iomem = sys.join("iomem");
        fs::write(&iomem, "40000000-5fffffff : System RAM\n").expect("written");
        let base = sys.join("devicetree/base");
        let mut sources = Sources::recorded(&base, Some(&iomem)).expect("a tree");
        sources.functions = read(&sys.join("bus"));
        describe(&sources)
    }

    fn requested(description: &Description, device: &str) -> Result<Resolved, String> {
        let request = CellRequest {
            devices: vec![device.to_owned()],
            payload: Payload::Linux,
            ..CellRequest::linux("rt", 64 << 20)
        };
        resolve(description, &InUse::default(), &request).map_err(|found| {
            let texts: Vec<String> = found.iter().map(ToString::to_string).collect();
            texts.join("\n")
        })
    }

    #[test]
    fn a_cell_gets_what_a_function_needs() {
        let sys = tempfile::tempdir().expect("a directory");
        let description = described(sys.path());
        let resolved = requested(&description, "0000:00:04.0").expect("a cell");
        let blob = &resolved.configuration;
        let stream = blob.streams[0];
        assert_eq!((stream.first, stream.count), (0x120, 1));
        assert_eq!(stream.function, 0x40_1002_0000);
        assert_eq!(blob.interrupts[0].number, 35);
        let is_own = |region: &&_| {
            let region: &rampart_hypervisor_core::format::MemoryRegion = region;
            region.physical == 0x1000_0000
        };
        let memory = blob.memory.iter().find(is_own).expect("its memory");
        assert_eq!((memory.guest, memory.bytes), (0x1000_0000, 0x4000));
        let bridge = resolved
            .nodes
            .iter()
            .find(|node| node.name.starts_with("pcie@"));
        let value = |name: &str| {
            let properties = &bridge.expect("a bridge").properties;
            let found = properties.iter().find(|(known, _)| known == name);
            let (words, _) = found.expect("a property").1.as_chunks::<4>();
            let words: Vec<u32> = words.iter().map(|word| u32::from_be_bytes(*word)).collect();
            words
        };
        assert_eq!(value("interrupt-map"), [0, 0, 0, 1, 1, 0, 3, 4]);
        let window = [0x0200_0000, 0, 0x1000_0000, 0, 0x1000_0000, 0, 0x4000];
        assert_eq!(value("ranges"), window);
        let end = resolved.memory.guest + resolved.memory.bytes;
        let [upper, lower, ..] = value("reg")[..] else {
            panic!("no registers");
        };
        assert_eq!(u64::from(upper) << 32 | u64::from(lower), end - 0x10_1000);
        assert_eq!(resolved.functions[0].image[..2], [0xf4, 0x1a]);
    }

    #[test]
    fn a_cell_gets_the_root_port_above_its_function() {
        let sys = tempfile::tempdir().expect("a directory");
        let mut description = described(sys.path());
        let resolved = requested(&description, "0000:03:00.0").expect("a cell");
        let streams = resolved.configuration.streams.iter();
        let streams: Vec<_> = streams
            .map(|stream| (stream.first, stream.function))
            .collect();
        let space = 0x40_1000_0000;
        assert_eq!(
            streams,
            [(0x400, space + 0x30_0000), (0x138, space + 0x3_8000)]
        );
        let interrupts = resolved.configuration.interrupts.iter();
        let interrupts: Vec<u32> = interrupts.map(|grant| grant.number).collect();
        assert_eq!(interrupts, [38]);
        assert_eq!(resolved.functions.len(), 1);

        let index = |description: &Description, address: &str| {
            let mut all = description.functions.iter();
            all.position(|one| one.address == address).expect("there")
        };
        let card = index(&description, "0000:03:00.0");
        let mut beside = description.clone();
        let mut second = description.functions[card].clone();
        second.address = "0000:03:00.1".to_owned();
        second.ranges.clear();
        beside.functions.push(second);
        let error = requested(&beside, "0000:03:00.0").expect_err("refused");
        assert!(
            error.contains("0000:03:00.1 is behind the same root port"),
            "{error}"
        );

        // A driver, and another kind of port.
        let place = sys.path().join("devices/platform/pcie/pci0000:00");
        let driver = sys.path().join("bus/pci/drivers/pcieport");
        fs::create_dir_all(&driver).expect("made");
        fs::write(driver.join("unbind"), "").expect("written");
        symlink(&driver, place.join("0000:00:07.0/driver")).expect("linked");
        let again = |description: &mut Description| {
            let base = sys.path().join("devicetree/base");
            let iomem = sys.path().join("iomem");
            let mut sources = Sources::recorded(&base, Some(&iomem)).expect("a tree");
            sources.functions = read(&sys.path().join("bus"));
            *description = describe(&sources);
            requested(description, "0000:03:00.0").expect_err("refused")
        };
        let error = again(&mut description);
        let fix = "echo 0000:00:07.0 >/sys/bus/pci/drivers/pcieport/unbind";
        assert!(error.contains(fix), "{error}");
        let mut configuration = fs::read(place.join("0000:00:07.0/config")).expect("read");
        configuration[0x82] = 0x62;
        fs::write(place.join("0000:00:07.0/config"), configuration).expect("written");
        let error = again(&mut description);
        assert!(error.contains("or directly behind a root port"), "{error}");
    }

    #[test]
    fn each_reason_against_a_function_is_named() {
        let sys = tempfile::tempdir().expect("a directory");
        let mut description = described(sys.path());
        for (device, wanted) in [
            ("0000:00:05.0", "0000:02:03.0 is there, too"),
            ("0000:00:01.0", "a bridge forwards what other functions do"),
            ("0000:02:03.0", "bridge 0000:00:01.0"),
            ("0000:02:03.0", "expected the start of a page of 4 KiB"),
            ("0000:00:08.0", "this machine has no such PCI function"),
            ("/pcie", "a PCI host bridge cannot be given to a cell"),
        ] {
            let error = requested(&description, device).expect_err(device);
            assert!(error.contains(wanted), "{device}: {error}");
        }
        let inner = description
            .functions
            .iter()
            .find(|one| one.address == "0000:02:03.0");
        assert!(inner.expect("there").raises(37), "{inner:#?}");
        let error = |description: &Description| {
            requested(description, "0000:00:04.0").expect_err("refused")
        };
        let changed = |change: &dyn Fn(&mut Description)| {
            let mut description = description.clone();
            change(&mut description);
            error(&description)
        };
        let used = changed(&|it| it.requested_interrupts = vec![35]);
        assert!(used.contains("Linux uses its interrupt"), "{used}");
        let shared = changed(&|it| {
            let interrupt = it
                .functions
                .iter()
                .find(|one| one.address == "0000:00:04.0");
            let interrupt = interrupt.and_then(|one| one.interrupt.clone());
            let other = it
                .functions
                .iter_mut()
                .find(|one| one.address == "0000:00:05.0");
            other.expect("there").interrupt = interrupt;
        });
        assert!(shared.contains("0000:00:05.0 raise 35"), "{shared}");
        description.smmus[0].owner = super::super::SmmuOwner::Linux;
        let bare = error(&description);
        assert!(bare.contains("the hypervisor does not guard it"), "{bare}");
    }
}
