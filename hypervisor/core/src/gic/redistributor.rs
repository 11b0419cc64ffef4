// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The redistributors' frames, two for each CPU (Arm IHI 0069, 12.11).

use super::{PrivateMask, common_registers};
use crate::bus::{Access, Bus, Width};

/// The second frame, with the private interrupts.
const SECOND_FRAME: u64 = 0x1_0000;
const TYPER: u64 = 0x0008;
const TYPER_HIGH: u64 = 0x000c;
/// PLPIS and DirectLPI: a cell has no LPIs. VLPIS stays, because it tells how many frames there are.
const TYPER_MESSAGES: u64 = 0b1001;
const IDENTIFICATION: u64 = 0xffd0;

/// Which CPU, by its index in `redistributors` (the physical start of each CPU's frames), an address
/// belongs to, and its offset there. `frames` is the size of one CPU's frames.
#[inline]
pub fn redistributor_owner(
    address: u64,
    redistributors: &[u64],
    frames: u64,
) -> Option<(usize, u64)> {
    redistributors.iter().enumerate().find_map(|(index, start)| {
        let offset = address.wrapping_sub(*start);
        (offset < frames).then_some((index, offset))
    })
}

/// An access at `offset` of a CPU's frames. `own` says whether the CPU is the caller's; of others it
/// may read what tells which CPU the frames are for: Linux looks for its own from frame to frame.
///
/// The tables of LPIs, by which a redistributor writes memory, are nobody's to set, and neither is
/// the sleep of a redistributor: the management interrupt comes through it.
#[inline(always)]
pub fn redistributor(
    offset: u64,
    access: &Access,
    own: bool,
    private: PrivateMask,
    bus: &impl Bus,
) -> u64 {
    if let Some(offset) = offset.checked_sub(SECOND_FRAME) {
        // Not the frames of virtual LPIs.
        if !own || !(0x80..0x1000).contains(&offset) {
            return 0;
        }
        return common_registers::access(offset, access, &private, bus).unwrap_or(0);
    }
    let readable = match (offset, access.width) {
        (TYPER, Width::Word | Width::Double) | (TYPER_HIGH, Width::Word) => true,
        (IDENTIFICATION.., Width::Word) => true,
        // CTLR, IIDR, STATUSR, WAKER.
        (0x0000 | 0x0004 | 0x0010 | 0x0014, Width::Word) => own,
        _ => false,
    };
    if access.write.is_some() || !readable {
        return 0;
    }
    let value = bus.read(access.address, access.width);
    if offset == TYPER { value & !TYPER_MESSAGES } else { value }
}
