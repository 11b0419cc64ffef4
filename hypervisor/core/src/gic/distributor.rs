// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The distributor's frame, register by register (Arm IHI 0069, 12.9).

use super::{SpiSet, common_registers};
use crate::bounded_lock::lock_bounded;
use crate::bus::{Access, Bus, Width};

const TYPER: u64 = 0x0004;
/// Message-based interrupts, LPIs and virtual LPIs, which no cell has: MBIS, LPIS, DVIS.
const TYPER_MESSAGES: u64 = 0b111 << 16;
const SET_PENDING: u64 = 0x0040;
const CLEAR_PENDING: u64 = 0x0048;
const ROUTES: core::ops::Range<u64> = 0x6100..0x7fe0;
const IDENTIFICATION: u64 = 0xffd0;

/// Whether the register at `offset` is a GICD_IROUTER, which is [`route`]'s.
#[inline]
pub const fn is_route(offset: u64) -> bool {
    ROUTES.start <= offset && offset < ROUTES.end
}

/// An access at `offset` of a cell that owns `interrupts`: what it reads, 0 for a write. What it does
/// not own reads as zero, and writing it changes nothing.
#[inline(always)]
pub fn distributor(offset: u64, access: &Access, interrupts: &SpiSet, bus: &impl Bus) -> u64 {
    if (0x80..0x1000).contains(&offset) {
        // Of the private interrupts, the first word, the set has none: they are not here.
        return common_registers::access(offset, access, interrupts, bus).unwrap_or(0);
    }
    match (offset, access.write) {
        // CTLR, TYPER, IIDR, TYPER2, STATUSR: the controller stays as it was at the launch.
        (0..=0x10 | IDENTIFICATION.., None) if access.width == Width::Word => {
            let value = bus.read(access.address, Width::Word);
            if offset == TYPER { value & !TYPER_MESSAGES } else { value }
        }
        (SET_PENDING | CLEAR_PENDING, Some(value)) => {
            let number = value as u32 & 0x3ff;
            if interrupts.contains(number) {
                bus.write(access.address, Width::Word, number.into());
            }
            0
        }
        // The legacy registers, which affinity routing makes RES0, extended ranges, and holes.
        _ => 0,
    }
}

/// An access to a GICD_IROUTER: only to a CPU of the caller, of which `is_own` tells by its affinity.
#[inline]
pub fn route(
    offset: u64,
    access: &Access,
    interrupts: &SpiSet,
    is_own: impl FnOnce(u64) -> bool,
    bus: &impl Bus,
) -> u64 {
    let register = access.address & !7;
    let number = ((offset - 0x6000) / 8) as u32;
    if !interrupts.contains(number) || !matches!(access.width, Width::Word | Width::Double) {
        return 0;
    }
    let Some(value) = access.write else {
        return bus.read(access.address, access.width);
    };
    let _held;
    let mut wanted = value;
    if access.width == Width::Word {
        let Some(held) = lock_bounded(&common_registers::LOCK) else { return 0 };
        _held = held;
        let shift = 8 * (access.address & 7);
        let mask = access.width.mask() << shift;
        wanted = bus.read(register, Width::Double) & !mask | (value << shift) & mask;
    }
    // No CPU's affinity has Interrupt_Routing_Mode set, which means any CPU, also another cell's.
    if is_own(wanted) {
        bus.write(register, Width::Double, wanted);
    }
    0
}
