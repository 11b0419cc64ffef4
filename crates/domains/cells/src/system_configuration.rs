// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Builds the configuration of the hypervisor's root from the description of the machine. The root has the memory
//! and the devices that the device tree names, except the interrupt controller.

use std::path::Path;

use rampart_hypervisor_core::configuration::build::Blob;
use rampart_hypervisor_core::configuration::machine_checks::MONITOR_ADDRESS_BITS;
use rampart_hypervisor_core::format::{
    Doorbell, InterruptFlags, InterruptGrant, Iommu, MAXIMUM_DOORBELLS, MAXIMUM_MEMORY_REGIONS,
    MemoryFlags, MemoryRegion, Platform, SmcGrant, StreamGrant,
};
use rampart_hypervisor_core::gic::REDISTRIBUTOR_BYTES;
use rampart_hypervisor_core::gicv2::INTERFACE_BYTES;
use rampart_hypervisor_core::interface::{MAXIMUM_CPUS, PAGE_BYTES};
use rampart_model::device_tree::{InterruptController, Smmu, SmmuOwner, TreeDevice};
use rampart_model::{Finding, Severity};
use rampart_rules::cells::CELL_INTERRUPT_CONTROLLER;

use crate::describe::{AddressRange, Description, Sources, TreeError, describe, firmware};
use crate::resolve::InUse;

/// Two frames per CPU, four with virtual LPIs (Arm IHI 0069, 12.1).
const MOST_REDISTRIBUTOR_BYTES: u64 = 2 * REDISTRIBUTOR_BYTES * MAXIMUM_CPUS as u64;
/// A GICC of 128 KiB has 16 copies of each of its two pages. The last copy of the first page is next to the second
/// page (Linux, drivers/irqchip/irq-gic.c: `gic_check_eoimode`).
const COPIED_INTERFACE_BYTES: u64 = 128 << 10;
const LAST_COPY: u64 = 0xf000;
/// Minimum and maximum number of physical address bits that the hypervisor's tables translate.
const ADDRESS_BITS: std::ops::RangeInclusive<u32> = 39..=43;

/// The reason why there is no configuration for the machine.
#[derive(Debug, thiserror::Error)]
pub enum SystemConfigurationError {
    /// There is no device tree.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// The description lacks something, or the machine is unsuitable.
    #[error("{0}")]
    Unsuitable(Finding),
}

/// The parts of the machine that the hypervisor needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SystemParts {
    /// Start and size of each memory, in bytes, ascending.
    pub memory: Vec<(u64, u64)>,
    /// Version of the GIC: 2 or 3.
    pub gic_version: u32,
    /// Start and size of GICD.
    pub distributor: (u64, u64),
    /// Start and size of GICR, or of GICC with GICC_DIR.
    pub cpu_frames: (u64, u64),
    /// Start and size of all registers of the controller, which the root does not have: its virtual interface
    /// deactivates any interrupt, and the frames of a GICv2 for message-signalled interrupts set any pending. The
    /// translation service (ITS) of a GICv3 is not among them.
    pub controller: Vec<(u64, u64)>,
    /// Affinities of the CPUs, in Linux's order.
    pub cpus: Vec<u64>,
    /// Start and size of the registers and windows of devices.
    pub devices: Vec<(u64, u64)>,
    /// The SMMU that the hypervisor has; without streams for none.
    pub iommu: Option<Iommu>,
    /// The first stream and the number of each range of its streams.
    pub streams: Vec<(u32, u32)>,
    /// The firmware's functions that the tree names, besides PSCI: the first and the last of each range.
    pub firmware_calls: Vec<(u32, u32)>,
    /// Number of physical address bits; devices end at this limit.
    pub address_bits: u32,
    /// A shared interrupt without a device, with which the hypervisor notifies the root; 0 for
    /// none.
    pub event_interrupt: u32,
    /// A shared interrupt without a device, by which cells ring the root's ends of networks; 0 for none.
    pub network_interrupt: u32,
    /// Further shared interrupts without a device, which the root can ring if cells have them.
    pub doorbells: Vec<u32>,
}

/// Returns start and size of the frames of the CPUs.
fn cpu_frames(controller: &InterruptController) -> Option<(u64, u64)> {
    let Some(interface) = controller.cpu_interface else {
        let region = controller.redistributors.first()?;
        return Some((region.start, region.bytes));
    };
    let copied = interface.bytes == COPIED_INTERFACE_BYTES;
    let start = interface.start + if copied { LAST_COPY } else { 0 };
    Some((start, INTERFACE_BYTES))
}

