// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Resets a shared interrupt that changes its owner, and routes those of a CPU that does.

use super::common_registers::modify;
use crate::bus::{Bus, Width};

const CONTROL: u64 = 0x000;
/// GICD_CTLR.RWP (Arm IHI 0069, 12.9.4).
const WRITE_PENDING: u64 = 1 << 31;
/// Offsets of the registers with one bit per interrupt.
const GROUP: u64 = 0x080;
const CLEAR_ENABLE: u64 = 0x180;
const CLEAR_PENDING: u64 = 0x280;
const CLEAR_ACTIVE: u64 = 0x380;
const PRIORITY: u64 = 0x400;
/// GICD_ICFGR (12.9.9): two bits per interrupt; the upper one is set for edge-triggered.
const CONFIGURATION: u64 = 0xc00;
const ROUTE: u64 = 0x6000;
/// Linux's priority for every interrupt.
pub const ORDINARY_PRIORITY: u64 = 0xa0;

/// Returns whether a shared interrupt is edge-triggered, otherwise it is level-triggered.
pub fn is_edge_triggered(base: u64, number: u32, bus: &impl Bus) -> bool {
    let (word, shift) = (u64::from(number / 16 * 4), number % 16 * 2 + 1);
    bus.read(base + CONFIGURATION + word, Width::Word) >> shift & 1 != 0
}

/// Disables the interrupt, clears its pending and active states, and sets group 1, the ordinary priority,
/// this trigger and the route to the CPU with this affinity. `base` is the distributor's; the interrupt
/// must be one of its SPIs.
pub fn change_owner(base: u64, number: u32, edge: bool, cpu: u64, bus: &impl Bus) {
    reset_interrupt(base, number, edge, bus);
    let (group, bit) = (base + GROUP + u64::from(number / 32 * 4), 1 << (number % 32));
    modify(group, Width::Word, bit, bit, bus);
    bus.write(base + ROUTE + 8 * u64::from(number), Width::Double, cpu);
}

/// Disables the interrupt, clears its pending and active states, and sets the ordinary priority and this trigger.
pub(crate) fn reset_interrupt(base: u64, number: u32, edge: bool, bus: &impl Bus) {
    let word = u64::from(number / 32 * 4);
    let bit = 1 << (number % 32);
    bus.write(base + CLEAR_ENABLE + word, Width::Word, bit);
    // The interrupt can still be taken until this is 0. The loop is bounded.
    for _ in 0..1000 {
        if bus.read(base + CONTROL, Width::Word) & WRITE_PENDING == 0 {
            break;
        }
    }
    bus.write(base + CLEAR_PENDING + word, Width::Word, bit);
    bus.write(base + CLEAR_ACTIVE + word, Width::Word, bit);
    let (pair, shift) = (u64::from(number / 16 * 4), number % 16 * 2 + 1);
    let trigger = u64::from(edge) << shift;
    modify(base + CONFIGURATION + pair, Width::Word, trigger, 1 << shift, bus);
    bus.write(base + PRIORITY + u64::from(number), Width::Byte, ORDINARY_PRIORITY);
}

/// Routes these interrupts to the CPU with affinity `to`, unless they are routed to one that `is_own`: a CPU of
/// their owner. Interrupts for any CPU (Interrupt_Routing_Mode) are routed there too, because no affinity has that
/// bit.
pub fn keep_routes(
    base: u64,
    numbers: impl Iterator<Item = u32>,
    to: u64,
    is_own: impl Fn(u64) -> bool,
    bus: &impl Bus,
) {
    for number in numbers {
        let register = base + ROUTE + 8 * u64::from(number);
        if !is_own(bus.read(register, Width::Double)) {
            bus.write(register, Width::Double, to);
        }
    }
}
