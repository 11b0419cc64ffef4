// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What all CPUs share and nothing changes after the launch: where things lie. Written once, by the
//! first step of the launch.

use core::ops::Range;

use rampart_hypervisor_core::configuration::machine_checks;
use rampart_hypervisor_core::gic::PrivateMask;
use rampart_hypervisor_core::interface::{Header, MAXIMUM_CPUS, Status};
use rampart_hypervisor_core::launch::Layout;
use spin::Once;

use crate::cpu::{Cpu, PER_CPU_BYTES};

/// Where things lie, physically, which for the monitor is the same as virtually.
#[derive(Debug, Clone)]
pub(crate) struct Machine {
    /// As the driver filled it.
    pub(crate) header: Header,
    /// As it was checked.
    pub(crate) layout: Layout,
    /// GICD.
    pub(crate) distributor: u64,
    /// Where all of GICR is.
    pub(crate) all_redistributors: Range<u64>,
    /// GICR of each CPU, by its index.
    pub(crate) redistributors: [u64; MAXIMUM_CPUS],
    /// Of each GICR, in bytes.
    pub(crate) redistributor_bytes: u64,
    /// The first interrupt that the distributor does not have.
    pub(crate) interrupt_end: u32,
    /// Of guests' addresses.
    pub(crate) address_bits: u32,
    /// Whether the management interrupt is of group 0, an FIQ that nobody masks: only where the
    /// distributor has one security state alone.
    pub(crate) unmaskable: bool,
    /// The least that a guest's ICC_PMR_EL1 may be, for the management interrupt to come through.
    pub(crate) lowest_mask: u8,
}

static MACHINE: Once<Machine> = Once::new();

/// The pages that the root may read.
pub(crate) fn status(layout: &Layout) -> &'static Status {
    // SAFETY: the layout was checked: the pages are aligned and the hypervisor's. They begin
    // zeroed, and all fields are atomic.
    unsafe { &*(layout.status.start as *const Status) }
}

impl Machine {
    /// Makes it known to all CPUs. Only for the first step of the launch.
    pub(crate) fn set(machine: Self) -> &'static Self {
        MACHINE.call_once(|| machine)
    }

    /// None before the first step of the launch is done.
    pub(crate) fn get() -> Option<&'static Self> {
        MACHINE.get()
    }

    /// How many CPUs there are.
    pub(crate) fn cpu_count(&self) -> usize {
        self.header.cpus().len()
    }

    /// One of the CPUs; none where there are not so many.
    pub(crate) fn cpu(&self, index: usize) -> Option<&'static Cpu> {
        if index >= self.cpu_count() {
            return None;
        }
        let at = self.layout.per_cpu.start + (index * PER_CPU_BYTES) as u64;
        // SAFETY: the layout was checked: the memory of each CPU is its own and the hypervisor's. It
        // begins zeroed, which is a valid `Cpu`, and all its fields are atomic.
        Some(unsafe { &*(at as *const Cpu) })
    }

    /// The pages that the root may read.
    pub(crate) fn status(&self) -> &'static Status {
        status(&self.layout)
    }

    /// The management interrupt: a number that Linux does not use, and where group 0 is ours one
    /// that firmware would have.
    pub(crate) fn management(&self) -> u32 {
        if self.unmaskable { 15 } else { 7 }
    }

    /// The private interrupts that cells and the root have: not the management interrupt, and not
    /// those of EL2 (maintenance 25, its timers 26 and 28: Arm BSA, B.2).
    pub(crate) fn private(&self) -> PrivateMask {
        PrivateMask(!(1 << self.management() | 1 << 25 | 1 << 26 | 1 << 28))
    }

    /// For the checks of configurations.
    pub(crate) fn facts(&self) -> machine_checks::Machine<'_> {
        machine_checks::Machine {
            hypervisor: self.layout.memory.clone(),
            mpidrs: self.header.cpus(),
            interrupt_end: self.interrupt_end,
            address_bits: self.address_bits,
        }
    }
}
