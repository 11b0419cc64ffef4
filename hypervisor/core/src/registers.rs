// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Device registers shared bit by bit: each page that contains one traps for all cells, and an access
//! affects only the caller's bits.
//!
//! The registers of a cell are those of its configuration, in ascending order. The root has the remaining
//! bits, in [`RootRegisters`], which are computed when a cell is created or destroyed.

use crate::bounded_lock::HolderLock;
use crate::bus::{Access, Bus, Forbidden};
use crate::configuration::Configuration;
use crate::format::{MAXIMUM_REGISTERS, RegisterFlags, RegisterGrant};
use crate::interface::PAGE_BYTES;

/// Locks for atomic read-modify-write, one for all registers of a page, because some devices have one
/// register at many addresses (a PL061's data at 256). A lock is held for two accesses to a device, by
/// code that is not interrupted and does not wait. Only pages 4 MiB apart have the same lock.
#[derive(Debug)]
pub struct Locks([HolderLock; LOCKS]);

const LOCKS: usize = 1024;

impl Locks {
    /// Creates the locks, unlocked.
    pub const fn none() -> Self {
        Self([const { HolderLock::new() }; LOCKS])
    }

    #[inline]
    fn of(&self, address: u64) -> &HolderLock {
        &self.0[(address / PAGE_BYTES) as usize % LOCKS]
    }

    /// Releases the locks of a CPU that has abandoned its work after a fault.
    pub fn release(&self, holder: u32) {
        self.0.iter().for_each(|lock| lock.release(holder));
    }
}

impl RegisterGrant {
    /// Returns the flags; undefined bits were refused.
    pub const fn flags(&self) -> RegisterFlags {
        RegisterFlags::from_bits_truncate(self.flags)
    }
}

/// Returns the last register at or before `address`, and the next one.
#[inline]
fn around(registers: &[RegisterGrant], address: u64) -> [Option<&RegisterGrant>; 2] {
    let after = registers.partition_point(|register| register.address <= address);
    [registers.get(after.wrapping_sub(1)), registers.get(after)]
}

/// Makes an access for a cell with these `registers`. Returns the value read, or 0 for a write; `None` if
/// the page contains no shared register. Bits that the cell does not own read as 0 and do not change; a
/// register without readable bits is not read.
///
/// # Errors
/// [`Forbidden`] if the cell owns no bit there, the register has another width, or another CPU does not
/// release the lock.
#[inline(always)]
pub fn access_shared(
    access: &Access,
    registers: &[RegisterGrant],
    locks: &Locks,
    bus: &impl Bus,
) -> Option<Result<u64, Forbidden>> {
    let exact = |register: &&RegisterGrant| {
        register.address == access.address && register.width == access.width.bytes()
    };
    let [before, after] = around(registers, access.address);
    if let Some(register) = before.filter(exact) {
        return Some(dispatch(access, register, locks, bus));
    }
    let page =
        |register: &RegisterGrant| register.address / PAGE_BYTES == access.address / PAGE_BYTES;
    (before.is_some_and(page) || after.is_some_and(page)).then_some(Err(Forbidden))
}

#[inline(always)]
fn dispatch(
    access: &Access,
    register: &RegisterGrant,
    locks: &Locks,
    bus: &impl Bus,
) -> Result<u64, Forbidden> {
    let Some(value) = access.write else {
        let readable = register.readable;
        return Ok(if readable == 0 {
            0
        } else {
            bus.read(access.address, access.width) & readable
        });
    };
    let writable = register.writable;
    if register.flags().contains(RegisterFlags::WRITE_ACTS) {
        if value & writable != 0 {
            bus.write(access.address, access.width, value & writable);
        }
    } else if writable != 0 {
        let _held = locks.of(access.address).take(bus.holder()).ok_or(Forbidden)?;
        let kept = bus.read(access.address, access.width) & !writable;
        bus.write(access.address, access.width, kept | value & writable);
    }
    Ok(0)
}

/// The root's bits of the registers of which cells have bits.
#[derive(Debug)]
pub struct RootRegisters {
    left: [RegisterGrant; MAXIMUM_REGISTERS],
    count: usize,
}

const UNUSED: RegisterGrant =
    RegisterGrant { address: 0, readable: 0, writable: 0, width: 0, flags: 0 };

impl RootRegisters {
    /// Creates the set for a system without shared registers.
    pub const fn none() -> Self {
        Self { left: [UNUSED; MAXIMUM_REGISTERS], count: 0 }
    }

    /// Sets the bits that these cells leave to the root. The cells are checked against each other.
    pub fn set<'c, 'a: 'c>(&mut self, cells: impl Iterator<Item = &'c Configuration<'a>>) {
        self.count = 0;
        for register in cells.flat_map(|cell| cell.registers) {
            self.take(register);
        }
    }

    fn take(&mut self, taken: &RegisterGrant) {
        let shared = taken.flags().contains(RegisterFlags::SHARED_READ);
        // Only the owner of a bit, for reading or writing, reads it, unless it is shared.
        let seen = if shared { taken.readable } else { 0 };
        let hidden = (taken.readable | taken.writable) & !seen;
        // In ascending order, for `around`.
        let index = self.left[..self.count].partition_point(|left| left.address < taken.address);
        let known = index < self.count && self.left[index].address == taken.address;
        if !known {
            // Cannot happen: machine_checks.rs limits their number.
            if self.count == self.left.len() {
                return;
            }
            for position in (index..self.count).rev() {
                self.left[position + 1] = self.left[position];
            }
            self.count += 1;
            let all = u64::MAX >> (64 - 8 * taken.width.clamp(1, 8));
            self.left[index] = RegisterGrant { readable: all, writable: all, ..*taken };
        }
        let left = &mut self.left[index];
        left.readable &= !hidden;
        left.writable &= !taken.writable;
    }

    /// Makes an access for the root, like [`access_shared`]. The root owns the other registers of a page
    /// in which a cell has bits.
    ///
    /// # Errors
    /// [`Forbidden`] for a part of a register that is shared with another width.
    #[inline]
    pub fn access_shared(
        &self,
        access: &Access,
        locks: &Locks,
        bus: &impl Bus,
    ) -> Option<Result<u64, Forbidden>> {
        let left = &self.left[..self.count];
        let last = access.address + u64::from(access.width.bytes()) - 1;
        let overlaps = |register: &RegisterGrant| {
            access.address < register.address + u64::from(register.width)
                && register.address <= last
        };
        let result = access_shared(access, left, locks, bus)?;
        if result.is_ok() || around(left, last)[0].is_some_and(overlaps) {
            return Some(result);
        }
        Some(Ok(match access.write {
            Some(value) => {
                bus.write(access.address, access.width, value);
                0
            }
            None => bus.read(access.address, access.width),
        }))
    }
}

/// Returns the pages of a cell's shared registers, each once, in ascending order.
pub fn pages(registers: &[RegisterGrant]) -> impl Iterator<Item = u64> {
    let mut last = None;
    let pages = registers.iter().map(|register| register.address & !(PAGE_BYTES - 1));
    pages.filter(move |page| last.replace(*page) != Some(*page))
}
