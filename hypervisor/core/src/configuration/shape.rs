// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a configuration must fulfil by itself, whatever the machine.

use super::{Configuration, Kind, Refused};
use crate::format::{
    InterruptFlags, MemoryFlags, MemoryRegion, Platform, Refusal, RegisterFlags, RegisterGrant,
};
use crate::gic::{DISTRIBUTOR_BYTES, FIRST_SPI, LAST_SPI, REDISTRIBUTOR_BYTES};
use crate::interface::{MAXIMUM_CPUS, PAGE_BYTES};

/// The bits of MPIDR_EL1 that name a CPU (Arm ARM, D19.2 MPIDR_EL1): Aff3, Aff2, Aff1, Aff0.
pub(crate) const AFFINITY: u64 = 0xff_00ff_ffff;

/// The end of the largest physical address space without 52-bit addresses.
const ADDRESS_END: u64 = 1 << 48;

pub(super) fn check(configuration: &Configuration<'_>, kind: Kind) -> Result<(), Refused> {
    name(&configuration.header.name)?;
    if let Some(platform) = configuration.platform {
        check_platform(platform)?;
    }
    cpus(configuration.cpus)?;
    memory(configuration.memory, kind)?;
    start(configuration, kind)?;
    interrupts(configuration)?;
    registers(configuration, kind)?;
    calls(configuration)
}

fn name(name: &[u8]) -> Result<(), Refused> {
    let length = name
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(name.len());
    let (name, filling) = name.split_at(length);
    let allowed = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
    if name.is_empty() || !name.iter().all(allowed) || filling.iter().any(|byte| *byte != 0) {
        return Err(Refused::of(Refusal::BadName));
    }
    Ok(())
}

fn check_platform(platform: &Platform) -> Result<(), Refused> {
    if platform.reserved != 0 {
        return Err(Refused::of(Refusal::ReservedNotZero));
    }
    // 64 KiB frames, two for each CPU, four where there are virtual LPIs (Arm IHI 0069, 12.1).
    let whole = |value: u64, of: u64| value.is_multiple_of(of);
    let right = whole(platform.distributor, DISTRIBUTOR_BYTES)
        && whole(platform.redistributors, DISTRIBUTOR_BYTES)
        && whole(platform.redistributor_bytes, REDISTRIBUTOR_BYTES)
        && platform.redistributor_bytes != 0
        && platform.redistributor_bytes <= 2 * REDISTRIBUTOR_BYTES * MAXIMUM_CPUS as u64
        && platform.distributor < ADDRESS_END
        && platform.redistributors < ADDRESS_END
        && !meet(
            (platform.distributor, DISTRIBUTOR_BYTES),
            (platform.redistributors, platform.redistributor_bytes),
        )
        && (platform.event_interrupt == 0 || is_spi(platform.event_interrupt));
    if right {
        Ok(())
    } else {
        Err(Refused::of(Refusal::PlatformShape))
    }
}

fn cpus(cpus: &[u64]) -> Result<(), Refused> {
    if cpus.is_empty() {
        return Err(Refused::of(Refusal::NoCpu));
    }
    for (index, cpu) in cpus.iter().enumerate() {
        if cpu & !AFFINITY != 0 {
            return Err(Refused::at(Refusal::CpuUnknown, index));
        }
        if cpus[..index].contains(cpu) {
            return Err(Refused::at(Refusal::CpuTwice, index));
        }
    }
    Ok(())
}

fn memory(memory: &[MemoryRegion], kind: Kind) -> Result<(), Refused> {
    for (index, region) in memory.iter().enumerate() {
        region_alone(region, kind).map_err(|refusal| Refused::at(refusal, index))?;
        for earlier in &memory[..index] {
            if meet((region.guest, region.bytes), (earlier.guest, earlier.bytes)) {
                return Err(Refused::at(Refusal::MemoryOverlapsGuest, index));
            }
            if meet(
                (region.physical, region.bytes),
                (earlier.physical, earlier.bytes),
            ) {
                return Err(Refused::at(Refusal::MemoryOverlapsPhysical, index));
            }
        }
    }
    Ok(())
}

fn region_alone(region: &MemoryRegion, kind: Kind) -> Result<(), Refusal> {
    let flags = MemoryFlags::from_bits(region.flags).ok_or(Refusal::ReservedNotZero)?;
    if region.reserved != 0 {
        return Err(Refusal::ReservedNotZero);
    }
    let whole = [region.physical, region.guest, region.bytes];
    if whole.iter().any(|value| !value.is_multiple_of(PAGE_BYTES)) {
        return Err(Refusal::MemoryUnaligned);
    }
    let fits = |start: u64| {
        start
            .checked_add(region.bytes)
            .is_some_and(|end| end <= ADDRESS_END)
    };
    if region.bytes == 0 || !fits(region.physical) || !fits(region.guest) {
        return Err(Refusal::MemoryRange);
    }
    let has = |flag| flags.contains(flag);
    let access = MemoryFlags::READ | MemoryFlags::WRITE | MemoryFlags::EXECUTE;
    let root_access = MemoryFlags::ROOT_READ | MemoryFlags::ROOT_WRITE;
    let contradictory = !flags.intersects(access)
        // Instructions are also read, by literal loads at least.
        || (has(MemoryFlags::EXECUTE) && !has(MemoryFlags::READ))
        || (has(MemoryFlags::DEVICE) && (has(MemoryFlags::EXECUTE) || has(MemoryFlags::LOADABLE)))
        || (has(MemoryFlags::SHARED) && has(MemoryFlags::LOADABLE))
        || (flags.intersects(root_access) && !has(MemoryFlags::SHARED))
        || (has(MemoryFlags::ROOT_WRITE) && has(MemoryFlags::WRITE))
        // What is loaded is the cell's own, and what is the root's own needs no loading.
        || (kind == Kind::System
            && (flags.intersects(root_access | MemoryFlags::LOADABLE | MemoryFlags::SHARED)
                || region.guest != region.physical));
    if contradictory {
        Err(Refusal::MemoryFlags)
    } else {
        Ok(())
    }
}

