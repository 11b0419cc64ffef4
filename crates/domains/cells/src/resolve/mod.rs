// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Resolves a request ("2 CPUs, 256 MiB, this device") to the configuration of a cell: a pure
//! function of the machine's description, the resources in use, and the request. Every refusal has
//! a location, the found and the expected value, and a fix.

mod colours;
mod devices;
mod functions;
mod in_use;
mod memory;
mod network;
mod scmi;
mod tree;

use std::collections::BTreeMap;

use rampart_hypervisor_core::configuration::build::Blob;
use rampart_hypervisor_core::format::{
    Doorbell, InterruptFlags, InterruptGrant, NAME_BYTES, SmcGrant,
};
use rampart_hypervisor_core::interface::{DOORBELL_BY_SMC, PAGE_BYTES};
use rampart_model::{CpuId, CpuSet, Finding, Severity};
use rampart_ring::directory::network_value;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::describe::Description;
use crate::linux::{TreeNode, configuration_space};
use crate::names::{RegionNames, is_name};
use crate::network::{NetworkLink, NetworkRequest, mac_address};
use crate::pci::CellFunction;

pub use in_use::{CellInUse, InUse};
pub(crate) use memory::first_fit;
pub use rampart_hypervisor_core::format::{
    MemoryFlags, MemoryRegion, RegisterFlags, RegisterGrant,
};

/// Start of the memory of a program without an operating system (`hypervisor/cells/cell.ld`).
pub const BARE_MEMORY: u64 = 0x4000_0000;
/// Start of its shared regions, which follow each other (`hypervisor/cells/src/lib.rs`).
pub const BARE_SHARED: u64 = 0x5000_0000;
/// Start of the directory of these regions (`rampart_ring::directory`), if one has a name.
pub const BARE_DIRECTORY: u64 = BARE_SHARED - PAGE_BYTES;

/// The program of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Payload {
    /// A program without an operating system, at [`BARE_MEMORY`].
    #[default]
    Bare,
    /// A Linux kernel, whose memory is mapped at its physical address.
    Linux,
}

/// The requested CPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CpuSelection {
    /// These CPUs, by Linux's numbers. The first one is started.
    List(CpuSet),
    /// This number of CPUs; the highest that are free.
    Count(u32),
}

/// The writer of a shared region.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RegionWriter {
    /// The cell; the root reads.
    #[default]
    Cell,
    /// The root; the cell reads.
    Root,
}

/// A requested shared region.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SharedRequest {
    /// A new region of this cell.
    Own {
        /// Name, if any: [`crate::names::wrong_name`].
        name: Option<String>,
        /// Size in bytes, rounded up to whole pages of 4 KiB.
        bytes: u64,
        /// The writer of the region.
        writer: RegionWriter,
    },
    /// A region of an existing cell, for reading.
    OtherCell {
        /// Name of the region in this cell; `None` keeps its name in the other cell.
        name: Option<String>,
        /// Name of the other cell.
        cell: String,
        /// The shared region of that cell: its name, or its number from 0.
        region: String,
    },
}

/// The requested properties of a cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CellRequest {
    /// Name: letters, digits, `-`, `_` and `.`, at most 32.
    pub name: String,
    /// The program.
    pub payload: Payload,
    /// Its CPUs.
    pub cpus: CpuSelection,
    /// Size of its own memory in bytes, rounded up to 2 MiB.
    pub memory_bytes: u64,
    /// Its share of the last-level cache in percent, rounded up to whole colours; `None` for memory of all colours.
    pub cache_percent: Option<u32>,
    /// Devices: the path of a node, its name with or without unit address, or the address.
    pub devices: Vec<String>,
    /// Devices with DMA that no SMMU confines, by path or name, and the reason why the cell is trusted with them.
    pub unconfined_dma: BTreeMap<String, String>,
    /// Single registers or bits of them.
    pub registers: Vec<RegisterGrant>,
    /// Shared regions.
    pub shared: Vec<SharedRequest>,
    /// Number of interrupts with which others ring this cell.
    pub bells: u32,
    /// Cells whose first bell this cell rings.
    pub rings: Vec<String>,
    /// Networks, at most one with each peer.
    pub networks: Vec<NetworkRequest>,
    /// Ranges of SMC functions that are passed to the firmware.
    pub smcs: Vec<(u32, u32)>,
    /// Maximum silence before the cell fails; 0 for no watchdog.
    pub watchdog_milliseconds: u32,
    /// Initial value of x0 of a program without an operating system.
    pub argument: u64,
}

