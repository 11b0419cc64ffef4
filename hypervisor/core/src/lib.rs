// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The decisions of the partitioning hypervisor: pure code over small traits, tested on the host. The
//! monitor (`hypervisor/monitor`) supplies registers, memory and devices.
//!
//! - [`interface`]: the interface between driver, monitor and programs of the root.
//! - [`mod@format`]: the binary format of configurations.
//! - [`configuration`]: checks of configurations; the only way to parse one.
//! - [`launch`]: checks of the header that the driver fills in.
//! - [`protocol`]: who owns each CPU and page, and the steps that change it.
//! - [`state`]: states of cells and CPUs, failures, exit counters, the log.
//! - [`stage2`]: stage-2 translation; [`memory_transfer`]: moving memory between root and cells.
//! - [`syndrome`]: decoding of exceptions taken to EL2.
//! - [`bus`]: access to hardware registers, supplied by the monitor.
//! - [`registers`]: device registers shared bit by bit.
//! - [`gic`]: the interrupt controller; [`gicv2`]: that of machines with a GICv2.
//! - [`dma`]: the interface to an SMMU; [`mod@smmu`]: its tables and commands; [`pci`]: the configuration space.
//! - [`identification`]: the identification registers of a cell.
//! - [`hypercall`]: decoding and permission of hypercalls.
//! - [`psci`]: PSCI and other SMCs.
//!
//! **Invariants:** nothing here accesses a hardware register, allocates, or waits for another CPU
//! without a limit; no input of a cell, the root or a blob causes a panic. The feature `std` adds the
//! writing of configurations, for programs of the root.
#![cfg_attr(not(feature = "std"), no_std)]
#![forbid(unsafe_code)]

pub mod bounded_lock;
pub mod bus;
pub mod configuration;
pub mod dma;
pub mod format;
pub mod gic;
pub mod gicv2;
pub mod hypercall;
pub mod identification;
pub mod interface;
pub mod launch;
pub mod memory_transfer;
#[cfg(feature = "smmu")]
pub mod pci;
pub mod protocol;
pub mod psci;
pub mod registers;
pub mod restart;
#[cfg(feature = "smmu")]
pub mod smmu;
pub mod stage2;
pub mod state;
pub mod syndrome;