fn start(configuration: &Configuration<'_>, kind: Kind) -> Result<(), Refused> {
    let header = configuration.header;
    match kind {
        Kind::System
            if header.entry | header.argument != 0 || header.watchdog_milliseconds != 0 =>
        {
            Err(Refused::of(Refusal::ReservedNotZero))
        }
        Kind::System => Ok(()),
        Kind::Cell => {
            let holds = |region: &MemoryRegion| {
                let offset = header.entry.checked_sub(region.guest);
                region
                    .flags()
                    .contains(MemoryFlags::EXECUTE | MemoryFlags::LOADABLE)
                    && offset.is_some_and(|offset| offset < region.bytes)
            };
            if header.entry.is_multiple_of(4) && configuration.memory.iter().any(holds) {
                Ok(())
            } else {
                Err(Refused::of(Refusal::EntryOutside))
            }
        }
    }
}

fn interrupts(configuration: &Configuration<'_>) -> Result<(), Refused> {
    let grants = configuration.interrupts;
    for (index, grant) in grants.iter().enumerate() {
        if InterruptFlags::from_bits(grant.flags).is_none() {
            return Err(Refused::at(Refusal::ReservedNotZero, index));
        }
        if !is_spi(grant.number) {
            return Err(Refused::at(Refusal::InterruptRange, index));
        }
        if grants[..index]
            .iter()
            .any(|earlier| earlier.number == grant.number)
        {
            return Err(Refused::at(Refusal::InterruptTwice, index));
        }
    }
    Ok(())
}

fn registers(configuration: &Configuration<'_>, kind: Kind) -> Result<(), Refused> {
    let registers = configuration.registers;
    if kind == Kind::System && !registers.is_empty() {
        // The root has all bits that no cell has; there is nothing to say.
        return Err(Refused::of(Refusal::TooManyEntries));
    }
    for (index, register) in registers.iter().enumerate() {
        register_alone(register).map_err(|refusal| Refused::at(refusal, index))?;
        if let Some(before) = index
            .checked_sub(1)
            .and_then(|before| registers.get(before))
            && register.address < before.address + u64::from(before.width)
        {
            return Err(Refused::at(Refusal::RegisterOrder, index));
        }
        let own = |region: &MemoryRegion| {
            region.meets(register.address, register.width.into())
                || meet(
                    (region.guest, region.bytes),
                    (register.address, register.width.into()),
                )
        };
        if configuration.memory.iter().any(own) {
            return Err(Refused::at(Refusal::RegisterPlace, index));
        }
    }
    Ok(())
}

fn register_alone(register: &RegisterGrant) -> Result<(), Refusal> {
    if RegisterFlags::from_bits(register.flags).is_none() {
        return Err(Refusal::ReservedNotZero);
    }
    let bits = register.readable | register.writable;
    let right = matches!(register.width, 1 | 2 | 4 | 8)
        && register.address.is_multiple_of(register.width.into())
        && register.address < ADDRESS_END
        && bits != 0
        && (register.width == 8 || bits >> (8 * register.width) == 0);
    if right {
        Ok(())
    } else {
        Err(Refusal::RegisterShape)
    }
}

fn calls(configuration: &Configuration<'_>) -> Result<(), Refused> {
    for (index, range) in configuration.smcs.iter().enumerate() {
        // Of both calling widths (Arm DEN 0022, 5.1): PSCI is served here and never forwarded.
        let psci = |start: u32| range.first <= start + 0x1f && start <= range.last;
        if range.first > range.last || psci(0x8400_0000) || psci(0xC400_0000) {
            return Err(Refused::at(Refusal::SmcRange, index));
        }
    }
    for (index, doorbell) in configuration.doorbells.iter().enumerate() {
        if doorbell.reserved != 0 {
            return Err(Refused::at(Refusal::ReservedNotZero, index));
        }
        if !is_spi(doorbell.interrupt) {
            return Err(Refused::at(Refusal::DoorbellRange, index));
        }
    }
    Ok(())
}

const fn is_spi(number: u32) -> bool {
    FIRST_SPI <= number && number <= LAST_SPI
}

/// Whether two ranges (start, bytes) have an address in common.
pub(super) const fn meet(one: (u64, u64), other: (u64, u64)) -> bool {
    one.0 < other.0.saturating_add(other.1) && other.0 < one.0.saturating_add(one.1)
}
