// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What all CPUs share: where things lie. Written once, by the first step of the launch.

use core::cell::UnsafeCell;

use rampart_hypervisor_core::interface::{Header, MAXIMUM_CPUS, Status};

use crate::cpu::{Cpu, PER_CPU_BYTES};

/// Where things lie, physically, which for the monitor is the same as virtually.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Machine {
    /// The hypervisor's memory.
    pub(crate) header: Header,
    /// How many bytes of it are image and data.
    pub(crate) core_bytes: u64,
}

struct Once(UnsafeCell<Option<Machine>>);

// SAFETY: `set` runs on one CPU before any other enters; from then on it is only read.
unsafe impl Sync for Once {}

static MACHINE: Once = Once(UnsafeCell::new(None));

impl Machine {
    /// Makes it known to all CPUs. Only for the first step of the launch.
    pub(crate) fn set(machine: Self) {
        // SAFETY: see `Once`.
        unsafe { *MACHINE.0.get() = Some(machine) }
    }

    /// None before the first step of the launch is done.
    pub(crate) fn get() -> Option<&'static Self> {
        // SAFETY: see `Once`.
        unsafe { (*MACHINE.0.get()).as_ref() }
    }

    /// How many CPUs there are.
    pub(crate) fn cpu_count(&self) -> usize {
        (self.header.cpu_count as usize).min(MAXIMUM_CPUS)
    }

    /// One of the CPUs; none where there are not so many.
    pub(crate) fn cpu(&self, index: usize) -> Option<&'static Cpu> {
        if index >= self.cpu_count() {
            return None;
        }
        let at = self.header.physical_base + self.core_bytes + (index * PER_CPU_BYTES) as u64;
        // SAFETY: `launch` has checked that the memory of each CPU lies within the hypervisor's; it
        // begins zeroed, which is a valid `Cpu`, and all its fields are atomic.
        Some(unsafe { &*(at as *const Cpu) })
    }

    /// The pages that the root may read.
    pub(crate) fn status(&self) -> &'static Status {
        // SAFETY: `launch` has checked that it lies within the hypervisor's memory, page-aligned; it
        // begins zeroed, and all its fields are atomic.
        unsafe { &*((self.header.physical_base + self.header.status) as *const Status) }
    }
}
