// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Access to system registers by name, and the general registers of an interrupted context.

/// Reads a system register.
#[macro_export]
macro_rules! read_register {
    ($name:expr) => {{
        let value: u64;
        // SAFETY: reading a register that is named in this crate or the monitor has no side effect on memory.
        unsafe {
            core::arch::asm!(concat!("mrs {}, ", $name), out(reg) value, options(nomem, nostack));
        }
        value
    }};
}

/// Writes a system register. Later instructions see the effect only after an ISB.
#[macro_export]
macro_rules! write_register {
    ($name:literal, $value:expr) => {{
        let value: u64 = $value;
        // SAFETY: no write in this crate or the monitor unmaps memory that the monitor itself uses.
        unsafe {
            core::arch::asm!(concat!("msr ", $name, ", {}"), in(reg) value, options(nostack));
        }
    }};
}

/// Executes instructions without operands, or with constant operands.
#[macro_export]
macro_rules! instruction {
    ($($text:literal),+) => {
        // SAFETY: barriers, hints and invalidations change no values of the program.
        unsafe { core::arch::asm!($($text),+, options(nostack)) }
    };
}

/// The general registers of an interrupted context by their encoding: x0 to x30, and at 31 the zero
/// register, which is never restored to the guest.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(16))]
pub struct Registers([u64; 32]);

impl Registers {
    /// All 0.
    pub const ZERO: Self = Self([0; 32]);

    /// Returns the register with this number.
    #[inline]
    pub const fn get(&self, number: u8) -> u64 {
        self.0[number as usize & 31]
    }

    /// Sets the register with this number.
    #[inline]
    pub const fn set(&mut self, number: u8, value: u64) {
        self.0[number as usize & 31] = value;
    }

    /// Returns x0 to x30.
    pub const fn all(&mut self) -> &mut [u64; 31] {
        match self.0.first_chunk_mut() {
            Some(all) => all,
            None => unreachable!(),
        }
    }
}
