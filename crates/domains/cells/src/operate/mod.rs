// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Operates cells by name: enable, create, load, start, list, stop, destroy. Every change goes
//! through the driver, which keeps the state for all programs, so a process that is killed at any
//! moment leaves nothing that others cannot find.

mod cell_list;
mod console;
mod enable;
mod error;
mod log;
mod regions;
mod standby;

use std::collections::BTreeMap;
use std::fs;
use std::sync::atomic::Ordering;

use rampart_host::{MachineRoot, read_detached_cpus};
use rampart_hypervisor_core::format::MemoryFlags;
pub use rampart_hypervisor_core::interface::{CellState, StopReason};
use rampart_model::{CellListEntry, CpuId, CpuSet, Finding, MemoryReport, RefusedDma, Severity};
use rampart_ring::directory::{self, DirectoryEntry};
use rampart_rules::cells::CELL_MACHINE;

use crate::describe::{AddressSpan, Description, Sources, describe};
use crate::device::{self, Device};
use crate::pci::CellFunction;
use crate::resolve::{CellInUse, CellRequest, InUse, Resolved, resolve};

pub use crate::linux::Console;
pub use cell_list::{state_of, state_word, stop_words};
pub use console::console;
pub use enable::{Disabled, EnableOrder, Enabled, disable, enable, image_name, is_enabled};
pub use error::OperateError;

use error::from_device;
use log::KernelLog;
pub use regions::read_program;
pub use standby::{RootRestart, StandbyOrder, standby_blob};

/// Returns colours as a list: `0-7,16`.
fn colours(mask: u32) -> String {
    let own = (0..u32::BITS).filter(|colour| mask >> colour & 1 != 0);
    own.map(CpuId).collect::<CpuSet>().to_string()
}

/// The opened driver, with the hypervisor enabled or not.
#[derive(Debug)]
pub struct Operator {
    device: Device,
}

impl Operator {
    /// Opens the driver.
    ///
    /// # Errors
    /// Returns an error if the driver is not loaded, or the caller lacks the permission.
    pub fn open() -> Result<Self, OperateError> {
        if std::env::consts::ARCH != "aarch64" {
            return Err(OperateError::refused(wrong_architecture()));
        }
        let device = Device::open().map_err(|error| from_device(&error, &[]))?;
        Ok(Self { device })
    }

    /// Returns the device.
    #[must_use]
    pub const fn device(&self) -> &Device {
        &self.device
    }

    /// Calls the driver; adds its reason from the kernel log if it refuses.
    fn call<T>(
        &self,
        call: impl FnOnce(&Device) -> Result<T, device::DeviceError>,
    ) -> Result<T, OperateError> {
        let mut log = KernelLog::from_now();
        call(&self.device).map_err(|error| from_device(&error, &log.messages()))
    }

    /// Returns the resources in use: the hypervisor, its cells, offline CPUs.
    ///
    /// # Errors
    /// Returns the errors of the driver.
    pub fn in_use(&self) -> Result<InUse, OperateError> {
        let mut in_use = self.call(InUse::read)?;
        in_use.offline = offline();
        in_use.detached = detached();
        Ok(in_use)
    }

    fn required(&self) -> Result<InUse, OperateError> {
        let in_use = self.in_use()?;
        if in_use.hypervisor.is_some() {
            return Ok(in_use);
        }
        Err(OperateError::refused(
            Finding::new(
                Severity::Error,
                "hypervisor",
                "the hypervisor is not enabled, so there are no cells",
            )
            .values("disabled", "enabled")
            .fix("rampart cell enable"),
        ))
    }

    /// Returns the cell with this name.
    ///
    /// # Errors
    /// Returns an error if there is none.
    pub fn cell(&self, name: &str) -> Result<CellInUse, OperateError> {
        let in_use = self.required()?;
        let names: Vec<&str> = in_use.cells.iter().map(|cell| cell.name.as_str()).collect();
        let names = if names.is_empty() {
            "no cell".to_owned()
        } else {
            format!("one of {}", names.join(", "))
        };
        let found = in_use.cells.iter().find(|cell| cell.name == name);
        found.cloned().ok_or_else(|| {
            OperateError::Usage(
                Finding::new(
                    Severity::Error,
                    format!("cell {name}"),
                    "there is no such cell",
                )
                .values(format!("`{name}`"), names)
                .fix("rampart cell list, or rampart cell create"),
            )
        })
    }

