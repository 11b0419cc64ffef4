// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Decodes hypercalls and checks permission and arguments. The monitor executes them.

use crate::interface::{Hypercall, MAXIMUM_CELLS, Outcome, ROOT, Status};
use crate::protocol::Kind;

/// A permitted hypercall with valid arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// Return EL2 to Linux.
    Disable,
    /// Create a cell.
    Create {
        /// Physical address of its configuration.
        start: u64,
        /// Size of the configuration.
        bytes: u64,
    },
    /// Load, start, stop or destroy a cell that exists.
    Manage(Kind, u32),
    /// Copy the configuration of the root or of a cell to the status pages.
    Configuration(u32),
    /// Return owner, power state and number of exits of a CPU.
    CpuInfo(usize),
    /// Ring the caller's doorbell with this index.
    Doorbell(u64),
    /// Kick the caller's watchdog.
    WatchdogKick,
    /// Return revision and cell number.
    Interface,
}

impl Call {
    /// Decodes x0 to x2 of `hvc #0` from `cell`. A cell may query only its own CPUs.
    ///
    /// # Errors
    /// The permission is checked before the arguments, so that forbidden calls reveal nothing to a cell.
    pub fn read(registers: &[u64; 3], cell: u32, status: &Status) -> Result<Self, Outcome> {
        let [function, first, second] = *registers;
        let function = u32::try_from(function).map_err(|_| Outcome::NotSupported)?;
        let function = Hypercall::try_from(function).map_err(|_| Outcome::NotSupported)?;
        // The calls that manage cells have the lowest numbers (interface.rs).
        let only_root = function as u32 <= Hypercall::Configuration as u32;
        if only_root && cell != ROOT {
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
            Hypercall::CellLoadable => Self::Manage(Kind::Loadable, other()?),
            Hypercall::CellStart => Self::Manage(Kind::Start, other()?),
            Hypercall::CellStop => Self::Manage(Kind::Stop, other()?),
            Hypercall::CellDestroy => Self::Manage(Kind::Destroy, other()?),
            Hypercall::Configuration if first == u64::from(ROOT) => Self::Configuration(ROOT),
            Hypercall::Configuration => Self::Configuration(other()?),
            Hypercall::CpuInfo => Self::CpuInfo(cpu()?),
            Hypercall::Doorbell => Self::Doorbell(first),
            Hypercall::WatchdogKick => Self::WatchdogKick,
            Hypercall::Interface => Self::Interface,
        })
    }
}
