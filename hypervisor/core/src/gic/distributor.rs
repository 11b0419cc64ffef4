// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The distributor's frame, register by register (Arm IHI 0069, 12.9).

use super::{DISTRIBUTOR_BYTES, Interrupts, OwnCpus, bank};
use crate::bus::{Access, Bus, Forbidden, Width};
use crate::lock::hold;

const TYPER: u64 = 0x0004;
/// Message-based interrupts, LPIs and virtual LPIs, which no cell has: MBIS, LPIS, DVIS.
const TYPER_MESSAGES: u64 = 0b111 << 16;
const SET_PENDING: u64 = 0x0040;
const CLEAR_PENDING: u64 = 0x0048;
const ROUTES: core::ops::Range<u64> = 0x6100..0x7fe0;
const IDENTIFICATION: u64 = 0xffd0;

/// An access `base` + offset of a cell that owns `interrupts` and the CPUs `cpus` (affinities, or the
/// caller by whom they are looked up).
/// What it does not own reads as zero, and writing it changes nothing.
///
/// # Errors
/// An access outside the frame, or of a width that no register there has.
#[inline]
pub fn distributor(
    base: u64,
    access: &Access,
    interrupts: &Interrupts,
    cpus: &(impl OwnCpus + ?Sized),
    bus: &impl Bus,
) -> Result<u64, Forbidden> {
    let offset = access.address.wrapping_sub(base);
    if offset >= DISTRIBUTOR_BYTES {
        return Err(Forbidden);
    }
    if (0x80..0x1000).contains(&offset) {
        // Of the private interrupts, the first word, the set has none: they are not here.
        return Ok(bank::access(offset, access, interrupts, bus).unwrap_or(0));
    }
    if ROUTES.contains(&offset) {
        return Ok(route(base, access, interrupts, cpus, bus));
    }
    match (offset, access.write) {
        // CTLR, TYPER, IIDR, TYPER2, STATUSR: the controller stays as it was at the launch.
        (0..=0x10, None) if access.width == Width::Word => {
            let value = bus.read(access.address, Width::Word);
            Ok(if offset == TYPER {
                value & !TYPER_MESSAGES
            } else {
                value
            })
        }
        (IDENTIFICATION.., None) if access.width == Width::Word => {
            Ok(bus.read(access.address, Width::Word))
        }
        (SET_PENDING | CLEAR_PENDING, Some(value)) => {
            let number = value as u32 & 0x3ff;
            if interrupts.contains(number) {
                bus.write(access.address, Width::Word, number.into());
            }
            Ok(0)
        }
        // The legacy registers, which affinity routing makes RES0, extended ranges, and holes.
        _ => Ok(0),
    }
}

/// GICD_IROUTER: only to a CPU of the caller.
fn route(
    base: u64,
    access: &Access,
    interrupts: &Interrupts,
    cpus: &(impl OwnCpus + ?Sized),
    bus: &impl Bus,
) -> u64 {
    let register = access.address & !7;
    let number = ((register - base - 0x6000) / 8) as u32;
    if !interrupts.contains(number) || !matches!(access.width, Width::Word | Width::Double) {
        return 0;
    }
    let Some(value) = access.write else {
        return bus.read(access.address, access.width);
    };
    let Some(_held) = hold(&bank::LOCK) else {
        return 0;
    };
    let shift = 8 * (access.address & 7);
    let mask = access.width.mask() << shift;
    let kept = if mask == u64::MAX {
        0
    } else {
        bus.read(register, Width::Double) & !mask
    };
    let wanted = kept | (value << shift) & mask;
    // No CPU's affinity has Interrupt_Routing_Mode set, which means any CPU, also another cell's.
    if cpus.has(wanted) {
        bus.write(register, Width::Double, wanted);
    }
    0
}
