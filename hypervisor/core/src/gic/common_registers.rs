// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The registers that the distributor and the redistributors' second frames have in common: some bits
//! per interrupt, at the same offsets in both (Arm IHI 0069, 12.8 and 12.10).

use super::{BEST_PRIORITY, Ownership};
use crate::bounded_lock::HolderLock;
use crate::bus::{Access, Bus, Width};

/// Lock for read-modify-write of registers in which several cells have bits, one for the whole
/// controller. It is held for two accesses to a register.
pub static LOCK: HolderLock = HolderLock::new();

// `priority` looks at bit 7 of each byte.
const _: () = assert!(BEST_PRIORITY == 0x80);

const PRIORITIES: core::ops::Range<u64> = 0x400..0x800;

/// Makes an access to such a register at `offset` of its frame. Returns `None` for other offsets.
#[inline(always)]
pub(crate) fn access<O: Ownership>(
    offset: u64,
    access: &Access,
    owned: &O,
    bus: &impl Bus,
) -> Option<u64> {
    let word = (offset as u32 & 0x7f) / 4;
    // ISENABLER, ICENABLER, ISPENDR, ICPENDR, ISACTIVER, ICACTIVER: only a written 1 has an effect. They
    // are used most, so they come first.
    if (0x100..0x400).contains(&offset) && access.width == Width::Word {
        let mask = owned.word(word);
        let Some(value) = access.write else { return Some(read(access, mask, bus)) };
        let value = value as u32 & mask;
        if value != 0 {
            bus.write(access.address, Width::Word, value.into());
        }
        return Some(0);
    }
    if PRIORITIES.contains(&offset) {
        return Some(priority(offset, access, owned, bus));
    }
    if access.width != Width::Word {
        // Only the priorities (and IROUTER) can be accessed with other widths.
        return None;
    }
    match offset >> 7 {
        // GICx_IGROUPR: interrupts of a cell stay in group 1; a group 0 interrupt would be taken to EL2.
        1 => Some(read(access, owned.word(word), bus)),
        // ICFGR, two registers for each word of the others.
        0x18 | 0x19 => {
            let mask = owned.pairs((offset as u32 & 0xff) * 4);
            match access.write {
                Some(value) => {
                    modify(access.address, Width::Word, value, mask.into(), bus);
                    Some(0)
                }
                None => Some(read(access, mask, bus)),
            }
        }
        // IGRPMODR and NSACR belong to the secure state; all cells are non-secure.
        0x1a | 0x1c | 0x1d => Some(0),
        _ => None,
    }
}

#[inline(always)]
fn read(access: &Access, mask: u32, bus: &impl Bus) -> u64 {
    // The result of a write to a read-only register is not used.
    if mask == 0 || access.write.is_some() {
        return 0;
    }
    bus.read(access.address, access.width) & u64::from(mask)
}

/// Changes only the bits of `mask`.
#[inline(always)]
pub(super) fn modify(address: u64, width: Width, value: u64, mask: u64, bus: &impl Bus) {
    if mask == 0 {
        return;
    }
    let Some(_held) = LOCK.take(bus.holder()) else { return };
    let kept = bus.read(address, width) & !mask;
    bus.write(address, width, kept | value & mask);
}

/// Makes an access to GICx_IPRIORITYR: one byte per interrupt, by bytes or by words.
#[inline(always)]
fn priority<O: Ownership>(offset: u64, access: &Access, owned: &O, bus: &impl Bus) -> u64 {
    let first = (offset - PRIORITIES.start) as u32;
    let word = owned.bytes(first & !3);
    let (mask, whole) = match access.width {
        Width::Word => (word, u32::MAX),
        Width::Byte => (word >> (8 * (first & 3)) & 0xff, 0xff),
        _ => return 0,
    };
    if mask == 0 {
        return 0;
    }
    let whole = mask == whole;
    let mask = u64::from(mask);
    let Some(value) = access.write else { return bus.read(access.address, access.width) & mask };
    // Bit 7 of each byte with a higher priority than BEST_PRIORITY; such bytes become 0x80.
    let better = !value & 0x8080_8080;
    let clamped = value & !(better - (better >> 7)) | better;
    if whole {
        bus.write(access.address, access.width, clamped);
        return 0;
    }
    // A part of a word. Each byte is a register of its own, so no read is needed. A loop would take twice
    // as many instructions.
    macro_rules! write_owned {
        ($($byte:literal)*) => {$(
            if mask >> (8 * $byte) & 1 != 0 {
                bus.write(access.address + $byte, Width::Byte, clamped >> (8 * $byte) & 0xff);
            }
        )*};
    }
    write_owned!(0 1 2 3);
    0
}
