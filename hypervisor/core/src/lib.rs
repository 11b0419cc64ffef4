// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the partitioning hypervisor decides: pure code over small traits, tested on the host. The
//! monitor (`hypervisor/monitor`) supplies registers, memory and devices.
//!
//! - [`interface`]: what the driver, the monitor and the root's programs share.
//! - [`mod@format`]: the configuration of the system and of a cell, as bytes.
//! - [`launch`]: the header that the driver filled.
//! - [`configuration`]: what a configuration must fulfil; the only way from bytes to one.
//! - [`state`]: cells and CPUs, failures, exits, the log.
//! - [`stage2`]: what a cell sees where; [`memory_transfer`]: how that moves between root and cells.
//! - [`syndrome`]: why a CPU came to EL2.
//! - [`bus`]: real registers, as the monitor supplies them.
//! - [`registers`]: device registers shared bit by bit.
//! - [`gic`]: the interrupt controller.
//! - [`hypercall`]: who may ask the hypervisor for what.
//! - [`psci`]: the calls by which a cell manages its CPUs, and other SMCs.
//!
//! **Invariants:** nothing here touches a hardware register, waits for another CPU without a limit (a
//! lock is held over a few accesses, and given up where its holder does not come back), or allocates; nothing panics on what a cell, the root or a
//! blob says. The feature `std` adds what writes configurations, for programs of the root.
#![cfg_attr(not(any(test, feature = "std")), no_std)]
#![forbid(unsafe_code)]

mod bounded_lock;
pub mod bus;
pub mod configuration;
pub mod format;
pub mod gic;
pub mod hypercall;
pub mod interface;
pub mod launch;
pub mod memory_transfer;
pub mod psci;
pub mod registers;
pub mod stage2;
pub mod state;
pub mod syndrome;
