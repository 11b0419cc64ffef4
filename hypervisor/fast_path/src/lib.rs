// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The fast path for exits: registers of the interrupt controller, of the CPU interface, and of devices
//! that are shared bit by bit. The exception vectors call it first; the monitor handles other exits. It is
//! a crate of its own because it is compiled for speed, and the monitor, of which most runs once or after
//! a failure, for size.
//!
//! **Invariants:** nothing here waits without a limit, fails a cell or uses data that needs the manager's
//! lock; the decisions are in `rampart-hypervisor-core`.
#![cfg(target_os = "none")]
#![no_std]

#[cfg_attr(feature = "gicv2", path = "gicv2.rs")]
#[cfg_attr(not(feature = "gicv2"), path = "gicv3.rs")]
mod controller;
mod devices;
mod exit;
mod guarded;
mod registers;

pub use controller::Controller;
#[cfg(feature = "gicv2")]
pub use controller::INTERFACES;
pub use devices::{Devices, REGISTER_LOCKS, ROOT_REGISTERS};
pub use exit::{
    ExitState, FORBIDDEN, HANDLED, HANDLED_CALLEE_SAVED, NOT_HANDLED, Owner, correct_skip, decode,
    finish,
};
pub use guarded::{Guarded, holder};
pub use registers::Registers;
