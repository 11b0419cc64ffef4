// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Accesses to the distributor's frame (Arm IHI 0069, 12.9).

use super::{SpiSet, common_registers};
use crate::bus::{Access, Bus, Width};

const TYPER: u64 = 0x0004;
/// MBIS, LPIS, DVIS: message-based interrupts, LPIs and virtual LPIs, which no cell has.
const TYPER_MESSAGES: u64 = 0b111 << 16;
const SET_PENDING: u64 = 0x0040;
const CLEAR_PENDING: u64 = 0x0048;
const ROUTES: core::ops::Range<u64> = 0x6100..0x7fe0;
const IDENTIFICATION: u64 = 0xffd0;

/// Returns whether the register at `offset` is a GICD_IROUTER, handled by [`route`].
#[inline]
pub const fn is_route(offset: u64) -> bool {
    ROUTES.start <= offset && offset < ROUTES.end
}

/// Makes an access at `offset` for a cell that owns `interrupts`. Returns the value read, or 0 for a
/// write. Bits of other interrupts read as zero and do not change.
#[inline(always)]
pub fn distributor(offset: u64, access: &Access, interrupts: &SpiSet, bus: &impl Bus) -> u64 {
    if (0x80..0x1000).contains(&offset) {
        // The set has no private interrupts (the first word): they are in the redistributors.
        return common_registers::access(offset, access, interrupts, bus).unwrap_or(0);
    }
    match (offset, access.write) {
        // CTLR, TYPER, IIDR, TYPER2, STATUSR: read-only, so the controller stays as at the launch.
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
        // Legacy registers, which are RES0 with affinity routing, extended ranges, and reserved offsets.
        _ => 0,
    }
}

/// Makes an access to a GICD_IROUTER. An interrupt can be routed only to a CPU of the caller; `is_own`
/// checks its affinity.
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
    let Some(value) = access.write else { return bus.read(access.address, access.width) };
    let _held;
    let mut wanted = value;
    if access.width == Width::Word {
        let Some(held) = common_registers::LOCK.take(bus.holder()) else { return 0 };
        _held = held;
        let shift = 8 * (access.address & 7);
        let mask = access.width.mask() << shift;
        wanted = bus.read(register, Width::Double) & !mask | (value << shift) & mask;
    }
    // This also refuses Interrupt_Routing_Mode (any CPU), because no affinity has that bit.
    if is_own(wanted) {
        bus.write(register, Width::Double, wanted);
    }
    0
}
