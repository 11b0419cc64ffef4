// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The registers of the CPU interface that trap with ICH_HCR_EL2.TC = 1, except those that send, and with
//! TALL0 = 1 (Arm IHI 0069, 12.4.7). Acknowledging and ending an interrupt of group 1 do not trap.

use super::{BEST_PRIORITY, PrivateMask, SpiSet};

/// A register that traps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ControlRegister {
    /// ICC_PMR_EL1.
    PriorityMask,
    /// ICC_CTLR_EL1.
    Control,
    /// ICC_DIR_EL1, write-only.
    Deactivate,
    /// ICC_RPR_EL1, read-only.
    RunningPriority,
}

/// CBPR and EOImode, which affect only the cell itself.
const CONTROL_OWN: u64 = 0b11;

/// Returns the minimum of ICC_PMR_EL1 while a cell runs, so that the management interrupt is not masked.
///
/// With two security states, priorities in the distributor are the non-secure view: p is 0x80 + p / 2 in
/// the physical scale. ICC_PMR_EL1 has the same view if the firmware owns group 0 (SCR_EL3.FIQ = 1), and
/// the physical scale otherwise (4.8.1, 12.2.19). `shifted` is true if both have the same scale, as they
/// have with one security state.
pub const fn lowest_mask(shifted: bool) -> u8 {
    if shifted { BEST_PRIORITY } else { 0x80 | BEST_PRIORITY >> 1 }
}

/// Returns the value to write to the physical register, which holds `real`, or `None` for no write. The
/// priority mask is never less than [`lowest_mask`].
#[inline]
pub fn control_write(
    register: ControlRegister,
    value: u64,
    real: u64,
    interrupts: &SpiSet,
    private: PrivateMask,
    lowest_mask: u8,
) -> Option<u64> {
    match register {
        // The cell can mask all its own interrupts, but not the management interrupt, whose priority is
        // higher than BEST_PRIORITY.
        ControlRegister::PriorityMask => Some((value & 0xff).max(lowest_mask.into())),
        ControlRegister::Control => Some(real & !CONTROL_OWN | value & CONTROL_OWN),
        ControlRegister::Deactivate => {
            let number = (value & 0xff_ffff) as u32;
            let own = match number {
                0..32 => private.0 >> number & 1 != 0,
                _ => interrupts.contains(number),
            };
            own.then_some(number.into())
        }
        ControlRegister::RunningPriority => None,
    }
}
