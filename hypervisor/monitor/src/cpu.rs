// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What each CPU has for itself: at the start of its memory this, at the end its stack.

use core::sync::atomic::Ordering::Acquire;
use core::sync::atomic::{AtomicU32, AtomicU64};

use rampart_hypervisor_fast_path::ExitState;
pub(crate) use rampart_hypervisor_fast_path::Registers;

use crate::launch::LinuxState;
use crate::registers::write_register;

/// Of all that is a CPU's own, in bytes; the first page is [`Cpu`], the second is not there, so that
/// a stack that grows too large faults.
pub(crate) const PER_CPU_BYTES: usize = 8 * 4096;

/// The start of a CPU's memory. Others may look at it and leave orders, so all that changes is atomic.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Cpu {
    /// The end of its memory. The first field: `vectors.s` reads it.
    pub(crate) stack_top: AtomicU64,
    /// Where [`LinuxState`] lies while the CPU is being launched, then 0.
    pub(crate) launching: AtomicU64,
    /// Its place in the header.
    pub(crate) index: AtomicU32,
    /// What it does, [`Activity`] as a number.
    pub(crate) activity: AtomicU32,
    /// Its [`order`], and whose exits it serves.
    pub(crate) exit_state: ExitState,
    /// The root table of its stage-2 translation, physically.
    pub(crate) translation: AtomicU64,
    /// Where it begins when it is started.
    pub(crate) entry: AtomicU64,
    /// Its x0 then.
    pub(crate) argument: AtomicU64,
    /// Whether the management interrupt was enabled when Linux had it, its group and priority.
    pub(crate) linux_enabled: AtomicU64,
    /// See there.
    pub(crate) linux_group: AtomicU64,
    /// See there.
    pub(crate) linux_priority: AtomicU64,
    /// What belongs to Linux's stub: SCTLR_EL2.
    pub(crate) linux_system_control: AtomicU64,
    /// VBAR_EL2.
    pub(crate) linux_vectors: AtomicU64,
    /// HCR_EL2.
    pub(crate) linux_hypervisor_control: AtomicU64,
    /// CPTR_EL2.
    pub(crate) linux_feature_traps: AtomicU64,
}

/// What a CPU does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Activity {
    /// It has not entered.
    Absent = 0,
    /// It runs its cell.
    Running = 1,
    /// It waits for an order.
    Parked = 2,
}

/// What another CPU wants of it: [`PARK`], to leave what it runs and to wait, or one of these.
pub(crate) mod order {
    pub(crate) use rampart_hypervisor_fast_path::PARK;
    /// Nothing.
    pub(crate) const NONE: u32 = 0;
    /// To begin at `entry`.
    pub(crate) const START: u32 = 2;
    /// To leave the machine: the hypervisor goes, and Linux has the CPU turned off.
    pub(crate) const POWER_OFF: u32 = 3;
}

impl Cpu {
    /// Whether it waits for an order.
    pub(crate) fn is_parked(&self) -> bool {
        self.activity.load(Acquire) == Activity::Parked as u32
    }

    /// Makes it this CPU's: `vectors.s` finds it in TPIDR_EL2, which is software's own (Arm ARM
    /// D24.2.165).
    pub(crate) fn adopt(&'static self) {
        write_register!("tpidr_el2", core::ptr::from_ref(self) as u64);
    }
}

/// The stack after a launch: above what Linux gets back nothing.
pub(crate) const LINUX_BYTES: usize = size_of::<LinuxState>();
const _: () = assert!(LINUX_BYTES == 160);
const _: () = assert!(size_of::<Registers>() == 256);
const _: () = assert!(size_of::<Cpu>() <= 4096);
