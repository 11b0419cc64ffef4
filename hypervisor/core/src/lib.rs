// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the partitioning hypervisor decides: pure code over small traits, tested on the host. The
//! monitor (`hypervisor/monitor`) supplies registers, memory and devices.
//!
//! - [`interface`]: what the driver, the monitor and the root's programs share.
//! - [`format`]: the configuration of the system and of a cell, as bytes.
//!
//! **Invariants:** nothing here touches a register, waits, or allocates; nothing panics on what a
//! cell, the root or a blob says.
#![cfg_attr(not(test), no_std)]

pub mod format;
pub mod interface;
