// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Parsing of configurations. A [`Configuration`] exists only after every check of `blob_checks.rs`; a
//! cell is created only after every check of [`machine_checks`].
//!
//! The bytes must be a private copy ([`BlobBuffer`]), so that they cannot change after the check.

mod blob_checks;
#[cfg(feature = "std")]
pub mod build;
mod coloured_region;
pub mod machine_checks;
#[cfg(feature = "std")]
mod refusal_text;
mod refused;
#[cfg(feature = "smmu")]
mod streams;

use zerocopy::{FromBytes, Immutable, KnownLayout};

use crate::format::{
    BlobHeader, CELL_MAGIC, Doorbell, InterruptGrant, MAXIMUM_BLOB_BYTES, MAXIMUM_DOORBELLS,
    MAXIMUM_INTERRUPTS, MAXIMUM_MEMORY_REGIONS, MAXIMUM_REGISTERS, MAXIMUM_SMCS, MemoryFlags,
    MemoryRegion, Platform, Refusal, RegisterGrant, SYSTEM_MAGIC, SmcGrant,
};
use crate::gic::SpiSet;
use crate::interface::{MAXIMUM_CPUS, REVISION};

pub(crate) use blob_checks::overlap;
use refused::{Checked, ensure};

pub use coloured_region::Part;
pub use refused::Refused;

/// A checked configuration that borrows its bytes.
#[derive(Debug, Clone, Copy)]
pub struct Configuration<'a> {
    /// The header of the blob.
    pub header: &'a BlobHeader,
    /// Only in the system's configuration.
    pub platform: Option<&'a Platform>,
    /// The affinity fields of MPIDR_EL1.
    pub cpus: &'a [u64],
    /// Memory and devices.
    pub memory: &'a [MemoryRegion],
    /// Shared peripheral interrupts.
    pub interrupts: &'a [InterruptGrant],
    /// Bits of shared registers, in ascending order of their addresses.
    pub registers: &'a [RegisterGrant],
    /// Forwarded SMC functions.
    pub smcs: &'a [SmcGrant],
    /// Doorbells of other cells.
    pub doorbells: &'a [Doorbell],
    /// Only in the system's configuration, if it has streams.
    #[cfg(feature = "smmu")]
    pub iommu: Option<&'a crate::format::Iommu>,
    /// Streams of the SMMU.
    #[cfg(feature = "smmu")]
    pub streams: &'a [crate::format::StreamGrant],
}

/// The kind of configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The machine and the root.
    System,
    /// One cell.
    Cell,
}

impl<'a> Configuration<'a> {
    /// Parses a blob and makes all checks that need no knowledge of the machine.
    ///
    /// # Errors
    /// The first check that fails.
    pub fn read(bytes: &'a [u8], kind: Kind) -> Result<Self, Refused> {
        let configuration = Self::split(bytes, kind)?;
        blob_checks::check(&configuration, kind)?;
        Ok(configuration)
    }

    /// Splits a blob into its tables without checking their entries.
    fn split(bytes: &'a [u8], kind: Kind) -> Result<Self, Refused> {
        let (header, mut rest) =
            BlobHeader::ref_from_prefix(bytes).map_err(|_| Refused::of(Refusal::Truncated))?;
        let magic = match kind {
            Kind::System => SYSTEM_MAGIC,
            Kind::Cell => CELL_MAGIC,
        };
        let bytes = bytes.len();
        let stated = header.bytes as usize;
        for (holds, refusal) in [
            (header.magic == magic, Refusal::WrongMagic),
            (header.revision == REVISION, Refusal::WrongRevision),
            (bytes <= MAXIMUM_BLOB_BYTES, Refusal::TooLong),
            (stated <= bytes, Refusal::Truncated),
            (stated >= bytes, Refusal::TooLong),
            (cfg!(feature = "smmu") || header.stream_count == 0, Refusal::ReservedNotZero),
        ] {
            ensure(holds, Refused::of(refusal))?;
        }
        let platform = match kind {
            Kind::System => Some(&table::<Platform>(&mut rest, 1, 1)?[0]),
            Kind::Cell => None,
        };
        let configuration = Self {
            header,
            platform,
            cpus: table(&mut rest, header.cpu_count, MAXIMUM_CPUS)?,
            memory: table(&mut rest, header.memory_count, MAXIMUM_MEMORY_REGIONS)?,
            interrupts: table(&mut rest, header.interrupt_count, MAXIMUM_INTERRUPTS)?,
            registers: table(&mut rest, header.register_count, MAXIMUM_REGISTERS)?,
            smcs: table(&mut rest, header.smc_count, MAXIMUM_SMCS)?,
            doorbells: table(&mut rest, header.doorbell_count, MAXIMUM_DOORBELLS)?,
            #[cfg(feature = "smmu")]
            iommu: streams::iommu(&mut rest, header, kind)?,
            #[cfg(feature = "smmu")]
            streams: table(&mut rest, header.stream_count, crate::format::MAXIMUM_STREAMS)?,
        };
        Ok(configuration)
    }

