// SPDX-License-Identifier: Apache-2.0 OR MIT
//! System registers by their names, and the registers of whoever was interrupted.

/// Reads a system register.
#[macro_export]
macro_rules! read_register {
    ($name:literal) => {{
        let value: u64;
        // SAFETY: reading one of the registers that are named here changes nothing.
        unsafe {
            core::arch::asm!(concat!("mrs {}, ", $name), out(reg) value, options(nomem, nostack));
        }
        value
    }};
}

/// Writes a system register. The effect on what follows needs an ISB.
#[macro_export]
macro_rules! write_register {
    ($name:literal, $value:expr) => {{
        let value: u64 = $value;
        // SAFETY: what each write means for the running program is said where it stands; none of
        // them takes memory away that the monitor itself uses.
        unsafe {
            core::arch::asm!(concat!("msr ", $name, ", {}"), in(reg) value, options(nostack));
        }
    }};
}

/// An instruction that takes no operand, or none but a constant.
#[macro_export]
macro_rules! instruction {
    ($($text:literal),+) => {
        // SAFETY: barriers, hints and invalidations change no value that the program holds.
        unsafe { core::arch::asm!($($text),+, options(nostack)) }
    };
}

/// The registers of whoever was interrupted, by the numbers that instructions give them: x0 to x30, and
/// at 31 the one that is always 0. What is written there is dropped.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(16))]
pub struct Registers([u64; 32]);

impl Registers {
    /// All 0.
    pub const ZERO: Self = Self([0; 32]);

    /// Register of an instruction.
    #[inline]
    pub const fn get(&self, number: u8) -> u64 {
        self.0[number as usize & 31]
    }

    /// Writes it.
    #[inline]
    pub const fn set(&mut self, number: u8, value: u64) {
        self.0[number as usize & 31] = value;
    }

    /// Those that there are.
    pub const fn all(&mut self) -> &mut [u64; 31] {
        match self.0.first_chunk_mut() {
            Some(all) => all,
            None => unreachable!(),
        }
    }
}
