// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The binary format of the configurations of system and cells: a [`BlobHeader`], for the system a
//! [`Platform`], then the tables, in the order of the counts in the header:
//!
//! ```text
//! u64 (MPIDR)   MemoryRegion   InterruptGrant   RegisterGrant   SmcGrant   Doorbell   StreamGrant
//! ```
//!
//! If the system has streams, an [`Iommu`] precedes them. Only the image for an SMMU accepts streams.
//!
//! What follows the tables is text of the root, such as names of regions: the hypervisor keeps it with the configuration,
//! and does not read it.
//!
//! All sizes are multiples of eight bytes, so all entries are aligned if the blob is. The checks are in
//! [`crate::configuration`].

use bitflags::bitflags;
use num_enum::{IntoPrimitive, TryFromPrimitive};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::interface::PAGE_BYTES;

pub use crate::dma::{Iommu, StreamGrant};

/// The first eight bytes of the system's configuration.
pub const SYSTEM_MAGIC: u64 = u64::from_le_bytes(*b"RMPSYST\0");
/// The first eight bytes of a cell's configuration.
pub const CELL_MAGIC: u64 = u64::from_le_bytes(*b"RMPCELL\0");
/// Maximum size of a blob, in bytes.
pub const MAXIMUM_BLOB_BYTES: usize = 32 << 10;
/// Size of a name, padded with zeros.
pub const NAME_BYTES: usize = 32;
/// Maximum number of regions in one blob.
pub const MAXIMUM_MEMORY_REGIONS: usize = 256;
/// Number of colours that a region distinguishes. A cache with more is divided into this number of parts, one with
/// fewer (a power of two) repeats them.
pub const COLOURS: u64 = 32;
/// Start and size of a region with colours are multiples of this number of bytes, a page of each colour.
pub const COLOUR_BLOCK_BYTES: u64 = COLOURS * PAGE_BYTES;
/// Maximum number of interrupts in one blob.
pub const MAXIMUM_INTERRUPTS: usize = 512;
/// Maximum number of shared registers in one blob, and in the whole system.
pub const MAXIMUM_REGISTERS: usize = 256;
/// Maximum number of ranges of SMC functions in one blob.
pub const MAXIMUM_SMCS: usize = 32;
/// Maximum number of doorbells in one blob.
pub const MAXIMUM_DOORBELLS: usize = 16;
/// Maximum number of ranges of streams in one blob.
pub const MAXIMUM_STREAMS: usize = 64;

/// The header of a blob.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct BlobHeader {
    /// [`SYSTEM_MAGIC`] or [`CELL_MAGIC`].
    pub magic: u64,
    /// [`crate::interface::REVISION`].
    pub revision: u32,
    /// Size of the whole blob.
    pub bytes: u32,
    /// Letters, digits, `-`, `_` and `.`, padded with zeros.
    pub name: [u8; NAME_BYTES],
    /// Guest address at which the first CPU starts; 0 for the system.
    pub entry: u64,
    /// x0 of the first CPU; for Linux the address of the device tree.
    pub argument: u64,
    /// The cell fails if it does not kick its watchdog for this time; 0 for no watchdog.
    pub watchdog_milliseconds: u32,
    /// Number of [`u64`]: the affinity fields of MPIDR_EL1. The first CPU is started.
    pub cpu_count: u32,
    /// Number of [`MemoryRegion`].
    pub memory_count: u32,
    /// Number of [`InterruptGrant`].
    pub interrupt_count: u32,
    /// Number of [`RegisterGrant`].
    pub register_count: u32,
    /// Number of [`SmcGrant`].
    pub smc_count: u32,
    /// Number of [`Doorbell`].
    pub doorbell_count: u32,
    /// Number of [`StreamGrant`].
    pub stream_count: u32,
}

/// The devices that the hypervisor itself uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Platform {
    /// GICD: 64 KiB, or 4 KiB of a GICv2.
    pub distributor: u64,
    /// The first frame of the first GICR region. GICv2: GICC, one page and the page with GICC_DIR.
    pub cpu_frames: u64,
    /// Size of all its frames, in bytes.
    pub cpu_frame_bytes: u64,
    /// An SPI of the root that becomes pending with each change of a cell's state; 0 for none: the root
    /// polls the status pages.
    pub event_interrupt: u32,
    /// Version of the GIC architecture: 2 or 3. Each has an image of its own.
    pub version: u32,
}

bitflags! {
    /// Properties of a memory region.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct MemoryFlags: u32 {
        /// The cell may read.
        const READ = 1 << 0;
        /// The cell may write.
        const WRITE = 1 << 1;
        /// The cell may execute.
        const EXECUTE = 1 << 2;
        /// Device registers: never cached, never executed.
        const DEVICE = 1 << 3;
        /// Other cells may have the region too, with the same flag; at most one may write. It is wiped
        /// only for the first and after the last cell that has it.
        const SHARED = 1 << 4;
        /// The root can write it before the start.
        const LOADABLE = 1 << 5;
        /// With SHARED: the root can read it.
        const ROOT_READ = 1 << 6;
        /// With SHARED: the root can write it. With WRITE only if UNCACHED: a page of messages of both.
        const ROOT_WRITE = 1 << 7;
        /// With SHARED: no CPU caches it, so that it takes no line of a cache from a cell.
        const UNCACHED = 1 << 8;
    }
}

