// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a program needs to act as the kernel: QEMU boots it at EL2, it switches to EL1 with a stub at EL2 like
//! Linux's, and launches the hypervisor as `kernel/rampart` does. The hypervisor's memory, with header and
//! configuration, is already filled in.

use core::arch::{asm, global_asm};
use core::mem::offset_of;

use rampart_hypervisor_core::interface::{Header, LAUNCH_ENTER};

use crate::gicv2::is_gicv2;
use crate::{distributor, first_redistributor, store};

global_asm!(
    include_str!("launch.s"),
    entry_offset = const offset_of!(Header, entry),
    enter = const LAUNCH_ENTER,
);

/// Physical address of the hypervisor's memory.
pub const HYPERVISOR: u64 = 0x7000_0000;
/// PSCI CPU_ON (Arm DEN 0022, 5.6).
pub const CPU_ON: u64 = 0xc400_0003;

unsafe extern "C" {
    fn launcher_descend();
    /// `launch.s`: a further CPU at EL2. Enters, and turns itself off; [`HYPERVISOR`] in x0.
    pub fn launcher_second();
}

/// Configures the controller like Linux. A GICv2 is only enabled. Otherwise: affinity routing, group 1 enabled (GICD_CTLR, Arm IHI 0069, 12.9.4),
/// all interrupts in group 1, redistributors awake.
pub fn prepare_interrupts(cpus: u64) {
    if is_gicv2() {
        return store(distributor(), 1);
    }
    store(distributor(), 0x12);
    for word in 1..8 {
        store(distributor() + 0x80 + 4 * word, u32::MAX);
    }
    for frame in (0..cpus).map(|cpu| first_redistributor() + 0x2_0000 * cpu) {
        store(frame + 0x14, 0);
        store(frame + 0x1_0080, u32::MAX);
    }
}

/// Switches to EL1.
pub fn descend() {
    // SAFETY: returns with the same stack and all callee-saved registers.
    unsafe { launcher_descend() }
}

/// Calls the stub's HVC_SOFT_RESTART for a step of the launch, as the CPU with this index.
pub fn enter(index: u64, step: u64) -> i64 {
    // SAFETY: the image's header has the offset of its entry.
    let entry = unsafe { (*(HYPERVISOR as *const Header)).entry } + HYPERVISOR;
    let mut outcome = 1_i64;
    // SAFETY: by interface.rs, x0 to x17 are lost.
    unsafe {
        asm!("hvc #0", inout("x0") outcome, inout("x1") entry => _, inout("x2") HYPERVISOR => _,
            inout("x3") index => _, inout("x4") step => _, out("x5") _, out("x6") _, out("x7") _,
            out("x8") _, out("x9") _, out("x10") _, out("x11") _, out("x12") _, out("x13") _,
            out("x14") _, out("x15") _, out("x16") _, out("x17") _);
    }
    outcome
}
