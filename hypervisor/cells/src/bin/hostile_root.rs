// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A hostile root: launches the hypervisor on four CPUs, each of which then executes the orders of a test
//! (`remote.rs`) in its area at [`AREAS`].
#![no_std]
#![no_main]

use core::arch::global_asm;

use rampart_hypervisor_cells::gicv2::is_gicv2;
use rampart_hypervisor_cells::launch::{CPU_ON, descend, enter, prepare_interrupts};
use rampart_hypervisor_cells::remote::{AREA_BYTES, Area, LAUNCHED, start};
use rampart_hypervisor_cells::{private_frame, redistributor, smc3, store};
use rampart_hypervisor_core::interface::{LAUNCH_ENTER, LAUNCH_PREPARE};

const CPUS: u64 = 4;
/// The hypervisor is launched while this CPU handles the software interrupts that can be the management interrupt, and
/// the CPU never ends them.
const CPU_WITH_ACTIVE_INTERRUPTS: u64 = 2;
const MANAGEMENT: u32 = 1 << 7 | 1 << 15;
/// GICD_ISACTIVER0 and GICR_ISACTIVER0 (Arm IHI 0048, 4.3.9; IHI 0069, 12.11).
const SET_ACTIVE: u64 = 0x300;
/// Physical address of the areas.
const AREAS: u64 = 0x5000_0000;

// A further CPU at EL2, with its index in x0.
global_asm!(
    ".section .text.hostile_root, \"ax\"",
    "hostile_second:",
    "mov     x19, x0",
    "mov     x20, #{areas}",
    "add     x20, x20, x0, lsl #16",
    "add     sp, x20, #{area_bytes}",
    "bl      launcher_descend",
    "mov     x0, x19",
    "b       hostile_launched",
    areas = const AREAS,
    area_bytes = const AREA_BYTES,
);

unsafe extern "C" {
    fn hostile_second();
}

#[unsafe(no_mangle)]
extern "C" fn cell_main(_argument: u64) {
    prepare_interrupts(CPUS);
    descend();
    let prepared = enter(0, LAUNCH_PREPARE);
    if prepared != 0 {
        report(0, prepared);
    }
    for cpu in 1..CPUS {
        smc3(CPU_ON, cpu, hostile_second as *const () as u64, cpu);
    }
    hostile_launched(0);
}

/// Enters the hypervisor.
#[unsafe(no_mangle)]
extern "C" fn hostile_launched(index: u64) -> ! {
    if index == CPU_WITH_ACTIVE_INTERRUPTS {
        store(private_frame() + SET_ACTIVE, MANAGEMENT);
    }
    if !is_gicv2() {
        // GICR_CTLR.EnableLPIs (Arm IHI 0069, 12.11.2), where the machine has LPIs.
        store(redistributor(), 1);
    }
    let outcome = enter(index, LAUNCH_ENTER);
    report(index, outcome);
}

/// Reports the outcome of the launch, and executes orders.
fn report(index: u64, outcome: i64) -> ! {
    let area = AREAS + index * AREA_BYTES;
    // SAFETY: the root's memory, for this CPU.
    unsafe {
        Area::at(area).set(LAUNCHED, (outcome + 100) as u64);
        start(area)
    }
}

#[unsafe(no_mangle)]
extern "C" fn cell_exception() {}
