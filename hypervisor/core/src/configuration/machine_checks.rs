// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Checks of a configuration against this machine and the existing cells.

use core::ops::Range;

use super::{Checked, Configuration, Refused, ensure, overlap};
use crate::format::{
    InterruptGrant, MAXIMUM_REGISTERS, MemoryFlags, MemoryRegion, Refusal, RegisterFlags,
    RegisterGrant, SmcGrant,
};
use crate::interface::{MAXIMUM_CELLS, PAGE_BYTES, ROOT};

/// Number of address bits that the monitor maps for itself: it wipes memory and accesses shared registers.
pub const MONITOR_ADDRESS_BITS: u32 = 39;

/// The owner of a function of the firmware (Arm DEN 0028, 2.5); 0 is the architecture.
const OWNER: u32 = 0x3f << 24;

/// The properties of the machine, read at the launch.
#[derive(Debug, Clone)]
pub struct Machine<'a> {
    /// Physical range of the hypervisor's memory.
    pub hypervisor: Range<u64>,
    /// Affinities of the CPUs that entered.
    pub mpidrs: &'a [u64],
    /// One more than the largest interrupt number of the distributor.
    pub interrupt_end: u32,
    /// Bits of a physical address (ID_AA64MMFR0_EL1.PARange, limited to what the tables support).
    pub address_bits: u32,
}

/// Existing cells by number; entry 0 is unused, because the root has the system's configuration.
pub type Cells<'a> = [Option<Configuration<'a>>; MAXIMUM_CELLS];

/// Checks the system's configuration at the launch.
///
/// # Errors
/// The first check that fails.
pub fn check_system(system: &Configuration<'_>, machine: &Machine<'_>) -> Checked {
    // The order is that of the header, so that an index names the same CPU everywhere.
    if system.cpus != machine.mpidrs {
        let differs = |(one, other)| one != other;
        let index = system.cpus.iter().zip(machine.mpidrs).position(differs);
        let shorter = system.cpus.len().min(machine.mpidrs.len());
        return Err(Refused::at(Refusal::CpuUnknown, index.unwrap_or(shorter)));
    }
    for (index, region) in system.memory.iter().enumerate() {
        let at = |refusal| Refused::at(refusal, index);
        ensure(!reserved(region, system, machine), at(Refusal::MemoryReserved))?;
        ensure(reachable(region, machine), at(Refusal::MemoryRange))?;
    }
    interrupts_exist(system, machine)?;
    #[cfg(feature = "smmu")]
    super::streams::check_system(system, machine)?;
    Ok(())
}

fn interrupts_exist(of: &Configuration<'_>, machine: &Machine<'_>) -> Checked {
    let missing = |grant: &InterruptGrant| grant.number >= machine.interrupt_end;
    let first = of.interrupts.iter().position(missing);
    first.map_or(Ok(()), |index| Err(Refused::at(Refusal::InterruptRange, index)))
}

/// Checks the configuration of a new cell against the root and the existing `cells`.
///
/// # Errors
/// The first check that fails.
pub fn check_cell(
    new: &Configuration<'_>,
    system: &Configuration<'_>,
    machine: &Machine<'_>,
    cells: &Cells<'_>,
) -> Checked {
    let named = |other: &Configuration<'_>| new.header.name == other.header.name;
    ensure(!named(system), Refused::with(Refusal::BadName, 0, ROOT))?;
    cpus(new, system, cells)?;
    for (index, region) in new.memory.iter().enumerate() {
        memory_of_root(region, system, machine).map_err(|refusal| Refused::at(refusal, index))?;
    }
    for (index, register) in new.registers.iter().enumerate() {
        let owned = register_of_root(register, system);
        ensure(owned, Refused::at(Refusal::RegisterLocation, index))?;
    }
    let event = system.platform.map_or(0, |platform| platform.event_interrupt);
    interrupts_exist(new, machine)?;
    for (index, grant) in new.interrupts.iter().enumerate() {
        let owned = grant.number == event || has_interrupt(system, grant.number);
        ensure(!owned, Refused::with(Refusal::InterruptOwned, index, ROOT))?;
    }
    for (index, calls) in new.smcs.iter().enumerate() {
        // Those of the architecture (owner 0) concern only the caller's CPU.
        let owned = |own: &SmcGrant| {
            own.first & OWNER != 0 && own.first <= calls.last && calls.first <= own.last
        };
        let refused = Refused::with(Refusal::SmcRange, index, ROOT);
        ensure(!system.smcs.iter().any(owned), refused)?;
    }
    #[cfg(feature = "smmu")]
    super::streams::check_cell(new, system, cells)?;
    for (number, cell) in live(cells) {
        ensure(!named(cell), Refused::with(Refusal::BadName, 0, number))?;
        pair(new, cell, number)?;
    }
    let register_counts = live(cells).map(|(_, cell)| cell.registers.len());
    let fits = register_counts.sum::<usize>() + new.registers.len() <= MAXIMUM_REGISTERS;
    ensure(fits, Refused::of(Refusal::TooManyShared))
}

