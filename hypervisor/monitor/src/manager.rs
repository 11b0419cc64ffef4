// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The data of the root and the cells: [`Shared`] is read by their own CPUs at any time, [`Manager`] is used by
//! one CPU at a time.

use core::cell::UnsafeCell;

use rampart_hypervisor_core::configuration::{BlobBuffer, Configuration, Kind, Refused};
use rampart_hypervisor_core::gic::SpiSet;
use rampart_hypervisor_core::interface::{MAXIMUM_CELLS, Outcome, ROOT};
use rampart_hypervisor_core::protocol::Work;
use rampart_hypervisor_core::stage2::Stage2;
use rampart_hypervisor_fast_path::Guarded;

use crate::stage2_memory::{Pool, Tables};

/// The data of a cell that its own CPUs read while it runs.
#[derive(Debug)]
pub(crate) struct Shared {
    /// Its shared interrupts.
    pub(crate) interrupts: SpiSet,
    configuration: UnsafeCell<Option<Configuration<'static>>>,
    blob: UnsafeCell<BlobBuffer>,
}

// SAFETY: the contents of both `UnsafeCell`s are changed only by the holder of `MANAGER` (for the root by the
// launch), and only while no CPU runs the cell; its CPUs are started afterwards, by an atomic store.
unsafe impl Sync for Shared {}

static CELLS: [Shared; MAXIMUM_CELLS] = [const {
    Shared {
        interrupts: SpiSet::none(),
        configuration: UnsafeCell::new(None),
        blob: UnsafeCell::new(BlobBuffer::EMPTY),
    }
}; MAXIMUM_CELLS];

/// The manager. CPUs never wait for this lock: they return [`Outcome::Busy`] or retry later.
pub(crate) static MANAGER: Guarded<Option<Manager>> = Guarded::new(None);

/// The interrupts that their owners declare as doorbells. Cells read it without a lock.
pub(crate) static DOORBELLS: SpiSet = SpiSet::none();

impl Shared {
    /// Returns the data of a cell; for an invalid number, which no CPU has, that of the root.
    pub(crate) fn of(cell: u32) -> &'static Self {
        CELLS.get(cell as usize).unwrap_or(&CELLS[ROOT as usize])
    }

    /// Returns the configuration, or `None` if the cell does not exist.
    pub(crate) fn configuration(&self) -> Option<&Configuration<'static>> {
        // SAFETY: see `Sync` above.
        unsafe { (*self.configuration.get()).as_ref() }
    }
}

/// Physical address and size of a configuration in the root's memory.
pub(crate) type Source = (u64, u64);

/// The data that management calls change, one at a time.
#[derive(Debug)]
pub(crate) struct Manager {
    /// Pages for tables.
    pub(crate) pool: Pool,
    /// Translations by the cell's number.
    pub(crate) stage_2: [Option<Stage2>; MAXIMUM_CELLS],
    /// The work left to do for each cell.
    pub(crate) work: [Work; MAXIMUM_CELLS],
    /// The configurations of cells that are being created: a call with the same continues.
    pub(crate) sources: [Source; MAXIMUM_CELLS],
}

impl Manager {
    /// Returns a cell's translation with the memory for its tables, or `None` if the cell does not exist.
    pub(crate) fn translation(&mut self, cell: u32) -> Option<(&mut Stage2, Tables<'_>)> {
        let stage_2 = self.stage_2.get_mut(cell as usize)?.as_mut()?;
        let pool = &mut self.pool;
        Some((stage_2, Tables { pool, cell }))
    }

    /// Returns the root's translation.
    ///
    /// # Errors
    /// [`Outcome::WrongState`] before the launch.
    pub(crate) fn root(&mut self) -> Result<(&mut Stage2, Tables<'_>), Outcome> {
        self.translation(ROOT).ok_or(Outcome::WrongState)
    }

    /// Copies and parses a configuration for a cell that does not exist yet. [`Manager::set`] makes it the
    /// cell's configuration.
    pub(crate) fn read(
        &mut self,
        cell: u32,
        kind: Kind,
        bytes: u64,
        copy: impl FnOnce(&mut [u8]),
    ) -> Result<Configuration<'static>, Refused> {
        let shared = Shared::of(cell);
        // SAFETY: see `Shared`: `self` is held, and the cell does not exist; there are no references to the
        // buffer's old contents, because `set(None)` came before.
        let buffer = unsafe { &mut *shared.blob.get() };
        let bytes = buffer.fill(bytes, copy)?;
        Configuration::read(bytes, kind)
    }

    /// Returns the bytes of a configuration, or `None` if the cell does not exist.
    pub(crate) fn blob(&self, cell: u32) -> Option<&[u8]> {
        let shared = Shared::of(cell);
        let bytes = shared.configuration()?.header.bytes as usize;
        // SAFETY: see `Shared`: `self` is held, so that the buffer of a cell that exists does not change; the
        // configuration was read from this many bytes of it.
        Some(unsafe { core::slice::from_raw_parts(shared.blob.get().cast::<u8>(), bytes) })
    }

    /// Sets the configuration of a cell; `None` if it is destroyed.
    pub(crate) fn set(&mut self, cell: u32, configuration: Option<Configuration<'static>>) {
        // SAFETY: see `Shared`: `self` is held, and no CPU runs the cell.
        unsafe { *Shared::of(cell).configuration.get() = configuration }
    }
}