    /// Resolves a request with the machine's description and the resources in use. Changes nothing.
    ///
    /// # Errors
    /// Returns all findings that prevent the cell.
    pub fn resolved(
        &self,
        request: &CellRequest,
        housekeeping: &CpuSet,
    ) -> Result<Resolved, OperateError> {
        let mut in_use = self.required()?;
        in_use.housekeeping = housekeeping.clone();
        let description = describe(&Sources::of_this_machine()?);
        resolve(&description, &in_use, request).map_err(OperateError::Refused)
    }

    /// Creates a cell and returns its number. Its CPUs leave Linux.
    ///
    /// # Errors
    /// Returns the refusal of the driver or of the hypervisor; the cell then does not exist.
    pub fn create(&self, resolved: &Resolved) -> Result<u32, OperateError> {
        let bytes = resolved.configuration.bytes();
        let mut functions = resolved.functions.iter();
        functions.try_for_each(CellFunction::prepare)?;
        let number = self.call(|device| device.create_named(&bytes, &resolved.names))?;
        if let Err(error) = self.write_directory(resolved) {
            // Destroy the incomplete cell; the first error is the one to return.
            let _ = self.call(|device| device.destroy(number));
            return Err(error);
        }
        Ok(number)
    }

    /// Writes the names of the regions for a program without an operating system.
    fn write_directory(&self, resolved: &Resolved) -> Result<(), OperateError> {
        let Some(location) = &resolved.directory else {
            return Ok(());
        };
        let entries: Vec<DirectoryEntry<'_>> = resolved
            .shared
            .iter()
            .filter_map(|region| {
                Some(DirectoryEntry {
                    name: resolved.names.of(region)?,
                    start: region.guest,
                    bytes: region.bytes,
                    writable: region.flags().contains(MemoryFlags::WRITE),
                    value: resolved.network_value(region),
                })
            })
            .collect();
        let failed = |what: String| {
            let location = format!(
                "cell {}, directory of its regions",
                resolved.configuration.name
            );
            OperateError::refused(
                Finding::new(Severity::Error, location, what)
                    .fix("create the cell with fewer names, or without"),
            )
        };
        let mapped = self
            .device
            .map_shared(location.physical, location.bytes as usize, true);
        let memory = mapped.map_err(|error| failed(format!("cannot map it: {error}")))?;
        if directory::write(memory.words(), &entries) {
            return Ok(());
        }
        Err(failed(format!(
            "{} names; the maximum is {}",
            entries.len(),
            directory::MAXIMUM_ENTRIES
        )))
    }

    /// Writes to the memory of a cell that does not run, at an address in the cell's address space,
    /// by default at the start of its memory.
    ///
    /// # Errors
    /// Returns an error if there is no such cell, it runs, or it has no loadable memory there.
    pub fn load(&self, name: &str, at: Option<u64>, data: &[u8]) -> Result<u64, OperateError> {
        let cell = self.cell(name)?;
        let memory = cell.configuration.memory.iter();
        let mut loadable = memory.filter(|region| region.flags().contains(MemoryFlags::LOADABLE));
        let (state, _) = self.state(cell.number)?;
        if state == CellState::Running {
            return Err(OperateError::refused(
                Finding::new(
                    Severity::Error,
                    format!("cell {name}"),
                    "a running cell cannot be loaded",
                )
                .values("running", "created, stopped or failed")
                .fix(format!("rampart cell stop {name}")),
            ));
        }
        let at = at.unwrap_or(cell.configuration.entry);
        let holds = |region: &&rampart_hypervisor_core::format::MemoryRegion| {
            AddressSpan {
                start: region.guest,
                bytes: region.guest_bytes(),
            }
            .holds(&AddressSpan {
                start: at,
                bytes: data.len() as u64,
            })
        };
        if data.is_empty() || !loadable.any(|region| holds(&region)) {
            let memory = cell.configuration.memory.iter();
            let spans: Vec<String> = memory
                .filter(|region| region.flags().contains(MemoryFlags::LOADABLE))
                .map(|region| {
                    AddressSpan {
                        start: region.guest,
                        bytes: region.guest_bytes(),
                    }
                    .to_string()
                })
                .collect();
            return Err(OperateError::refused(
                Finding::new(
                    Severity::Error,
                    format!("cell {name}, address {at:#x}"),
                    "the file does not fit there",
                )
                .values(
                    format!("{} bytes", data.len()),
                    format!("1 byte or more within {}", spans.join(", ")),
                )
                .fix("name another address with --at, or create the cell with more memory"),
            ));
        }
        self.call(|device| device.load(cell.number, at, data))?;
        Ok(at)
    }