/// Returns the existing cells with their numbers.
pub fn live<'c, 'a>(cells: &'c Cells<'a>) -> impl Iterator<Item = (u32, &'c Configuration<'a>)> {
    let numbered = cells.iter().enumerate().skip(ROOT as usize + 1);
    numbered.filter_map(|(number, cell)| Some((number as u32, cell.as_ref()?)))
}

fn owner(cpu: u64, cells: &Cells<'_>) -> u32 {
    let found = live(cells).find(|(_, cell)| cell.cpus.contains(&cpu));
    found.map_or(ROOT, |(number, _)| number)
}

fn cpus(new: &Configuration<'_>, system: &Configuration<'_>, cells: &Cells<'_>) -> Checked {
    for (index, cpu) in new.cpus.iter().enumerate() {
        ensure(system.cpus.contains(cpu), Refused::at(Refusal::CpuUnknown, index))?;
        let owner = owner(*cpu, cells);
        ensure(owner == ROOT, Refused::with(Refusal::CpuOwned, index, owner))?;
    }
    let left = |cpu: &u64| !new.cpus.contains(cpu) && owner(*cpu, cells) == ROOT;
    let last = new.cpus.len().saturating_sub(1);
    ensure(system.cpus.iter().any(left), Refused::with(Refusal::CpuOwned, last, ROOT))
}

/// Returns whether a region overlaps the hypervisor's memory or the interrupt controller.
fn reserved(region: &MemoryRegion, system: &Configuration<'_>, machine: &Machine<'_>) -> bool {
    let own = &machine.hypervisor;
    region.overlaps(own.start, own.end.saturating_sub(own.start))
        || is_controller(region.physical_range(), system)
}

fn reachable(region: &MemoryRegion, machine: &Machine<'_>) -> bool {
    let end = 1_u64.checked_shl(machine.address_bits).unwrap_or(u64::MAX);
    region.physical + region.bytes <= end && region.guest + region.bytes <= end
}

/// Checks that every byte is in a region of the root, of the same kind and with at least the same
/// rights. Memory that the system's configuration does not list may be an alias and is never granted.
fn memory_of_root(
    region: &MemoryRegion,
    system: &Configuration<'_>,
    machine: &Machine<'_>,
) -> Result<(), Refusal> {
    let wiped = !region.flags().contains(MemoryFlags::DEVICE);
    let mapped = region.physical + region.bytes <= 1 << MONITOR_ADDRESS_BITS;
    if !reachable(region, machine) || wiped && !mapped {
        return Err(Refusal::MemoryRange);
    }
    // Accesses to the guest addresses of the controller must trap.
    if reserved(region, system, machine) || is_controller(region.guest_range(), system) {
        return Err(Refusal::MemoryReserved);
    }
    let rights = MemoryFlags::READ | MemoryFlags::WRITE | MemoryFlags::EXECUTE;
    let end = region.physical + region.bytes;
    let mut covered = region.physical;
    while covered < end {
        let holds = |root: &&MemoryRegion| root.overlaps(covered, 1);
        let Some(root) = system.memory.iter().find(holds) else {
            return Err(Refusal::MemoryNotRoot);
        };
        let (wanted, available) = (region.flags(), root.flags());
        if wanted.contains(MemoryFlags::DEVICE) != available.contains(MemoryFlags::DEVICE)
            || !available.contains(wanted & rights)
        {
            return Err(Refusal::MemoryFlags);
        }
        covered = root.physical + root.bytes;
    }
    Ok(())
}

