// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The interrupt controller, GICv3 (Arm IHI 0069): emulated accesses to the distributor and the
//! redistributors, software-generated interrupts, and the few registers of the CPU interface that trap.
//! Interrupts themselves are taken by the cell without an exit.
//!
//! A cell accesses only the bits of its own interrupts; other bits read as zero and do not change. No
//! write changes enable, group or priority of the management interrupt, by which the hypervisor takes a
//! CPU.

mod change_of_owner;
pub(crate) mod common_registers;
mod cpu_interface;
mod distributor;
mod extended;
mod ownership;
mod redistributor;
mod sgi;

pub(crate) use change_of_owner::reset_interrupt;
pub use change_of_owner::{ORDINARY_PRIORITY, change_owner, is_edge_triggered, keep_routes};
pub use common_registers::LOCK;
pub use cpu_interface::{ControlRegister, control_write, lowest_mask};
pub use distributor::{distributor, is_route, route};
pub use extended::{is_extended_private_enabled, is_extended_shared_enabled};
pub use ownership::{Ownership, PrivateMask, SpiSet};
pub use redistributor::{redistributor, redistributor_owner};
pub use sgi::{send_sgi, sgi_to};

/// The distributor's frame, in bytes.
pub const DISTRIBUTOR_BYTES: u64 = 0x1_0000;
/// A redistributor's two frames, in bytes; with virtual LPIs there are four frames.
pub const REDISTRIBUTOR_BYTES: u64 = 0x2_0000;
/// The first shared peripheral interrupt.
pub const FIRST_SPI: u32 = 32;
/// The last shared peripheral interrupt; the next four numbers are special.
pub const LAST_SPI: u32 = 1019;
/// The highest priority that a cell can give an interrupt: higher ones (smaller numbers) are reserved for
/// the management interrupt. Bit 7 is compared for every value of ICC_BPR1_EL1 (Arm IHI 0069, 4.8.3), so
/// with one security state the management interrupt preempts every interrupt of a cell.
pub const BEST_PRIORITY: u8 = 0x80;
