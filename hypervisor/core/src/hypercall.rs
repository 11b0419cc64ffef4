// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Hypercalls as they come: who may call what, and with which arguments. What they do is the
//! monitor's.

use crate::interface::{EXIT_SLOTS, Hypercall, MAXIMUM_CELLS, Outcome, ROOT, Status};

/// A call with its arguments, in their ranges, from someone who may make it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// Give EL2 back.
    Disable,
    /// Make a cell.
    Create {
        /// Physical address of its configuration.
        start: u64,
        /// Its size.
        bytes: u64,
    },
    /// Show the root its loadable memory.
    Loadable(u32),
    /// Start it.
    Start(u32),
    /// Stop it.
    Stop(u32),
    /// Take everything back.
    Destroy(u32),
    /// Owner, power and exits of a CPU.
    CpuInfo(usize),
    /// The exits of a CPU, by a number of [`crate::interface::Exit`].
    CpuExits(usize, usize),
    /// Ring the caller's bell of this index.
    Doorbell(u64),
    /// The caller is alive.
    WatchdogKick,
    /// Which revision, and which cell.
    Interface,
}

impl Call {
    /// From x0 to x2 of `hvc #0`, called in `cell`. A cell may ask for its own CPUs only.
    ///
    /// # Errors
    /// Permission comes first: a cell learns nothing of calls that are not its own.
    pub fn read(registers: &[u64; 3], cell: u32, status: &Status) -> Result<Self, Outcome> {
        let [function, first, second] = *registers;
        let function = u32::try_from(function).map_err(|_| Outcome::NotSupported)?;
        let function = Hypercall::try_from(function).map_err(|_| Outcome::NotSupported)?;
        // Those that manage cells have the first numbers (interface.rs).
        let of_root = function as u32 <= Hypercall::CellDestroy as u32;
        if of_root && cell != ROOT {
            return Err(Outcome::NotPermitted);
        }
        let other = || match u32::try_from(first) {
            Ok(other @ 1..) if (other as usize) < MAXIMUM_CELLS => Ok(other),
            _ => Err(Outcome::NoSuchCell),
        };
        let cpu = || {
            let count = status.cpu_count.load(core::sync::atomic::Ordering::Relaxed) as usize;
            let mut known = status.cpus.iter().take(count);
            let index = usize::try_from(first).map_err(|_| Outcome::Invalid)?;
            match known.nth(index) {
                Some(cpu) if cell == ROOT || cpu.cell() == cell => Ok(index),
                Some(_) => Err(Outcome::NotPermitted),
                None => Err(Outcome::Invalid),
            }
        };
        Ok(match function {
            Hypercall::Disable => Self::Disable,
            Hypercall::CellCreate => Self::Create { start: first, bytes: second },
            Hypercall::CellLoadable => Self::Loadable(other()?),
            Hypercall::CellStart => Self::Start(other()?),
            Hypercall::CellStop => Self::Stop(other()?),
            Hypercall::CellDestroy => Self::Destroy(other()?),
            Hypercall::CpuInfo => Self::CpuInfo(cpu()?),
            Hypercall::CpuExits => match usize::try_from(second) {
                Ok(exit) if exit < EXIT_SLOTS => Self::CpuExits(cpu()?, exit),
                _ => return Err(Outcome::Invalid),
            },
            Hypercall::Doorbell => Self::Doorbell(first),
            Hypercall::WatchdogKick => Self::WatchdogKick,
            Hypercall::Interface => Self::Interface,
        })
    }
}
