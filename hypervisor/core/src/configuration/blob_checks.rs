// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Checks of a configuration that need no knowledge of the machine.

use super::refused::ensure;
use super::{Checked, Configuration, Kind, Refused};
use crate::format::{
    COLOUR_BLOCK_BYTES, InterruptFlags, InterruptGrant, MemoryFlags, MemoryRegion, Platform,
    Refusal, RegisterFlags, RegisterGrant,
};
use crate::gic::{self, FIRST_SPI, LAST_SPI, REDISTRIBUTOR_BYTES};
use crate::gicv2;
use crate::interface::{MAXIMUM_CPUS, PAGE_BYTES};
use crate::restart::is_standby;

/// The bits of MPIDR_EL1 that name a CPU (Arm ARM, D19.2 MPIDR_EL1): Aff3, Aff2, Aff1, Aff0.
pub(crate) const AFFINITY: u64 = 0xff_00ff_ffff;

/// The end of the largest physical address space without 52-bit addresses.
const ADDRESS_END: u64 = 1 << 48;

pub(super) fn check(configuration: &Configuration<'_>, kind: Kind) -> Checked {
    name(&configuration.header.name)?;
    if let Some(platform) = configuration.platform {
        check_platform(platform)?;
    }
    cpus(configuration, kind)?;
    memory(configuration.memory, kind)?;
    start(configuration, kind)?;
    interrupts(configuration)?;
    registers(configuration, kind)?;
    #[cfg(feature = "smmu")]
    super::streams::check(configuration, kind)?;
    calls(configuration)
}

fn name(name: &[u8]) -> Checked {
    let length = name.iter().position(|byte| *byte == 0);
    let (name, padding) = name.split_at(length.unwrap_or(name.len()));
    let allowed = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
    let valid =
        !name.is_empty() && name.iter().all(allowed) && padding.iter().all(|byte| *byte == 0);
    ensure(valid, Refused::of(Refusal::BadName))
}

fn check_platform(platform: &Platform) -> Checked {
    // 64 KiB frames, two for each CPU, four where there are virtual LPIs (Arm IHI 0069, 12.1). Those of a GICv2 are
    // common to all CPUs (Arm IHI 0048, 4.1.3).
    let (frame, most) = match platform.version {
        2 => (gicv2::INTERFACE_BYTES, gicv2::INTERFACE_BYTES),
        3 => (REDISTRIBUTOR_BYTES, 2 * REDISTRIBUTOR_BYTES * MAXIMUM_CPUS as u64),
        _ => (1, 0),
    };
    let (distributor, frames) = (platform.distributor_range(), platform.cpu_frame_range());
    let aligned = |value: u64, of: u64| value.is_multiple_of(of);
    let valid = aligned(distributor.0, distributor.1)
        && aligned(frames.0, distributor.1)
        && aligned(frames.1, frame)
        && frames.1 != 0
        && frames.1 <= most
        && distributor.0 < ADDRESS_END
        && frames.0 < ADDRESS_END
        && !overlap(distributor, frames)
        && (platform.event_interrupt == 0 || is_spi(platform.event_interrupt));
    ensure(valid, Refused::of(Refusal::PlatformShape))
}

impl Platform {
    /// Returns start and size of the distributor.
    pub const fn distributor_range(&self) -> (u64, u64) {
        let bytes =
            if self.version == 2 { gicv2::DISTRIBUTOR_BYTES } else { gic::DISTRIBUTOR_BYTES };
        (self.distributor, bytes)
    }

    /// Returns start and size of the CPUs' frames.
    pub const fn cpu_frame_range(&self) -> (u64, u64) {
        (self.cpu_frames, self.cpu_frame_bytes)
    }
}

fn cpus(configuration: &Configuration<'_>, kind: Kind) -> Checked {
    let cpus = configuration.cpus;
    for (index, cpu) in cpus.iter().enumerate() {
        ensure(cpu & !AFFINITY == 0, Refused::at(Refusal::CpuUnknown, index))?;
        let twice = cpus[..index].contains(cpu);
        ensure(!twice, Refused::at(Refusal::CpuTwice, index))?;
    }
    ensure(
        !cpus.is_empty() || is_standby(configuration) && kind == Kind::Cell,
        Refused::of(Refusal::NoCpu),
    )
}

fn memory(memory: &[MemoryRegion], kind: Kind) -> Checked {
    for (index, region) in memory.iter().enumerate() {
        check_region(region, kind, index)?;
        for earlier in &memory[..index] {
            let overlaps = overlap(region.guest_range(), earlier.guest_range());
            ensure(!overlaps, Refused::at(Refusal::MemoryOverlapsGuest, index))?;
            ensure(!region.meets(earlier), Refused::at(Refusal::MemoryOverlapsPhysical, index))?;
        }
    }
    Ok(())
}

