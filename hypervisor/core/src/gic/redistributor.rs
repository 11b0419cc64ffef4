// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Accesses to the redistributors' frames, two per CPU (Arm IHI 0069, 12.11).

use super::{PrivateMask, common_registers};
use crate::bus::{Access, Bus, Width};

/// The second frame, with the private interrupts.
const SECOND_FRAME: u64 = 0x1_0000;
const TYPER: u64 = 0x0008;
const TYPER_HIGH: u64 = 0x000c;
/// PLPIS and DirectLPI: a cell has no LPIs. VLPIS stays visible, because it defines the number of frames.
const TYPER_MESSAGES: u64 = 0b1001;
const IDENTIFICATION: u64 = 0xffd0;

/// Returns the CPU that an address belongs to, by its index in `starts` (the physical start of
/// each CPU's frames), and the offset there. `frames` is the size of one CPU's frames.
#[inline]
pub fn redistributor_owner(address: u64, starts: &[u64], frames: u64) -> Option<(usize, u64)> {
    starts.iter().enumerate().find_map(|(index, start)| {
        let offset = address.wrapping_sub(*start);
        (offset < frames).then_some((index, offset))
    })
}

/// Makes an access at `offset` of a CPU's frames. `own` is true if the CPU belongs to the caller. Of other
/// CPUs' frames it may read only the identification, because Linux searches all frames for its own.
///
/// No cell may write the tables of LPIs, by which a redistributor writes memory, or put a redistributor to
/// sleep, which would block the management interrupt.
#[inline(always)]
pub fn redistributor(
    offset: u64,
    access: &Access,
    own: bool,
    private: PrivateMask,
    bus: &impl Bus,
) -> u64 {
    if let Some(offset) = offset.checked_sub(SECOND_FRAME) {
        // The frames of virtual LPIs are not accessible.
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
