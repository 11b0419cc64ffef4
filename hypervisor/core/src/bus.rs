// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Access to device registers, supplied by the monitor.

/// The size of an access.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Width {
    /// 8 bits.
    Byte = 0,
    /// 16 bits.
    Half = 1,
    /// 32 bits.
    Word = 2,
    /// 64 bits.
    Double = 3,
}

impl Width {
    /// Returns the size in bytes.
    pub const fn bytes(self) -> u32 {
        1 << self as u32
    }

    /// Returns a mask of all bits of a value.
    pub const fn mask(self) -> u64 {
        u64::MAX >> (64 - 8 * self.bytes())
    }
}

/// Device registers by their physical address, accessed in the order of the calls (device memory).
///
/// Addresses are aligned to the width.
pub trait Bus {
    /// Reads a register.
    fn read(&self, address: u64, width: Width) -> u64;
    /// Writes a register; bits of the value beyond the width are ignored.
    fn write(&self, address: u64, width: Width, value: u64);
    /// Returns the number of this CPU as the holder of locks, not 0.
    fn holder(&self) -> u32;
}

/// A guest's decoded access to a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    /// Physical address, equal to the guest address for devices. Aligned to the width.
    pub address: u64,
    /// Size.
    pub width: Width,
    /// The value to write, of which bits beyond the width are ignored; `None` for a read.
    pub write: Option<u64>,
}

/// An access that is not permitted to the caller: its cell fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forbidden;