impl CellRequest {
    /// Returns a request for a program without an operating system on one CPU, with 2 MiB of memory
    /// and 64 KiB that it writes and the root reads.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            payload: Payload::Bare,
            cpus: CpuSelection::Count(1),
            memory_bytes: 2 << 20,
            cache_percent: None,
            unconfined_dma: BTreeMap::new(),
            devices: Vec::new(),
            registers: Vec::new(),
            shared: vec![SharedRequest::Own {
                name: None,
                bytes: 64 << 10,
                writer: RegionWriter::Cell,
            }],
            bells: 0,
            rings: Vec::new(),
            networks: Vec::new(),
            smcs: Vec::new(),
            watchdog_milliseconds: 0,
            argument: 0,
        }
    }
}

impl CellRequest {
    /// Returns a request for a Linux on one CPU with the standard regions shared with the root
    /// ([`crate::linux::LinuxRegions::of`]): its console and one region per direction of the
    /// agent's connection.
    #[must_use]
    pub fn linux(name: &str, memory_bytes: u64) -> Self {
        let own = |bytes, writer| SharedRequest::Own {
            name: None,
            bytes,
            writer,
        };
        Self {
            payload: Payload::Linux,
            memory_bytes,
            shared: vec![
                own(crate::linux::CONSOLE_BYTES, RegionWriter::Cell),
                own(crate::linux::TO_ROOT_BYTES, RegionWriter::Cell),
                own(crate::linux::FROM_ROOT_BYTES, RegionWriter::Root),
            ],
            ..Self::new(name)
        }
    }
}

/// A resolved request, ready for the creation of the cell.
#[derive(Debug, Clone)]
pub struct Resolved {
    /// Configuration of the cell. For Linux, entry and argument are preliminary: the code that
    /// places kernel and device tree sets them.
    pub configuration: Blob,
    /// CPUs by Linux's numbers, in order of the configuration.
    pub cpus: Vec<CpuId>,
    /// Own memory of the cell.
    pub memory: MemoryRegion,
    /// Shared regions, in the order of the request.
    pub shared: Vec<MemoryRegion>,
    /// Names of the shared regions.
    pub names: RegionNames,
    /// Memory of the directory of names for a program without an operating system; `None` if no
    /// region has a name. Linux finds the names in its device tree.
    pub directory: Option<MemoryRegion>,
    /// Device tree nodes of its devices.
    pub devices: Vec<String>,
    /// Nodes for the device tree of a cell that runs Linux: its devices, their dependencies, and
    /// the named regions. Empty for a program without an operating system.
    pub nodes: Vec<TreeNode>,
    /// Its PCI functions, which are also in `devices`.
    pub functions: Vec<CellFunction>,
    /// The interrupts with which others ring the cell.
    pub bells: Vec<u32>,
    /// Notes and warnings about the cell.
    pub findings: Vec<Finding>,
}

impl Resolved {
    /// Returns the value of a region in the directory, see [`rampart_ring::directory::network_value`].
    #[must_use]
    pub fn network_value(&self, region: &MemoryRegion) -> u64 {
        let is_own = |link: &&NetworkLink| link.own == region.physical;
        let is_of = |link: &&NetworkLink| is_own(link) || link.other == region.physical;
        let Some(link) = self.names.networks.iter().find(is_of) else {
            return 0;
        };
        let number = if is_own(&link) {
            doorbell_index(&self.configuration.doorbells, link.peer_bell) as u16
        } else {
            link.own_bell as u16
        };
        network_value(mac_address(&self.configuration.name, &link.peer), number)
    }
}

/// Returns the index of the doorbell with this interrupt.
fn doorbell_index(doorbells: &[Doorbell], peer_bell: u32) -> u32 {
    let rings = |doorbell: &Doorbell| doorbell.interrupt == peer_bell;
    doorbells.iter().position(rings).unwrap_or(0) as u32
}

/// Returns a finding about the request.
fn problem(location: impl Into<String>, what: impl Into<String>) -> Finding {
    Finding::new(Severity::Error, location, what)
}

