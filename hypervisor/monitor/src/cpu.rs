// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Per-CPU data: [`Cpu`] at the start of the CPU's memory, its stack at the end.

use core::mem::offset_of;
use core::sync::atomic::{AtomicU32, AtomicU64};

use rampart_hypervisor_fast_path::ExitState;
pub(crate) use rampart_hypervisor_fast_path::Registers;

use crate::features::SAVED;
use crate::gic::LinuxSettings;
use crate::launch::LinuxState;
use crate::registers::write_register;

/// Size of each CPU's memory, in bytes; the first page is [`Cpu`], the second is an unmapped guard page
/// below the stack.
pub(crate) const PER_CPU_BYTES: usize = 8 * 4096;

/// The start of a CPU's memory. Other CPUs read it and write orders, so all fields that change are atomic.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Cpu {
    /// The owner for exits. Must be the first field: for `vectors.s` it has the same address.
    pub(crate) exit_state: ExitState,
    /// The end of the CPU's memory.
    pub(crate) stack_top: AtomicU64,
    /// Address of [`LinuxState`] during the launch, then 0.
    pub(crate) launching: AtomicU64,
    /// The index in the header.
    pub(crate) index: AtomicU32,
    /// 1 while the CPU decides whether all leave the hypervisor.
    pub(crate) closing: AtomicU32,
    /// 1 while a fault of the hypervisor is handled.
    pub(crate) faulting: AtomicU32,
    /// 1 if the CPU starts the root again as soon as it is off.
    pub(crate) restarts: AtomicU32,
    /// ELR_EL2 of the root's call that is executed, or 0; SPSR_EL2.
    pub(crate) caller: [AtomicU64; 2],
    /// Physical address of the root table of stage 2.
    pub(crate) translation: AtomicU64,
    /// Entry address for the next start.
    pub(crate) entry: AtomicU64,
    /// x0 for the next start.
    pub(crate) argument: AtomicU64,
    /// Linux's settings of the management interrupt.
    pub(crate) linux_interrupt: LinuxSettings,
    /// SCTLR_EL2 of Linux's stub.
    pub(crate) linux_system_control: AtomicU64,
    /// VBAR_EL2 of Linux's stub.
    pub(crate) linux_vectors: AtomicU64,
    /// HCR_EL2 of Linux's stub.
    pub(crate) linux_hypervisor_control: AtomicU64,
    /// Registers of EL2 of Linux's stub, for `features.rs`.
    pub(crate) linux_features: [AtomicU64; SAVED],
}

impl Cpu {
    /// Stores its address in this CPU's TPIDR_EL2 for `vectors.s`; the register is for software use (Arm ARM
    /// D24.2.165).
    pub(crate) fn adopt(&'static self) {
        write_register!("tpidr_el2", core::ptr::from_ref(self) as u64);
    }
}

/// Size of Linux's state at the top of the stack during the launch.
pub(crate) const LINUX_BYTES: usize = size_of::<LinuxState>();
const _: () = assert!(LINUX_BYTES == 160);
const _: () = assert!(size_of::<Registers>() == 256);
const _: () = assert!(size_of::<Cpu>() <= 4096 && offset_of!(Cpu, exit_state) == 0);
