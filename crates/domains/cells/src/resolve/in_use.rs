// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The parts of a machine that are in use.

use rampart_hypervisor_core::configuration::build::Blob;
use rampart_hypervisor_core::configuration::{Configuration, Kind};
use rampart_hypervisor_core::format::{MemoryFlags, MemoryRegion};
use rampart_hypervisor_core::interface::ROOT;
use rampart_model::{CpuId, CpuSet};

use crate::describe::{AddressSpan, Description};
use crate::device::{Device, DeviceError};
use crate::names::RegionNames;

/// An existing cell.
#[derive(Debug, Clone)]
pub struct CellInUse {
    /// Number of the cell.
    pub number: u32,
    /// Name of the cell.
    pub name: String,
    /// The configuration that it was created with.
    pub configuration: Blob,
    /// Names of its shared regions.
    pub names: RegionNames,
}

impl CellInUse {
    /// Returns whether it is a standby of the root: a cell without CPUs.
    #[must_use]
    pub const fn is_standby(&self) -> bool {
        self.configuration.cpus.is_empty()
    }

    /// Returns the shared region with this name, or with this number from 0, if there is one.
    #[must_use]
    pub fn region(&self, wanted: &str) -> Option<&MemoryRegion> {
        let number = wanted
            .parse()
            .ok()
            .and_then(|number| self.shared().nth(number));
        number.or_else(|| {
            let mut shared = self.shared();
            shared.find(|region| self.names.of(region) == Some(wanted))
        })
    }

    /// Returns the shared regions in the order of the configuration.
    pub fn shared(&self) -> impl Iterator<Item = &MemoryRegion> {
        let memory = self.configuration.memory.iter();
        memory.filter(|region| region.flags().contains(MemoryFlags::SHARED))
    }
}

/// The resources in use.
#[derive(Debug, Clone, Default)]
pub struct InUse {
    /// Memory of the hypervisor.
    pub hypervisor: Option<AddressSpan>,
    /// The interrupt with which the hypervisor notifies the root; 0 for none.
    pub event_interrupt: u32,
    /// The interrupt by which cells ring the root's ends of networks; 0 for none.
    pub network_interrupt: u32,
    /// The interrupts of cells that the root can ring, in the order of its configuration.
    pub root_doorbells: Vec<u32>,
    /// The existing cells.
    pub cells: Vec<CellInUse>,
    /// CPUs that cells do not get, because Linux uses them for housekeeping.
    pub housekeeping: CpuSet,
    /// CPUs that are offline.
    pub offline: CpuSet,
    /// Those of them that are taken for detached threads.
    pub detached: CpuSet,
}

/// Converts a parsed configuration to a writable one.
fn blob(configuration: &Configuration<'_>) -> Blob {
    Blob {
        name: configuration.name().to_owned(),
        entry: configuration.header.entry,
        argument: configuration.header.argument,
        watchdog_milliseconds: configuration.header.watchdog_milliseconds,
        platform: configuration.platform.copied(),
        cpus: configuration.cpus.to_vec(),
        memory: configuration.memory.to_vec(),
        interrupts: configuration.interrupts.to_vec(),
        registers: configuration.registers.to_vec(),
        smcs: configuration.smcs.to_vec(),
        doorbells: configuration.doorbells.to_vec(),
        iommu: configuration.iommu.copied(),
        streams: configuration.streams.to_vec(),
    }
}

impl InUse {
    /// Returns the command that brings an offline CPU online. Linux refuses it for a CPU that is taken.
    #[must_use]
    pub fn online_command(&self, cpu: CpuId) -> String {
        if self.detached.contains(cpu) {
            format!("rampart detach give {cpu}")
        } else {
            format!("echo 1 >/sys/devices/system/cpu/cpu{cpu}/online")
        }
    }

    /// Reads the hypervisor and its cells from the driver. Skips a cell that is destroyed
    /// meanwhile. Does not set housekeeping, offline and detached CPUs.
    ///
    /// # Errors
    /// Returns the errors of the driver.
    pub fn read(device: &Device) -> Result<Self, DeviceError> {
        let state = device.state()?;
        let mut in_use = Self::default();
        if !state.is_enabled() {
            return Ok(in_use);
        }
        in_use.hypervisor = Some(AddressSpan {
            start: state.memory,
            bytes: state.memory_bytes,
        });
        let system = device.configuration(ROOT)?;
        if let Ok(system) = system.read(Kind::System) {
            let platform = system.platform;
            in_use.event_interrupt = platform.map_or(0, |platform| platform.event_interrupt);
            let mut bells = system.interrupts.iter().filter(|grant| grant.is_doorbell());
            in_use.network_interrupt = bells.next().map_or(0, |grant| grant.number);
            let doorbells = system.doorbells.iter();
            in_use.root_doorbells = doorbells.map(|doorbell| doorbell.interrupt).collect();
        }
        for number in state.cells() {
            let Ok(given) = device.configuration(number) else {
                continue;
            };
            if let Ok(read) = given.read(Kind::Cell) {
                let configuration = blob(&read);
                in_use.cells.push(CellInUse {
                    number,
                    name: read.name().to_owned(),
                    names: RegionNames::parse(given.text(&read), &configuration),
                    configuration,
                });
            }
        }
        Ok(in_use)
    }

    /// Returns the physical memory that is in use, besides that of Linux.
    #[must_use]
    pub fn memory(&self) -> Vec<AddressSpan> {
        let regions = self
            .cells
            .iter()
            .flat_map(|cell| &cell.configuration.memory);
        let spans = regions.map(|region| AddressSpan {
            start: region.physical,
            bytes: region.bytes,
        });
        self.hypervisor.into_iter().chain(spans).collect()
    }

    /// Returns the physical memory that is in use page by page, without the other colours in the ranges of cells.
    pub(super) fn pages(&self) -> Vec<AddressSpan> {
        let cells = self.cells.iter();
        let regions = cells.flat_map(|cell| &cell.configuration.memory);
        let parts = regions.flat_map(super::colours::parts);
        self.hypervisor.into_iter().chain(parts).collect()
    }

    /// Returns the shared peripheral interrupts that are not raised by a device, not requested by
    /// Linux and not in use, highest first. Only below the highest of a device, because the controller
    /// may not implement higher ones.
    #[must_use]
    pub fn free_interrupts(&self, description: &Description) -> Vec<u32> {
        let mut taken: Vec<u32> = description
            .devices
            .iter()
            .flat_map(crate::describe::TreeDevice::shared_interrupts)
            .collect();
        let highest = taken.iter().copied().max().unwrap_or(0);
        taken.extend([self.event_interrupt, self.network_interrupt]);
        taken.extend(&description.requested_interrupts);
        for cell in &self.cells {
            // That of a cell that does not exist yet.
            taken.extend(cell.names.networks.iter().map(|link| link.peer_bell));
            taken.extend(
                cell.configuration
                    .interrupts
                    .iter()
                    .map(|grant| grant.number),
            );
        }
        (32..highest)
            .rev()
            .filter(|number| !taken.contains(number))
            .collect()
    }
}