/// Resolves a request.
///
/// # Errors
/// Returns all findings that prevent the cell.
pub fn resolve(
    description: &Description,
    in_use: &InUse,
    request: &CellRequest,
) -> Result<Resolved, Vec<Finding>> {
    let mut found = Vec::new();
    name(request, in_use, &mut found);
    let cpus = cpus(description, in_use, request, &mut found);
    let mut placed = memory::placed(description, in_use, request, &mut found);
    let devices = devices::resources(description, in_use, request, &mut found);
    let mut taken = devices.interrupts.clone();
    let network_bell = network::bells(
        description,
        in_use,
        request,
        &mut taken,
        &mut placed,
        &mut found,
    );
    let to_root = scmi::bell(
        description,
        in_use,
        request,
        &mut taken,
        &mut placed,
        &mut found,
    );
    let (bells, mut doorbells) = bells(description, in_use, request, &taken, &mut found);
    doorbells.extend(placed.names.networks.iter().map(|link| Doorbell {
        interrupt: link.peer_bell,
        reserved: 0,
    }));
    let by_smc = to_root.map(|_| DOORBELL_BY_SMC + doorbells.len() as u32);
    doorbells.extend(to_root);
    if found
        .iter()
        .any(|finding| finding.severity == Severity::Error)
    {
        return Err(found);
    }
    colours::cells_without_share(in_use, request, &mut found);
    let (Some(memory), Some(cpus)) = (placed.own, cpus) else {
        return Err(found);
    };
    let nodes = match request.payload {
        Payload::Bare => Vec::new(),
        Payload::Linux => {
            let mut nodes = tree::devices(
                description,
                &devices.paths,
                (&request.name, &placed.names, &doorbells),
                &mut found,
            );
            nodes.extend(functions::host_bridge(
                description,
                &devices.functions,
                &request.name,
                configuration_space(memory.guest + memory.guest_bytes()),
                &mut found,
            ));
            nodes.extend(tree::regions(&placed.shared, &placed.names));
            nodes.extend(tree::networks(&request.name, &doorbells, &placed.names));
            nodes
        }
    };
    let mpidrs = cpus.iter().filter_map(|cpu| mpidr(description, *cpu));
    let mut regions = vec![memory];
    regions.extend(&placed.shared);
    regions.extend(placed.directory);
    regions.extend(&devices.regions);
    let grants = devices.interrupts.iter().map(|number| InterruptGrant {
        number: *number,
        flags: 0,
    });
    let service_bell = placed.names.service.as_ref().map(|service| service.bell);
    let own_bells = bells
        .iter()
        .chain(&network_bell)
        .chain(&service_bell)
        .map(|number| InterruptGrant {
            number: *number,
            flags: InterruptFlags::DOORBELL.bits(),
        });
    let mut registers = request.registers.clone();
    registers.sort_by_key(|register| register.address);
    let configuration = Blob {
        name: request.name.clone(),
        entry: memory.guest,
        argument: request.argument,
        watchdog_milliseconds: request.watchdog_milliseconds,
        platform: None,
        cpus: mpidrs.collect(),
        memory: regions,
        interrupts: grants.chain(own_bells).collect(),
        registers,
        smcs: request
            .smcs
            .iter()
            .copied()
            .chain(by_smc.map(|function| (function, function)))
            .map(|(first, last)| SmcGrant { first, last })
            .collect(),
        doorbells,
        iommu: None,
        streams: devices.streams.clone(),
    };
    if let Err(refused) = configuration.checked() {
        found.push(
            problem(
                format!("cell {}, entry {} of a table", request.name, refused.index),
                format!("the hypervisor would refuse it: {}", refused.refusal.text()),
            )
            .fix("change the request; docs/hypervisor.md explains each reason"),
        );
        return Err(found);
    }
    Ok(Resolved {
        configuration,
        cpus,
        memory,
        shared: placed.shared,
        names: placed.names,
        directory: placed.directory,
        devices: devices.paths,
        functions: devices.functions,
        nodes,
        bells,
        findings: found,
    })
}

fn mpidr(description: &Description, cpu: CpuId) -> Option<u64> {
    let same = |known: &&crate::describe::TreeCpu| known.number == cpu.0;
    description.cpus.iter().find(same).map(|cpu| cpu.mpidr)
}

fn name(request: &CellRequest, in_use: &InUse, found: &mut Vec<Finding>) {
    let name = &request.name;
    if !is_name(name, NAME_BYTES) || name == "root" {
        found.push(
            problem(
                format!("cell `{}`", name.escape_debug()),
                "invalid name of a cell",
            )
            .values(
                format!("{} characters", name.chars().count()),
                format!("1 to {NAME_BYTES} letters, digits, `-`, `_` and `.`, other than `root`"),
            )
            .fix("choose another name"),
        );
    }
    if in_use.cells.iter().any(|cell| cell.name == *name) {
        found.push(
            problem(format!("cell {name}"), "a cell of this name exists")
                .values("in use", "a unique name")
                .fix(format!("rampart cell destroy {name}")),
        );
    }
}

