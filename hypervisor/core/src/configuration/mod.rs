// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Configurations: bytes become a [`Configuration`] only here, and only after every check of
//! `shape.rs`; a cell's becomes part of the machine only after every check of [`machine_checks`].
//!
//! The bytes must be a copy that nobody else can write ([`BlobBuffer`]): what is checked is then what
//! is used.

mod blob_checks;
#[cfg(feature = "std")]
pub mod build;
pub mod machine_checks;
#[cfg(feature = "std")]
mod refusal_text;
mod refused;

use zerocopy::{FromBytes, Immutable, KnownLayout};

use crate::format::{
    BlobHeader, CELL_MAGIC, Doorbell, InterruptGrant, MAXIMUM_BLOB_BYTES, MAXIMUM_DOORBELLS,
    MAXIMUM_INTERRUPTS, MAXIMUM_MEMORY_REGIONS, MAXIMUM_REGISTERS, MAXIMUM_SMCS, MemoryFlags,
    MemoryRegion, Platform, Refusal, RegisterGrant, SYSTEM_MAGIC, SmcGrant,
};
use crate::interface::{MAXIMUM_CPUS, REVISION};

pub(crate) use blob_checks::overlap;
use refused::ensure;

pub use refused::Refused;

/// A checked configuration, over the bytes that it was made of.
#[derive(Debug, Clone, Copy)]
pub struct Configuration<'a> {
    /// The start of the blob.
    pub header: &'a BlobHeader,
    /// Only in the system's.
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
    /// Neighbours' bells.
    pub doorbells: &'a [Doorbell],
}

/// Whose configuration is expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The machine and the root.
    System,
    /// One cell.
    Cell,
}

impl<'a> Configuration<'a> {
    /// Reads and checks a blob, as far as it can be checked alone.
    ///
    /// # Errors
    /// The first thing that is wrong with it.
    pub fn read(bytes: &'a [u8], kind: Kind) -> Result<Self, Refused> {
        let configuration = Self::split(bytes, kind)?;
        blob_checks::check(&configuration, kind)?;
        Ok(configuration)
    }

    /// The tables, whatever is in them.
    fn split(bytes: &'a [u8], kind: Kind) -> Result<Self, Refused> {
        let (header, mut rest) =
            BlobHeader::ref_from_prefix(bytes).map_err(|_| Refused::of(Refusal::Truncated))?;
        let wanted = match kind {
            Kind::System => SYSTEM_MAGIC,
            Kind::Cell => CELL_MAGIC,
        };
        let bytes = bytes.len();
        let said = header.bytes as usize;
        for (holds, refusal) in [
            (header.magic == wanted, Refusal::WrongMagic),
            (header.revision == REVISION, Refusal::WrongRevision),
            (bytes <= MAXIMUM_BLOB_BYTES, Refusal::TooLong),
            (said <= bytes, Refusal::Truncated),
            (said >= bytes, Refusal::TooLong),
            (header.reserved == 0, Refusal::ReservedNotZero),
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
        };
        ensure(rest.is_empty(), Refused::of(Refusal::TooLong))?;
        Ok(configuration)
    }

    /// Whether the cell may execute at this address of its own.
    pub fn executes(&self, guest: u64) -> bool {
        self.memory
            .iter()
            .any(|region| region.flags().contains(MemoryFlags::EXECUTE) && region.maps(guest))
    }

    /// Whether this SMC function is forwarded to the firmware.
    pub fn forwards(&self, function: u32) -> bool {
        self.smcs.iter().any(|range| (range.first..=range.last).contains(&function))
    }
}

/// The next `count` entries of `rest`.
fn table<'a, T: FromBytes + Immutable + KnownLayout>(
    rest: &mut &'a [u8],
    count: u32,
    most: usize,
) -> Result<&'a [T], Refused> {
    let count = count as usize;
    ensure(count <= most, Refused::of(Refusal::TooManyEntries))?;
    let (entries, after) = <[T]>::ref_from_prefix_with_elems(rest, count)
        .map_err(|_| Refused::of(Refusal::Truncated))?;
    *rest = after;
    Ok(entries)
}

impl MemoryRegion {
    /// Its flags; bits without a meaning were refused.
    pub const fn flags(&self) -> MemoryFlags {
        MemoryFlags::from_bits_truncate(self.flags)
    }

    /// Start and size, physically.
    pub(crate) const fn physical_range(&self) -> (u64, u64) {
        (self.physical, self.bytes)
    }

    /// Start and size, as the cell sees it.
    pub(crate) const fn guest_range(&self) -> (u64, u64) {
        (self.guest, self.bytes)
    }

    /// Whether the two have physical memory in common.
    pub const fn overlaps(&self, start: u64, bytes: u64) -> bool {
        blob_checks::overlap(self.physical_range(), (start, bytes))
    }

    /// Whether the cell sees some of it at this address.
    pub(crate) const fn maps(&self, guest: u64) -> bool {
        blob_checks::overlap(self.guest_range(), (guest, 1))
    }
}

/// Room for the copy of one blob, aligned as its entries need.
#[derive(Debug)]
#[repr(C, align(8))]
pub struct BlobBuffer([u8; MAXIMUM_BLOB_BYTES]);

impl BlobBuffer {
    /// Empty.
    pub const EMPTY: Self = Self([0; MAXIMUM_BLOB_BYTES]);

    /// Lets `copy` fill the first `bytes` of the buffer from where others can write, once.
    ///
    /// # Errors
    /// [`Refusal::TooLong`], before anything is copied.
    pub fn fill(&mut self, bytes: u64, copy: impl FnOnce(&mut [u8])) -> Result<&[u8], Refused> {
        let room = usize::try_from(bytes).ok().and_then(|bytes| self.0.get_mut(..bytes));
        let Some(room) = room else {
            return Err(Refused::of(Refusal::TooLong));
        };
        copy(room);
        Ok(room)
    }
}
