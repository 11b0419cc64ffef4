// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a machine is made of, from its device tree and from what Linux says of it: CPUs, memory, the
//! interrupt controller, devices with their registers and interrupts. Nothing of it is written by
//! hand; what stands in the way of cells, and what devices have in common, are its findings.
//!
//! [`Sources`] is what was read; [`describe`] is a pure function of it.

mod addresses;
mod devices;
mod findings;
mod flattened;
mod interrupts;
mod iomem;
mod nodes;
mod parts;
mod source;
pub(crate) mod spans;
mod text;

use rampart_model::Finding;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use nodes::TreeError;
pub use source::Sources;
pub use text::text;

/// Of [`Description`] as a document.
pub const DESCRIPTION_SCHEMA_VERSION: u32 = 1;

/// A machine. All lists are in the order of their addresses or numbers, so that two descriptions of
/// one machine are the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Description {
    /// Form of this document.
    pub schema_version: u32,
    /// `model` of the tree.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// `compatible` of the tree, the most specific first.
    pub compatible: Vec<String>,
    /// The CPUs, by their numbers.
    pub cpus: Vec<Cpu>,
    /// All memory.
    pub memory: Vec<Span>,
    /// Parts of the memory that have a use already.
    pub reserved: Vec<Reservation>,
    /// Memory that Linux uses; none where that was not to be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub linux_memory: Option<Vec<Span>>,
    /// Memory that nobody uses: where the hypervisor and its cells can be.
    pub kept: Vec<Span>,
    /// The interrupt controller; none where it is none that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interrupt_controller: Option<InterruptController>,
    /// What has registers that the CPUs reach, or interrupts.
    pub devices: Vec<Device>,
    /// What stands in the way of cells, and what devices have in common.
    pub findings: Vec<Finding>,
}

/// A part of the physical address space.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
pub struct Span {
    /// Its first byte.
    pub start: u64,
    /// Its size in bytes.
    pub bytes: u64,
}

impl Span {
    /// From its first byte to the one before `end`.
    #[must_use]
    pub const fn between(start: u64, end: u64) -> Self {
        Self {
            start,
            bytes: end.saturating_sub(start),
        }
    }

    /// The byte after it.
    #[must_use]
    pub const fn end(&self) -> u64 {
        self.start.saturating_add(self.bytes)
    }

    /// Whether the two have a byte in common.
    #[must_use]
    pub const fn meets(&self, other: &Self) -> bool {
        self.start < other.end() && other.start < self.end()
    }

    /// Whether all of `other` is in it.
    #[must_use]
    pub const fn holds(&self, other: &Self) -> bool {
        self.start <= other.start && other.end() <= self.end()
    }
}

impl std::fmt::Display for Span {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:#x}-{:#x}", self.start, self.end().wrapping_sub(1))
    }
}

/// One CPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Cpu {
    /// As Linux counts it; where that is not known, its place in the tree.
    pub number: u32,
    /// The affinity fields of its MPIDR_EL1.
    pub mpidr: u64,
    /// Its node.
    pub path: String,
    /// What it is.
    pub compatible: Vec<String>,
    /// How it is turned on; `psci` on all machines that can be partitioned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enable_method: Option<String>,
}

/// A part of the memory that has a use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Reservation {
    /// Where.
    #[serde(flatten)]
    pub span: Span,
    /// The node that says so; `/memreserve/` for the tree's own list.
    pub path: String,
    /// Whether Linux does not even map it.
    pub no_map: bool,
    /// Whether it is kept for the hypervisor and its cells: its name begins with `rampart`, or it is
    /// compatible with `rampart,cells`.
    pub for_cells: bool,
}

/// The interrupt controller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct InterruptController {
    /// Of the GIC architecture: 2 or 3 (4 counts as 3).
    pub version: u32,
    /// Its node.
    pub path: String,
    /// GICD.
    pub distributor: Span,
    /// The regions of GICR; none in version 2.
    pub redistributors: Vec<Span>,
    /// The registers of each of its ITSs.
    pub translation_services: Vec<Span>,
}

/// What a range is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RangeUse {
    /// Registers.
    Registers,
    /// The devices behind a PCI host bridge.
    PciWindow,
}