fn cpus(
    description: &Description,
    in_use: &InUse,
    request: &CellRequest,
    found: &mut Vec<Finding>,
) -> Option<Vec<CpuId>> {
    let location = format!("cell {}, CPUs", request.name);
    let owner = |cpu: CpuId| {
        let mpidr = mpidr(description, cpu)?;
        let has = |cell: &&CellInUse| cell.configuration.cpus.contains(&mpidr);
        in_use.cells.iter().find(has)
    };
    let all: CpuSet = description
        .cpus
        .iter()
        .map(|cpu| CpuId(cpu.number))
        .collect();
    // Linux cannot release the CPU that it was booted on.
    let free: CpuSet = all
        .iter()
        .filter(|cpu| {
            cpu.0 != 0
                && !in_use.housekeeping.contains(*cpu)
                && !in_use.offline.contains(*cpu)
                && owner(*cpu).is_none()
        })
        .collect();
    match &request.cpus {
        CpuSelection::Count(count) => {
            let usable: Vec<CpuId> = free.iter().collect();
            let count = *count as usize;
            if count == 0 || usable.len() < count {
                found.push(
                    problem(location, "too few CPUs are free")
                        .values(
                            format!(
                                "{} ({})",
                                usable.len(),
                                CpuSet::from_iter(usable.iter().copied())
                            ),
                            format!("{}", count.max(1)),
                        )
                        .fix("request fewer, or destroy a cell (rampart cell destroy)"),
                );
                return None;
            }
            Some(usable[usable.len() - count..].to_vec())
        }
        CpuSelection::List(cpus) => {
            let before = found.len();
            for cpu in cpus.iter() {
                let refusal = if !all.contains(cpu) {
                    Some((
                        "not in the device tree".to_owned(),
                        format!("one of {all}"),
                        "rampart cell describe lists the CPUs".to_owned(),
                    ))
                } else if let Some(cell) = owner(cpu) {
                    Some((
                        format!("owned by cell {}", cell.name),
                        "a free CPU".to_owned(),
                        format!("rampart cell destroy {}, or use CPUs of {free}", cell.name),
                    ))
                } else if in_use.offline.contains(cpu) {
                    Some((
                        "offline".to_owned(),
                        "online".to_owned(),
                        in_use.online_command(cpu),
                    ))
                } else if in_use.housekeeping.contains(cpu) || cpu.0 == 0 {
                    Some((
                        "a housekeeping CPU of Linux".to_owned(),
                        "a CPU that Linux can leave".to_owned(),
                        format!("use CPUs of {free}"),
                    ))
                } else {
                    None
                };
                if let Some((present, needed, fix)) = refusal {
                    found.push(
                        problem(
                            format!("cell {}, CPU {}", request.name, cpu.0),
                            "the CPU is not available to the cell",
                        )
                        .values(present, needed)
                        .fix(fix),
                    );
                }
            }
            if cpus.is_empty() {
                found.push(
                    problem(location, "no CPU is named")
                        .values("none", "at least one")
                        .fix(format!("use CPUs of {free}")),
                );
            }
            (found.len() == before).then(|| cpus.iter().collect())
        }
    }
}

/// Returns the cell's own bells, and the bells of others that it rings.
fn bells(
    description: &Description,
    in_use: &InUse,
    request: &CellRequest,
    taken: &[u32],
    found: &mut Vec<Finding>,
) -> (Vec<u32>, Vec<Doorbell>) {
    let mut free = in_use.free_interrupts(description);
    free.retain(|number| !taken.contains(number));
    let wanted = request.bells as usize;
    if free.len() < wanted {
        found.push(
            problem(
                format!("cell {}, doorbells", request.name),
                "too few shared interrupts are unused by devices",
            )
            .values(format!("{}", free.len()), format!("{wanted}"))
            .fix("request fewer doorbells"),
        );
    }
    let own = free.into_iter().take(wanted).collect();
    let mut doorbells = Vec::new();
    for name in &request.rings {
        let cell = in_use.cells.iter().find(|cell| cell.name == *name);
        let bell = cell.and_then(|cell| {
            let names = &cell.names;
            let of_network = |number| names.networks.iter().any(|link| link.own_bell == number);
            let of_service = |number| {
                let mut service = names.service.iter();
                service.any(|service| service.bell == number)
            };
            let is_bell = |grant: &&InterruptGrant| {
                grant.is_doorbell() && !of_network(grant.number) && !of_service(grant.number)
            };
            cell.configuration.interrupts.iter().find(is_bell)
        });
        match bell {
            Some(bell) => doorbells.push(Doorbell {
                interrupt: bell.number,
                reserved: 0,
            }),
            None => found.push(
                problem(
                    format!("cell {}, doorbell of {name}", request.name),
                    "no such doorbell",
                )
                .values(
                    if cell.is_some() {
                        "a cell without a bell"
                    } else {
                        "no such cell"
                    },
                    "a cell with a bell",
                )
                .fix(format!("create {name} first, with a doorbell")),
            ),
        }
    }
    (own, doorbells)
}

/// Rounds up to whole pages.
const fn pages(bytes: u64) -> u64 {
    bytes.next_multiple_of(PAGE_BYTES)
}