/// Returns the first SMMU that the tree leaves to the hypervisor and that has streams. The configuration space is only
/// there if the monitor can access it.
pub(crate) fn reserved_smmu(description: &Description) -> Option<(Iommu, &Smmu)> {
    let is_gicv3 = |controller: &InterruptController| controller.version == 3;
    if !description
        .interrupt_controller
        .as_ref()
        .is_some_and(is_gicv3)
    {
        return None;
    }
    description.smmus.iter().find_map(|smmu| {
        let reserved = smmu.owner == SmmuOwner::Hypervisor && !smmu.streams.is_empty();
        let registers = smmu.registers.filter(|_| reserved)?;
        let space = smmu.configuration_space.filter(|span| {
            (span.start | span.bytes).is_multiple_of(1 << 20)
                && span.end() <= 1 << MONITOR_ADDRESS_BITS
        });
        let iommu = Iommu {
            registers: registers.start,
            configuration_space: space.map_or(0, |span| span.start),
            configuration_space_bytes: space.map_or(0, |span| span.bytes),
        };
        Some((iommu, smmu))
    })
}

impl SystemParts {
    /// Reads a device tree: `/proc/device-tree` or a copy.
    ///
    /// # Errors
    /// Returns an error if the tree is missing or incomplete.
    pub fn read(tree: &Path, address_bits: u32) -> Result<Self, SystemConfigurationError> {
        let sources = if tree == Path::new("/proc/device-tree") {
            Sources::of_this_machine()?
        } else {
            Sources::recorded(tree, None)?
        };
        let machine = Self::of(&describe(&sources))?;
        Ok(Self {
            firmware_calls: firmware::calls(&sources),
            address_bits,
            ..machine
        })
    }

    /// Extracts the parts from a description.
    ///
    /// # Errors
    /// Returns an error if there is no GICv2 and no GICv3 with contiguous redistributors, or if an
    /// address is beyond the range of the hypervisor's tables.
    pub fn of(description: &Description) -> Result<Self, SystemConfigurationError> {
        let mut findings = description.findings.iter();
        let unsuitable = findings
            .find(|one| one.rule.as_deref() == Some(CELL_INTERRUPT_CONTROLLER.id))
            .cloned();
        if let Some(finding) = unsuitable {
            return Err(SystemConfigurationError::Unsuitable(finding));
        }
        let controller = description.interrupt_controller.as_ref();
        let (Some(controller), Some(cpu_frames)) = (controller, controller.and_then(cpu_frames))
        else {
            let finding = Finding::new(
                Severity::Error,
                "interrupt controller",
                "its reg has no frames of the CPUs",
            );
            return Err(SystemConfigurationError::Unsuitable(
                finding
                    .values("one range", "GICD and GICR, or GICC")
                    .fix("check the device tree: rampart cell describe"),
            ));
        };
        let is_controller = |device: &&TreeDevice| {
            let below = device.path.strip_prefix(&controller.path);
            below.is_some_and(|rest| {
                rest.is_empty() || controller.version == 2 && rest.starts_with('/')
            })
        };
        let own = description.devices.iter().filter(is_controller);
        let own = own.flat_map(|device| &device.ranges);
        let enabled = description.devices.iter().filter(|device| device.enabled);
        let enabled = enabled.filter(|device| !is_controller(device));
        let ranges = enabled.flat_map(|device| &device.ranges);
        let devices: Vec<_> = ranges.map(AddressRange::span).collect();
        let highest = devices.iter().chain(&description.memory);
        let end = highest.map(|span| span.end()).max().unwrap_or(0);
        let bits = u64::BITS - end.saturating_sub(1).leading_zeros();
        if bits > *ADDRESS_BITS.end() {
            let finding = Finding::new(
                Severity::Error,
                format!("address {:#x}", end.saturating_sub(1)),
                "it is beyond the hypervisor's tables",
            );
            return Err(SystemConfigurationError::Unsuitable(
                finding
                    .values(
                        format!("{bits} bits"),
                        format!("{} bits at most", ADDRESS_BITS.end()),
                    )
                    .fix("remove the device at this address from the device tree"),
            ));
        }
        let smmu = reserved_smmu(description);
        let free = InUse::default().free_interrupts(description);
        Ok(Self {
            memory: description
                .memory
                .iter()
                .map(|span| (span.start, span.bytes))
                .collect(),
            distributor: (controller.distributor.start, controller.distributor.bytes),
            gic_version: controller.version,
            cpu_frames,
            controller: own
                .map(|range| (range.start, range.bytes))
                .chain(smmu.map(|(iommu, _)| iommu.register_range()))
                .collect(),
            cpus: description.cpus.iter().map(|cpu| cpu.mpidr).collect(),
            devices: devices
                .iter()
                .map(|span| (span.start, span.bytes))
                .collect(),
            iommu: smmu.map(|(iommu, _)| iommu),
            streams: smmu.map_or_else(Vec::new, |(_, smmu)| smmu.streams.clone()),
            firmware_calls: Vec::new(),
            address_bits: bits.max(*ADDRESS_BITS.start()),
            event_interrupt: free.first().copied().unwrap_or(0),
            network_interrupt: free.get(1).copied().unwrap_or(0),
            doorbells: free.into_iter().skip(2).take(MAXIMUM_DOORBELLS).collect(),
        })
    }