    /// Starts a cell at its entry.
    ///
    /// # Errors
    /// Returns an error if the cell runs, was never loaded, or has PCI functions and was started before.
    pub fn start(&self, name: &str) -> Result<(), OperateError> {
        let cell = self.cell(name)?;
        let mut streams = cell.configuration.streams.iter();
        if streams.any(|stream| stream.function != 0) && self.starts(cell.number)? > 0 {
            return Err(OperateError::refused(
                Finding::new(
                    Severity::Error,
                    format!("cell {name}"),
                    "its PCI functions keep the orders of its last start, and would write to its memory",
                )
                .values("started before", "created, and not started")
                .fix(format!(
                    "rampart cell destroy {name}, and rampart cell create, which resets its functions"
                )),
            ));
        }
        self.call(|device| device.start(cell.number))
    }

    /// Stops a cell: parks its CPUs and keeps its memory. Has no effect if it does not run.
    ///
    /// # Errors
    /// Returns an error if there is no such cell, or a CPU does not return.
    pub fn stop(&self, name: &str) -> Result<(), OperateError> {
        let cell = self.cell(name)?;
        if self.state(cell.number)?.0 != CellState::Running {
            return Ok(());
        }
        self.call(|device| device.stop(cell.number))
    }

    /// Destroys a cell in any state: its memory is wiped, its CPUs return to Linux.
    ///
    /// # Errors
    /// Returns an error if there is no such cell, or a CPU does not return.
    pub fn destroy(&self, name: &str) -> Result<(), OperateError> {
        let cell = self.cell(name)?;
        self.call(|device| device.destroy(cell.number))
    }

    /// Returns a cell's state and the reason of its last stop.
    ///
    /// # Errors
    /// Returns an error while the hypervisor is not enabled.
    pub fn state(&self, number: u32) -> Result<(CellState, StopReason), OperateError> {
        let status = self.status()?;
        let cell = status.get().cells.get(number as usize);
        Ok(cell.map_or((CellState::Free, StopReason::None), state_of))
    }

    /// Returns the number of starts of a cell since it was created.
    fn starts(&self, number: u32) -> Result<u64, OperateError> {
        let status = self.status()?;
        let cell = status.get().cells.get(number as usize);
        Ok(cell.map_or(0, |cell| cell.starts.load(Ordering::Relaxed)))
    }

    fn status(&self) -> Result<device::StatusPages, OperateError> {
        self.device.status().map_err(|source| {
            from_device(
                &device::DeviceError::Driver {
                    what: "status",
                    source,
                },
                &[],
            )
        })
    }

    /// Returns all cells.
    ///
    /// # Errors
    /// Returns an error while the hypervisor is not enabled.
    pub fn list(&self) -> Result<Vec<CellListEntry>, OperateError> {
        let in_use = self.required()?;
        let numbers = cpu_numbers();
        let status = self.status()?;
        Ok(in_use
            .cells
            .iter()
            .map(|cell| reported(cell, status.get(), &numbers))
            .collect())
    }

    /// Returns the number of accesses by DMA that the SMMU refused, and the latest one with the name of its cell, or
    /// `None` if there was none. Without a name the device is the root's, or that of a cell that ended.
    ///
    /// # Errors
    /// Returns an error while the hypervisor is not enabled.
    pub fn refused_dma(&self) -> Result<Option<(u64, RefusedDma, Option<String>)>, OperateError> {
        let status = self.status()?;
        let count = status.get().dma_faults.load(Ordering::Relaxed);
        let Some((_, latest)) = cell_list::refused_dma(status.get()).pop() else {
            return Ok(None);
        };
        let has_it = |cell: &CellListEntry| cell.refused_dma.contains(&latest);
        let name = self.list()?.into_iter().find(has_it).map(|cell| cell.name);
        Ok(Some((count, latest, name)))
    }

    /// Returns one cell.
    ///
    /// # Errors
    /// Returns an error if there is no cell with this name.
    pub fn report(&self, name: &str) -> Result<CellListEntry, OperateError> {
        let cell = self.cell(name)?;
        Ok(reported(&cell, self.status()?.get(), &cpu_numbers()))
    }
}

