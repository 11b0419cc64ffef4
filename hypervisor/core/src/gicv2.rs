// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The interrupt controller of a machine with a GICv2 (Arm IHI 0048): emulated accesses to the distributor and to
//! GICC_DIR, and software-generated interrupts. Only the image for such machines uses it.
//!
//! The other registers of the CPU interface (GICC) are a page that each cell has mapped. They affect only the CPU
//! that accesses them. The registers of private interrupts are those of the CPU that accesses the distributor.

use core::sync::atomic::{AtomicU8, Ordering};

use crate::bus::{Access, Bus, Width};
use crate::gic::{Ownership, PrivateMask, SpiSet, common_registers, reset_interrupt};
use crate::interface::{MAXIMUM_CPUS, PAGE_BYTES, Status};

/// The distributor's frame, in bytes (4.1.2).
pub const DISTRIBUTOR_BYTES: u64 = PAGE_BYTES;
/// The CPU interface, in bytes: one page that is mapped, and one with GICC_DIR (4.1.3).
pub const INTERFACE_BYTES: u64 = 2 * PAGE_BYTES;
/// GICD_SGIR (4.3.15), handled by [`send`].
pub const SEND: u64 = 0xf00;

const TARGETS: core::ops::Range<u64> = 0x800..0xc00;
const FIRST_IDENTIFICATION: u64 = 0xfd0;

/// The CPU interface of each CPU by its index, as its bit in GICD_ITARGETSR and GICD_SGIR.
#[derive(Debug)]
pub struct Interfaces([AtomicU8; MAXIMUM_CPUS]);

impl Interfaces {
    /// No CPU has an interface.
    pub const fn none() -> Self {
        Self([const { AtomicU8::new(0) }; MAXIMUM_CPUS])
    }

    /// Sets the bit of a CPU. Returns `false` if it is not one bit, or that of another CPU.
    pub fn set(&self, cpu: usize, bit: u8) -> bool {
        let others = self.0.iter().enumerate().filter(|(other, _)| *other != cpu);
        let is_free =
            others.fold(0, |all, (_, other)| all | other.load(Ordering::SeqCst)) & bit == 0;
        if let Some(own) = self.0.get(cpu) {
            own.store(bit, Ordering::SeqCst);
        }
        bit.is_power_of_two() && is_free
    }

    /// Returns the bit of a CPU, or 0.
    pub fn of_cpu(&self, cpu: usize) -> u8 {
        self.0.get(cpu).map_or(0, |bit| bit.load(Ordering::Relaxed))
    }

    /// Returns the bits of a cell's CPUs.
    pub fn of_cell(&self, status: &Status, cell: u32) -> u8 {
        let cpus = status.cpus.iter().zip(&self.0).filter(|(cpu, _)| cpu.cell() == cell);
        cpus.fold(0, |bits, (_, bit)| bits | bit.load(Ordering::Relaxed))
    }
}

/// The private and the shared interrupts of a cell.
#[derive(Debug)]
pub struct Owned<'a> {
    /// Those of each CPU.
    pub private: PrivateMask,
    /// Those of the machine.
    pub shared: &'a SpiSet,
}

impl Owned<'_> {
    /// Returns whether the cell owns this interrupt.
    pub fn contains(&self, number: u32) -> bool {
        if number < 32 { self.private.0 >> number & 1 != 0 } else { self.shared.contains(number) }
    }
}

impl Ownership for Owned<'_> {
    #[inline]
    fn word(&self, word: u32) -> u32 {
        if word == 0 { self.private.0 } else { self.shared.word(word) }
    }
}

