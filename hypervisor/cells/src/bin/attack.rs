// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Makes one forbidden access per run, selected by the argument. If an attack has no effect, the program writes
//! the result to the shared page and continues to count.
#![no_std]
#![no_main]

use core::arch::asm;

use rampart_hypervisor_cells::gicv2::{interface, is_gicv2};
use rampart_hypervisor_cells::{
    TIMER, Word, acknowledge, arm_timer, count, distributor, enable, enable_interface,
    first_redistributor, handle_timer, hvc, load, mask_priority, private_frame, read_register,
    send, send_to_others, set_binary_point, set_shared_word, smc, store, unmask, wait,
    write_register,
};
use rampart_hypervisor_core::interface::Hypercall;

/// The hypervisor's memory on QEMU's `virt` in the tests. A cell has no memory there on any machine.
const OUTSIDE: u64 = 0x7000_0000;
const TICKS: u64 = 62_500;

#[unsafe(no_mangle)]
extern "C" fn cell_main(attack: u64) {
    set_shared_word(Word::Result, 0);
    count(Word::Begun);
    match attack {
        1 => set_shared_word(Word::Result, load(OUTSIDE).into()),
        2 => store(OUTSIDE, 0xdead_beef),
        // SAFETY: meant to fail.
        3 => unsafe { asm!("br {}", in(reg) OUTSIDE, options(noreturn)) },
        4 => send_to_all(),
        5 => set_shared_word(Word::Result, smc(0xc200_0001, 0, 0)),
        6 => spin(),
        // Faults in a loop, with vectors and stack unmapped.
        7 => {
            write_register!("vbar_el1", OUTSIDE);
            // SAFETY: meant to fail.
            unsafe { asm!("mov sp, {}", "udf #0", in(reg) OUTSIDE, options(noreturn)) }
        }
        // SAFETY: DC CISW changes no data of the program; meant to fail.
        8 => unsafe { asm!("dc cisw, {}", in(reg) 0_u64, options(nostack)) },
        9 => sleep(),
        10 => write_foreign_interrupts(),
        // PSCI CPU_ON of the first CPU, which is the root's.
        11 => set_shared_word(Word::Result, smc(0xc400_0003, 0, 0x4000_0000)),
        // ICC_PMR_EL1: masks everything.
        12 => {
            mask_priority(0);
            spin();
        }
        // SAFETY: meant to fail: cleans an unmapped address.
        13 => unsafe { asm!("dc civac, {}", in(reg) OUTSIDE, options(nostack)) },
        // Takes its own exceptions in a loop.
        14 => loop {
            // SAFETY: handled by `cell_exception`.
            unsafe { asm!("udf #0", options(nostack)) }
        },
        // The auxiliary control register, which is implementation defined.
        15 => write_register!("actlr_el1", 0),
        // PSCI SYSTEM_OFF and SYSTEM_RESET stop only this cell.
        16 => set_shared_word(Word::Result, smc(0x8400_0008, 0, 0)),
        17 => set_shared_word(Word::Result, smc(0x8400_0009, 0, 0)),
        18 => sleep_in_interrupt(),
        // A doorbell that it does not have; the hypervisor searches for it under the manager's lock.
        19 => loop {
            hvc(u32::from(Hypercall::Doorbell).into(), 0);
        },
        _ => {}
    }
    // The attack had no effect: the program continues.
    enable(TIMER);
    arm_timer(TICKS);
    unmask();
    loop {
        wait();
    }
}

/// Sends SGIs of all numbers and groups to all other CPUs, and to the first CPUs by affinity.
fn send_to_all() {
    for number in 0..16_u64 {
        if is_gicv2() {
            send_to_others(number);
            send(number, 0xff);
            // Also in the secure group, and by the registers of the pending states of each sender.
            store(distributor() + 0xf00, 0xff_8000 | number as u32);
            store(distributor() + 0xf20 + number / 4 * 4, u32::MAX);
            continue;
        }
        write_register!("s3_0_c12_c11_5", 1 << 40 | number << 24);
        write_register!("s3_0_c12_c11_5", number << 24 | 0xf);
        write_register!("s3_0_c12_c11_6", number << 24 | 0xf);
        write_register!("s3_0_c12_c11_7", number << 24 | 0xf);
    }
}

