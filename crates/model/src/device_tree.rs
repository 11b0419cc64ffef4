// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The parts of a machine that cells can own, from its device tree: CPUs, memory, the interrupt
//! controller, devices.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{AddressSpan, Finding};

/// Version of [`Description`] as a document.
pub const DESCRIPTION_SCHEMA_VERSION: u32 = 1;

/// The description of a machine. All lists are ordered by address or number, so that two
/// descriptions of one machine are equal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Description {
    /// Version of the format of this document.
    pub schema_version: u32,
    /// `model` of the tree.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// `compatible` of the tree, the most specific first.
    pub compatible: Vec<String>,
    /// The CPUs, ordered by number.
    pub cpus: Vec<TreeCpu>,
    /// All memory.
    pub memory: Vec<AddressSpan>,
    /// Parts of the memory that are already in use.
    pub reserved: Vec<ReservedMemory>,
    /// Memory that Linux uses; none if it could not be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub linux_memory: Option<Vec<AddressSpan>>,
    /// Unused memory: available to the hypervisor and its cells.
    pub kept: Vec<AddressSpan>,
    /// The interrupt controller; none if it is not supported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interrupt_controller: Option<InterruptController>,
    /// The SMMUs of version 3.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub smmus: Vec<Smmu>,
    /// The last cache of the CPUs; none if nothing describes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_cache: Option<LastCache>,
    /// The devices with registers accessible to the CPUs or with interrupts.
    pub devices: Vec<TreeDevice>,
    /// The PCI functions of the running machine, by Linux's addresses; empty without Linux.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub functions: Vec<PciFunction>,
    /// The shared peripheral interrupts that Linux has requested, in ascending order: for a device,
    /// or without one. Empty if the description is not of the running machine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requested_interrupts: Vec<u32>,
    /// Problems for cells, and resources that devices share.
    pub findings: Vec<Finding>,
}

/// One CPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct TreeCpu {
    /// Linux's number; if it is not known, the index in the tree.
    pub number: u32,
    /// The affinity fields of its MPIDR_EL1.
    pub mpidr: u64,
    /// Path of its node.
    pub path: String,
    /// Its `compatible` strings.
    pub compatible: Vec<String>,
    /// How it is started; `psci` on all machines that can be partitioned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enable_method: Option<String>,
}

/// Maximum number of colours that a cell's memory distinguishes; a cache with more is divided into this number of
/// parts.
const MAXIMUM_COLOURS: u64 = 32;
/// Size of the pages that colours divide.
const PAGE_BYTES: u64 = 4096;

/// A physically indexed cache that CPUs share. Pages of different colours never share one of its sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct LastCache {
    /// Number of sets.
    pub sets: u64,
    /// Number of ways, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ways: Option<u64>,
    /// Size of a line in bytes.
    pub line_bytes: u64,
    /// What describes it.
    pub source: CacheSource,
}

/// What describes a cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CacheSource {
    /// The device tree: `cache-sets` and `cache-line-size` of the last `next-level-cache`.
    DeviceTree,
    /// Linux: `/sys/devices/system/cpu/cpu0/cache`.
    Linux,
    /// The processor: CLIDR_EL1 and CCSIDR_EL1, which the driver reads.
    Processor,
}

impl CacheSource {
    /// Returns the name of the source for people.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::DeviceTree => "device tree",
            Self::Linux => "/sys/devices/system/cpu",
            Self::Processor => "CCSIDR_EL1",
        }
    }
}

impl LastCache {
    /// Returns the number of colours that cells can divide, at least 1: the size of a way divided by the size of a
    /// page. A cache whose sets are not a power of two is not indexed by plain address bits, and has one.
    #[must_use]
    pub fn colours(&self) -> u32 {
        let way = self.sets.saturating_mul(self.line_bytes);
        if !way.is_power_of_two() {
            return 1;
        }
        // At most 32, so that it fits.
        (way / PAGE_BYTES).clamp(1, MAXIMUM_COLOURS) as u32
    }

    /// Returns the size, if the number of ways is known.
    #[must_use]
    pub fn bytes(&self) -> Option<u64> {
        let way = self.sets.checked_mul(self.line_bytes)?;
        way.checked_mul(self.ways?)
    }
}

