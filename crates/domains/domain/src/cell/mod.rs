// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The domain `cell`: the meter on CPUs reserved by the partitioning hypervisor, without an
//! operating system or under a Linux of its own.

mod availability;
mod bare;
mod cell_records;
mod launched_cell;
mod linux;
mod running_cell;
mod samples_in_memory;

use std::sync::PoisonError;

use rampart_host::StateDirectory;
use rampart_model::{Availability, CellPayload, DomainKind, DomainSelection, Machine};

use self::running_cell::{RunningCell, Slot, Up};
use crate::{Domain, DomainError, Running, Start};

pub use self::cell_records::{ReleasedCells, release_cells};
pub use self::samples_in_memory::batches_in_memory;

/// The domain `cell`.
#[derive(Debug)]
pub(crate) struct CellDomain {
    payload: CellPayload,
    state: StateDirectory,
    /// A cell that stayed up after a run.
    up: Slot,
}

impl CellDomain {
    pub(crate) fn new(payload: CellPayload, state: StateDirectory) -> Self {
        Self {
            payload,
            state,
            up: Slot::default(),
        }
    }

    /// Returns the cell that stayed up, if it has these CPUs and still runs; otherwise ends it.
    fn take(&self, start: &Start<'_>) -> Option<Up> {
        let mut slot = self.up.lock().unwrap_or_else(PoisonError::into_inner);
        let up = slot.take()?;
        (up.launched().cpus() == &start.settings.cpus && up.launched().failure().is_none())
            .then_some(up)
    }
}

impl Domain for CellDomain {
    fn selection(&self) -> DomainSelection {
        DomainSelection {
            cell: Some(self.payload),
            ..DomainSelection::of(DomainKind::Cell)
        }
    }

    fn availability(&self, machine: &Machine) -> Availability {
        availability::of(self.payload, machine)
    }

    fn start(&self, start: &Start<'_>) -> Result<Box<dyn Running>, DomainError> {
        // `rampart release` reports what cannot be removed; it does not affect this start.
        let _ = release_cells(&self.state);
        let up = match self.take(start) {
            Some(up) => up,
            None => match self.payload {
                CellPayload::BareMetal => Up::Bare(Box::new(bare::boot(&self.state, start)?)),
                CellPayload::Linux => Up::Linux(Box::new(linux::boot(&self.state, start)?)),
            },
        };
        let stay = start.stay_up.then(|| Slot::clone(&self.up));
        Ok(Box::new(RunningCell::start(up, start, stay)?))
    }
}
