// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The parts of configurations ([`mod@crate::format`]) and status pages ([`crate::interface`]) about DMA that an SMMU
//! confines.

use core::sync::atomic::{AtomicU32, AtomicU64};

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The SMMU that the hypervisor has, and the configuration space of the PCI functions behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Iommu {
    /// The registers of an SMMUv3, two pages of 64 KiB.
    pub registers: u64,
    /// The enhanced configuration space (ECAM) of a PCI host bridge; 0 for none.
    pub configuration_space: u64,
    /// Its size in bytes, a multiple of 1 MiB.
    pub configuration_space_bytes: u64,
}

/// Streams of the SMMU: the devices that send their DMA with these identifiers. The root has all of its
/// ranges that no cell has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct StreamGrant {
    /// The first StreamID.
    pub first: u32,
    /// Number of StreamIDs.
    pub count: u32,
    /// Physical address of the PCI function's page in the configuration space, which neither the cell nor
    /// the root can write then; 0 if the device is none, and for the system.
    pub function: u64,
}

/// An access of a device that the SMMU refused. Read `sequence` as that of
/// [`crate::interface::Failure`].
#[derive(Debug, FromBytes, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct DmaFault {
    /// Number of the fault plus one; 0 while the record is written.
    pub sequence: AtomicU64,
    /// CNTPCT_EL0 when it was read from the SMMU.
    pub time: AtomicU64,
    /// The address of the access; 0 if the event has none.
    pub address: AtomicU64,
    /// The StreamID.
    pub stream: AtomicU32,
    /// The cell that has the stream: the root if none has it.
    pub cell: AtomicU32,
    /// The number of the SMMU's event (Arm IHI 0070, 7.3).
    pub event: AtomicU32,
    /// 1 for a read, otherwise 0.
    pub read: AtomicU32,
}
