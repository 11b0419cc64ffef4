// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The registers of the CPU interface that trap with ICH_HCR_EL2.TC = 1 beside those that send
//! (Arm IHI 0069, 9.4.x): what reaches the real one. Acknowledging and ending an interrupt do not
//! trap.

use super::{BEST_PRIORITY, Interrupts, Private};

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
}

/// CBPR and EOImode: the CPU's own affair.
const CONTROL_OWN: u64 = 0b11;

/// What the cell reads, of what the real register holds.
#[must_use]
#[inline]
pub const fn control_read(register: ControlRegister, real: u64) -> u64 {
    match register {
        ControlRegister::Deactivate => 0,
        _ => real,
    }
}

/// What is written to the real register, which now holds `real`; `None` for nothing.
#[must_use]
#[inline]
pub fn control_write(
    register: ControlRegister,
    value: u64,
    real: u64,
    interrupts: &Interrupts,
    private: Private,
) -> Option<u64> {
    match register {
        // All of the cell's own interrupts can be masked; the management interrupt, which is
        // better than BEST_PRIORITY, cannot.
        ControlRegister::PriorityMask => Some((value & 0xff).max(BEST_PRIORITY.into())),
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