    /// Returns the system's configuration, in which the root has everything except the hypervisor's
    /// memory.
    #[must_use]
    pub fn system(&self, hypervisor: (u64, u64)) -> Blob {
        let end = 1 << self.address_bits;
        let mut regions = Vec::new();
        let mut device_from = 0;
        let mut taken: Vec<(u64, u64, bool)> = vec![
            (self.distributor.0, self.distributor.1, false),
            (self.cpu_frames.0, self.cpu_frames.1, false),
        ];
        for &(start, bytes) in &self.controller {
            taken.push((start, bytes, false));
        }
        for &(start, bytes) in &self.memory {
            taken.push((start, bytes, true));
        }
        taken.sort_unstable();
        let device = MemoryFlags::READ | MemoryFlags::WRITE | MemoryFlags::DEVICE;
        let all = MemoryFlags::READ | MemoryFlags::WRITE | MemoryFlags::EXECUTE;
        let mut add = |start: u64, end: u64, flags: MemoryFlags| {
            if start < end {
                regions.push(MemoryRegion {
                    physical: start,
                    guest: start,
                    bytes: end - start,
                    flags: flags.bits(),
                    colours: 0,
                });
            }
        };
        let named = self.device_pages();
        let add_devices = |from: u64, to: u64, add: &mut dyn FnMut(u64, u64, MemoryFlags)| {
            for (start, after) in &named {
                add(from.max(*start), to.min(*after), device);
            }
        };
        for (start, bytes, is_memory) in taken {
            add_devices(device_from, start, &mut add);
            let after = (start + bytes).next_multiple_of(PAGE_BYTES);
            if is_memory {
                add(start, after.min(hypervisor.0), all);
                add((hypervisor.0 + hypervisor.1).max(start), after, all);
            }
            device_from = device_from.max(after);
        }
        add_devices(device_from, end, &mut add);
        Blob {
            name: "root".to_owned(),
            platform: Some(Platform {
                distributor: self.distributor.0,
                cpu_frames: self.cpu_frames.0,
                // The region may be larger than the maximum number of CPUs needs.
                cpu_frame_bytes: self.cpu_frames.1.min(MOST_REDISTRIBUTOR_BYTES),
                event_interrupt: self.event_interrupt,
                version: self.gic_version,
            }),
            cpus: self.cpus.clone(),
            memory: regions,
            interrupts: Some(self.network_interrupt)
                .filter(|number| *number != 0)
                .map(|number| InterruptGrant {
                    number,
                    flags: InterruptFlags::DOORBELL.bits(),
                })
                .into_iter()
                .collect(),
            doorbells: self
                .doorbells
                .iter()
                .map(|interrupt| Doorbell {
                    interrupt: *interrupt,
                    reserved: 0,
                })
                .collect(),
            // Calls of the architecture: workarounds for processor errata (Arm DEN 0028, 7).
            smcs: std::iter::once((0x8000_0001, 0x8000_ffff))
                .chain(self.firmware_calls.iter().copied())
                .map(|(first, last)| SmcGrant { first, last })
                .collect(),
            iommu: self.iommu,
            streams: self
                .streams
                .iter()
                .map(|(first, count)| StreamGrant {
                    first: *first,
                    count: *count,
                    function: 0,
                })
                .collect(),
            ..Blob::default()
        }
    }

    /// Returns the pages of devices as (start, end), ascending and apart from each other. If there are too many for
    /// a configuration, the smallest gaps between them are included.
    fn device_pages(&self) -> Vec<(u64, u64)> {
        let page = |(start, bytes): &(u64, u64)| {
            let end = start.saturating_add(*bytes).div_ceil(PAGE_BYTES);
            (start / PAGE_BYTES * PAGE_BYTES, end * PAGE_BYTES)
        };
        let mut all: Vec<_> = self.devices.iter().map(page).collect();
        all.sort_unstable();
        let mut pages: Vec<(u64, u64)> = Vec::new();
        for (start, end) in all {
            match pages.last_mut() {
                Some((_, last)) if start <= *last => *last = end.max(*last),
                _ => pages.push((start, end)),
            }
        }
        // Each memory splits one of them at most.
        let most = MAXIMUM_MEMORY_REGIONS - 3 * self.memory.len().min(40) - 4;
        while pages.len() > most {
            let gap = |index: &usize| pages[index + 1].0 - pages[*index].1;
            let Some(index) = (0..pages.len() - 1).min_by_key(gap) else {
                break;
            };
            pages[index].1 = pages.remove(index + 1).1;
        }
        pages
    }
}