    /// Returns whether the cell may execute at this guest address.
    pub fn executes(&self, guest: u64) -> bool {
        self.memory
            .iter()
            .any(|region| region.flags().contains(MemoryFlags::EXECUTE) && region.maps(guest))
    }

    /// Returns the interrupt of a doorbell, if its owner, and so this set, declares it as one.
    pub fn doorbell(&self, index: u64, declared: &SpiSet) -> Option<u32> {
        let index = usize::try_from(index).ok()?;
        let number = self.doorbells.get(index)?.interrupt;
        declared.contains(number).then_some(number)
    }

    /// Returns whether this SMC function is forwarded to the firmware.
    pub fn forwards(&self, function: u32) -> bool {
        self.smcs.iter().any(|range| (range.first..=range.last).contains(&function))
    }
}

/// Takes the next `count` entries from `rest`.
fn table<'a, T: FromBytes + Immutable + KnownLayout>(
    rest: &mut &'a [u8],
    count: u32,
    maximum: usize,
) -> Result<&'a [T], Refused> {
    let count = count as usize;
    ensure(count <= maximum, Refused::of(Refusal::TooManyEntries))?;
    let truncated = Refused::of(Refusal::Truncated);
    let (entries, after) = rest.split_at_checked(count * size_of::<T>()).ok_or(truncated)?;
    *rest = after;
    <[T]>::ref_from_bytes(entries).map_err(|_| truncated)
}

impl MemoryRegion {
    /// Returns the flags; undefined bits were refused.
    pub const fn flags(&self) -> MemoryFlags {
        MemoryFlags::from_bits_truncate(self.flags)
    }

    /// Returns the physical start and the size.
    pub(crate) const fn physical_range(&self) -> (u64, u64) {
        (self.physical, self.bytes)
    }

    /// Returns the guest start and the size.
    pub(crate) const fn guest_range(&self) -> (u64, u64) {
        (self.guest, self.guest_bytes())
    }

    /// Returns whether the region's range, with the pages of other colours, overlaps this physical range.
    pub const fn overlaps(&self, start: u64, bytes: u64) -> bool {
        blob_checks::overlap(self.physical_range(), (start, bytes))
    }

    /// Returns whether the region contains this guest address.
    pub(crate) const fn maps(&self, guest: u64) -> bool {
        blob_checks::overlap(self.guest_range(), (guest, 1))
    }
}

/// A buffer for the copy of one blob, aligned for its entries.
#[derive(Debug)]
#[repr(C, align(8))]
pub struct BlobBuffer([u8; MAXIMUM_BLOB_BYTES]);

impl BlobBuffer {
    /// The zeroed buffer.
    pub const EMPTY: Self = Self([0; MAXIMUM_BLOB_BYTES]);

    /// Calls `copy` once to fill the first `bytes` of the buffer from memory that others can write.
    ///
    /// # Errors
    /// [`Refusal::TooLong`]; nothing is copied then.
    pub fn fill(&mut self, bytes: u64, copy: impl FnOnce(&mut [u8])) -> Result<&[u8], Refused> {
        let target = usize::try_from(bytes).ok().and_then(|bytes| self.0.get_mut(..bytes));
        let Some(target) = target else { return Err(Refused::of(Refusal::TooLong)) };
        copy(target);
        Ok(target)
    }
}
