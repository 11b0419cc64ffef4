// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The registers of real devices, as the monitor supplies them.

/// How much one access moves.
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
    /// In bytes.
    pub const fn bytes(self) -> u32 {
        1 << self as u32
    }

    /// All bits of a value.
    pub const fn mask(self) -> u64 {
        u64::MAX >> (64 - 8 * self.bytes())
    }
}

/// Real registers by their physical address, in the order of the calls (device memory).
///
/// What is passed is aligned to its width.
pub trait Bus {
    /// Reads one.
    fn read(&self, address: u64, width: Width) -> u64;
    /// Writes one; of the value only the bits of the width count.
    fn write(&self, address: u64, width: Width, value: u64);
}

/// A guest's access to a device, decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    /// Where, physically: devices lie where they are. Aligned to the width.
    pub address: u64,
    /// How much.
    pub width: Width,
    /// The value that is written, of which only the bits of the width count; `None` for a read.
    pub write: Option<u64>,
}

/// An access that the caller may not make: its cell fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forbidden;