/// A reserved part of the memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct ReservedMemory {
    /// The reserved span.
    #[serde(flatten)]
    pub span: AddressSpan,
    /// The node that reserves it; `/memreserve/` for the tree's own list.
    pub path: String,
    /// Whether Linux does not map it.
    pub no_map: bool,
    /// Whether it is reserved for the hypervisor and its cells: its name begins with `rampart`, or
    /// it is compatible with `rampart,cells`.
    pub for_cells: bool,
}

/// The interrupt controller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct InterruptController {
    /// Version of the GIC architecture: 2 or 3 (4 counts as 3).
    pub version: u32,
    /// Path of its node.
    pub path: String,
    /// GICD.
    pub distributor: AddressSpan,
    /// The regions of GICR; none in version 2.
    pub redistributors: Vec<AddressSpan>,
    /// GICC; only in version 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_interface: Option<AddressSpan>,
    /// The registers of each of its ITSs.
    pub translation_services: Vec<AddressSpan>,
}

/// An SMMUv3, which translates the addresses of devices' DMA.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Smmu {
    /// Path of its node.
    pub path: String,
    /// Its registers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registers: Option<AddressSpan>,
    /// Who has it, by the `status` of its node.
    pub owner: SmmuOwner,
    /// The streams that the tree names for devices: the first and their number.
    pub streams: Vec<(u32, u32)>,
    /// The configuration space (ECAM) of the first PCI host bridge behind it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub configuration_space: Option<AddressSpan>,
}

/// Who has an SMMU (Devicetree Specification 0.4, 2.3.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SmmuOwner {
    /// `okay`: Linux.
    Linux,
    /// `reserved`: the hypervisor.
    Hypervisor,
    /// `disabled` or another: no one. It may have no clock.
    Nobody,
}

/// The purpose of an address range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RangeUse {
    /// Registers.
    Registers,
    /// The devices behind a PCI host bridge.
    PciWindow,
}

/// An address range of a device, as seen by the CPUs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct AddressRange {
    /// Start address.
    pub start: u64,
    /// Its size in bytes.
    pub bytes: u64,
    /// Purpose of the range.
    pub purpose: RangeUse,
    /// Its name in `reg-names`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

impl AddressRange {
    /// Returns the range without its purpose and name.
    #[must_use]
    pub const fn span(&self) -> AddressSpan {
        AddressSpan {
            start: self.start,
            bytes: self.bytes,
        }
    }
}

/// The kind of an interrupt.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum InterruptKind {
    /// A shared peripheral interrupt (SPI), which can be assigned to a cell.
    Shared,
    /// A private peripheral interrupt of each CPU (PPI).
    Private,
    /// An extended shared peripheral interrupt (GICv3.1).
    Extended,
    /// An interrupt of another controller, which belongs to the owner of that controller.
    Elsewhere,
}

/// An interrupt of a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct DeviceInterrupt {
    /// Kind of the interrupt.
    pub kind: InterruptKind,
    /// INTID, or the first word of the specifier for another controller.
    pub number: u32,
    /// Whether it is triggered by an edge instead of a level.
    pub edge: bool,
    /// The other controller that forwards it, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller: Option<String>,
}

/// A resource of another device that a device needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Reference {
    /// The property: `clocks`, `resets`, `power-domains`, `iommus`, `dmas`, `pinctrl-0`.
    pub property: String,
    /// Path of the other device's node; empty for an entry of the property that references none.
    pub path: String,
    /// Words of the reference by its binding.
    pub arguments: Vec<u32>,
    /// The frequency of a fixed clock in hertz.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frequency: Option<u32>,
}

/// The properties of a device's node, split into those that a cell's tree can copy and others.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeContents {
    /// Properties without addresses, interrupts and references.
    pub properties: Vec<(String, Vec<u8>)>,
    /// Properties that reference other nodes, except those in [`TreeDevice::references`], with the path
    /// of the first node.
    pub elsewhere: Vec<(String, String)>,
    /// Its names in `/aliases`, from which drivers take the number of a device.
    pub aliases: Vec<String>,
}

/// Linux's driver of a device.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Driver {
    /// Bus in sysfs: `platform`, `amba`.
    pub bus: String,
    /// Name of the device in sysfs.
    pub device: String,
    /// Name of the driver; none if no driver is bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// Whether the driver stays with its devices: it has no file `unbind` (`suppress_bind_attrs` in Linux).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stays: bool,
}