/// Returns whether a range (start, bytes) overlaps the interrupt controller.
fn is_controller(range: (u64, u64), system: &Configuration<'_>) -> bool {
    system.platform.is_some_and(|platform| {
        overlap(range, platform.distributor_range()) || overlap(range, platform.cpu_frame_range())
    })
}

/// Returns whether the page of a shared register is a device page of the root.
fn register_of_root(register: &RegisterGrant, system: &Configuration<'_>) -> bool {
    let wanted = MemoryFlags::DEVICE | MemoryFlags::READ | MemoryFlags::WRITE;
    let mapped = register.address >> MONITOR_ADDRESS_BITS == 0;
    let holds =
        |root: &MemoryRegion| root.flags().contains(wanted) && holds_page_of(root, register);
    mapped && system.memory.iter().any(holds)
}

/// Checks a new cell against an existing one.
fn pair(new: &Configuration<'_>, cell: &Configuration<'_>, number: u32) -> Checked {
    for (index, region) in new.memory.iter().enumerate() {
        let with = |refusal| Refused::with(refusal, index, number);
        for theirs in cell.memory {
            check_regions(region, theirs).map_err(with)?;
        }
        let holds = |register: &RegisterGrant| holds_page_of(region, register);
        ensure(!cell.registers.iter().any(holds), with(Refusal::MemoryOwned))?;
    }
    for (index, grant) in new.interrupts.iter().enumerate() {
        let owned = has_interrupt(cell, grant.number);
        ensure(!owned, Refused::with(Refusal::InterruptOwned, index, number))?;
    }
    for (index, register) in new.registers.iter().enumerate() {
        let with = |refusal| Refused::with(refusal, index, number);
        let holds = |theirs: &MemoryRegion| holds_page_of(theirs, register);
        ensure(!cell.memory.iter().any(holds), with(Refusal::RegisterLocation))?;
        for theirs in cell.registers {
            check_bits(register, theirs).map_err(with)?;
        }
    }
    Ok(())
}

fn has_interrupt(cell: &Configuration<'_>, number: u32) -> bool {
    cell.interrupts.iter().any(|own| own.number == number)
}

/// Checks two regions: overlapping memory must be the same shared region, with at most one writer.
fn check_regions(one: &MemoryRegion, other: &MemoryRegion) -> Result<(), Refusal> {
    if !one.meets(other) {
        return Ok(());
    }
    let both = one.flags() & other.flags();
    let same = one.physical_range() == other.physical_range() && one.colours == other.colours;
    if !both.contains(MemoryFlags::SHARED) || !same {
        return Err(Refusal::MemoryOwned);
    }
    let root_access = MemoryFlags::ROOT_READ | MemoryFlags::ROOT_WRITE;
    let kind = MemoryFlags::DEVICE | MemoryFlags::UNCACHED | root_access;
    if one.flags() & kind != other.flags() & kind {
        return Err(Refusal::MemoryFlags);
    }
    if both.contains(MemoryFlags::WRITE) {
        return Err(Refusal::MemoryTwoWriters);
    }
    Ok(())
}

fn holds_page_of(region: &MemoryRegion, register: &RegisterGrant) -> bool {
    region.overlaps(register.address & !(PAGE_BYTES - 1), PAGE_BYTES)
}

/// Checks a register of two cells: width and behaviour must be equal, and no bit may belong to both.
fn check_bits(one: &RegisterGrant, other: &RegisterGrant) -> Result<(), Refusal> {
    let range = |of: &RegisterGrant| (of.address, of.width.into());
    if !overlap(range(one), range(other)) {
        return Ok(());
    }
    let (flags, theirs) = (one.flags(), other.flags());
    if one.address != other.address
        || one.width != other.width
        || flags.contains(RegisterFlags::WRITE_ACTS) != theirs.contains(RegisterFlags::WRITE_ACTS)
    {
        return Err(Refusal::RegisterDiffers);
    }
    let both_read = flags & theirs & RegisterFlags::SHARED_READ == RegisterFlags::SHARED_READ;
    let visible = (one.readable & (other.readable | other.writable))
        | (other.readable & (one.readable | one.writable));
    if one.writable & other.writable != 0 || (visible != 0 && !both_read) {
        return Err(Refusal::RegisterBitsOwned);
    }
    Ok(())
}
