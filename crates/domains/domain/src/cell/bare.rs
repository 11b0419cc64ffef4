// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A cell without an operating system: `rampart-cell-meter` runs in the cell, and `rampart-meter
//! cell` here is its proxy.

use rampart_cells::device::DEVICE;
use rampart_cells::operate::Operator;
use rampart_cells::resolve::{CellRequest, CpuSelection, RegionWriter, SharedRequest};
use rampart_cells::shared_memory::SharedMemory;
use rampart_host::StateDirectory;
use rampart_meter::cell::memory::{CellOutput, LOAD_BYTES, ORDERS_BYTES, OUTPUT_BYTES, Word};
use rampart_model::{CellPayload, ClockRelation, CpuId, CpuSet, Finding, SignInMemory};

use super::availability::{self, BARE_PROGRAM};
use super::cell_records::CellFile;
use super::launched_cell::Launched;
use crate::bare_meter::{Proxies, sign_in_memory, translated_clock};
use crate::session::Session;
use crate::{DomainError, Inside, InsideProcess, Start};

/// Its own memory in bytes: the small program, then the memory that loads use.
pub(super) const MEMORY_BYTES: u64 = (2 << 20) + LOAD_BYTES as u64;

/// A cell without an operating system. Dropping it destroys the cell; end its sessions first,
/// because their shared memory disappears with it.
#[derive(Debug)]
pub(super) struct BareCell {
    output: SharedMemory,
    /// Physical address of `output`.
    physical: u64,
    proxies: Proxies,
    pub(super) launched: Launched,
}

/// Creates, loads and starts a cell.
pub(super) fn boot(state: &StateDirectory, start: &Start<'_>) -> Result<BareCell, DomainError> {
    let unavailable = |finding: Box<Finding>| DomainError::Unavailable(*finding);
    let program = availability::program(BARE_PROGRAM).map_err(unavailable)?;
    let bytes = std::fs::read(&program).map_err(DomainError::file("read", &program))?;
    let file = CellFile::create(state, start.name, &availability::order())?;
    let operator = Operator::open()?;
    let own = |bytes: usize, writer| SharedRequest::Own {
        name: None,
        bytes: bytes as u64,
        writer,
    };
    let request = CellRequest {
        cpus: CpuSelection::List(start.settings.cpus.clone()),
        memory_bytes: MEMORY_BYTES,
        shared: vec![
            own(OUTPUT_BYTES, RegionWriter::Cell),
            own(ORDERS_BYTES, RegionWriter::Root),
        ],
        ..CellRequest::new(file.name())
    };
    let resolved = operator.resolved(&request, start.housekeeping)?;
    let locations = match resolved.shared.as_slice() {
        [output, orders] => (output.physical, orders.physical),
        _ => (0, 0),
    };
    operator.create(&resolved)?;
    let started = || {
        let output = operator
            .device()
            .map_shared(locations.0, OUTPUT_BYTES, false);
        let output = output.map_err(DomainError::file("see the cell's memory at", DEVICE))?;
        operator.load(file.name(), None, &bytes)?;
        operator.start(file.name())?;
        Ok(output)
    };
    let output = match started() {
        Ok(output) => output,
        Err(error) => {
            // Report the first error.
            let _ = operator.destroy(file.name());
            return Err(error);
        }
    };
    let name = program.display().to_string();
    let proxies = Proxies {
        meter: start.meter.to_owned(),
        file: DEVICE.into(),
        locations,
        name: format!("cell {}", file.name()),
    };
    Ok(BareCell {
        output,
        physical: locations.0,
        proxies,
        launched: Launched::new(operator, file, &resolved, (CellPayload::BareMetal, name)),
    })
}

impl BareCell {
    /// Starts a session with the meter.
    pub(super) fn session(&self) -> Result<Session, DomainError> {
        self.proxies.session()
    }

    /// Returns the location of its last sample, or `None` if its clock cannot be read here.
    pub(super) fn sign_in_memory(&self) -> Option<SignInMemory> {
        sign_in_memory(self.output.words(), self.physical)
    }

    /// Returns the number of interrupts that it has handled since its start.
    pub(super) fn interrupts(&self) -> Option<u64> {
        CellOutput::new(self.output.words()).map(|output| output.read(Word::Interrupts))
    }
}

impl Drop for BareCell {
    fn drop(&mut self) {
        // `release_cells` finds what cannot be removed.
        let _ = self.launched.operator().destroy(self.launched.name());
    }
}

impl Inside for BareCell {
    fn spawn(&self, command: &[String]) -> Result<InsideProcess, DomainError> {
        self.proxies.spawn(command)
    }

    fn has_only_the_meter(&self) -> bool {
        true
    }

    /// The cell has no kernel that renumbers its CPUs.
    fn cpu_inside(&self, cpu: CpuId) -> Option<CpuId> {
        self.launched.cpus().contains(cpu).then_some(cpu)
    }

    fn clock(&self) -> Result<ClockRelation, DomainError> {
        Ok(translated_clock())
    }
}

/// Returns the CPUs that a cell's proxy may use.
pub(super) fn beside(start: &CpuSet, cell: &CpuSet) -> CpuSet {
    start.difference(cell)
}