/// A device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct TreeDevice {
    /// Path of its node.
    pub path: String,
    /// Its `compatible` strings, the most specific first.
    pub compatible: Vec<String>,
    /// Whether the device and all nodes above it are enabled.
    pub enabled: bool,
    /// Its address ranges, in the order of the tree, which is significant.
    pub ranges: Vec<AddressRange>,
    /// Its interrupts, in the order of the tree.
    pub interrupts: Vec<DeviceInterrupt>,
    /// The resources of other devices that it needs.
    pub references: Vec<Reference>,
    /// Its driver in Linux; none if it could not be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub linux: Option<Driver>,
    /// The rest of its node, for the tree of a cell's Linux; not part of the document.
    #[serde(skip)]
    pub contents: NodeContents,
}

impl TreeDevice {
    /// Returns the name of its node, with the unit address.
    #[must_use]
    pub fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }

    /// Returns the INTIDs of its interrupts that can be assigned to a cell.
    pub fn shared_interrupts(&self) -> impl Iterator<Item = u32> + '_ {
        let shared = |interrupt: &&DeviceInterrupt| interrupt.kind == InterruptKind::Shared;
        self.interrupts
            .iter()
            .filter(shared)
            .map(|interrupt| interrupt.number)
    }
}

/// A PCI function.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct PciFunction {
    /// Its address in Linux: domain, bus, device and function, such as `0000:00:04.0`.
    pub address: String,
    /// Its vendor.
    pub vendor: u16,
    /// Its device number of this vendor.
    pub device: u16,
    /// Its class: base class, subclass and programming interface.
    pub class: u32,
    /// Path of the node of its host bridge; none if the tree has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bridge: Option<String>,
    /// The address of the bridge on the first bus that it is behind; none if it is on the first bus itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub behind: Option<String>,
    /// Address of its configuration space; none if its host bridge has no ECAM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page: Option<u64>,
    /// The SMMU that it is behind, with its stream as argument.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<Reference>,
    /// Number of its interrupt pin, from 1; 0 for none.
    pub pin: u32,
    /// The interrupt that its pin raises.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interrupt: Option<DeviceInterrupt>,
    /// Its memory, as seen by the CPUs.
    pub ranges: Vec<FunctionRange>,
    /// Its driver in Linux.
    pub linux: Driver,
    /// What prevents that a cell gets it, whatever else the cell has.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub obstacles: Vec<Finding>,
    /// The first 256 bytes of its configuration space; not part of the document.
    #[serde(skip)]
    pub configuration: Vec<u8>,
}

/// Memory of a PCI function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct FunctionRange {
    /// Number of its base address register, 6 for its ROM, and more for what it forwards as a bridge.
    pub number: u32,
    /// Start and size; it starts at 0 if it has no address.
    #[serde(flatten)]
    pub span: AddressSpan,
}

impl PciFunction {
    /// Number of base address registers.
    pub const BASES: u32 = 6;

    /// Returns whether a text has the form of an address: `0000:03:00.0`.
    #[must_use]
    pub fn is_address(text: &str) -> bool {
        let hexadecimal = |part: &str, digits: usize| {
            part.len() == digits && part.chars().all(|c| c.is_ascii_hexdigit())
        };
        let parts: Vec<&str> = text.split([':', '.']).collect();
        let [domain, bus, device, function] = parts.as_slice() else {
            return false;
        };
        text.matches('.').count() == 1
            && hexadecimal(domain, 4)
            && hexadecimal(bus, 2)
            && hexadecimal(device, 2)
            && hexadecimal(function, 1)
    }

    /// Returns the memory of its base address registers.
    pub fn bases(&self) -> impl Iterator<Item = &FunctionRange> {
        self.ranges
            .iter()
            .filter(|range| range.number < Self::BASES)
    }

    /// Returns whether it raises this interrupt of the GIC.
    #[must_use]
    pub fn raises(&self, number: u32) -> bool {
        let is_it =
            |one: &DeviceInterrupt| one.kind == InterruptKind::Shared && one.number == number;
        self.interrupt.as_ref().is_some_and(is_it)
    }
}