fn check_region(region: &MemoryRegion, kind: Kind, index: usize) -> Checked {
    let at = |refusal| Refused::at(refusal, index);
    let flags = MemoryFlags::from_bits(region.flags).ok_or(at(Refusal::ReservedNotZero))?;
    let unit = if region.colours == 0 { PAGE_BYTES } else { COLOUR_BLOCK_BYTES };
    let aligned = (region.physical | region.bytes).is_multiple_of(unit)
        && region.guest.is_multiple_of(PAGE_BYTES);
    ensure(aligned, at(Refusal::MemoryUnaligned))?;
    let end = |start: u64| start.checked_add(region.bytes);
    let fits = |start: u64| end(start).is_some_and(|end| end <= ADDRESS_END);
    let fits = region.bytes != 0 && fits(region.physical) && fits(region.guest);
    ensure(fits, at(Refusal::MemoryRange))?;
    let has = |flag| flags.contains(flag);
    let access = MemoryFlags::READ | MemoryFlags::WRITE | MemoryFlags::EXECUTE;
    let root_access = MemoryFlags::ROOT_READ | MemoryFlags::ROOT_WRITE;
    let for_shared = root_access | MemoryFlags::UNCACHED;
    let contradictory = !flags.intersects(access)
        // Instructions are also read, by literal loads at least.
        || (has(MemoryFlags::EXECUTE) && !has(MemoryFlags::READ))
        || (has(MemoryFlags::DEVICE) && (has(MemoryFlags::EXECUTE) || has(MemoryFlags::LOADABLE)))
        || (has(MemoryFlags::SHARED) && has(MemoryFlags::LOADABLE))
        || (flags.intersects(for_shared) && !has(MemoryFlags::SHARED))
        // A cell and the root both write only pages of messages, which neither caches.
        || (has(MemoryFlags::ROOT_WRITE | MemoryFlags::WRITE) && !has(MemoryFlags::UNCACHED))
        // Regions of the root are neither loaded nor shared, and are identity-mapped.
        || (region.colours != 0 && (has(MemoryFlags::DEVICE) || kind == Kind::System))
        || (kind == Kind::System
            && (flags.intersects(for_shared | MemoryFlags::LOADABLE | MemoryFlags::SHARED)
                || region.guest != region.physical));
    ensure(!contradictory, at(Refusal::MemoryFlags))
}

fn start(configuration: &Configuration<'_>, kind: Kind) -> Checked {
    let header = configuration.header;
    if kind == Kind::System {
        let unused = header.entry | header.argument == 0 && header.watchdog_milliseconds == 0;
        return ensure(unused, Refused::of(Refusal::ReservedNotZero));
    }
    let loaded = MemoryFlags::EXECUTE | MemoryFlags::LOADABLE;
    let holds =
        |region: &MemoryRegion| region.flags().contains(loaded) && region.maps(header.entry);
    let valid = header.entry.is_multiple_of(4) && configuration.memory.iter().any(holds);
    ensure(valid, Refused::of(Refusal::EntryOutside))
}

fn interrupts(configuration: &Configuration<'_>) -> Checked {
    let grants = configuration.interrupts;
    for (index, grant) in grants.iter().enumerate() {
        let at = |refusal| Refused::at(refusal, index);
        let known = InterruptFlags::from_bits(grant.flags).is_some();
        ensure(known, at(Refusal::ReservedNotZero))?;
        ensure(is_spi(grant.number), at(Refusal::InterruptRange))?;
        let same = |earlier: &InterruptGrant| earlier.number == grant.number;
        ensure(!grants[..index].iter().any(same), at(Refusal::InterruptTwice))?;
    }
    Ok(())
}

fn registers(configuration: &Configuration<'_>, kind: Kind) -> Checked {
    let registers = configuration.registers;
    // The root implicitly has all bits that no cell has.
    let permitted = kind == Kind::Cell || registers.is_empty();
    ensure(permitted, Refused::of(Refusal::TooManyEntries))?;
    let mut end = 0;
    for (index, register) in registers.iter().enumerate() {
        let at = |refusal| Refused::at(refusal, index);
        let known = RegisterFlags::from_bits(register.flags).is_some();
        ensure(known, at(Refusal::ReservedNotZero))?;
        ensure(has_shape(register), at(Refusal::RegisterShape))?;
        ensure(register.address >= end, at(Refusal::RegisterOrder))?;
        let range = (register.address, u64::from(register.width));
        let own = |region: &MemoryRegion| {
            overlap(region.physical_range(), range) || overlap(region.guest_range(), range)
        };
        let own = configuration.memory.iter().any(own);
        ensure(!own, at(Refusal::RegisterLocation))?;
        end = register.address + u64::from(register.width);
    }
    Ok(())
}

fn has_shape(register: &RegisterGrant) -> bool {
    let bits = register.readable | register.writable;
    matches!(register.width, 1 | 2 | 4 | 8)
        && register.address.is_multiple_of(register.width.into())
        && register.address < ADDRESS_END
        && bits != 0
        && (register.width == 8 || bits >> (8 * register.width) == 0)
}

fn calls(configuration: &Configuration<'_>) -> Checked {
    for (index, range) in configuration.smcs.iter().enumerate() {
        // The standard secure services of both calling widths (Arm DEN 0028, 5.1): the firmware would start a CPU at
        // EL2 (PSCI), call the caller there (SDEI) or share memory with it (FF-A). Those of random numbers are harmless.
        let standard = |start: u32| {
            let random = start + 0x50 <= range.first && range.last <= start + 0x5f;
            range.first <= start + 0xff_ffff && start <= range.last && !random
        };
        let valid = range.first <= range.last && !standard(0x8400_0000) && !standard(0xc400_0000);
        ensure(valid, Refused::at(Refusal::SmcRange, index))?;
    }
    for (index, doorbell) in configuration.doorbells.iter().enumerate() {
        let at = |refusal| Refused::at(refusal, index);
        ensure(doorbell.reserved == 0, at(Refusal::ReservedNotZero))?;
        ensure(is_spi(doorbell.interrupt), at(Refusal::DoorbellRange))?;
    }
    Ok(())
}

const fn is_spi(number: u32) -> bool {
    FIRST_SPI <= number && number <= LAST_SPI
}

/// Returns whether two ranges (start, bytes) overlap.
pub(crate) const fn overlap(one: (u64, u64), other: (u64, u64)) -> bool {
    one.0 < other.0.saturating_add(other.1) && other.0 < one.0.saturating_add(one.1)
}
