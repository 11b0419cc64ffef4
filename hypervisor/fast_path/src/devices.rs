// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Physical device registers, and the state that all CPUs use for registers shared bit by bit.

use rampart_hypervisor_core::bus::{Bus, Width};
use rampart_hypervisor_core::registers::{Locks, RootRegisters};

use crate::guarded::{Guarded, holder};

/// Locks for the read-modify-write of shared registers.
pub static REGISTER_LOCKS: Locks = Locks::none();
/// The root's bits of shared registers.
pub static ROOT_REGISTERS: Guarded<RootRegisters> = Guarded::new(RootRegisters::none());

/// Device registers, which the monitor has mapped as device memory.
#[derive(Debug, Clone, Copy)]
pub struct Devices;

impl Bus for Devices {
    #[inline]
    fn read(&self, address: u64, width: Width) -> u64 {
        // SAFETY: only addresses of devices are passed, and devices are mapped (the monitor's
        // `stage1.rs`); reading one changes no memory of the program.
        unsafe {
            match width {
                Width::Byte => (address as *const u8).read_volatile().into(),
                Width::Half => (address as *const u16).read_volatile().into(),
                Width::Word => (address as *const u32).read_volatile().into(),
                Width::Double => (address as *const u64).read_volatile(),
            }
        }
    }

    #[inline]
    fn write(&self, address: u64, width: Width, value: u64) {
        // SAFETY: as above; the caller has checked that the owner may change the register.
        unsafe {
            match width {
                Width::Byte => (address as *mut u8).write_volatile(value as u8),
                Width::Half => (address as *mut u16).write_volatile(value as u16),
                Width::Word => (address as *mut u32).write_volatile(value as u32),
                Width::Double => (address as *mut u64).write_volatile(value),
            }
        }
    }
    #[inline]
    fn holder(&self) -> u32 {
        holder()
    }
}
