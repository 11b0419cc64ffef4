// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The configuration of the system and of a cell, as bytes: a [`BlobHeader`], for the system a
//! [`Platform`], then as many of each table's entries as the header says, in the order of its counts:
//!
//! ```text
//! u64 (MPIDR)   MemoryRegion   InterruptGrant   RegisterGrant   SmcGrant   Doorbell
//! ```
//!
//! All sizes are multiples of eight bytes, so every entry is aligned where the blob is. What a blob
//! must fulfil is checked in [`crate::configuration`].

use bitflags::bitflags;
use num_enum::{IntoPrimitive, TryFromPrimitive};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The first eight bytes of the system's configuration.
pub const SYSTEM_MAGIC: u64 = u64::from_le_bytes(*b"RMPSYST\0");
/// The first eight bytes of a cell's configuration.
pub const CELL_MAGIC: u64 = u64::from_le_bytes(*b"RMPCELL\0");
/// The longest blob, in bytes.
pub const MAXIMUM_BLOB_BYTES: usize = 32 << 10;
/// A name's longest, filled up with zeros.
pub const NAME_BYTES: usize = 32;
/// The most regions in one blob.
pub const MAXIMUM_MEMORY_REGIONS: usize = 256;
/// The most interrupts in one blob.
pub const MAXIMUM_INTERRUPTS: usize = 512;
/// The most shared registers in one blob.
pub const MAXIMUM_REGISTERS: usize = 256;
/// The most ranges of SMC functions in one blob.
pub const MAXIMUM_SMCS: usize = 32;
/// The most doorbells in one blob.
pub const MAXIMUM_DOORBELLS: usize = 16;

/// The start of a blob.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct BlobHeader {
    /// [`SYSTEM_MAGIC`] or [`CELL_MAGIC`].
    pub magic: u64,
    /// [`crate::interface::REVISION`].
    pub revision: u32,
    /// Of the whole blob.
    pub bytes: u32,
    /// Letters, digits, `-`, `_` and `.`, filled up with zeros.
    pub name: [u8; NAME_BYTES],
    /// Where the first CPU begins, as the cell sees it; 0 for the system.
    pub entry: u64,
    /// Its x0 then: for Linux the device tree's address.
    pub argument: u64,
    /// The cell fails when it is silent for so long; 0 for no watchdog.
    pub watchdog_milliseconds: u32,
    /// [`u64`]: the affinity fields of MPIDR_EL1. The first one is started.
    pub cpu_count: u32,
    /// [`MemoryRegion`].
    pub memory_count: u32,
    /// [`InterruptGrant`].
    pub interrupt_count: u32,
    /// [`RegisterGrant`].
    pub register_count: u32,
    /// [`SmcGrant`].
    pub smc_count: u32,
    /// [`Doorbell`].
    pub doorbell_count: u32,
    /// 0.
    pub reserved: u32,
}

/// What the hypervisor itself needs to know of the machine.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Platform {
    /// GICD, 64 KiB.
    pub distributor: u64,
    /// The first frame of the first GICR region.
    pub redistributors: u64,
    /// Of all its frames, in bytes.
    pub redistributor_bytes: u64,
    /// A PL011 for the hypervisor's messages; 0 for none.
    pub serial_port: u64,
    /// An SPI of the root that is made pending with each change of a cell's state; 0 for none: then
    /// the root looks at the status pages.
    pub event_interrupt: u32,
    /// 0.
    pub reserved: u32,
}

bitflags! {
    /// What a region of memory is.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct MemoryFlags: u32 {
        /// The cell may read.
        const READ = 1 << 0;
        /// The cell may write.
        const WRITE = 1 << 1;
        /// The cell may execute.
        const EXECUTE = 1 << 2;
        /// A device's registers: never cached, never executed.
        const DEVICE = 1 << 3;
        /// Others may have it too, where theirs says the same; at most one of them may write. It is
        /// not wiped.
        const SHARED = 1 << 4;
        /// The root fills it before the start.
        const LOADABLE = 1 << 5;
        /// With SHARED: the root keeps reading it.
        const ROOT_READ = 1 << 6;
        /// With SHARED and without WRITE: the root keeps writing it.
        const ROOT_WRITE = 1 << 7;
    }
}

/// Memory or a device, whole pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct MemoryRegion {
    /// Where it is.
    pub physical: u64,
    /// Where the cell sees it; for the system the same as `physical`.
    pub guest: u64,
    /// Its size.
    pub bytes: u64,
    /// [`MemoryFlags`].
    pub flags: u32,
    /// 0.
    pub reserved: u32,
}

bitflags! {
    /// What an interrupt is for.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct InterruptFlags: u32 {
        /// Others may make it pending through their doorbells.
        const DOORBELL = 1 << 0;
    }
}

