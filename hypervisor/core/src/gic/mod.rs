// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The interrupt controller, GICv3 (Arm IHI 0069): the distributor's and redistributors' registers
//! as each cell may see and change them, the sending of software-generated interrupts, and the few
//! registers of the CPU interface that trap. SpiSet themselves come to the cell without us.
//!
//! A cell sees the bits of its own interrupts; the rest reads as zero and stays as it is. Nothing
//! that it writes reaches the interrupt by which it is managed: not its enable, group or priority.

mod change_of_owner;
mod common_registers;
mod cpu_interface;
mod distributor;
mod ownership;
mod redistributor;
mod sgi;

pub use change_of_owner::{ORDINARY_PRIORITY, change_owner, is_edge_triggered};
pub use cpu_interface::{ControlRegister, control_read, control_write, lowest_mask};
pub use distributor::{distributor, is_route, route};
pub use ownership::{Ownership, PrivateMask, SpiSet};
pub use redistributor::{redistributor, redistributor_owner};
pub use sgi::send_sgi;

/// The distributor's frame, in bytes.
pub const DISTRIBUTOR_BYTES: u64 = 0x1_0000;
/// A redistributor's two frames, in bytes; four where it has virtual LPIs.
pub const REDISTRIBUTOR_BYTES: u64 = 0x2_0000;
/// The first shared peripheral interrupt.
pub const FIRST_SPI: u32 = 32;
/// The last shared peripheral interrupt; the four numbers after it mean something else.
pub const LAST_SPI: u32 = 1019;
/// The best priority that a cell can give an interrupt: better ones, smaller numbers, are kept for
/// the management interrupt. Bit 7 is compared whatever ICC_BPR1_EL1 says (Arm IHI 0069, 4.8.3), so with
/// one security state the management interrupt preempts whatever a cell is in the middle of.
pub const BEST_PRIORITY: u8 = 0x80;
