// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Interrupts with extended numbers (GICv3.1), which cells cannot access. One that is enabled at the launch could not be
//! turned off when its CPU changes the owner.

use crate::bus::{Bus, Width};

/// GICD_ISENABLER0E (Arm IHI 0069, 12.9.28), and GICR_ISENABLER1E in the second frame, after GICR_ISENABLER0.
const SHARED: u64 = 0x1200;
const PRIVATE: u64 = 0x0104;

/// Returns whether a shared one is enabled. `typer` is GICD_TYPER: ESPI in bit 8, the last register in bits 27 to 31.
pub fn is_extended_shared_enabled(distributor: u64, typer: u64, bus: &impl Bus) -> bool {
    let registers = (typer >> 8 & 1) * ((typer >> 27 & 0x1f) + 1);
    is_any_set(distributor + SHARED, registers, bus)
}

/// Returns whether a private one is enabled in this second frame. `typer` is GICR_TYPER: PPInum in bits 27 to 31.
pub fn is_extended_private_enabled(frame: u64, typer: u64, bus: &impl Bus) -> bool {
    is_any_set(frame + PRIVATE, typer >> 27 & 0x1f, bus)
}

fn is_any_set(first: u64, registers: u64, bus: &impl Bus) -> bool {
    (0..registers).any(|register| bus.read(first + 4 * register, Width::Word) != 0)
}
