// SPDX-License-Identifier: Apache-2.0 OR MIT

use std::io;
use std::time::Duration;

use rampart_agent::AgentError;
use rampart_host::HostError;
use rampart_hypervisor_core::configuration::Refused;
use rampart_hypervisor_core::interface::{CellState, StopReason};

use crate::device::DeviceError;

/// The reason why Linux does not run in a cell.
#[derive(Debug, thiserror::Error)]
pub enum LinuxError {
    /// The driver or the hypervisor failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A PCI function cannot be prepared.
    #[error(transparent)]
    Function(#[from] HostError),
    /// The PCI functions of the cell have not been reset since its last start.
    #[error(
        "cell {name}: its PCI functions keep the orders of its last start, and would write to its memory; fix: \
         destroy the cell and create it again, which resets them"
    )]
    FunctionsUsed {
        /// Name of the cell.
        name: String,
    },
    /// The kernel image is unusable.
    #[error(
        "unusable kernel image: {0}; fix: use an arm64 Image such as /boot/vmlinuz-RELEASE of Debian"
    )]
    Image(String),
    /// The configuration would be refused.
    #[error("the configuration of the cell is invalid: {0:?}")]
    Configuration(Refused),
    /// The configuration lacks a region that a Linux cell needs.
    #[error(
        "the cell has no {what}; a Linux cell needs memory of its own, two regions that it writes and the root reads, and one that the root writes"
    )]
    NoRegion {
        /// Purpose of the region.
        what: &'static str,
    },
    /// A region is not mapped at its physical address.
    #[error(
        "memory at {physical:#x} is mapped at {guest:#x}; the memory of a Linux cell must be mapped at its physical address"
    )]
    Moved {
        /// Physical address.
        physical: u64,
        /// Address in the cell's address space.
        guest: u64,
    },
    /// The memory is not suitable for a kernel.
    #[error(
        "memory at {start:#x} is not a multiple of 2 MiB, or only 2 MiB; a kernel needs more, at a multiple of 2 MiB"
    )]
    Unaligned {
        /// Start address.
        start: u64,
    },
    /// The memory is too small.
    #[error("the cell has {} MiB, its kernel and initramfs need {} MiB; fix: give the cell more memory", .present >> 20, .needed.div_ceil(1 << 20))]
    TooSmall {
        /// Present size in bytes.
        present: u64,
        /// Needed size in bytes.
        needed: u64,
    },
    /// The system's configuration has no interrupt controller.
    #[error(
        "the driver does not report the address of the interrupt controller; fix: use driver and program of the same version"
    )]
    NoPlatform,
    /// A system call failed.
    #[error("{what}: {source}")]
    System {
        /// The failed operation.
        what: &'static str,
        /// The error of the system.
        source: io::Error,
    },
    /// The first program does not answer.
    #[error(
        "cell {name}: no answer within {} s ({source}); it is {state:?} ({reason:?}), the end of its kernel log:\n{last}",
        .timeout.as_secs()
    )]
    Silent {
        /// Name of the cell.
        name: String,
        /// Waiting time.
        timeout: Duration,
        /// State of the cell.
        state: CellState,
        /// Reason why it does not run, if it does not.
        reason: StopReason,
        /// The last lines of its kernel log or console.
        last: String,
        /// The error of the connection.
        source: AgentError,
    },
}

impl LinuxError {
    pub(super) fn system(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { what, source }
    }
}
