// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The root and the cells: what their own CPUs read at any time, and what one CPU at a time changes.

use core::cell::UnsafeCell;

use rampart_hypervisor_core::configuration::{BlobBuffer, Configuration, Kind, Refused};
use rampart_hypervisor_core::gic::SpiSet;
use rampart_hypervisor_core::interface::{MAXIMUM_CELLS, ROOT};
use rampart_hypervisor_core::stage2::Stage2;
use spin::Mutex;

use crate::stage2_memory::{Pool, Tables};

/// What a cell's own CPUs read while it runs.
#[derive(Debug)]
pub(crate) struct Shared {
    /// The shared interrupts that it has.
    pub(crate) interrupts: SpiSet,
    configuration: UnsafeCell<Option<Configuration<'static>>>,
    blob: UnsafeCell<BlobBuffer>,
}

// SAFETY: what is in the two cells is changed by the holder of `MANAGER` alone (for the root by the
// launch), and only while no CPU runs the cell; its CPUs are started afterwards, by an atomic store.
unsafe impl Sync for Shared {}

static CELLS: [Shared; MAXIMUM_CELLS] = [const {
    Shared {
        interrupts: SpiSet::none(),
        configuration: UnsafeCell::new(None),
        blob: UnsafeCell::new(BlobBuffer::EMPTY),
    }
}; MAXIMUM_CELLS];

/// Nobody waits for it: who does not get it says so, or tries again later.
pub(crate) static MANAGER: Mutex<Option<Manager>> = Mutex::new(None);

impl Shared {
    /// The cell of this number; the root's where there is no such number, which no CPU has.
    pub(crate) fn of(cell: u32) -> &'static Self {
        CELLS.get(cell as usize).unwrap_or(&CELLS[ROOT as usize])
    }

    /// What it was created with.
    pub(crate) fn configuration(&self) -> Option<&Configuration<'static>> {
        // SAFETY: see `Sync` above.
        unsafe { (*self.configuration.get()).as_ref() }
    }
}

/// What is changed by hypercalls, one at a time.
#[derive(Debug)]
pub(crate) struct Manager {
    /// Pages for tables.
    pub(crate) pool: Pool,
    /// By the cell's number.
    pub(crate) stage_2: [Option<Stage2>; MAXIMUM_CELLS],
}

impl Manager {
    /// A cell's translation with the memory for it; none where there is no such cell.
    pub(crate) fn translation(&mut self, cell: u32) -> Option<(&mut Stage2, Tables<'_>)> {
        let stage_2 = self.stage_2.get_mut(cell as usize)?.as_mut()?;
        let pool = &mut self.pool;
        Some((stage_2, Tables { pool, cell }))
    }

    /// Copies and reads a configuration for a cell that is not there yet. It is the cell's only
    /// when it is [`Manager::set`] that says so.
    pub(crate) fn read(
        &mut self,
        cell: u32,
        kind: Kind,
        bytes: u64,
        copy: impl FnOnce(&mut [u8]),
    ) -> Result<Configuration<'static>, Refused> {
        let shared = Shared::of(cell);
        // SAFETY: see `Shared`: `self` is held, and there is no such cell; nothing refers to what
        // was in the buffer before, because `set` to nothing came before.
        let buffer = unsafe { &mut *shared.blob.get() };
        let bytes = buffer.fill(bytes, copy)?;
        Configuration::read(bytes, kind)
    }

    /// What the cell has from now on; `None` where it is no more.
    pub(crate) fn set(&mut self, cell: u32, configuration: Option<Configuration<'static>>) {
        // SAFETY: see `Shared`: `self` is held, and no CPU runs the cell.
        unsafe { *Shared::of(cell).configuration.get() = configuration }
    }
}