/// Masks everything and spins.
fn spin() -> ! {
    // SAFETY: masks exceptions and spins.
    unsafe { asm!("msr daifset, #15", "1:", "b 1b", options(noreturn)) }
}

/// Masks and disables everything and sleeps.
fn sleep() -> ! {
    enable_interface(false);
    mask_priority(0);
    loop {
        // SAFETY: masks exceptions.
        unsafe { asm!("msr daifset, #15", options(nostack)) }
        wait();
    }
}

/// Sleeps while an interrupt of the highest priority is active, which no other preempts.
fn sleep_in_interrupt() -> ! {
    // SAFETY: masks exceptions.
    unsafe { asm!("msr daifset, #15", options(nostack)) }
    // Compares no bit of the priority.
    set_binary_point(7);
    enable(TIMER);
    // The highest priority, which the hypervisor limits.
    store(private_frame() + 0x400 + TIMER / 4 * 4, 0);
    arm_timer(0);
    // Acknowledged, and never ended.
    while acknowledge() != TIMER {}
    write_register!("cntv_ctl_el0", 0);
    loop {
        wait();
    }
}

/// Writes all foreign bits in the distributor, in its redistributor and in the first one. The result is the
/// union of foreign bits that it could read back: 0 if the controller is protected.
fn write_foreign_interrupts() {
    let mut seen = 0;
    let own = private_frame();
    let first = if is_gicv2() { own } else { first_redistributor() + 0x1_0000 };
    let distributor = distributor();
    for word in 1..9 {
        // Disables all shared interrupts and sets them pending and active.
        for register in [0x180, 0x200, 0x280, 0x300, 0x380] {
            store(distributor + register + 4 * word, u32::MAX);
        }
        seen |= load(distributor + 0x100 + 4 * word) | load(distributor + 0x80 + 4 * word);
    }
    for interrupt in 32..288 {
        // GICD_IROUTER, or GICD_ITARGETSR: routes to itself.
        let gicv2 = is_gicv2();
        let register = if gicv2 { 0x800 + interrupt / 4 * 4 } else { 0x6000 + 8 * interrupt };
        store(distributor + register, if gicv2 { 0x0404_0404 } else { 2 });
    }
    // GICD_CTLR: disables everything.
    store(distributor, 0);
    if is_gicv2() {
        seen |= write_foreign_interface();
    }
    for frame in [own, first] {
        // The management interrupt: disabled, group 1, not pending, the lowest priority.
        store(frame + 0x180, 1 << 15 | 1 << 7);
        store(frame + 0x80, 1 << 15 | 1 << 7);
        store(frame + 0x280, 1 << 15 | 1 << 7);
        store(frame + 0x40c, u32::MAX);
    }
    if is_gicv2() {
        set_shared_word(Word::Result, seen.into());
        return;
    }
    // The first CPU's timer and software interrupts.
    store(first + 0x180, u32::MAX);
    store(first + 0x200, 0xff);
    seen |= load(first + 0x100);
    // GICR_WAKER and the tables of LPIs.
    store(first - 0x1_0000 + 0x14, 2);
    store(first - 0x1_0000 + 0x70, u32::MAX);
    set_shared_word(Word::Result, seen.into());
}

/// Deactivates all interrupts that it does not own, by GICC_DIR, and reads the targets of foreign ones.
fn write_foreign_interface() -> u32 {
    for interrupt in (0..16).chain(32..288) {
        store(interface() + 0x1000, interrupt);
    }
    (32..288).step_by(4).fold(0, |seen, interrupt| seen | load(distributor() + 0x800 + interrupt))
}

#[unsafe(no_mangle)]
extern "C" fn cell_exception() {
    // ESR_EL1.EC 0: undefined instruction, of the loop of exceptions.
    if read_register!("isr_el1") == 0 {
        count(Word::Exceptions);
        write_register!("elr_el1", read_register!("elr_el1") + 4);
        return;
    }
    handle_timer(TICKS);
}