/// Memory or a device, in whole pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct MemoryRegion {
    /// Physical address.
    pub physical: u64,
    /// Guest address in the cell; for the system the same as `physical`.
    pub guest: u64,
    /// Size of the physical range, including the pages of other colours.
    pub bytes: u64,
    /// [`MemoryFlags`].
    pub flags: u32,
    /// The pages of the region, by their physical page number modulo [`COLOURS`], one bit each: those with the
    /// cell's colours of a cache. Guest addresses have no gaps. 0 for all pages.
    pub colours: u32,
}

bitflags! {
    /// Properties of an interrupt.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct InterruptFlags: u32 {
        /// Other cells may set it pending through their doorbells.
        const DOORBELL = 1 << 0;
    }
}

/// A shared peripheral interrupt (SPI). Private interrupts belong to the CPU; the root has all SPIs that
/// no cell has.
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
        /// Writing 1 has an effect and writing 0 has none (set, clear or toggle registers): bits of
        /// other cells are written as 0, without reading first.
        const WRITE_ACTS = 1 << 0;
        /// Other cells may read its readable bits too.
        const SHARED_READ = 1 << 1;
    }
}

/// Bits of a device register in a page that traps for all cells. The root has all bits that no cell has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RegisterGrant {
    /// Physical and guest address; aligned to the width.
    pub address: u64,
    /// The bits that the cell can read; others read as 0.
    pub readable: u64,
    /// The bits that the cell can write; others keep their value.
    pub writable: u64,
    /// Width in bytes: 1, 2, 4 or 8.
    pub width: u32,
    /// [`RegisterFlags`].
    pub flags: u32,
}

/// A range of SMC functions that are forwarded to the firmware.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SmcGrant {
    /// The first function, in the numbering of Arm DEN 0028.
    pub first: u32,
    /// The last function, inclusive.
    pub last: u32,
}

/// A doorbell of another cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Doorbell {
    /// The interrupt to set pending, if its current owner declares it as a doorbell.
    pub interrupt: u32,
    /// 0.
    pub reserved: u32,
}

/// The reason for refusing a configuration. Its text is [`Refusal::text`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoPrimitive, TryFromPrimitive)]
#[repr(u32)]
pub enum Refusal {
    /// The blob is shorter than the header, or than the header states.
    Truncated = 1,
    /// The blob is longer than [`MAXIMUM_BLOB_BYTES`], or than its header states.
    TooLong = 2,
    /// The magic number of another kind, or an unknown one.
    WrongMagic = 3,
    /// Another revision.
    WrongRevision = 4,
    /// A table exceeds its maximum number of entries.
    TooManyEntries = 5,
    /// A field or flag that must be 0 is not.
    ReservedNotZero = 6,
    /// An invalid [`BlobHeader::name`], or the name of another cell.
    BadName = 7,
    /// No CPU.
    NoCpu = 8,
    /// A CPU is listed twice.
    CpuTwice = 9,
    /// The machine has no such CPU.
    CpuUnknown = 10,
    /// A CPU of another cell, or the last CPU of the root.
    CpuOwned = 11,
    /// An address or size that is not a multiple of the page size, or with colours of [`COLOUR_BLOCK_BYTES`].
    MemoryUnaligned = 12,
    /// A region of size 0, or beyond the address space.
    MemoryRange = 13,
    /// Contradictory flags.
    MemoryFlags = 14,
    /// Two regions of the blob overlap at their guest addresses.
    MemoryOverlapsGuest = 15,
    /// Two regions of the blob overlap at their physical addresses.
    MemoryOverlapsPhysical = 16,
    /// Memory that does not belong to the root, for example an unlisted alias.
    MemoryNotRoot = 17,
    /// Memory of another cell.
    MemoryOwned = 18,
    /// Memory of the hypervisor or of the interrupt controller.
    MemoryReserved = 19,
    /// Shared memory with two writers.
    MemoryTwoWriters = 20,
    /// The entry point is not in an executable, loadable region.
    EntryOutside = 21,
    /// Not an SPI, or not implemented by the distributor.
    InterruptRange = 22,
    /// An interrupt is listed twice.
    InterruptTwice = 23,
    /// An interrupt of another cell or of the hypervisor.
    InterruptOwned = 24,
    /// Invalid width, unaligned, bits beyond the width, or no bits.
    RegisterShape = 25,
    /// Registers that overlap or are not in ascending order.
    RegisterOrder = 26,
    /// Register bits of another cell.
    RegisterBitsOwned = 27,
    /// Another cell has the register with a different width or behaviour.
    RegisterDiffers = 28,
    /// The register is not in a device page of the root, or a cell has its page as memory.
    RegisterLocation = 29,
    /// An empty range, one with standard secure services, which are never forwarded, or one of the root.
    SmcRange = 30,
    /// A doorbell that is not an SPI.
    DoorbellRange = 31,
    /// Too many shared registers in the whole system.
    TooManyShared = 32,
    /// Invalid frames or interrupt of the platform.
    PlatformShape = 33,
    /// A stream, a PCI function or an SMMU that is invalid or that the root does not have.
    StreamRange = 34,
    /// A stream or a PCI function of another cell.
    StreamOwned = 35,
    /// The SMMU is in use, or lacks a feature; the entry is the [`crate::smmu::Obstacle`].
    SmmuUnsuitable = 36,
}

impl InterruptGrant {
    /// Returns whether other cells may set it pending.
    pub const fn is_doorbell(&self) -> bool {
        self.flags & InterruptFlags::DOORBELL.bits() != 0
    }
}