fn reported(
    cell: &CellInUse,
    status: &rampart_hypervisor_core::interface::Status,
    numbers: &BTreeMap<u64, u32>,
) -> CellListEntry {
    let shown = &status.cells[cell.number as usize % status.cells.len()];
    let (state, reason) = state_of(shown);
    let configuration = &cell.configuration;
    let location = |mpidr: &u64| {
        let same = |cpu: &rampart_hypervisor_core::interface::CpuStatus| {
            cpu.mpidr.load(Ordering::Relaxed) == *mpidr
        };
        status.cpus.iter().position(same)
    };
    let by_cpu = configuration
        .cpus
        .iter()
        .filter_map(|mpidr| cell_list::cpu(status, location(mpidr)?, numbers.get(mpidr).copied()));
    let memory = configuration.memory.iter().map(|region| {
        let flags = region.flags();
        let purpose = if flags.contains(MemoryFlags::DEVICE) {
            "device"
        } else if flags.contains(MemoryFlags::SHARED) {
            "shared"
        } else {
            "own"
        };
        MemoryReport {
            name: cell.names.of(region).map(str::to_owned),
            writer: writer(region.flags()).map(str::to_owned),
            span: AddressSpan {
                start: region.physical,
                bytes: region.bytes,
            },
            guest: region.guest,
            colours: (region.colours != 0).then(|| colours(region.colours)),
            purpose: purpose.to_owned(),
        }
    });
    let cpus = configuration
        .cpus
        .iter()
        .filter_map(|mpidr| numbers.get(mpidr));
    CellListEntry {
        number: cell.number,
        name: cell.name.clone(),
        // A cell without CPUs is a standby of the root.
        state: if configuration.cpus.is_empty() && state == CellState::Running {
            "kept".to_owned()
        } else {
            state_word(state).to_owned()
        },
        stop_reason: (reason != StopReason::None).then(|| stop_words(reason).to_owned()),
        cpus: cpus.map(|number| CpuId(*number)).collect(),
        starts: shown.starts.load(Ordering::Relaxed),
        watchdog_milliseconds: configuration.watchdog_milliseconds,
        memory: memory.collect(),
        interrupts: configuration
            .interrupts
            .iter()
            .map(|grant| grant.number)
            .collect(),
        by_cpu: by_cpu.collect(),
        failure: cell_list::failure(status, shown.condition().failure),
        refused_dma: cell_list::refused_dma(status)
            .into_iter()
            // Not those of an earlier cell with this number and other devices.
            .filter(|(number, refused)| {
                let mut streams = configuration.streams.iter();
                *number == cell.number && streams.any(|grant| grant.ids().contains(&refused.stream))
            })
            .map(|(_, refused)| refused)
            .collect(),
    }
}

/// Returns the writer of a shared region from the view of a cell that has it.
fn writer(flags: MemoryFlags) -> Option<&'static str> {
    flags.contains(MemoryFlags::SHARED).then_some({
        if flags.contains(MemoryFlags::WRITE | MemoryFlags::ROOT_WRITE) {
            "cell and root"
        } else if flags.contains(MemoryFlags::WRITE) {
            "cell"
        } else if flags.contains(MemoryFlags::ROOT_WRITE) {
            "root"
        } else {
            "another cell"
        }
    })
}

/// Returns Linux's numbers of the CPUs by affinity.
fn cpu_numbers() -> BTreeMap<u64, u32> {
    let Ok(sources) = Sources::of_this_machine() else {
        return BTreeMap::new();
    };
    let cpus = describe(&sources).cpus;
    cpus.into_iter()
        .map(|cpu| (cpu.mpidr, cpu.number))
        .collect()
}

/// Returns whether the driver has a cell with this name, as far as visible without privilege.
#[must_use]
pub fn is_there(name: &str) -> bool {
    let cells = fs::read_dir("/sys/devices/virtual/misc/rampart/cells");
    cells.into_iter().flatten().flatten().any(|cell| {
        fs::read_to_string(cell.path().join("name")).is_ok_and(|text| text.trim() == name)
    })
}

/// Returns the offline CPUs.
fn offline() -> CpuSet {
    let read = |name| {
        let text = fs::read_to_string(format!("/sys/devices/system/cpu/{name}")).ok()?;
        text.trim().parse::<CpuSet>().ok()
    };
    let (Some(present), Some(online)) = (read("present"), read("online")) else {
        return CpuSet::new();
    };
    present.difference(&online)
}

/// Returns the CPUs that are taken for detached threads.
fn detached() -> CpuSet {
    let taken = read_detached_cpus(&MachineRoot::system());
    taken.iter().map(|one| one.cpu).collect()
}

/// Returns the finding for machines of other architectures.
pub(crate) fn wrong_architecture() -> Finding {
    CELL_MACHINE
        .finding(
            "this machine",
            "cells need an arm64 machine with a GICv2 or GICv3",
        )
        .values(std::env::consts::ARCH, "aarch64")
        .fix("rampart sim --architecture aarch64 run -- COMMAND, on a simulated machine")
}

/// Returns the findings that the machine's description contains.
fn problems(description: &Description) -> Vec<Finding> {
    let problems = description.findings.iter();
    problems
        .filter(|finding| finding.severity == Severity::Error)
        .cloned()
        .collect()
}
