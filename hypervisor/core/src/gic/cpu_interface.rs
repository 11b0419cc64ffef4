// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The registers of the CPU interface that trap with ICH_HCR_EL2.TC = 1 beside those that send, and
//! with TALL0 = 1 (Arm IHI 0069, 12.4.7): what reaches the real one. Acknowledging and ending an
//! interrupt of group 1 do not trap.

use super::{BEST_PRIORITY, PrivateMask, SpiSet};

/// One of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ControlRegister {
    /// ICC_PMR_EL1.
    PriorityMask,
    /// ICC_CTLR_EL1.
    Control,
    /// ICC_DIR_EL1, which can only be written.
    Deactivate,
    /// ICC_RPR_EL1, which can only be read.
    RunningPriority,
    /// ICC_IAR0_EL1 and ICC_HPPIR0_EL1, which tell of an interrupt of group 0. No cell has one.
    Group0Pending,
    /// The other registers of group 0: ICC_EOIR0_EL1, ICC_BPR0_EL1, ICC_AP0Rn_EL1, ICC_IGRPEN0_EL1.
    Group0,
}

/// CBPR and EOImode: the CPU's own affair.
const CONTROL_OWN: u64 = 0b11;
/// INTID 1023: no interrupt (2.2.1).
const SPURIOUS: u64 = 1023;

/// The least that ICC_PMR_EL1 may be while a cell runs, so that the management interrupt is not
/// masked.
///
/// With two security states, priorities in the distributor are those that the non-secure state sees:
/// p is 0x80 + p / 2 of what there is. ICC_PMR_EL1 is seen in the same way if the firmware has the
/// interrupts of group 0 for itself (SCR_EL3.FIQ = 1), and as it is if not (4.8.1, 12.2.19). `shifted`
/// says which; with one security state both are as they are, which is no difference either.
pub const fn lowest_mask(shifted: bool) -> u8 {
    if shifted { BEST_PRIORITY } else { 0x80 | BEST_PRIORITY >> 1 }
}

/// What the cell reads, of what the real register holds.
#[inline]
pub const fn control_read(register: ControlRegister, real: u64) -> u64 {
    match register {
        ControlRegister::Deactivate | ControlRegister::Group0 => 0,
        ControlRegister::Group0Pending => SPURIOUS,
        _ => real,
    }
}

/// What is written to the real register, which now holds `real`; `None` for nothing. The priority mask
/// never becomes less than [`lowest_mask`].
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
        // All of the cell's own interrupts can be masked; the management interrupt, which is
        // better than BEST_PRIORITY, cannot.
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
        ControlRegister::RunningPriority
        | ControlRegister::Group0Pending
        | ControlRegister::Group0 => None,
    }
}
