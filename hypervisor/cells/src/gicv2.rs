// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The CPU interface of a GICv2 (Arm IHI 0048, 4.4): registers in memory instead of system registers.

use core::sync::atomic::{AtomicU8, AtomicU32, Ordering::Relaxed};

use crate::{distributor, first_redistributor, load, read_register, store, this_cpu};

/// Returns the address of GICC.
pub fn interface() -> u64 {
    first_redistributor()
}

/// Offsets in GICC.
pub(crate) const CONTROL: u64 = 0x00;
pub(crate) const PRIORITY_MASK: u64 = 0x04;
pub(crate) const BINARY_POINT: u64 = 0x08;
const ACKNOWLEDGE: u64 = 0x0c;
const END: u64 = 0x10;
/// GICD_SGIR (4.3.15).
const SEND: u64 = 0xf00;

/// 0: unknown, 1: a GICv2, 2: a GICv3.
static KIND: AtomicU8 = AtomicU8::new(0);
/// What each CPU has read last from GICC_IAR: with the sender of a software interrupt, which the end must name.
static LATEST: [AtomicU32; 4] = [const { AtomicU32::new(0) }; 4];

/// Returns whether the machine has a GICv2: the CPU has no system registers for interrupts (ID_AA64PFR0_EL1.GIC, Arm
/// ARM D24.2.191). Only the first call causes an exit.
pub fn is_gicv2() -> bool {
    if KIND.load(Relaxed) == 0 {
        let has_registers = read_register!("id_aa64pfr0_el1") >> 24 & 0xf != 0;
        KIND.store(1 + u8::from(has_registers), Relaxed);
    }
    KIND.load(Relaxed) == 1
}

pub(crate) fn set(register: u64, value: u32) {
    store(interface() + register, value);
}

pub(crate) fn acknowledge() -> u64 {
    let found = load(interface() + ACKNOWLEDGE);
    LATEST[this_cpu() as usize & 3].store(found, Relaxed);
    u64::from(found & 0x3ff)
}

pub(crate) fn end(interrupt: u64) {
    let latest = LATEST[this_cpu() as usize & 3].load(Relaxed);
    let sender = if u64::from(latest & 0x3ff) == interrupt { latest & !0x3ff } else { 0 };
    set(END, sender | interrupt as u32);
}

/// Sends to the CPUs of a mask of interfaces; [`u64::MAX`] for all others.
pub(crate) fn send(number: u64, targets: u64) {
    let value = if targets == u64::MAX { 1 << 24 } else { (targets as u32 & 0xff) << 16 };
    store(distributor() + SEND, value | number as u32);
}
