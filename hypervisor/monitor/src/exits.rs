// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Why a CPU comes from its cell to EL2, and what is done.

use core::panic::PanicInfo;

use crate::cpu::{Cpu, Registers};
use crate::launch;
use crate::log::log;
use crate::registers::{instruction, read_register};
use crate::root;

/// Called by `vectors.s`.
#[unsafe(no_mangle)]
extern "C" fn handle_exit(registers: &mut Registers, cpu: &Cpu, kind: u64) {
    root::handle(registers, cpu, kind);
}

/// Called by `vectors.s` when the hypervisor itself faulted.
#[unsafe(no_mangle)]
extern "C" fn handle_fault(_registers: &mut Registers, cpu: &Cpu) {
    log!(
        "fault in the hypervisor: ESR_EL2 {:#x} FAR_EL2 {:#x} ELR_EL2 {:#x}",
        read_register!("esr_el2"),
        read_register!("far_el2"),
        read_register!("elr_el2")
    );
    launch::give_up_if_launching(cpu);
    loop {}
}

/// A panic becomes an exception of this level, so that both end in the same place.
pub(crate) fn panicked(information: &PanicInfo<'_>) -> ! {
    log!("panic in the hypervisor: {}", information);
    loop {
        instruction!("brk #0");
    }
}
