// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Constant data of the machine, shared by all CPUs and written once, in the first step of the launch.

use core::sync::atomic::Ordering::SeqCst;

use rampart_hypervisor_core::configuration::machine_checks;
use rampart_hypervisor_core::gic::PrivateMask;
use rampart_hypervisor_core::interface::{Header, ROOT, Status};
use rampart_hypervisor_core::launch::Layout;
use rampart_hypervisor_core::psci::Caller;
use spin::Once;

use crate::cpu::{Cpu, PER_CPU_BYTES};
use crate::gic::ControllerFacts;

/// Addresses and properties of the machine. Physical addresses are also the monitor's virtual addresses.
#[derive(Debug, Clone)]
pub(crate) struct Machine {
    /// The header filled in by the driver.
    pub(crate) header: Header,
    /// The checked layout.
    pub(crate) layout: Layout,
    /// GICD.
    pub(crate) distributor: u64,
    /// The rest of the interrupt controller.
    pub(crate) controller: ControllerFacts,
    /// Number of bits of guest addresses.
    pub(crate) address_bits: u32,
}

/// The machine, which the first step of the launch sets.
pub(crate) static MACHINE: Once<Machine> = Once::new();

/// Returns the status pages.
pub(crate) fn status(layout: &Layout) -> &'static Status {
    // SAFETY: the layout is checked: the pages are aligned and inside the hypervisor's memory. They are
    // zeroed at the start, and all fields are atomic.
    unsafe { &*(layout.status.start as *const Status) }
}

impl Machine {
    /// Returns the number of CPUs.
    pub(crate) fn cpu_count(&self) -> usize {
        self.header.cpus().len()
    }

    /// Returns the data of a CPU, or `None` if there is no such CPU.
    pub(crate) fn cpu(&self, index: usize) -> Option<&'static Cpu> {
        if index >= self.cpu_count() {
            return None;
        }
        let at = self.layout.per_cpu.start + (index * PER_CPU_BYTES) as u64;
        // SAFETY: the layout is checked: each CPU has its own memory, inside the hypervisor's. It is
        // zeroed at the start, which is a valid `Cpu`, and all its fields are atomic.
        Some(unsafe { &*(at as *const Cpu) })
    }

    /// Sets the entry with which a CPU starts that is being turned on, and its x0.
    pub(crate) fn set_entry(&self, index: usize, entry: u64, argument: u64) {
        if let Some(cpu) = self.cpu(index) {
            cpu.entry.store(entry, SeqCst);
            cpu.argument.store(argument, SeqCst);
        }
    }

    /// Returns the affinity of a CPU of the root, for its interrupts.
    pub(crate) fn root_cpu(&self) -> Option<u64> {
        let caller = Caller { status: self.status(), cell: ROOT };
        self.header.cpus().iter().copied().find(|affinity| caller.cpu(*affinity).is_some())
    }

    /// Returns the status pages.
    pub(crate) fn status(&self) -> &'static Status {
        status(&self.layout)
    }

    /// Returns the private interrupts of cells and the root: all except the management interrupt and those of
    /// EL2 (maintenance 25, timers 26 and 28: Arm BSA, B.2).
    pub(crate) fn private(&self) -> PrivateMask {
        PrivateMask(!(1 << self.controller.management() | 1 << 25 | 1 << 26 | 1 << 28))
    }

    /// Returns the properties for the checks of configurations.
    pub(crate) fn facts(&self) -> machine_checks::Machine<'_> {
        machine_checks::Machine {
            hypervisor: self.layout.memory.clone(),
            mpidrs: self.header.cpus(),
            interrupt_end: self.controller.interrupt_end,
            address_bits: self.address_bits,
        }
    }
}