/// Makes an access to the distributor at `offset`, except to [`SEND`]. `cpus` are the interfaces of the cell. Returns
/// the value read, or 0 for a write. Bits of other interrupts read as zero and do not change.
#[inline]
pub fn distributor(
    offset: u64,
    access: &Access,
    owned: &Owned<'_>,
    cpus: impl FnOnce() -> u8,
    bus: &impl Bus,
) -> u64 {
    match offset {
        // GICD_ICFGR of private interrupts: where it can be written, it may be that of all CPUs (QEMU).
        0xc00..0xc08 if access.write.is_some() => 0,
        0x80..0x800 | 0xc00..0xf00 => {
            common_registers::access(offset, access, owned, bus).unwrap_or(0)
        }
        0x800..0xc00 => targets(offset, access, owned, cpus, bus),
        // CTLR, TYPER, IIDR: read-only, so the controller stays as at the launch.
        0..0xc | FIRST_IDENTIFICATION..
            if access.write.is_none() && access.width == Width::Word =>
        {
            bus.read(access.address, Width::Word)
        }
        // The pending states of software interrupts by their sender, and reserved offsets.
        _ => 0,
    }
}

/// Makes an access to GICD_ITARGETSR: one byte per interrupt, by bytes or by words. An interrupt can be sent only to
/// CPUs of the cell. Those of private interrupts are read-only: the bit of this CPU.
#[inline]
fn targets(
    offset: u64,
    access: &Access,
    owned: &Owned<'_>,
    cpus: impl FnOnce() -> u8,
    bus: &impl Bus,
) -> u64 {
    let first = (offset - TARGETS.start) as u32;
    let word = owned.bytes(first & !3);
    let mask = match access.width {
        Width::Word => word,
        Width::Byte => word >> (8 * (first & 3)) & 0xff,
        _ => 0,
    };
    let Some(value) = access.write else {
        return if mask == 0 {
            0
        } else {
            bus.read(access.address, access.width) & u64::from(mask)
        };
    };
    if first >= 32 && mask != 0 {
        let cpus = u64::from(cpus());
        // Each byte is a register of its own, so no read is needed.
        for byte in (0..4).filter(|byte| mask >> (8 * byte) & 1 != 0) {
            bus.write(access.address + byte, Width::Byte, value >> (8 * byte) & cpus);
        }
    }
    0
}

/// Returns the value of GICD_SGIR that sends to those targets of `value` that are among `cpus`, or `None` if none is
/// left or the cell does not own the interrupt. `sender` is the bit of this CPU.
#[inline]
pub fn send(value: u64, sender: u8, cpus: u8, private: PrivateMask) -> Option<u64> {
    let number = (value & 0xf) as u32;
    // TargetListFilter.
    let targets = match value >> 24 & 3 {
        0 => (value >> 16) as u8,
        1 => !sender,
        2 => sender,
        _ => 0,
    };
    let targets = targets & cpus;
    (private.0 >> number & 1 != 0 && targets != 0).then(|| send_to(targets, number))
}

/// Returns the value of GICD_SGIR that sends an interrupt to these CPUs.
pub const fn send_to(cpus: u8, number: u32) -> u64 {
    (cpus as u64) << 16 | number as u64
}

/// Returns the value to write to GICC_DIR (4.4.15), or `None` if the cell does not own the interrupt.
#[inline]
pub fn deactivate(value: u64, owned: &Owned<'_>) -> Option<u64> {
    owned.contains((value & 0x3ff) as u32).then_some(value & 0x1fff)
}

/// Like [`crate::gic::change_owner`], with the target's bit.
pub fn change_owner(base: u64, number: u32, edge: bool, target: u8, bus: &impl Bus) {
    reset_interrupt(base, number, edge, bus);
    bus.write(base + TARGETS.start + u64::from(number), Width::Byte, target.into());
}

/// Removes the CPUs that are not among `own` from the targets of these interrupts. An interrupt without a target then
/// gets the lowest of `own`.
pub fn keep_targets(base: u64, numbers: impl Iterator<Item = u32>, own: u8, bus: &impl Bus) {
    let first = own & own.wrapping_neg();
    for number in numbers {
        let register = base + TARGETS.start + u64::from(number);
        let found = bus.read(register, Width::Byte) as u8;
        if found & !own != 0 {
            let kept = if found & own == 0 { first } else { found & own };
            bus.write(register, Width::Byte, kept.into());
        }
    }
}
