// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Checks of the streams of an SMMU and of PCI functions.

use super::machine_checks::{Cells, MONITOR_ADDRESS_BITS, Machine, live};
use super::{Configuration, Kind, Refused, ensure, overlap, table};
use crate::format::{
    BlobHeader, Iommu, MemoryFlags, MemoryRegion, Refusal, RegisterGrant, StreamGrant,
};
use crate::interface::PAGE_BYTES;
use crate::smmu::{MAXIMUM_STREAM_BITS, REGISTER_BYTES};

/// The configuration space of one bus, which is also its alignment (PCI Express, 7.2.2).
const BUS_BYTES: u64 = 1 << 20;

/// Maximum number of streams in a range of a cell, because each costs two commands.
const MOST_OF_CELL: u32 = 8;

/// Takes the [`Iommu`] from the rest of a blob.
pub(super) fn iommu<'a>(
    rest: &mut &'a [u8],
    header: &BlobHeader,
    kind: Kind,
) -> Result<Option<&'a Iommu>, Refused> {
    let count = u32::from(kind == Kind::System && header.stream_count != 0);
    Ok(table(rest, count, 1)?.first())
}

/// Makes the checks that need no knowledge of the machine.
pub(super) fn check(configuration: &Configuration<'_>, kind: Kind) -> Result<(), Refused> {
    for (index, grant) in configuration.streams.iter().enumerate() {
        let end = grant.first.checked_add(grant.count);
        let valid = end.is_some_and(|end| end <= 1 << MAXIMUM_STREAM_BITS)
            && grant.count != 0
            && (kind == Kind::System || grant.count <= MOST_OF_CELL)
            && grant.function.is_multiple_of(PAGE_BYTES)
            && (grant.function == 0 || kind == Kind::Cell)
            && !configuration.streams[..index].iter().any(|earlier| earlier.meets(grant));
        ensure(valid, Refused::at(Refusal::StreamRange, index))?;
    }
    Ok(())
}

/// Checks the SMMU against the machine: its registers are no one's, and the configuration space is a device of the
/// root.
pub(super) fn check_system(
    system: &Configuration<'_>,
    machine: &Machine<'_>,
) -> Result<(), Refused> {
    let Some(iommu) = system.iommu else { return Ok(()) };
    let (registers, space) = (iommu.register_range(), iommu.space_range());
    let below = |(start, bytes): (u64, u64)| {
        start.checked_add(bytes).is_some_and(|end| end <= 1 << MONITOR_ADDRESS_BITS)
    };
    let own = &machine.hypervisor;
    let own = (own.start, own.end.saturating_sub(own.start));
    let controller = |range| {
        system.platform.is_some_and(|platform| {
            overlap(range, platform.distributor_range())
                || overlap(range, platform.cpu_frame_range())
        })
    };
    let device = |region: &MemoryRegion| {
        region.flags().contains(MemoryFlags::DEVICE)
            && region.physical <= space.0
            && space.0 + space.1 <= region.physical + region.bytes
    };
    let valid = registers.0 != 0
        && registers.0.is_multiple_of(REGISTER_BYTES / 2)
        && below(registers)
        && !overlap(registers, own)
        && !controller(registers)
        && !system.memory.iter().any(|region| region.overlaps(registers.0, registers.1))
        && (space.0 | space.1).is_multiple_of(BUS_BYTES)
        && below(space)
        && (space.1 == 0 || system.memory.iter().any(device));
    ensure(valid, Refused::of(Refusal::StreamRange))
}

/// Checks the streams of a new cell, and that it has no other access to the configuration space.
pub(super) fn check_cell(
    new: &Configuration<'_>,
    system: &Configuration<'_>,
    cells: &Cells<'_>,
) -> Result<(), Refused> {
    let space = system.iommu.map_or((0, 0), Iommu::space_range);
    for (index, region) in new.memory.iter().enumerate() {
        let free = !region.overlaps(space.0, space.1) && !overlap(region.guest_range(), space);
        ensure(free, Refused::at(Refusal::MemoryReserved, index))?;
    }
    for (index, register) in new.registers.iter().enumerate() {
        let page = |register: &RegisterGrant| register.address & !(PAGE_BYTES - 1);
        let free = !overlap((page(register), PAGE_BYTES), space);
        ensure(free, Refused::at(Refusal::RegisterLocation, index))?;
    }
    for (index, grant) in new.streams.iter().enumerate() {
        let within = |root: &StreamGrant| {
            root.first <= grant.first && grant.first + grant.count <= root.first + root.count
        };
        let function =
            grant.function == 0 || space.0 <= grant.function && grant.function - space.0 < space.1;
        let owned = function && system.streams.iter().any(within);
        ensure(owned, Refused::at(Refusal::StreamRange, index))?;
        for (number, cell) in live(cells) {
            let meets = |theirs: &StreamGrant| {
                theirs.meets(grant) || grant.function != 0 && theirs.function == grant.function
            };
            let owned = cell.streams.iter().any(meets);
            ensure(!owned, Refused::with(Refusal::StreamOwned, index, number))?;
        }
    }
    Ok(())
}

impl Iommu {
    /// Returns start and size of the SMMU's registers.
    pub const fn register_range(&self) -> (u64, u64) {
        (self.registers, REGISTER_BYTES)
    }

    /// Returns start and size of the configuration space of PCI functions.
    pub const fn space_range(&self) -> (u64, u64) {
        (self.configuration_space, self.configuration_space_bytes)
    }
}

impl StreamGrant {
    /// Returns whether both have a stream.
    pub fn meets(&self, other: &Self) -> bool {
        let range = |of: &Self| (of.first.into(), of.count.into());
        overlap(range(self), range(other))
    }

    /// Returns the StreamIDs.
    pub fn ids(&self) -> core::ops::Range<u32> {
        self.first..self.first + self.count
    }
}
