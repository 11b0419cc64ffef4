// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A shared interrupt that changes its owner: nothing of what the last one did with it stays.

use super::common_registers::modify;
use crate::bus::{Bus, Width};

const CONTROL: u64 = 0x000;
/// GICD_CTLR.RWP (Arm IHI 0069, 12.9.4).
const WRITE_PENDING: u64 = 1 << 31;
/// Offsets of the registers with one bit for each interrupt.
const GROUP: u64 = 0x080;
const CLEAR_ENABLE: u64 = 0x180;
const CLEAR_PENDING: u64 = 0x280;
const CLEAR_ACTIVE: u64 = 0x380;
const PRIORITY: u64 = 0x400;
/// GICD_ICFGR (12.9.9): two bits for each interrupt, of which the upper one says edge.
const CONFIGURATION: u64 = 0xc00;
const ROUTE: u64 = 0x6000;
/// Half way, as Linux has it for every interrupt.
pub const ORDINARY_PRIORITY: u64 = 0xa0;

/// Whether a shared interrupt is triggered by an edge; else by a level.
pub fn is_edge_triggered(base: u64, number: u32, bus: &impl Bus) -> bool {
    let (word, shift) = (u64::from(number / 16 * 4), number % 16 * 2 + 1);
    bus.read(base + CONFIGURATION + word, Width::Word) >> shift & 1 != 0
}

/// Disables the interrupt, makes it neither pending nor active, and gives it to group 1, an ordinary
/// priority, this trigger and the CPU with this affinity. `base` is the distributor's; the interrupt is a
/// shared one that it has.
pub fn change_owner(base: u64, number: u32, edge: bool, cpu: u64, bus: &impl Bus) {
    let word = u64::from(number / 32 * 4);
    let bit = 1 << (number % 32);
    bus.write(base + CLEAR_ENABLE + word, Width::Word, bit);
    // It can still come until this is 0; the bound is against a controller that never answers.
    for _ in 0..1000 {
        if bus.read(base + CONTROL, Width::Word) & WRITE_PENDING == 0 {
            break;
        }
    }
    bus.write(base + CLEAR_PENDING + word, Width::Word, bit);
    bus.write(base + CLEAR_ACTIVE + word, Width::Word, bit);
    modify(base + GROUP + word, Width::Word, bit, bit, bus);
    let (pair, shift) = (u64::from(number / 16 * 4), number % 16 * 2 + 1);
    let trigger = u64::from(edge) << shift;
    modify(base + CONFIGURATION + pair, Width::Word, trigger, 1 << shift, bus);
    bus.write(base + PRIORITY + u64::from(number), Width::Byte, ORDINARY_PRIORITY);
    bus.write(base + ROUTE + 8 * u64::from(number), Width::Double, cpu);
}
