// SPDX-License-Identifier: Apache-2.0 OR MIT

use std::io;
use std::time::Duration;

use rampart_agent::AgentError;
use rampart_hypervisor_core::configuration::Refused;
use rampart_hypervisor_core::interface::{CellState, StopReason};

use crate::device::Error;

/// Why a Linux does not run in a cell.
#[derive(Debug, thiserror::Error)]
pub enum LinuxError {
    /// The driver or the hypervisor.
    #[error(transparent)]
    Device(#[from] Error),
    /// The kernel image.
    #[error(
        "unusable kernel image: {0}; fix: use an arm64 Image such as /boot/vmlinuz-RELEASE of Debian"
    )]
    Image(String),
    /// Its configuration would be refused.
    #[error("the configuration of the cell is invalid: {0:?}")]
    Configuration(Refused),
    /// A region that a Linux cell needs is not in its configuration.
    #[error(
        "the cell has no {what}; a Linux cell needs memory of its own, two regions that it writes and the root reads, and one that the root writes"
    )]
    NoRegion {
        /// For what.
        what: &'static str,
    },
    /// A region is seen elsewhere than it is.
    #[error(
        "memory at {physical:#x} is mapped at {guest:#x}; the memory of a Linux cell must be mapped at its physical address"
    )]
    Moved {
        /// Where it is.
        physical: u64,
        /// Where the cell would see it.
        guest: u64,
    },
    /// Its memory begins or ends where no kernel can be.
    #[error(
        "memory at {start:#x} is not a multiple of 2 MiB, or only 2 MiB; a kernel needs more, at a multiple of 2 MiB"
    )]
    Unaligned {
        /// Where.
        start: u64,
    },
    /// Too little memory.
    #[error("the cell has {} MiB, its kernel and initramfs need {} MiB; fix: give the cell more memory", .present >> 20, .needed.div_ceil(1 << 20))]
    TooSmall {
        /// In bytes.
        present: u64,
        /// In bytes.
        needed: u64,
    },
    /// The system's configuration has no interrupt controller.
    #[error(
        "the driver does not report the address of the interrupt controller; fix: use driver and program of the same version"
    )]
    NoPlatform,
    /// Something of this machine.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What it said.
        source: io::Error,
    },
    /// Its first program does not answer.
    #[error(
        "cell {name}: no answer within {} s ({source}); it is {state:?} ({reason:?}), its last console output: {last}",
        .patience.as_secs()
    )]
    Silent {
        /// Of the cell.
        name: String,
        /// How long it was waited for.
        patience: Duration,
        /// Of the cell.
        state: CellState,
        /// Why it does not run, if it does not.
        reason: StopReason,
        /// Its console's last lines.
        last: String,
        /// What the connection said.
        source: AgentError,
    },
}

impl LinuxError {
    pub(super) fn system(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { what, source }
    }
}