/// Where the CPUs see a part of a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct AddressRange {
    /// Its first byte.
    pub start: u64,
    /// Its size in bytes.
    pub bytes: u64,
    /// What it is for.
    pub purpose: RangeUse,
    /// Its name in `reg-names`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

impl AddressRange {
    /// Where it is.
    #[must_use]
    pub const fn span(&self) -> Span {
        Span {
            start: self.start,
            bytes: self.bytes,
        }
    }
}

/// Of which kind an interrupt is.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum InterruptKind {
    /// A shared peripheral interrupt (SPI): it can belong to a cell.
    Shared,
    /// A private one of each CPU (PPI).
    Private,
    /// An extended shared one (GICv3.1).
    Extended,
    /// A line of another controller, which belongs to who has that one.
    Elsewhere,
}

/// An interrupt of a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Interrupt {
    /// Of which kind.
    pub kind: InterruptKind,
    /// INTID, or the first word of what another controller is told.
    pub number: u32,
    /// Whether an edge raises it, not a level.
    pub edge: bool,
    /// The other controller that it goes through, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller: Option<String>,
}

/// Something of another device that a device needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Reference {
    /// Of which property: `clocks`, `resets`, `power-domains`, `iommus`, `dmas`, `pinctrl-0`.
    pub property: String,
    /// The other device's node.
    pub path: String,
    /// What of it, as words of its binding.
    pub arguments: Vec<u32>,
    /// Of a clock that never changes: its frequency in hertz.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frequency: Option<u32>,
}

/// What a device's node says that another machine's tree can repeat word by word, and what not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeContents {
    /// Properties without addresses, interrupts and other nodes.
    pub properties: Vec<(String, Vec<u8>)>,
    /// Other properties that point to nodes than those of [`Device::references`], with the path of
    /// the first one.
    pub elsewhere: Vec<(String, String)>,
}

/// The driver of Linux that has a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Driver {
    /// The bus in sysfs: `platform`, `amba`.
    pub bus: String,
    /// Its name in sysfs.
    pub device: String,
    /// The driver; none where none has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
}

/// A device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Device {
    /// Its node.
    pub path: String,
    /// What it is, the most specific first.
    pub compatible: Vec<String>,
    /// Whether it is in use, and all above it in the tree.
    pub enabled: bool,
    /// Where the CPUs see it, in the order of the tree, which has a meaning.
    pub ranges: Vec<AddressRange>,
    /// Its interrupts, in the order of the tree.
    pub interrupts: Vec<Interrupt>,
    /// What it needs of others.
    pub references: Vec<Reference>,
    /// Who has it in Linux; none where that was not to be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub linux: Option<Driver>,
    /// The rest of its node, which is for the tree of a cell's Linux and not for the document.
    #[serde(skip)]
    pub contents: NodeContents,
}

impl Device {
    /// Its node's name, with the unit address.
    #[must_use]
    pub fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }

    /// INTIDs of those of its interrupts that can belong to a cell.
    pub fn shared_interrupts(&self) -> impl Iterator<Item = u32> + '_ {
        let shared = |interrupt: &&Interrupt| interrupt.kind == InterruptKind::Shared;
        self.interrupts
            .iter()
            .filter(shared)
            .map(|interrupt| interrupt.number)
    }
}

/// Describes a machine. A pure function.
#[must_use]
pub fn describe(sources: &Sources) -> Description {
    let nodes = &sources.nodes;
    let gic = parts::controller(nodes);
    let memory = parts::memory(nodes);
    let reserved = parts::reserved(nodes);
    let linux_memory = sources.iomem.as_ref().map(iomem::Iomem::linux_memory);
    let kept = parts::kept(&memory, &reserved, sources.iomem.as_ref());
    let mut description = Description {
        schema_version: DESCRIPTION_SCHEMA_VERSION,
        model: nodes.string(0, "model"),
        compatible: nodes.strings(0, "compatible"),
        cpus: parts::cpus(nodes, &sources.cpu_numbers),
        memory,
        reserved,
        linux_memory,
        kept,
        interrupt_controller: gic.as_ref().map(|(_, controller)| controller.clone()),
        devices: devices::all(nodes, gic.map(|(node, _)| node), &sources.drivers),
        findings: Vec::new(),
    };
    description.findings = findings::of(&description);
    description
}