/// A shared peripheral interrupt. Private ones belong to the CPU; what no cell has is the root's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct InterruptGrant {
    /// INTID, 32 to 1019.
    pub number: u32,
    /// [`InterruptFlags`].
    pub flags: u32,
}

bitflags! {
    /// How a shared register behaves.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct RegisterFlags: u32 {
        /// A written 1 acts and a 0 does not (set, clear or toggle registers): others' bits are
        /// written as 0, and nothing is read first.
        const WRITE_ACTS = 1 << 0;
        /// Its readable bits may be read by others too.
        const SHARED_READ = 1 << 1;
    }
}

/// Bits of a device register in a page that is trapped for all. What no cell owns is the root's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RegisterGrant {
    /// Physical address, and the one that the cell uses; aligned to the width.
    pub address: u64,
    /// The bits that the cell reads; others read as 0.
    pub readable: u64,
    /// The bits that the cell writes; others stay.
    pub writable: u64,
    /// In bytes: 1, 2, 4 or 8.
    pub width: u32,
    /// [`RegisterFlags`].
    pub flags: u32,
}

/// SMC functions that are forwarded to the firmware.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SmcGrant {
    /// The first function, in the numbering of Arm DEN 0028.
    pub first: u32,
    /// The last one.
    pub last: u32,
}

/// A bell of a neighbour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Doorbell {
    /// The interrupt that is made pending, if its present owner has it as a doorbell.
    pub interrupt: u32,
    /// 0.
    pub reserved: u32,
}

/// Why a configuration is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoPrimitive, TryFromPrimitive)]
#[repr(u32)]
pub enum Refusal {
    /// Shorter than its header, or than the header says.
    Truncated = 1,
    /// Longer than [`MAXIMUM_BLOB_BYTES`], or than its tables.
    TooLong = 2,
    /// Neither a system's nor a cell's, or the other's.
    WrongMagic = 3,
    /// Of another revision.
    WrongRevision = 4,
    /// More entries than a table may have.
    TooManyEntries = 5,
    /// A field or flag that has to be 0 is not.
    ReservedNotZero = 6,
    /// The blob or a name: not as [`BlobHeader::name`] must be, or another cell's.
    BadName = 7,
    /// No CPU.
    NoCpu = 8,
    /// A CPU that is named twice.
    CpuTwice = 9,
    /// A CPU that the machine does not have.
    CpuUnknown = 10,
    /// A CPU that another cell has, or the only one of the root.
    CpuOwned = 11,
    /// A region, address or alignment that is not a multiple of the page.
    MemoryUnaligned = 12,
    /// A region of no size, beyond the address space, or around its end.
    MemoryRange = 13,
    /// Flags that contradict each other.
    MemoryFlags = 14,
    /// Two regions of the same blob that overlap where the cell sees them.
    MemoryOverlapsGuest = 15,
    /// Two regions of the same blob that show the same memory.
    MemoryOverlapsPhysical = 16,
    /// Memory that is not the root's: a hole that aliases something, or nothing at all.
    MemoryNotRoot = 17,
    /// Memory that another cell has.
    MemoryOwned = 18,
    /// Memory of the hypervisor or of the interrupt controller.
    MemoryReserved = 19,
    /// Shared memory that two may write.
    MemoryTwoWriters = 20,
    /// The entry is in no region that can be executed and is loaded.
    EntryOutside = 21,
    /// An interrupt that is no SPI, or that the distributor does not have.
    InterruptRange = 22,
    /// An interrupt that is named twice.
    InterruptTwice = 23,
    /// An interrupt that another cell has, or the hypervisor's own.
    InterruptOwned = 24,
    /// A register of an impossible width, unaligned, with bits beyond the width or none at all.
    RegisterShape = 25,
    /// Registers that overlap, or are not in order.
    RegisterOrder = 26,
    /// Register bits that another cell has.
    RegisterBitsOwned = 27,
    /// A register where another cell has it with another width or behaviour.
    RegisterDiffers = 28,
    /// A register in memory that is not a device of the root, or in a page that a cell has whole.
    RegisterLocation = 29,
    /// A range of SMC functions that is empty, or one of PSCI's, which are never forwarded.
    SmcRange = 30,
    /// A doorbell that is no SPI.
    DoorbellRange = 31,
    /// More shared registers in the whole system than the hypervisor has room for.
    TooManyShared = 32,
    /// The hypervisor's memory or the interrupt controller's is not as it should be.
    PlatformShape = 33,
}

impl InterruptGrant {
    /// Whether others may make it pending.
    pub const fn is_doorbell(&self) -> bool {
        self.flags & InterruptFlags::DOORBELL.bits() != 0
    }
}
