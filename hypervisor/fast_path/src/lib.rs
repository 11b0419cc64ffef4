// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is served at each exit: registers of the interrupt controller, of devices that are shared bit
//! by bit, and of the CPU interface. The monitor calls it first; what it leaves takes the longer way
//! through the monitor. It is a crate of its own because it is compiled for speed and the monitor, of
//! which most runs once or when something fails, for size.
//!
//! **Invariants:** nothing here waits without a limit, fails a cell or looks at what one CPU at a time
//! may change; it decides nothing itself (`rampart-hypervisor-core` does).
#![cfg(target_os = "none")]
#![no_std]

mod devices;
mod exit;
mod registers;

pub use devices::{Devices, REGISTER_LOCKS, ROOT_REGISTERS};
pub use exit::{ExitState, HANDLED, HANDLED_CALLEE_SAVED, NOT_HANDLED, Owner, PARK};
pub use registers::Registers;
